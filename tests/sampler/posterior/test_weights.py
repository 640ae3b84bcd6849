"""Weights from the prior: their overlaps are a chain of Wishart matrices."""

import jax
import numpy as np
import pytest

from sampler.network import overlaps
from tests.assertions import assert_within_mcse
from tests.problems import ARCHITECTURES, random_problem, space_of

DRAWS = 8_000


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["two layers", pytest.param("narrow", marks=pytest.mark.long)])
def test_prior_overlaps_have_the_moments_of_a_chain_of_wishart_matrices(name, rng):
    """E[U_l] = σ_l² ⋯ σ_a² · 1, the variance of U_a, and second moments of U_L given U_a."""
    arch = ARCHITECTURES[name]
    space = space_of(random_problem(arch, rng), "weights")
    keys = jax.random.split(jax.random.key(3), DRAWS)
    draw = jax.jit(jax.vmap(lambda key: overlaps(space.draw_prior(key), arch)))
    received = [np.asarray(overlap) for overlap in draw(keys)]
    scale = 1.0
    for layer in range(arch.layers + 1, 0, -1):
        overlap = received[layer - 1]
        scale *= arch.variances[layer]
        mcse = overlap.std(axis=0, ddof=1) / np.sqrt(DRAWS)
        expected = scale * np.eye(overlap.shape[1])
        # up to 144 correlated entries over all layers: 5 standard errors
        assert_within_mcse(overlap.mean(axis=0), expected, mcse, k=5, what=f"E[U_{layer}]")
    top, variance = received[-1], arch.variances[-1]
    # Wishart with N_a degrees of freedom: Var U_ij = σ⁴ (1 + δ_ij) / N_a
    squares = (top - variance * np.eye(arch.outputs)) ** 2
    mcse = squares.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    expected = variance**2 * (1 + np.eye(arch.outputs)) / arch.widths[-1]
    assert_within_mcse(squares.mean(axis=0), expected, mcse, what="Var[U_a]")
    below, variance = received[-2], arch.variances[arch.layers]
    # given U_a: E[U_ij²] = σ⁴ (G_ij² + (G_ij² + G_ii G_jj)/N_L), G = 1 ⊗ U_a; average over U_a
    gram = np.einsum("hk,xcd->xhckd", np.eye(arch.heads[-1]), top)
    gram = gram.reshape(DRAWS, *below.shape[1:])
    diagonal = np.einsum("xii->xi", gram)
    products = diagonal[:, :, None] * diagonal[:, None, :]
    given = variance**2 * (gram**2 + (gram**2 + products) / arch.widths[-2])
    difference = below**2 - given
    mcse = difference.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    assert_within_mcse(difference.mean(axis=0), 0.0, mcse, what="E[U_L²]")
