"""Logit weights of the heads of the hidden Markov task."""

import numpy as np
import pytest

from sampler.recipes.task_section import AttentionSection
from sampler.tasks.markov_chain import head_weights, state_difference
from sampler.tasks.task import draw_layers

BETA = 10.0


def weights(kind, features=6, positions=5, seed=0):
    return head_weights(kind, features, positions, BETA, np.random.default_rng(seed))


def test_the_state_direction_reads_plus_and_minus_one():
    direction = state_difference(8)
    upper, lower = np.repeat([np.sqrt(2), 0], 4), np.repeat([0, np.sqrt(2)], 4)
    # Eight products and seven sums of numbers whose sizes add up to one.
    tolerance = 16 * np.finfo(float).eps
    assert abs(direction @ upper - 1) <= tolerance
    assert abs(direction @ lower + 1) <= tolerance


def test_the_positions_of_the_good_head():
    expected = BETA * np.array(
        [
            [0.0, 1.5, 1.5, 1.5, 1.5],
            [0.0, 0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 1.0],
            [0.0, 0.0, 0.0, 0.0, 0.0],
        ]
    )
    received = weights("good")
    assert np.array_equal(received[6:, 6:], expected)
    assert not received[:6, 6:].any()
    assert not received[6:, :6].any()


def test_the_uniform_head_has_no_logits():
    assert not weights("uniform").any()


def test_the_blocks_of_a_random_head_have_their_own_scales():
    received = weights("random", features=100, positions=80) / BETA
    blocks = {
        1 / 100: received[:100, :100],
        1.0: received[100:, 100:],
        1 / 10: np.concatenate([received[:100, 100:].ravel(), received[100:, :100].ravel()]),
    }
    for scale, block in blocks.items():
        standard = block.ravel() / scale
        # Mean and variance of n standard normals have standard errors 1/√n and √(2/n).
        assert abs(standard.mean()) < 5 / np.sqrt(standard.size)
        assert abs(standard.var() - 1) < 5 * np.sqrt(2 / standard.size)


def test_only_a_random_head_depends_on_the_generator():
    assert np.array_equal(weights("good", seed=0), weights("good", seed=1))
    assert not np.array_equal(weights("random", seed=0), weights("random", seed=1))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"'causal'.*good, uniform, random"):
        weights("causal")


def test_a_random_head_is_that_of_its_layer_and_number():
    """Its stream has the key (2, layer, head), so that the same heads come back in any version."""
    settings = AttentionSection(heads=(("random", "good"), ("uniform", "random", "random")))
    drawn = draw_layers(
        settings, lambda kind, generator: (head_weights(kind, 6, 5, BETA, generator),), seed=7
    )
    for layer, kinds in enumerate(settings.heads):
        (matrices,) = drawn[layer]
        for head, kind in enumerate(kinds):
            sequence = np.random.SeedSequence(7, spawn_key=(2, layer, head))
            expected = head_weights(kind, 6, 5, BETA, np.random.default_rng(sequence))
            assert np.array_equal(matrices[head], expected)
