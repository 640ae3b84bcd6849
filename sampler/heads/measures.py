"""Measures of heads: what is lost without one, and the numbers that may tell so beforehand.

A prediction is of the loss that is gained, or of the right answers that are lost, without a head.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit, logsumexp, softmax

from sampler.analysis.estimates import Estimate
from sampler.analysis.predictors import LEADING, predictor_name
from sampler.heads.gates import GatedModel, Head, Replacement
from sampler.heads.steps import WorkSteps
from sampler.problem import square_roots
from theory import (
    AttentionPaths,
    LearningProblem,
    Predictor,
    mean_without,
    path_contributions,
    predict,
    solve_saddle_point,
    sub_network,
)
from theory.observables import correct, head_scores, labels_are_classes

Loss = Literal["squared", "likelihood"]
Outputs = Float[np.ndarray, "example output"]
# f of every example without some heads; None where it could not be found
Without = Callable[[Sequence[Head]], Outputs | None]

# Keys of the predictions, and their names in tables and figures.
REMOVED = "removed"
PREDICTIONS = {
    REMOVED: f"loss of the theory, {predictor_name(LEADING)}",
    "zeroed": f"loss with U₁ zeroed, {predictor_name(LEADING)}",
    "solved_again": f"loss solved again, {predictor_name(LEADING)}",
    "score": f"head score, {predictor_name(LEADING)}",
    "magnitude": "magnitude of the weights",
    "taylor": "Taylor |∂loss/∂gate|",
}


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


def over_examples(values: Float[np.ndarray, "head example"]) -> Estimate:
    """Mean over examples with its standard error."""
    return Estimate(values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


@dataclass(frozen=True)
class Numbers:
    """Some numbers and their errors, ±1σ; NaN where nothing was found."""

    values: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, found: Estimate) -> "Numbers":
        """Values and errors as plain numbers."""
        return cls(*(tuple(map(float, np.asarray(part))) for part in (found.value, found.mcse)))


def performance(
    loss: Loss, outputs: Outputs, labels: Outputs
) -> dict[str, Float[np.ndarray, " example"]]:
    """Loss of each example, and whether it is right where labels are classes, by measure."""
    found = {"loss": losses(loss, outputs, labels)}
    if labels_are_classes(labels):
        found["accuracy"] = correct(outputs, labels).astype(float)
    return found


def mean_performance(
    found: Mapping[str, Float[np.ndarray, " example"]],
) -> dict[str, tuple[float, float]]:
    """Means over examples with their standard errors, by measure."""
    means = {key: over_examples(values[None]) for key, values in found.items()}
    return {key: (float(one.value[0]), float(one.mcse[0])) for key, one in means.items()}


def paired_costs(loss: Loss, outputs: Sequence[Outputs], labels: Outputs) -> dict[str, Numbers]:
    """Loss gained, and accuracy lost where labels are classes, against the first of the outputs."""
    found = [performance(loss, one, labels) for one in outputs]
    values = {key: np.stack([one[key] for one in found]) for key in found[0]}
    lost = {key: of[0] - of if key == "accuracy" else of - of[0] for key, of in values.items()}
    return {key: Numbers.of(over_examples(one)) for key, one in lost.items()}


@dataclass(frozen=True)
class Lost:
    """Loss gained, and right answers lost, without each head [head, example]; NaN: not found."""

    loss: Float[np.ndarray, "head example"]
    accuracy: Float[np.ndarray, "head example"] | None

    @classmethod
    def without(
        cls,
        without: Without,
        heads: Sequence[Head],
        labels: Outputs,
        loss: Loss,
        steps: WorkSteps | None = None,
        phase: str = "",
    ) -> "Lost":
        """Each head removed alone; no accuracy where labels are no classes.

        Heads whose turn did not come before the work was ended are not found.
        """
        steps = steps or WorkSteps()
        gained, wrong = np.full((2, len(heads), len(labels)), np.nan)
        with steps.kept():
            whole = without([])
            before, right = losses(loss, whole, labels), correct(whole, labels).astype(float)
        for place, head in steps.over(phase, heads):
            with steps.kept():
                outputs = without([head])
                if outputs is not None:
                    gained[place] = losses(loss, outputs, labels) - before
                    wrong[place] = right - correct(outputs, labels)
        return cls(gained, wrong if labels_are_classes(labels) else None)


def without_error(values: np.ndarray) -> Estimate:
    """Numbers that are known exactly."""
    return Estimate(np.asarray(values, float), np.zeros(len(values)))


# --- predictions from the model itself


def predictions_of_model(model: GatedModel, labels: Outputs, loss: Loss) -> dict[str, Estimate]:
    """Taylor importance, the mean of |∂L/∂g_h| over examples (Michel et al., 2019), and magnitude.

    Where the model gives no gradients Taylor importance is left out.
    """
    slopes = slopes_of_loss(model, labels, loss, np.ones(sum(model.heads)))
    estimates = {
        "taylor": over_examples(np.abs(slopes)),
        "magnitude": without_error(model.magnitudes()),
    }
    return {key: one for key, one in estimates.items() if np.isfinite(one.value).any()}


def slopes_of_loss(
    model: GatedModel,
    labels: Outputs,
    loss: Loss,
    gates: Float[np.ndarray, " head"],
    replacement: Replacement = "zero",
) -> Float[np.ndarray, "head example"]:
    """∂L/∂g_h of every head and example, with these gates."""
    along = loss_slopes(loss, model.outputs(gates, replacement), labels)
    return model.slopes(along, replacement, gates).T


# --- predictions of the theory


@dataclass(frozen=True)
class TheoryWithoutHeads:
    """The theory's predictor of some examples, with heads (layer, head) removed, from 0.

    overlap  U_1 = F Fᵀ, rows path by path, with several outputs output by output
    """

    learning: LearningProblem
    attended: Float[Array, "example path channel"]
    overlap: Float[np.ndarray, "row row"]

    @property
    def paths(self) -> AttentionPaths:
        return AttentionPaths(self.learning.architecture.heads)

    @cached_property
    def factor(self) -> Float[np.ndarray, "row rank"]:
        """F of U_1 = F Fᵀ."""
        return square_roots(self.overlap)

    @cached_property
    def contributions(self) -> Float[np.ndarray, "example path output"]:
        """m_π(x), what each path brings to the predictor mean."""
        return np.asarray(
            path_contributions(self.learning, jnp.asarray(self.factor), self.attended)
        )

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor of these examples at any U_1."""
        return Predictor.for_examples(self.learning, self.attended)

    def removed(self, heads: Sequence[Head]) -> Outputs:
        """Heads removed after learning: their paths leave m(x), the others keep their weights."""
        return mean_without(self.contributions, self.paths, heads)

    def zeroed(self, heads: Sequence[Head]) -> Outputs:
        """Rows and columns of U_1 zeroed: with it the readout of the rest is learned again."""
        gone = self.paths.through(heads)
        rows = np.repeat(gone, len(self.factor) // len(gone))[:, None]
        mean, _ = predict(self.predictor, jnp.asarray(np.where(rows, 0.0, self.factor)))
        return np.asarray(mean)

    def solved_again(self, heads: Sequence[Head]) -> Outputs | None:
        """The theory of the network without these heads.

        None where they are all heads of a layer, and where the smaller network's saddle point does
        not converge.
        """
        if not heads:
            return self.removed([])
        kept = [
            [head for head in range(count) if (layer, head) not in heads]
            for layer, count in enumerate(self.learning.architecture.heads)
        ]
        if not all(kept):
            return None
        learning, attended = sub_network(self.learning, kept, self.attended)
        saddle = solve_saddle_point(learning, starts=1)
        if not saddle.converged:
            return None
        predictor = Predictor.for_examples(learning, attended)
        return np.asarray(predict(predictor, saddle.order_parameters.factors[0])[0])

    def scores(self, heads: Sequence[Head]) -> Float[np.ndarray, " head"]:
        """The scores of these heads."""
        found = head_scores(self.overlap, self.paths)
        return np.array([found[head] for head in heads])


def predictions_of_theory(
    theory: TheoryWithoutHeads, heads: Sequence[Head], labels: Outputs
) -> dict[str, Estimate]:
    """Head scores, and the squared loss gained with heads removed or zeroed."""
    return {
        "score": without_error(theory.scores(heads)),
        REMOVED: loss_gained(theory.removed, heads, labels),
        "zeroed": loss_gained(theory.zeroed, heads, labels),
    }


def predictions_solved_again(
    theory: TheoryWithoutHeads,
    heads: Sequence[Head],
    labels: Outputs,
    steps: WorkSteps | None = None,
) -> dict[str, Estimate]:
    """The squared loss gained by the theory solved once more without each head."""
    return {"solved_again": loss_gained(theory.solved_again, heads, labels, steps)}


def loss_gained(
    without: Without, heads: Sequence[Head], labels: Outputs, steps: WorkSteps | None = None
) -> Estimate:
    """Squared loss of the theory gained without each head, with errors over examples."""
    phase = "theory solved without a head"
    return over_examples(Lost.without(without, heads, labels, "squared", steps, phase).loss)
