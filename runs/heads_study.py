# %% [markdown]
# # Which heads matter? Models of several kinds, every head removed
#
# What does a trained model lose without a head, and which number told so beforehand? Of each model
# of `heads_models.py`, `ablate_heads` removes every head on unseen examples and holds against that
# what the theory and practitioners' numbers say from other examples. `removable` then takes heads
# away together, in order of Taylor importance, as far as a limit allows.
#
#     python runs/heads_study.py [FOLDER] [MODEL …]   (hours; default runs/results/heads_study)
#
# A model whose results are in the folder is not made again. Medians are over those models that have
# every number, so that all rows are of the same models.

# %%
import sys
from pathlib import Path

import numpy as np
from heads_models import TrainedModel, models_named
from matplotlib.figure import Figure
from renew import estimate, record

import sampler
from sampler.heads.importance import PREDICTIONS
from sampler.heads.removal import RemovedHeads
from sampler.presentation import style
from sampler.storage.files import from_json, read_json, to_json, write_json

# What may be lost: a point of accuracy where at least so many examples tell, or nats.
POINT, NATS, ENOUGH = 0.01, 0.02, 4000
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/heads_study")


# %%
def removed_alone(one: TrainedModel) -> dict:
    """Every head of a model removed."""
    result = sampler.ablate_heads(one.model, one.network, **one.splits, **one.settings).result
    return to_json(result)


def removed_together(one: TrainedModel, examples: int) -> dict:
    """How many heads go within the limit, of how many, and what that costs, as its share."""
    limit = {"accuracy": POINT} if examples >= ENOUGH else {"loss": NATS}
    splits = {name: split for name, split in one.splits.items() if name != "train"}
    found = sampler.removable(one.model, **limit, **splits, **one.settings)
    ((measure, allowed),) = limit.items()
    cost, _ = getattr(found, measure)
    return {
        "heads": len(found.result.order),
        "removed": found.result.count,
        "counts": list(found.result.counts),
        "cost": cost / allowed,
    }


folder.mkdir(parents=True, exist_ok=True)
stored: dict[str, dict] = {}
for name, make in models_named(sys.argv[2:]).items():
    file = folder / f"{name}.json"
    if not file.is_file():
        print(f"{name} …", flush=True)
        one = make(folder / "models")
        alone = removed_alone(one)
        together = removed_together(one, alone["examples_test"])
        write_json(file, {"task": one.task, "alone": alone, "together": together})
    stored[name] = read_json(file, "heads_study")
alone = {name: from_json(RemovedHeads, one["alone"]) for name, one in stored.items()}
task_of = {name: one["task"] for name, one in stored.items()}
every = [name for name, one in alone.items() if set(one.predicted) == set(PREDICTIONS)]


# %% [markdown]
# ## How well each number orders the heads
# Spearman's ρ with the loss gained when a head sends nothing, its median over models, and how often
# a number is ahead of Taylor importance. Intervals are by resampling tasks, all models of a task
# together.
# %%
def rho(name: str, key: str) -> float:
    """Spearman's ρ of a number with what removal costs."""
    return alone[name].predicted[key].spearman["zero_loss"].value


def ahead(name: str, key: str) -> float:
    """1 where a number is ahead of Taylor importance, ½ where they are equal."""
    mine, taylor = rho(name, key), rho(name, "taylor")
    return float(mine > taylor) + 0.5 * float(mine == taylor)


def over_models(statistic, values: dict[str, float]) -> dict[str, float]:
    """A statistic of models, and its 95 % interval by resampling tasks."""
    by_task: dict[str, list[float]] = {}
    for name, value in values.items():
        by_task.setdefault(task_of[name], []).append(value)
    tasks, generator = list(by_task.values()), np.random.default_rng(0)
    again = []
    for _ in range(2000):
        drawn = generator.integers(len(tasks), size=len(tasks))
        again.append(statistic(np.concatenate([tasks[place] for place in drawn])))
    low, high = np.quantile(again, [0.025, 0.975])
    value = float(statistic(list(values.values())))
    return {"value": value, "low": float(low), "high": float(high), "models": len(values)}


table = {
    key: {
        "rho": over_models(np.median, {name: rho(name, key) for name in every}),
        "ahead": over_models(np.mean, {name: ahead(name, key) for name in every}),
    }
    for key in PREDICTIONS
}
together = {name: one["together"] for name, one in stored.items()}
numbers: dict = {
    "counts": {"all": {"alone": len(every), "together": len(together)}},
    "table": {"all": table},
    "removed": over_models(
        np.mean, {name: one["removed"] / one["heads"] for name, one in together.items()}
    ),
    "cost": over_models(np.median, {name: one["cost"] for name, one in together.items()}),
    "least of Taylor": min(rho(name, "taylor") for name in alone),
    "models": {},
}
for name, one in alone.items():
    cost = one.measured["zero_loss"]
    at = int(np.argmax(cost.values))
    numbers["models"][name] = {
        "task": task_of[name],
        "most costly": estimate(cost.values[at], cost.errors[at], "over test examples"),
        "rho": {key: rho(name, key) for key in one.predicted},
        **together[name],
    }
for key, row in table.items():
    print(f"{PREDICTIONS[key]:40} ρ {row['rho']['value']:5.2f}  ahead {row['ahead']['value']:.2f}")
record(folder, "heads_study", numbers, made_by="python runs/heads_study.py", seeds=[0, 1, 2])


# %%
def draw_heads_study(table: dict, models: int) -> Figure:
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
    axes.set_yticks(range(len(keys)), [PREDICTIONS[key] for key in keys])
    return figure


with style.figure_style():
    written = style.save_figure(draw_heads_study(table, len(every)), folder, "heads_study")
print("figure:", *written)
