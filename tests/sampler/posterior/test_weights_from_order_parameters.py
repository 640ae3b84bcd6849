"""Exact weights from draws of the order parameters: overlaps, joint law, residuals, predictions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.network import network_outputs, overlaps
from sampler.posterior.order_parameters import bartlett_matrices, stored_sites
from sampler.posterior.weights_from_order_parameters import (
    draw_weights,
    draw_weights_back,
    orthonormal_rows,
)
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import ARCHITECTURES, random_problem, space_of, weight_variances
from theory import Architecture
from theory.learning_problem import LabelEnergy
from theory.path_kernels import Features
from theory.wishart_chain import WishartChain, chain_factors

# Small enough for every pair of weights to be compared; p_l > N_l in the narrow ones.
SMALL = {
    "one layer, narrow, two outputs": Architecture((2,), (3, 1), (0.7, 1.3, 0.6), 2, outputs=2),
    "two layers, three outputs": Architecture((1, 2), (8, 7, 4), (0.9, 1.5, 0.6, 1.3), 2, 3),
}


# No data to speak of.
HOT = pytest.param("one layer, narrow, two outputs", 1e16, marks=pytest.mark.nightly)


def factors_at(position, chain: WishartChain):
    """Factors F_1 … F_{L+1} with U_l = F_l F_lᵀ."""
    return chain_factors(bartlett_matrices(position, chain), chain.heads, chain.scales)


def weights_of(problem, positions, count, seed):
    """Weight draws of a learning problem."""
    space = space_of(problem, whitened=False)
    return draw_weights_back(space, problem.architecture, positions, count, seed)


def prior_positions(rng, architecture, *shape):
    """Bartlett coordinates drawn from the prior by NumPy, `shape` of them."""
    positions = {}
    links = zip(architecture.widths, architecture.bartlett_shapes, strict=True)
    for layer, (width, bartlett) in enumerate(links, start=1):
        degrees = width - np.arange(bartlett.rank)
        chi = np.sqrt(rng.chisquare(degrees, (*shape, bartlett.rank)))
        positions[f"chi_{layer}"] = np.sqrt(2 * degrees) * np.log(chi / np.sqrt(degrees))
        below = rng.standard_normal((*shape, bartlett.below_diagonal))
        positions[f"lower_{layer}"] = below
    return positions


def most_standard_errors(comparisons: int) -> float:
    """How far the worst of that many normal deviates is, once in 10,000 tests."""
    return float(scipy.stats.norm.isf(0.5e-4 / comparisons))


@pytest.mark.parametrize("condition", [1.0, 1e12])
def test_orthonormal_rows_span_the_rows_of_any_matrix(condition, rng):
    """Q Qᵀ = 1 to rounding; matrix · Qᵀ is lower triangular and holds the whole matrix."""
    rows, width = 5, 8
    mix = np.linalg.qr(rng.standard_normal((rows, rows)))[0] * np.geomspace(1, 1 / condition, rows)
    matrix = mix @ rng.standard_normal((rows, width))
    basis = orthonormal_rows(matrix)
    assert_equal_to_rounding(basis @ basis.T, np.eye(rows), operations=2 * width, scale=1.0)
    triangle = matrix @ basis.T
    size = np.linalg.norm(matrix)
    assert_equal_to_rounding(triangle @ basis, matrix, operations=2 * rows * width, scale=size)
    above = np.triu(triangle, 1)
    assert_equal_to_rounding(above, 0 * above, operations=2 * rows * width, scale=size)
    assert np.all(np.diag(triangle) > 0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "temperature"), [*((name, 0.3) for name in SMALL), HOT])
def test_weights_and_labels_have_the_joint_law_of_the_generative_model(name, temperature, rng):
    """U from the prior, y given U_1, weights given U and y: weights, noise are independent normal.

    By the chain rule this is the joint law that draws weights from the prior and adds noise to f,
    so standardised weights and standardised noise y − f must be independent standard normal. At the
    high temperature there are no data to speak of: the weights are those of the prior.
    """
    arch = SMALL[name]
    draws = 10_000
    problem = random_problem(arch, rng, examples=4, temperature=temperature)
    features, attended = np.asarray(problem.features), problem.attended
    shape, chain = problem.labels.shape, jax.tree.map(np.asarray, WishartChain.of(arch))
    positions = prior_positions(rng, arch, draws)
    every, labels = {name: [] for name in arch.weight_shapes}, []
    for number in range(draws):
        position = {name: values[number] for name, values in positions.items()}
        energy = LabelEnergy(Features(features), np.zeros(shape), temperature)
        noisy = energy.noisy_kernel(factors_at(position, chain)[0])
        normal = rng.standard_normal(problem.labels.size)
        labels.append((noisy.cholesky @ normal).reshape(shape))
        matrices, posed = bartlett_matrices(position, chain), replace(energy, labels=labels[-1])
        for key, values in draw_weights(rng, matrices, posed, features, arch).items():
            every[key].append(values)
    weights = {key: np.stack(values) for key, values in every.items()}
    outputs = jax.jit(jax.vmap(lambda w: network_outputs(w, attended, arch)))(weights)
    noise = (np.stack(labels) - outputs) / temperature**0.5
    standard = [
        np.asarray(values).reshape(draws, -1) / weight_variances(arch)[k] ** 0.5
        for k, values in weights.items()
    ]
    noise = np.asarray(noise).reshape(draws, -1)
    joint = np.concatenate([*standard, noise], axis=1)
    size = joint.shape[1]

    k = most_standard_errors(size)
    assert_within_mcse(joint.mean(axis=0), 0.0, draws**-0.5, k=k, what="mean")
    identity = np.eye(size)
    mcse = np.sqrt((1 + identity) / draws)
    k = most_standard_errors(size * (size + 1) // 2)
    assert_within_mcse(joint.T @ joint / draws, identity, mcse, k=k, what="second moment")
    # Fourth moments in random directions: 3, with variance 105 − 9.
    directions = rng.standard_normal((size, 300))
    fourth = (joint @ (directions / np.linalg.norm(directions, axis=0))) ** 4
    k = most_standard_errors(300)
    assert_within_mcse(fourth.mean(axis=0), 3.0, (96 / draws) ** 0.5, k=k, what="fourth moment")
    # The noise knows nothing of f, which is a polynomial of degree L + 2 of the weights.
    f = np.asarray(outputs).reshape(draws, -1)
    for power in (1, 2):
        centred = noise**power - (power == 2)
        products = centred[:, :, None] * (f**power)[:, None, :]
        mcse = products.std(axis=0) / draws**0.5
        k = most_standard_errors(products[0].size)
        what = f"E[noise^{power} f^{power}]"
        assert_within_mcse(products.mean(axis=0), 0.0, mcse, k=k, what=what)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["two layers, three outputs", "narrow", "three layers, two outputs"]
)
def test_weights_belong_to_the_draws_they_are_said_to(name, rng):
    arch = ARCHITECTURES[name]
    problem = random_problem(arch, rng)
    positions = prior_positions(rng, arch, 2, 7)
    # files need not hold coordinates of size zero
    stored = {name: values for name, values in positions.items() if values.size}
    received = weights_of(problem, stored, 3, seed=1)
    np.testing.assert_array_equal(received.draws, [1, 3, 6])
    for key, shape in arch.weight_shapes.items():
        assert received.weights[key].shape == (2, 3, *shape)
    for chain in range(2):
        for row, draw in enumerate(received.draws):
            weights = {k: jnp.asarray(v[chain, row]) for k, v in received.weights.items()}
            position = {k: jnp.asarray(v[chain, draw]) for k, v in positions.items()}
            factors = factors_at(position, WishartChain.of(arch))
            for overlap, factor in zip(overlaps(weights, arch), factors, strict=True):
                np.testing.assert_allclose(overlap, factor @ factor.T, rtol=0, atol=1e-10)


def test_no_two_draws_share_their_random_numbers(rng):
    """Draws at the same place, of one chain or of two, have weights of their own."""
    arch = ARCHITECTURES["two layers"]
    positions = prior_positions(rng, arch, 1, 1)
    same = {name: np.tile(values, (2, 7, 1)) for name, values in positions.items()}
    received = weights_of(random_problem(arch, rng), same, 7, seed=1)
    for values in received.weights.values():
        assert len(np.unique(values.reshape(14, -1)[:, 0])) == 14


@pytest.mark.slow
def test_where_the_temperature_is_sampled_they_are_those_at_its_own(rng):
    """Of one draw, as `draws.nc` has it, many of the weights: the predictor's exact law."""
    problem = random_problem(ARCHITECTURES["two layers"], rng, temperature=0.3)
    problem = replace(problem, temperature_spread=0.5)
    space = space_of(problem, test=problem.attended[:2], whitened=False)
    position = space.unflatten(jnp.asarray(0.5 * rng.standard_normal(space.size)))
    observed = jax.jit(lambda at: space.observe(jax.random.key(1), at))(position)
    draws = {name: np.asarray(values)[None, None] for name, values in observed.items()}
    sites = stored_sites(draws, problem.temperature)
    assert sites.keys() == position.keys()
    for site, values in position.items():
        assert_equal_to_rounding(sites[site][0, 0], values, operations=10, scale=1.0, what=site)
    many = {n: np.broadcast_to(v[0, 0], (1, 4000, *v.shape[2:])) for n, v in sites.items()}
    drawn = draw_weights_back(space, problem.architecture, many, 4000, seed=2)
    outputs = jax.vmap(lambda w: network_outputs(w, problem.attended[:2], problem.architecture))(
        {n: jnp.asarray(v[0]) for n, v in drawn.weights.items()}
    )
    mean, variance = (observed[f"predictor_{moment}"] for moment in ("mean", "variance"))
    assert_within_mcse(outputs.mean(axis=0), mean, np.sqrt(variance / 4000))
    assert_within_mcse(outputs.var(axis=0), variance, variance * np.sqrt(2 / 4000))
