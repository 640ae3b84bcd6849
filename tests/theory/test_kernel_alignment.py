"""Alignment of kernel eigenvectors with the labels."""

import jax.numpy as jnp
import numpy as np
import scipy.stats

from tests.assertions import assert_equal_to_rounding
from theory import kernel_alignment


def test_a_known_spectrum_is_read_off_in_descending_order(rng):
    vectors = scipy.stats.ortho_group(4, seed=2).rvs()
    kernel = (vectors * np.array([0.5, 4.0, 1.0, 9.0])) @ vectors.T
    labels = vectors @ np.array([3.0, -2.0, 0.5, 1.0])
    received = kernel_alignment(jnp.asarray(kernel), jnp.asarray(labels))
    expected = np.array([1.0, 2.0, 0.5, 3.0]) / np.linalg.norm([3.0, 2.0, 0.5, 1.0])
    # an eigenvector turns by rounding · |K| / gap: gap 0.5 here
    assert_equal_to_rounding(received, expected, operations=16, condition=9 / 0.5)


def test_squared_alignments_sum_to_one_and_ignore_the_scale_of_labels(rng):
    rows = rng.standard_normal((6, 6))
    kernel, labels = jnp.asarray(rows @ rows.T), jnp.asarray(rng.standard_normal(6))
    received = kernel_alignment(kernel, labels)
    assert_equal_to_rounding(np.sum(received**2), 1.0, operations=36)
    assert_equal_to_rounding(kernel_alignment(kernel, -7.0 * labels), received, operations=36)
