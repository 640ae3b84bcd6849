"""The posterior of all weights: its density, its prior, and an exactly Gaussian part of it."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from jax.tree_util import register_dataclass

from sampler.analysis.estimate import mean_of
from sampler.mcmc.hamiltonian import Nuts
from sampler.network import network_outputs
from sampler.posterior.data import FixedPaths
from sampler.posterior.space import draw_prior
from sampler.posterior.spaces import make_space
from sampler.posterior.weights import Weights
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    all_but,
    random_network_data,
    random_problem,
    random_weights,
    sampled,
    space_of,
    token_by_token,
)


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_density_is_prior_times_tempered_likelihood(name, rng):
    arch = ARCHITECTURES[name]
    data = random_network_data(arch, rng)
    weights = random_weights(arch, rng)
    labels = rng.standard_normal((6, arch.outputs))
    temperature = 0.3
    terms = [
        -0.5 * (values**2 / arch.weight_variances[w] + np.log(2 * np.pi * arch.weight_variances[w]))
        for w, values in weights.items()
    ]
    errors = labels - token_by_token(arch, data, weights)
    terms.append(-0.5 * (errors**2 / temperature + np.log(2 * np.pi * temperature)))
    expected = sum(term.sum() for term in terms)
    inputs = FixedPaths(
        labels=jnp.asarray(labels), attended=data.attended, attended_test=data.attended
    )
    space = make_space("weights", inputs, arch, temperature)
    position = {name: jnp.asarray(values) for name, values in weights.items()}
    received = jax.jit(space.log_density)(position)
    count = arch.weight_count + labels.size
    size = max(np.abs(term).max() for term in terms)
    assert_equal_to_rounding(received, expected, operations=count, scale=count * size)


NAMES = ("two layers", "three layers, two outputs", "narrow")


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but(NAMES, ["two layers"], pytest.mark.long))
def test_prior_overlaps_have_the_moments_of_a_chain_of_wishart_matrices(name):
    """E[U_l] = σ_l² ⋯ σ_a² · 1, the variance of U_a, and second moments of U_L given U_a."""
    arch = ARCHITECTURES[name]
    draws = 20_000

    space = space_of(random_problem(arch, np.random.default_rng(0)), "weights")
    drawn = draw_prior(space, draws, 3)
    received = [u for name, u in drawn.items() if "order_parameter" in name]
    scale = 1.0
    for layer in range(arch.layers + 1, 0, -1):
        u = received[layer - 1]
        scale *= arch.variances[layer]
        mcse = u.std(axis=0, ddof=1) / np.sqrt(draws)
        expected = scale * np.eye(u.shape[1])
        # up to 144 correlated entries over all layers: 5 standard errors
        assert_within_mcse(u.mean(axis=0), expected, mcse, k=5, what=f"E[U_{layer}]")
    top, variance = received[-1], arch.variances[-1]
    # Wishart with N_a degrees of freedom: Var U_ij = σ⁴ (1 + δ_ij) / N_a
    squares = (top - variance * np.eye(arch.outputs)) ** 2
    mcse = squares.std(axis=0, ddof=1) / np.sqrt(draws)
    expected = variance**2 * (1 + np.eye(arch.outputs)) / arch.widths[-1]
    assert_within_mcse(squares.mean(axis=0), expected, mcse, what="Var[U_a]")
    below, variance = received[-2], arch.variances[arch.layers]
    # given U_a: E[U_ij²] = σ⁴ (G_ij² + (G_ij² + G_ii G_jj)/N_L), G = 1 ⊗ U_a; average over U_a
    gram = np.einsum("hk,xcd->xhckd", np.eye(arch.heads[-1]), top)
    gram = gram.reshape(draws, *below.shape[1:])
    diagonal = np.einsum("xii->xi", gram)
    products = diagonal[:, :, None] * diagonal[:, None, :]
    given = variance**2 * (gram**2 + (gram**2 + products) / arch.widths[-2])
    difference = below**2 - given
    mcse = difference.std(axis=0, ddof=1) / np.sqrt(draws)
    assert_within_mcse(difference.mean(axis=0), 0.0, mcse, what="E[U_L²]")


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class ReadoutAlone(Weights):
    """The readout of a network whose other weights are known."""

    rest: dict[str, jax.Array]

    @property
    def weight_shapes(self):
        return {"a": self.network.weight_shapes["a"]}

    def outputs(self, weights, inputs):
        return super().outputs({**self.rest, **weights}, inputs)

    def order_parameters(self, weights):
        return {}


@pytest.mark.heavy
def test_readout_given_all_other_weights_has_its_gaussian_posterior(rng):
    """f is linear in `a`: Σ = (Φᵀ Φ/𝒯 + 1/σ_a²)⁻¹ and mean Σ Φᵀ y/𝒯, Φ = [example, unit]."""
    arch = ARCHITECTURES["two layers"]
    temperature = 0.2
    problem = random_problem(arch, rng, examples=9, temperature=temperature)
    fixed = {k: jnp.asarray(v) for k, v in random_weights(arch, rng).items() if k != "a"}
    units = arch.widths[-1]
    features = np.stack(
        [
            network_outputs(fixed | {"a": row[None]}, problem.attended, arch)[:, 0]
            for row in jnp.eye(units)
        ],
        axis=1,
    )
    precision = features.T @ features / temperature + np.eye(units) / arch.variances[-1]
    covariance = np.linalg.inv(precision)
    mean = covariance @ features.T @ np.asarray(problem.labels)[:, 0] / temperature

    whole = space_of(problem, "weights")
    space = ReadoutAlone(**vars(replace(whole, keep=("a",))), rest=fixed)
    chains = sampled(space, Nuts(max_tree_depth=6), chains=4, warmup=300, draws=1000, seed=5)
    draws = chains.draws["a"][:, :, 0]
    ess = array_stats.ess(draws, chain_axis=0, draw_axis=1)
    estimate = mean_of(draws)
    assert_within_mcse(estimate.value, mean, estimate.mcse, ess=ess, what="mean of a")
    deviations = draws - mean
    products = deviations[..., :, None] * deviations[..., None, :]
    estimate = mean_of(products)
    # 28 different entries
    assert_within_mcse(estimate.value, covariance, estimate.mcse, k=4.5, what="covariance of a")
