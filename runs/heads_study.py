# %% [markdown]
# # Which heads matter? Models of several kinds, every head removed
#
# What does a trained model lose without a head, and which number told so beforehand? Of each model
# of `heads_models.py`, `ablate_heads` removes every head on unseen examples and holds against that
# what the theory and practitioners' scores predict from other examples. Then heads are removed one
# after the other in the greedy order of every score, computed anew of what is left. Of deep models,
# random sets of equal size are held against what scores say of sets.
#
#     python runs/heads_study.py [FOLDER] [MODEL …]   (hours; default runs/results/heads_study)
#
# A model whose results are in the folder is not made again, and of orders only those that are not
# there.

# %%
import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from heads_models import DEEP, MODELS, TrainedModel, models_named
from matplotlib.figure import Figure
from renew import estimate, record
from scipy.stats import spearmanr

import sampler
from sampler.api.trained_model import TrainedModel as ModelWithGates
from sampler.api.trained_model import solved_theory
from sampler.heads.joint import JointRemoval, RemovableModel
from sampler.heads.joint_shown import SCORES
from sampler.heads.removal import RemovedHeads
from sampler.jobs.joint import joint_theory
from sampler.presentation import style
from sampler.runtime import jax_settings
from sampler.storage.files import from_json, read_json, to_json, write_json

# What may be lost: a point of accuracy where at least so many examples tell, or nats.
POINT, NATS, ENOUGH = 0.01, 0.02, 4000
RANDOM_ORDERS, RANDOM_SETS, SETS, FEW_SETS = 10, 60, 12, 8
# Scores by which heads are removed: of the model, and of the theory of what is left.
OF_MODEL = ("taylor", "magnitude")
OF_THEORY = ("score", "removed", "zeroed", "solved_again")
OF_SETS = ("removed", "zeroed")
parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="runs/results/heads_study", type=Path)
parser.add_argument("models", nargs="*", metavar="model", help="by default all")
parser.add_argument("--alone", action="store_true", help="heads alone only")
arguments = parser.parse_args()
folder = arguments.folder


# %%
def is_single(one: TrainedModel) -> bool:
    """Whether the theory has every head as a path by itself."""
    return one.settings.get("paths") == "single"


def removed_alone(one: TrainedModel) -> RemovedHeads:
    """Every head of a model removed."""
    return sampler.ablate_heads(
        one.model, one.network, **one.splits, **one.settings, solve_again=not is_single(one)
    ).result


def removed_together(one: TrainedModel, scores: Sequence[str]) -> JointRemoval:
    """Orders of a model by these scores, and random ones."""
    return sampler.removable(
        one.model,
        one.network,
        **one.splits,
        **one.settings,
        loss=NATS,
        score=scores[0],
        compared=scores[1:],
        sets=SETS if one.group == "here" else FEW_SETS,
        random=2 if is_single(one) else RANDOM_ORDERS,
        seed=0,
    ).result


def random_sets(one: TrainedModel) -> dict[str, float]:
    """Spearman's ρ of what scores say of random sets of a half and a quarter of the heads."""
    settings = dict(one.settings)
    names = ("layers", "paths", "forward")
    given = {name: settings[name] for name in names if name in settings}
    chosen = ModelWithGates(one.model, one.splits, **given)
    solved = solved_theory(chosen, one.network, starts=2, progress=False)
    heads = chosen.numbering
    with jax_settings():
        theory = joint_theory(solved.problem, solved.table, heads)
        model, seen_model = (
            RemovableModel(chosen.gated[of], heads.gates, chosen.labels[of], "likelihood", "zero")
            for of in ("test", "validation")
        )
        single = {
            **{key: seen_model.rankings()[key]([]) for key in OF_MODEL},
            "score": theory.numbers("score", []),
        }
        found = {}
        generator = np.random.default_rng(0)
        for share in (4, 2):
            size = len(heads.gates) // share
            count = RANDOM_SETS if one.group == "here" else RANDOM_SETS // 2
            sets = [generator.permutation(len(heads.gates))[:size] for _ in range(count)]
            costs = [model.cost([heads.gates[place] for place in some]) for some in sets]
            said = {key: [values[some].sum() for some in sets] for key, values in single.items()}
            for key in OF_SETS:
                said[key] = [
                    theory.of_set(key, [heads.theory[place] for place in some]) for some in sets
                ]
            for key, values in said.items():
                found[f"{key}, 1/{share}"] = float(spearmanr(values, costs).statistic)
            found[f"cost, 1/{share}"] = float(np.mean(costs))
    return found


def scores_of(name: str) -> list[str]:
    """The scores by which heads of a model are removed together."""
    if name.endswith("single"):  # not one solution for each head and removal
        return [*OF_MODEL, "score", "removed"]
    return [*OF_MODEL, *OF_THEORY]


def stored_in(file: Path) -> dict:
    """What is kept in a file; nothing where there is none."""
    return read_json(file, "heads_study") if file.is_file() else {}


def together(one: TrainedModel, scores: Sequence[str], stored: dict) -> dict:
    """Orders of removal of a model by these scores, beside those that are stored."""
    found = removed_together(one, scores)
    if stored:
        known = from_json(JointRemoval, stored["removed"])
        orders = {key: some for key, some in found.orders.items() if key != "random"}
        seconds = {**known.seconds, **found.seconds}
        found = replace(known, orders={**known.orders, **orders}, seconds=seconds)
    sets = stored.get("sets") or (random_sets(one) if is_single(one) else {})
    return {"task": one.task, "group": one.group, "removed": to_json(found), "sets": sets}


for part in ("alone", "together"):
    (folder / part).mkdir(parents=True, exist_ok=True)
for name, make in models_named(arguments.models).items():
    alone, joint = (folder / part / f"{name}.json" for part in ("alone", "together"))
    stored = stored_in(joint)
    missing = [
        key for key in scores_of(name) if key not in stored.get("removed", {}).get("orders", {})
    ]
    if arguments.alone:
        missing = []
    if alone.is_file() and not missing:
        continue
    print(f"{name} …", flush=True)
    one = make(folder / "models")
    if not alone.is_file():
        removed = to_json(removed_alone(one))
        write_json(alone, {"task": one.task, "group": one.group, "removed": removed})
    if missing:
        write_json(joint, together(one, missing, stored))


def results(part: str, kind: type) -> tuple[dict, dict]:
    """The results of a part by model, and what is stored beside them."""
    stored = {
        name: read_json(folder / part / f"{name}.json", "heads_study")
        for name in MODELS | DEEP
        if (folder / part / f"{name}.json").is_file()
    }
    return {name: from_json(kind, one["removed"]) for name, one in stored.items()}, stored


found, of_found = results("alone", RemovedHeads)
joint, of_joint = results("together", JointRemoval)

# %% [markdown]
# ## How well each number orders the heads
# Spearman's ρ with the loss gained when a head sends nothing, and when it sends its mean; and how
# many heads go by it. Intervals are by resampling tasks, all models of a task together.
# %%
COLUMNS = [
    key
    for key in SCORES
    if any(key in one.predicted for one in found.values())
    or any(key in one.orders for one in joint.values())
]
GROUPS = {
    "all": {**of_found, **of_joint},
    "here": {k: v for k, v in {**of_found, **of_joint}.items() if v["group"] == "here"},
    "foreign": {k: v for k, v in {**of_found, **of_joint}.items() if v["group"] == "foreign"},
}
TASK_OF = {name: one["task"] for name, one in GROUPS["all"].items()}


def rho(name: str, key: str, measure: str = "zero_loss") -> float:
    """Spearman's ρ of a number with what removal costs; NaN where it is not known."""
    predicted = found[name].predicted if name in found else {}
    return predicted[key].spearman[measure].value if key in predicted else float("nan")


def limit_of(one: JointRemoval) -> tuple[str, float]:
    """A point of accuracy, or nats where examples are too few to tell it."""
    enough = one.examples_test >= ENOUGH and "accuracy" in one.unpruned
    return ("accuracy", POINT) if enough else ("loss", NATS)


def share_removed(name: str, key: str) -> float:
    """The share of the heads that go at the limit, by validation examples; mean over orders."""
    if name not in joint or key not in joint[name].orders:
        return float("nan")
    one, (measure, limit) = joint[name], limit_of(joint[name])
    counts = [order.validation.heads_within(limit, measure) for order in one.orders[key]]
    return float(np.mean(counts)) / len(one.heads)


def cost_there(name: str, key: str) -> float:
    """What these heads cost on test examples, in units of the limit."""
    if name not in joint or key not in joint[name].orders:
        return float("nan")
    one, (measure, limit) = joint[name], limit_of(joint[name])
    costs = [
        order.test.at(order.validation.within(limit, measure), measure)[0]
        for order in one.orders[key]
    ]
    return float(np.mean(costs)) / limit


def area(name: str, key: str) -> float:
    """The mean cost over all numbers of heads, as a share of that of random orders."""
    if name not in joint or key not in joint[name].orders:
        return float("nan")
    orders = joint[name].orders
    mine, chance = (np.mean([one.test.area() for one in orders[of]]) for of in (key, "random"))
    return float(mine / chance)


def ahead(name: str, key: str) -> float:
    """1 where a number is ahead of Taylor importance, ½ where they are equal."""
    mine, taylor = rho(name, key), rho(name, "taylor")
    return float("nan") if np.isnan(mine) else float(mine > taylor) + 0.5 * float(mine == taylor)


def over_models(statistic, values: dict[str, float]) -> dict[str, float]:
    """A statistic of models, and its 95 % interval by resampling tasks."""
    values = {name: value for name, value in values.items() if np.isfinite(value)}
    if not values:
        return {}
    by_task: dict[str, list[float]] = {}
    for name, value in values.items():
        by_task.setdefault(TASK_OF[name], []).append(value)
    tasks, generator = list(by_task.values()), np.random.default_rng(0)
    again = []
    for _ in range(2000):
        drawn = generator.integers(len(tasks), size=len(tasks))
        again.append(statistic(np.concatenate([tasks[place] for place in drawn])))
    low, high = np.quantile(again, [0.025, 0.975])
    return {"value": float(statistic(list(values.values()))), "low": float(low),
            "high": float(high), "models": len(values)}  # fmt: skip


MEASURES = {
    "rho": (np.median, rho),
    "rho_mean": (np.median, lambda name, key: rho(name, key, "mean_loss")),
    "ahead": (np.mean, ahead),
    "removed": (np.mean, share_removed),
    "cost": (np.median, cost_there),
    "area": (np.median, area),
}
numbers: dict = {"table": {}, "models": {}, "counts": {}}
for group, of in GROUPS.items():
    numbers["counts"][group] = {
        "alone": len(set(of) & set(found)),
        "together": len(set(of) & set(joint)),
    }
    print(f"\n{group}: {numbers['counts'][group]}")
    for key in COLUMNS:
        row = {
            measure: over_models(statistic, {name: value(name, key) for name in of})
            for measure, (statistic, value) in MEASURES.items()
        }
        numbers["table"].setdefault(group, {})[key] = row
        shown = "  ".join(
            f"{row[m]['value']:5.2f} ({row[m]['low']:.2f} to {row[m]['high']:.2f})"
            if row[m]
            else 21 * " "
            for m in ("rho", "ahead", "removed", "cost", "area")
        )
        print(f"  {key:28} {shown}")


# %% [markdown]
# ## A default, chosen on half of the tasks and judged on the other half
# Of all ways to halve the tasks: the score with the largest mean over the tasks of one half, and
# what it reaches on the other, against Taylor importance there.
# %%
def by_task(value, key: str) -> dict[str, float]:
    """The mean over the models of each task."""
    tasks: dict[str, list[float]] = {}
    for name, task in TASK_OF.items():
        one = value(name, key)
        if np.isfinite(one):
            tasks.setdefault(task, []).append(one)
    return {task: float(np.mean(some)) for task, some in tasks.items()}


def chosen_on_half(value) -> dict:
    """How often each score is chosen, and the mean gain over Taylor on the other half."""
    known = {key: by_task(value, key) for key in COLUMNS}
    known = {key: some for key, some in known.items() if set(some) == set(known["taylor"])}
    tasks = sorted(known["taylor"])
    times: dict[str, int] = {}
    gains, reached = [], []
    for half in combinations(tasks, len(tasks) // 2):
        rest = [task for task in tasks if task not in half]
        best = max(known, key=lambda key: np.mean([known[key][task] for task in half]))
        times[best] = times.get(best, 0) + 1
        reached.append(np.mean([known[best][task] for task in rest]))
        gains.append(reached[-1] - np.mean([known["taylor"][task] for task in rest]))
    low, high = np.quantile(gains, [0.025, 0.975])
    gain = {"value": float(np.mean(gains)), "low": float(low), "high": float(high)}
    return {"times": times, "halves": len(gains), "reached": float(np.mean(reached)), "gain": gain}


if len(set(TASK_OF.values())) > 1:
    numbers["default"] = {"rho": chosen_on_half(rho), "removed": chosen_on_half(share_removed)}
    print(numbers["default"])

for name in TASK_OF:
    row: dict = {"task": TASK_OF[name]}
    if name in found:
        row["accuracy"] = estimate(*found[name].unpruned["accuracy"], "over test examples")
        cost = found[name].measured["zero_loss"]
        at = int(np.argmax(cost.values))
        row["most costly"] = estimate(cost.values[at], cost.errors[at], "over test examples")
        row["rho"] = {key: rho(name, key) for key in found[name].predicted}
    if name in joint:
        row["heads"] = len(joint[name].heads)
        row["removed"] = {key: share_removed(name, key) for key in joint[name].orders}
        row["sets"] = of_joint[name]["sets"]
    numbers["models"][name] = row
numbers["least of Taylor"] = min(rho(name, "taylor") for name in found)
record(folder, "heads_study", numbers, made_by="python runs/heads_study.py", seeds=[0, 1, 2])


# %%
COLOURED = {"taylor": style.ORANGE, "magnitude": style.GREY, "random": style.GREY}
DRAWN = {
    "rho": "one head alone:\nmedian ρ with the\nloss gained",
    "removed": "together:\nshare of heads that\ngo at the limit",
}


def draw_heads_study() -> Figure:
    """Draw medians of ρ and mean shares of heads removed, a score in a row, best on top.

    Blue are scores of the theory, green others of the model. Bars are 95 % intervals by resampling
    tasks.
    """
    table = numbers["table"]["all"]
    keys = [key for key in table if table[key]["removed"]]
    keys.sort(key=lambda key: table[key]["removed"]["value"])
    figure = style.new_figure(style.WIDTH, 0.24 * len(keys) + 1.6)
    figure.suptitle("Which number says which heads can go?")
    panels = figure.subplots(1, 2, sharey=True)
    names = {**SCORES, "random": "at random"}
    for ax, (measure, label) in zip(panels, DRAWN.items(), strict=True):
        for place, key in enumerate(keys):
            if one := table[key][measure]:
                colour = COLOURED.get(key, style.GREEN if key in OF_MODEL else style.THEORY)
                ax.hlines(place, one["low"], one["high"], color=colour, linewidth=2.0)
                ax.plot(one["value"], place, "o", color=colour, markersize=5)
        ax.set_xlabel(label, fontsize=8)
        ax.axvline(0.0, color=style.GREY, linewidth=0.8)
    panels[0].set_yticks(range(len(keys)), [names[key] for key in keys], fontsize=8)
    return figure


if joint:
    with style.figure_style():
        written = style.save_figure(draw_heads_study(), folder, "heads_study")
    print("figure:", *written)
