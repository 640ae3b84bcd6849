"""The readout integrated out of any network: against dense Gaussians, and all weights."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.network import network_outputs, overlaps
from sampler.posterior.hidden_weights import ReadoutPosterior
from sampler.posterior.space import TEMPERATURE
from sampler.problem import Problem
from sampler.token_network import predict_split
from tests.assertions import assert_equal_in_float32, assert_equal_to_rounding, assert_within_mcse
from tests.problems import random_problem
from tests.token_networks import random_token_problem
from theory import Architecture

DRAWS = 40_000
LINEAR = Architecture((2,), (4, 3), (0.7, 1.3, 0.6), channels=5, outputs=2)
SPREAD = 0.5


def posed(name: str, rng):
    """Spaces of hidden and of all weights, the forward pass, inputs, and the network."""
    if name == "linear":
        learning = replace(random_problem(LINEAR, rng, examples=7), temperature_spread=SPREAD)
        test = jnp.asarray(rng.standard_normal((3, 2, 5)))
        problem, network, forward = Problem(learning, test, None, (), ()), LINEAR, network_outputs
        arrays = learning.attended, test
    else:
        problem = random_token_problem(name, rng)
        network, forward = problem.network, predict_split
        arrays = problem.data.tokens, problem.data.tokens_test
    hidden, whole = (
        problem.space(space, keep=tuple(network.weight_shapes))
        for space in ("hidden_weights", "weights")
    )

    def predict(weights, inputs):
        return forward(weights, inputs, network)

    return hidden, whole, predict, *arrays, network


def dense_columns(predict, position, inputs, arch) -> np.ndarray:
    """σ_a times the output of every hidden unit by itself."""
    weights = {name: position[name] for name in arch.weight_shapes if name != "a"}

    @jax.jit
    def of_readout(readout):
        return predict({**weights, "a": readout}, inputs)[:, 0]

    scale = arch.variances[-1] ** 0.5
    shape = arch.weight_shapes["a"]
    units = [np.zeros(shape) for _ in range(shape[1])]
    for number, unit in enumerate(units):
        unit[0, number] = scale
    return np.stack([np.asarray(of_readout(jnp.asarray(unit))) for unit in units], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "block", "stream"])
def test_labels_predictors_and_left_out_examples_are_those_of_a_dense_gaussian(name, rng):
    hidden, whole, predict, inputs, test, arch = posed(name, rng)
    position = hidden.draw_prior(jax.random.key(1))
    labels = np.asarray(hidden.data.labels)
    columns = dense_columns(predict, position, inputs, arch)
    of_test = dense_columns(predict, position, test, arch)
    ratio = np.exp(np.asarray(position.get(TEMPERATURE, np.zeros(1))))[0]
    temperature = ratio * float(hidden.temperature)
    noisy = columns @ columns.T + temperature * np.eye(len(labels))
    condition = np.linalg.cond(noisy)

    # p(y | hidden weights), and p(hidden weights, y) = ∫ p(all weights, y) da, which is Gaussian.
    normal = scipy.stats.multivariate_normal(np.zeros(len(labels)), noisy)
    expected = sum(normal.logpdf(one) for one in labels.T)
    # Terms of the log density are larger than itself; solving magnifies rounding.
    rounding = {"operations": 100 * labels.size, "condition": condition, "scale": labels.size}
    received = float(hidden.log_likelihood(position))
    assert_equal_to_rounding(received, expected, **rounding)
    shape = arch.weight_shapes["a"]

    def of_readout(flat):
        return whole.log_density({**position, "a": flat.reshape(shape)})

    zero = jnp.zeros(np.prod(shape))
    derivatives = jax.jit(lambda x: (jax.grad(of_readout)(x), jax.hessian(of_readout)(x)))
    slope, curvature = derivatives(zero)
    determinant = np.linalg.slogdet(-np.asarray(curvature) / (2 * np.pi))[1]
    gained = -0.5 * slope @ np.linalg.solve(curvature, slope)
    expected = float(of_readout(zero) + gained - 0.5 * determinant)
    assert_equal_to_rounding(float(hidden.log_density(position)), expected, **rounding)

    found = jax.jit(hidden.observe)(jax.random.key(2), position)
    size = {"operations": 100 * labels.size, "condition": condition, "scale": np.abs(labels).max()}
    cross = of_test @ columns.T
    mean = cross @ np.linalg.solve(noisy, labels)
    assert_equal_to_rounding(found["predictor_mean"], mean, **size)
    variance = np.sum(of_test**2, axis=1) - np.sum(cross.T * np.linalg.solve(noisy, cross.T), 0)
    size["scale"] = np.sum(of_test**2, axis=1).max()
    variance = np.repeat(variance[:, None], labels.shape[1], axis=1)
    assert_equal_to_rounding(found["predictor_variance"], variance, **size)
    for example in range(len(labels)):
        others = np.arange(len(labels)) != example
        weights = np.linalg.solve(noisy[np.ix_(others, others)], noisy[others, example])
        deviation = np.sqrt(noisy[example, example] - noisy[example, others] @ weights)
        law = scipy.stats.norm(labels[others].T @ weights, deviation)
        expected = law.logpdf(labels[example]).sum()
        assert_equal_in_float32(
            np.asarray(found["log_likelihood"][example]), np.asarray(expected), 4
        )

    weights = {name: found[name] for name in arch.weight_shapes}
    assert {name: values.shape for name, values in weights.items()} == arch.weight_shapes
    outputs = predict(weights, test)
    scale = {"operations": 1000, "scale": np.abs(outputs).max()}
    assert_equal_to_rounding(found["predictor"], outputs, **scale)
    assert ("order_parameter" in found) is (name == "linear")
    if name == "linear":
        expected = overlaps(weights, arch)
        scale["scale"] = np.abs(expected[0]).max()
        assert_equal_to_rounding(found["order_parameter"], expected[0], **scale)


@pytest.mark.parametrize(("examples", "units"), [(9, 3), (3, 5)])
def test_the_readout_is_drawn_from_its_conditional(examples, units, rng):
    columns, labels = rng.standard_normal((examples, units)), rng.standard_normal((examples, 2))
    posterior = ReadoutPosterior.of(*map(jnp.asarray, (columns, labels, 0.3)))
    drawn = np.asarray(jax.vmap(posterior.draw)(jax.random.split(jax.random.key(3), DRAWS)))
    precision = columns.T @ columns / 0.3 + np.eye(units)
    covariance = np.linalg.inv(precision)
    mean = covariance @ columns.T @ labels / 0.3
    deviation = np.sqrt(np.diagonal(covariance))[:, None] / np.sqrt(DRAWS)
    assert_within_mcse(drawn.mean(axis=0), mean, deviation)
    variance = np.diagonal(covariance)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / DRAWS)
    for one in range(2):
        assert_within_mcse(np.cov(drawn[..., one].T), covariance, error)
    across = drawn[:, 0] - mean[0]
    error = variance[0] / np.sqrt(DRAWS)
    assert_within_mcse(np.mean(across[:, 0] * across[:, 1]), 0.0, error)
