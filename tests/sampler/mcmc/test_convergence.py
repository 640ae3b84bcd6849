"""Diagnostics of many quantities at once are those of ArviZ, element by element."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.mcmc import convergence
from tests.small import autoregressive

AXES = {"chain_axis": 0, "draw_axis": 1}
OF_ARVIZ = {
    "r_hat": lambda draws: array_stats.rhat(draws, method="rank", **AXES),
    "bulk_ess": lambda draws: array_stats.ess(draws, method="bulk", **AXES),
    "tail_ess": lambda draws: array_stats.ess(draws, method="tail", prob=(0.05, 0.95), **AXES),
    "mean_ess": lambda draws: array_stats.ess(draws, method="mean", **AXES),
    "mean_mcse": lambda draws: array_stats.mcse(draws, method="mean", **AXES),
}


def varied(rng, shape):
    """Chains of every kind: independent, sluggish, alternating, drifting, heavy-tailed, apart."""
    chains, draws = shape
    noise = rng.standard_normal((7, *shape))
    steps = np.arange(draws)
    sluggish = autoregressive(rng, 0.9, shape)
    alternating = autoregressive(rng, -0.7, shape)
    return np.stack(
        [
            noise[0],
            sluggish,
            alternating,
            noise[1] + 3.0 * steps / draws,
            noise[2] / np.abs(noise[3]),
            np.round(2.0 * noise[4]),
            noise[5] + np.arange(chains)[:, None],
            1e3 + noise[6],
        ],
        axis=-1,
    ).reshape(*shape, 2, 4)


RECEIVED = {
    "r_hat": lambda draws: convergence.rank_diagnostics(draws)[0],
    "bulk_ess": lambda draws: convergence.rank_diagnostics(draws)[1],
    "tail_ess": lambda draws: convergence.rank_diagnostics(draws)[2],
    "mean_ess": convergence.mean_ess,
    "mean_mcse": convergence.mean_mcse,
}


@pytest.mark.parametrize("shape", [(4, 1000), (1, 61), (3, 4)])
@pytest.mark.parametrize("name", sorted(OF_ARVIZ))
def test_every_element_has_the_number_of_arviz(name, shape, rng):
    draws = varied(rng, shape)
    expected = np.empty((2, 4))
    for place in np.ndindex(2, 4):
        with np.errstate(all="ignore"):
            expected[place] = OF_ARVIZ[name](draws[(..., *place)])
    received = RECEIVED[name](draws)
    assert received.shape == (2, 4)
    np.testing.assert_allclose(received, expected, rtol=1e-10)


@pytest.mark.parametrize("name", sorted(OF_ARVIZ))
def test_what_cannot_be_judged_is_not_a_number_and_spoils_no_neighbour(name, rng):
    draws = rng.standard_normal((4, 100, 3))
    expected = RECEIVED[name](draws)
    draws[2, 30, 1] = np.inf
    received = RECEIVED[name](draws)
    np.testing.assert_array_equal(received[[0, 2]], expected[[0, 2]])
    assert np.isnan(received[1])
    assert np.isnan(RECEIVED[name](draws[:, :3])).all()


def test_shares_between_repetitions_are_those_of_their_means(rng):
    """Repetitions with a part in common: one of them is worth (1 + a²)/a² draws, if many."""
    common = np.array([0.0, 0.3])
    shape = (400, 64)
    draws = common * rng.standard_normal((400, 1, 2)) + rng.standard_normal((*shape, 2))
    r_hat, bulk, *tails = convergence.repetition_diagnostics(draws)
    expected = (common**2 + 1 / 64) / (common**2 + 1.0)
    # The variance of 400 means is known to √(2/399), the normal scores change it little.
    np.testing.assert_allclose(bulk, expected, rtol=4 * np.sqrt(2 / 399))
    np.testing.assert_allclose(r_hat**2, 1.0 + np.array([0.0, common[1] ** 2]), atol=0.03)
    assert (np.array(tails)[:, 1] > np.array(tails)[:, 0]).all()


def test_r_hat_of_whole_repetitions_is_that_of_arviz(rng):
    draws = rng.standard_normal((5, 100, 3)) + 0.2 * rng.standard_normal((5, 1, 3))
    received = convergence.repetition_diagnostics(draws)[0]
    scores = convergence._normal_scores(draws)
    folded = convergence._normal_scores(np.abs(draws - np.median(draws, axis=(0, 1))))
    expected = [
        max(
            array_stats.rhat(one[..., place], method="identity", **AXES) for one in (scores, folded)
        )
        for place in range(3)
    ]
    np.testing.assert_allclose(received, expected, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(OF_ARVIZ))
@pytest.mark.parametrize("scale", [2.0**-80, 2.0**80])
def test_nothing_depends_on_the_unit(name, scale, rng):
    """Of ArviZ, draws are constant that differ by less than 1e-15, whatever they are."""
    draws = varied(rng, (4, 100))
    expected = RECEIVED[name](draws) * (scale if name == "mean_mcse" else 1.0)
    np.testing.assert_array_equal(RECEIVED[name](scale * draws), expected)
