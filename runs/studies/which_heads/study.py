"""Which heads matter? Models of several kinds, every head removed.

What does a trained model lose without a head, and which number told so beforehand? Of each model
of `models.py`, `ablate_heads` removes every head on unseen examples, and held against that is what
practitioners' numbers and the theory of its attention (`mathematics.py`) say from other examples.
`removable` then takes heads away together, in order of Taylor importance, as far as a limit allows.

    python -m runs.studies.which_heads.study [FOLDER [MODEL …]]     hours

Medians of ρ are over the same models in every row, those with a head of measurable cost.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.scripts import Study, estimate
from runs.studies.which_heads.mathematics import NAMES, numbers_of_theory
from runs.studies.which_heads.models import TrainedModel, models_named
from sampler.presentation import style

# What may be lost: a point of accuracy where at least so many examples tell, or nats.
POINT, NATS, ENOUGH = 0.01, 0.02, 4000
MEASURE, BEST = "zero_loss", "taylor"
# A head costs something where what is lost without it is more than so many standard errors.
MEASURABLE = 2.0
RESAMPLED = 2000


def measure(make: Callable[[Path], TrainedModel], folder: Path) -> dict:
    """Costs and ρ of a model whose heads are removed, and how many go within the limit."""
    one = make(folder / "models")
    splits = {name: split for name, split in one.splits.items() if name != "train"}
    removed = sampler.ablate_heads(one.model, **splits, **one.settings)
    costs = removed.to_dataframe()
    numbers = numbers_of_theory(one.recipe_of_theory(folder), places_of(costs.index))
    numbers = numbers.set_index(costs.index).join(costs[["taylor", "magnitude"]])
    enough = removed.result.attrs["examples"] >= ENOUGH
    limit = {"accuracy": POINT} if enough else {"loss": NATS}
    found = sampler.removable(one.model, **limit, **splits, **one.settings)
    ((lost, allowed),) = limit.items()
    most = costs[MEASURE].idxmax()
    return {
        "task": one.task,
        "most costly": estimate(
            costs[MEASURE][most], costs[f"{MEASURE}_error"][most], "over test examples"
        ),
        "rho": numbers.corrwith(costs[MEASURE], method="spearman").to_dict(),
        "heads": found.result.sizes["step"],
        "removed": found.result.attrs["count"],
        "counts": [found.result.attrs[name] for name in ("low", "high")],
        "cost": getattr(found, lost)[0] / allowed,
    }


def places_of(heads: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Heads (layer, number) as the theory numbers them, which sees the layers of these heads."""
    layers = sorted({layer for layer, _ in heads})
    return [(layers.index(layer), head) for layer, head in heads]


def over_models(statistic: Callable, values: dict[str, float], models: dict[str, dict]) -> dict:
    """A statistic of models, and its 95 % interval by resampling tasks with all their models."""
    by_task: dict[str, list[float]] = {}
    for name, value in values.items():
        by_task.setdefault(models[name]["task"], []).append(value)
    tasks, generator = list(by_task.values()), np.random.default_rng(0)
    again = []
    for _ in range(RESAMPLED):
        drawn = generator.integers(len(tasks), size=len(tasks))
        again.append(statistic(np.concatenate([tasks[place] for place in drawn])))
    low, high = np.quantile(again, [0.025, 0.975])
    value = statistic(list(values.values()))
    return {"value": value, "low": low, "high": high, "models": len(values)}


def ahead(rho: dict[str, float], key: str) -> float:
    """1 where a number is ahead of Taylor importance, ½ where they are equal."""
    return float(rho[key] > rho[BEST]) + 0.5 * float(rho[key] == rho[BEST])


def ordered(models: dict[str, dict]) -> dict[str, dict]:
    """Models that have every number, and a head that costs something: others have no order."""
    return {
        name: one
        for name, one in models.items()
        if set(NAMES) <= set(one["rho"])
        and one["most costly"]["value"] > MEASURABLE * one["most costly"]["error"]
    }


def networks(models: Iterable[str]) -> int:
    """How many networks these models are, or are windows of: a window has a third word."""
    return len({re.sub(r"(_\d+)_[a-z]+$", r"\1", name) for name in models})


def summary(models: dict[str, dict]) -> dict:
    """Every number over the models that have an order; what goes together over all models."""
    every = {name: one["rho"] for name, one in ordered(models).items()}
    shares = {name: one["removed"] / one["heads"] for name, one in models.items()}
    return {
        "counts": {
            "all": {"alone": len(every), "networks": networks(every), "together": len(models)}
        },
        "table": {
            "all": {
                key: {
                    "rho": over_models(
                        np.median, {name: rho[key] for name, rho in every.items()}, models
                    ),
                    "ahead": over_models(
                        np.mean, {name: ahead(rho, key) for name, rho in every.items()}, models
                    ),
                }
                for key in NAMES
            }
        },
        "removed": over_models(np.mean, shares, models),
        "cost": over_models(np.median, {name: one["cost"] for name, one in models.items()}, models),
        "least of Taylor": min(one["rho"][BEST] for one in models.values()),
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


if __name__ == "__main__":
    study = Study(__file__)
    models = {
        name: study.once(name, measure, make, study.folder)
        for name, make in models_named(study.sizes).items()
    }
    numbers = summary(models)
    study.record(numbers, seeds=[0, 1, 2])
    table = numbers["table"]["all"]
    rows = {label: table[key] for key, label in LABELS.items()}
    columns = {"median ρ": ("rho", 2), "ahead of Taylor": ("ahead", 2)}
    study.table("numbers", "number", rows, columns)
    with style.figure_style():
        study.draw(draw(table, numbers["counts"]["all"]["alone"]))
