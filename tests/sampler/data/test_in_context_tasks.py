"""In-context regression and associative recall, held against loops and closed forms."""

import math

import numpy as np
import pytest
from scipy.stats import binom

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


def test_many_examples_teach_the_best_rate():
    """E[y g] = 1 and E[g²] = 1 + (d + 1 + d σ²)/n of g = Σ y_i x_i·x_q/n: an error of 1 − 1/E[g²].

    What x adds is independent of the sign of the label.
    """
    section = sampler.InContextRegression(
        pairs=10, features=3, noise=0.5, examples_train=3000, examples_test=3000
    )
    recipe = sampler.Recipe(task=section, network={"widths": 10}, posterior={"temperature": 0.3})
    theory = sampler.solve(recipe)
    test = build_task(recipe).test
    squares = (theory["predictor_mean"].sel(predictor="infinite").values - test.labels[:, 0]) ** 2
    excess = (3 + 1 + 3 * 0.25) / 10
    expected = 1 - 1 / (1 + excess)
    # Four channels are fitted to 3000 labels.
    allowed = 4 * np.std(squares) / math.sqrt(3000) + 10 * expected / 3000
    assert np.mean(squares) == pytest.approx(expected, abs=allowed)


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


@pytest.mark.parametrize("beta", [0.5, 3.0, 40.0])
def test_the_head_reads_the_value_of_the_match(beta):
    task = task_of(sampler.AssociativeRecall(**RECALL), heads=[["match"]], inverse_temperature=beta)
    received = read_by_last(task.test)[:, -1]
    for tokens, read in zip(task.test.inputs, received, strict=True):
        weights = [math.exp(beta * (token[:-1] @ tokens[-1, :-1])) for token in tokens]
        expected = sum(w * token[-1] for w, token in zip(weights, tokens, strict=True))
        assert read == pytest.approx(expected / sum(weights), rel=1e-12)


def test_soft_matching_errs_as_often_as_the_others_outweigh_the_match():
    """The sum of n − 1 other values is binomial: no more than e^β may stand against the match."""
    section = sampler.AssociativeRecall(pairs=10, keys=12, examples_train=300, examples_test=4000)
    recipe = sampler.Recipe(
        task=section,
        attention={"heads": [["match"]], "inverse_temperature": 1.0},
        network={"widths": 10},
        posterior={"temperature": 1e-3},
    )
    task = build_task(recipe)
    read = read_by_last(task.test)[:, -1]
    right = float(binom.cdf((9 + math.e) // 2, 9, 0.5))  # 9 others, fewer than (9 + e)/2 against it
    error = math.sqrt(right * (1 - right) / 4000)
    assert np.mean(np.sign(read) == task.test.labels[:, 0]) == pytest.approx(right, abs=4 * error)


def test_a_sequence_has_no_more_keys_than_there_are():
    with pytest.raises(sampler.InputError, match=r"task\.keys"):
        sampler.AssociativeRecall(pairs=10, keys=9)


# --- both


@pytest.mark.parametrize(
    ("section", "head"),
    [
        (sampler.InContextRegression(examples_train=60, examples_test=300), "gradient_step"),
        (sampler.AssociativeRecall(examples_train=60, examples_test=300), "match"),
    ],
)
def test_the_head_that_is_known_predicts_better_than_a_random_one(section, head):
    """By the evidence of the training labels and by the squared error of test labels."""
    scores = {}
    for kind in (head, "random"):
        recipe = sampler.Recipe(
            task=section,
            attention={"heads": [[kind]], "inverse_temperature": 1.0},
            network={"widths": 20},
            posterior={"temperature": 0.1},
        )
        theory = sampler.solve(recipe).sel(predictor="leading")
        labels = build_task(recipe).test.labels[:, 0]
        squares = (theory["predictor_mean"].values - labels) ** 2
        scores[kind] = float(theory["log_evidence"]), squares
    difference = scores["random"][1] - scores[head][1]
    assert difference.mean() > 4 * difference.std() / math.sqrt(len(difference))
    assert scores[head][0] > scores["random"][0] + 5


@pytest.mark.parametrize("section", [sampler.InContextRegression, sampler.AssociativeRecall])
def test_splits_and_seeds_are_independent(section):
    sizes = {"examples_train": 50, "examples_test": 50, "examples_validation": 50}
    one, same, other = (task_of(section(seed=seed, **sizes)) for seed in (0, 0, 1))
    assert one.checksum == same.checksum
    inputs = [split.inputs for task in (one, other) for split in task.splits]
    rows = np.concatenate(inputs).reshape(300, -1)
    assert len(np.unique(rows, axis=0)) == 300
