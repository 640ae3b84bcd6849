"""Are heads of Attention-BN and Attention-SH less redundant where they are trained?

arXiv 2406.13781 claims it, and better predictions. Here nine speakers are told apart by a vowel
that they say, and four activities by what a watch measures: networks of two layers of four heads,
as those of the command `train`, learn it with four kinds of attention, and with a control:
softmax whose queries and keys are enlarged before training, until its heads are as unlike as
those of BN are then. Heads are measured before training, and where the squared error of the
training series first falls under levels that are the same for all, so that they are compared at
the same fit. Measured on unseen series: how alike heads are, by numbers that know no scale and by
the distances of the paper, and accuracy. Theory and infinite width, with the trained attention,
tell the first half of the classes from the others.

    python -m runs.studies.trained_variants.study [--small]

The files NAME_TRAIN.ts and NAME_TEST.ts of both problems are looked for in runs/series. They come
with the package aeon, in aeon/datasets/data, the vowels stretched to 25 time steps.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from runs.studies.numbers import mean_over, of_kind
from runs.studies.study import RUNS, Study
from runs.studies.tables import Table, cell
from runs.studies.trained_variants.drawing import draw
from runs.studies.trained_variants.mathematics import (
    FORMS,
    SOFTMAX,
    accuracy_of_means,
    measure,
    write_series,
)

# Labelled series of each class, and what the figure is called.
PROBLEMS = {"JapaneseVowels_eq": (10, "figure"), "BasicMotions": (3, "motions")}
# Rows of the table: a measure, and at which level.
MEASURES = {
    "steps": ("steps", -1),
    "cosine of matrices, before training": ("cosine of matrices", 0),
    "cosine of matrices, squared error 0.02": ("cosine of matrices", 1),
    **{
        name: (name, -1)
        for name in (
            "cosine of matrices", "cosine of outputs", "distance of matrices",
            "distance of outputs", "off-diagonal share of U₁", "participation ratio of U₁",
            "accuracy", "accuracy, theory", "accuracy, infinite width",
        )
    },
}  # fmt: skip


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Trainings of every form with five seeds; of small size of random series with two."""
    found = {}
    steps, seeds, series = (20, 2, folder) if small else (4000, 5, RUNS / "series")
    for name in [*PROBLEMS][: 1 if small else None]:
        labelled = 3 if small else PROBLEMS[name][0]
        if small:
            write_series(series, name)
        elif not (series / f"{name}_TRAIN.ts").is_file():
            sys.exit(f"{series} holds no {name}_TRAIN.ts: it comes with the package aeon")
        for seed in range(seeds):
            for form in FORMS:
                how = (form, name, series, labelled, steps, seed)
                found[f"{name}/{form}/{seed}"] = (measure, *how)
            found[f"{name}/means/{seed}"] = (accuracy_of_means, name, series, labelled, seed)
    return found


def trainings_of(rows: dict[str, dict], name: str) -> dict[str, list[dict]]:
    """Trainings of every form, by seed."""
    return {form: list(of_kind(rows, f"{name}/{form}").values()) for form in FORMS}


def of_problem(rows: dict[str, dict], name: str) -> dict:
    """Means over seeds, and paired differences to softmax, over seeds and over unseen series."""
    trainings = trainings_of(rows, name)
    numbers: dict = {"minus softmax": {}, "over unseen": {}}
    for label, (key, place) in MEASURES.items():
        values = {
            form: np.array([one["rows"][place][key] for one in those])
            for form, those in trainings.items()
        }
        numbers[label] = {form: mean_over(of, "seeds") for form, of in values.items()}
        plain = values.pop(SOFTMAX)
        numbers["minus softmax"][label] = {
            form: mean_over(of - plain, "seeds") for form, of in values.items()
        }
    right = {form: np.mean([one["right"] for one in of], axis=0) for form, of in trainings.items()}
    plain = right.pop(SOFTMAX)
    numbers["over unseen"] = {
        form: mean_over(of - plain, "unseen examples") for form, of in right.items()
    }
    means = [row["accuracy"] for row in of_kind(rows, f"{name}/means").values()]
    return numbers | {"accuracy of means": mean_over(means, "seeds")}


def problems_of(rows: dict[str, dict]) -> list[str]:
    """The problems that were measured."""
    return list(dict.fromkeys(key.split("/")[0] for key in rows))


def table_of(numbers: dict) -> Table:
    """Every measure of every form, in brackets the paired difference to softmax."""
    lines = [["", *FORMS]]
    for label in MEASURES:
        line = [label]
        for form in FORMS:
            minus = numbers["minus softmax"][label].get(form)
            text = cell(numbers[label][form])
            if minus and (", " not in label or label.startswith("accuracy")):
                text += f" ({'+' * (minus['value'] > 0)}{cell(minus)})"
            line.append(text)
        lines.append(line)
    return lines


def figures(rows: dict[str, dict], numbers: dict) -> dict[str, Figure]:
    """A figure of each problem."""
    return {
        PROBLEMS[name][1]: draw(
            trainings_of(rows, name),
            f"{name.removesuffix('_eq')}, trained to the same squared error",
        )
        for name in problems_of(rows)
    }


STUDY = Study(
    __file__,
    points,
    numbers=lambda rows: {name: of_problem(rows, name) for name in problems_of(rows)},
    tables=lambda numbers: {name: table_of(of) for name, of in numbers.items()},
    figures=figures,
)

if __name__ == "__main__":
    STUDY.run()
