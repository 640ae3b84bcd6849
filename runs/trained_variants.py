# %% [markdown]
# # Are heads of Attention-BN and Attention-SH less redundant where they are trained?
#
# arXiv 2406.13781 claims it, and better predictions. Here nine speakers are told apart by a vowel
# that they say, or four activities by what a watch measures: networks of two layers of four heads,
# as those of the command `train`, learn from a few series of each class, with four kinds of
# attention, and with a control: softmax whose queries and keys are enlarged before training, until
# its heads are as unlike as those of BN are then. Heads are measured before training, and where the
# squared error of the training series first falls under levels that are the same for all, so that
# they are compared at the same fit. Measured on unseen series: how alike heads and paths are, by
# numbers that know no scale and by the distances of the paper, and accuracy. Theory and infinite
# width, with the trained attention, tell the first half of the classes from the others.
#
#     python runs/trained_variants.py [FOLDER] [SERIES] [SEEDS] [STEPS] [PROBLEM] [LABELLED]
#
# by default into runs/results/trained_variants, the series of runs/JapaneseVowels, 5 seeds, at most
# 4,000 steps, JapaneseVowels_eq with 10 series of each speaker. SERIES is a folder with
# PROBLEM_TRAIN.ts and PROBLEM_TEST.ts: JapaneseVowels_eq, vowels stretched to 25 time steps, and
# BasicMotions come with the package aeon, in aeon/datasets/data.

# %%
import csv
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sampler
from sampler.attention.variants import BatchNormalised, ScaledHeads, Softmax
from sampler.presentation import style
from sampler.recipes.training_recipe import SeriesSection, TrainingSection
from sampler.tasks.task import HeadDistances, Split
from sampler.tasks.trained_series import read_series_splits
from sampler.transformer.evaluation import PARAMETERS
from sampler.transformer.frozen import frozen_attention
from sampler.transformer.model_file import TransformerShape, draw_parameters
from sampler.transformer.network import predict, squared_error
from sampler.transformer.training import make_optimiser
from theory import off_diagonal_share, participation_ratio

arguments = dict(enumerate(sys.argv))
folder = Path(arguments.get(1, "runs/results/trained_variants"))
series = Path(arguments.get(2, "runs/JapaneseVowels"))
SEEDS, STEPS = int(arguments.get(3, 5)), int(arguments.get(4, 4000))
PROBLEM = arguments.get(5, "JapaneseVowels_eq")
LABELLED = int(arguments.get(6, 10))  # training series of each class
TOKENS = 25  # at most, averages of neighbouring time steps
HEADS, WIDTH, KEY_SIZE, RATE = (4, 4), 32, 16, 2e-3
# Squared error at which training is stopped, mean over series and outputs; the first is met before
# any step.
LEVELS = (np.inf, 0.02, 0.001)
THEORY_WIDTH, TEMPERATURE = 10, 0.01
SCALES = (1, 1, 2, 4)
SHARP = "sharp softmax"
FORMS = {
    "softmax": Softmax(),
    SHARP: Softmax(),
    "BN": BatchNormalised(beta=1.0),
    "SH": (tuple(ScaledHeads(scale=scale) for scale in SCALES),) * 2,
    "BN + SH": (tuple(ScaledHeads(scale=scale, beta=1.0) for scale in SCALES),) * 2,
}


# %%
if not (series / f"{PROBLEM}_TRAIN.ts").is_file():
    sys.exit(
        f"{series} holds no {PROBLEM}_TRAIN.ts: it comes with the package aeon (pip download "
        "--no-deps aeon; unzip), below aeon/datasets/data; name its folder"
    )


def splits_of(seed: int):
    """The series to learn from and the unseen ones; those left over serve no purpose here."""
    chosen = SeriesSection(
        kind="time_series", folder=str(series), problem=PROBLEM, examples_per_class=LABELLED,
        fraction_validation=0.1, max_tokens=TOKENS, seed=seed,
    )  # fmt: skip
    return read_series_splits(chosen)


CLASSES = len(splits_of(0).names)


def sign_of(classes: np.ndarray) -> np.ndarray:
    """+1 for the first half of the classes, −1 for the others."""
    return np.where(classes < (CLASSES + 1) // 2, 1.0, -1.0)


def cosines(values: np.ndarray) -> float:
    """Mean cosine of two heads, over pairs and examples, of [example, head, row, column]."""
    flat = values.reshape(*values.shape[:2], -1)
    flat = flat / np.linalg.norm(flat, axis=2, keepdims=True)
    first, second = np.triu_indices(flat.shape[1], 1)
    return float((flat[:, first] * flat[:, second]).sum(axis=2).mean())


def sharpened(
    parameters: dict[str, np.ndarray], inputs: np.ndarray, wanted: float
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
        found = np.mean(
            [cosines(one) for one in frozen_attention(enlarged(np.exp(middle)), inputs)]
        )
        low, high = (middle, high) if found > wanted else (low, middle)
    return enlarged(np.exp(high))


def measured(name: str, seed: int) -> tuple[list[dict], np.ndarray]:
    """A row of numbers at each level, and which unseen series are right at the last."""
    splits = splits_of(seed)
    learned, unseen = splits.train, splits.test
    settings = TrainingSection(
        heads=HEADS, widths=WIDTH, key_size=KEY_SIZE, form=FORMS[name], learning_rate=RATE,
        schedule="constant",
    )  # fmt: skip
    shape = TransformerShape.of(settings, learned.inputs.shape[2], splits.outputs)
    parameters = draw_parameters(shape, seed, PARAMETERS)
    if name == SHARP:
        like = TrainingSection(heads=HEADS, form=FORMS["BN"]).variants
        begun = [cosines(one) for one in frozen_attention(parameters, learned.inputs, like)]
        parameters = sharpened(parameters, learned.inputs, float(np.mean(begun)))
    optimiser = make_optimiser(settings)
    tokens = jnp.asarray(learned.inputs, jnp.float32)
    targets = jnp.asarray(learned.targets, jnp.float32)

    @jax.jit
    def step(parameters, state):
        loss, gradient = jax.value_and_grad(squared_error)(
            parameters, tokens, targets, settings.variants
        )
        change, state = optimiser.update(gradient, state, parameters)
        return optax.apply_updates(parameters, change), state, loss

    state, rows, steps = optimiser.init(parameters), [], 0
    for level in LEVELS:
        while True:
            after, state_after, loss = step(parameters, state)
            if loss < level or steps == STEPS:
                break
            parameters, state, steps = after, state_after, steps + 1
        exact = {key: np.asarray(value, np.float64) for key, value in parameters.items()}
        attention = frozen_attention(exact, unseen.inputs, settings.variants)
        split = Split(unseen.inputs, sign_of(unseen.classes)[:, None], attention)
        distances = HeadDistances.of(split)
        outputs = [
            np.einsum("xhkq,xkc->xhqc", one, unseen.inputs, optimize=True) for one in attention
        ]
        said = np.asarray(predict(exact, unseen.inputs, settings.variants))
        right = 0.5 + 0.5 * np.sign(said) * unseen.targets
        if splits.outputs is not None:
            right = said.argmax(axis=1) == unseen.classes
        rows.append({
            "variant": name, "seed": seed, "level": level, "steps": steps, "loss": float(loss),
            "accuracy": right.mean(),
            "cosine of matrices": np.mean([cosines(one) for one in attention]),
            "cosine of outputs": np.mean([cosines(one) for one in outputs]),
            "distance of matrices": distances.matrices[0],
            "distance of outputs": distances.outputs[0],
        })  # fmt: skip
    task = sampler.arrays_task(
        inputs_train=learned.inputs,
        labels_train=sign_of(learned.classes),
        attention_train=list(frozen_attention(exact, learned.inputs, settings.variants)),
        inputs_test=unseen.inputs,
        labels_test=sign_of(unseen.classes),
        attention_test=list(attention),
    )
    network = sampler.make_network(widths=THEORY_WIDTH, temperature=TEMPERATURE, readout="mean")
    solved = sampler.solve(task, network, starts=1, next_order=False)
    overlap = np.asarray(solved["order_parameter"])
    signs = sign_of(unseen.classes)
    rows[-1] |= {
        "alignment of paths": float(solved["path_alignment"]),
        "off-diagonal share of U₁": off_diagonal_share(overlap),
        "participation ratio of U₁": participation_ratio(overlap),
        "accuracy, theory": np.mean(np.sign(np.asarray(solved["predictor_mean"])) == signs),
        "accuracy, infinite width": np.mean(np.sign(np.asarray(solved["gp_mean"])) == signs),
    }
    return rows, right


# %%
rows, right = [], {name: [] for name in FORMS}
for seed in range(SEEDS):
    for name in FORMS:
        some, correct = measured(name, seed)
        rows += some
        right[name].append(correct)
folder.mkdir(parents=True, exist_ok=True)
with (folder / "trained_variants.csv").open("w", newline="") as file:
    table = csv.DictWriter(file, list(rows[len(LEVELS) - 1]))
    table.writeheader()
    table.writerows(rows)


def over_seeds(measure: str, name: str, level: float) -> np.ndarray:
    """[seed]."""
    chosen = (row for row in rows if (row["variant"], row["level"]) == (name, level))
    return np.array([row[measure] for row in chosen], dtype=float)


def in_words(values: np.ndarray, signed: bool = False) -> str:
    """Mean ± standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():{'+' if signed else ''}.3f} ± {error:.3f}"


def at(level: float) -> str:
    """When heads were measured."""
    return "before training" if np.isinf(level) else f"squared error {level}"


print(f"{SEEDS} seeds, mean ± standard error; in brackets the paired difference to softmax")
for level in LEVELS:
    reached = sum(row["loss"] < level for row in rows if row["level"] == level)
    print(f"\n{at(level)}, reached by {reached} of {SEEDS * len(FORMS)} trainings")
    for measure in list(rows[len(LEVELS) - 1 if level == LEVELS[-1] else 0])[3:]:
        plain = over_seeds(measure, "softmax", level)
        cells = [in_words(plain)]
        for name in list(FORMS)[1:]:
            values = over_seeds(measure, name, level)
            cells.append(f"{in_words(values)} ({in_words(values - plain, signed=True)})")
        print(f"| {measure} | " + " | ".join(cells) + " |")
print("\naccuracy minus that of softmax, error over unseen series (mean over seeds first)")
for name in list(FORMS)[1:]:
    gain = np.mean(right[name], axis=0) - np.mean(right["softmax"], axis=0)
    print(f"  {name}: {in_words(gain, signed=True)}")

# %%
SHOWN = ("cosine of matrices", "cosine of outputs", "accuracy")
with style.figure_style():
    figure = style.new_figure(style.WIDTH, 3.6)
    figure.suptitle(f"{PROBLEM}, {CLASSES} classes, trained to the same squared error")
    for axes, measure in zip(figure.subplots(1, len(SHOWN)), SHOWN, strict=True):
        for shift, level in enumerate(LEVELS):
            if np.isinf(level) and measure == "accuracy":
                continue  # chance
            values = np.array([over_seeds(measure, name, level) for name in FORMS])
            axes.errorbar(
                np.arange(len(FORMS)) + 0.2 * (shift - 1),
                values.mean(axis=1),
                values.std(axis=1, ddof=1) / np.sqrt(SEEDS),
                color=(style.GREY, style.BLUE, style.VERMILLION)[shift],
                marker="^os"[shift],
                linestyle="none",
                label=at(level),
            )
        names = ["\nsharp" if name == SHARP else name.replace(" ", "\n", 1) for name in FORMS]
        axes.set_xticks(np.arange(len(FORMS)), names, fontsize=8.0)
        axes.set_title(measure, fontsize=9.0)
    style.legend_below(figure, figure.axes[0].get_legend_handles_labels(), columns=3)
    written = style.save_figure(figure, folder, "trained_variants")
print("figure:", *written)
