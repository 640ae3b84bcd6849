"""Are value vectors principal components of the keys?

Softmax attention projects queries on kernel principal components of the keys if its value vectors
are eigenvectors of the centred kernel of the keys, each divided by the sum of its similarities.
That is an identity; the claim is that training makes them so. Networks of two layers of four heads
learn to tell digits apart, and after one step and after the last one values are compared with the
components of their keys, beside the same values shuffled over tokens and the inputs themselves.

    python -m runs.studies.value_components.study     a quarter of an hour
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.numbers import mean_over
from runs.studies.study import RUNS, Study
from runs.studies.tables import table
from runs.studies.value_components.mathematics import (
    component_alignment,
    keys_and_values,
    normalisers,
)
from sampler.cli import main
from sampler.presentation import style

SMALLER = ("widths=32", "key_size=16", "batch=64")
LAYERS, EPISODES, STEPS = 2, 50, 2000
KINDS = {"own": style.VERMILLION, "shuffled": style.GREY, "inputs as values": style.BLUE}


def measure(seed: int, steps: int, folder: Path) -> dict:
    """Alignment by kind of values and layer, before training and after, and the accuracy."""
    found = {}
    for when, count in (("before", 1), ("after", steps)):
        out = folder / f"{seed}_{count}"
        if not (out / "training_summary.json").is_file():
            settings = (*SMALLER, f"steps={count}", f"seed={seed}")
            words = [f"--set=training.{one}" for one in settings]
            if code := main(
                ["train", str(RUNS / "one_shot_train.toml"), "--out", str(out), *words]
            ):
                sys.exit(code)
        found[when] = of_training(out, seed)
    summary = json.loads((out / "training_summary.json").read_text(encoding="utf-8"))
    return found | {"accuracy": summary["splits"]["train"]["network"]["accuracy"]}


def of_training(directory: Path, seed: int) -> dict:
    """Of every kind of values its alignment, by layer; and what ln h spans over a sequence."""
    task = sampler.OneShot(model=directory, examples_train=EPISODES, examples_test=2)
    inputs = np.asarray(task.make().train.inputs, np.float64)
    with np.load(directory / "model.npz") as stored:
        model = {name: stored[name].astype(np.float64) for name in stored if name.startswith("W_")}
    order = np.random.default_rng(seed).permutation(inputs.shape[1])
    found = {kind: [] for kind in (*KINDS, "ln h")}
    for keys, values in keys_and_values(model, inputs, LAYERS):
        shown = np.broadcast_to(inputs[:, None], (*keys.shape[:3], inputs.shape[2]))
        for kind, those in zip(KINDS, (values, values[:, :, order], shown), strict=True):
            found[kind].append(np.mean([
                component_alignment(keys[at], those[at]).mean() for at in np.ndindex(keys.shape[:2])
            ]))  # fmt: skip
        spans = [np.ptp(np.log(normalisers(keys[at]))) for at in np.ndindex(keys.shape[:2])]
        found["ln h"].append(np.mean(spans))
    return found


def numbers(rows: dict[str, dict]) -> dict:
    """Means over trainings, and the alignment of the network's own values minus that of others."""

    def of(when: str, kind: str, layer: int) -> np.ndarray:
        return np.array([row[when][kind][layer] for row in rows.values()])

    def over(values) -> dict:
        return mean_over(values, "trainings")

    found = {}
    for layer in range(LAYERS):
        for kind in KINDS:
            row = {when: over(of(when, kind, layer)) for when in ("before", "after")}
            if kind != "own":
                row["own minus"] = over(of("after", "own", layer) - of("after", kind, layer))
            found[f"{layer + 1} | {kind}"] = row
        spans = {when: over(of(when, "ln h", layer)) for when in ("before", "after")}
        found[f"{layer + 1} | ln h"] = spans
    return found | {"accuracy": over(row["accuracy"] for row in rows.values())}


def draw(numbers: dict) -> Figure:
    """Draw the alignment of every kind of values, before and after training."""
    figure = style.new_figure(style.WIDTH, 3.4, "Are values principal components of the keys?")
    axes = figure.subplots()
    places = [(layer, when) for layer in range(1, LAYERS + 1) for when in ("before", "after")]
    for shift, (kind, colour) in zip((-0.18, 0.0, 0.18), KINDS.items(), strict=True):
        found = [numbers[f"{layer} | {kind}"][when] for layer, when in places]
        values, errors = ([one[part] for one in found] for part in ("value", "error"))
        marks = {"color": colour, "marker": "o", "markersize": 5.0, "linestyle": "none"}
        axes.errorbar(np.arange(len(found)) + shift, values, errors, label=kind, **marks)
    axes.axhline(1.0, color=style.BLACK, linewidth=0.8, linestyle="--", label="eigenvectors")
    axes.set_xticks(range(len(places)), [f"layer {layer},\n{when}" for layer, when in places])
    axes.set(ylabel="alignment with the components", ylim=(0.0, 1.05))
    style.legend_below(figure, axes.get_legend_handles_labels(), columns=4)
    return figure


COLUMNS = {
    "before training": ("before", 2),
    "after": ("after", 2),
    "own − this, after": ("own minus", 3),
}

STUDY = Study(
    __file__,
    points=lambda small, folder: {
        str(seed): (measure, seed, 20 if small else STEPS, folder)
        for seed in range(2 if small else 5)
    },
    numbers=numbers,
    tables=lambda numbers: {
        "alignment": table(
            "layer | values", {name: of for name, of in numbers.items() if "|" in name}, COLUMNS
        )
    },
    figures=lambda rows, numbers: {"figure": draw(numbers)},
)

if __name__ == "__main__":
    STUDY.run()
