"""Distances between heads, against a loop over pairs, examples and layers."""

import itertools

import numpy as np

from sampler.tasks import task as head_distances
from sampler.tasks.task import HeadDistances, Split
from tests.assertions import assert_equal_to_rounding


def random_split(rng, heads, examples=5, tokens=4, channels=3):
    attention = tuple(rng.random((examples, count, tokens, tokens)) for count in heads)
    inputs = rng.standard_normal((examples, tokens, channels))
    return Split(inputs, rng.standard_normal((examples, 1)), attention)


def test_it_equals_a_loop(rng, monkeypatch):
    monkeypatch.setattr(head_distances, "PIECE", 2)
    split = random_split(rng, (2, 3, 1))
    matrices, outputs = [], []
    for layer in split.attention:
        for one, other in itertools.combinations(range(layer.shape[1]), 2):
            of_matrices, of_outputs = [], []
            for x, of_example in zip(split.inputs, layer, strict=True):
                # rows of A = Ωᵀ are queries
                first, second = of_example[one].T, of_example[other].T
                of_matrices.append(np.linalg.norm(first - second))
                of_outputs.append(np.linalg.norm(first @ x - second @ x))
            matrices.append(np.mean(of_matrices))
            outputs.append(np.mean(of_outputs))
    found = HeadDistances.of(split)
    for received, values in ((found.matrices, matrices), (found.outputs, outputs)):
        expected = [np.mean(values), np.std(values, ddof=1)]
        assert_equal_to_rounding(np.array(received), expected, operations=1000)


def test_equal_heads_are_at_no_distance_and_single_heads_have_none(rng):
    one = random_split(rng, (1,))
    same = Split(one.inputs, one.labels, (np.repeat(one.attention[0], 2, axis=1),))
    assert HeadDistances.of(same) == HeadDistances((0.0, 0.0), (0.0, 0.0))
    assert np.isnan(HeadDistances.of(one).matrices).all()
