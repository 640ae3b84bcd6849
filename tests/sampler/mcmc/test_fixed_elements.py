"""Elements that a problem fixes, and runs of problems that have such elements."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.analysis.draws import Draws
from sampler.jobs.draw import draw_posterior
from sampler.jobs.stages import diagnose_stage
from sampler.mcmc.space_checks import fixed_by
from sampler.settings.sampler import Sampler
from tests.problems import ARCHITECTURES, random_problem, space_of
from tests.small import small_problem

SPACES = ("order_parameters", "hidden_weights", "weights")
# The second test example has no input: every network of the theory is 0 there.
SILENT = 1


def silent(attended):
    return jnp.asarray(attended).at[SILENT].set(0.0)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("network", ["narrow", "one layer, two outputs"])
def test_only_the_predictor_where_there_is_no_input_is_fixed(name, network, rng):
    """By the definition of the network; overlaps of narrow layers are singular, and vary."""
    problem = random_problem(ARCHITECTURES[network], rng)
    space = space_of(problem, name, silent(problem.attended[:3]), whitened=False)
    found = fixed_by(space, 3)
    outputs = problem.architecture.outputs
    expected = np.arange(3).repeat(outputs) == SILENT
    predictors = [one for one in found if one.startswith("predictor")]
    assert predictors
    for one in predictors:
        np.testing.assert_array_equal(found[one], expected, err_msg=one)
    overlaps = [one for one in found if one.startswith(("order_parameter", "readout"))]
    assert len(overlaps) == problem.architecture.layers + 1
    assert not any(found[one].any() for one in overlaps)


def test_labels_of_zero_fix_the_mean_of_the_predictor_and_nothing_else(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    problem = replace(problem, labels=jnp.zeros_like(problem.labels))
    found = fixed_by(space_of(problem, whitened=False), 3)
    assert found["predictor_mean"].all()
    assert not found["predictor_variance"].any()
    assert not found["order_parameter"].any()


@pytest.mark.heavy
def test_a_run_that_the_problem_fixes_an_element_of_can_be_trusted(rng):
    """It ends when it is trusted; its file says what is fixed, which alone may stand still."""
    problem = small_problem(rng)
    problem = replace(problem, attended_test=silent(problem.attended_test))
    settings = Sampler(
        space="order_parameters", algorithm="split_hmc", max_draws=2000, evidence=False
    )
    tree = draw_posterior(problem, settings, show=False)
    assert tree["sample_stats"].attrs["ended_by"] == "trusted"
    assert diagnose_stage(tree).passed
    fixed = Draws(tree).fixed
    assert set(fixed) == {"predictor", "predictor_mean", "predictor_variance"}
    assert all(list(np.flatnonzero(mask)) == [SILENT] for mask in fixed.values())
    stuck = tree.copy(deep=True)
    stuck["predictions"]["predictor_mean"][..., SILENT + 1] = 0.25
    received = diagnose_stage(stuck)
    assert [one.split(":")[0] for one in received.reasons] == [f"predictor_mean[{SILENT + 1}]"]
