"""Your own transformer: which heads and paths carry the labels?

A small PyTorch encoder learns to look something up: items, each with a key and a value ±1, then a
query that repeats one key, with noise; the class is the value of that item. Its attention is
exported, and theory and sampler say what a Bayesian network of values makes of it. Then every head
is removed from the PyTorch model, to see what it costs.

    pip install -c constraints.txt -e '.[torch]'
    python -m runs.studies.bring_your_own.study     minutes
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.numbers import estimate, told, told_diagonal
from runs.studies.study import RUNS, Study
from runs.studies.tables import Table, table
from runs.studies.which_heads.models import encoder
from sampler.presentation import style

LAYERS, HEADS, STEPS = 2, 2, 500
PREDICTORS = ("leading", "infinite")


def measure(steps: int, sampling: dict, folder: Path) -> dict:
    """The model, its heads and paths by theory and exact posterior, and what removal costs."""
    trained = encoder("look_up", LAYERS, HEADS, steps, 1, folder / "models")
    model, splits = trained.model, trained.splits
    # A path may pass a layer by: each has one more head, the last, whose attention is the identity.
    file = sampler.export_attention(folder / "attention.npz", model, residual=True, **splits)
    changes = {"task.path": file.resolve(), **sampling}
    recipe = sampler.Recipe.load(RUNS / "bring_your_own.toml", changes)
    run = sampler.run(recipe, out=folder / "run")
    alone = sampler.solve(recipe.changed({"network.heads": [list(range(HEADS))] * LAYERS}))
    del splits["train"]
    removed = sampler.ablate_heads(model, **splits)
    costs, whole = removed.to_dataframe(), removed.result.attrs
    kind = f"over {len(splits['test'][0])} new examples"
    scores, scores_alone = (
        solved["head_score"].sel(predictor="leading").values for solved in (run.theory, alone)
    )
    paths = told_diagonal(run.comparison, PREDICTORS[:1])
    paths.sort(key=lambda path: -path["leading"])
    return {
        "model": estimate(whole["whole_accuracy"], whole["whole_accuracy_error"], kind),
        "heads": {
            f"layer {layer + 1}, head {head}": {
                "score": scores[layer, head],
                "without residual": scores_alone[layer, head],
                "drop": estimate(
                    100 * costs["zero_accuracy"][layer + 1, head],
                    100 * costs["zero_accuracy_error"][layer + 1, head],
                    kind,
                ),
            }
            for layer, head in np.ndindex(LAYERS, HEADS)
        },
        "strongest path": paths[0],
        "other paths at most": max(path["sampled"]["value"] for path in paths[1:]),
        "accuracy without residual": alone["accuracy"].sel(predictor="leading"),
        "accuracy": told(run.comparison, "accuracy", PREDICTORS),
    }


def draw(heads: dict[str, dict]) -> Figure:
    """Draw head scores beside what removing a head costs the PyTorch model."""
    places = np.arange(len(heads))
    figure = style.new_figure(7.2, 3.2, "Heads of a PyTorch encoder, N = 20")
    left, right = figure.subplots(1, 2, sharey=True)
    for shift, key, colour, label in (
        (-0.18, "score", style.THEORY, "with residual"),
        (0.18, "without residual", style.GREY, "without"),
    ):
        scores = [one[key] for one in heads.values()]
        left.barh(places + shift, scores, height=0.34, color=colour, label=label)
    left.set_yticks(places, heads)
    left.set_xlabel("head score, theory")
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    drops, errors = ([one["drop"][part] for one in heads.values()] for part in ("value", "error"))
    right.errorbar(drops, places, xerr=errors, fmt="o", color=style.BLACK)
    right.axvline(0.0, color=style.GREY, linewidth=0.8)
    right.set_xlabel("loss of accuracy without the head\n(PyTorch, points ± error)")
    return figure


HEAD_COLUMNS = {
    "score": ("score", 2),
    "score without residual": ("without residual", 2),
    "accuracy that PyTorch loses without the head (points)": ("drop", 1),
}
COLUMNS = {
    "right (%)": ("accuracy", 1, 100),
    "U₁ of the strongest path": ("path", 2),
    "of any other at most": ("other", 2),
}


def tables(numbers: dict) -> dict[str, Table]:
    """Scores and costs of heads, and accuracies."""
    right, path = numbers["accuracy"], numbers["strongest path"]
    other = numbers["other paths at most"]
    answers = {
        "the PyTorch model": {"accuracy": numbers["model"]},
        "theory": {"accuracy": right["leading"], "path": path["leading"]},
        "theory without residual heads": {"accuracy": numbers["accuracy without residual"]},
        "exact posterior": {"accuracy": right["sampled"], "path": path["sampled"], "other": other},
        "infinite width": {"accuracy": right["infinite"]},
    }
    return {
        "heads": table("head", numbers["heads"], HEAD_COLUMNS),
        "answers": table("who", answers, COLUMNS),
    }


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """One model; of small size hardly trained, and with few draws."""
    few = {"sampler.until": "draws", "sampler.warmup": 20, "sampler.draws": 20}
    return {"model": (measure, 20, few, folder) if small else (measure, STEPS, {}, folder)}


STUDY = Study(
    __file__,
    points,
    numbers=lambda rows: rows["model"],
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw(numbers["heads"])},
)

if __name__ == "__main__":
    STUDY.run()
