# %% [markdown]
# # What finite width gains
#
# Accuracy of the theory at N = 10 minus that at infinite width, paired over data seeds: each at the
# temperature that is right most often on 1,000 validation examples of its own, both at that of the
# recipe, and each at the one that its evidence chooses (Laplace's approximation for the theory).
#
#     python runs/gains.py [FOLDER] [SEEDS]
#
# by default into runs/results/gains, over 20 data seeds, 6 of the time series.

# %%
import sys
from pathlib import Path

import jax
import numpy as np
from renew import estimate, record

jax.config.update("jax_enable_x64", True)

from sampler.data.make import build_task  # noqa: E402
from sampler.presentation import style  # noqa: E402
from sampler.problem import build_problem  # noqa: E402
from sampler.settings.recipe import load_recipe  # noqa: E402
from theory import (  # noqa: E402
    InfiniteWidth,
    OrderParameters,
    Predictor,
    log_evidence_at_saddle,
    predict,
    solve_saddle_point,
)
from theory.observables import accuracy  # noqa: E402

RUNS = Path(__file__).parent
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/gains")
most = int(sys.argv[2]) if len(sys.argv) > 2 else 20
# By recipe: what is drawn anew with every seed, and how many.
STUDIES = {
    "markov_four_paths": ("task.seed", min(most, 20)),
    "markov_two_paths": ("task.seed", min(most, 20)),
    "time_series": ("task.seed", min(most, 6)),
}
WIDTH = 10
TEMPERATURES = 10.0 ** np.arange(-4.0, 1.01, 0.5)
CHOICES = ("validation", "recipe", "evidence")


# %%
def measured(name: str, setting: str, seed: int) -> dict[str, np.ndarray]:
    """Test accuracy and temperature of theory and infinite width [network], by every choice."""
    overrides = [f"network.widths={WIDTH}", "sweep={}", f"{setting}={seed}"]
    recipe = load_recipe(RUNS / f"{name}.toml", [*overrides, "task.examples_validation=1000"])
    problem = build_problem(recipe, build_task(recipe))
    learning, limit = problem.learning, InfiniteWidth.of(problem.learning)
    infinite = OrderParameters.gp_limit(learning.architecture).factors[0]
    splits = (
        (problem.attended_validation, problem.labels_validation),
        (problem.attended_test, problem.labels_test),
    )

    def scores(temperature: float) -> np.ndarray:
        """Accuracy on validation and test examples, and ln p(y), [network, score]."""
        there = learning.at(temperature)
        saddle = solve_saddle_point(there)
        if not saddle.converged:
            raise SystemExit(saddle.explain())
        rows = []
        for factor, evidence in (
            (saddle.order_parameters.factors[0], log_evidence_at_saddle(there, saddle)),
            (infinite, limit.log_evidence(temperature)),
        ):
            found = [
                accuracy(np.asarray(predict(Predictor.for_examples(there, x), factor)[0]), y)
                for x, y in splits
            ]
            rows.append([*found, float(evidence)])
        return np.array(rows)

    table = np.stack([scores(temperature) for temperature in TEMPERATURES])
    recipes = np.full(2, np.argmin(np.abs(np.log(TEMPERATURES / learning.temperature))))
    places = (table[..., 0].argmax(axis=0), recipes, table[..., 2].argmax(axis=0))
    return {
        choice: np.stack([table[at, [0, 1], 1], TEMPERATURES[at]])
        for choice, at in zip(CHOICES, places, strict=True)
    }


def over_seeds(values: np.ndarray) -> dict[str, object]:
    """Mean, standard error and standard deviation over data seeds."""
    spread = float(np.std(values, ddof=1))
    error = spread / np.sqrt(len(values))
    kind = f"over {len(values)} data seeds"
    return estimate(np.mean(values), error, kind) | {"spread": spread}


# %%
numbers, gains = {}, {}
for name, (setting, count) in STUDIES.items():
    rows = [measured(name, setting, seed) for seed in range(count)]
    numbers[name], gains[name] = {}, {}
    for choice in CHOICES:
        right, temperature = np.stack([row[choice] for row in rows], axis=1)
        gain = gains[name][choice] = 100 * (right[:, 0] - right[:, 1])
        chosen = np.exp(np.log(temperature).mean(axis=0))
        numbers[name][choice] = {
            "gain": over_seeds(gain),
            "least": float(gain.min()),
            "most": float(gain.max()),
            "theory": over_seeds(right[:, 0]),
            "infinite": over_seeds(right[:, 1]),
            "temperature": float(chosen[0]),
            "infinite temperature": float(chosen[1]),
        }
        one = numbers[name][choice]
        print(f"{name}, temperature by {choice}: {one['gain']['value']:.1f} ± "
              f"{one['gain']['error']:.1f} points ({one['theory']['value']:.3f} against "
              f"{one['infinite']['value']:.3f})", flush=True)  # fmt: skip

# %%
LABELS = {
    "validation": ("each at its best by validation", "o", style.THEORY),
    "recipe": ("both at the recipe's temperature", "x", style.GAUSSIAN_PROCESS),
    "evidence": ("each at its best by evidence", "^", style.NEXT_ORDER),
}
with style.figure_style():
    figure = style.new_figure(6.0, 3.0)
    axes = figure.subplots()
    for place, (choice, (label, marker, colour)) in enumerate(LABELS.items()):
        for row, found in enumerate(gains.values()):
            height = np.full(len(found[choice]), row + 0.2 * (1 - place))
            axes.plot(found[choice], height, marker, color=colour, alpha=0.6,
                      label=label if row == 0 else None)  # fmt: skip
    axes.set_yticks(range(len(gains)), [name.replace("_", " ") for name in gains])
    axes.set_xlabel("accuracy gained over infinite width, a mark a data seed (points)")
    axes.axvline(0.0, color="black", linewidth=0.5)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 1.38), ncols=1)
    written = style.save_figure(figure, folder, "gains")
print("figure:", *written)
record(folder, "gains", numbers, made_by="python runs/gains.py", seeds=list(range(most)))
