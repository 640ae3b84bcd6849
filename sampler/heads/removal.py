"""Heads removed from a trained model, each alone and one after the other: the results as values.

Which heads matter is measured on test examples, and numbers that may tell so are held against it.
`prune` stores these values as `pruning.json`, `ablate_heads` returns them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.analysis.estimate import Estimate, RankCorrelation, rank_correlation
from sampler.heads.gates import Head, all_heads
from sampler.heads.measures import (
    PREDICTIONS,
    Loss,
    Lost,
    Outputs,
    Without,
    losses,
    over_examples,
)
from theory.observables import binomial_error, correct, labels_are_classes

# Who loses heads: the trained model; the theory, with zeros in its U₁; the theory solved again.
MODEL, ZEROED, SOLVED_AGAIN = "model", "zeroed", "solved_again"


@dataclass(frozen=True)
class Numbers:
    """Some numbers and their errors, ±1σ; NaN where nothing was found."""

    values: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, found: Estimate) -> "Numbers":
        """Values and errors as plain numbers."""
        return cls(*(tuple(map(float, np.asarray(part))) for part in (found.value, found.mcse)))


@dataclass(frozen=True)
class JudgedNumbers(Numbers):
    """A number for each head with its error, and its rank correlation with each measure."""

    spearman: Mapping[str, RankCorrelation]


@dataclass(frozen=True)
class Removals:
    """Accuracies of the whole network and after each removal of an order, binomial errors.

    removed   heads (layer from 1, head from 0)
    accuracy  by who loses them: "model", "zeroed" and "solved_again"
    """

    removed: tuple[tuple[int, int], ...]
    accuracy: Mapping[str, Numbers]


@dataclass(frozen=True)
class RemovedHeads:
    """Costs of removing heads on test examples, and predictions of them.

    heads      (layer from 1, head from 0)
    loss       in which the costs are
    unpruned   loss and accuracy of the whole model, each with its error over examples
    measured   "zero_loss", "mean_accuracy" … → what is lost without each head that sends nothing,
               or its mean; "theory_loss" … of the theory, U_1 zeroed. Paired over examples, ±1σ
    predicted  key of `PREDICTIONS` → predictions; errors over examples, of the exact posterior MCSE
    orders     key of `PREDICTIONS` → heads removed in its ascending order; "random" in several
    examples_validation  on which predictions were made; None: on the test examples
    widths, temperature  of the theory
    """

    heads: tuple[tuple[int, int], ...]
    loss: Loss
    examples_test: int
    unpruned: Mapping[str, tuple[float, float]]
    measured: Mapping[str, Numbers]
    predicted: Mapping[str, JudgedNumbers]
    widths: tuple[int, ...]
    temperature: float
    seed: int
    orders: Mapping[str, tuple[Removals, ...]] = field(default_factory=dict)
    examples_validation: int | None = None


def removed_heads(
    counts: Sequence[int],
    ways: Mapping[str, Without],
    labels: Outputs,
    loss: Loss,
    predicted: Mapping[str, Estimate],
    **settings: Any,
) -> RemovedHeads:
    """Remove each head alone, and hold predictions against what that costs.

    counts    heads of each layer
    ways      "zero", "mean" or "theory" → f of the test examples without some heads
    settings  further fields of the result
    """
    heads = all_heads(counts)
    measured = {}
    for way, without in ways.items():
        lost = Lost.without(without, heads, labels, loss)
        measured[f"{way}_loss"] = lost.loss
        if lost.accuracy is not None:
            measured[f"{way}_accuracy"] = lost.accuracy
    whole = ways["zero"]([])
    unpruned = {"loss": losses(loss, whole, labels)}
    if labels_are_classes(labels):
        unpruned["accuracy"] = correct(whole, labels).astype(float)
    means = {key: over_examples(values[None]) for key, values in unpruned.items()}
    return RemovedHeads(
        heads=tuple((layer + 1, head) for layer, head in heads),
        loss=loss,
        examples_test=len(labels),
        unpruned={key: (float(one.value[0]), float(one.mcse[0])) for key, one in means.items()},
        measured={key: Numbers.of(over_examples(lost)) for key, lost in measured.items()},
        predicted={
            key: judged_numbers(predicted[key], measured) for key in PREDICTIONS if key in predicted
        },
        **settings,
    )


def judged_numbers(
    found: Estimate, measured: Mapping[str, Float[np.ndarray, "head example"]]
) -> JudgedNumbers:
    """Predictions with their rank correlations, heads without a prediction left out of these."""
    numbers = Numbers.of(found)
    values = np.asarray(numbers.values)
    known = np.isfinite(values)
    return JudgedNumbers(
        numbers.values,
        numbers.errors,
        {key: rank_correlation(values[known], lost[known]) for key, lost in measured.items()},
    )


# --- in an order


def removable(order: Sequence[Head], counts: Sequence[int]) -> list[Head]:
    """The order without those heads whose turn comes when they are the last of their layer."""
    left = list(counts)
    removed = []
    for layer, head in order:
        if left[layer] > 1:
            left[layer] -= 1
            removed.append((layer, head))
    return removed


def removed_in_orders(
    who: Mapping[str, Without],
    by: Mapping[str, Float[np.ndarray, " head"]],
    random: int,
    seed: int,
    counts: Sequence[int],
    labels: Outputs,
) -> dict[str, tuple[Removals, ...]]:
    """Heads removed in ascending order of each of these numbers, and in random orders.

    No layer loses all of its heads. Who is solved again loses them in ascending score only.
    """
    heads = all_heads(counts)
    generator = np.random.default_rng(seed)
    orders = {key: [np.argsort(values, kind="stable")] for key, values in by.items()}
    orders["random"] = [generator.permutation(len(heads)) for _ in range(random)]

    def removals(key: str, places: np.ndarray) -> Removals:
        order = removable([heads[place] for place in places], counts)
        return Removals(
            tuple((layer + 1, head) for layer, head in order),
            {
                name: accuracies(without, order, labels)
                for name, without in who.items()
                if name != SOLVED_AGAIN or key == "score"
            },
        )

    return {key: tuple(removals(key, one) for one in some) for key, some in orders.items()}


def accuracies(without: Without, order: Sequence[Head], labels: Outputs) -> Numbers:
    """Accuracy with all heads, and after each removal of an order."""
    found = []
    for count in range(len(order) + 1):
        outputs = without(order[:count])
        share = np.nan if outputs is None else float(correct(outputs, labels).mean())
        found.append((share, np.nan if outputs is None else binomial_error(share, len(labels))))
    return Numbers(*zip(*found, strict=True))
