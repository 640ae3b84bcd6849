"""What the elements of U₁ are worth.

Accuracy of the theory with the full U₁, with U₁ cut down to its diagonal, and with all diagonal
elements made equal, at the widths of four recipes. What either cut loses is told in pairs, since
all three are predicted from the same data and on the same test examples: on the four-path task
over data seeds, and on the published data (arXiv 2405.15926, figure 2 (c)) over test sequences.

    python -m runs.studies.width_gains.cuts [FOLDER [SEEDS]]     20 data seeds
"""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.study import RUNS, Study, estimate
from runs.studies.width_gains.mathematics import diagonal_only, equal_diagonal
from runs.studies.width_gains.study import problem_of, signs_right
from sampler.presentation import style
from sampler.problem import Problem
from theory import solve_saddle_point

RECIPES = ("markov_four_paths", "markov_published", "markov_two_paths", "time_series")
PAIRED_WIDTHS = (10, 30, 50, 100)
CUTS = {"diagonal only": diagonal_only, "equal diagonal": equal_diagonal}
FULL = "full"
MARKS = {
    FULL: ("full U₁", "o", style.THEORY),
    "diagonal only": ("diagonal only", "+", style.GREY),
    "equal diagonal": ("equal diagonal", "x", style.PURPLE),
}


def right(problem: Problem, factor: np.ndarray) -> dict[str, np.ndarray]:
    """Which test examples are right, with the full U₁ = F Fᵀ and with each cut; NaN if undefined.

    An equal diagonal with the off-diagonal elements kept need not be positive definite.
    """
    test = problem.attended_test, problem.labels_test
    factors = {FULL: factor} | {name: cut(factor) for name, cut in CUTS.items()}
    return {
        name: np.full(len(problem.labels_test), np.nan)
        if one is None
        else signs_right(problem.learning, *test, jnp.asarray(one)).astype(float)
        for name, one in factors.items()
    }


def right_in_theory(recipe: str, width: int, **settings: object) -> dict[str, list]:
    """The same at the saddle point of a recipe at one width, with other settings of its task."""
    problem = problem_of(recipe, width, **settings)
    saddle = solve_saddle_point(problem.learning)
    if not saddle.converged:
        raise SystemExit(saddle.explain())
    found = right(problem, saddle.order_parameters.factors[0])
    return {name: values.tolist() for name, values in found.items()}


def lost_of_seed(seed: int) -> dict[str, list]:
    """Accuracy of the four-path task that either cut loses, by width, at one data seed."""
    return {
        str(width): losses(right_in_theory("markov_four_paths", width, seed=seed))
        .mean(axis=1)
        .tolist()
        for width in PAIRED_WIDTHS
    }


def widths_of(recipe: str) -> tuple[int, ...]:
    """The widths that a recipe sweeps."""
    return sampler.Recipe.load(RUNS / f"{recipe}.toml").sweep["network.widths"]


def losses(found: dict[str, list]) -> np.ndarray:
    """Right with the full U₁ minus right with each cut, [cut, test example]."""
    return np.array([np.subtract(found[FULL], found[name]) for name in CUTS])


def points(values: np.ndarray, kind: str) -> dict:
    """Mean and standard error of these differences, in percentage points."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return estimate(100 * values.mean(), 100 * error, kind)


def by_cut(values: dict[str, np.ndarray], kind: str) -> dict[str, dict]:
    """Estimates by cut and width, of values [cut, sample] by width."""
    return {
        cut: {width: points(of[place], kind) for width, of in values.items()}
        for place, cut in enumerate(CUTS)
    }


def draw(accuracies: dict[str, dict]) -> Figure:
    """Draw the accuracy with the full U₁ and with each cut against the width, by recipe."""
    figure = style.new_figure(style.WIDTH, 6.0)
    panels = figure.subplots(2, 2)
    for axes, (recipe, rows) in zip(panels.flat, accuracies.items(), strict=True):
        widths = [int(width) for width in rows]
        for name, (label, marker, colour) in MARKS.items():
            shares = [100 * row[name] for row in rows.values()]
            axes.plot(widths, shares, marker=marker, color=colour, label=label)
        axes.set(xscale="log", title=recipe.replace("_", " "))
    for axes in panels[1]:
        axes.set_xlabel("width N")
    for axes in panels[:, 0]:
        axes.set_ylabel("accuracy of the theory (%)")
    style.legend_below(figure, panels[0, 0].get_legend_handles_labels())
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    found = {
        recipe: {
            str(width): study.once(f"{recipe}_{width}", right_in_theory, recipe, width)
            for width in widths_of(recipe)
        }
        for recipe in RECIPES
    }
    accuracies = {
        recipe: {
            width: {name: np.mean(values) for name, values in row.items()}
            for width, row in rows.items()
        }
        for recipe, rows in found.items()
    }
    seeds = range(study.size(0, 20))
    by_seed = [study.once(f"four_paths_{seed}", lost_of_seed, seed) for seed in seeds]
    widths = [str(width) for width in PAIRED_WIDTHS]
    numbers = {
        "accuracy": accuracies,
        "lost over seeds": by_cut(
            {width: np.array([one[width] for one in by_seed]).T for width in widths},
            f"over {len(seeds)} data seeds",
        ),
        "lost of published": by_cut(
            {width: losses(found["markov_published"][width]) for width in widths},
            "over 1,000 test sequences",
        ),
    }
    study.record(numbers, "cuts", seeds=list(seeds))
    with style.figure_style():
        study.draw(draw(accuracies), "cuts")
