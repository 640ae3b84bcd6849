"""Heads and attention against published arrays of the four-path task."""

import numpy as np
import pytest

from sampler.attention.heads import bilinear_attention
from sampler.tasks.markov_chain import head_weights
from tests import SHARED

REFERENCE = SHARED / "reference" / "markov_four_paths.npz"

pytestmark = pytest.mark.skipif(
    not REFERENCE.is_file(), reason="the published arrays are not beside this checkout"
)

EPSILON = np.finfo(float).eps


@pytest.fixture(scope="module")
def published():
    with np.load(REFERENCE, allow_pickle=False) as stored:
        names = ("x_train", "W_layer1", "W_layer2", "attended_inputs_train")
        return {name: stored[name] for name in names}


def test_the_good_head_has_the_published_weights(published):
    expected = published["W_layer1"][0]
    received = head_weights("good", 200, 31, 10.0, np.random.default_rng(0))
    assert np.all(np.abs(received - expected) <= 8 * EPSILON * np.abs(expected))


def test_the_uniform_head_has_the_published_attention(published):
    generator = np.random.default_rng(0)
    received = head_weights("uniform", 200, 31, 10.0, generator)
    inputs = published["x_train"][:10]
    attention = bilinear_attention(inputs, np.stack([received, published["W_layer2"][0]]))
    assert np.array_equal(attention[:, 0], attention[:, 1])


def test_random_heads_have_the_published_scales(published):
    for layer in ("W_layer1", "W_layer2"):
        expected = published[layer][1]
        received = head_weights("random", 200, 31, 10.0, np.random.default_rng(0))
        for rows in (slice(0, 200), slice(200, 231)):
            for columns in (slice(0, 200), slice(200, 231)):
                ratio = received[rows, columns].std() / expected[rows, columns].std()
                # Relative standard error of a standard deviation: 1/√(2n), here for two of them.
                error = np.sqrt(2 / (2 * expected[rows, columns].size))
                assert abs(ratio - 1) < 5 * error


def test_attended_inputs_are_the_published_ones(published):
    inputs = published["x_train"]
    first = bilinear_attention(inputs, published["W_layer1"])
    second = bilinear_attention(inputs, published["W_layer2"])
    read_out = second[..., -1]  # last-token readout, [example, head, key]
    received = np.einsum("xsd,xhst,xkt->xhkd", inputs, first, read_out, optimize=True)
    received = received.reshape(100, 4, 231)
    # A logit is a sum of about 231² products. Rounding moves it by at most 2·231 ε times the sum
    # of their sizes, and the attention, relatively, by twice that, in each of the two layers.
    size = np.abs(inputs)
    largest = max(
        np.max((size @ np.abs(weights)) @ np.swapaxes(size, 1, 2))
        for layer in ("W_layer1", "W_layer2")
        for weights in published[layer]
    )
    bound = 2 * 2 * 2 * 231 * EPSILON * largest * np.max(size)
    difference = np.max(np.abs(received - published["attended_inputs_train"]))
    assert difference <= min(bound, 1e-10)
