"""Training of small transformers to a squared error, and how alike their heads are then."""

from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import LogisticRegression

import sampler
from sampler.attention.layers import LayerVariants
from sampler.attention.similarity import HeadDistances
from sampler.attention.variants import BatchNormalised, ScaledHeads, Softmax
from sampler.data.labelled_inputs import classes_of, targets_of
from sampler.data.time_series import LabelledSeries, read_series_splits
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import Training
from sampler.training.steps import initial_state, train
from sampler.training.training_data import learning_data
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import Transformer, frozen_attention
from theory import off_diagonal_share, participation_ratio

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
    seed: int

    @property
    def section(self) -> LabelledSeries:
        """Where the series are, and which of them have labels."""
        return LabelledSeries(
            kind="time_series", folder=str(self.folder), problem=self.name, max_tokens=TOKENS,
            seed=self.seed, examples_per_class=self.labelled, fraction_validation=0.1,
        )  # fmt: skip


@dataclass(frozen=True)
class Labelled:
    """Inputs [example, token, channel], their targets, and ±1 for the theory."""

    inputs: np.ndarray
    targets: np.ndarray
    signs: np.ndarray


def labelled_series(problem: Problem) -> tuple[Labelled, Labelled]:
    """Series that are learned from, and unseen ones."""
    splits = read_series_splits(problem.section)
    half = (len(splits.names) + 1) // 2
    return tuple(
        Labelled(
            split.inputs,
            targets_of(split.labels),
            np.where(classes_of(split.labels) < half, 1.0, -1.0),
        )
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


def trained_to_levels(name: str, problem: Problem, most_steps: int, learned: Labelled):
    """Steps, loss and weights before training, and where its loss first falls below each level."""

    def recipe(level: float | None) -> TrainingRecipe:
        settings = Training(
            heads=(4, 4),
            form=FORMS[name],
            steps=most_steps,
            seed=problem.seed,
            until_loss=level,
            **SIZE,
        )
        return TrainingRecipe(name=problem.name, task=problem.section, training=settings)

    data = learning_data(recipe(None), read_series_splits(problem.section))
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
            row = {"steps": state.step}
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


def measure(form: str, name: str, folder: str, labelled: int, steps: int, seed: int) -> dict:
    """A row of numbers at each level, and which unseen examples are right at the last."""
    problem = Problem(name, Path(folder), labelled, seed)
    learned, unseen = labelled_series(problem)
    rows = []
    for row, weights, network in trained_to_levels(form, problem, steps, learned):
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


def accuracy_of_means(name: str, folder: str, labelled: int, seed: int) -> dict:
    """Accuracy without attention: of a linear classifier of the means over time."""
    (inputs, classes), (unseen, truth) = (
        (
            part.inputs.mean(axis=1),
            part.targets if part.targets.ndim == 1 else part.targets.argmax(axis=1),
        )
        for part in labelled_series(Problem(name, Path(folder), labelled, seed))
    )
    classifier = LogisticRegression(C=100.0, max_iter=10_000).fit(inputs, classes)
    return {"accuracy": classifier.score(unseen, truth)}


def write_series(folder: Path, name: str) -> None:
    """Four random series of each of two classes, in the files of a problem."""
    generator = np.random.default_rng(0)
    for split in ("TRAIN", "TEST"):
        rows = []
        for label in ("1", "2") * 4:
            values = generator.standard_normal((2, 5)) + int(label)
            rows.append(":".join([*(",".join(map(str, row)) for row in values), label]))
        header = "@timeStamps false\n@classLabel true 1 2\n@data\n"
        text = header + "\n".join(rows) + "\n"
        (folder / f"{name}_{split}.ts").write_text(text, encoding="utf-8")
