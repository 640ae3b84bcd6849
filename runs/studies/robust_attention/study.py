"""Robust attention: what clipped keys are worth when keys are contaminated.

RPC attention (arXiv 2406.13762) takes keys for a smooth part and a few gross errors, clips them,
and lets every token attend by the similarity of its clipped key to those of the others. Here the
keys of a small task are contaminated: a share of their entries, wherever they are, is off by a
given number of standard deviations. What changes in the outputs of a head, and in the accuracy of
a network that was trained on clean keys?

The task: 32 tokens of a sequence belong to four groups. A group has a random key of its own and a
class, ±1; each token shows the key of its group and, weakly, its class. The last token is read
out, and its class is clear only to a head that averages over its group. Keys say nothing about
classes, so that all depends on attention. Two heads see other keys of the same groups.

    python -m runs.studies.robust_attention.study     ten data seeds, minutes
"""

import numpy as np
from matplotlib.figure import Figure

from runs.studies.numbers import mean_over
from runs.studies.robust_attention.mathematics import (
    COMPETITORS,
    CONDITIONS,
    SHARES,
    SIZE,
    WIDTH,
    measure,
)
from runs.studies.study import Study
from runs.studies.tables import table
from sampler.presentation import style

NAMES, MEASURES = tuple(COMPETITORS), ("outputs", "accuracy")
LOOKS = dict(
    zip(
        NAMES,
        ((style.BLUE, "o"), (style.SKY_BLUE, "v"), (style.BLACK, "s"), (style.ORANGE, "D"),
         (style.VERMILLION, "^")),
        strict=True,
    )
)  # fmt: skip


def by_condition(values: np.ndarray) -> dict[str, dict]:
    """Means over data seeds, of values [seed, condition]."""
    return {
        f"{100 * share:g} % by {size:g}": mean_over(of, "data seeds")
        for (share, size), of in zip(CONDITIONS, values.T, strict=True)
    }


def summary(rows: dict[str, dict]) -> dict[str, dict]:
    """Means over data seeds, and paired differences of accuracies."""

    def of(name: str, key: str) -> np.ndarray:
        return np.array([row[name][key] for row in rows.values()])

    numbers = {key: {name: by_condition(of(name, key)) for name in NAMES} for key in MEASURES}
    for key, other, names in (
        ("minus softmax", NAMES[0], NAMES[1:]),
        ("minus clipped", NAMES[1], NAMES[3:]),
    ):
        numbers[key] = {
            name: by_condition(of(name, "accuracy") - of(other, "accuracy")) for name in names
        }
    return numbers


def draw(numbers: dict[str, dict]) -> Figure:
    """Draw errors of outputs and accuracies against the share of entries that are off."""
    figure = style.new_figure(
        style.WIDTH, 3.4, f"Entries of the keys off by {SIZE:g} standard deviations"
    )
    labels = ("error of outputs", f"accuracy (%), N = {WIDTH}")
    panels = zip(figure.subplots(1, 2), MEASURES, (1.0, 100.0), labels, strict=True)
    for axes, key, times, label in panels:
        for name, (colour, marker) in LOOKS.items():
            shown = [numbers[key][name][f"{100 * share:g} % by {SIZE:g}"] for share in SHARES]
            values, errors = (times * np.array([of[part] for of in shown]) for part in
                              ("value", "error"))  # fmt: skip
            marks = {"color": colour, "marker": marker, "markersize": 4.0, "label": name}
            axes.errorbar([100 * share for share in SHARES], values, errors, **marks)
        axes.set(ylabel=label, xlabel="entries off (%)")
    style.legend_below(figure, figure.axes[0].get_legend_handles_labels(), columns=2)
    return figure


COLUMNS = {
    "clean: accuracy": ("accuracy/0 % by 10", 3),
    "10 % of entries off by 10: error of outputs": ("outputs/10 % by 10", 3),
    "accuracy": ("accuracy/10 % by 10", 3),
    "40 % off by 10: accuracy": ("accuracy/40 % by 10", 3),
    "10 % off by 30: accuracy": ("accuracy/10 % by 30", 3),
}

DIFFERENCES = {
    "clean": ("0 % by 10", 1, 100),
    "10 % off by 1": ("10 % by 1", 1, 100),
    "10 % off by 10": ("10 % by 10", 1, 100),
    "10 % off by 30": ("10 % by 30", 1, 100),
    "40 % off by 10": ("40 % by 10", 1, 100),
}


def tables(numbers: dict) -> dict[str, list]:
    """Errors and accuracies, and differences from softmax and from softmax of clipped keys."""
    rows = {name: {key: numbers[key][name] for key in MEASURES} for name in NAMES}
    pairs = {
        f"{name} | {words}": numbers[key][name]
        for key, words in (("minus softmax", "softmax"), ("minus clipped", "clipped softmax"))
        for name in numbers[key]
    }
    return {
        "conditions": table("", rows, COLUMNS),
        "differences": table("accuracy (points) | less that of", pairs, DIFFERENCES),
    }


STUDY = Study(
    __file__,
    points=lambda small, folder: {str(seed): (measure, seed) for seed in range(2 if small else 10)},
    numbers=summary,
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw(numbers)},
)

if __name__ == "__main__":
    STUDY.run()
