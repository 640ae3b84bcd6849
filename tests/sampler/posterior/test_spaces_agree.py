"""Weights and order parameters sample one posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.analysis.estimates import mean_of, variance_of
from sampler.mcmc.hamiltonian import Nuts
from sampler.network import network_outputs
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.weights_from_order_parameters import draw_weights_back
from tests.assertions import assert_within_mcse
from tests.problems import random_problem, sampled, space_of
from theory import Architecture

# Unequal widths, heads and variances; "two outputs" and "narrow" (N_1 < p_1, N_2 < p_2) besides.
COMPARED = {
    "two layers, two outputs": Architecture((2, 1), (6, 5, 4), (0.9, 1.5, 0.6, 1.3), 3, outputs=2),
    "two layers, narrow": Architecture((2, 3), (4, 2, 3), (0.9, 1.2, 0.8, 1.3), channels=3),
    # More than the units of the lower layer: U_1 is singular.
    "ten outputs": Architecture((1,), (7, 12), (1.4, 0.8, 1.2), channels=3, outputs=10),
}
EXAMPLES = 5
TEMPERATURE = 0.5


def run(space, *, warmup, draws):
    """Steps small enough (acceptance 0.9) that the curved density of weights diverges rarely.

    The overlaps have long tails: it takes thousands of draws until their means are Gaussian.
    """
    algorithm = Nuts(target_acceptance=0.9)
    collected = sampled(space, algorithm, chains=4, warmup=warmup, draws=draws, seed=8)
    assert np.mean(collected.statistics["diverging"]) < 0.01
    return collected.draws


def order_parameter_estimates(draws):
    """Mean and variance of every element of every U_l, one of each symmetric pair."""
    found = {}
    for name, values in draws.items():
        if name.startswith(("order_parameter", "readout_order")):
            rows, columns = np.triu_indices(values.shape[-1])
            elements = values[..., rows, columns]
            found[f"mean of {name}"] = (mean_of(elements), elements)
            found[f"variance of {name}"] = (variance_of(elements), elements)
    return found


def sampled_outputs(outputs):
    """Mean and variance of f on the test examples, from draws of f."""
    test = outputs[:, :, EXAMPLES:]
    return {
        "mean of f": (mean_of(test), test),
        "variance of f": (variance_of(test), test),
    }


def averaged_outputs(mean, variance):
    """The same from the mean and variance of f given each draw."""
    mean, variance = mean[:, :, EXAMPLES:], variance[:, :, EXAMPLES:]
    total = variance + (mean - mean.mean(axis=(0, 1))) ** 2
    return {"mean of f": (mean_of(mean), mean), "variance of f": (mean_of(total), total)}


def log_likelihood_estimates(outputs, labels):
    """Mean and variance of −|f − y|²/(2𝒯) over weight draws."""
    errors = outputs[:, :, :EXAMPLES] - labels
    values = -0.5 * np.sum(errors**2, axis=(2, 3)) / TEMPERATURE
    return {
        "mean of the log likelihood": (mean_of(values), values),
        "variance of the log likelihood": (variance_of(values), values),
    }


def assert_agree(received, expected):
    assert received.keys() == expected.keys()
    for what, (one, draws) in received.items():
        other, other_draws = expected[what]
        ess = [
            array_stats.ess(d.reshape(*d.shape[:2], -1), chain_axis=0, draw_axis=1)
            for d in (draws, other_draws)
        ]
        mcse = np.hypot(one.mcse, other.mcse)
        assert_within_mcse(one.value, other.value, mcse, ess=ess, minimum_ess=400, what=what)


@pytest.mark.long
@pytest.mark.parametrize("name", COMPARED)
def test_both_spaces_sample_the_same_posterior(name, rng):
    """U_l, predictor and log likelihood of all weights, and of drawn-back weights."""
    arch = COMPARED[name]
    problem = random_problem(arch, rng, examples=EXAMPLES, temperature=TEMPERATURE)
    unseen = jnp.asarray(rng.standard_normal((3, arch.path_count, arch.channels)))
    attended = jnp.concatenate([problem.attended, unseen])
    labels = np.asarray(problem.labels)

    draws = run(space_of(problem, "weights", attended), warmup=600, draws=4000)
    weights = order_parameter_estimates(draws)
    weights |= sampled_outputs(draws["predictor"])
    weights |= log_likelihood_estimates(draws["predictor"], labels)

    space = space_of(problem, test=attended)
    draws = run(space, warmup=200, draws=4000)
    collapsed = order_parameter_estimates(draws)
    collapsed |= averaged_outputs(draws["predictor_mean"], draws["predictor_variance"])
    drawn_back = draw_weights_back(space, arch, stored_sites(draws), 4000, seed=1).weights
    predict_all = jax.jit(jax.vmap(jax.vmap(lambda w: network_outputs(w, attended, arch))))
    outputs = np.asarray(predict_all(drawn_back))
    collapsed |= log_likelihood_estimates(outputs, labels)

    assert_agree(collapsed, weights)
