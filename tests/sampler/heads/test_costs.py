"""Removal where right answers are known, numbers of heads, and tables and figures of both."""

from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from sampler.analysis.estimates import Estimate
from sampler.heads import cost_tables, figures
from sampler.heads.cost_tables import cost_at, doubt_of_model, order_of, removable_text
from sampler.heads.costs import (
    ablation,
    costs,
    counts_drawn_anew,
    in_order,
    largest_set,
    removed_in_order,
    share_of_most_frequent,
    within,
)
from sampler.heads.importance import LabelledModel, importance, losses
from sampler.heads.path_sum import PathSum, all_heads
from sampler.presentation import style
from sampler.presentation.style import figure_style
from sampler.streams import Stream, stream
from tests.sampler.presentation.drawn import assert_bars, bars_of, of_colour
from tests.told.held import comparison_of, held, theory_of
from tests.told.shown import assert_shows, numbers_in
from theory.observables import binomial_error

EXAMPLES, HEADS = 64, (2, 3)
EVERY = all_heads(HEADS)
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
    further: int = 0

    @property
    def magnitudes(self):
        return np.arange(5.0)

    def without(self, removed, replacement="zero"):
        if len(removed) and EVERY.index(removed[-1]) >= self.interrupted:
            raise KeyboardInterrupt
        further = self.further + (replacement == "mean") if len(removed) else 0
        right = 60 - sum(WORTH[head] for head in removed) - further
        return np.where(np.arange(EXAMPLES) < right, 1.0, -1.0)[:, None] * LABELS

    def slopes(self, along):
        return np.broadcast_to(self.importance, (EXAMPLES, 5))


def labelled(**settings) -> LabelledModel:
    return LabelledModel(Answers(**settings), LABELS, "squared")


def test_sets_of_heads_cost_what_they_are_worth_by_zero_and_by_mean():
    sets = [[], [(0, 1)], [(0, 0), (1, 2)], EVERY]
    found = costs(labelled(), sets)
    worth = np.array([sum(WORTH[head] for head in removed) for removed in sets])
    by_mean = worth + (worth > 0)
    assert found.attrs["whole_accuracy"] == 60 / EXAMPLES
    np.testing.assert_allclose(found["zero_accuracy"], worth / EXAMPLES)
    np.testing.assert_allclose(found["mean_accuracy"], by_mean / EXAMPLES)
    # An answer that is wrong has a squared error of (±2)².
    np.testing.assert_allclose(found["zero_loss"], 4 * worth / EXAMPLES)
    np.testing.assert_allclose(found["mean_loss"], 4 * by_mean / EXAMPLES)


def test_orders_are_by_the_number_and_leave_each_layer_a_head():
    of = labelled()
    found = ablation(of, of, EVERY)
    assert found["layer"].values.tolist() == [1, 1, 2, 2, 2]
    assert found["number"].values.tolist() == [0, 1, 0, 1, 2]
    ordered = removed_in_order({"accuracy_in_order": of}, found, EVERY, 2, seed=3)
    assert ordered["order"].values.tolist() == ["taylor", "random", "random"]
    # Ascending: (1, 0), (1, 1), (0, 1); then (1, 2) and (0, 0) are the last of their layers.
    steps = np.stack([ordered["order_layer"] - 1, ordered["order_number"]], axis=-1).tolist()
    assert steps[0] == [[1, 0], [1, 1], [0, 1]]
    generator = stream(3, Stream.RANDOM_ORDERS)
    for order, shares, errors in zip(
        steps, ordered["accuracy_in_order"].values, ordered["accuracy_in_order_error"].values,
        strict=True,
    ):  # fmt: skip
        expected = (60 - np.cumsum([0, *(WORTH[layer, head] for layer, head in order)])) / EXAMPLES
        np.testing.assert_allclose(shares, expected)
        np.testing.assert_allclose(errors, [binomial_error(one, EXAMPLES) for one in expected])
    for order in steps[1:]:
        assert [tuple(one) for one in order] == in_order(generator.permutation(5), EVERY, HEADS)


def test_ctrl_c_keeps_what_is_done_where_asked_for():
    of = labelled(interrupted=3)
    found = ablation(of, of, EVERY, stoppable=True)
    assert found.attrs["ended"]
    reached = [True, True, True, False, False]
    assert np.isfinite(found["mean_loss"]).values.tolist() == reached
    assert "zero_loss" not in found
    assert not ablation(labelled(), labelled(), EVERY, stoppable=True).attrs["ended"]
    with pytest.raises(KeyboardInterrupt):
        ablation(of, of, EVERY)


# --- the largest set


def largest(measure="accuracy", limit=0.1, emptied=True, test=None):
    return largest_set(labelled(), test or labelled(), EVERY, measure, limit, emptied=emptied)


def test_the_largest_set_is_along_taylor_importance_within_the_limit():
    found = largest()
    assert order_of(found) == [(2, 0), (2, 1), (1, 1), (2, 2), (1, 0)]
    # Four answers of 64 are within a tenth, twelve are not.
    assert found.attrs["count"] == 1
    assert cost_at(found, "test_accuracy")[0] == pytest.approx(4 / EXAMPLES)
    assert largest(limit=0.2).attrs["count"] == 2
    assert largest("loss", 4 * 14 / EXAMPLES).attrs["count"] == 3
    assert len(order_of(largest(emptied=False))) == 3
    # Examples that measure the cost have no say in the order.
    measured = largest(test=labelled(importance=(1.0, 2.0, 3.0, 4.0, 5.0)))
    assert order_of(measured) == order_of(found)


def test_without_gradients_heads_go_in_order_of_magnitude():
    of = labelled(importance=(np.nan,) * 5)
    found = largest_set(of, of, EVERY, "loss", 0.0)
    assert found.attrs["ordered_by"] == "magnitude"
    assert order_of(found) == [(layer + 1, head) for layer, head in EVERY]


@pytest.mark.parametrize(
    ("values", "count"),
    [([0.0, 0.1, 0.3, 0.1], 1), ([0.0, 0.1, 0.2, 0.1], 3), ([0.0, 0.5], 0), ([0.0, np.nan], 0)],
)
def test_a_limit_ends_at_the_first_set_that_costs_more(values, count):
    assert within(np.array(values), 0.2) == count


@pytest.mark.parametrize(
    ("sign", "most", "chance", "expected"),
    [
        (1.0, 11.5, 0.0368, (0, 1)),
        (1.0, 12.5, 0.0157, (1, 1)),
        (-1.0, -11.5, 0.0368, (0, 1)),
        (-1.0, -12.5, 0.0157, (0, 0)),
    ],
)
def test_sizes_that_other_examples_choose_are_within_95_per_cent(sign, most, chance, expected):
    """One set, which costs something in 7 of 40 examples: their number drawn anew is binomial."""
    assert binom.sf(abs(most), 40, 7 / 40) == pytest.approx(chance, abs=1e-4)
    cost = sign * np.stack([np.zeros(40), np.arange(40) < 7])
    assert counts_drawn_anew(cost, most / 40, 20_000) == expected
    certain = np.tile(np.arange(11.0)[:, None], (1, 50))
    assert counts_drawn_anew(certain, 5.0) == (5, 5)


def test_a_model_that_tells_nothing_is_doubted():
    class Guesses(Answers):
        def without(self, removed, replacement="zero"):
            return np.ones((EXAMPLES, 1))

    assert doubt_of_model(largest(test=LabelledModel(Guesses(), LABELS, "squared")))
    assert not doubt_of_model(largest())
    # Half of the examples are of the most frequent class; a deviation of 100 answers is 5 of them.
    for right, doubted in ((52, True), (59, True), (61, False)):
        known = {"whole_accuracy": right / 100, "most_frequent_class": 0.5, "examples": 100}
        assert bool(doubt_of_model(xr.Dataset(attrs=known))) == doubted, right


def test_the_text_of_a_set_has_its_costs_on_both_splits():
    """Accuracies in points; how many heads go, and how many other examples would choose."""
    found = largest(limit=0.2, test=labelled(further=1))
    shown, known = numbers_in(" ".join(removable_text(found).split())), found.attrs
    whole = known["whole_loss"], known["whole_loss_error"]
    expected = [(*whole, 1.0, ""), (*cost_at(found, "test_loss"), 1.0, "")]
    expected += [
        (*cost_at(found, f"{split}_accuracy"), 100.0, "points") for split in ("validation", "test")
    ]
    for value, error, scale, unit in expected:
        assert any(one.shows(scale * value, [scale * error], unit) for one in shown), value
    assert any(one.shows(20.0, (), "points") for one in shown)  # the limit
    sizes = [known[name] for name in ("count", "low", "high", "examples", "examples_validation")]
    assert {str(number) for number in (*sizes, len(EVERY))} <= {one.value for one in shown}


@pytest.mark.parametrize(
    "labels",
    [
        np.repeat([-1.0, 1.0], (7, 3))[:, None],
        np.repeat([-1.0, 1.0], (3, 7))[:, None],
        np.eye(3)[np.repeat([0, 1, 2], (2, 7, 1))],
    ],
)
def test_the_most_frequent_class_is_that_of_either_sign_or_of_any_output(labels):
    assert share_of_most_frequent(labels) == pytest.approx(0.7)


# --- numbers of heads against finite differences


@pytest.mark.parametrize(
    ("loss", "outputs"), [("squared", 1), ("squared", 3), ("likelihood", 1), ("likelihood", 3)]
)
def test_taylor_importance_is_the_mean_size_of_finite_differences(loss, outputs, rng):
    """Paths (0, 0) and (0, 1); the head of layer 1 is on both."""
    brought = rng.standard_normal((7, 2, outputs))
    labels = rng.choice([-1.0, 1.0], (7, 1))
    if outputs > 1:
        labels = np.eye(outputs)[rng.integers(outputs, size=7)]
    of = LabelledModel(PathSum((1, 2), brought, np.arange(3.0)), labels, loss)
    found = importance(of, [(0, 0), (1, 1)])
    step, whole, sizes = 1e-6, brought.sum(axis=1), []
    for sent in (whole, brought[:, 1]):
        up, down = (losses(loss, whole + sign * step * sent, labels) for sign in (1, -1))
        sizes.append(np.abs(up - down) / (2 * step))
    errors = np.std(sizes, axis=1, ddof=1) / np.sqrt(7)
    np.testing.assert_allclose(found["taylor"], np.mean(sizes, axis=1), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["taylor_error"], errors, rtol=1e-6, atol=1e-8)
    assert found["magnitude"].values.tolist() == [0.0, 2.0]


# --- tables and figures of removed heads


SHOWN = tuple((layer, head) for layer in (5, 6) for head in (0, 3, 7, 11))


@pytest.fixture
def measured() -> xr.Dataset:
    """What `prune` measures, of four heads in each of two layers, the numbers drawn."""
    random = np.random.default_rng(0)
    numbers = {}
    for key in cost_tables.COLUMNS:
        values = random.random(len(SHOWN))
        numbers |= {key: ("head", values), f"{key}_error": ("head", 0.1 * values)}
    accuracy = ("order", "removed"), np.linspace(0.9, 0.7, 12).reshape(4, 3)
    for place, who in enumerate(cost_tables.IN_ORDER):
        shares = accuracy[1] ** (1 + place)
        numbers |= {who: (accuracy[0], shares), f"{who}_error": (accuracy[0], 0.1 * shares)}
    coordinates = {
        "layer": ("head", [layer for layer, _ in SHOWN]),
        "number": ("head", [head for _, head in SHOWN]),
        "order": ["head_score", "taylor", "random", "random"],
    }
    attributes = {
        "loss": "likelihood", "examples": 500, "examples_validation": 200, "ended": False,
        "whole_loss": 0.3, "whole_loss_error": 0.01, "widths": [20, 20], "temperature": 0.1,
    }  # fmt: skip
    return xr.Dataset(numbers, coordinates, attributes)


def test_cells_are_the_measured_costs_with_their_errors(measured):
    """Accuracies in points; the costliest first, by layer and head in the model."""
    order = np.argsort(-measured["mean_loss"].values)
    for row, at in zip(cost_tables.heads_table(measured).rows, order, strict=True):
        assert row[0] == "layer {}, head {}".format(*SHOWN[at])
        for cell, key in zip(row[1:], cost_tables.COLUMNS, strict=True):
            scale = 100.0 if key.endswith("accuracy") else 1.0
            value, error = (scale * float(measured[name][at]) for name in (key, f"{key}_error"))
            assert_shows(str(cell), value, [error], what=key)


def test_accuracies_in_order_are_those_of_model_and_theory(measured):
    """By the numbers of heads; at random the mean with its spread."""
    rows = cost_tables.orders_table(measured).rows
    expected = []
    for who in ("accuracy_in_order", "theory_accuracy_in_order"):
        by_score, by_taylor, *drawn = 100.0 * measured[who].values
        expected += [(by_score, None), (by_taylor, None)]
        expected.append((np.mean(drawn, axis=0), np.std(drawn, axis=0, ddof=1)))
    for count, row in enumerate(rows):
        for cell, (values, spread) in zip(row[1:], expected, strict=True):
            assert_shows(str(cell), values[count], [] if spread is None else [spread[count]])


@pytest.mark.slow
def test_figures_show_the_numbers_that_there_are(measured):
    alone = measured.drop_vars(["head_score", *cost_tables.IN_ORDER])
    del alone.attrs["widths"]
    with figure_style():
        assert figures.draw_head_scores(alone) is None
        assert figures.draw_orders(alone) is None
        image = figures.draw_map(alone).axes[0].images[0].get_array()
        for ax, who in zip(figures.draw_orders(measured).axes, cost_tables.IN_ORDER, strict=True):
            values, errors = (100.0 * measured[name].values for name in (who, f"{who}_error"))
            by_taylor, by_score = ax.containers
            assert_bars(by_score, range(3), values[0], errors[0])
            np.testing.assert_allclose(by_taylor.lines[0].get_ydata(), values[1])
            at_random = of_colour(ax, style.GREY)
            np.testing.assert_allclose([line[:, 1] for line in at_random], values[2:])
        left, right = figures.draw_head_scores(measured).axes
        bars = figures.draw_heads(alone.drop_vars("taylor")).axes[0].patches
    assert np.shape(image) == (2, 4)
    assert np.ma.filled(image, np.nan)[0, 1] == measured["mean_loss"].values[1]
    order = np.argsort(measured["head_score"].values)
    np.testing.assert_allclose([bar.get_width() for bar in left.patches],
                               measured["head_score"].values[order])  # fmt: skip
    lost = right.lines[0].get_xdata()
    np.testing.assert_allclose(lost, 100 * measured["zero_accuracy"].values[order])
    _, ends = bars_of(right.containers[0])
    error = 100 * measured["zero_accuracy_error"].values[order]
    np.testing.assert_allclose(ends[:, 0], np.stack([lost - error, lost + error], axis=1))
    magnitudes = [bar.get_width() for bar in bars]
    np.testing.assert_allclose(magnitudes, np.sort(measured["magnitude"].values))


@pytest.mark.parametrize("measure", ["accuracy", "loss"])
def test_the_cost_of_more_and_more_heads_is_drawn_with_the_set_that_goes(measure):
    """Of both splits with their errors; the limit is one of accuracy."""
    found, scale = largest(limit=0.2, test=labelled(further=1)), 100.0 ** (measure == "accuracy")
    (ax,) = figures.draw_removable(found, measure).axes
    for split, bars in zip(("validation", "test"), ax.containers, strict=True):
        names = f"{split}_{measure}", f"{split}_{measure}_error"
        assert_bars(bars, range(6), *(scale * found[name].values for name in names))
    ends = [line.get_xydata() for line in ax.lines[2:]]
    assert ends[0][:, 0].tolist() == [found.attrs["count"]] * 2
    assert [end[:, 1].tolist() for end in ends[1:]] == [[20.0, 20.0]] * (measure == "accuracy")


def test_scores_of_heads_are_drawn_by_theory_and_samples(rng):
    """Of heads that there are; where each layer has one there is nothing to see."""
    leading, beyond, sampled = rng.uniform(0.1, 1.0, (3, 2, 2))
    for values in (leading, beyond, sampled):
        values[1, 1] = np.nan
    mcse = rng.uniform(0.01, 0.02, (2, 2))
    predictions = {"leading": leading, "next": beyond}
    theory = {n: {"head_score": (("layer", "head"), one)} for n, one in predictions.items()}
    compared = comparison_of(
        {"head_score": Estimate(sampled, mcse)},
        {name: {"head_score": one} for name, one in predictions.items()},
    )
    (ax,) = figures.draw_head_importance(held(theory_of(theory), comparison=compared)).axes
    there = np.isfinite(sampled)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], leading[there])
    (marks,) = of_colour(ax, style.NEXT_ORDER)
    np.testing.assert_allclose(marks, np.stack([beyond[there], range(3)], axis=1))
    points, ends = bars_of(ax.containers[-1])
    np.testing.assert_allclose(points[:, 0], sampled[there])
    expected = np.stack([sampled - mcse, sampled + mcse], axis=-1)[there]
    np.testing.assert_allclose(ends[:, 0], expected)
    alone = theory_of({"leading": {"head_score": (("layer", "head"), leading[:, :1])}})
    assert figures.draw_head_importance(held(alone, comparison=compared)) is None
