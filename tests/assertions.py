"""Assertions whose tolerance is derived: from Monte Carlo standard errors or from rounding."""

import numpy as np

FLOAT64_ROUNDING = float(np.finfo(np.float64).eps)
FLOAT32_ROUNDING = float(np.finfo(np.float32).eps)


def assert_within_mcse(
    received, expected, mcse, *, k: float = 4.0, ess=None, minimum_ess: float = 100.0, what="value"
) -> None:
    """|received − expected| ≤ k · mcse in every entry, once the sample is large enough to say so.

    `mcse` is the Monte Carlo standard error of the difference: where `expected` carries an error
    of its own, pass √(mcse_1² + mcse_2²). With `ess` given, every effective sample size must reach
    `minimum_ess` first, since a standard error from few effective draws means nothing. A standard
    error that is zero or not finite fails: a chain that never moved must not pass.
    """
    received, expected, mcse = np.broadcast_arrays(
        *(np.asarray(values, dtype=float) for values in (received, expected, mcse))
    )
    if ess is not None:
        sizes = np.asarray(ess, dtype=float)
        if not np.all(sizes >= minimum_ess):
            raise AssertionError(
                f"{what}: effective sample size {np.nanmin(sizes):.0f} (NaN in "
                f"{np.isnan(sizes).sum()} entries), expected at least {minimum_ess:.0f}; "
                "take more draws before comparing"
            )
    if not np.all(np.isfinite(mcse) & (mcse > 0)):
        bad = _first(~(np.isfinite(mcse) & (mcse > 0)))
        raise AssertionError(f"{what}{list(bad)}: mcse {mcse[bad]}, expected positive and finite")
    if not np.all(np.isfinite(received)):
        bad = _first(~np.isfinite(received))
        raise AssertionError(f"{what}{list(bad)}: received {received[bad]}")
    deviation = np.abs(received - expected) / mcse
    if not np.all(deviation <= k):
        worst = np.unravel_index(np.argmax(deviation), deviation.shape)
        raise AssertionError(
            f"{what}{[int(i) for i in worst]}: received {received[worst]:.6g} "
            f"± {mcse[worst]:.2g}, expected {expected[worst]:.6g}: {deviation[worst]:.1f} standard "
            f"errors apart (limit {k:g}); {np.sum(deviation > k)} of {deviation.size} entries fail"
        )


def assert_equal_in_float32(received, expected, operations=100):
    """Equal but for so many roundings of numbers of order 1."""
    limit = operations * FLOAT32_ROUNDING * max(1.0, float(np.abs(expected).max()))
    assert received.shape == expected.shape
    difference = np.abs(received - expected).max()
    assert difference <= limit, f"difference {difference:.2g}, rounding explains {limit:.2g}"


def assert_equal_to_rounding(
    received, expected, *, operations: float, condition: float = 1.0, scale=None, what="value"
) -> None:
    """|received − expected| ≤ operations · condition · 2⁻⁵² · scale in every entry.

    operations   roundings that can add up in one entry (terms of the longest sum, say)
    condition    how much the computation magnifies a relative error of what it works on (the
                 condition number of a matrix that is solved with)
    scale        size of the numbers that are added up; by default the largest expected entry
    """
    received, expected = np.broadcast_arrays(
        np.asarray(received, dtype=float), np.asarray(expected, dtype=float)
    )
    if not np.all(np.isfinite(expected)):
        raise AssertionError(f"{what}: the expected values are not all finite")
    size = float(np.max(np.abs(expected), initial=0.0)) if scale is None else float(scale)
    limit = operations * condition * FLOAT64_ROUNDING * size
    difference = np.abs(received - expected)
    if not np.all(difference <= limit):
        bad = _first(~(difference <= limit))
        raise AssertionError(
            f"{what}{list(bad)}: received {received[bad]:.17g}, expected {expected[bad]:.17g}: "
            f"difference {difference[bad]:.2e}, rounding explains {limit:.2e}; "
            f"{np.sum(~(difference <= limit))} of {difference.size} entries fail"
        )


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
