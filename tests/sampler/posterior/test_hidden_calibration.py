"""Simulation-based calibration of hidden weights, of networks of every kind outside the theory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.mcmc.split_hmc import SplitChain
from sampler.token_network import predict_split
from tests.calibration import WARMUP, calibration_ranks, sites_at_truth, uniformity
from tests.problems import all_but
from tests.token_networks import KINDS, random_token_problem

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
SPLIT = SplitChain(chains=1, warmup=WARMUP, target_acceptance=0.9, max_steps=64)
DATA_SETS, SMALLEST_P = 128, 1e-3
QUANTITIES = ("V_0[0, 0]", "|V_1|²", "|a|²", "predictor", "log likelihood")


class HiddenCalibration:
    """A network of a kind, and the factor by which its readout is believed to vary more."""

    def __init__(self, kind: str, factor: float = 1.0) -> None:
        rng = np.random.default_rng(0)
        self.problem = random_token_problem(kind, rng, examples=6, temperature=0.2)
        network = self.problem.network
        *others, readout = network.variances
        variances = (*others, factor * readout)
        architecture = replace(network.architecture, variances=variances)
        self.believed = replace(self.problem, network=replace(network, architecture=architecture))

    def simulate(self, key):
        """All weights from the prior, and labels from these."""
        weight_key, noise_key = jax.random.split(key)
        problem = self.problem
        weights = problem.space("weights").draw_prior(weight_key)
        clean = predict_split(weights, problem.data.tokens, problem.network.sizes)
        noise = jax.random.normal(noise_key, clean.shape)
        return weights, clean + problem.temperature**0.5 * noise

    def space(self, labels):
        weights = tuple(self.problem.network.weight_shapes)
        data = replace(self.believed.data, labels=labels)
        return replace(self.believed, data=data).space("hidden_weights", keep=weights)

    def drawn(self, key, position, labels):
        space = self.space(labels)
        observed = space.observe(key, position)
        return self.quantities(observed, observed["predictor"], space, position)

    def at_truth(self, position, start) -> dict:
        return sites_at_truth(position, start)

    def truth(self, key, weights, labels):
        test = predict_split(weights, self.problem.data.tokens_test, self.problem.network.sizes)
        hidden = {name: values for name, values in weights.items() if name != "a"}
        return self.quantities(weights, test, self.space(labels), hidden)

    def quantities(self, weights, predictor, space, hidden):
        squares = [jnp.sum(weights[name] ** 2) for name in ("V_1", "a")]
        likelihood = space.log_likelihood(hidden)
        return jnp.stack([weights["V_0"][0, 0], *squares, predictor[0, 0], likelihood])


def p_values(space: HiddenCalibration) -> dict[str, float]:
    ranks = calibration_ranks(space, DATA_SETS, seed=1, chain=SPLIT)
    received = uniformity(ranks, QUANTITIES)
    return received


@pytest.mark.parametrize("kind", all_but(KINDS, ("relu",), pytest.mark.long))
def test_ranks_of_the_truth_are_uniform(kind):
    received = p_values(HiddenCalibration(kind))
    assert min(received.values()) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.long
def test_calibration_finds_a_wrong_variance_of_the_readout():
    received = p_values(HiddenCalibration("relu", factor=3.0))
    assert received["|a|²"] < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
