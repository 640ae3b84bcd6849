"""Heads whose use is known: a transformer written by hand.

Its weights are set, not trained (`models.py`), so that it is known what each head is for. A
sequence shows symbols that all differ; its last token repeats one of them, and the label is what
the symbol after it stands for. In both layers one head is needed for the answer, and two are idle.
Which numbers put the idle heads last?

    python -m runs.studies.hand_written_heads.study     minutes
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.hand_written_heads.models import HEADS, LAYERS, USEFUL, USEFUL_HEADS, of_seed
from runs.studies.study import Study
from runs.studies.tables import table
from runs.studies.which_heads.mathematics import NAMES, numbers_of_theory
from sampler.presentation import style

LEARNED, UNSEEN = 100, 1000  # examples of the theory; of predictions and of removal
LOST = ("zero_accuracy", "mean_accuracy")


def measure(seed: int, folder: Path) -> dict:
    """Accuracy of a model, what it loses without each head, and the numbers of its heads."""
    model, splits = of_seed(seed, {"train": LEARNED, "validation": UNSEEN, "test": UNSEEN})
    file = sampler.export_attention(folder / "attention.npz", model, **splits, residual=True)
    recipe = sampler.Recipe(
        task=sampler.Arrays(file), network={"widths": 20}, posterior={"temperature": 0.1}
    )
    heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    numbers = numbers_of_theory(recipe, heads, again=False)
    del splits["train"]
    ablated = sampler.ablate_heads(model, **splits, progress=False)
    costs, accuracy = ablated.to_dataframe(), ablated.result.attrs["whole_accuracy"]
    lost = {name: costs[name].to_numpy() for name in LOST}
    # By construction nothing changes without an idle head …
    assert not any(values[~USEFUL_HEADS].any() for values in lost.values())
    # … and without the induction head the answer is chance, within four binomial errors.
    without = accuracy - lost["mean_accuracy"][USEFUL_HEADS][1]
    assert abs(without - 0.5) < 4.0 * 0.5 / UNSEEN**0.5, without
    return {
        "accuracy": accuracy,
        "lost": {name: values.tolist() for name, values in lost.items()},
        "numbers": costs[["taylor", "magnitude"]].to_dict("list") | numbers.to_dict("list"),
    }


def summary(models: list[dict]) -> dict:
    """In how many models each useful head has a number above all idle heads, and mean costs."""
    above = {}
    for key in models[0]["numbers"]:
        values = np.array([one["numbers"][key] for one in models])
        best = values[:, USEFUL_HEADS] > values[:, ~USEFUL_HEADS].max(axis=1)[:, None]
        previous, induced = best.sum(axis=0)
        above[key] = {"previous": previous, "induction": induced, "both": best.all(axis=1).sum()}
    costs = {name: np.mean([one["lost"][name] for one in models], axis=0) for name in LOST}
    lost = {}
    for name, values in costs.items():
        previous, induced = values[USEFUL_HEADS]
        idle = np.abs(values[~USEFUL_HEADS]).max()
        lost[name] = {"previous": previous, "induction": induced, "idle": idle}
    accuracy = np.mean([one["accuracy"] for one in models])
    return {"seeds": len(models), "accuracy": accuracy, "above": above, "lost": lost}


LABELS = {
    "taylor": "Taylor importance",
    "score": "theory: head score",
    "zeroed": "theory: rows and columns of U₁ zeroed",
    "removed": "theory: head removed after learning",
    "magnitude": "magnitude of the output weights",
}
SHOWN = ("score", "zeroed", "removed", "taylor", "magnitude")
KINDS = {
    "previous token": ([USEFUL], style.THEORY, "o"),
    "induction": ([HEADS + USEFUL], style.ORANGE, "s"),
    "idle": (np.flatnonzero(~USEFUL_HEADS), style.GREY, "x"),
}


def draw(models: list[dict]) -> Figure:
    """Draw numbers of heads, relative to the largest of a model: a mark for each seed."""
    figure = style.new_figure(style.WIDTH, 0.42 * len(SHOWN) + 1.8)
    figure.suptitle("Two useful and four idle heads: which number tells them apart?")
    axes = figure.subplots()
    for row, key in enumerate(SHOWN):
        values = np.array([one["numbers"][key] for one in models])
        values = values / np.abs(values).max(axis=1, keepdims=True)
        for shift, (name, (places, colour, mark)) in zip(
            (-0.2, 0.0, 0.2), KINDS.items(), strict=True
        ):
            shown = values[:, places].ravel()
            label = name if row == 0 else None
            axes.plot(shown, np.full(shown.size, row + shift), mark, color=colour, label=label)
    axes.set_yticks(range(len(SHOWN)), [NAMES[key] for key in SHOWN])
    axes.invert_yaxis()
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    axes.set_xlabel("relative to the largest of a model")
    style.legend_below(figure, axes.get_legend_handles_labels(), 3)
    return figure


STUDY = Study(
    __file__,
    points=lambda small, folder: {
        str(seed): (measure, seed, folder) for seed in range(1 if small else 10)
    },
    numbers=lambda rows: summary(list(rows.values())),
    tables=lambda numbers: {
        "numbers": table(
            "number",
            {label: numbers["above"][key] for key, label in LABELS.items()},
            {"head of the token before": ("previous", 0), "induction head": ("induction", 0)},
        )
    },
    figures=lambda rows, numbers: {"figure": draw(list(rows.values()))},
)

if __name__ == "__main__":
    STUDY.run()
