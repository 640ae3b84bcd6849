"""Power laws in the width, with the error of their slope."""

import numpy as np
import pytest

from runs.studies.next_order.mathematics import fit_power_law


@pytest.mark.slow
def test_power_law_is_found_with_its_error_whatever_is_resolved(rng):
    """Signed differences c/N in noise that hides the last ones: no bias by choosing the others."""
    widths, repetitions = np.array([30, 50, 100, 200, 300, 500, 1000]), 400
    truth = -3.0 / widths
    mcse = np.full(len(widths), 0.006)
    laws = [
        fit_power_law(widths, truth + mcse * rng.normal(size=len(widths)), mcse)
        for _ in range(repetitions)
    ]
    slopes, errors = (np.array([getattr(o, key) for o in laws]) for key in ("slope", "slope_error"))
    assert all(one.prefactor < 0.0 for one in laws)
    ratio = (slopes + 1.0) / errors
    assert abs(np.median(ratio)) < 5.0 * 1.2533 / np.sqrt(repetitions)
    # Inflated for scatter, and so no less than one in size.
    assert 0.75 < np.mean(np.abs(ratio) < 2.0) / 0.954 <= 1.05


def test_points_with_smaller_errors_weigh_more_in_a_power_law():
    widths, mcse = np.array([30, 100, 300, 1000]), np.array([1e-6, 1e-6, 1e-6, 10.0])
    difference = 1.0 / widths
    difference[-1] = 5.0
    assert fit_power_law(widths, difference, mcse).slope == pytest.approx(-1.0, abs=1e-3)


def test_noise_alone_has_no_power_law(rng):
    widths, mcse = np.array([30, 100, 300, 1000]), np.full(4, 0.01)
    assert np.isnan(fit_power_law(widths, np.array([0.004, -0.007, 0.01, -0.002]), mcse).slope)
    assert np.isnan(fit_power_law(widths[:2], np.array([1.0, 0.3]), mcse[:2]).slope)
