# %% [markdown]
# # Are heads of Attention-BN and Attention-SH less redundant where they are trained?
#
# arXiv 2406.13781 claims it, and better predictions. Here nine speakers are told apart by a vowel
# that they say: networks of two layers of four heads, as those of the command `train`, learn from a
# few series of each speaker, with four kinds of attention. Each training is stopped where the
# squared error of its training series first falls under levels that are the same for all, so that
# heads are compared at the same fit. Measured on unseen series: how alike heads and paths are, by
# numbers that know no scale and by the distances of the paper, and accuracy. Theory and infinite
# width, with the trained attention, tell the first five speakers from the other four.
#
#     python runs/trained_variants.py [FOLDER] [SERIES] [SEEDS] [STEPS]
#
# by default into runs/results/trained_variants, the series of runs/JapaneseVowels, 5 seeds, at most
# 4,000 steps. SERIES is a folder with JapaneseVowels_eq_TRAIN.ts and JapaneseVowels_eq_TEST.ts, the
# vowels stretched to 25 time steps: they come with the package aeon, in aeon/datasets/data.

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
from sampler.numerics import stream
from sampler.presentation import style
from sampler.recipes.training_recipe import TrainingSection
from sampler.tasks.series_files import read_ts
from sampler.tasks.task import HeadDistances, Split, with_positions
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
PROBLEM = "JapaneseVowels_eq"
LABELLED = 10  # training series of each speaker
HEADS, WIDTH, KEY_SIZE, RATE = (4, 4), 32, 16, 2e-3
LEVELS = (0.02, 0.001)  # squared error at which training stops, mean over series and outputs
THEORY_WIDTH, TEMPERATURE = 10, 0.01
SCALES = (1, 1, 2, 4)
FORMS = {
    "softmax": Softmax(),
    "BN": BatchNormalised(beta=1.0),
    "SH": (tuple(ScaledHeads(scale=scale) for scale in SCALES),) * 2,
    "BN + SH": (tuple(ScaledHeads(scale=scale, beta=1.0) for scale in SCALES),) * 2,
}


# %%
if not (series / f"{PROBLEM}_TRAIN.ts").is_file():
    sys.exit(
        f"{series} holds no {PROBLEM}_TRAIN.ts: it comes with the package aeon (pip download "
        "--no-deps aeon; unzip), in aeon/datasets/data/JapaneseVowels; name its folder"
    )
learned, unseen = (read_ts(series / f"{PROBLEM}_{split}.ts") for split in ("TRAIN", "TEST"))
mean, scale = learned.values.mean(axis=(0, 1)), learned.values.std(axis=(0, 1))
inputs, inputs_test = (with_positions((one.values - mean) / scale) for one in (learned, unseen))
speakers, speakers_test = (
    np.array([learned.classes.index(label) for label in one.labels]) for one in (learned, unseen)
)
CLASSES = len(learned.classes)


def sign_of(speakers: np.ndarray) -> np.ndarray:
    """+1 for the first half of the speakers, −1 for the others."""
    return np.where(speakers < (CLASSES + 1) // 2, 1.0, -1.0)


def cosines(values: np.ndarray) -> float:
    """Mean cosine of two heads, over pairs and examples, of [example, head, row, column]."""
    flat = values.reshape(*values.shape[:2], -1)
    flat = flat / np.linalg.norm(flat, axis=2, keepdims=True)
    first, second = np.triu_indices(flat.shape[1], 1)
    return float((flat[:, first] * flat[:, second]).sum(axis=2).mean())


def measured(name: str, seed: int) -> tuple[list[dict], np.ndarray]:
    """A row of numbers at each level, and which unseen series are right at the last."""
    rng = stream(seed, 7)
    places = [rng.permutation(np.flatnonzero(speakers == one))[:LABELLED] for one in range(CLASSES)]
    chosen = np.concatenate(places)
    settings = TrainingSection(
        heads=HEADS, widths=WIDTH, key_size=KEY_SIZE, form=FORMS[name], learning_rate=RATE,
        schedule="constant",
    )  # fmt: skip
    shape = TransformerShape(HEADS, settings.layer_widths, KEY_SIZE, inputs.shape[2], CLASSES)
    parameters = draw_parameters(shape, seed, PARAMETERS)
    optimiser = make_optimiser(settings)
    tokens = jnp.asarray(inputs[chosen], jnp.float32)
    targets = jnp.asarray(np.eye(CLASSES)[speakers[chosen]], jnp.float32)

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
        attention = frozen_attention(exact, inputs_test, settings.variants)
        split = Split(inputs_test, sign_of(speakers_test)[:, None], attention)
        distances = HeadDistances.of(split)
        outputs = [
            np.einsum("xhkq,xkc->xhqc", one, inputs_test, optimize=True) for one in attention
        ]
        found = np.asarray(predict(exact, inputs_test, settings.variants)).argmax(axis=1)
        right = found == speakers_test
        rows.append({
            "variant": name, "seed": seed, "level": level, "steps": steps, "loss": float(loss),
            "accuracy": right.mean(),
            "cosine of matrices": np.mean([cosines(one) for one in attention]),
            "cosine of outputs": np.mean([cosines(one) for one in outputs]),
            "distance of matrices": distances.matrices[0],
            "distance of outputs": distances.outputs[0],
        })  # fmt: skip
    task = sampler.arrays_task(
        inputs_train=inputs[chosen],
        labels_train=sign_of(speakers[chosen]),
        attention_train=list(frozen_attention(exact, inputs[chosen], settings.variants)),
        inputs_test=inputs_test,
        labels_test=sign_of(speakers_test),
        attention_test=list(attention),
    )
    network = sampler.make_network(widths=THEORY_WIDTH, temperature=TEMPERATURE, readout="mean")
    solved = sampler.solve(task, network, starts=1, next_order=False)
    overlap = np.asarray(solved["order_parameter"])
    signs = sign_of(speakers_test)
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


print(f"{SEEDS} seeds, mean ± standard error; in brackets the paired difference to softmax")
for level in LEVELS:
    reached = sum(row["loss"] < level for row in rows if row["level"] == level)
    print(f"\nsquared error {level}, reached by {reached} of {SEEDS * len(FORMS)} trainings")
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
    figure.suptitle("Trained on nine speakers to the same squared error")
    for axes, measure in zip(figure.subplots(1, len(SHOWN)), SHOWN, strict=True):
        for shift, level in enumerate(LEVELS):
            values = np.array([over_seeds(measure, name, level) for name in FORMS])
            axes.errorbar(
                np.arange(len(FORMS)) + 0.2 * shift - 0.1,
                values.mean(axis=1),
                values.std(axis=1, ddof=1) / np.sqrt(SEEDS),
                color=(style.BLUE, style.VERMILLION)[shift],
                marker="os"[shift],
                linestyle="none",
                label=f"squared error {level}",
            )
        axes.set_xticks(np.arange(len(FORMS)), ["softmax", "BN", "SH", "BN\n+ SH"], fontsize=8.0)
        axes.set_title(measure, fontsize=9.0)
    style.legend_below(figure, axes.get_legend_handles_labels(), columns=2)
    written = style.save_figure(figure, folder, "trained_variants")
print("figure:", *written)
