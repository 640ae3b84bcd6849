# %% [markdown]
# # Four paths: what the elements of U₁ are worth
#
# Accuracy of the theory on the four-path task with the full U₁ minus that with U₁ cut down to its
# diagonal, and minus that with all diagonal elements made equal. Both are predicted from the same
# data and on the same test sequences, so the differences are taken in pairs: over data seeds, and
# on the published data (arXiv 2405.15926, figure 2 (c)) over test sequences.
#
#     python runs/four_paths_seeds.py [FOLDER] [SEEDS]
#
# by default into runs/results/four_paths_seeds, over 20 data seeds.

# %%
import sys
from pathlib import Path

import jax
import numpy as np
from renew import estimate, record

jax.config.update("jax_enable_x64", True)

from sampler.data.make import build_task  # noqa: E402
from sampler.presentation.style import figure_style, new_figure, save_figure  # noqa: E402
from sampler.problem import build_problem  # noqa: E402
from sampler.settings.recipe import load_recipe  # noqa: E402
from theory import Predictor, diagonal_only, equal_diagonal, predict, solve_saddle_point  # noqa: E402

RUNS = Path(__file__).parent
WIDTHS = (10, 30, 50, 100)
CUT = {"diagonal only": diagonal_only, "equal diagonal": equal_diagonal}
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/four_paths_seeds")
seeds = range(int(sys.argv[2]) if len(sys.argv) > 2 else 20)


# %%
def losses(name: str, width: int, *overrides: str) -> np.ndarray:
    """Right with the full U₁ minus right with each cut, [cut, test example]; NaN where undefined.

    An equal diagonal with the off-diagonal elements kept need not be positive definite.
    """
    settings = [f"network.widths={width}", "sweep={}", *overrides]
    recipe = load_recipe(RUNS / f"{name}.toml", settings)
    problem = build_problem(recipe, build_task(recipe))
    saddle = solve_saddle_point(problem.learning)
    if not saddle.converged:
        raise SystemExit(saddle.explain())
    predictor = Predictor.for_examples(problem.learning, problem.attended_test)

    def right(factor) -> np.ndarray:
        mean = np.asarray(predict(predictor, factor)[0])
        return (np.sign(mean) == problem.labels_test)[:, 0].astype(float)

    factor = saddle.order_parameters.factors[0]
    full, factors = right(factor), [cut(factor) for cut in CUT.values()]
    return np.stack([full * np.nan if one is None else full - right(one) for one in factors])


def points(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard error of these differences, in percentage points."""
    return 100 * values.mean(), 100 * values.std(ddof=1) / np.sqrt(len(values))


# %%
by_seed = {
    width: np.stack(
        [losses("markov_four_paths", width, f"task.seed={seed}").mean(1) for seed in seeds]
    )
    for width in WIDTHS
}
of_seeds, published = (
    {cut: {width: points(found[width][place]) for width in WIDTHS} for place, cut in enumerate(CUT)}
    for found in (
        {width: values.T for width, values in by_seed.items()},
        {width: losses("markov_published", width) for width in WIDTHS},
    )
)
for what, table in (
    (f"mean over {len(seeds)} data seeds ± standard error", of_seeds),
    ("published data ± standard error over 1000 test sequences", published),
):
    print(f"accuracy lost with U₁ cut, in points: {what}")
    for cut, row in table.items():
        texts = [f"N = {width}: {mean:5.2f} ± {error:.2f}" for width, (mean, error) in row.items()]
        print(f"  {cut:<15}", "   ".join(texts))
for width, values in by_seed.items():
    undefined = int(np.isnan(values).any(1).sum())
    if undefined:
        print(f"N = {width}: an equal diagonal is not positive definite in {undefined} seeds")

# %%
with figure_style():
    figure = new_figure(4.0, 3.0)
    axes = figure.subplots()
    for cut, row in of_seeds.items():
        mean, error = np.array(list(row.values())).T
        axes.errorbar(WIDTHS, mean, error, marker="o", capsize=2, label=cut)
    axes.set(xscale="log", xlabel="width N", ylabel="accuracy lost (points)")
    axes.axhline(0.0, color="black", linewidth=0.5)
    axes.legend()
    written = save_figure(figure, folder, "four_paths_seeds")
print("figure:", *written)
record(
    folder,
    "four_paths_seeds",
    {
        what: {
            cut: {str(width): estimate(mean, error, kind) for width, (mean, error) in row.items()}
            for cut, row in table.items()
        }
        for what, kind, table in (
            ("seeds", f"over {len(seeds)} data seeds", of_seeds),
            ("published", "over 1,000 test sequences", published),
        )
    },
    made_by="python runs/four_paths_seeds.py",
    seeds=list(seeds),
)
