"""Removal measured for networks whose right answers are known for every set of heads."""

from dataclasses import dataclass

import numpy as np
import pytest

from sampler.heads.path_sum import all_heads
from sampler.heads.removal import (
    ENDED,
    LongWork,
    costs_of,
    counts_drawn_anew,
    in_order,
    largest_set,
    lost,
    one_by_one,
    remove_heads,
    shown,
    within,
)
from sampler.streams import Stream, stream
from theory.observables import binomial_error

EXAMPLES, HEADS = 64, (2, 3)
EVERY = tuple(all_heads(HEADS))
LABELS = np.where(np.arange(EXAMPLES) % 3, 1.0, -1.0)[:, None]
# What each head is worth, in examples: different for every set of heads.
WORTH = {(0, 0): 1, (0, 1): 2, (1, 0): 4, (1, 1): 8, (1, 2): 16}


@dataclass(frozen=True)
class Answers:
    """Right in the first 60 examples, in fewer without some heads; slopes are given."""

    importance: tuple[float, ...] = (5.0, 3.0, 1.0, 2.0, 4.0)
    heads: tuple[int, ...] = HEADS
    outputs: int = 1
    interrupted: int = 1000

    @property
    def magnitudes(self):
        return np.arange(5.0)

    def without(self, removed, replacement="zero"):
        if len(removed) and EVERY.index(removed[-1]) >= self.interrupted:
            raise KeyboardInterrupt
        further = 1 if replacement == "mean" and len(removed) else 0
        right = 60 - sum(WORTH[head] for head in removed) - further
        return np.where(np.arange(EXAMPLES) < right, 1.0, -1.0)[:, None] * LABELS

    def slopes(self, along):
        return np.broadcast_to(self.importance, (EXAMPLES, 5))


def removed(model=None, **settings):
    model = model or Answers()
    models, labels = (dict.fromkeys(("test", "numbers"), one) for one in (model, LABELS))
    return remove_heads(models, labels, EVERY, "squared", **settings)


def test_every_head_alone_by_zero_and_by_mean():
    result = removed()
    worth = np.array(list(WORTH.values()))
    assert result.unpruned["accuracy"][0] == 60 / EXAMPLES
    np.testing.assert_allclose(result.measured["zero_accuracy"].values, worth / EXAMPLES)
    np.testing.assert_allclose(result.measured["mean_accuracy"].values, (worth + 1) / EXAMPLES)
    # An answer that is wrong has a squared error of (±2)².
    np.testing.assert_allclose(result.measured["zero_loss"].values, 4 * worth / EXAMPLES)
    assert result.heads == ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2))
    assert result.widths is None
    assert result.curves == {}


def test_errors_are_paired():
    """Of what is lost example by example, not of two means."""
    costs = costs_of(Answers().without, one_by_one(EVERY), LABELS, "squared", LongWork())
    for place, worth in enumerate(WORTH.values()):
        each = np.zeros(EXAMPLES)
        each[60 - worth : 60] = 4.0
        error = removed().measured["zero_loss"].errors[place]
        assert error == pytest.approx(each.std(ddof=1) / np.sqrt(EXAMPLES))
        np.testing.assert_array_equal(lost(costs)["loss"][place + 1], each)


def test_curves_are_in_order_of_the_number_and_leave_each_layer_a_head():
    result = removed(random=2, seed=3)
    (curve,) = result.curves["taylor"]
    # Ascending: (1, 0), (1, 1), (0, 1); then (1, 2) and (0, 0) are the last of their layers.
    assert curve.removed == ((2, 0), (2, 1), (1, 1))
    worth = np.cumsum([0, 4, 8, 2])
    shares = (60 - worth) / EXAMPLES
    np.testing.assert_allclose(curve.accuracy["model"].values, shares)
    errors = [binomial_error(share, EXAMPLES) for share in shares]
    np.testing.assert_allclose(curve.accuracy["model"].errors, errors)
    np.testing.assert_allclose(curve.loss.values, 4 * worth / EXAMPLES)
    generator = stream(3, Stream.RANDOM_ORDERS)
    for one in result.curves["random"]:
        order = in_order(generator.permutation(5), EVERY, HEADS)
        assert one.removed == shown(order)
    assert "score" not in result.curves


def test_ctrl_c_keeps_what_is_done():
    result = removed(Answers(interrupted=3), random=2)
    values = np.array(result.measured["mean_loss"].values)
    assert np.isfinite(values).tolist() == [True, True, True, False, False]
    assert "zero_loss" not in result.measured
    assert ENDED in result.notes
    assert result.curves == {}


def test_an_interruption_before_any_head_leaves_later_phases_out():
    steps = LongWork(ended=True)
    costs = costs_of(Answers().without, one_by_one(EVERY), LABELS, "squared", steps)
    assert np.isnan(costs["loss"]).all()


# --- the largest set


def largest(measure="accuracy", limit=0.1, emptied=True, test=None, **settings):
    models = {"validation": Answers(), "test": test or Answers()}
    labels = dict.fromkeys(models, LABELS)
    return largest_set(
        models, labels, EVERY, "squared", measure, limit, emptied=emptied, **settings
    )


def test_the_largest_set_is_along_taylor_importance_within_the_limit():
    found = largest()
    assert found.order == ((2, 0), (2, 1), (1, 1), (2, 2), (1, 0))
    # Four answers of 64 are within a tenth, twelve are not.
    assert found.count == 1
    assert found.at("test", "accuracy")[0] == pytest.approx(4 / EXAMPLES)
    assert largest(limit=0.2).count == 2
    assert largest(limit=0.0).count == 0
    assert largest("loss", 4 * 14 / EXAMPLES).count == 3
    assert len(largest(emptied=False).order) == 3


def test_the_cost_is_of_examples_that_chose_nothing():
    """The test examples have another model, which loses one answer more."""

    @dataclass(frozen=True)
    class Other(Answers):
        def without(self, removed, replacement="zero"):
            return super().without(removed, "mean")

    found = largest(test=Other())
    assert found.count == 1
    assert found.at("validation", "accuracy")[0] == pytest.approx(4 / EXAMPLES)
    assert found.at("test", "accuracy")[0] == pytest.approx(5 / EXAMPLES)


def test_a_limit_ends_at_the_first_set_that_costs_more():
    assert within(np.array([0.0, 0.1, 0.3, 0.1]), 0.2) == 1
    assert within(np.array([0.0, 0.1, 0.2, 0.1]), 0.2) == 3
    assert within(np.array([0.0, 0.5]), 0.2) == 0
    assert within(np.array([0.0, np.nan, 0.1]), 0.2) == 0


def test_the_noise_of_the_choice_is_that_of_other_examples():
    """Sets cost 0, 1, 2 … with noise: the sizes that examples choose which are drawn anew."""
    generator = np.random.default_rng(0)

    def drawn():
        noise = np.cumsum(generator.standard_normal((11, 50)), axis=0)
        return np.arange(11.0)[:, None] + 3.0 * noise - 3.0 * noise[0]

    intervals = np.array([counts_drawn_anew(drawn(), 5.0, 200) for _ in range(40)])
    sizes = [within(drawn().mean(axis=1), 5.0) for _ in range(400)]
    low, high = np.quantile(sizes, [0.025, 0.975])
    # In the mean over data sets the interval is as wide as the sizes spread, to one head.
    width = (intervals[:, 1] - intervals[:, 0]).mean()
    assert abs(width - (high - low)) <= 1.0
    costs = np.tile(np.arange(11.0)[:, None], (1, 50))
    assert counts_drawn_anew(costs, 5.0) == (5, 5)


def test_a_model_that_tells_nothing_says_so():
    class Guesses(Answers):
        def without(self, removed, replacement="zero"):
            return np.ones((EXAMPLES, 1))

    assert any("most frequent class" in note for note in largest(test=Guesses()).notes)
    assert largest().notes == ()
