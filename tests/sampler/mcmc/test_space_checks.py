"""What rounding does to a density, and elements that a problem fixes."""

import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.analysis.draws import Draws
from sampler.errors import InputError
from sampler.jobs.draw import LARGEST_SHIFT, draw_posterior
from sampler.jobs.stages import diagnose_stage, reasons_of_density
from sampler.mcmc.space_checks import fixed_by, roughness_attributes
from sampler.settings.sampler import Sampler
from tests.dense import dense_kernel_of_infinite_width
from tests.problems import ARCHITECTURES, random_problem, small_problem, space_of
from tests.sampler.mcmc.laws import Linear, with_mode
from theory import Architecture


@pytest.mark.slow
def test_roughness_is_measured_where_steps_are_too_short_and_said_where_it_matters(
    rng, monkeypatch
):
    problem = small_problem(rng)
    settings = Sampler(
        space="order_parameters", algorithm="split_hmc", chains=2, warmup=20, draws=8
    )
    plain = draw_posterior(problem, settings, show=False)
    assert "roughness" not in plain["sample_stats"].attrs
    monkeypatch.setattr("sampler.jobs.draw.SMALLEST_STEP", 1e3)
    tree = draw_posterior(problem, settings, show=False)
    about = tree["sample_stats"].attrs
    assert about["roughness"] < 1e-9
    assert reasons_of_density(tree) == ()
    rough = tree.copy(deep=True)
    rough["sample_stats"].attrs["roughness"] = 16.25
    (reason,) = reasons_of_density(rough)
    numbers = [float(word) for word in reason.replace(":", "").split() if word[0].isdigit()]
    condition = float(f"{about['condition_number']:.1e}")
    assert numbers == [16.0, condition, problem.temperature]
    assert reason in diagnose_stage(rough).reasons


def test_roughness_is_the_slope_times_the_distance_of_near_points(rng):
    """1e-13 (1 + |x|) n of a normal n. Of sixteen the range is 3.5 ± 0.8; the slope at 5 is 5e10.

    A network as good as infinitely wide has a kernel that is known.
    """
    steep = Linear.of(np.ones((1, 1)), np.zeros(1), 1e-5, np.zeros(1), np.ones(1))
    start = with_mode(steep, np.array([5.0]), np.array([[1e-9]]))
    found = roughness_attributes(start, 1)
    assert 1.0 < found["roughness"] / (5e10 * 6e-13) < 8.0
    assert "condition_number" not in found

    architecture = Architecture((2,), (10**8, 10**8), (0.9, 1.2, 0.7), channels=3)
    problem = random_problem(architecture, rng)
    kernel = dense_kernel_of_infinite_width(problem.attended, problem.attended, architecture)
    expected = np.linalg.eigvalsh(kernel)[-1] / problem.temperature + 1.0
    found = roughness_attributes(space_of(problem, whitened=False), 1)
    assert found["condition_number"] == pytest.approx(expected, rel=1e-2)


def in_single_precision(problem):
    few = {"space": "weights", "algorithm": "hmc", "leapfrog_steps": 8}
    settings = Sampler(chains=2, warmup=20, draws=4, precision="float32", **few)
    return draw_posterior(problem, settings, show=False)


@pytest.mark.slow
def test_chains_in_single_precision_are_refused_where_rounding_moves_ln_p(rng):
    problem = small_problem(rng)
    assert in_single_precision(problem)["sample_stats"]["lp"].dtype == np.float32
    # Labels that no network of this size can fit, at a low temperature: ln p is of order −y²/2𝒯.
    learning = replace(problem.learning, temperature=problem.temperature / 1e8)
    cold = replace(problem, learning=learning)
    with pytest.raises(InputError) as caught:
        in_single_precision(cold)
    assert caught.value.field == "sampler.precision"
    shift, limit, _ = map(float, re.findall(r"[0-9][0-9.e+]*", str(caught.value).split("ln p")[1]))
    assert shift > limit == LARGEST_SHIFT


# --- elements that a problem fixes, and runs of problems that have such elements


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


@pytest.mark.slow
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
