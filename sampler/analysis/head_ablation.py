"""Which heads a trained model needs: what removing each one costs, and what predicts it.

Removal is measured on test examples. Every prediction is made on validation examples, so that none
sees the examples it is judged by.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp, softmax

from sampler.analysis.estimate import (
    Estimate,
    RankCorrelation,
    bootstrap,
    mean_of,
    rank_correlation,
)
from sampler.analysis.labels import EXACT, LEADING, NEXT
from sampler.analysis.pruning_table import NumberedHead
from sampler.problem import Problem, square_roots
from sampler.transformer.gates import GatedModel, Replacement, one_closed
from sampler.transformer.pruning import Head, refitted_mean, zeroed_mean
from theory import (
    AttentionPaths,
    Predictor,
    mean_without,
    path_contributions,
)
from theory.observables import correct, head_scores, labels_are_classes

Loss = Literal["squared", "likelihood"]
Outputs = Float[np.ndarray, "example output"]

# What is measured: how a head is replaced, and what is then lost.
MEASURES: dict[str, tuple[Replacement, str]] = {
    "zero_loss": ("zero", "loss"),
    "zero_accuracy": ("zero", "accuracy"),
    "mean_loss": ("mean", "loss"),
    "mean_accuracy": ("mean", "accuracy"),
}
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
    "score": f"head score, {LEADING}",
    "score_next_order": f"head score, {NEXT}",
    "score_exact": f"head score, {EXACT}",
    "magnitude": "magnitude of the weights",
    "taylor": "Taylor |∂loss/∂gate|",
    "patching": "attribution patching, zero",
    "patching_mean": "attribution patching, mean",
    "random": "random",
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


@dataclass(frozen=True)
class Lost:
    """What is lost without each head [head, example]: loss gained, and right answers lost."""

    loss: Float[np.ndarray, "head example"]
    accuracy: Float[np.ndarray, "head example"] | None

    @classmethod
    def of(cls, whole: Outputs, without: list[Outputs], labels: Outputs, loss: Loss) -> "Lost":
        """From f with all heads and f without each; no accuracy where labels are no classes."""
        before = losses(loss, whole, labels)
        gained = np.stack([losses(loss, one, labels) - before for one in without])
        if not labels_are_classes(labels):
            return cls(gained, None)
        right = correct(whole, labels).astype(float)
        return cls(gained, np.stack([right - correct(one, labels) for one in without]))


def ablated(
    model: GatedModel, labels: Outputs, loss: Loss, replacement: Replacement
) -> tuple[Outputs, Lost]:
    """f with all heads, and what the model loses by the replacement of each head."""
    count = sum(model.heads)
    whole = model.outputs(np.ones(count), replacement)
    without = [model.outputs(one_closed(count, head), replacement) for head in range(count)]
    return whole, Lost.of(whole, without, labels, loss)


def over_examples(values: Float[np.ndarray, "head example"]) -> Estimate:
    """Mean over examples with its standard error."""
    return Estimate(values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


def by_gradient(model: GatedModel, labels: Outputs, loss: Loss) -> dict[str, Estimate]:
    """Predictions of practitioners, from one backward pass for each kind of replacement.

    taylor         mean of |∂L/∂g_h| over examples, L that of one example (Michel et al., 2019)
    patching       −mean ∂L/∂g_h, the change of the loss to first order if the head sends nothing
    patching_mean  the same if it sends its mean over examples
    """
    outputs = model.outputs(np.ones(sum(model.heads)), "zero")
    along = loss_slopes(loss, outputs, labels)
    to_zero, to_mean = (model.slopes(along, kind).T for kind in ("zero", "mean"))
    return {
        "taylor": over_examples(np.abs(to_zero)),
        "patching": over_examples(-to_zero),
        "patching_mean": over_examples(-to_mean),
    }


def exactly_known(values: np.ndarray) -> Estimate:
    """Numbers without an error."""
    return Estimate(np.asarray(values, float), np.zeros(len(values)))


@dataclass(frozen=True)
class TheoryOfHeads:
    """What the theory expects of removal: predictions on the validation examples of a problem.

    heads  (layer, head), from 0, that can be removed from the trained model
    """

    problem: Problem
    heads: tuple[Head, ...]

    @property
    def paths(self) -> AttentionPaths:
        return AttentionPaths(self.problem.architecture.heads)

    def contributions(self, factor: np.ndarray) -> Float[np.ndarray, "example path output"]:
        """m_π(x) at U_1 = F Fᵀ."""
        attended = self.problem.attended_validation
        return np.asarray(path_contributions(self.problem.learning, jnp.asarray(factor), attended))

    def lost(self, contributions: np.ndarray, replacement: Replacement = "zero") -> Lost:
        """Heads removed after learning: their paths leave m(x), the others keep their weights.

        "mean" leaves the mean over examples of what those paths bring: exact for a head of the last
        layer, and for others where the attention above them is the same for all examples.
        """
        whole = contributions.sum(axis=1)
        without = [mean_without(contributions, self.paths, [head]) for head in self.heads]
        if replacement == "mean":
            without = [one + (whole - one).mean(axis=0) for one in without]
        return Lost.of(whole, without, self.problem.labels_validation, "squared")

    def zeroed(self, factor: np.ndarray) -> Lost:
        """Rows and columns of U_1 zeroed: with it the readout of the rest is learned again."""
        predictor = Predictor.for_examples(self.problem.learning, self.problem.attended_validation)

        whole = zeroed_mean(predictor, factor, np.zeros(self.paths.count, bool))
        without = [zeroed_mean(predictor, factor, self.paths.uses(*head)) for head in self.heads]
        return Lost.of(whole, without, self.problem.labels_validation, "squared")

    def solved_again(self, factor: np.ndarray) -> Estimate:
        """The theory of the network without the head; NaN for a head alone in its layer, or where
        the smaller network's saddle point does not converge."""
        labels, problem = self.problem.labels_validation, self.problem
        whole = self.contributions(factor).sum(axis=1)
        found = []
        for layer, head in self.heads:
            kept = [[h for h in range(count) if (at, h) != (layer, head)]
                    for at, count in enumerate(problem.architecture.heads)]  # fmt: skip
            gained = np.full((1, len(labels)), np.nan)
            if all(kept):
                mean = refitted_mean(problem.learning, kept, problem.attended_validation)
                if mean is not None:
                    gained = Lost.of(whole, [mean], labels, "squared").loss
            found.append(gained[0])
        return over_examples(np.stack(found))

    def score(self, overlap: np.ndarray) -> np.ndarray:
        """The head scores of U_1, one for each removable head."""
        scores = head_scores(overlap, self.paths)
        return np.array([scores[head] for head in self.heads])

    def exact(self, overlaps: Float[np.ndarray, "chain draw row row"]) -> dict[str, Estimate]:
        """The same of the exact posterior, from draws of U_1, with Monte Carlo standard errors.

        The posterior mean of each path's output is the mean over draws of m_π at the draw's U_1:
        given U_1 it is exact. The loss is that of these means; its error is by bootstrap.
        """
        factors = square_roots(overlaps)
        chains = [[self.contributions(one) for one in chain] for chain in factors]
        size = max(1, len(chains[0]) // BATCHES)
        batches = np.stack(
            [
                np.mean(chain[start : start + size], axis=0)
                for chain in chains
                for start in range(0, size * (len(chain) // size), size)
            ]
        )

        def gained(means: np.ndarray) -> np.ndarray:
            return np.stack([self.lost(one).loss.mean(axis=1) for one in means])

        scores = np.array([[self.score(one) for one in chain] for chain in overlaps])
        return {
            REMOVED_EXACT: bootstrap(gained, batches, replicates=100),
            "score_exact": mean_of(scores),
        }


# Of the draws of each chain.
BATCHES = 10


def theory_predictions(
    theory: TheoryOfHeads,
    overlap: np.ndarray,
    next_order: np.ndarray | None = None,
    solve_again: bool = True,
) -> dict[str, Estimate]:
    """Every prediction of the theory with these U_1 of leading and next order."""
    factor = square_roots(overlap)
    contributions = theory.contributions(factor)
    removed, zeroed = theory.lost(contributions), theory.zeroed(factor)
    found = {
        REMOVED: over_examples(removed.loss),
        REMOVED_MEAN: over_examples(theory.lost(contributions, "mean").loss),
        "zeroed": over_examples(zeroed.loss),
        "score": exactly_known(theory.score(overlap)),
    }
    if solve_again:
        found["solved_again"] = theory.solved_again(factor)
    if removed.accuracy is not None:
        found["removed_accuracy"] = over_examples(removed.accuracy)
        found["zeroed_accuracy"] = over_examples(zeroed.accuracy)
    if next_order is not None:
        beyond = theory.contributions(square_roots(next_order))
        found[REMOVED_NEXT] = over_examples(theory.lost(beyond).loss)
        found["score_next_order"] = exactly_known(theory.score(next_order))
    return found


@dataclass(frozen=True)
class Judged:
    """A number for each head with its errors, and its rank correlation with each measure."""

    values: tuple[float, ...]
    errors: tuple[float, ...]
    spearman: Mapping[str, RankCorrelation]


@dataclass(frozen=True)
class HeadAblation:
    """What removing each head costs on test examples, and what predicts it.

    unpruned   loss and accuracy of the whole model, each with its error over examples
    measured   key of `MEASURES` → what is lost without each head, paired over examples, errors ±1σ
    predicted  key of `PREDICTIONS` → predictions; errors over validation examples, of the exact
               posterior MCSE
    """

    heads: tuple[NumberedHead, ...]
    loss: Loss
    examples_test: int
    examples_validation: int
    unpruned: Mapping[str, tuple[float, float]]
    measured: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]
    predicted: Mapping[str, Judged]


def judge(
    model: GatedModel,
    labels: Outputs,
    loss: Loss,
    predictions: Mapping[str, Estimate],
    examples_validation: int,
    say: Callable[[str], None] = lambda _: None,
) -> HeadAblation:
    """Remove every head of the model on its test examples, and hold predictions against that."""
    say("heads removed one at a time")
    measured: dict[str, np.ndarray] = {}
    whole = np.empty((0, 0))
    for replacement in ("zero", "mean"):
        whole, lost = ablated(model, labels, loss, replacement)
        measured[f"{replacement}_loss"] = lost.loss
        if lost.accuracy is not None:
            measured[f"{replacement}_accuracy"] = lost.accuracy
    unpruned = {"loss": losses(loss, whole, labels)}
    if labels_are_classes(labels):
        unpruned["accuracy"] = correct(whole, labels).astype(float)

    def judged(found: Estimate) -> Judged:
        values = np.asarray(found.value)
        return Judged(
            tuple(map(float, values)),
            tuple(map(float, np.asarray(found.mcse))),
            {
                key: rank_correlation(values[np.isfinite(values)], lost[np.isfinite(values)])
                for key, lost in measured.items()
            },
        )

    means = {key: over_examples(lost) for key, lost in measured.items()}
    return HeadAblation(
        heads=tuple(
            NumberedHead(layer, head)
            for layer, count in enumerate(model.heads, start=1)
            for head in range(count)
        ),
        loss=loss,
        examples_test=len(labels),
        examples_validation=examples_validation,
        unpruned={
            key: (float(one.mean()), float(one.std(ddof=1) / np.sqrt(len(one))))
            for key, one in unpruned.items()
        },
        measured={
            key: (tuple(map(float, one.value)), tuple(map(float, one.mcse)))
            for key, one in means.items()
        },
        predicted={key: judged(predictions[key]) for key in PREDICTIONS if key in predictions},
    )


def practitioners_predictions(
    model: GatedModel, labels: Outputs, loss: Loss, seed: int = 0
) -> dict[str, Estimate]:
    """Gradients, magnitudes and random numbers, of a model with validation examples."""
    random = np.random.default_rng(seed).random(sum(model.heads))
    return by_gradient(model, labels, loss) | {
        "magnitude": exactly_known(model.magnitudes()),
        "random": exactly_known(random),
    }
