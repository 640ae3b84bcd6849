"""Weights and order parameters sample one posterior."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.analysis.estimates import OF_CHAINS
from sampler.network import network_outputs
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.weights_from_order_parameters import draw_weights_back
from tests.assertions import assert_within_mcse
from tests.problems import NUTS, random_problem, sampled, space_of
from theory import Architecture

# Unequal widths, heads and variances; more outputs than the units of the lower layer, so that U_1
# is singular.
COMPARED = {
    "two outputs": Architecture((2, 1), (6, 5, 4), (0.9, 1.5, 0.6, 1.3), 3, outputs=2),
    "ten outputs": Architecture((1,), (7, 12), (1.4, 0.8, 1.2), channels=3, outputs=10),
}
EXAMPLES, TEMPERATURE, DRAWS = 5, 0.5, 4000


def draws_of(space, warmup: int) -> dict[str, np.ndarray]:
    """Steps small enough (acceptance 0.9) that the curved density of weights diverges rarely.

    The overlaps have long tails: it takes thousands of draws until their means are Gaussian.
    """
    algorithm = replace(NUTS, target_acceptance=0.9)
    collected = sampled(space, algorithm, chains=4, warmup=warmup, draws=DRAWS, seed=8)
    assert np.mean(collected.statistics["diverging"]) < 0.01
    return collected.draws


def quantities(draws, outputs, labels) -> dict[str, np.ndarray]:
    """Every element of every U_l, f on unseen examples, and the log likelihood of all weights."""
    found = {"f": outputs[:, :, EXAMPLES:]}
    for name, values in draws.items():
        if name.startswith(("order_parameter", "readout_order")):
            rows, columns = np.triu_indices(values.shape[-1])
            found[name] = values[..., rows, columns]
    errors = outputs[:, :, :EXAMPLES] - labels
    return found | {"log likelihood": -0.5 * np.sum(errors**2, axis=(2, 3)) / TEMPERATURE}


@pytest.mark.long
@pytest.mark.parametrize("name", COMPARED)
def test_both_spaces_sample_the_same_posterior(name, rng):
    """Means and variances; of the order parameters with the weights drawn back from them."""
    arch = COMPARED[name]
    problem = random_problem(arch, rng, examples=EXAMPLES, temperature=TEMPERATURE)
    unseen = jnp.asarray(rng.standard_normal((3, arch.path_count, arch.channels)))
    attended = jnp.concatenate([problem.attended, unseen])
    labels = np.asarray(problem.labels)

    draws = draws_of(space_of(problem, "weights", attended), warmup=600)
    expected = quantities(draws, draws["predictor"], labels)

    space = space_of(problem, test=attended)
    draws = draws_of(space, warmup=200)
    drawn_back = draw_weights_back(
        space, arch, stored_sites(draws, TEMPERATURE), DRAWS, seed=1
    ).weights
    predict_all = jax.jit(jax.vmap(jax.vmap(lambda w: network_outputs(w, attended, arch))))
    received = quantities(draws, np.asarray(predict_all(drawn_back)), labels)

    assert received.keys() == expected.keys()
    for what, values in received.items():
        pair = values, expected[what]
        flat = [one.reshape(*one.shape[:2], -1) for one in pair]
        ess = [array_stats.ess(one, chain_axis=0, draw_axis=1) for one in flat]
        for estimate in (OF_CHAINS.mean, OF_CHAINS.variance):
            one, other = map(estimate, pair)
            mcse = np.hypot(one.mcse, other.mcse)
            assert_within_mcse(one.value, other.value, mcse, ess=ess, minimum_ess=400, what=what)
