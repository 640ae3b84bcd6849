"""Are heads of Attention-BN and Attention-SH less redundant where they are trained?

arXiv 2406.13781 claims it, and better predictions. Here nine speakers are told apart by a vowel
that they say, or four activities by what a watch measures: networks of two layers of four heads,
as those of the command `train`, learn it with four kinds of attention, and with a control:
softmax whose queries and keys are enlarged before training, until its heads are as unlike as
those of BN are then. Heads are measured before training, and where the squared error of the
training series first falls under levels that are the same for all, so that they are compared at
the same fit. Measured on unseen series: how alike heads are, by numbers that know no scale and by
the distances of the paper, and accuracy. Theory and infinite width, with the trained attention,
tell the first half of the classes from the others.

    python -m runs.studies.trained_variants.study [FOLDER [NAME [LABELLED [STEPS [SEEDS [DATA]]]]]]

NAME is JapaneseVowels_eq with 10 labelled series of each class, or BasicMotions with 3; their files
NAME_TRAIN.ts and NAME_TEST.ts are in the folder DATA, runs/JapaneseVowels. They come with the
package aeon, in aeon/datasets/data, the vowels stretched to 25 time steps. At most 4,000 steps, and
5 seeds.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

import sampler
from runs.studies.scripts import RUNS, Study, known_digits, mean_over
from sampler.attention.layers import LayerVariants
from sampler.attention.similarity import HeadDistances
from sampler.attention.variants import BatchNormalised, ScaledHeads, Softmax
from sampler.data.time_series import LabelledSeries, read_series_splits
from sampler.presentation import style
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import Training
from sampler.training.steps import initial_state, train
from sampler.training.training_data import learning_data
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import Transformer, frozen_attention
from theory import off_diagonal_share, participation_ratio

# What figure and numbers of a problem are called.
RECORDED = {"JapaneseVowels_eq": ("figure", "numbers"), "BasicMotions": ("motions", "motions")}
TOKENS = 25  # of a series at most, averages of neighbouring time steps
SCALES = (1, 1, 2, 4)
SOFTMAX, SHARP = "softmax", "sharp softmax"
FORMS = {
    SOFTMAX: Softmax(),
    SHARP: Softmax(),
    "BN": BatchNormalised(beta=1.0),
    "SH": (tuple(ScaledHeads(scale=scale) for scale in SCALES),) * 2,
    "BN + SH": (tuple(ScaledHeads(scale=scale, beta=1.0) for scale in SCALES),) * 2,
}
# Squared error, the mean over examples and outputs, in a step; None is before training.
LEVELS = (None, 0.02, 0.001)
SIZE = {
    "widths": 32, "key_size": 16, "batch": 1000, "learning_rate": 2e-3, "schedule": "constant",
    "validation_every": 1,
}  # fmt: skip
TEMPERATURE, THEORY_WIDTH = 0.01, 10


@dataclass(frozen=True)
class Problem:
    """Labelled series, all of them in every step; other draws of them for every seed."""

    name: str
    folder: Path
    labelled: int
    steps: int

    def section(self, seed: int) -> LabelledSeries:
        """Where the series are, and which of them have labels."""
        return LabelledSeries(
            kind="time_series", folder=str(self.folder), problem=self.name, max_tokens=TOKENS,
            seed=seed, examples_per_class=self.labelled, fraction_validation=0.1,
        )  # fmt: skip


@dataclass(frozen=True)
class Labelled:
    """Inputs [example, token, channel], their targets, and ±1 for the theory."""

    inputs: np.ndarray
    targets: np.ndarray
    signs: np.ndarray


def labelled_series(problem: Problem, seed: int) -> tuple[Labelled, Labelled]:
    """Series that are learned from, and unseen ones."""
    splits = read_series_splits(problem.section(seed))
    half = (len(splits.names) + 1) // 2
    return tuple(
        Labelled(split.inputs, split.targets, np.where(split.classes < half, 1.0, -1.0))
        for split in (splits.train, splits.test)
    )


def cosines(values: np.ndarray) -> float:
    """Mean cosine of two heads, over pairs and examples, of [example, head, row, column]."""
    flat = values.reshape(*values.shape[:2], -1)
    flat = flat / np.linalg.norm(flat, axis=2, keepdims=True)
    first, second = np.triu_indices(flat.shape[1], 1)
    return float((flat[:, first] * flat[:, second]).sum(axis=2).mean())


def sharpened(
    parameters: dict[str, np.ndarray], inputs: np.ndarray, variants: LayerVariants, wanted: float
) -> dict[str, np.ndarray]:
    """Queries and keys times a factor with which the cosine of heads falls to the one wanted."""

    def enlarged(factor: float) -> dict[str, np.ndarray]:
        names = ("W_Q", "W_K")
        return {
            name: (factor * one if name.startswith(names) else one).astype(np.float32)
            for name, one in parameters.items()
        }

    low, high = 0.0, 5.0  # natural logarithm of the factor
    for _ in range(12):
        middle = 0.5 * (low + high)
        attention = frozen_attention(enlarged(np.exp(middle)), inputs, variants)
        found = np.mean([cosines(matrices) for matrices in attention])
        low, high = (middle, high) if found > wanted else (low, middle)
    return enlarged(np.exp(high))


def correct(said: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Which answers are right: by sign, or by the largest of several outputs."""
    if targets.ndim == 1:
        return 0.5 + 0.5 * np.sign(said) * targets
    return (said.argmax(axis=1) == targets.argmax(axis=1)).astype(float)


def trained_to_levels(name: str, problem: Problem, seed: int, learned: Labelled):
    """Steps, loss and weights before training, and where its loss first falls below each level."""

    def recipe(level: float | None) -> TrainingRecipe:
        settings = Training(
            heads=(4, 4), form=FORMS[name], steps=problem.steps, seed=seed, until_loss=level, **SIZE
        )
        return TrainingRecipe(name=problem.name, task=problem.section(seed), training=settings)

    data = learning_data(recipe(None), read_series_splits(problem.section(seed)))
    state = initial_state(recipe(None), data)
    network = Transformer.of(recipe(None), data.channels, data.outputs)
    if name == SHARP:
        like = Training(heads=network.heads, form=FORMS["BN"]).variants
        begun = [cosines(one) for one in frozen_attention(state.best, learned.inputs, like)]
        wanted = float(np.mean(begun))
        sharp = sharpened(state.best, learned.inputs, network.variants, wanted)
        state = replace(state, parameters=jax.tree.map(jnp.asarray, sharp))
    for level in LEVELS:
        row = {"steps": 0}
        if level is not None:
            state = train(recipe(level), data, state, lambda _: None)
            row = {"steps": state.step, "loss": state.curve[-1]["training_loss"]}
        exact = {key: np.asarray(value, np.float64) for key, value in state.parameters.items()}
        yield row, exact, network


def of_theory(learned: Labelled, unseen: Labelled, attention: dict[str, list]) -> dict[str, float]:
    """U₁ and accuracy of theory and infinite width with trained attention."""
    recipe = sampler.Recipe(
        task=sampler.Arrays(
            inputs=learned.inputs,
            labels=learned.signs,
            attention=attention["learned"],
            inputs_test=unseen.inputs,
            labels_test=unseen.signs,
            attention_test=attention["unseen"],
        ),
        network={"widths": THEORY_WIDTH, "readout": "mean"},
        posterior={"temperature": TEMPERATURE},
        theory={"starts": 1, "next_order": False},
    )
    solved = sampler.solve(recipe)
    overlap = np.asarray(solved["order_parameter"].sel(predictor="leading"))
    accuracies = {
        f"accuracy, {name}": correct(
            np.asarray(solved["predictor_mean"].sel(predictor=one)), unseen.signs
        ).mean()
        for name, one in (("theory", "leading"), ("infinite width", "infinite"))
    }
    return {
        "off-diagonal share of U₁": off_diagonal_share(overlap),
        "participation ratio of U₁": participation_ratio(overlap),
        **accuracies,
    }


def measure(name: str, problem: Problem, seed: int) -> dict:
    """A row of numbers at each level, and which unseen examples are right at the last."""
    learned, unseen = labelled_series(problem, seed)
    rows = []
    for row, weights, network in trained_to_levels(name, problem, seed, learned):
        attention = frozen_attention(weights, unseen.inputs, network.variants)
        distances = HeadDistances.of(attention, unseen.inputs)
        outputs = [np.swapaxes(one, 2, 3) @ unseen.inputs[:, None] for one in attention]
        predicted = np.asarray(transformer_outputs(weights, unseen.inputs, network))
        right = correct(predicted, unseen.targets)
        rows.append(row | {
            "accuracy": right.mean(),
            "cosine of matrices": np.mean([cosines(one) for one in attention]),
            "cosine of outputs": np.mean([cosines(one) for one in outputs]),
            "distance of matrices": distances.matrices[0],
            "distance of outputs": distances.outputs[0],
        })  # fmt: skip
    both = {
        "learned": list(frozen_attention(weights, learned.inputs, network.variants)),
        "unseen": list(attention),
    }
    rows[-1] |= of_theory(learned, unseen, both)
    return {"rows": rows, "right": right.tolist()}


def accuracy_of_means(problem: Problem, seed: int) -> float:
    """Accuracy without attention: of a linear classifier of the means over time."""
    (inputs, classes), (unseen, truth) = (
        (
            part.inputs.mean(axis=1),
            part.targets if part.targets.ndim == 1 else part.targets.argmax(axis=1),
        )
        for part in labelled_series(problem, seed)
    )
    return LogisticRegression(C=100.0, max_iter=10_000).fit(inputs, classes).score(unseen, truth)


Trainings = dict[str, list[dict]]


def when(level: float | None) -> str:
    """When heads were measured."""
    return "before training" if level is None else f"squared error {level}"


def values_of(trainings: Trainings, name: str, measure: str, place: int) -> np.ndarray:
    """A measure of a variant at a level, [seed]."""
    return np.array([one["rows"][place][measure] for one in trainings[name]])


def summary(trainings: Trainings) -> dict:
    """Means over seeds, and paired differences to softmax, over seeds and over unseen series."""
    numbers: dict = {"minus softmax": {}, "over unseen": {}}
    for place, level in enumerate(LEVELS):
        last = place == len(LEVELS) - 1
        for measure in trainings[SOFTMAX][0]["rows"][place]:
            if not last and not measure.startswith("cosine"):
                continue
            row = measure if last else f"{measure}, {when(level)}"
            values = {name: values_of(trainings, name, measure, place) for name in FORMS}
            numbers[row] = {name: mean_over(of, "seeds") for name, of in values.items()}
            plain = values.pop(SOFTMAX)
            numbers["minus softmax"][row] = {
                name: mean_over(of - plain, "seeds") for name, of in values.items()
            }
    right = {
        name: np.mean([one["right"] for one in those], axis=0) for name, those in trainings.items()
    }
    plain = right.pop(SOFTMAX)
    numbers["over unseen"] = {
        name: mean_over(of - plain, "unseen examples") for name, of in right.items()
    }
    return numbers


def lines_of(numbers: dict) -> list[list[str]]:
    """Every measure of every variant, in brackets the paired difference to softmax."""
    lines = []
    for measure in TABLED:
        line = [measure, known_digits(numbers[measure][SOFTMAX])]
        for name in list(FORMS)[1:]:
            cells = known_digits(numbers[measure][name])
            if ", " not in measure or measure.startswith("accuracy"):
                minus = numbers["minus softmax"][measure][name]
                cells += f" ({'+' * (minus['value'] > 0)}{known_digits(minus)})"
            line.append(cells)
        lines.append(line)
    return lines


TABLED = (
    "steps", "cosine of matrices, before training", "cosine of matrices, squared error 0.02",
    "cosine of matrices", "cosine of outputs", "distance of matrices", "distance of outputs",
    "off-diagonal share of U₁", "participation ratio of U₁", "accuracy", "accuracy, theory",
    "accuracy, infinite width",
)  # fmt: skip
SHOWN = ("cosine of matrices", "cosine of outputs", "accuracy")
LOOKS = ((style.GREY, "^"), (style.BLUE, "o"), (style.VERMILLION, "s"))


def draw(trainings: Trainings, title: str) -> Figure:
    """Draw every measure in a panel, a row for each variant, mean ± standard error over seeds.

    Cosines share one axis from 0 to 1; accuracies before training, which are chance, are left out.
    """
    figure = style.new_figure(style.WIDTH, 0.5 * len(FORMS) + 1.7, title)
    rows = np.arange(len(FORMS))
    for ax, measure in zip(figure.subplots(1, len(SHOWN), sharey=True), SHOWN, strict=True):
        accuracy = measure == "accuracy"
        for place, (level, (colour, marker)) in enumerate(zip(LEVELS, LOOKS, strict=True)):
            if accuracy and place == 0:
                continue
            found = [mean_over(values_of(trainings, name, measure, place), "seeds")
                     for name in FORMS]  # fmt: skip
            means, errors = (
                (100.0 if accuracy else 1.0) * np.array([one[key] for one in found])
                for key in ("value", "error")
            )
            marks = {"color": colour, "marker": marker, "linestyle": "none", "label": when(level)}
            ax.errorbar(means, rows + 0.22 * (place - 1), xerr=errors, **marks)
        if accuracy:
            style.accuracy_axis(ax.xaxis)
        else:
            ax.set_xlim(0.0, 1.04)
            ax.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
        ax.set_title(f"{measure} (%)" if accuracy else measure.replace(" of ", "\nof "))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="both", color=style.GRID, linewidth=0.8)
    figure.axes[0].set_yticks(rows, FORMS)
    figure.axes[0].set_ylim(len(FORMS) - 0.5, -0.5)
    style.legend_below(figure, figure.axes[0].get_legend_handles_labels(), columns=3)
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    name, *_ = [*study.sizes[:1], "JapaneseVowels_eq"]
    folder = Path(study.sizes[4]) if len(study.sizes) > 4 else RUNS / "JapaneseVowels"
    problem = Problem(name, folder, study.size(1, 10), study.size(2, 4000))
    seeds = range(study.size(3, 5))
    if not (folder / f"{name}_TRAIN.ts").is_file():
        sys.exit(
            f"{folder} holds no {name}_TRAIN.ts: it comes with the package aeon (pip download "
            "--no-deps aeon; unzip), below aeon/datasets/data"
        )
    trainings = {
        form: [study.once(f"{name}_{form}_{seed}", measure, form, problem, seed) for seed in seeds]
        for form in FORMS
    }
    numbers = summary(trainings)
    of_means = [accuracy_of_means(problem, seed) for seed in seeds]
    numbers["accuracy of means"] = mean_over(of_means, "seeds")
    drawn, recorded = RECORDED[name]
    study.record(numbers, recorded, labelled=problem.labelled, seeds=list(seeds))
    study.table_of_text(name, ["", *FORMS], lines_of(numbers))
    title = f"{name.removesuffix('_eq').replace('_', '-')}, trained to the same squared error"
    with style.figure_style():
        study.draw(draw(trainings, title), drawn)
