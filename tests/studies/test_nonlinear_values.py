"""Order parameters of all heads: loops over the definition, the linear theory, infinite width."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

from runs.studies.nonlinear_values.mathematics import (
    HeadsEnergy,
    kernel_parts,
    kernels_by_heads,
    mean_slope,
    solve_by_heads,
)
from tests.assertions import assert_equal_to_rounding
from tests.problems import READOUTS, order_parameters_of, random_order_parameters
from tests.theory.nonlinear import CASES, DEFINITIONS, by_quadrature, nonlinear_problem
from theory import (
    Architecture,
    LearningProblem,
    OrderParameters,
    Predictor,
    predict,
    solve_saddle_point,
)
from theory.nonlinear_kernels import first_moment, kernels_at, pair_moment

OUTPUTS = Architecture((3, 2), (23, 9, 7), (0.9, 1.5, 0.6, 1.3), 4, 2)


@pytest.mark.parametrize("values", DEFINITIONS)
def test_mean_slopes_are_those_of_quadrature(values):
    """To the error of quadrature: below 10⁻¹⁰ of numbers of order 1."""
    cases = CASES[CASES[:, 2] > 0]
    expected = np.array([by_quadrature(values, *case)[2] for case in cases])
    received = mean_slope(jnp.asarray(cases[:, 2]), values)
    assert np.abs(received - expected).max() < 1e-10


def kernel_by_loops(problem, data, overlaps) -> np.ndarray:
    """K of all examples of `data`, every sum over heads and tokens written out; one output."""
    arch, values = problem.architecture, problem.values
    examples, tokens, _ = data.inputs.shape
    heads, variances = arch.heads, arch.variances
    places = list(product(range(examples), range(tokens)))
    flat = data.inputs.reshape(examples * tokens, -1)
    Q = variances[0] * flat @ flat.T / arch.channels  # over (example, token)
    readout = READOUTS[data.readout](tokens)
    slopes, rests = [], []
    for layer, count in enumerate(heads):
        units = variances[layer + 1] * Q
        diagonal = jnp.asarray(np.diagonal(units))
        mean, slope = (np.asarray(f(diagonal, values)) for f in (first_moment, mean_slope))
        rows = jnp.broadcast_to(diagonal[:, None], units.shape)
        moment = np.asarray(pair_moment(rows, jnp.asarray(units), rows.T, values))
        omega, above, linear = data.attention[layer], np.zeros_like(Q), np.zeros_like(Q)
        for (i, (x, t)), (j, (z, u)) in product(enumerate(places), repeat=2):
            for h, g, s, v in product(range(count), range(count), range(tokens), range(tokens)):
                weight = omega[x, h, s, t] * omega[z, g, v, u] / count
                p, q = x * tokens + s, z * tokens + v
                above[i, j] += weight * (moment[p, q] if h == g else mean[p] * mean[q])
                if h == g:
                    linear[i, j] += weight * slope[p] * units[p, q] * slope[q]
        slopes.append(slope.reshape(examples, tokens))
        rests.append(above - linear)
        Q = above

    def tail(path, x):
        """Keys of the layer below the heads of a path, as the readout weighs them."""
        vector = readout
        for layer in reversed(range(len(heads) - len(path), len(heads))):
            head = path[layer - len(heads) + len(path)]
            vector = slopes[layer][x] * (data.attention[layer][x, head] @ vector)
            vector = vector / np.sqrt(heads[layer])
        return vector

    found = np.zeros((examples, examples))
    for below, rest in enumerate([None, *rests]):
        paths = list(product(*map(range, heads[below:])))
        for (a, one), (b, other) in product(enumerate(paths), repeat=2):
            for x, z in product(range(examples), repeat=2):
                left, right = tail(one, x), tail(other, z)
                if rest is None:
                    block = data.inputs[x] @ data.inputs[z].T * variances[0] / arch.channels
                else:
                    block = rest.reshape(examples, tokens, examples, tokens)[x, :, z]
                found[x, z] += overlaps[below][a, b] * (left @ block @ right)
    return found


def test_the_kernel_is_that_of_loops_over_heads_and_tokens(rng):
    arch = Architecture((2, 2), (5, 6, 4), (0.9, 1.5, 0.6, 1.3), 3)
    problem, _, (data, _) = nonlinear_problem(arch, "erf", rng, examples=2, tokens=2)
    overlaps = random_order_parameters(arch, rng)
    expected = kernel_by_loops(problem, data, overlaps)
    order_parameters = order_parameters_of(overlaps)
    received = kernels_by_heads(problem, order_parameters, problem.train)
    assert_equal_to_rounding(received.train, expected, operations=1000)
    assert_equal_to_rounding(received.cross, expected, operations=1000)
    assert_equal_to_rounding(received.prior, np.diagonal(expected), operations=1000)


@pytest.mark.slow
def test_linear_values_give_the_linear_theory(rng):
    arch = OUTPUTS
    problem, test, (data, tested) = nonlinear_problem(arch, "linear", rng, examples=8)
    learning = LearningProblem(arch, data.attended, problem.labels, problem.temperature)
    expected, received = solve_saddle_point(learning), solve_by_heads(problem)
    assert received.converged
    assert received.action == pytest.approx(expected.action, rel=1e-10)
    factors = expected.order_parameters.factors
    energy = HeadsEnergy(kernel_parts(problem, problem.train), problem.labels, problem.temperature)
    assert_equal_to_rounding(
        energy.of_layers(factors), learning.energy(factors[0]), operations=1000, condition=100
    )
    pairs = zip(received.order_parameters.matrices, expected.order_parameters.matrices, strict=True)
    for one, other in pairs:
        # |gradient| ≤ 10⁻¹⁰ at both, over the smallest eigenvalue of the Hessian.
        limit = 1e-9 / expected.smallest_hessian_eigenvalue
        np.testing.assert_allclose(one, other, rtol=0, atol=limit * np.abs(other).max())
    mean, variance, _ = kernels_by_heads(problem, expected.order_parameters, test).regression(
        problem.labels.reshape(-1, 1), problem.temperature
    )
    known = predict(Predictor.for_examples(learning, tested.attended), factors[0])
    for found, one in zip((mean, variance), known, strict=True):
        np.testing.assert_allclose(found.reshape(one.shape), one, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_infinite_width_is_where_all_order_parameters_are_those_of_the_prior(rng):
    problem, test, _ = nonlinear_problem(OUTPUTS, "relu", rng)
    limit = OrderParameters.gp_limit(OUTPUTS)
    received, expected = kernels_by_heads(problem, limit, test), kernels_at(problem, test)
    outputs = np.eye(2)
    for name in ("train", "cross"):
        both = np.kron(getattr(expected, name), outputs)
        assert_equal_to_rounding(getattr(received, name), both, operations=200)
    assert_equal_to_rounding(received.prior, np.repeat(expected.prior, 2), operations=200)
