"""Tempered repetitions by the one contract of algorithms: their chunks, and what goes on."""

from dataclasses import dataclass, fields, replace

import jax
import numpy as np
import pytest
import scipy.stats
from jax.tree_util import register_dataclass

from sampler.mcmc.algorithm import Snapshot, SnapshotMismatch
from sampler.mcmc.collected_draws import DrawCollector
from tests.problems import TEMPERED, chain_settings
from tests.sampler.mcmc.laws import Linear

FEATURES, LABELS, NOISE = np.array([[1.0, 0.4], [-0.3, 0.8]]), np.array([3.0, -1.0]), 0.1
SETTINGS = chain_settings(chains=3, draws=32, seed=5)


@pytest.fixture(scope="module")
def space():
    return Linear.of(FEATURES, LABELS, NOISE, np.zeros(2), np.ones(2))


def made(space, settings=SETTINGS, resume=None):
    """Every chunk, with the snapshot that was there when it came."""
    chunks = []
    TEMPERED.draw(space, settings, lambda one: chunks.append((one, one.snapshot)), resume)
    return chunks


@pytest.fixture(scope="module")
def chunks(space):
    return made(space)


def test_draws_come_one_repetition_after_the_other(space, chunks):
    drawn = [chunk for chunk, _ in chunks if chunk.phase == "draws"]
    assert [chunk.first for chunk in drawn] == [0, 1, 2]
    assert [(chunk.done, chunk.total) for chunk in drawn] == [(1, 3), (2, 3), (3, 3)]
    for chunk in drawn:
        assert chunk.statistics["lp"].shape == (1, 32)
        # ln p(x, y) of the points themselves, and what is observed of them.
        normal = scipy.stats.norm
        expected = normal.logpdf(chunk.points[0]).sum(axis=1)
        expected += normal.logpdf(LABELS, chunk.points[0] @ FEATURES.T, NOISE).sum(axis=1)
        np.testing.assert_allclose(chunk.statistics["lp"][0], expected, rtol=1e-10)
        np.testing.assert_array_equal(chunk.observables["x"], chunk.points)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Noisy(Linear):
    """Beside each draw a number is drawn, as predictors are where they are random given it."""

    def observe(self, key, position):
        return {"noise": jax.random.normal(key)}


def test_random_numbers_beside_draws_are_independent_between_repetitions(space):
    """A mean over repetitions has the variance of as many numbers as there are draws."""
    noisy = Noisy(**{one.name: getattr(space, one.name) for one in fields(space) if one.init})
    drawn = [one.observables["noise"] for one, _ in made(noisy) if one.phase == "draws"]
    noise = np.concatenate(drawn)
    assert noise.shape == (SETTINGS.chains, SETTINGS.draws)
    assert len(np.unique(noise)) == noise.size
    # The variance of the mean over R repetitions is 1/R, each of n draws: χ²_n/(n R).
    scaled = SETTINGS.chains * np.sum(noise.mean(axis=0) ** 2)
    assert 1e-3 < scipy.stats.chi2.cdf(scaled, SETTINGS.draws) < 1 - 1e-3


def test_every_temperature_is_a_chunk_and_counts_once(chunks):
    collected = DrawCollector()
    for chunk, _ in chunks:
        collected(chunk)
    steps = [chunk.statistics["n_steps"] for chunk, _ in chunks if "n_steps" in chunk.statistics]
    assert collected.total("n_steps") == sum(int(one.sum()) for one in steps)
    # Pilots and repetitions from the prior are no chains.
    path, temperatures = collected.warmup_statistics, collected.statistics["temperatures"][:, 0]
    assert path["power"].shape == (3, temperatures.max())
    assert np.isfinite(path["power"]).sum(axis=1).tolist() == temperatures.tolist()
    assert path["n_steps"].sum() < collected.total("n_steps")
    assert collected.seconds["warmup"] == pytest.approx(
        sum(chunk.seconds for chunk, _ in chunks if chunk.phase == "warmup")
    )


def test_they_go_on_from_any_chunk_bit_for_bit(space, chunks):
    for place in range(0, len(chunks) - 1, 4):
        rest = made(space, resume=chunks[place][1])
        assert len(rest) == len(chunks) - 1 - place
        for (expected, _), (received, _) in zip(chunks[place + 1 :], rest, strict=True):
            assert received.statistics.keys() == expected.statistics.keys()
            for name, values in expected.statistics.items():
                np.testing.assert_array_equal(received.statistics[name], values, err_msg=name)
            if expected.points is not None:
                np.testing.assert_array_equal(received.points, expected.points)


def test_further_ones_are_those_of_a_longer_run(space, chunks):
    longer = made(space, replace(SETTINGS, chains=5))
    more = made(space, replace(SETTINGS, chains=5), resume=chunks[-1][1])
    for expected, received in zip(longer[-len(more) :], more, strict=True):
        for name, values in expected[0].statistics.items():
            np.testing.assert_array_equal(received[0].statistics[name], values, err_msg=name)


def test_a_snapshot_of_something_else_is_told(space, chunks):
    _, last = chunks[-1]
    foreign = {name: values for name, values in last.arrays.items() if "centres" not in name}
    for other in (Snapshot("draws", 3, last.arrays), replace(last, arrays=foreign)):
        with pytest.raises(SnapshotMismatch):
            made(space, resume=other)
