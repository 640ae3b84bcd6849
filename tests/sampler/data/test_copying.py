"""Copying: statistics of tokens and labels, heads of positions, and the theory of many examples."""

import math

import numpy as np
import pytest

from sampler.data.copying import Copy
from sampler.data.make import build_task
from sampler.settings.recipe import Recipe

SMALL = {"tokens": 7, "symbols": 5, "examples_train": 400, "examples_test": 30}


def recipe_of(attention=None, widths=10, **settings):
    return Recipe(
        task=Copy(**SMALL | settings),
        attention=attention,
        network={"widths": widths},
        posterior={"temperature": 0.2},
    )


def task_of(attention=None, **settings):
    return build_task(recipe_of(attention, **settings))


def test_tokens_are_uniform_symbols_and_the_label_is_the_last_but_one():
    task = task_of(examples_train=5000)
    inputs = task.train.inputs
    assert inputs.shape == (5000, 7, 5)
    np.testing.assert_array_equal(task.train.labels, inputs[:, -2])
    symbols = inputs.argmax(axis=-1)
    expected = math.sqrt(5) * (np.eye(5)[symbols] - 0.2)
    np.testing.assert_allclose(inputs, expected, rtol=1e-15)
    # Counts of symbols in every place, and of pairs in two places, within 4.5 of their errors.
    for of_place in symbols.T:
        counts = np.bincount(of_place, minlength=5)
        assert np.all(np.abs(counts - 1000) < 4.5 * math.sqrt(800))
    pairs = np.bincount(5 * symbols[:, 2] + symbols[:, -2], minlength=25)
    assert np.all(np.abs(pairs - 200) < 4.5 * math.sqrt(200 * 0.96))
    second = inputs.reshape(-1, 5)
    covariance = second.T @ second / len(second)
    assert np.abs(covariance - (np.eye(5) - 0.2)).max() < 4.5 * 2 / math.sqrt(35_000)


@pytest.mark.parametrize(
    ("form", "weigh"),
    [
        ({"kind": "softmax"}, lambda logit: np.exp(logit) / np.exp(logit).sum()),
        ({"kind": "first_order"}, lambda logit: (1 + logit) / 7),
        ({"kind": "first_order", "offset": False}, lambda logit: logit / math.sqrt(7)),
    ],
)
def test_heads_weigh_positions_by_their_logits(form, weigh):
    attention = {"heads": [["copy", "random"], ["random"]], "inverse_temperature": 0.7}
    task = task_of({**attention, "form": form}, copied_logit=1.5)
    (first, random), (second,) = (np.swapaxes(one[3], 1, 2) for one in task.train.attention)
    expected = weigh(np.where(np.arange(7) == 5, 1.5, 0.0))
    np.testing.assert_allclose(first, np.tile(expected, (7, 1)), rtol=1e-14, atol=1e-15)
    for rows in (random, second):
        np.testing.assert_array_equal(rows, np.tile(rows[0], (7, 1)))
    assert not np.allclose(random, second)
    np.testing.assert_array_equal(task.test.attention[0][2], task.train.attention[0][3])
    assert task.path_names == ("copy·random", "random·random")


def test_random_logits_have_the_standard_deviation_that_is_set():
    form = {"kind": "first_order", "offset": False}
    attention = {"heads": [["random"]], "inverse_temperature": 0.4, "form": form}
    task = task_of(attention, tokens=900, examples_train=2, examples_test=2)
    logits = math.sqrt(900) * task.train.attention[0][0, 0, :, -1]
    assert np.std(logits) == pytest.approx(0.4, abs=4 * 0.4 / math.sqrt(1800))
