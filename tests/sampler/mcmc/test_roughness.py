"""The roughness of a density by rounding, and what is said of chains that it stops."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from sampler.jobs.draw import draw_posterior
from sampler.jobs.stages import diagnose_stage
from sampler.mcmc.roughness import roughness_attributes
from sampler.settings.sampler import SamplerSection
from tests.problems import ARCHITECTURES, random_problem, space_of
from tests.small import small_problem


@pytest.mark.parametrize("name", ["order_parameters", "hidden_weights", "weights"])
def test_a_smooth_density_is_smooth_and_its_condition_is_that_of_the_kernel(name, rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    space = space_of(problem, name, whitened=False)
    found = roughness_attributes(space, 3)
    assert found["roughness"] < 1e-9
    if name == "weights":
        assert "condition_number" not in found
        return
    colder = replace(space, temperature=space.temperature / 1e3)
    # λ_max/𝒯 + 1 at the same point.
    cold = roughness_attributes(colder, 3)["condition_number"]
    assert (cold - 1.0) / (found["condition_number"] - 1.0) == pytest.approx(1e3, rel=1e-9)


@pytest.mark.heavy
def test_chains_that_rounding_stops_name_it(rng):
    """Examples three times over at a temperature that is hardly more than the rounding of K."""
    problem = small_problem(rng)
    learning = problem.learning
    repeated = {
        "attended": jnp.tile(learning.attended, (3, 1, 1)),
        "labels": jnp.tile(learning.labels, (3, 1)),
    }
    learning = replace(learning, **repeated)
    learning = replace(learning, temperature=4.0 * learning.lowest_temperature)
    settings = SamplerSection(
        space="order_parameters", algorithm="split_hmc", chains=2, warmup=60, draws=8
    )
    tree = draw_posterior(replace(problem, learning=learning), settings, show=False)
    verdict = diagnose_stage(tree)
    assert not verdict.passed
    about = tree["sample_stats"].attrs
    assert tree["sample_stats"]["step_size"].min() < 1e-10
    assert about["roughness"] > 0.05
    # The kernel of the copies is three times that of single examples.
    assert about["condition_number"] > 1e13
    assert any(f"{about['condition_number']:.1e}" in one for one in verdict.reasons)
    assert not any("`warmup`" in one for one in verdict.reasons)
