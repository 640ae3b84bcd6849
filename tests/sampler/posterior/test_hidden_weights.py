"""The readout integrated out of any network: against dense Gaussians, and all weights."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.infer.util import log_density
from sampler.posterior.density import TEMPERATURE, specialised
from sampler.posterior.numpyro_model import make_numpyro_model
from sampler.posterior.pointwise import LabelledExamples

from sampler.network import network_outputs, overlaps
from sampler.posterior.hidden_weights import NewIndependentLabels, ReadoutPosterior
from sampler.posterior.spaces import make_density
from sampler.token_network import predict_split
from tests.assertions import assert_equal_in_float32, assert_equal_to_rounding, assert_within_mcse
from tests.problems import random_problem
from tests.token_networks import KINDS, random_token_problem
from theory import Architecture

DRAWS = 40_000
LINEAR = Architecture((2,), (4, 3), (0.7, 1.3, 0.6), channels=5, outputs=2)
SPREADS = 0.5


def posed(name: str, rng):
    """Densities of hidden and of all weights, the forward pass, examples, labels and 𝒯."""
    if name == "linear":
        arch = LINEAR
        problem = replace(random_problem(arch, rng, examples=7), temperature_spread=SPREADS)
        test = jnp.asarray(rng.standard_normal((3, 2, 5)))
        training = LabelledExamples(problem.attended, problem.labels)
        hidden, whole = (
            make_density(space, problem, test, True, training=training)
            for space in ("hidden_weights", "weights")
        )
        predict = specialised(network_outputs, architecture=arch.sizes)
        return hidden, whole, predict, problem.attended, test, arch
    problem = random_token_problem(name, rng)
    hidden, whole = (
        problem.density(space, "float64", True) for space in ("hidden_weights", "weights")
    )
    predict = specialised(predict_split, network=problem.network)
    arrays = problem.train.arrays, problem.test.arrays
    return hidden, whole, predict, *arrays, problem.network


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


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["linear", *KINDS])
def test_labels_predictors_and_left_out_examples_are_those_of_a_dense_gaussian(name, rng):
    hidden, whole, predict, inputs, test, arch = posed(name, rng)
    position = hidden.draw_prior(jax.random.key(1))
    labels = np.asarray(hidden.arguments[1])
    columns = dense_columns(predict, position, inputs, arch)
    of_test = dense_columns(predict, position, test, arch)
    ratio = np.exp(np.asarray(position.get(TEMPERATURE, np.zeros(1))))[0]
    temperature = ratio * float(hidden.arguments[2])
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

    found = jax.jit(hidden.observables)(jax.random.key(2), position)
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
    posterior = ReadoutPosterior.of(jnp.asarray(columns), jnp.asarray(labels), 0.3)
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


def test_new_labels_are_gaussian_given_the_others(rng):
    known, new = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    labels, values = rng.standard_normal((5, 2)), rng.standard_normal((4, 2))
    arrays = (jnp.asarray(new), jnp.asarray(0.3), jnp.asarray(known), jnp.asarray(labels))
    law = NewIndependentLabels(*arrays)
    noisy = known @ known.T + 0.3 * np.eye(5)
    mean = new @ known.T @ np.linalg.solve(noisy, labels)
    covariance = new @ new.T + 0.3 * np.eye(4)
    covariance -= new @ known.T @ np.linalg.solve(noisy, known @ new.T)
    expected = sum(
        scipy.stats.multivariate_normal(mean[:, c], covariance).logpdf(values[:, c])
        for c in range(2)
    )
    assert_equal_to_rounding(
        float(law.log_prob(jnp.asarray(values))), expected,
        operations=100, condition=np.linalg.cond(noisy), scale=values.size,
    )  # fmt: skip
    drawn = np.asarray(law.sample(jax.random.key(4), (DRAWS,)))
    deviation = np.sqrt(np.diagonal(covariance))[:, None] / np.sqrt(DRAWS)
    assert_within_mcse(drawn.mean(axis=0), mean, deviation)
    variance = np.diagonal(covariance)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / DRAWS)
    assert_within_mcse(np.cov(drawn[..., 1].T), covariance, error)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["linear", "relu"])
def test_the_numpyro_model_is_the_density(name, rng):
    sites = ("predictor_mean", "predictor_variance")
    if name == "linear":
        problem = replace(random_problem(LINEAR, rng, examples=7), temperature_spread=SPREADS)
        test = problem.attended[:3]
        density = make_density("hidden_weights", problem, test, False)
        model, known = make_numpyro_model("hidden_weights", problem, test, sites)
    else:
        problem = random_token_problem(name, rng)
        density = problem.density("hidden_weights", "float64", False)
        model, known = problem.numpyro_model("hidden_weights", sites)
    position = density.draw_prior(jax.random.key(1))
    received, trace = log_density(model, (), known, position)
    expected = density.log_density(position)
    assert_equal_to_rounding(float(received), float(expected), operations=1000)
    found = density.observables(jax.random.key(0), position)
    for site in sites:
        one = np.reshape(trace[site]["value"], found[site].shape)
        assert_equal_to_rounding(one, found[site], operations=1000)
