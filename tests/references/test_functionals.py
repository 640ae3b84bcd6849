"""Functionals of draws against their definitions, and expectations against simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import multivariate_normal, norm

from sampler.analysis.functionals import (
    PROBABILITIES,
    FunctionalsOfData,
    deviations,
    expectations_of_chains,
    expectations_of_predictor,
    expectations_of_weighted,
    quantile_errors,
    slowest_directions,
    stored_elements,
    weighted_quantiles,
)

P, TESTS, PATHS, D, OUTPUTS, TEMPERATURE = 4, 3, 2, 5, 2, 0.3


@pytest.fixture
def problem(rng):
    attended = rng.standard_normal((P + TESTS, PATHS, D))
    labels, tests = rng.standard_normal((P, OUTPUTS)), rng.standard_normal((TESTS, OUTPUTS))
    return FunctionalsOfData(labels, tests, TEMPERATURE, attended, 1.0 / (D * PATHS))


@pytest.fixture
def matrices(rng):
    root = rng.standard_normal((1, 2, PATHS * OUTPUTS, PATHS * OUTPUTS))
    return root @ np.swapaxes(root, -1, -2)


def kernel_by_loops(problem, U):
    size = P + TESTS
    K = np.zeros((size * OUTPUTS, size * OUTPUTS))
    for x, y in np.ndindex(size, size):
        for c, e in np.ndindex(OUTPUTS, OUTPUTS):
            for p, q in np.ndindex(PATHS, PATHS):
                product = problem.attended[x, p] @ problem.attended[y, q] / (D * PATHS)
                K[x * OUTPUTS + c, y * OUTPUTS + e] += U[p * OUTPUTS + c, q * OUTPUTS + e] * product
    return K


def test_functionals_are_those_of_their_definitions(problem, matrices):
    found = problem.of_order_parameters({"order_parameter": matrices})
    known = P * OUTPUTS
    for draw in range(2):
        K = kernel_by_loops(problem, matrices[0, draw])
        noisy = K[:known, :known] + TEMPERATURE * np.eye(known)
        y = problem.labels.ravel()
        cross = K[known:, :known]
        mean = cross @ np.linalg.inv(noisy) @ y
        variance = np.diag(K[known:, known:] - cross @ np.linalg.inv(noisy) @ cross.T)
        density = multivariate_normal(np.zeros(known), noisy).logpdf(y)
        energy = -2 * density - known * np.log(2 * np.pi)
        np.testing.assert_allclose(found["predictor_mean"][0, draw], mean, rtol=1e-10)
        np.testing.assert_allclose(found["predictor_variance"][0, draw], variance, rtol=1e-9)
        np.testing.assert_allclose(found["energy"][0, draw], energy, rtol=1e-10)
        pairs = [K[known + 2 * i, known + 2 * ((i + 1) % TESTS)] for i in range(TESTS)]
        np.testing.assert_allclose(found["kernel"][0, draw], pairs, rtol=1e-10)
        right = [
            mean[2 * i : 2 * i + 2].argmax() == problem.labels_test[i].argmax()
            for i in range(TESTS)
        ]
        assert found["accuracy"][0, draw, 0] == np.mean(right)
        upper = matrices[0, draw][np.triu_indices(PATHS * OUTPUTS)]
        np.testing.assert_allclose(found["order_parameter"][0, draw], upper)


def test_of_large_order_parameters_diagonals_are_stored():
    assert len(stored_elements({"a": 13})["a"]) == 91
    assert stored_elements({"a": 14, "b": 1}) == {"a": [(i, i) for i in range(14)], "b": [(0, 0)]}


@pytest.mark.parametrize("heads", [2, 7])
def test_no_linear_function_of_an_overlap_relaxes_more_slowly(heads, rng):
    """Var Tr A U/E|∇ Tr A U|² by automatic differentiation with respect to weights, as drawn.

    With seven heads and two outputs diagonals are stored alone.
    """
    draws, width, outputs = 400, 5, 2
    readout = rng.standard_normal((draws, outputs, width)) * np.array([[1.0], [2.0]])
    values = rng.standard_normal((draws, heads, width, width))

    def overlap(readout, values):
        rows = jnp.einsum("ri,hij->hrj", readout, values) / np.sqrt(width)
        rows = rows.reshape(heads * outputs, width)
        return rows @ rows.T / width

    def top(readout, _):
        return readout @ readout.T / width

    matrices = {"order_parameter": overlap, "readout_order_parameter": top}
    seen = {name: jax.vmap(of)(readout, values)[None] for name, of in matrices.items()}
    found = slowest_directions({name: np.asarray(one) for name, one in seen.items()})
    assert found.keys() == matrices.keys()
    chosen = stored_elements({name: one.shape[-1] for name, one in seen.items()})
    for (name, of), weights in zip(matrices.items(), (1, 0), strict=True):
        rows, columns = np.transpose(chosen[name])
        jacobian = jax.vmap(jax.jacobian(lambda *w: of(*w)[rows, columns], weights))  # noqa: B023
        slopes = np.asarray(jacobian(readout, values)).reshape(draws, len(rows), -1)
        elements = np.asarray(seen[name])[0][:, rows, columns]

        def time(a, elements=elements, slopes=slopes):
            return np.var(elements @ a) / np.mean(np.sum((a @ slopes) ** 2, axis=-1))

        direction = np.array(found[name])
        assert np.abs(direction).max() == 1
        others = direction + rng.choice([0.01, 0.1, 10.0], (300, 1)) * rng.standard_normal(
            (300, len(rows))
        )
        assert max(map(time, others)) < time(direction) * (1 + 1e-6)


def test_an_overlap_that_is_a_number_or_fixed_has_no_direction(rng):
    numbers = rng.random((2, 9, 1, 1))
    fixed = np.broadcast_to(np.eye(2), (2, 9, 2, 2))
    assert slowest_directions({"order_parameter": fixed, "readout_order_parameter": numbers}) == {}


def test_errors_of_chains_are_those_of_repeated_chains(rng):
    """z of correlated chains with known moments and quantiles have unit variance.

    200 numbers of each statistic: their variance is known to 10 %, the limit is four times that.
    """
    correlation, z, off = 0.6, [], []
    quantiles = norm.ppf(PROBABILITIES)[:, None]
    for _ in range(50):
        noise = np.sqrt(1 - correlation**2) * rng.standard_normal((4, 2000, 4))
        noise[:, 0] /= np.sqrt(1 - correlation**2)
        chains = lfilter([1.0], [1.0, -correlation], noise, axis=1)
        found = expectations_of_chains(chains, np.zeros(4), quantiles)
        truth = np.array([0, 1, 0, 3, *PROBABILITIES])[:, None] * np.ones(4)
        exact = found._replace(means=truth, errors=np.zeros_like(truth))
        z.append(deviations(found, exact)[[0, 1, 4, 5, 6, 7, 8]])
        of_quantiles = quantile_errors(chains, found.errors[4:])
        off.append((np.quantile(chains, PROBABILITIES, axis=(0, 1)) - quantiles) / of_quantiles)
    for numbers in (np.array(z), np.array(off)):
        spread = (numbers**2).mean(axis=(0, 2))
        assert np.all(np.abs(spread - 1) < 0.4), spread


def test_errors_of_weighted_draws_are_those_of_repeated_draws(rng):
    """The spread of 400 means is known to 3.5 %, the limit is four and a half times that."""
    means, errors, quantiles = [], [], norm.ppf(PROBABILITIES)[:, None]
    for points in 0.8 + rng.standard_normal((400, 500, 1)):
        weights = np.exp(-0.8 * points[:, 0])
        found = expectations_of_weighted(points, weights / weights.sum(), np.zeros(1), quantiles)
        means.append(found.means[[0, 1, 4, 5, 6, 7, 8]])
        errors.append(found.errors[[0, 1, 4, 5, 6, 7, 8]])
    expected = np.sqrt(np.mean(np.square(errors), axis=0))
    ratio = np.std(means, axis=0, ddof=1) / expected
    assert np.all(np.abs(ratio - 1) < 4.5 * 0.035), ratio


def test_weighted_draws_have_the_means_of_what_they_stand_for(rng):
    points = 1.5 * rng.standard_normal((40_000, 1))
    weights = norm.pdf(points[:, 0]) / norm.pdf(points[:, 0], scale=1.5)
    weights /= weights.sum()
    found = expectations_of_weighted(points, weights, np.zeros(1), norm.ppf(PROBABILITIES)[:, None])
    truth = np.array([0, 1, 0, 3, *PROBABILITIES])
    assert np.all(np.abs(found.means[:, 0] - truth) < 4.5 * found.errors[:, 0])
    quantiles = weighted_quantiles(points, weights)[:, 0]
    assert np.all(np.abs(quantiles - norm.ppf(PROBABILITIES)) < 0.05)
    mirrored = weighted_quantiles(-points[:50], weights[:50] / weights[:50].sum())[::-1]
    expected = weighted_quantiles(points[:50], weights[:50] / weights[:50].sum())
    np.testing.assert_allclose(-mirrored, expected, rtol=1e-9)


def test_moments_of_f_follow_from_mean_and_variance(rng):
    """Against draws of f itself."""
    mean, variance = rng.standard_normal((4, 4000, 1)), rng.gamma(2.0, size=(4, 4000, 1))
    f = mean + np.sqrt(variance) * rng.standard_normal(mean.shape)
    centre = np.array([0.3])
    found = expectations_of_predictor(mean, variance, centre)
    drawn = expectations_of_chains(f, centre, np.zeros((0, 1)))
    assert np.all(np.abs(deviations(drawn, found)) < 4.5)
    assert np.all(found.errors < drawn.errors)
