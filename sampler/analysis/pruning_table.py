"""What removing heads costs: one at a time, and one after the other (`pruning.json`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from sampler.analysis.estimate import RankCorrelation, rank_correlation
from sampler.analysis.labels import head_label
from sampler.transformer.pruning import Head, PrunedNetworks
from theory.observables import binomial_error


@dataclass(frozen=True)
class NumberedHead:
    """A head by its layer, from 1, and its number in the layer, from 0."""

    layer: int
    head: int

    @property
    def label(self) -> str:
        """In words."""
        return head_label(self.layer, self.head)


@dataclass(frozen=True)
class PrunedAccuracy:
    """Accuracy and its binomial error √(p(1 − p)/n); NaN where nothing was found."""

    accuracy: float
    error: float

    @property
    def text(self) -> str:
        """In per cent."""
        return f"{100 * self.accuracy:.1f} ± {100 * self.error:.1f} %"


@dataclass(frozen=True)
class Drop(PrunedAccuracy):
    """Accuracy after a removal, and the drop with its error, example by example."""

    drop: float
    drop_error: float


@dataclass(frozen=True)
class Removals:
    """Accuracies after each removal of an order, whose heads are pairs (layer from 1, head)."""

    removed: tuple[tuple[int, int], ...]
    trained: tuple[PrunedAccuracy, ...]
    theory_zeroed: tuple[PrunedAccuracy, ...]
    theory_refitted: tuple[PrunedAccuracy, ...] | None = None


@dataclass(frozen=True)
class PruningOrders:
    """Heads in ascending score, in ascending magnitude, and in random orders."""

    score: Removals
    magnitude: Removals
    random: tuple[Removals, ...]


@dataclass(frozen=True)
class PruningSettings:
    """Network and test set of a table, and the seed of its random orders."""

    widths: tuple[int, ...]
    temperature: float
    test: str
    test_examples: int
    seed: int


@dataclass(frozen=True)
class PruningTable:
    """The content of `pruning.json`.

    scores, alone, spearman  by who predicts: trained network, theory with a head made zero,
                             theory refitted without it
    alone["theory_refitted"] has only heads that are not alone in their layer, and is absent where
                             the theory was not solved again
    """

    heads: tuple[NumberedHead, ...]
    scores: Mapping[str, tuple[float, ...]]
    magnitudes: tuple[float, ...]
    unpruned: Mapping[str, PrunedAccuracy]
    alone: Mapping[str, tuple[Drop, ...]]
    spearman: Mapping[str, Mapping[str, RankCorrelation]]
    orders: PruningOrders
    settings: PruningSettings

    def refitted_without(self, head: NumberedHead) -> Drop | None:
        """Of the theory refitted without a head; None if it was not, or no head would be left."""
        if "theory_refitted" not in self.alone:
            return None
        layers = [one.layer for one in self.heads]
        removable = [one for one in self.heads if layers.count(one.layer) > 1]
        found = dict(zip(removable, self.alone["theory_refitted"], strict=True))
        return found.get(head)


def pruning_table(
    pruned: PrunedNetworks,
    scores: Mapping[str, np.ndarray],
    orders: int,
    settings: PruningSettings,
    say: Callable[[str], None],
    solve_again: bool = True,
) -> PruningTable:
    """Accuracies with their errors after every removal.

    scores: name → [head] in the order of `pruned.heads`; heads go in ascending "theory" score, in
    ascending magnitude, and in `orders` random orders. `solve_again` refits the theory to the heads
    that remain.
    """
    unpruned = {"trained": pruned.trained(()), "theory": pruned.zeroed(())}
    say("one head at a time")
    alone = {
        "trained": [pruned.trained([head]) for head in pruned.heads],
        "theory_zeroed": [pruned.zeroed([head]) for head in pruned.heads],
    }
    if solve_again:
        removable = removable_alone(pruned)
        alone["theory_refitted"] = [pruned.refitted([head]) for head in removable]
    magnitudes = pruned.magnitudes()
    spearman = correlations(unpruned, alone, {**scores, "magnitude": magnitudes})
    say("one after the other")
    by_score = in_order(pruned, scores["theory"])
    random = random_orders(pruned, orders, settings.seed)
    return PruningTable(
        heads=tuple(NumberedHead(layer + 1, head) for layer, head in pruned.heads),
        scores={name: tuple(values) for name, values in scores.items()},
        magnitudes=tuple(magnitudes),
        unpruned={name: with_error(right) for name, right in unpruned.items()},
        alone={
            name: tuple(
                drop(unpruned["trained" if name == "trained" else "theory"], r) for r in right
            )
            for name, right in alone.items()
        },
        spearman=spearman,
        orders=PruningOrders(
            removals(pruned, by_score, refitted=solve_again),
            removals(pruned, in_order(pruned, magnitudes)),
            tuple(removals(pruned, order) for order in random),
        ),
        settings=settings,
    )


def removable_alone(pruned: PrunedNetworks) -> list[Head]:
    """Heads that are not alone in their layer."""
    heads = pruned.learning.architecture.heads
    return [(layer, head) for layer, head in pruned.heads if heads[layer] > 1]


def in_order(pruned: PrunedNetworks, values: np.ndarray) -> list[Head]:
    """Heads in ascending order of a number of each, as far as their layers allow."""
    order = np.argsort(values, kind="stable")
    return pruned.removable([pruned.heads[place] for place in order])


def random_orders(pruned: PrunedNetworks, count: int, seed: int) -> list[list[Head]]:
    """Random permutations of all heads, as far as their layers allow."""
    generator = np.random.default_rng(seed)
    places = range(len(pruned.heads))
    return [
        pruned.removable([pruned.heads[place] for place in generator.permutation(places)])
        for _ in range(count)
    ]


def removals(pruned: PrunedNetworks, order: Sequence[Head], *, refitted: bool = False) -> Removals:
    """Accuracy of trained network and theory after each removal of an order."""

    def after_each(right: Callable) -> tuple[PrunedAccuracy, ...]:
        return tuple(with_error(right(order[: count + 1])) for count in range(len(order)))

    return Removals(
        removed=tuple((layer + 1, head) for layer, head in order),
        trained=after_each(pruned.trained),
        theory_zeroed=after_each(pruned.zeroed),
        theory_refitted=after_each(pruned.refitted) if refitted else None,
    )


def correlations(
    unpruned: dict, alone: dict, scores: dict[str, np.ndarray]
) -> dict[str, dict[str, RankCorrelation]]:
    """Spearman's ρ of every score with the drop of trained network and theory, and of the drops."""
    lost = {
        name: np.stack([unpruned[whole].astype(float) - right for right in alone[name]])
        for name, whole in (("trained", "trained"), ("theory_zeroed", "theory"))
    }
    found = {
        name: {key: rank_correlation(s, of_name) for key, s in scores.items()}
        for name, of_name in lost.items()
    }
    drop_of_theory = lost["theory_zeroed"].mean(axis=1)
    found["trained"]["drop of theory"] = rank_correlation(drop_of_theory, lost["trained"])
    return found


def with_error(right: np.ndarray | None) -> PrunedAccuracy:
    """Accuracy of a network that was right in these examples; None where nothing was found."""
    if right is None:
        return PrunedAccuracy(float("nan"), float("nan"))
    share = float(right.mean())
    return PrunedAccuracy(share, binomial_error(share, right.size))


def drop(before: np.ndarray, after: np.ndarray | None) -> Drop:
    """What a removal costs: right before and after it, example by example."""
    found = asdict(with_error(after))
    if after is None:
        return Drop(**found, drop=float("nan"), drop_error=float("nan"))
    lost = before.astype(float) - after
    error = float(lost.std(ddof=1) / np.sqrt(lost.size))
    return Drop(**found, drop=float(lost.mean()), drop_error=error)
