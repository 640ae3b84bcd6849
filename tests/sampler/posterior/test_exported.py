"""Exported models and densities of a flat vector have the density of our own chains."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer.util import log_density

from sampler.data.examples import Examples
from sampler.errors import InputError
from sampler.network import network_outputs
from sampler.posterior.exported import FlatDensity, export_model
from sampler.posterior.space import TEMPERATURE, chain_model
from sampler.problem import Problem, attended_blocks
from tests.assertions import assert_within_mcse
from tests.dense import dense_kernel
from tests.problems import ARCHITECTURES, random_problem, space_of
from tests.recipes import learned_problem
from tests.token_networks import loops, random_token_problem
from theory import Architecture
from theory.learning_problem import compress

SPREAD = 0.5


def problem_of(learning, test=None) -> Problem:
    test = learning.attended[:1] if test is None else test
    return Problem(learning, test, None, (), ())


def training_data(learning):
    """All examples of a problem, for another one in which rows stand for them."""
    arrays = np.asarray(learning.attended), np.asarray(learning.labels)
    examples = Examples(*arrays, path_heads=learning.architecture.heads)
    return partial(attended_blocks, examples, "last", ())


def drawn(space, rng) -> dict:
    """A random position."""
    return space.unflatten(jnp.asarray(rng.standard_normal(space.size)))


def traced(model, kwargs, position=(), seed: int = 0) -> dict:
    """Every site of the model, those of the position having its values."""
    seeded = handlers.seed(handlers.substitute(model, data=dict(position)), seed)
    return handlers.trace(seeded).get_trace(**kwargs)


def label_covariance(problem, overlap, position) -> np.ndarray:
    """K + 𝒯 1 from U_1, at the temperature of a position."""
    attended, arch = problem.attended, problem.architecture
    kernel = dense_kernel(attended, attended, np.asarray(overlap), arch)
    ratio = np.exp(position[TEMPERATURE][0]) if TEMPERATURE in position else 1.0
    return kernel + ratio * problem.temperature * np.eye(len(kernel))


# --- one density, whatever the space and the data


def fixed(name):
    def pose(rng, spread):
        learning = replace(random_problem(ARCHITECTURES[name], rng), temperature_spread=spread)
        return problem_of(learning), learning

    return pose


def rows(rng, spread):
    whole = replace(many_examples(rng, outputs=2)[0], temperature_spread=spread)
    return problem_of(compress(whole)), whole


def sampled(rng, spread):
    return learned_problem(posterior={"temperature_spread": spread}), None


def tokens(rng, spread):
    return random_token_problem("relu", rng, temperature_spread=spread), None


FIXED = ("order_parameters", "hidden_weights", "weights")
# Kinds of data, each with the spaces that it has.
DATA = {
    "several outputs": (fixed("two layers, three outputs"), FIXED),
    "narrow": (fixed("narrow"), FIXED[:1]),
    "rows": (rows, FIXED),
    "sampled paths": (sampled, (*FIXED, "attention")),
    "tokens": (tokens, FIXED[1:]),
}
EVERY_SPACE = [(kind, space, SPREAD) for kind, (_, spaces) in DATA.items() for space in spaces]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "spread"), [*EVERY_SPACE, ("narrow", "order_parameters", 0.0)]
)
def test_numpyro_and_flat_vector_have_one_density(kind, name, spread, rng):
    """Of chains, of the exported model, and of the definition where that can be written down."""
    problem, whole = DATA[kind][0](rng, spread)
    space = problem.space(name)
    position = drawn(space, rng)
    model, kwargs = problem.numpyro_model(name, ())

    @jax.jit
    def densities(position, space, kwargs):
        of_chains = log_density(chain_model, (space,), {}, position)[0]
        of_export = log_density(model, (), kwargs, position)[0]
        return of_chains, of_export, -space.potential(space.flatten(position))

    of_chains, of_export, expected = map(float, densities(position, space, kwargs))
    assert of_chains == pytest.approx(expected, rel=1e-10)
    assert of_export == pytest.approx(expected, rel=1e-10)
    if kind == "rows":
        # The labels of the examples themselves, as they are given.
        model, kwargs = replace(problem, whole=training_data(whole)).numpyro_model(name, ())
        np.testing.assert_array_equal(kwargs["labels"], whole.labels)
        of_examples = float(log_density(model, (), kwargs, position)[0])
        assert of_examples == pytest.approx(expected, rel=1e-10)
        other = whole.labels + np.sin(np.arange(whole.labels.size)).reshape(whole.labels.shape)
        relabelled = space_of(replace(whole, labels=other), name, whitened=False)
        received = float(kwargs["space"].with_labels(other).log_density(position))
        assert received == pytest.approx(float(relabelled.log_density(position)), rel=1e-10)
    if kind != "sampled paths" and name != "hidden_weights":
        written = by_definition(problem, whole, name, position)
        assert expected == pytest.approx(written, rel=1e-9)


def by_definition(problem, whole, name, position) -> float:
    """ln p(x, y) of weights, ln p(y | x) + ln p(x) of order parameters, by SciPy's densities."""
    position = {site: np.asarray(values) for site, values in position.items()}
    learning = problem if whole is None else whole
    temperature, prior = learning.temperature, 0.0
    if TEMPERATURE in position:
        shift = position[TEMPERATURE][0]
        temperature *= np.exp(shift)
        prior += scipy.stats.norm(0, SPREAD).logpdf(shift)
    labels = np.asarray(learning.labels)
    if name == "order_parameters":
        for site, values in position.items():
            if site.startswith("lower"):
                prior += scipy.stats.norm.logpdf(values).sum()
            elif site.startswith("chi"):
                layer = int(site.rpartition("_")[2])
                degrees = learning.architecture.widths[layer - 1] - np.arange(len(values))
                # t = √(2ν) ln(c/√ν) of c ~ χ_ν.
                c = np.sqrt(degrees) * np.exp(values / np.sqrt(2.0 * degrees))
                prior += np.sum(
                    scipy.stats.chi(degrees).logpdf(c) + np.log(c / np.sqrt(2 * degrees))
                )
        sites = {site: jnp.asarray(values) for site, values in position.items()}
        factor = np.asarray(space_of(learning, whitened=False).factors(sites)[0])
        covariance = label_covariance(learning, factor @ factor.T, position)
        law = scipy.stats.multivariate_normal(np.zeros(labels.size), covariance)
        return prior + law.logpdf(labels.reshape(-1))
    if whole is None:
        network = problem.network
        layers, variances = network.weight_layers, network.variances
        data = TokensOfExamples(problem)
        f = loops(network, data, position)
    else:
        network = whole.architecture
        layers, variances = network.weight_layers, network.variances
        weights = {site: jnp.asarray(position[site]) for site in network.weight_shapes}
        f = network_outputs(weights, whole.attended, network)
    for site in network.weight_shapes:
        prior += scipy.stats.norm(0, variances[layers[site]] ** 0.5).logpdf(position[site]).sum()
    return prior + scipy.stats.norm(np.asarray(f), temperature**0.5).logpdf(labels).sum()


class TokensOfExamples:
    """Inputs and attention of a token problem, as the loops take them."""

    def __init__(self, problem) -> None:
        self.inputs, attention, *_ = problem.data.tokens
        self.attention = tuple(map(np.asarray, attention))


@pytest.mark.slow
@pytest.mark.parametrize("space", ["weights", "order_parameters"])
def test_order_parameters_and_what_is_asked_for_are_sites(space, rng):
    problem = random_problem(ARCHITECTURES["three layers, two outputs"], rng)
    problem = problem_of(replace(problem, temperature_spread=SPREAD))
    ours = problem.space(space, whitened=False)
    position = drawn(ours, rng)
    asked = ("predictor",) if space == "weights" else ("predictor_mean", "predictor_variance")
    sites = traced(*problem.numpyro_model(space, asked), position)
    received = {n: s["value"] for n, s in sites.items() if s["type"] == "deterministic"}
    expected = ours.observe(jax.random.key(0), position)
    assert {"order_parameter", "readout_order_parameter", "temperature", *asked} < set(received)
    assert len(received) == 5 + len(asked)
    for name, value in received.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-10, err_msg=name)


def many_examples(rng, outputs: int):
    """More examples than paths times channels: whole, and by the rows that stand for them."""
    arch = Architecture((2,), (5, 4), (1.4, 0.8, 1.2), 3, outputs)
    whole = replace(random_problem(arch, rng, examples=17), temperature_spread=SPREAD)
    return whole, compress(whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["examples", "rows"])
def test_labels_that_are_simulated_have_the_covariance_of_the_kernel(kind, rng):
    """Mean zero and K + 𝒯 1, and the density is that of the draws."""
    whole, rows = many_examples(rng, outputs=2)
    problem = rows if kind == "rows" else whole
    examples = training_data(whole) if kind == "rows" else None
    of_examples = replace(problem_of(problem), whole=examples)
    model, kwargs = of_examples.numpyro_model("order_parameters", ())
    position = drawn(space_of(problem, whitened=False), rng)
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


@pytest.mark.slow
def test_new_labels_are_those_of_the_joint_gaussian(rng):
    """y_new given y: its density against the joint kernel, its moments against the predictor."""
    arch = ARCHITECTURES["one layer, two outputs"]
    joint = random_problem(arch, rng, examples=9)
    problem = replace(joint, attended=joint.attended[:6], labels=joint.labels[:6])
    new = joint.attended[6:]
    sites = ("predictor_mean", "predictor_variance")
    model, kwargs = problem_of(problem, new).numpyro_model("order_parameters", sites)
    position = drawn(space_of(problem, whitened=False), rng)
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


# --- what NumPyro does with a model


def test_without_64_bits_the_remedy_is_told_and_nothing_is_set(rng):
    space = space_of(random_problem(ARCHITECTURES["one head"], rng), "weights")
    model, kwargs = export_model(space, ())
    with jax.enable_x64(False):
        for call in (lambda: export_model(space, ()), lambda: traced(model, kwargs)):
            with pytest.raises(InputError, match=r"call numpyro\.enable_x64\(\)"):
                call()
        assert jnp.result_type(float) == jnp.float32


# --- the posterior as a function of one flat vector


SPACES = ("order_parameters", "hidden_weights", "weights")


def flat_of(problem, space="weights", test=None) -> FlatDensity:
    return FlatDensity(space_of(problem, space, test, whitened=False))


@pytest.fixture
def problem(rng):
    problem = random_problem(ARCHITECTURES["one layer, two outputs"], rng)
    return replace(problem, temperature_spread=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES[:2])
def test_the_density_is_prior_times_likelihood(space, problem, rng):
    flat = flat_of(problem, space)
    point = rng.standard_normal(flat.dimension)
    value, prior, likelihood = flat(point), flat.log_prior(point), flat.log_likelihood(point)
    assert float(value) == pytest.approx(float(prior + likelihood), rel=1e-12)
    # Another temperature of the data changes the likelihood alone.
    warmer = flat_of(replace(problem, temperature=2 * problem.temperature), space)
    assert float(warmer.log_prior(point)) == float(prior)
    assert float(warmer.log_likelihood(point)) != float(likelihood)


@pytest.mark.slow
def test_it_is_differentiated_compiled_batched_and_an_argument(problem, rng):
    flat = flat_of(problem, "order_parameters")
    points = jnp.asarray(0.5 * rng.standard_normal((3, flat.dimension)))
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(flat)))(points)
    as_argument = jax.jit(lambda density, point: density(point))
    np.testing.assert_allclose(values, [as_argument(flat, one) for one in points], rtol=1e-12)
    along = jnp.asarray(rng.standard_normal(flat.dimension))
    up, down = (float(as_argument(flat, points[0] + sign * 1e-5 * along)) for sign in (1, -1))
    assert float(slopes[0] @ along) == pytest.approx((up - down) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_names_and_sites_say_what_a_coordinate_is(space, problem):
    flat = flat_of(problem, space)
    assert len(flat.names) == flat.dimension == len(set(flat.names))
    sites = flat.sites(np.arange(flat.dimension, dtype=float))
    for index, name in enumerate(flat.names):
        site, _, place = name.partition("[")
        assert sites[site][tuple(map(int, place.rstrip("]").split(",")))] == index
    np.testing.assert_array_equal(flat.point(sites), np.arange(flat.dimension))
