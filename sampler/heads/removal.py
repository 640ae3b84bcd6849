"""Heads removed from a trained model, each alone and one after the other: the results as values.

Which heads matter is measured on test examples, and numbers that may tell so are held against it.
`prune` stores these values as `pruning.json`, `ablate_heads` returns them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.analysis.estimates import Estimate
from sampler.heads.gates import Head, Numbering
from sampler.heads.measures import (
    PREDICTIONS,
    Loss,
    Lost,
    Numbers,
    Outputs,
    Without,
    mean_performance,
    over_examples,
    performance,
)
from sampler.heads.rank_correlation import RankCorrelation, rank_correlation
from sampler.heads.steps import WorkSteps
from theory.observables import binomial_error, correct

# Who loses heads: the trained model; the theory, with zeros in its U₁; the theory solved again.
MODEL, ZEROED, SOLVED_AGAIN = "model", "zeroed", "solved_again"
# Predictions in whose ascending order heads are removed.
ORDERED_BY = ("score", "taylor", "magnitude")


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
    predicted  key of `PREDICTIONS` → predictions; errors over examples, of the exact posterior
               MCSE, and 0 where there is none
    orders     key of `PREDICTIONS` → heads removed in its ascending order; "random" in several
    examples_validation  on which predictions were made; None: on the test examples
    notes      what is to be known when the numbers are read, a sentence each
    widths, temperature  of the theory
    seed       of random orders; None: there are none
    """

    heads: tuple[tuple[int, int], ...]
    loss: Loss
    examples_test: int
    unpruned: Mapping[str, tuple[float, float]]
    measured: Mapping[str, Numbers]
    predicted: Mapping[str, JudgedNumbers]
    widths: tuple[int, ...]
    temperature: float
    seed: int | None = None
    orders: Mapping[str, tuple[Removals, ...]] = field(default_factory=dict)
    examples_validation: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredHeads:
    """Losses of a model without each of its heads, on test examples [head, example].

    heads     that are removed
    unpruned  its loss and accuracy with all of them [1, example]
    lost      "mean_loss" … → what is lost; NaN for heads whose turn did not come
    """

    heads: Numbering
    loss: Loss
    unpruned: Mapping[str, Float[np.ndarray, "1 example"]]
    lost: Mapping[str, Float[np.ndarray, "head example"]]

    @classmethod
    def of(
        cls,
        heads: Numbering,
        ways: Mapping[str, Without],
        labels: Outputs,
        loss: Loss,
        steps: WorkSteps | None = None,
    ) -> "MeasuredHeads":
        """Remove each head alone.

        ways    "mean", "zero" or "theory" → f of the test examples without some heads
        """
        steps = steps or WorkSteps()
        whole = ways["zero"]([])
        unpruned = {key: one[None] for key, one in performance(loss, whole, labels).items()}
        measured = {}
        for way, without in ways.items():
            phase = f"heads removed, {way}"
            found = Lost.without(without, heads.gates, labels, loss, steps, phase)
            measured[f"{way}_loss"] = found.loss
            if found.accuracy is not None:
                measured[f"{way}_accuracy"] = found.accuracy
        measured = {key: lost for key, lost in measured.items() if np.isfinite(lost).any()}
        return cls(heads, loss, unpruned, measured)

    def judging(self, predicted: Mapping[str, Estimate], **settings: Any) -> RemovedHeads:
        """Hold predictions against this; `settings` are the further fields of the result."""
        return RemovedHeads(
            heads=self.heads.shown,
            loss=self.loss,
            examples_test=self.unpruned["loss"].shape[1],
            unpruned=mean_performance({key: one[0] for key, one in self.unpruned.items()}),
            measured={key: Numbers.of(over_examples(lost)) for key, lost in self.lost.items()},
            predicted={
                key: judged_numbers(predicted[key], self.lost)
                for key in PREDICTIONS
                if key in predicted
            },
            **settings,
        )


def judged_numbers(
    found: Estimate, measured: Mapping[str, Float[np.ndarray, "head example"]]
) -> JudgedNumbers:
    """Predictions with their rank correlations, of heads with a prediction that were removed."""
    numbers = Numbers.of(found)
    values = np.asarray(numbers.values)
    spearman = {}
    for key, lost in measured.items():
        known = np.isfinite(values) & np.isfinite(lost[:, 0])
        spearman[key] = rank_correlation(values[known], lost[known])
    return JudgedNumbers(numbers.values, numbers.errors, spearman)


# --- in an order


def one_left_in_each_layer(order: Sequence[Head], counts: Sequence[int]) -> list[Head]:
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
    heads: Numbering,
    counts: Sequence[int],
    labels: Outputs,
    steps: WorkSteps | None = None,
) -> dict[str, tuple[Removals, ...]]:
    """Heads removed in ascending order of each of these numbers, and in random orders.

    counts  all heads of each layer of the model

    No layer loses all of its heads. Who is solved again loses them in ascending score only. An
    order in which the work was ended is left out, with those behind it.
    """
    steps = steps or WorkSteps()
    shown = dict(zip(heads.gates, heads.shown, strict=True))
    generator = np.random.default_rng(seed)
    orders = [(key, np.argsort(values, kind="stable")) for key, values in by.items()]
    orders += [("random", generator.permutation(len(heads.gates))) for _ in range(random)]
    found: dict[str, list[Removals]] = {key: [] for key in (*by, "random")}
    for _, (key, places) in steps.over("orders of removal", orders):
        with steps.kept():
            order = one_left_in_each_layer([heads.gates[place] for place in places], counts)
            accuracy = {
                name: accuracies(without, order, labels)
                for name, without in who.items()
                if name != SOLVED_AGAIN or key == "score"
            }
            found[key].append(Removals(tuple(shown[head] for head in order), accuracy))
    return {key: tuple(some) for key, some in found.items()}


def accuracies(without: Without, order: Sequence[Head], labels: Outputs) -> Numbers:
    """Accuracy with all heads, and after each removal of an order."""
    found = []
    for count in range(len(order) + 1):
        outputs = without(order[:count])
        share = np.nan if outputs is None else float(correct(outputs, labels).mean())
        found.append((share, np.nan if outputs is None else binomial_error(share, len(labels))))
    return Numbers(*zip(*found, strict=True))
