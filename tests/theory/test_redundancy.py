"""Measures of redundancy at limits where they are known, and against loops."""

import numpy as np

from tests.assertions import assert_equal_to_rounding
from theory.observables import (
    mean_alignment_of_others,
    off_diagonal_share,
    participation_ratio,
    path_alignment,
)


def test_the_participation_ratio_counts_equal_eigenvalues(rng):
    rotation, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    for count in (1, 3, 5):
        eigenvalues = np.where(np.arange(5) < count, 2.0, 0.0)
        overlap = rotation @ np.diag(eigenvalues) @ rotation.T
        assert_equal_to_rounding(participation_ratio(overlap), count, operations=100)
    values = np.linalg.eigvalsh(overlap + np.ones((5, 5)))
    expected = values.sum() ** 2 / (values**2).sum()
    received = participation_ratio(overlap + np.ones((5, 5)))
    assert_equal_to_rounding(received, expected, operations=100)


def test_the_share_off_the_diagonal():
    assert off_diagonal_share(np.diag([1.0, 2.0])) == 0.0
    assert off_diagonal_share(np.array([[1.0, -1.0], [-1.0, 1.0]])) == 0.5


def test_path_alignment_is_centred_kernel_alignment(rng):
    features = rng.standard_normal((7, 3, 4))
    received = path_alignment(features)
    centring = np.eye(7) - 1 / 7
    kernels = [centring @ features[:, p] @ features[:, p].T @ centring for p in range(3)]
    for p in range(3):
        for q in range(3):
            inner = np.trace(kernels[p] @ kernels[q])
            expected = inner / (np.linalg.norm(kernels[p]) * np.linalg.norm(kernels[q]))
            assert_equal_to_rounding(received[p, q], expected, operations=1000)
    others = [received[p, q] for p in range(3) for q in range(3) if p != q]
    assert_equal_to_rounding(mean_alignment_of_others(received), np.mean(others), operations=10)


def test_rotated_copies_are_aligned_and_constant_paths_undefined(rng):
    one = rng.standard_normal((6, 4))
    rotation, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    copies = np.stack([one, 3.0 * one @ rotation + 1.0, np.ones((6, 4))], axis=1)
    received = path_alignment(copies)
    assert_equal_to_rounding(received[0, 1], 1.0, operations=1000)
    assert np.isnan(received[:, 2]).all()
    assert np.isnan(mean_alignment_of_others(np.ones((1, 1))))
