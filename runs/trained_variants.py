# %% [markdown]
# # Are heads of Attention-BN and Attention-SH less redundant where they are trained?
#
# arXiv 2406.13781 claims it, and better predictions. Here nine speakers are told apart by a vowel
# that they say, or four activities by what a watch measures: networks of two layers of four heads,
# as those of the command `train`, learn it with four kinds of attention, and with a control:
# softmax whose queries and keys are enlarged before training, until its heads are as unlike as
# those of BN are then. Heads are measured before training, and where the squared error of the
# training series first falls under levels that are the same for all, so that they are compared at
# the same fit. Measured on unseen series: how alike heads and paths are, by numbers that know no
# scale and by the distances of the paper, and accuracy. Theory and infinite width, with the trained
# attention, tell the first half of the classes from the others.
#
#     python runs/trained_variants.py [FOLDER] [--problem NAME] [--data DATA] [--seeds 0 1 2 …]
#
# by default into runs/results/trained_variants. The problem is JapaneseVowels_eq, BasicMotions
# (`--labelled 3`), or another whose files NAME_TRAIN.ts and NAME_TEST.ts are in the folder DATA,
# with some labelled series of each class; those two come with the package aeon, in
# aeon/datasets/data, the vowels stretched to 25 time steps. What is in the folder is not trained
# again: so seeds can be shared between processes, and read together.

# %%
import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from renew import estimate, record
from sklearn.linear_model import LogisticRegression

import sampler
from sampler.attention.layers import LayerVariants
from sampler.attention.variants import BatchNormalised, ScaledHeads, Softmax
from sampler.data.split import Split
from sampler.data.task import HeadDistances
from sampler.data.time_series import SeriesSection, read_series_splits
from sampler.presentation import style
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import TrainingSection
from sampler.storage.files import read_json, write_json
from sampler.training.steps import make_optimiser, make_step
from sampler.training.training_data import (
    BLOCK,
    PARAMETERS,
    Examples,
    LearningData,
    learning_data,
)
from sampler.transformer.model import Transformer, draw_parameters, frozen_attention
from sampler.transformer.network import transformer_outputs
from theory import off_diagonal_share, participation_ratio

VOWELS = "JapaneseVowels_eq"
parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="runs/results/trained_variants", type=Path)
parser.add_argument("--problem", default=VOWELS)
parser.add_argument("--data", type=Path, help="default runs/JapaneseVowels")
parser.add_argument("--labelled", default=10, type=int, help="training series of each class")
parser.add_argument("--seeds", nargs="+", default=range(5), type=int)
parser.add_argument("--steps", default=4000, type=int, help="at most")
arguments = parser.parse_args()
folder, problem, seeds = arguments.folder, arguments.problem, arguments.seeds
ending = {VOWELS: "", "BasicMotions": "_motions"}.get(problem, f"_{problem}")
kept_as = f"trained_variants{ending}"
place = arguments.data or Path(__file__).parent / "JapaneseVowels"
TOKENS = 25  # of a series at most, averages of neighbouring time steps
SCALES = (1, 1, 2, 4)
SHARP = "sharp softmax"
FORMS = {
    "softmax": Softmax(),
    SHARP: Softmax(),
    "BN": BatchNormalised(beta=1.0),
    "SH": (tuple(ScaledHeads(scale=scale) for scale in SCALES),) * 2,
    "BN + SH": (tuple(ScaledHeads(scale=scale, beta=1.0) for scale in SCALES),) * 2,
}


# %% [markdown]
# ## What is learned
# Squared error is the mean over examples and outputs. The first level is met before any step.
# %%
@dataclass(frozen=True)
class Labelled:
    """Inputs [example, token, channel], their targets, and ±1 for the theory."""

    inputs: np.ndarray
    targets: np.ndarray
    signs: np.ndarray


@dataclass(frozen=True)
class Learning:
    """What a network learns, what the theory learns, and what judges both."""

    data: LearningData
    learned: Labelled
    unseen: Labelled


def series_to_learn(seed: int, settings: TrainingSection) -> Learning:
    """Labelled series, all of them in every step; other draws of them for every seed."""
    section = SeriesSection(
        kind="time_series", folder=str(place), problem=problem, max_tokens=TOKENS, seed=seed,
        examples_per_class=arguments.labelled, fraction_validation=0.1,
    )  # fmt: skip
    splits = read_series_splits(section)
    half = (len(splits.names) + 1) // 2

    def labelled(split) -> Labelled:
        return Labelled(split.inputs, split.targets, np.where(split.classes < half, 1.0, -1.0))

    recipe = TrainingRecipe(name=problem, task=section, training=settings)
    return Learning(learning_data(recipe, splits), labelled(splits.train), labelled(splits.test))


if not (place / f"{problem}_TRAIN.ts").is_file():
    parser.error(
        f"{place} holds no {problem}_TRAIN.ts: it comes with the package aeon (pip download "
        "--no-deps aeon; unzip), below aeon/datasets/data; name its folder with --data"
    )
LEVELS = (np.inf, 0.02, 0.001)
SIZE = {"widths": 32, "key_size": 16, "batch": 1000, "learning_rate": 2e-3}
TEMPERATURE, THEORY_WIDTH = 0.01, 10


def batches(data: LearningData) -> Iterator[Examples]:
    """The examples of one step after the other."""
    number = 0
    while True:
        block = data.block(number)
        size = block.examples // BLOCK
        yield from (block.part(step * size, (step + 1) * size) for step in range(BLOCK))
        number += 1


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


def measured(name: str, seed: int) -> dict:
    """A row of numbers at each level, and which unseen examples are right at the last."""
    settings = TrainingSection(
        heads=(4, 4),
        form=FORMS[name],
        schedule="constant",
        steps=arguments.steps,
        seed=seed,
        **SIZE,
    )
    learning = series_to_learn(seed, settings)
    data, learned, unseen = learning.data, learning.learned, learning.unseen
    network = Transformer.of(data.recipe, data.channels, data.outputs)
    parameters = draw_parameters(network, seed, PARAMETERS)
    if name == SHARP:
        like = TrainingSection(heads=settings.heads, form=FORMS["BN"]).variants
        begun = [cosines(one) for one in frozen_attention(parameters, learned.inputs, like)]
        wanted = float(np.mean(begun))
        parameters = sharpened(parameters, learned.inputs, settings.variants, wanted)
    optimiser = make_optimiser(settings)
    advance = make_step(optimiser, data.table, network)
    state, rows, steps, following = optimiser.init(parameters), [], 0, batches(data)
    for level in LEVELS:
        while True:
            after, state_after, loss = advance(parameters, state, next(following))
            if np.isinf(level) or float(loss) < level or steps == arguments.steps:
                break
            parameters, state, steps = after, state_after, steps + 1
        exact = {key: np.asarray(value, np.float64) for key, value in parameters.items()}
        attention = frozen_attention(exact, unseen.inputs, settings.variants)
        split = Split(unseen.inputs, unseen.signs[:, None], attention)
        distances = HeadDistances.of(split)
        outputs = [np.swapaxes(one, 2, 3) @ unseen.inputs[:, None] for one in attention]
        predictions = transformer_outputs(exact, unseen.inputs, network)
        right = correct(np.asarray(predictions), unseen.targets)
        rows.append({
            "variant": name, "seed": seed, "level": str(level), "steps": steps,
            "loss": float(loss), "accuracy": right.mean(),
            "cosine of matrices": np.mean([cosines(one) for one in attention]),
            "cosine of outputs": np.mean([cosines(one) for one in outputs]),
            "distance of matrices": distances.matrices[0],
            "distance of outputs": distances.outputs[0],
        })  # fmt: skip
    task = sampler.arrays_task(
        inputs_train=learned.inputs,
        labels_train=learned.signs,
        attention_train=list(frozen_attention(exact, learned.inputs, settings.variants)),
        inputs_test=unseen.inputs,
        labels_test=unseen.signs,
        attention_test=list(attention),
    )
    network = sampler.make_network(widths=THEORY_WIDTH, temperature=TEMPERATURE, readout="mean")
    solved = sampler.solve(task, network, starts=1, next_order=False)
    overlap = np.asarray(solved["order_parameter"].sel(predictor="leading"))
    leading, infinite = (
        np.asarray(solved["predictor_mean"].sel(predictor=one)) for one in ("leading", "infinite")
    )
    rows[-1] |= {
        "off-diagonal share of U₁": off_diagonal_share(overlap),
        "participation ratio of U₁": participation_ratio(overlap),
        "accuracy, theory": correct(leading, unseen.signs).mean(),
        "accuracy, infinite width": correct(infinite, unseen.signs).mean(),
    }
    rows = [
        {key: one if isinstance(one, str | int) else float(one) for key, one in row.items()}
        for row in rows
    ]
    return {"rows": rows, "right": list(map(float, right))}


# %%
folder.mkdir(parents=True, exist_ok=True)
rows, right = [], {name: [] for name in FORMS}
for seed in seeds:
    for name in FORMS:
        file = folder / f"{problem}_{name.replace(' ', '_')}_{seed}.json"
        if not file.is_file():
            print(f"{name}, seed {seed} …", flush=True)
            write_json(file, measured(name, seed))
        found = read_json(file, "trained_variants")
        rows += found["rows"]
        right[name].append(found["right"])
with (folder / "trained_variants.csv").open("w", newline="") as file:
    table = csv.DictWriter(file, list(rows[len(LEVELS) - 1]))
    table.writeheader()
    table.writerows(rows)


def over_seeds(measure: str, name: str, level: float) -> np.ndarray:
    """[seed]."""
    chosen = (row for row in rows if (row["variant"], row["level"]) == (name, str(level)))
    return np.array([row[measure] for row in chosen], dtype=float)


def averaged(values: np.ndarray, kind: str) -> dict:
    """Mean and standard error."""
    return estimate(values.mean(), values.std(ddof=1) / np.sqrt(len(values)), kind)


def in_words(found: dict, signed: bool = False) -> str:
    """Mean ± standard error."""
    return f"{found['value']:{'+' if signed else ''}.3f} ± {found['error']:.3f}"


def at(level: float) -> str:
    """When heads were measured."""
    return "before training" if np.isinf(level) else f"squared error {level}"


print(f"{len(seeds)} seeds, mean ± standard error; in brackets the paired difference to softmax")
OVER = f"over {len(seeds)} seeds"
numbers: dict = {"minus softmax": {}, "over unseen": {}}
for level in LEVELS:
    reached = sum(row["loss"] < level for row in rows if row["level"] == str(level))
    print(f"\n{at(level)}, reached by {reached} of {len(seeds) * len(FORMS)} trainings")
    for measure in list(rows[len(LEVELS) - 1 if level == LEVELS[-1] else 0])[3:]:
        values = {name: over_seeds(measure, name, level) for name in FORMS}
        means = {name: averaged(one, OVER) for name, one in values.items()}
        plain = values.pop("softmax")
        gains = {name: averaged(one - plain, OVER) for name, one in values.items()}
        if level == LEVELS[-1] or measure.startswith("cosine"):
            row = measure + ("" if level == LEVELS[-1] else f", {at(level)}")
            numbers[row], numbers["minus softmax"][row] = means, gains
        cells = [in_words(means["softmax"])]
        cells += [
            f"{in_words(means[name])} ({in_words(gain, signed=True)})"
            for name, gain in gains.items()
        ]
        print(f"| {measure} | " + " | ".join(cells) + " |")
print("\naccuracy minus that of softmax, error over unseen examples (mean over seeds first)")
for name in list(FORMS)[1:]:
    gain = np.mean(right[name], axis=0) - np.mean(right["softmax"], axis=0)
    numbers["over unseen"][name] = averaged(gain, f"over {len(gain)} unseen examples")
    print(f"  {name}: {in_words(numbers['over unseen'][name], signed=True)}")


# %% How much of it needs no attention: a linear classifier of the means over time.
def of_means(seed: int) -> float:
    """Its accuracy on the unseen series, learned from the same ones as the networks."""
    learning = series_to_learn(seed, TrainingSection(steps=arguments.steps, seed=seed, **SIZE))
    two = learning.learned.targets.ndim == 1
    (inputs, classes), (unseen, truth) = (
        (part.inputs.mean(axis=1), part.targets if two else part.targets.argmax(axis=1))
        for part in (learning.learned, learning.unseen)
    )
    return LogisticRegression(C=100.0, max_iter=10_000).fit(inputs, classes).score(unseen, truth)


numbers["accuracy of means"] = averaged(np.array([of_means(seed) for seed in seeds]), OVER)
print(f"\nlinear classifier of means over time: {in_words(numbers['accuracy of means'])}")

# %%
SHOWN = ("cosine of matrices", "cosine of outputs", "accuracy")
LOOKS = ((style.GREY, "^"), (style.BLUE, "o"), (style.VERMILLION, "s"))


def draw_trained_variants(
    found: dict[str, np.ndarray], names: list[str], times: list[str], title: str
) -> Figure:
    """Draw every measure in a panel, a row for each variant, mean ± standard error over seeds.

    found  measure → numbers [variant, time, seed]
    times  when they were measured

    Cosines share one axis from 0 to 1; accuracies before training, which are chance, are left out.
    """
    figure = style.new_figure(style.WIDTH, 0.5 * len(names) + 1.7, title)
    rows = np.arange(len(names))
    for ax, measure in zip(figure.subplots(1, len(found), sharey=True), found, strict=True):
        accuracy, values = measure == "accuracy", found[measure]
        for place, (time, (colour, marker)) in enumerate(zip(times, LOOKS, strict=True)):
            if accuracy and place == 0:
                continue
            numbers = values[:, place] * (100.0 if accuracy else 1.0)
            error = numbers.std(axis=1, ddof=1) / np.sqrt(numbers.shape[1])
            marks = {"color": colour, "marker": marker, "linestyle": "none", "label": time}
            ax.errorbar(numbers.mean(axis=1), rows + 0.22 * (place - 1), xerr=error, **marks)
        if accuracy:
            style.accuracy_axis(ax.xaxis)
        else:
            ax.set_xlim(0.0, 1.04)
            ax.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
        ax.set_title(f"{measure} (%)" if accuracy else measure.replace(" of ", "\nof "))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="both", color=style.GRID, linewidth=0.8)
    figure.axes[0].set_yticks(rows, names)
    figure.axes[0].set_ylim(len(names) - 0.5, -0.5)
    style.legend_below(figure, figure.axes[0].get_legend_handles_labels(), columns=3)
    return figure


shown = {
    measure: np.array([[over_seeds(measure, name, level) for level in LEVELS] for name in FORMS])
    for measure in SHOWN
}
with style.figure_style():
    title = f"{problem.removesuffix('_eq').replace('_', '-')}, trained to the same squared error"
    figure = draw_trained_variants(shown, list(FORMS), [at(level) for level in LEVELS], title)
    written = style.save_figure(figure, folder, kept_as)
print("figure:", *written)
call = f"python runs/trained_variants.py --problem {problem} --labelled {arguments.labelled}"
record(folder, kept_as, numbers, made_by=call, seeds=list(seeds))
