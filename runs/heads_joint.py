# %% [markdown]
# # Which heads can go together?
#
# Heads of the models of `heads_models.py` are removed one after the other, in the greedy order of
# every score, which is computed anew of the network that is left. Orders are found on validation
# examples, costs are measured on unseen ones. Of deep models, random sets of equal size are held
# against what scores say of sets.
#
#     python runs/heads_joint.py [FOLDER] [MODEL …]   (hours; default runs/results/heads_joint)
#
# A model whose result is in the folder is not made again.

# %%
import argparse
from pathlib import Path

import numpy as np
from heads_models import DEEP, TrainedModel, models_named
from scipy.stats import spearmanr

import sampler
from sampler.api.models import RunOfModel, SeenOfModel, heads_of_model, theory_of_heads
from sampler.heads.joint import JointRemoval, RemovableModel
from sampler.jobs.joint import joint_theory
from sampler.numerics import float64
from sampler.storage.results import to_json
from sampler.storage.run_directory import write_json

# What may be lost: a point of accuracy where at least so many examples tell, or nats.
POINT, NATS, ENOUGH = 0.01, 0.02, 4000
RANDOM_ORDERS, RANDOM_SETS, SETS, FEW_SETS = 10, 60, 12, 8
# Scores of networks with more heads than are solved again.
OF_DEEP = (
    "taylor", "patching", "magnitude", "score", "removed", "slope", "slope_size", "slope_infinite",
    "slope_infinite_size", "evidence_infinite",
)  # fmt: skip
OF_SETS = ("removed", "zeroed", "evidence_infinite")
parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="runs/results/heads_joint", type=Path)
parser.add_argument("models", nargs="*", metavar="model", help="by default all")
arguments = parser.parse_args()
folder = arguments.folder
made = models_named(arguments.models)


# %%
def removed_jointly(one: TrainedModel, deep: bool) -> JointRemoval:
    """All orders of a model."""
    known = ("projection", "forward", "paths", "layers")
    settings = {key: one.settings[key] for key in known if key in one.settings}
    network = one.network
    return sampler.removable(
        one.model,
        network,
        **one.splits,
        **settings,
        loss=NATS,
        score="taylor",
        compared=OF_DEEP if deep else ["all"],
        sets=SETS if one.group == "here" else FEW_SETS,
        random=RANDOM_ORDERS if not deep else 2,
        seed=0,
    ).result


def random_sets(one: TrainedModel) -> dict[str, float]:
    """Spearman's ρ of what scores say of random sets of a half and a quarter of the heads."""
    settings = dict(one.settings)
    seen = SeenOfModel(paths=settings.get("paths", "products"), layers=settings.get("layers"))
    runs = RunOfModel(settings.get("forward"))
    chosen = heads_of_model(one.model, one.splits, seen, runs)
    solved = theory_of_heads(chosen, one.network, 2, None, False)
    heads = chosen.numbering
    with float64():
        theory = joint_theory(solved.problem(), solved.table, heads)
        model = RemovableModel(
            chosen.gated["test"], heads.gates, chosen.labels["test"], "likelihood", "zero"
        )
        single = {
            "taylor": model.taylor([]),
            "patching": model.patching([]),
            "magnitude": model.rankings()["magnitude"]([]),
            "score": theory.numbers("score", []),
            "slope_size": theory.numbers("slope_size", []),
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


folder.mkdir(parents=True, exist_ok=True)
for name, make in made.items():
    file = folder / f"{name}.json"
    if not file.is_file():
        print(f"{name} …", flush=True)
        one = make(folder / "models")
        deep = name in DEEP
        found = removed_jointly(one, deep and name.endswith("single"))
        write_json(
            file,
            {
                "task": one.task,
                "group": one.group,
                "removed": to_json(found),
                "sets": random_sets(one) if name.endswith("single") else {},
            },
        )
