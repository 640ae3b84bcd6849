"""What the elements of U₁ are worth.

Accuracy of the theory with the full U₁, with U₁ cut down to its diagonal, and with all diagonal
elements made equal, at the widths of four recipes. What either cut loses is told in pairs, since
all three are predicted from the same data and on the same test examples: on the four-path task
over data seeds, and on the published data (arXiv 2405.15926, figure 2 (c)) over test sequences.

    python -m runs.studies.overlap_cuts.study     minutes
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.numbers import estimate
from runs.studies.overlap_cuts.mathematics import CUTS, FULL, losses, right
from runs.studies.study import RUNS, Study
from runs.studies.tables import Table, table
from sampler.presentation import style
from theory import solve_saddle_point

RECIPES = ("markov_four_paths", "markov_published", "markov_two_paths", "time_series")
PAIRED_WIDTHS = (10, 30, 50, 100)
MARKS = {
    FULL: ("full U₁", "o", style.THEORY),
    "diagonal only": ("diagonal only", "+", style.GREY),
    "equal diagonal": ("equal diagonal", "x", style.PURPLE),
}


def cut(recipe: str, width: int, **settings: object) -> dict[str, list]:
    """The same at the saddle point of a recipe at one width, with other settings of its task."""
    changes = {"network.widths": width} | {f"task.{key}": one for key, one in settings.items()}
    problem = sampler.make_problem(sampler.Recipe.load(RUNS / f"{recipe}.toml", changes))
    saddle = solve_saddle_point(problem.learning)
    if not saddle.converged:
        raise SystemExit(saddle.explain())
    found = right(problem, saddle.order_parameters.factors[0])
    return {name: values.tolist() for name, values in found.items()}


def lost(seed: int) -> dict[str, list]:
    """Accuracy of the four-path task that either cut loses, by width, at one data seed."""
    return {
        str(width): losses(cut("markov_four_paths", width, seed=seed)).mean(axis=1).tolist()
        for width in PAIRED_WIDTHS
    }


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


def points_of_study(small: bool, folder: Path) -> dict[str, tuple]:
    """Every width of the recipes, and data seeds of the four-path task."""
    found: dict[str, tuple] = {}
    for recipe in RECIPES:
        widths = sampler.Recipe.load(RUNS / f"{recipe}.toml").sweep["network.widths"]
        found |= {f"{recipe}/{width}": (cut, recipe, width) for width in widths}
    return found | {f"lost/{seed}": (lost, seed) for seed in range(2 if small else 20)}


def numbers(rows: dict[str, dict]) -> dict:
    """Accuracies by recipe and width, and what either cut loses, in pairs."""
    found: dict[str, dict] = {}
    for name, row in rows.items():
        recipe, width = name.split("/")
        found.setdefault(recipe, {})[width] = row
    by_seed, widths = list(found.pop("lost").values()), [str(width) for width in PAIRED_WIDTHS]
    of_seeds = {width: np.array([one[width] for one in by_seed]).T for width in widths}
    published = {width: losses(found["markov_published"][width]) for width in widths}
    return {
        "accuracy": {
            recipe: {
                width: {name: np.mean(values) for name, values in row.items()}
                for width, row in those.items()
            }
            for recipe, those in found.items()
        },
        "lost over seeds": by_cut(of_seeds, f"over {len(by_seed)} data seeds"),
        "lost of published": by_cut(published, "over 1,000 test sequences"),
    }


def tables(numbers: dict) -> dict[str, Table]:
    """Accuracies of each recipe, and losses of either cut."""
    columns = {label: (name, 3) for name, (label, *_) in MARKS.items()}
    widths = {str(width): (str(width), 2) for width in PAIRED_WIDTHS}
    found = {recipe: table("N", rows, columns) for recipe, rows in numbers["accuracy"].items()}
    for name in ("lost over seeds", "lost of published"):
        found[name] = table("U₁ cut to", numbers[name], widths)
    return found


STUDY = Study(
    __file__,
    points_of_study,
    numbers,
    tables,
    lambda rows, numbers: {"figure": draw(numbers["accuracy"])},
)

if __name__ == "__main__":
    STUDY.run()
