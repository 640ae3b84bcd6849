"""In-context regression, associative recall, copying: against loops and closed forms."""

import math

import numpy as np
import pytest

import sampler
from sampler.data.make import build_task
from theory import attended_inputs


def task_of(section, **attention):
    return build_task(
        sampler.Recipe(task=section, attention=attention or None, network={"widths": 10})
    )


def read_by_last(split) -> np.ndarray:
    """ξ(x) of the only path."""
    return np.asarray(attended_inputs(split.inputs, split.attention, "last"))[:, 0]


# --- in-context regression


REGRESSION = {"pairs": 7, "features": 3, "examples_train": 4000, "examples_test": 50}


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_label_is_on_the_line_of_the_pairs(noise):
    split = task_of(sampler.InContextRegression(**REGRESSION, noise=noise)).train
    residuals, errors = [], []
    for tokens, (label,) in zip(split.inputs, split.labels, strict=True):
        points, values = tokens[:-1, :3], tokens[:-1, 3]
        line, *_ = np.linalg.lstsq(points, values, rcond=None)
        residuals.append(np.sum((values - points @ line) ** 2))
        errors.append(label - line @ tokens[-1, :3])
        assert tokens[-1, 3] == 0
    # Seven values less three of the line.
    assert np.mean(residuals) == pytest.approx(4 * noise**2, rel=5 * math.sqrt(2 / 4 / 4000))
    if noise == 0:
        np.testing.assert_allclose(errors, 0, atol=1e-9)
    # w·x_q: variance 1, fourth moment 3 (1 + 2/3) of a product of normal vectors.
    square = np.mean(split.labels**2)
    assert square == pytest.approx(1, abs=5 * math.sqrt((3 * (1 + 2 / 3) - 1) / 4000))


def test_the_head_is_one_step_of_gradient_descent():
    beta = 0.7
    task = task_of(
        sampler.InContextRegression(**REGRESSION, noise=0.3),
        heads=[["gradient_step"]],
        inverse_temperature=beta,
        form={"kind": "first_order", "offset": False},
    )
    received = read_by_last(task.test)[:, 3]
    rate = beta / math.sqrt(8)
    for tokens, read in zip(task.test.inputs, received, strict=True):
        line = np.zeros(3)
        gradient = np.zeros(3)
        for token in tokens[:-1]:
            gradient -= (token[3] - line @ token[:3]) * token[:3]
        line -= rate * gradient
        assert read == pytest.approx(line @ tokens[-1, :3], rel=1e-12, abs=1e-12)


# --- associative recall


RECALL = {"pairs": 6, "keys": 9, "examples_train": 2000, "examples_test": 50}


def test_the_label_is_the_value_of_the_key():
    split = task_of(sampler.AssociativeRecall(**RECALL)).train
    places = []
    for tokens, (label,) in zip(split.inputs, split.labels, strict=True):
        keys = [int(np.flatnonzero(token[:-1])[0]) for token in tokens]
        assert len(set(keys[:-1])) == 6
        place = keys[:-1].index(keys[-1])
        assert label == tokens[place, -1]
        assert tokens[-1, -1] == 0
        places.append(place)
    assert set(np.unique(split.inputs[:, :-1, -1])) == {-1.0, 1.0}
    counts = np.bincount(places, minlength=6)
    assert np.all(np.abs(counts - 2000 / 6) < 4.5 * math.sqrt(2000 * 5 / 36))
    shown = split.inputs[:, :-1, :-1].sum(axis=(0, 1))
    assert np.all(np.abs(shown - 2000 * 6 / 9) < 4.5 * math.sqrt(2000 * 2 / 9))
    assert abs(split.labels.mean()) < 4.5 / math.sqrt(2000)


@pytest.mark.parametrize("beta", [0.5, 40.0])
def test_the_head_reads_the_value_of_the_match(beta):
    shown = RECALL | {"keys": 6}  # all that there are
    task = task_of(sampler.AssociativeRecall(**shown), heads=[["match"]], inverse_temperature=beta)
    received = read_by_last(task.test)[:, -1]
    for tokens, read in zip(task.test.inputs, received, strict=True):
        weights = [math.exp(beta * (token[:-1] @ tokens[-1, :-1])) for token in tokens]
        expected = sum(w * token[-1] for w, token in zip(weights, tokens, strict=True))
        assert read == pytest.approx(expected / sum(weights), rel=1e-12)


# --- copying


def copies(attention=None, **settings):
    sizes = {"tokens": 7, "symbols": 5, "examples_train": 400, "examples_test": 30}
    return task_of(sampler.Copy(**sizes | settings), **attention or {})


def test_tokens_are_uniform_symbols_and_the_label_is_the_last_but_one():
    task = copies(examples_train=5000)
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
    task = copies({**attention, "form": form}, copied_logit=1.5)
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
    task = copies(attention, tokens=900, examples_train=2, examples_test=2)
    logits = math.sqrt(900) * task.train.attention[0][0, 0, :, -1]
    assert np.std(logits) == pytest.approx(0.4, abs=4 * 0.4 / math.sqrt(1800))
