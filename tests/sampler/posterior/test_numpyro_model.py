"""The exported models have the joint density of our own chains, and simulate what they describe."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats
from numpyro import handlers, infer
from numpyro.infer.util import log_density
from sampler.posterior.density import TEMPERATURE, weights_at
from sampler.posterior.numpyro_model import make_numpyro_model

from sampler.errors import InputError
from sampler.network import network_outputs, overlaps
from sampler.posterior.spaces import make_density
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    all_but,
    exact_scalar_posterior,
    random_problem,
    scalar_problem,
)
from theory import Architecture, Predictor
from theory.learning_problem import compress

SPACES = ("weights", "order_parameters")
SPREADS = 0.5
COLLAPSED = SPACES[1:]


def density_in(space, problem):
    """The posterior as our chains know it."""
    return make_density(space, problem, problem.attended[:1], False, whitened=False)


def drawn(density, rng) -> dict:
    """A random position."""
    return density.coordinates.unflatten(jnp.asarray(rng.standard_normal(density.coordinates.size)))


def traced(model, kwargs, position=(), seed: int = 0) -> dict:
    """Every site of the model, those of the position having its values."""
    seeded = handlers.seed(handlers.substitute(model, data=dict(position)), seed)
    return handlers.trace(seeded).get_trace(**kwargs)


def label_covariance(problem, overlap, position) -> np.ndarray:
    """K + 𝒯 1 from U_1 with every index written out, at the temperature of a position."""
    outputs, paths = problem.architecture.outputs, problem.architecture.path_count
    blocks = np.reshape(overlap, (paths, outputs, paths, outputs))
    features = np.asarray(problem.features)
    size = len(features) * outputs
    kernel = np.einsum("xpi,pcqd,yqi->xcyd", features, blocks, features).reshape(size, size)
    ratio = np.exp(position[TEMPERATURE][0]) if TEMPERATURE in position else 1.0
    return kernel + ratio * problem.temperature * np.eye(size)


@pytest.mark.heavy
@pytest.mark.parametrize("spreads", [0.0, SPREADS], ids=["known", "hyper-priors"])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_the_joint_density_is_that_of_our_chains_and_of_the_definition(name, space, spreads, rng):
    problem = replace(random_problem(ARCHITECTURES[name], rng), temperature_spread=spreads)
    ours = density_in(space, problem)
    model, kwargs = make_numpyro_model(space, problem, problem.attended[:1])
    position = drawn(ours, rng)
    received = float(log_density(model, (), kwargs, position)[0])
    assert received == pytest.approx(float(ours.log_density(position)), rel=1e-10)
    sites = traced(model, kwargs, position)
    assert {n for n, s in sites.items() if s["type"] == "sample" and n != "y"} == set(position)
    likelihood = float(jnp.sum(sites["y"]["fn"].log_prob(sites["y"]["value"])))
    labels = np.asarray(problem.labels)
    if space == "weights":
        outputs = network_outputs(
            weights_at(position, problem.architecture), problem.attended, problem.architecture
        )
        ratio = np.exp(position[TEMPERATURE][0]) if TEMPERATURE in position else 1.0
        noise = scipy.stats.norm(outputs, (ratio * problem.temperature) ** 0.5)
        expected = noise.logpdf(labels).sum()
    else:
        overlap = sites["order_parameter"]["value"]
        covariance = label_covariance(problem, overlap, position)
        normal = scipy.stats.multivariate_normal(np.zeros(labels.size), covariance)
        expected = normal.logpdf(labels.reshape(-1))
    assert likelihood == pytest.approx(expected, rel=1e-9)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES)
def test_order_parameters_are_always_sites(space, rng):
    problem = replace(
        random_problem(ARCHITECTURES["three layers, two outputs"], rng), temperature_spread=SPREADS
    )
    ours = density_in(space, problem)
    sites = traced(*make_numpyro_model(space, problem, problem.attended[:1]), drawn(ours, rng))
    position = {n: s["value"] for n, s in sites.items() if n in ours.coordinates.names}
    expected = ours.seen(jax.random.key(0), position)
    received = {n: s["value"] for n, s in sites.items() if s["type"] == "deterministic"}
    names = {
        "order_parameter",
        "order_parameter_layer_2",
        "order_parameter_layer_3",
        "readout_order_parameter",
        "temperature",
    }
    assert set(received) == names
    for name in names:
        np.testing.assert_allclose(received[name], expected[name], rtol=1e-12)
    if space != "order_parameters":
        whole = {"V_0": jnp.zeros(problem.architecture.weight_shapes["V_0"]), **position}
        weights = weights_at(whole, problem.architecture)
        expected = overlaps(weights, problem.architecture)[0]
        np.testing.assert_allclose(received["order_parameter"], expected, rtol=1e-12)


def many_examples(rng, outputs: int):
    """More examples than paths times channels: whole, and by the rows that stand for them."""
    arch = Architecture((2,), (5, 4), (1.4, 0.8, 1.2), 3, outputs)
    whole = replace(random_problem(arch, rng, examples=17), temperature_spread=SPREADS)
    return whole, compress(whole)


@pytest.mark.heavy
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("space", SPACES)
def test_where_rows_stand_for_examples_the_labels_are_the_original_ones(space, outputs, rng):
    whole, rows = many_examples(rng, outputs)
    assert len(rows.labels) == 6
    examples = np.asarray(whole.attended), np.asarray(whole.labels)
    model, kwargs = make_numpyro_model(space, rows, whole.attended[:2], (), examples)
    expected_labels = whole.labels[:, 0] if outputs == 1 else whole.labels
    np.testing.assert_array_equal(kwargs["labels"], expected_labels)
    of_rows = density_in(space, rows)
    position = drawn(of_rows, rng)
    received = float(log_density(model, (), kwargs, position)[0])
    expected = float(of_rows.log_density(position)) + rows.residual_log_likelihood
    assert received == pytest.approx(expected, rel=1e-10)
    expected = float(density_in(space, whole).log_density(position))
    assert received == pytest.approx(expected, rel=1e-10)
    simulated = traced(model, {**kwargs, "labels": None}, position)["y"]["value"]
    assert simulated.shape == expected_labels.shape


@pytest.mark.heavy
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kind", ["examples", "rows"])
def test_labels_that_are_simulated_have_the_covariance_of_the_kernel(kind, outputs, rng):
    """Mean zero and K + 𝒯 1, and the density is that of the draws."""
    whole, rows = many_examples(rng, outputs)
    examples = (np.asarray(whole.attended), np.asarray(whole.labels)) if kind == "rows" else None
    problem = whole if examples is None else rows
    model, kwargs = make_numpyro_model("order_parameters", problem, whole.attended, (), examples)
    position = drawn(density_in("order_parameters", problem), rng)
    site = traced(model, {**kwargs, "labels": None}, position)
    law = site["y"]["fn"]
    draws = np.asarray(law.sample(jax.random.key(1), (4000,))).reshape(4000, -1)
    covariance = label_covariance(whole, site["order_parameter"]["value"], position)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), draws.T)
    error = len(draws) ** -0.5
    assert_within_mcse(whitened.mean(axis=1), 0.0, error, k=5)
    products = whitened @ whitened.T / len(draws)
    spread = error * np.where(np.eye(len(products)), 2**0.5, 1.0)
    assert_within_mcse(products, np.eye(len(products)), spread, k=5)


@pytest.mark.heavy
@pytest.mark.parametrize("space", COLLAPSED)
def test_new_labels_are_those_of_the_joint_gaussian(space, rng):
    """y_new given y: its density against the joint kernel, its moments against the predictor."""
    arch = ARCHITECTURES["one layer, two outputs"]
    joint = random_problem(arch, rng, examples=9)
    problem = replace(joint, attended=joint.attended[:6], labels=joint.labels[:6])
    new = joint.attended[6:]
    sites = ("predictor_mean", "predictor_variance")
    model, kwargs = make_numpyro_model(space, problem, new, sites)
    position = drawn(density_in(space, problem), rng)
    found = traced(model, {**kwargs, "inputs_new": new}, position)
    covariance = label_covariance(joint, found["order_parameter"]["value"], {})
    both, train = (
        scipy.stats.multivariate_normal(np.zeros(size), covariance[:size, :size]).logpdf(
            np.asarray(joint.labels).reshape(-1)[:size]
        )
        for size in (18, 12)
    )
    law = found["y_new"]["fn"]
    assert float(law.log_prob(joint.labels[6:])) == pytest.approx(both - train, rel=1e-9)
    draws = np.asarray(law.sample(jax.random.key(1), (4000,)))
    mean, variance = (found[name]["value"] for name in sites)
    error = (variance + problem.temperature) ** 0.5 / len(draws) ** 0.5
    assert_within_mcse(draws.mean(axis=0), mean, error, k=5)
    square = (draws - mean) ** 2
    expected = variance + problem.temperature
    assert_within_mcse(square.mean(axis=0), expected, expected * (2 / len(draws)) ** 0.5, k=5)


def test_labels_as_a_latent_site_have_their_own_gradient(rng):
    """Where labels are not given they can be sampled, too: the slope is −(K + 𝒯)⁻¹ y."""
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    model, kwargs = make_numpyro_model("order_parameters", problem, problem.attended[:1])
    position = drawn(density_in("order_parameters", problem), rng)
    free = {**kwargs, "labels": None}

    def density(y):
        return log_density(model, (), free, {**position, "y": y})[0]

    labels = problem.labels[:, 0]
    overlap = traced(model, kwargs, position)["order_parameter"]["value"]
    expected = -np.linalg.solve(label_covariance(problem, overlap, {}), labels)
    np.testing.assert_allclose(jax.jit(jax.grad(density))(labels), expected, rtol=1e-9)


# --- what NumPyro does with a model


@pytest.fixture(scope="module")
def scalar():
    """One path, where the posterior is known by quadrature."""
    problem, test = scalar_problem(np.random.default_rng(7))
    return problem, test, exact_scalar_posterior(problem, test)


@pytest.mark.heavy
@pytest.mark.parametrize("space", all_but(SPACES, ["order_parameters"], pytest.mark.long))
def test_nuts_finds_the_posterior_that_quadrature_knows(space, scalar, without_annotation_checks):
    """NumPyro puts hashes in the place of arrays among the arguments: unchecked, as for users."""
    problem, test, exact = scalar
    name = "predictor" if space == "weights" else "predictor_mean"
    model, kwargs = make_numpyro_model(space, problem, test, (name,))
    mcmc = infer.MCMC(
        infer.NUTS(model), num_warmup=300, num_samples=1500, num_chains=2,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.PRNGKey(2), **kwargs)
    draws = mcmc.get_samples(group_by_chain=True)
    assert draws["order_parameter"].shape == (2, 1500, 1, 1)
    for values, expected in (
        (draws["order_parameter"][..., 0, 0], exact.order_parameter[0]),
        (draws["readout_order_parameter"][..., 0, 0], exact.readout[0]),
        *zip(np.moveaxis(np.asarray(draws[name]), 2, 0), exact.predictor_mean, strict=True),
    ):
        summary = numpyro.diagnostics.summary({"x": np.asarray(values)})["x"]
        error = summary["std"] / summary["n_eff"] ** 0.5
        assert_within_mcse(np.mean(values), expected, error, ess=summary["n_eff"])
    # labels of new examples, from every draw
    inner = mcmc.get_samples()
    some = {n: v[::10] for n, v in inner.items()}
    predictive = infer.Predictive(model, some)
    found = predictive(jax.random.PRNGKey(3), **{**kwargs, "inputs_new": test})
    assert found["y_new"].shape == (300, len(test))
    variance = exact.predictor_variance + problem.temperature
    error = np.sqrt(variance / 300)
    assert_within_mcse(found["y_new"].mean(axis=0), exact.predictor_mean, error, k=5)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES)
def test_the_prior_predictive_has_the_moments_of_the_network(space, scalar):
    """E[y²] = σ_0² … σ_a² |ξ|²/(D Π) + 𝒯, whatever is integrated out."""
    problem, test, _ = scalar
    model, kwargs = make_numpyro_model(space, problem, test)
    draws = infer.Predictive(model, num_samples=4000)(
        jax.random.PRNGKey(5), **{**kwargs, "labels": None}
    )
    assert draws["y"].shape == (4000, len(problem.labels))
    arch = problem.architecture
    squares = np.sum(np.asarray(problem.attended) ** 2, axis=(1, 2))
    expected = np.prod(arch.variances) * squares / arch.channels + problem.temperature
    received = np.asarray(draws["y"]) ** 2
    assert_within_mcse(received.mean(axis=0), expected, received.std(axis=0) / 4000**0.5, k=5)


@pytest.mark.heavy
def test_predictors_on_request_are_those_of_the_theory(rng):
    problem = random_problem(ARCHITECTURES["two layers, three outputs"], rng)
    test = jnp.asarray(rng.standard_normal((4, *problem.attended.shape[1:])))
    sites = ("predictor_mean", "predictor_variance")
    model, kwargs = make_numpyro_model("order_parameters", problem, test, sites)
    position = drawn(density_in("order_parameters", problem), rng)
    found = traced(model, kwargs, position)
    values, vectors = np.linalg.eigh(found["order_parameter"]["value"])
    factor = jnp.asarray(vectors * np.sqrt(np.clip(values, 0.0, None)))
    expected = Predictor.for_examples(problem, test)(factor)
    for name, values in zip(sites, expected, strict=True):
        assert_equal_to_rounding(
            found[name]["value"], values, operations=1000, condition=1e3, what=name
        )
    model, kwargs = make_numpyro_model("weights", problem, test, ("predictor",))
    position = drawn(density_in("weights", problem), rng)
    received = traced(model, kwargs, position)["predictor"]["value"]
    np.testing.assert_array_equal(received, network_outputs(position, test, problem.architecture))


def test_without_64_bits_the_remedy_is_told_and_nothing_is_set(rng):
    problem = random_problem(ARCHITECTURES["one head"], rng)
    model, kwargs = make_numpyro_model("weights", problem, problem.attended)
    with jax.enable_x64(False):
        for call in (
            lambda: make_numpyro_model("weights", problem, problem.attended),
            lambda: traced(model, kwargs),
        ):
            with pytest.raises(InputError, match=r"call numpyro\.enable_x64\(\)"):
                call()
        assert jnp.result_type(float) == jnp.float32
