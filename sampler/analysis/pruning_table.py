"""What removing heads costs: one at a time, and one after the other (`pruning.json`)."""

from collections.abc import Callable, Sequence

import numpy as np

from sampler.analysis.estimate import rank_correlation
from sampler.transformer.pruning import Head, PrunedNetworks
from theory.observables import binomial_error


def pruning_table(
    pruned: PrunedNetworks,
    scores: dict[str, np.ndarray],
    orders: int,
    seed: int,
    say: Callable[[str], None],
) -> dict:
    """Accuracies with their errors after every removal.

    scores: name → [head] in the order of `pruned.heads`; heads go in ascending "theory" score, in
    ascending magnitude, and in `orders` random orders.
    """
    unpruned = {"trained": pruned.trained(()), "theory": pruned.zeroed(())}
    say("one head at a time")
    alone = {
        "trained": [pruned.trained([head]) for head in pruned.heads],
        "theory_zeroed": [pruned.zeroed([head]) for head in pruned.heads],
        "theory_refitted": [pruned.refitted([head]) for head in removable_alone(pruned)],
    }
    magnitudes = pruned.magnitudes()
    table = {
        "heads": [{"layer": layer + 1, "head": head} for layer, head in pruned.heads],
        "scores": scores,
        "magnitudes": magnitudes,
        "unpruned": {name: with_error(right) for name, right in unpruned.items()},
        "alone": {
            name: [drop(unpruned["trained" if name == "trained" else "theory"], r) for r in right]
            for name, right in alone.items()
        },
        "spearman": correlations(unpruned, alone, scores | {"magnitude": magnitudes}),
    }
    say("one after the other")
    by_score = in_order(pruned, scores["theory"])
    table["orders"] = {
        "score": {
            **removals(pruned, by_score),
            "theory_refitted": [
                with_error(pruned.refitted(by_score[: count + 1])) for count in range(len(by_score))
            ],
        },
        "magnitude": removals(pruned, in_order(pruned, magnitudes)),
        "random": [removals(pruned, order) for order in random_orders(pruned, orders, seed)],
    }
    return table


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


def removals(pruned: PrunedNetworks, order: Sequence[Head]) -> dict:
    """Accuracy of trained network and theory after each removal of an order."""
    steps = [order[: count + 1] for count in range(len(order))]
    return {
        "removed": [(layer + 1, head) for layer, head in order],
        "trained": [with_error(pruned.trained(removed)) for removed in steps],
        "theory_zeroed": [with_error(pruned.zeroed(removed)) for removed in steps],
    }


def correlations(unpruned: dict, alone: dict, scores: dict[str, np.ndarray]) -> dict:
    """Spearman's ρ of every score with the drop of trained network and theory, and of the drops."""
    lost = {
        name: np.stack([unpruned[whole].astype(float) - right for right in alone[name]])
        for name, whole in (("trained", "trained"), ("theory_zeroed", "theory"))
    }
    found = {
        name: {key: rank_correlation(s, of_name).as_dict() for key, s in scores.items()}
        for name, of_name in lost.items()
    }
    drop_of_theory = lost["theory_zeroed"].mean(axis=1)
    found["trained"]["drop of theory"] = rank_correlation(drop_of_theory, lost["trained"]).as_dict()
    return found


def with_error(right: np.ndarray | None) -> dict:
    """Accuracy and its binomial error √(p(1 − p)/n); not a number where nothing was found."""
    if right is None:
        return {"accuracy": float("nan"), "error": float("nan")}
    share = float(right.mean())
    return {"accuracy": share, "error": binomial_error(share, right.size)}


def drop(before: np.ndarray, after: np.ndarray | None) -> dict:
    """Accuracy after a removal, the drop, and its error, example by example."""
    if after is None:
        return with_error(None) | {"drop": float("nan"), "drop_error": float("nan")}
    lost = before.astype(float) - after
    error = lost.std(ddof=1) / np.sqrt(lost.size)
    return with_error(after) | {"drop": float(lost.mean()), "drop_error": float(error)}
