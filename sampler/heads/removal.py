"""Heads removed from a trained model: sets of them, and what each set costs on the same examples.

Sets are single heads, or heads in the order of a number, more and more of them. `prune` and
`ablate_heads` measure both, `removable` the order of Taylor importance alone, of which it takes the
largest set within a limit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float, Num

from sampler.heads.head_importance import (
    PREDICTIONS,
    SCORE,
    TAYLOR,
    Loss,
    ModelWithHeads,
    Numbers,
    floats,
    losses,
    numbers_of_model,
    over_examples,
    without_error,
)
from sampler.heads.path_sum import Head, Outputs, Replacement, TheoryOfHeads
from sampler.streams import Stream, stream
from theory.observables import binomial_error, correct, labels_are_classes

# Outputs of all examples without some heads; None where there are none
Without = Callable[[Sequence[Head]], Outputs | None]
Measure = Literal["loss", "accuracy"]
# Losses of a model without sets of heads and, where labels are classes, its right answers
Costs = Mapping[Measure, Float[np.ndarray, "set example"]]
Place = tuple[int, int]  # layer from 1, head from 0
# Who loses heads: the trained model, or the theory.
MODEL, ZEROED = "model", "zeroed"
# Numbers in whose ascending order heads are removed.
ORDERED_BY = (SCORE, TAYLOR)
RANDOM = "random"
# Of a mean over examples, which may exceed its limit by that much and be equal to it.
ROUNDING = 1e-12
ENDED = "ended by Ctrl-C: numbers and columns that were not reached are missing"


@dataclass
class LongWork:
    """Long work that Ctrl-C ends, with what is done kept.

    shown  (phase, steps that are done, steps in all), called before each and at the end
    ended  whether it was ended
    """

    shown: Callable[[str, int, int], None] | None = None
    ended: bool = False

    def show(self, phase: str, done: int, total: int) -> None:
        """Show how far a phase is."""
        if self.shown is not None:
            self.shown(phase, done, total)


def costs_of(
    without: Without,
    sets: Sequence[Sequence[Head]],
    labels: Outputs,
    loss: Loss,
    steps: LongWork,
    phase: str = "",
) -> Costs:
    """Measure a model without each of these sets of heads; Ctrl-C leaves out the rest.

    NaN where a set was not reached, or has no outputs.
    """
    losses_without, right = np.full((2, len(sets), len(labels)), np.nan)
    for place, removed in enumerate(sets):
        if steps.ended:
            break
        steps.show(phase, place, len(sets))
        try:
            outputs = without(removed)
        except KeyboardInterrupt:
            steps.ended = True
            break
        if outputs is not None:
            losses_without[place] = losses(loss, outputs, labels)
            right[place] = correct(outputs, labels)
    if not steps.ended:
        steps.show(phase, len(sets), len(sets))
    measures = {"loss": losses_without}
    return measures | {"accuracy": right} if labels_are_classes(labels) else measures


def lost(costs: Costs) -> Costs:
    """What is lost against the first set, which is empty."""
    return {
        measure: of_sets[0] - of_sets if measure == "accuracy" else of_sets - of_sets[0]
        for measure, of_sets in costs.items()
    }


def with_all_heads(costs: Costs) -> dict[str, tuple[float, float]]:
    """Loss and accuracy of the first set, which is empty, with their errors over examples."""
    means = {measure: over_examples(of_sets[:1]) for measure, of_sets in costs.items()}
    return {measure: (mean.values[0], mean.errors[0]) for measure, mean in means.items()}


def one_by_one(heads: Sequence[Head]) -> list[list[Head]]:
    """No head, then each alone."""
    return [[], *([head] for head in heads)]


def in_order(
    values: Sequence[float] | Num[np.ndarray, " head"],
    heads: Sequence[Head],
    counts: Sequence[int],
) -> list[Head]:
    """Heads by ascending number, without those that are the last of their layer at their turn."""
    left, order = list(counts), []
    for place in np.argsort(values, kind="stable"):
        layer, head = heads[place]
        if left[layer] > 1:
            left[layer] -= 1
            order.append((layer, head))
    return order


def nested(order: Sequence[Head]) -> list[Sequence[Head]]:
    """No head, then more and more of them, until all are removed."""
    return [order[:count] for count in range(len(order) + 1)]


def shown(heads: Sequence[Head]) -> tuple[Place, ...]:
    """Heads by layer from 1 and number from 0, as tables show them."""
    return tuple((layer + 1, head) for layer, head in heads)


# --- every head alone, and in orders


@dataclass(frozen=True)
class Curve:
    """Heads removed one after the other.

    removed   in their order, none before the first number
    accuracy  of the whole network and after each removal, binomial errors, of the trained "model",
              and of the theory with U_1 "zeroed"
    loss      of the model, gained, paired over examples
    """

    removed: tuple[Place, ...]
    accuracy: Mapping[str, Numbers]
    loss: Numbers


@dataclass(frozen=True)
class RemovedHeads:
    """Costs of removing heads on test examples, and numbers that may predict them.

    heads      (layer from 1, head from 0)
    loss       in which the costs are
    examples_numbers  examples that numbers were measured on; None: the test examples
    unpruned   loss and accuracy of the whole model, each with its error over examples
    measured   "zero_loss", "mean_accuracy" … → what is lost without each head that sends nothing,
               or its mean; "theory_loss" … of the theory, U_1 zeroed. Paired over examples, ±1σ
    predicted  key of `PREDICTIONS` → numbers; errors over examples, 0 where there is none
    curves     key of `PREDICTIONS` → heads removed in its ascending order; "random" has several
    widths, temperature  of the theory; None without any
    """

    heads: tuple[Place, ...]
    loss: Loss
    examples_test: int
    examples_numbers: int | None
    unpruned: Mapping[str, tuple[float, float]]
    measured: Mapping[str, Numbers]
    predicted: Mapping[str, Numbers]
    curves: Mapping[str, tuple[Curve, ...]] = field(default_factory=dict)
    widths: tuple[int, ...] | None = None
    temperature: float | None = None
    seed: int = 0
    notes: tuple[str, ...] = ()


def remove_heads(
    models: Mapping[str, ModelWithHeads],
    labels: Mapping[str, Outputs],
    heads: Sequence[Head],
    loss: Loss,
    theory: TheoryOfHeads | None = None,
    *,
    replacements: Sequence[Replacement] = ("mean", "zero"),
    random: int = 0,
    seed: int = 0,
    steps: LongWork | None = None,
) -> RemovedHeads:
    """Remove every head alone, and in ascending order of numbers.

    models, labels  of "test" examples, on which removal is measured, and of "numbers"
    theory          of the test examples, which loses heads beside the model
    random          how many random orders there are; None of any other without them

    Of work that was ended by Ctrl-C the rest is missing.
    """
    steps = steps or LongWork()
    test, counts = labels["test"], models["test"].heads
    predictions = numbers_of_model(models["numbers"], heads, labels["numbers"], loss)
    if theory is not None:
        predictions[SCORE] = without_error(theory.scores(heads))
    costs = {
        kind: costs_of(
            lambda removed, kind=kind: models["test"].without(removed, kind),
            one_by_one(heads), test, loss, steps, f"heads removed, {kind}",
        )
        for kind in replacements
    }  # fmt: skip
    whole = with_all_heads(costs[replacements[0]])
    losing: dict[str, Without] = {MODEL: models["test"].without}
    if theory is not None:
        losing[ZEROED] = theory.zeroed
        costs["theory"] = costs_of(
            theory.zeroed, one_by_one(heads), test, "squared", steps, "theory"
        )
    measured = {
        f"{kind}_{measure}": of_sets[1:]
        for kind, of_kind in costs.items()
        for measure, of_sets in lost(of_kind).items()
        if np.isfinite(of_sets[1:]).any()
    }
    curves = {}
    if random:
        orders = orders_of(predictions, heads, counts, random, seed)
        curves = curves_of(losing, orders, test, loss, steps)
    learning = None if theory is None else theory.learning
    return RemovedHeads(
        shown(heads),
        loss,
        len(test),
        None if models["numbers"] is models["test"] else len(labels["numbers"]),
        whole,
        {key: over_examples(of_heads) for key, of_heads in measured.items()},
        {key: predictions[key] for key in PREDICTIONS if key in predictions},
        curves,
        None if learning is None else learning.architecture.widths,
        None if learning is None else float(learning.temperature),
        seed,
        (ENDED,) if steps.ended else (),
    )


def orders_of(
    predictions: Mapping[str, Numbers],
    heads: Sequence[Head],
    counts: Sequence[int],
    random: int,
    seed: int,
) -> dict[str, list[list[Head]]]:
    """Heads in ascending order of numbers, and in random orders; no layer loses all of them."""
    generator = stream(seed, Stream.RANDOM_ORDERS)
    orders = {
        key: [in_order(predictions[key].values, heads, counts)]
        for key in ORDERED_BY
        if key in predictions
    }
    orders[RANDOM] = [
        in_order(generator.permutation(len(heads)), heads, counts) for _ in range(random)
    ]
    return orders


def curves_of(
    losing: Mapping[str, Without],
    orders: Mapping[str, Sequence[Sequence[Head]]],
    labels: Outputs,
    loss: Loss,
    steps: LongWork,
) -> dict[str, tuple[Curve, ...]]:
    """Remove heads in these orders."""
    curves: dict[str, list[Curve]] = {}
    for key, some in orders.items():
        for order in some:
            costs = {
                name: costs_of(without, nested(order), labels, loss, steps, f"in order, {key}")
                for name, without in losing.items()
            }
            if steps.ended:
                return {name: tuple(of) for name, of in curves.items()}
            accuracy = {
                name: accuracies(cost["accuracy"])
                for name, cost in costs.items()
                if "accuracy" in cost
            }
            gained = over_examples(lost(costs[MODEL])["loss"])
            curves.setdefault(key, []).append(Curve(shown(order), accuracy, gained))
    return {name: tuple(of) for name, of in curves.items()}


def accuracies(right: Float[np.ndarray, "set example"]) -> Numbers:
    """Shares of right answers without each set, with binomial errors."""
    shares = right.mean(axis=1)
    errors = [
        np.nan if np.isnan(share) else binomial_error(share, right.shape[1]) for share in shares
    ]
    return Numbers(floats(shares), floats(errors))


# --- the largest set within a limit


@dataclass(frozen=True)
class LargestSet:
    """The heads that go, in the order of Taylor importance, as far as a limit allows.

    order       all heads that may go, the least important first
    validation  cost of the first 0, 1, 2 … heads on the examples that chose, by measure
    test        the same on examples that chose nothing
    count       how many go
    counts      95 % of counts if validation examples are drawn anew, the order kept
    unpruned    loss and accuracy of the whole model on test examples
    """

    order: tuple[Place, ...]
    loss: Loss
    measure: Measure
    limit: float
    replacement: Replacement
    examples_validation: int
    examples_test: int
    validation: Mapping[str, Numbers]
    test: Mapping[str, Numbers]
    count: int
    counts: tuple[int, int]
    unpruned: Mapping[str, tuple[float, float]]
    notes: tuple[str, ...] = ()

    def at(self, split: Literal["validation", "test"], measure: Measure) -> tuple[float, float]:
        """The cost of the set that goes, with its error."""
        numbers = getattr(self, split)[measure]
        return numbers.values[self.count], numbers.errors[self.count]


def largest_set(
    models: Mapping[str, ModelWithHeads],
    labels: Mapping[str, Outputs],
    heads: Sequence[Head],
    loss: Loss,
    measure: Measure,
    limit: float,
    *,
    replacement: Replacement = "zero",
    emptied: bool = True,
    steps: LongWork | None = None,
) -> LargestSet:
    """The largest set within a limit on validation examples, and its cost on test examples.

    emptied  whether a layer may lose all of its heads
    """
    steps = steps or LongWork()
    counts = models["test"].heads
    numbers = numbers_of_model(models["validation"], heads, labels["validation"], loss)
    key = TAYLOR if TAYLOR in numbers else "magnitude"
    notes = [] if key == TAYLOR else ["no gradients came back: heads are in order of magnitude"]
    # A layer with one head more than it has never comes to its last.
    order = in_order(numbers[key].values, heads, [count + emptied for count in counts])
    costs = {
        split: costs_of(
            lambda removed, split=split: models[split].without(removed, replacement),
            nested(order), labels[split], loss, steps, f"heads removed, {split}",
        )
        for split in ("validation", "test")
    }  # fmt: skip
    if steps.ended:
        raise KeyboardInterrupt
    costs_lost = {split: lost(of_split) for split, of_split in costs.items()}
    curves = {
        split: {measure: over_examples(of) for measure, of in of_split.items()}
        for split, of_split in costs_lost.items()
    }
    choosing = costs_lost["validation"][measure]
    return LargestSet(
        shown(order),
        loss,
        measure,
        limit,
        replacement,
        len(labels["validation"]),
        len(labels["test"]),
        curves["validation"],
        curves["test"],
        within(choosing.mean(axis=1), limit),
        counts_drawn_anew(choosing, limit),
        with_all_heads(costs["test"]),
        (*notes, *notes_of_whole(costs["test"], labels["test"])),
    )


def within(costs: Float[np.ndarray, " set"], limit: float) -> int:
    """The place of the last set before the first that costs more than this."""
    above = np.flatnonzero(~(costs[1:] <= limit + ROUNDING))
    return int(above[0]) if len(above) else len(costs) - 1


def counts_drawn_anew(
    lost: Float[np.ndarray, "set example"], limit: float, replicates: int = 1000
) -> tuple[int, int]:
    """95 % of the sizes that other validation examples would choose: they are drawn with return."""
    examples = lost.shape[1]
    generator = stream(0, Stream.SIZES_AGAIN)
    drawn = generator.multinomial(examples, np.full(examples, 1 / examples), replicates)
    sizes = [within(lost @ (counts / examples), limit) for counts in drawn]
    low, high = np.quantile(sizes, [0.025, 0.975], method="nearest")
    return int(low), int(high)


def notes_of_whole(costs: Costs, labels: Outputs) -> tuple[str, ...]:
    """A sentence where a model tells classes no better than by naming the most frequent one."""
    if "accuracy" not in costs:
        return ()
    positive = (labels > 0.5).mean(axis=0)
    frequent = max(positive.max(), 1.0 - positive.sum() if labels.shape[1] == 1 else 0.0)
    share = float(costs["accuracy"][0].mean())
    if share > frequent + 2.0 * binomial_error(share, len(labels)):
        return ()
    return (
        f"the model is right in {100 * share:.1f} %, and always naming the most frequent class is "
        f"in {100 * frequent:.1f} %: what costs nothing here says nothing of its heads",
    )
