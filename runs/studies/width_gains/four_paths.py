"""Four paths: what the elements of U₁ are worth.

Accuracy of the theory on the four-path task with the full U₁ minus that with U₁ cut down to its
diagonal, and minus that with all diagonal elements made equal. Both are predicted from the same
data and on the same test sequences, so the differences are taken in pairs: over data seeds, and
on the published data (arXiv 2405.15926, figure 2 (c)) over test sequences.

    python -m runs.studies.width_gains.four_paths [FOLDER [SEEDS]]     20 data seeds
"""

import numpy as np
from matplotlib.figure import Figure

from runs.studies.study import Study, estimate
from runs.studies.width_gains.study import problem_of, signs_right
from sampler.presentation import style
from theory import diagonal_only, equal_diagonal, solve_saddle_point

WIDTHS = (10, 30, 50, 100)
CUT = {"diagonal only": diagonal_only, "equal diagonal": equal_diagonal}


def losses(recipe: str, width: int, **settings) -> np.ndarray:
    """Right with the full U₁ minus right with each cut, [cut, test example]; NaN where undefined.

    An equal diagonal with the off-diagonal elements kept need not be positive definite.
    """
    problem = problem_of(recipe, width, **settings)
    saddle = solve_saddle_point(problem.learning)
    if not saddle.converged:
        raise SystemExit(saddle.explain())
    factor = saddle.order_parameters.factors[0]

    def right(factor) -> np.ndarray:
        test = problem.attended_test, problem.labels_test
        return signs_right(problem.learning, *test, factor).astype(float)

    full, factors = right(factor), [cut(factor) for cut in CUT.values()]
    return np.stack([full * np.nan if one is None else full - right(one) for one in factors])


def of_seed(seed: int) -> dict[str, list]:
    """Accuracy lost by either cut, by width."""
    return {
        str(width): losses("markov_four_paths", width, seed=seed).mean(axis=1).tolist()
        for width in WIDTHS
    }


def of_published() -> dict[str, list]:
    """What is lost of every test sequence, by width."""
    return {str(width): losses("markov_published", width).tolist() for width in WIDTHS}


def points(values: np.ndarray, kind: str) -> dict:
    """Mean and standard error of these differences, in percentage points."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return estimate(100 * values.mean(), 100 * error, kind)


def by_cut(values: dict[str, np.ndarray], kind: str) -> dict[str, dict]:
    """Estimates by cut and width, of values [cut, sample] by width."""
    return {
        cut: {width: points(of[place], kind) for width, of in values.items()}
        for place, cut in enumerate(CUT)
    }


def draw(of_seeds: dict[str, dict]) -> Figure:
    """Draw what is lost against the width, mean and standard error over data seeds."""
    figure = style.new_figure(4.0, 3.0)
    axes = figure.subplots()
    for cut, row in of_seeds.items():
        mean, error = np.array([[one["value"], one["error"]] for one in row.values()]).T
        axes.errorbar(WIDTHS, mean, error, marker="o", capsize=2, label=cut)
    axes.set(xscale="log", xlabel="width N", ylabel="accuracy lost (points)")
    axes.axhline(0.0, color="black", linewidth=0.5)
    axes.legend()
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    seeds = range(study.size(0, 20))
    by_seed = [study.once(f"four_paths_{seed}", of_seed, seed) for seed in seeds]
    published = study.once("published", of_published)
    lost = {width: np.array([one[width] for one in by_seed]).T for width in map(str, WIDTHS)}
    of_sequences = {width: np.array(of) for width, of in published.items()}
    numbers = {
        "seeds": by_cut(lost, f"over {len(seeds)} data seeds"),
        "published": by_cut(of_sequences, "over 1,000 test sequences"),
    }
    study.record(numbers, "four_paths", seeds=list(seeds))
    with style.figure_style():
        study.draw(draw(numbers["seeds"]), "four_paths")
