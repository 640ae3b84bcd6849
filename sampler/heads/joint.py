"""Heads removed together: orders in which they go, each number computed anew of what is left.

A greedy order removes the head with the least number, computes the numbers of the model or of the
theory that is left, and goes on. Numbers come from validation examples, what each set costs is
measured on test examples.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from sampler.heads.gates import GatedModel, Head, Numbering, Replacement, closed_gates, places_of
from sampler.heads.measures import (
    Loss,
    Numbers,
    Outputs,
    mean_performance,
    paired_costs,
    performance,
    slopes_of_loss,
)
from sampler.heads.steps import WorkSteps
from theory.observables import binomial_error, correct, labels_are_classes

# Heads removed → a number of each head, of what is left; NaN: not known, goes last.
Ranking = Callable[[Sequence[Head]], Float[np.ndarray, " head"]]


@dataclass(frozen=True)
class RemovalCurve:
    """Sets of more and more heads, from none on, and what each costs on the same examples.

    removed   (layer from 1, head from 0) of each set
    loss      gained, ±1σ over examples, paired
    accuracy  lost, likewise, where labels are classes
    """

    removed: tuple[tuple[tuple[int, int], ...], ...]
    loss: Numbers
    accuracy: Numbers | None

    def within(self, limit: float, measure: str = "loss") -> int:
        """The place of the last set before the first that costs more than this."""
        values = np.asarray(getattr(self, measure).values)
        above = np.flatnonzero(~(values[1:] <= limit))
        return int(above[0]) if len(above) else len(values) - 1

    def at(self, place: int, measure: str = "loss") -> tuple[float, float]:
        """The cost of the set at a place, and its error."""
        numbers = getattr(self, measure)
        return numbers.values[place], numbers.errors[place]

    def heads_within(self, limit: float, measure: str = "loss") -> int:
        """The number of heads of that set."""
        return len(self.removed[self.within(limit, measure)])

    def area(self, measure: str = "loss") -> float:
        """The mean cost over all sets but the empty one, between them on straight lines."""
        counts = [len(some) for some in self.removed]
        every = np.arange(1, counts[-1] + 1)
        return float(np.interp(every, counts, getattr(self, measure).values).mean())


@dataclass(frozen=True)
class Candidates:
    """The heads that may go, of layers with so many heads.

    heads    in the order of numbers, as gates number them
    counts   H_1 … H_L
    emptied  whether a layer may lose all of its heads
    """

    heads: tuple[Head, ...]
    counts: tuple[int, ...]
    emptied: bool

    def left(self, removed: Sequence[Head]) -> list[int]:
        """Places of the heads that may go next."""
        left = left_in_layers(self.counts, removed)
        return [
            place
            for place, (layer, head) in enumerate(self.heads)
            if (layer, head) not in removed and (self.emptied or left[layer] > 1)
        ]


def greedy_order(
    ranking: Ranking, candidates: Candidates, steps: WorkSteps | None = None, phase: str = ""
) -> list[Head]:
    """Heads in the order in which they go, always the one with the least number."""
    steps = steps or WorkSteps()
    removed: list[Head] = []
    for _ in steps.over(phase, range(len(candidates.heads))):
        places = candidates.left(removed)
        if not places:
            break
        with steps.kept():
            numbers = np.asarray(ranking(removed), float)[places]
            # Sorting puts what is not known last.
            removed.append(candidates.heads[places[int(np.argsort(numbers, kind="stable")[0])]])
    return removed


def left_in_layers(counts: Sequence[int], removed: Sequence[Head]) -> list[int]:
    """Numbers of the heads left in each layer."""
    return [count - sum(at == layer for at, _ in removed) for layer, count in enumerate(counts)]


@dataclass(frozen=True)
class RemovableModel:
    """A trained model with examples and labels, whose heads are removed together.

    heads        that may go, in the order of numbers
    replacement  what a head sends that is removed
    """

    model: GatedModel
    heads: tuple[Head, ...]
    labels: Outputs
    loss: Loss
    replacement: Replacement

    def outputs(self, removed: Sequence[Head]) -> Outputs:
        """f of all examples without these heads."""
        return self.model.outputs(closed_gates(self.model.heads, removed), self.replacement)

    def curve(self, sets: Sequence[Sequence[Head]], heads: Numbering) -> RemovalCurve:
        """The cost of each of these sets, the first of which is empty."""
        costs = paired_costs(self.loss, [self.outputs(some) for some in sets], self.labels)
        shown = dict(zip(heads.gates, heads.shown, strict=True))
        removed = tuple(tuple(shown[head] for head in some) for some in sets)
        return RemovalCurve(removed, costs["loss"], costs.get("accuracy"))

    # --- numbers of its heads, without those that are removed

    @property
    def places(self) -> list[int]:
        """Places of these heads among all heads of the model."""
        return places_of(self.heads, self.model.heads)

    def taylor(self, removed: Sequence[Head]) -> Float[np.ndarray, " head"]:
        """The mean of |∂L/∂g| over examples."""
        gates = closed_gates(self.model.heads, removed)
        slopes = slopes_of_loss(self.model, self.labels, self.loss, gates, self.replacement)
        return np.abs(slopes[self.places]).mean(axis=1)

    def rankings(self) -> dict[str, Ranking]:
        """The numbers by key of SCORES, of the model itself."""
        magnitudes = self.model.magnitudes()[self.places]
        return {"taylor": self.taylor, "magnitude": lambda removed: magnitudes}


@dataclass(frozen=True)
class JointlyRemoved:
    """An order of removal: its sets on the examples that chose it, and on unseen ones."""

    validation: RemovalCurve
    test: RemovalCurve


@dataclass(frozen=True)
class JointRemoval:
    """Heads of a trained model removed together, in orders by many numbers.

    heads     (layer from 1, head from 0) that may go
    unpruned  loss and accuracy of the whole model on test examples, with errors over them
    orders    key of SCORES → orders by that number; "random" has several
    seconds   that each took to be found
    """

    heads: tuple[tuple[int, int], ...]
    loss: Loss
    replacement: Replacement
    examples_validation: int
    examples_test: int
    unpruned: Mapping[str, tuple[float, float]]
    orders: Mapping[str, tuple[JointlyRemoved, ...]]
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def removed_together(
    validation: RemovableModel,
    test: RemovableModel,
    heads: Numbering,
    candidates: Candidates,
    rankings: Mapping[str, Ranking],
    *,
    sets: int,
    random: int,
    seed: int,
    steps: WorkSteps | None = None,
) -> JointRemoval:
    """Remove heads in the greedy order of each number, and hold each set against test examples.

    sets    of each order that are measured, at most, spread evenly
    random  how many random orders
    """
    steps = steps or WorkSteps()
    orders: dict[str, tuple[JointlyRemoved, ...]] = {}
    seconds: dict[str, float] = {}

    def judged(sets: Sequence[Sequence[Head]]) -> JointlyRemoved:
        return JointlyRemoved(*(one.curve(sets, heads) for one in (validation, test)))

    def nested(order: Sequence[Head]) -> list[Sequence[Head]]:
        counts = np.unique(
            np.linspace(0, len(order), min(sets, len(order)) + 1).round().astype(int)
        )
        return [order[:count] for count in counts]

    for key, ranking in rankings.items():
        if steps.ended:
            break
        began = time.monotonic()
        order = greedy_order(ranking, candidates, steps, f"removed by {key}")
        seconds[key] = time.monotonic() - began
        with steps.kept():
            orders[key] = (judged(nested(order)),)
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in steps.over("random orders", range(random)):
        numbers = generator.random(len(candidates.heads))
        with steps.kept():
            drawn.append(judged(nested(greedy_order(lambda removed, n=numbers: n, candidates))))
    if drawn:
        orders["random"] = tuple(drawn)
    whole = test.outputs([])
    return JointRemoval(
        heads=heads.shown,
        loss=test.loss,
        replacement=test.replacement,
        examples_validation=len(validation.labels),
        examples_test=len(test.labels),
        unpruned=mean_performance(performance(test.loss, whole, test.labels)),
        orders=orders,
        seconds=seconds,
        notes=notes_of_whole(whole, test.labels),
    )


def notes_of_whole(outputs: Outputs, labels: Outputs) -> tuple[str, ...]:
    """A sentence where a model tells classes no better than by naming the most frequent one."""
    if not labels_are_classes(labels):
        return ()
    positive = (labels > 0.5).mean(axis=0)
    frequent = max(positive.max(), 1.0 - positive.sum() if labels.shape[1] == 1 else 0.0)
    share = correct(outputs, labels).mean()
    if share > frequent + 2.0 * binomial_error(float(share), len(labels)):
        return ()
    return (
        f"the model is right in {100 * share:.1f} %, and always naming the most frequent class is "
        f"in {100 * frequent:.1f} %: what costs nothing here says nothing of its heads",
    )
