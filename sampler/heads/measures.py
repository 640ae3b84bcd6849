"""Measures of heads: what is lost without one, and the numbers that may tell so beforehand.

A prediction is of the loss that is gained, or of the right answers that are lost, without a head.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit, logsumexp, softmax

from sampler.analysis.estimate import Estimate
from sampler.analysis.labels import EXACT, LEADING, NEXT
from sampler.heads.derivatives import DERIVATIVES, over_examples
from sampler.heads.evidence import (
    EVIDENCE_NEXT,
    EVIDENCES,
    predictions_at_infinite_width,
    solved_without,
)
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
)
from theory.observables import correct, head_scores, labels_are_classes

Loss = Literal["squared", "likelihood"]
Outputs = Float[np.ndarray, "example output"]
# f of every example without some heads; None where it could not be found
Without = Callable[[Sequence[Head]], Outputs | None]

# Keys of the predictions, and their names in tables and figures.
REMOVED, REMOVED_NEXT, REMOVED_EXACT = "removed", "removed_next_order", "removed_exact"
REMOVED_MEAN = "removed_mean"
PREDICTIONS = {
    REMOVED: f"loss of the theory, {LEADING}",
    REMOVED_NEXT: f"loss of the theory, {NEXT}",
    REMOVED_EXACT: f"loss, {EXACT}",
    REMOVED_MEAN: f"loss of the theory, {LEADING}, mean",
    "removed_accuracy": f"accuracy of the theory, {LEADING}",
    "zeroed": f"loss with U₁ zeroed, {LEADING}",
    "zeroed_accuracy": f"accuracy with U₁ zeroed, {LEADING}",
    "solved_again": f"loss solved again, {LEADING}",
    "solved_again_accuracy": f"accuracy solved again, {LEADING}",
    "score": f"head score, {LEADING}",
    "score_next_order": f"head score, {NEXT}",
    "score_exact": f"head score, {EXACT}",
    **DERIVATIVES,
    **EVIDENCES,
    "magnitude": "magnitude of the weights",
    "taylor": "Taylor |∂loss/∂gate|",
    "patching": "attribution patching, zero",
    "patching_mean": "attribution patching, mean",
    "integrated": "integrated gradients along the gates",
    "eap_ig": "EAP-IG, mean of other examples",
    "random": "random",
}
# Gates at which slopes are taken for their integral, and inputs at which they are for EAP-IG.
NODES, STEPS = 8, 5


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


def predictions_of_model(
    model: GatedModel, labels: Outputs, loss: Loss, seed: int
) -> dict[str, Estimate]:
    """Gradients, magnitudes and random numbers.

    taylor         mean of |∂L/∂g_h| over examples, L that of one example (Michel et al., 2019)
    patching       −mean ∂L/∂g_h, the change of the loss to first order if the head sends nothing:
                   attribution patching, which is Taylor importance with its sign
    patching_mean  the same if it sends its mean over examples
    integrated     −∫_0^1 ∂L/∂g_h dα with all gates at α; summed over heads, what the loss gains if
                   no head sends anything (Sundararajan et al., 2017)
    eap_ig         ∂L/∂o_h · (o'_h − o_h), o' with the mean over other examples as input, slopes
                   averaged on the way there (Hanna et al., 2024)

    What the model does not let be known, as gradients of outputs without any, is left out.
    """
    heads = sum(model.heads)
    along = loss_slopes(loss, model.outputs(np.ones(heads), "zero"), labels)
    to_zero, to_mean = (model.slopes(along, kind).T for kind in ("zero", "mean"))
    found = {
        "taylor": over_examples(np.abs(to_zero)),
        "patching": over_examples(-to_zero),
        "patching_mean": over_examples(-to_mean),
        "integrated": over_examples(-integrated_slopes(model, labels, loss)),
        "eap_ig": over_examples(swapped_slopes(model, labels, loss)),
        "magnitude": without_error(model.magnitudes()),
        "random": without_error(np.random.default_rng(seed).random(heads)),
    }
    return {key: one for key, one in found.items() if np.isfinite(one.value).any()}


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


def swapped_slopes(
    model: GatedModel, labels: Outputs, loss: Loss, gates: np.ndarray | None = None
) -> Float[np.ndarray, "head example"]:
    """∂L/∂o_h · (o'_h − o_h) of every head and example, as EAP-IG has them, with these gates."""

    def along_of(outputs: Outputs, examples: Sequence[int]) -> Outputs:
        return loss_slopes(loss, outputs, labels[examples])

    return model.interpolated_slopes(along_of, STEPS, gates).T


def integrated_slopes(
    model: GatedModel,
    labels: Outputs,
    loss: Loss,
    gates: Float[np.ndarray, " head"] | None = None,
    nodes: int = NODES,
) -> Float[np.ndarray, "head example"]:
    """∫_0^1 ∂L/∂g_h(α g) dα g_h of every head and example, all gates g opened together from 0.

    gates  None: all 1

    Gauss and Legendre's nodes: exact for a loss that is a polynomial of α up to degree 2 `nodes`.
    """
    places, weights = np.polynomial.legendre.leggauss(nodes)
    gates = np.ones(sum(model.heads)) if gates is None else gates
    found = np.zeros((len(labels), len(gates)))
    for node, weight in zip((places + 1.0) / 2.0, weights / 2.0, strict=True):
        found += weight * slopes_of_loss(model, labels, loss, node * gates).T
    return (gates * found).T


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

    def removed(self, heads: Sequence[Head], replacement: Replacement = "zero") -> Outputs:
        """Heads removed after learning: their paths leave m(x), the others keep their weights.

        "mean" leaves the mean over examples of what those paths bring: exact for a head of the last
        layer, and for others where the attention above them is the same for all examples.
        """
        remaining = mean_without(self.contributions, self.paths, heads)
        if replacement == "zero":
            return remaining
        return remaining + (self.contributions.sum(axis=1) - remaining).mean(axis=0)

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
        found = solved_without(self.learning, heads, self.attended)
        return None if found is None else found.mean

    def scores(self, heads: Sequence[Head]) -> Float[np.ndarray, " head"]:
        """The scores of these heads."""
        found = head_scores(self.overlap, self.paths)
        return np.array([found[head] for head in heads])


def predictions_of_theory(
    theory: TheoryWithoutHeads,
    heads: Sequence[Head],
    labels: Outputs,
    next_order: Float[np.ndarray, "row row"] | None = None,
) -> dict[str, Estimate]:
    """The theory's predictions at its U_1, and at that of next order where there is one."""
    found = {"score": without_error(theory.scores(heads))}
    ways: dict[str, Without] = {
        REMOVED: theory.removed,
        REMOVED_MEAN: partial(theory.removed, replacement="mean"),
        "zeroed": theory.zeroed,
    }
    if next_order is not None and np.isfinite(next_order).all():
        beyond = replace(theory, overlap=next_order)
        found["score_next_order"] = without_error(beyond.scores(heads))
        if np.linalg.eigvalsh(next_order)[0] > 0:
            ways[REMOVED_NEXT] = beyond.removed
    for key, without in ways.items():
        found |= lost_in_theory(key, without, heads, labels)
    return found | predictions_at_infinite_width(theory.learning, heads)


def predictions_solved_again(
    theory: TheoryWithoutHeads,
    heads: Sequence[Head],
    labels: Outputs,
    whole: Mapping[str, float],
    steps: WorkSteps | None = None,
) -> dict[str, Estimate]:
    """The losses, and the log evidence lost, of the theory solved once more without each head.

    whole  ln p(y) with all heads, by key
    """
    evidence = {key: np.full(len(heads), np.nan) for key in whole}

    def without(removed: Sequence[Head]) -> Outputs | None:
        if not removed:
            return theory.removed([])
        found = solved_without(theory.learning, removed, theory.attended)
        if found is None:
            return None
        place = heads.index(removed[0])
        for key, value in found.log_evidence(EVIDENCE_NEXT in whole).items():
            evidence[key][place] = whole[key] - value
        return found.mean

    lost = lost_in_theory("solved_again", without, heads, labels, steps)
    return lost | {key: without_error(values) for key, values in evidence.items()}


def lost_in_theory(
    key: str,
    without: Without,
    heads: Sequence[Head],
    labels: Outputs,
    steps: WorkSteps | None = None,
) -> dict[str, Estimate]:
    """Squared loss gained, and accuracy lost where labels are classes, by keys of PREDICTIONS."""
    phase = "theory solved without a head"
    lost = Lost.without(without, heads, labels, "squared", steps, phase)
    found = {key: over_examples(lost.loss)}
    if lost.accuracy is not None:
        found[f"{key}_accuracy"] = over_examples(lost.accuracy)
    return found
