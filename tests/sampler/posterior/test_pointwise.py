"""The labels of training examples as draws see them, and draws without data."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sampler.posterior.pointwise import LabelledExamples
from sampler.posterior.prior import prior_draws

from sampler.network import network_outputs
from sampler.posterior.spaces import make_density
from tests.assertions import assert_within_mcse
from tests.problems import ARCHITECTURES, random_problem
from theory import Features, Predictor, compress, path_features

DRAWS = 20_000
SPACES = ("order_parameters", "hidden_weights", "weights")


def training_of(problem):
    return LabelledExamples(problem.attended, problem.labels)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["one layer", "one layer, two outputs"])
def test_new_labels_of_the_collapsed_space_have_the_law_of_the_predictor(name, rng):
    """Given U_1, mean m(x) and variance v(x) + 𝒯 at the training inputs."""
    problem = random_problem(ARCHITECTURES[name], rng, temperature=0.5)
    density = make_density(
        "order_parameters", problem, problem.attended[:1], False, False, training_of(problem)
    )
    position = density.draw_prior(jax.random.key(2))
    seen = density.seen(jax.random.key(0), position)
    keys = jax.random.split(jax.random.key(1), DRAWS)
    labels = jax.jit(jax.vmap(lambda key: density.completed(key, seen)["posterior_predictive"]))
    received = np.asarray(labels(keys), float).reshape(DRAWS, -1)
    mean, variance = Predictor.for_examples(problem, problem.attended)(seen["kernel_factor"])
    expected = np.asarray(variance).ravel() + problem.temperature
    assert_within_mcse(received.mean(axis=0), np.ravel(mean), np.sqrt(expected / DRAWS))
    error = expected * np.sqrt(2.0 / DRAWS)
    assert_within_mcse(received.var(axis=0), expected, error)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["one layer", "one layer, two outputs"])
@pytest.mark.parametrize("compressed", [False, True])
def test_labels_given_the_others_have_the_law_of_a_refit(name, compressed, rng):
    """Mean and covariance of the first example's labels, from the kernel machine without it."""
    arch = ARCHITECTURES[name]
    examples = arch.path_count * arch.channels + 3 if compressed else 6
    problem = random_problem(arch, rng, examples=examples, temperature=0.5)
    training = LabelledExamples(problem.attended, problem.labels, rows=compressed)
    learning = compress(problem) if compressed else problem
    density = make_density(
        "order_parameters", learning, problem.attended[:1], False, False, training
    )
    seen = density.seen(jax.random.key(0), density.draw_prior(jax.random.key(2)))
    keys = jax.random.split(jax.random.key(1), DRAWS)
    drawn = jax.jit(jax.vmap(lambda key: density.completed(key, seen)["leave_one_out_predictive"]))
    received = np.asarray(drawn(keys)[:, 0], float)
    kernel = Features(problem.features, None).kernel(seen["kernel_factor"])
    noisy, first = np.asarray(kernel) + 0.5 * np.eye(len(kernel)), arch.outputs
    weights = np.linalg.solve(noisy[first:, first:], noisy[first:, :first])
    mean = np.asarray(problem.labels)[1:].ravel() @ weights
    covariance = noisy[:first, :first] - noisy[:first, first:] @ weights
    variance = np.diagonal(covariance)
    assert_within_mcse(received.mean(axis=0), mean, np.sqrt(variance / DRAWS))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / DRAWS)
    assert_within_mcse(np.atleast_2d(np.cov(received.T)), covariance, error)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES)
def test_new_labels_are_those_of_the_network_of_the_draw(space, rng):
    """At a tiny temperature they are its outputs, whatever it is that was sampled."""
    arch = ARCHITECTURES["one layer"]
    problem = random_problem(arch, rng, temperature=1e-8)
    attended = problem.attended
    density = make_density(space, problem, attended, False, False, training_of(problem))
    key = jax.random.key(3)
    found = density.observables(key, density.draw_prior(key))
    np.testing.assert_allclose(
        found["posterior_predictive"], found["predictor"], rtol=1e-4, atol=6e-4
    )


@pytest.mark.heavy
@pytest.mark.parametrize("space", ["order_parameters", "hidden_weights"])
def test_rows_say_of_their_examples_what_the_examples_say(space, rng):
    arch = ARCHITECTURES["one head"]
    problem = random_problem(arch, rng, examples=9)
    rows = compress(problem)
    whole = LabelledExamples(problem.attended, problem.labels, rows=True)
    key, found = jax.random.key(5), []
    for learning, training in ((problem, training_of(problem)), (rows, whole)):
        density = make_density(space, learning, problem.attended, False, False, training)
        found.append(density.observables(key, density.draw_prior(key)))
    one, other = found
    np.testing.assert_allclose(one["log_likelihood"], other["log_likelihood"], rtol=1e-5)
    assert one["posterior_predictive"].shape == other["posterior_predictive"].shape == (9, 1)


def test_draws_without_data_have_the_law_of_the_prior(rng):
    """E[U_l] = σ_a² … σ_l² 1, and labels vary by E[K(x, x)] + 𝒯."""
    arch = ARCHITECTURES["two layers"]
    problem = random_problem(arch, rng, temperature=0.7)
    drawn = prior_draws(problem, training_of(problem), 4000, 1)
    variances = np.cumprod(arch.order_parameter_variances[::-1])[::-1]
    names = ("order_parameter", "order_parameter_layer_2", "readout_order_parameter")
    for name, variance in zip(names, variances, strict=True):
        values = drawn[name]
        error = values.std(axis=0) / np.sqrt(len(values))
        assert_within_mcse(values.mean(axis=0), variance * np.eye(values.shape[1]), error)
    features = path_features(problem.attended, arch.variances[0])
    limit = jnp.sqrt(variances[0]) * jnp.eye(arch.path_count)
    expected = np.diagonal(Features(features, None).kernel(limit)) + problem.temperature
    squares = np.asarray(drawn["posterior_predictive"], float)[..., 0] ** 2
    error = squares.std(axis=0) / np.sqrt(len(squares))
    assert_within_mcse(squares.mean(axis=0), expected, error)


@pytest.mark.heavy
def test_draws_without_data_have_the_law_of_networks_drawn_from_the_prior(rng):
    """Labels of the Wishart chain against those of weights, the temperature having a prior, too."""
    problem = random_problem(ARCHITECTURES["two layers"], rng, temperature=0.7)
    arch = problem.architecture
    problem = replace(problem, temperature_spread=0.3)
    received = prior_draws(problem, training_of(problem), 4000, 1)
    expected = {"temperature": [], "posterior_predictive": []}
    outputs_of = jax.jit(lambda weights: network_outputs(weights, problem.attended, arch))
    for _ in range(4000):
        weights = {
            name: arch.weight_variances[name] ** 0.5 * rng.standard_normal(shape)
            for name, shape in arch.weight_shapes.items()
        }
        temperature = 0.7 * np.exp(0.3 * rng.standard_normal())
        outputs = np.asarray(outputs_of(weights))
        expected["temperature"].append(temperature)
        noise = temperature**0.5 * rng.standard_normal(outputs.shape)
        expected["posterior_predictive"].append(outputs + noise)
    for name, values in expected.items():
        first, second = (np.log1p(np.asarray(one, float) ** 2) for one in (received[name], values))
        error = np.hypot(first.std(axis=0), second.std(axis=0)) / np.sqrt(4000)
        assert_within_mcse(first.mean(axis=0), second.mean(axis=0), error, what=name)


def test_the_log_prior_is_that_of_the_position(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    density = make_density("weights", problem, problem.attended[:1], False)
    position = density.draw_prior(jax.random.key(1))
    received = density.observables(jax.random.key(0), position)["log_prior"]
    expected = 0.0
    for name, variance in problem.architecture.weight_variances.items():
        values = np.asarray(position[name])
        expected -= 0.5 * np.sum(values**2 / variance + np.log(2 * np.pi * variance))
    np.testing.assert_allclose(received, expected, rtol=1e-12)
