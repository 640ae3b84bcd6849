"""Which heads matter? Models of several kinds, every head removed.

What does a trained model lose without a head, and which number told so beforehand? Of each model
of `models.py`, `ablate_heads` removes every head on unseen examples, and held against that is what
practitioners' numbers and the theory of its attention (`mathematics.py`) say from other examples.

    python -m runs.studies.which_heads.study     hours

Medians of ρ are over the same models in every row, those with a head of measurable cost.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.numbers import estimate
from runs.studies.study import Study
from runs.studies.tables import Table, cell, table
from runs.studies.which_heads.mathematics import (
    BEST,
    NAMES,
    ahead,
    numbers_of_theory,
    over_models,
)
from runs.studies.which_heads.models import MODELS
from sampler.presentation import style

MEASURE = "zero_loss"
# A head costs something where what is lost without it is more than so many standard errors.
MEASURABLE = 2.0


def measure(name: str, folder: Path) -> dict:
    """Costs of the heads of a model, and ρ of every number with them."""
    one = MODELS[name](folder / "models")
    splits = {name: split for name, split in one.splits.items() if name != "train"}
    costs = sampler.ablate_heads(one.model, **splits, **one.settings).to_dataframe()
    numbers = numbers_of_theory(one.recipe_of_theory(folder), places_of(costs.index))
    numbers = numbers.set_index(costs.index).join(costs[["taylor", "magnitude"]])
    most = costs.loc[costs[MEASURE].idxmax()]
    return {
        "task": one.task,
        "most costly": estimate(most[MEASURE], most[f"{MEASURE}_error"], "over test examples"),
        "rho": numbers.corrwith(costs[MEASURE], method="spearman").to_dict(),
    }


def places_of(heads: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Heads (layer, number) as the theory numbers them, which sees the layers of these heads."""
    layers = sorted({layer for layer, _ in heads})
    return [(layers.index(layer), head) for layer, head in heads]


def ordered(models: dict[str, dict]) -> dict[str, dict]:
    """Models that have every number, and a head that costs something: others have no order."""
    return {
        name: one
        for name, one in models.items()
        if set(NAMES) <= set(one["rho"])
        and one["most costly"]["value"] > MEASURABLE * one["most costly"]["error"]
    }


def summary(models: dict[str, dict]) -> dict:
    """Every number over the models that have an order."""
    every = {name: one["rho"] for name, one in ordered(models).items()}
    statistics = {"rho": (np.median, lambda rho, key: rho[key]), "ahead": (np.mean, ahead)}
    return {
        "models with an order": len(every),
        "table": {
            key: {
                name: over_models(how, {one: of(rho, key) for one, rho in every.items()}, models)
                for name, (how, of) in statistics.items()
            }
            for key in NAMES
        },
        "least of Taylor": min(rho[BEST] for rho in every.values()),
        "models": models,
    }


LABELS = {
    "taylor": "Taylor importance: the mean size of ∂loss/∂gate",
    "magnitude": "magnitude of the output weights (one-shot: of the values)",
    "solved_again": "theory solved again without the head",
    "removed": "theory, head removed after learning",
    "zeroed": "theory, rows and columns of U₁ zeroed",
    "score": "head score",
}
OF_SETS = {"every_subset": "every subset, tried", "random": "at random"}


def draw(table: dict, models: int) -> Figure:
    """Draw medians of ρ, the best on top; bars are 95 % intervals by resampling tasks."""
    keys = sorted(table, key=lambda key: table[key]["rho"]["value"])
    figure = style.new_figure(style.WIDTH, 0.3 * len(keys) + 1.5)
    figure.suptitle("Which number says what a head is worth?")
    axes = figure.subplots()
    for place, key in enumerate(keys):
        one = table[key]["rho"]
        colour = {"taylor": style.ORANGE, "magnitude": style.GREEN}.get(key, style.THEORY)
        axes.hlines(place, one["low"], one["high"], color=colour, linewidth=2.0)
        axes.plot(one["value"], place, "o", color=colour, markersize=5)
    axes.set_xlabel(f"median ρ with the loss gained\nwithout a head, {models} models")
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    axes.set_yticks(range(len(keys)), [NAMES[key] for key in keys])
    return figure


def tables(numbers: dict) -> dict[str, Table]:
    """ρ of every number; and what goes together, and sets, which are frozen (frozen.json)."""
    frozen = STUDY.kept("frozen")
    columns = {"median ρ": ("rho", 2), "ahead of Taylor": ("ahead", 2)}
    sets = {
        model: {head: ", ".join(cell(rho, 2) for rho in both) for head, both in of.items()}
        for model, of in frozen["sets"].items()
    }
    return {
        "numbers": table(
            "number", {label: numbers["table"][key] for key, label in LABELS.items()}, columns
        ),
        "together": table(
            "order by",
            {label: frozen["table"][key] for key, label in (LABELS | OF_SETS).items()},
            {"share of heads that go": ("removed", 2)},
        ),
        "sets": table("model", sets, {head: (head,) for head in next(iter(sets.values()))}),
    }


STUDY = Study(
    __file__,
    points=lambda small, folder: {
        name: (measure, name, folder) for name in (["look_up_2x4_0"] if small else MODELS)
    },
    numbers=summary,
    tables=tables,
    figures=lambda rows, numbers: {
        "figure": draw(numbers["table"], numbers["models with an order"])
    },
)

if __name__ == "__main__":
    STUDY.run()
