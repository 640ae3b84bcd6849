"""Losses of a trained model, and numbers of its heads: Taylor importance and magnitude."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import expit, logsumexp, softmax

from sampler.heads.path_sum import Head, Outputs, Replacement, all_heads

Loss = Literal["squared", "likelihood"]
UNITS: dict[Loss, str] = {"likelihood": "nats", "squared": "squared loss"}


@runtime_checkable
class ModelWithHeads(Protocol):
    """A model on some examples, H_1 … H_L heads in its layers; heads (layer, head) count from 0."""

    heads: tuple[int, ...]

    def without(self, removed: Sequence[Head], replacement: Replacement = "zero") -> Outputs:
        """f(x) of every example without some heads."""
        ...


class TrainedHeads(ModelWithHeads, Protocol):
    """One that was trained.

    outputs     their number
    magnitudes  norms of the weights by which heads act, lowest layer first
    """

    outputs: int
    magnitudes: Float[np.ndarray, " head"]

    def slopes(self, along: Outputs) -> Float[np.ndarray, "example head"]:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h of the gate of every head; NaN without gradients."""
        ...


Model = TypeVar("Model", bound=ModelWithHeads)


@dataclass(frozen=True)
class LabelledModel(Generic[Model]):
    """A model on examples with labels [example, output], and the loss in which costs are."""

    model: Model
    labels: Outputs
    loss: Loss


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


def importance(of: LabelledModel[TrainedHeads], heads: Sequence[Head]) -> xr.Dataset:
    """Taylor importance, the mean of |∂L/∂g_h| over examples (Michel et al., 2019), and magnitude.

    of  a trained model

    Taylor importance is left out where the model gives no gradients.
    """
    places = [all_heads(of.model.heads).index(head) for head in heads]
    along = loss_slopes(of.loss, of.model.without([]), of.labels)
    sizes = np.abs(of.model.slopes(along)[:, places])
    found = xr.Dataset({"magnitude": ("head", of.model.magnitudes[places])})
    if np.isnan(sizes).any():
        return found
    error = sizes.std(axis=0, ddof=1) / len(sizes) ** 0.5
    return found.assign(taylor=("head", sizes.mean(axis=0)), taylor_error=("head", error))
