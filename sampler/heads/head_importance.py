"""Numbers that may tell which heads of a trained model matter: Taylor importance and magnitude."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp, softmax

from sampler.analysis.predictors import LEADING, predictor_name
from sampler.heads.path_sum import Head, Outputs, Replacement, all_heads

Loss = Literal["squared", "likelihood"]
OfExamples = Float[np.ndarray, "head example"]

# Keys of the numbers, and their names in tables and figures.
TAYLOR, SCORE = "taylor", "score"
PREDICTIONS = {
    TAYLOR: "Taylor |∂loss/∂gate|",
    "magnitude": "magnitude of the weights",
    SCORE: f"head score, {predictor_name(LEADING)}",
}


@runtime_checkable
class ModelWithHeads(Protocol):
    """A trained model with its examples; heads (layer, head) count from 0.

    heads       H_1 … H_L
    outputs     their number
    magnitudes  norms of the weights by which heads act, lowest layer first
    """

    heads: tuple[int, ...]
    outputs: int
    magnitudes: Float[np.ndarray, " head"]

    def without(self, removed: Sequence[Head], replacement: Replacement = "zero") -> Outputs:
        """f(x) of every example without some heads."""
        ...

    def slopes(self, along: Outputs) -> Float[np.ndarray, "example head"]:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h of the gate of every head."""
        ...


# --- losses


def losses(loss: Loss, outputs: Outputs, labels: Outputs) -> Float[np.ndarray, " example"]:
    """Σ_c (f_c − y_c)²; or −ln p(class), with p = 1/(1 + e^{−y f}) or the softmax of f."""
    if loss == "squared":
        return ((outputs - labels) ** 2).sum(axis=1)
    if labels.shape[1] == 1:
        return np.logaddexp(0.0, -labels[:, 0] * outputs[:, 0])
    return logsumexp(outputs, axis=1) - (outputs * labels).sum(axis=1)


def loss_slopes(loss: Loss, outputs: Outputs, labels: Outputs) -> Outputs:
    """The derivative of `losses` by every output."""
    if loss == "squared":
        return 2.0 * (outputs - labels)
    if labels.shape[1] == 1:
        return -labels * expit(-labels * outputs)
    return softmax(outputs, axis=1) - labels


# --- numbers with their errors


@dataclass(frozen=True)
class Numbers:
    """Some numbers and their errors, ±1σ; NaN where there is none."""

    values: tuple[float, ...]
    errors: tuple[float, ...]


def floats(values: np.ndarray | Sequence[float]) -> tuple[float, ...]:
    """Some numbers of NumPy as plain ones."""
    return tuple(map(float, values))


def over_examples(values: OfExamples) -> Numbers:
    """Mean over examples with its standard error."""
    errors = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    return Numbers(floats(values.mean(axis=1)), floats(errors))


def without_error(values: np.ndarray) -> Numbers:
    """Numbers that are known exactly."""
    return Numbers(floats(values), (0.0,) * len(values))


def numbers_of_model(
    model: ModelWithHeads, heads: Sequence[Head], labels: Outputs, loss: Loss
) -> dict[str, Numbers]:
    """Taylor importance, the mean of |∂L/∂g_h| over examples (Michel et al., 2019), and magnitude.

    Taylor importance is left out where the model gives no gradients.
    """
    places = [all_heads(model.heads).index(head) for head in heads]
    slopes = model.slopes(loss_slopes(loss, model.without([]), labels))[:, places]
    numbers = {} if np.isnan(slopes).any() else {TAYLOR: over_examples(np.abs(slopes).T)}
    return {**numbers, "magnitude": without_error(model.magnitudes[places])}
