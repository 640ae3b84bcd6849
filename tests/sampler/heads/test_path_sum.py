"""Sums over paths: the trained network by tokens."""

import numpy as np
import pytest

from sampler.heads.path_sum import PathSum, all_heads
from sampler.transformer.trained_transformer import TrainedValues
from tests.assertions import assert_equal_to_rounding
from theory import Architecture, attended_inputs

EXAMPLES, TOKENS, CHANNELS, WIDTHS, HEADS = 6, 4, 3, (5, 4, 3), (2, 3)


@pytest.fixture(scope="module")
def drawn():
    """A network, inputs and attention."""
    random = np.random.default_rng(1)
    shapes = {"V_0": (5, CHANNELS), "V_1": (2, 4, 5), "V_2": (3, 3, 4), "a": (2, 3)}
    weights = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    attention = tuple(
        random.dirichlet(np.ones(TOKENS), (EXAMPLES, heads, TOKENS)).swapaxes(-1, -2)
        for heads in HEADS
    )
    inputs = random.standard_normal((EXAMPLES, TOKENS, CHANNELS))
    architecture = Architecture(HEADS, WIDTHS, (1.0,) * 4, CHANNELS, 2)
    return TrainedValues(weights, architecture), inputs, attention


@pytest.fixture(scope="module")
def trained(drawn) -> PathSum:
    network, inputs, attention = drawn
    return PathSum.of_trained(network, attended_inputs(inputs, attention, "mean"))


def by_token(drawn, gates) -> np.ndarray:
    """The network with a gate on every head, head by head and token by token."""
    network, inputs, attention = drawn
    hidden, first = inputs @ network.weights["V_0"].T / CHANNELS**0.5, 0
    for layer, heads in enumerate(HEADS):
        values = network.weights[f"V_{layer + 1}"]
        above = np.zeros((EXAMPLES, TOKENS, values.shape[1]))
        for head in range(heads):
            seen = np.stack([matrices[head].T for matrices in attention[layer]]) @ hidden
            above += gates[first + head] * seen @ values[head].T / WIDTHS[layer] ** 0.5
        hidden, first = above / heads**0.5, first + heads
    return hidden.mean(axis=1) @ network.weights["a"].T / WIDTHS[-1] ** 0.5


def gates_without(removed) -> np.ndarray:
    return np.array([head not in removed for head in all_heads(HEADS)], float)


@pytest.mark.parametrize("removed", [[], [(0, 1)], [(0, 0), (1, 2)]])
def test_a_trained_network_without_heads_is_that_of_its_tokens(drawn, trained, removed):
    expected = by_token(drawn, gates_without(removed))
    assert_equal_to_rounding(trained.without(removed), expected, operations=1000)


def test_a_mean_is_that_of_the_paths_through_a_head(drawn, trained):
    """In the last layer it is the mean of what the head sends, as the readout sees it."""
    whole = by_token(drawn, gates_without([]))
    for head in range(HEADS[1]):
        without = by_token(drawn, gates_without([(1, head)]))
        expected = without + (whole - without).mean(axis=0)
        assert_equal_to_rounding(trained.without([(1, head)], "mean"), expected, operations=1000)


def test_slopes_are_finite_differences(drawn, trained):
    along = np.random.default_rng(2).standard_normal((EXAMPLES, 2))
    slopes = trained.slopes(along)
    for place in range(sum(HEADS)):
        step = 1e-5 * np.eye(sum(HEADS))[place]
        up, down = (by_token(drawn, 1.0 + sign * step) for sign in (1, -1))
        expected = (along * (up - down) / 2e-5).sum(axis=1)
        np.testing.assert_allclose(slopes[:, place], expected, rtol=1e-6, atol=1e-8)


def test_magnitudes_are_norms_of_values(drawn, trained):
    network, *_ = drawn
    expected = [
        np.linalg.norm(network.weights[f"V_{layer + 1}"][head]) for layer, head in all_heads(HEADS)
    ]
    np.testing.assert_allclose(trained.magnitudes, expected)
