"""Importance draws as an algorithm: what is kept of weighted draws, and when chains are needed."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.mcmc import importance_draws
from sampler.mcmc.importance_draws import EFFECTIVE_PER_KEPT, FIRST_EVALUATIONS, Importance
from sampler.posterior import importance
from tests.problems import chain_settings, scalar_problem, space_of

SETTINGS = chain_settings(chains=2, warmup=0, draws=300, seed=5)


@pytest.fixture(scope="module")
def space():
    return space_of(scalar_problem(np.random.default_rng(2))[0])


@pytest.fixture(scope="module")
def found(space):
    return Importance().independent_draws(space, SETTINGS)


def test_every_draw_has_the_log_density_of_its_point(space, found):
    assert found.points.shape == (2, 300, space.size)
    flat = found.points.reshape(600, -1)
    each = [space.log_density(space.unflatten(jnp.asarray(x))) for x in flat[:20]]
    np.testing.assert_allclose(found.statistics["lp"].reshape(-1)[:20], each, rtol=1e-12)


@pytest.mark.heavy
def test_too_few_effective_draws_are_left_to_chains(space, monkeypatch):
    monkeypatch.setattr(importance_draws, "MOST_EVALUATIONS", FIRST_EVALUATIONS)
    enough = Importance().independent_draws(space, SETTINGS)
    assert enough.points is not None
    effective = enough.attributes["importance_effective_draws"]
    asked = int(effective / EFFECTIVE_PER_KEPT / 2) + 1
    few = Importance().independent_draws(space, replace(SETTINGS, draws=asked))
    assert few.attributes["importance_effective_draws"] == effective
    assert few.points is None
    assert f"fewer than 5 for each of the {2 * asked} draws asked for" in few.text


@pytest.mark.heavy
def test_further_draws_are_appended_where_the_first_do_not_suffice(space, found, monkeypatch):
    """The density is asked for no point twice, and the draws kept are of both blocks."""
    asked, density = [], importance.BatchedDensity.__call__

    def recorded(self, points):
        asked.append(points)
        return density(self, points)

    monkeypatch.setattr(importance.BatchedDensity, "__call__", recorded)
    Importance().independent_draws(space, SETTINGS)
    alone = asked.pop()
    assert len(alone) == FIRST_EVALUATIONS == found.attributes["importance_evaluations"]
    asked.clear()
    wanted = int(found.attributes["importance_effective_draws"] / EFFECTIVE_PER_KEPT)
    more = Importance().independent_draws(space, replace(SETTINGS, draws=wanted))
    first, further = asked[-2:]
    np.testing.assert_array_equal(first, alone)
    assert len(first) + len(further) == more.attributes["importance_evaluations"]
    every = {point.tobytes() for point in np.concatenate([first, further])}
    assert len(every) == len(first) + len(further)
    kept = {point.tobytes() for point in more.points.reshape(-1, space.size)}
    blocks = [{point.tobytes() for point in block} for block in (first, further)]
    assert kept <= every
    for block in blocks:
        expected = len(block) / len(every)
        # Kept draws are of either block by its size, within the scatter of a binomial share.
        assert abs(len(kept & block) / len(kept) - expected) < 5 * len(kept) ** -0.5
