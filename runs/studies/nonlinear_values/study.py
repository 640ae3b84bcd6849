"""At which width and depth do theories of nonlinear values stop being right?

Networks whose values pass a ReLU, and linear ones beside them: the exact posterior is sampled,
in hidden weights and in order parameters, and held against the network of infinite width, an
approximation of finite width (by heads: order parameters of all of them), and for linear values
against the theory of attention paths. A difference is that of the mean predictors on test
examples, |theory − posterior mean|/|posterior mean|, without the bias of Monte Carlo noise; so is
that of the overlaps U_1, for which the weights of some draws are kept.

    python -m runs.studies.nonlinear_values.study     three data seeds, an hour and a half
"""

from itertools import product
from pathlib import Path

from matplotlib.figure import Figure

import sampler
from runs.studies.nonlinear_values.mathematics import UNDECIDED, heads_beside
from runs.studies.numbers import mean_over
from runs.studies.study import Study
from runs.studies.tables import table
from sampler.presentation import style

WIDTHS, WIDEST_KEPT = (5, 15, 30, 100), 30  # weights are kept up to it, for U_1
EXAMPLES, TESTS, TEMPERATURE, DEPTHS, VALUES = 40, 200, 0.1, (1, 2), ("relu", "linear")
HEADS = {
    "markov": {1: [["good", "uniform"]], 2: [["good", "random"], ["uniform", "random"]]},
    "digits": {1: [["similar", "near"]], 2: [["similar", "near"], ["similar", "near"]]},
}
# Values and theory: what the comparison calls it, and how it is drawn.
THEORIES = {
    ("relu", "infinite width"): ("infinite width", style.GREY, "-"),
    ("relu", "by heads"): ("by heads", style.THEORY, "-"),
    ("linear", "infinite width"): ("infinite width", style.GREY, ":"),
    ("linear", "theory"): ("leading order", style.THEORY, ":"),
}
COLUMNS = {
    "ReLU: infinite width": ("relu/infinite width", 1, 100),
    "by heads": ("relu/by heads", 1, 100),
    "by heads: U₁": ("relu/overlaps", 1, 100),
    "linear: infinite width": ("linear/infinite width", 1, 100),
    "theory": ("linear/theory", 1, 100),
}


def recipe_of(kind: str, depth: int, width: int, values: str, seed: int) -> sampler.Recipe:
    """Data of a seed: hidden Markov chains of 8 tokens, or threes and eights in 4 patches."""
    sizes = {"examples_train": EXAMPLES, "examples_test": TESTS, "seed": seed}
    if kind == "markov":
        task, readout = sampler.MarkovChain(tokens=7, features=10, **sizes), "last"
    else:
        task, readout = sampler.Digits(classes=[3, 8], patch=4, **sizes), "mean"
    return sampler.Recipe(
        task=task,
        attention={"heads": HEADS[kind][depth]},
        network={"widths": width, "values": values, "readout": readout},
        posterior={"temperature": TEMPERATURE},
    )


def of_seed(recipe: sampler.Recipe, seed: int, settings: dict) -> dict:
    """How far every theory is from the sampled posterior of one network."""
    nonlinear, own, overlaps = recipe.network.values != "linear", {}, None
    kept = nonlinear and recipe.network.widths <= WIDEST_KEPT
    space = {"space": "hidden_weights"} if nonlinear else {}
    settings = settings | space | {"weight_draws": kept * settings["weight_draws"]}
    draws = sampler.sample(recipe, seed=seed, progress=False, **settings)
    if nonlinear:
        own, overlaps = heads_beside(recipe, draws)
    found = sampler.compare(sampler.solve(recipe), draws, own=own)
    of_mean = found.table().loc["predictor_mean"]
    of_mean = of_mean[~of_mean["state"].isin(["", *UNDECIDED])]
    return {
        "trusted": bool(found.diagnostics.passed),
        "seconds": draws["posterior"].attrs["seconds"],
        "overlaps": overlaps,
        **{found.names[name]: difference for name, difference in of_mean["difference"].items()},
    }


def measure(network: list, data_sets: int, settings: dict) -> dict:
    """Networks of all data seeds, until one does not pass its diagnostics."""
    rows: list[dict] = []
    while len(rows) < data_sets and all(row["trusted"] for row in rows):
        rows.append(of_seed(recipe_of(*network, len(rows)), len(rows), settings))
    return {"networks": data_sets, "data sets": rows}


def over_data_sets(rows: list[dict], name: str) -> dict | None:
    """The mean of a difference and its error; None for fewer than two."""
    found = [row[name] for row in rows if row.get(name) is not None]
    return mean_over(found, "data sets") if len(found) > 1 else None


def numbers(rows: dict[str, dict]) -> dict:
    """Means over data sets by width, and how many networks were sampled and can be trusted."""
    sampled = [one for row in rows.values() for one in row["data sets"]]
    tasks: dict[str, dict] = {}
    for point, row in rows.items():
        task, width, values = point.split(" | ")
        names = {theory: name for (of, theory), (name, *_) in THEORIES.items() if of == values}
        names |= {"overlaps": "overlaps"} if values == "relu" else {}
        found = {theory: over_data_sets(row["data sets"], name) for theory, name in names.items()}
        tasks.setdefault(task, {}).setdefault(width, {})[values] = found
    counts = {
        "networks": sum(row["networks"] for row in rows.values()),
        "sampled": len(sampled),
        "trusted": sum(row["trusted"] for row in sampled),
        "minutes": round(sum(row["seconds"] for row in sampled) / 60),
    }
    return {"counts": counts, "tasks": tasks}


def draw(tasks: dict) -> Figure:
    """Draw the difference of the mean predictor against the width, a panel a task and depth."""
    figure = style.new_figure(style.WIDTH, 5.4, "Where theories of nonlinear values fail")
    panels = figure.subplots(len(tasks) // 2, 2, sharex=True, sharey=True, squeeze=False)
    for (task, of_task), axes in zip(tasks.items(), panels.flat, strict=True):
        for (values, theory), (_, colour, line) in THEORIES.items():
            shown = {int(width): of[values][theory] for width, of in of_task.items()}
            shown = {width: one for width, one in shown.items() if one is not None}
            means, errors = ([one[key] for one in shown.values()] for key in ("value", "error"))
            marks = {"color": colour, "linestyle": line, "marker": "o", "markersize": 3}
            axes.errorbar([*shown], means, errors, label=f"{values}: {theory}", **marks)
        axes.set(xscale="log", yscale="log", ylim=(0.005, 2.0), title=f"{task} layers")
        axes.set_xticks(WIDTHS, map(str, WIDTHS))
    figure.supxlabel("width N; differences of the mean predictor")
    style.legend_below(figure, panels[0, 0].get_legend_handles_labels())
    return figure


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Networks by task, depth, width and values."""
    few = {"until": "draws", "warmup": 50, "draws": 50, "weight_draws": 50}
    settings = few if small else {"max_minutes": 4.0, "weight_draws": 400}
    depths, widths, sets = (DEPTHS[:1], WIDTHS[:1], 1) if small else (DEPTHS, WIDTHS, 3)
    every = product(depths, HEADS, widths, VALUES)
    found = {f"{kind}, {depth} | {n} | {of}": [kind, depth, n, of] for depth, kind, n, of in every}
    return {name: (measure, network, sets, settings) for name, network in found.items()}


STUDY = Study(
    __file__, points, numbers,
    tables=lambda found: {task: table("N", of, COLUMNS) for task, of in found["tasks"].items()},
    figures=lambda rows, numbers: {"figure": draw(numbers["tasks"])},
)  # fmt: skip

if __name__ == "__main__":
    STUDY.run()
