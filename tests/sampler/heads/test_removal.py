"""Removed heads as values, for networks whose right answers are known for every removal."""

from functools import partial

import numpy as np
import pytest

from sampler.analysis.estimates import Estimate
from sampler.heads.gates import Numbering
from sampler.heads.measures import without_error
from sampler.heads.removal import (
    MeasuredHeads,
    RemovedHeads,
    one_left_in_each_layer,
    removed_in_orders,
)
from theory.observables import binomial_error

EXAMPLES, HEADS = 64, (2, 3)
LABELS = np.where(np.arange(EXAMPLES) % 3, 1.0, -1.0)[:, None]
# What each head is worth, in examples: different for every set of heads.
WORTH = {(0, 0): 1, (0, 1): 2, (1, 0): 4, (1, 1): 8, (1, 2): 16}
SCORES = np.array([5.0, 3.0, 1.0, 2.0, 4.0])
MAGNITUDES = np.array([1.0, 2.0, 3.0, 5.0, 4.0])


def outputs(removed, whole: int, further: int = 0) -> np.ndarray:
    """Right in the first so many examples, in fewer without some heads."""
    right = whole - sum(WORTH[head] for head in removed) - (further if removed else 0)
    return np.where(np.arange(EXAMPLES) < right, 1.0, -1.0)[:, None] * LABELS


# Whole: 64, 60 and 60 examples right; the theory loses 1 and solved again 2 more by any removal.
WHO = {
    "model": partial(outputs, whole=64),
    "zeroed": partial(outputs, whole=60, further=1),
    "solved_again": partial(outputs, whole=60, further=2),
}


def removed(solve_again: bool = True) -> RemovedHeads:
    who = {name: one for name, one in WHO.items() if solve_again or name != "solved_again"}
    by = {"score": SCORES, "magnitude": MAGNITUDES}
    ways = {"zero": WHO["model"], "theory": WHO["zeroed"]}
    return MeasuredHeads.of(Numbering.of(HEADS), ways, LABELS, "squared").judging(
        {key: without_error(values) for key, values in by.items()},
        widths=(8, 8, 8),
        temperature=0.5,
        seed=3,
        orders=removed_in_orders(who, by, 2, 3, Numbering.of(HEADS), HEADS, LABELS),
    )


@pytest.fixture(scope="module")
def found() -> RemovedHeads:
    return removed()


def test_accuracy_after_each_removal_is_that_without_the_heads_removed_so_far(found):
    assert [key for key, some in found.orders.items() for _ in some] == [
        "score", "magnitude", "random", "random",
    ]  # fmt: skip
    assert found.orders["score"][0].removed == ((2, 0), (2, 1), (1, 1))
    assert found.orders["magnitude"][0].removed == ((1, 0), (2, 0), (2, 2))
    for order in (one for some in found.orders.values() for one in some):
        lost = np.cumsum([0, *(WORTH[layer - 1, head] for layer, head in order.removed)])
        assert order.accuracy["model"].values == tuple((64 - lost) / EXAMPLES)
        assert order.accuracy["zeroed"].values == tuple((60 - lost - (lost > 0)) / EXAMPLES)
        for accuracy in order.accuracy.values():
            errors = tuple(binomial_error(share, EXAMPLES) for share in accuracy.values)
            assert accuracy.errors == errors
    generator = np.random.default_rng(3)
    for order in found.orders["random"]:
        places = generator.permutation(len(WORTH))
        expected = one_left_in_each_layer([list(WORTH)[place] for place in places], HEADS)
        assert order.removed == tuple((layer + 1, head) for layer, head in expected)
    lost = np.cumsum([0, 4 + 2, 8, 2])
    again = found.orders["score"][0].accuracy["solved_again"]
    assert again.values == tuple((60 - lost) / EXAMPLES)


def test_what_is_lost_is_so_from_the_same_network_with_all_its_heads(found):
    worth = np.array(list(WORTH.values()))
    assert found.unpruned["accuracy"] == (1.0, 0.0)
    assert found.measured["zero_accuracy"].values == tuple(worth / EXAMPLES)
    assert found.measured["theory_accuracy"].values == tuple((worth + 1) / EXAMPLES)
    # An answer that is wrong has a squared error of (±2)².
    assert found.measured["zero_loss"].values == tuple(4 * worth / EXAMPLES)


def test_heads_without_a_prediction_are_left_out_of_its_correlation(found):
    values = np.array([np.nan, 2.0, 4.0, 8.0, 16.0])
    predictions = {"solved_again": Estimate(values, np.zeros(5))}
    measured = MeasuredHeads.of(Numbering.of(HEADS), {"zero": WHO["model"]}, LABELS, "squared")
    one = measured.judging(predictions, widths=(8, 8, 8), temperature=0.5, seed=0)
    assert one.predicted["solved_again"].spearman["zero_loss"].value == pytest.approx(1.0)
