"""What follows from the definition of a space, in every space, and a space that is new."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats
from jax.tree_util import register_dataclass
from numpyro import distributions as dist

from sampler.mcmc.collected_draws import DrawCollector
from sampler.posterior.data import Data
from sampler.posterior.given import Given
from sampler.posterior.order_parameters import StandardisedLogChi
from sampler.posterior.space import TEMPERATURE, Space
from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, SPLIT_HMC, chain_settings, random_problem, space_of
from theory.wishart_chain import draw_log_chi

SPACES = ("order_parameters", "hidden_weights", "weights")
SPREAD = 0.5


@pytest.fixture(scope="module")
def problem():
    problem = random_problem(ARCHITECTURES["two layers"], np.random.default_rng(4))
    return replace(problem, temperature_spread=SPREAD)


@pytest.fixture(scope="module", params=SPACES)
def space(request, problem):
    return space_of(problem, request.param, whitened=False)


def test_vectors_and_positions_are_each_others_inverse(space, rng):
    points = jnp.asarray(rng.standard_normal((2, 3, space.size)))
    position = space.unflatten(points)
    assert {n: v.shape for n, v in position.items()} == {
        name: (2, 3, *shape) for name, shape in space.shapes.items()
    }
    of_one = {name: values[1, 2] for name, values in position.items()}
    np.testing.assert_array_equal(space.flatten(of_one), points[1, 2])
    # Whatever the order of the sites.
    backwards = dict(reversed(of_one.items()))
    np.testing.assert_array_equal(space.flatten(backwards), points[1, 2])
    drawn = space.draw_prior(jax.random.key(1))
    assert {n: v.shape for n, v in drawn.items()} == {n: v.shape for n, v in of_one.items()}


@pytest.mark.slow
def test_the_slope_is_that_of_finite_differences_also_in_single_precision(space, rng):
    point, along = 0.5 * rng.standard_normal((2, space.size))
    value = jax.jit(space.potential)
    up, down = (float(value(point + sign * 1e-5 * along)) for sign in (1, -1))
    slope = np.asarray(jax.jit(space.slope)(jnp.asarray(point)))
    assert slope @ along == pytest.approx((up - down) / 2e-5, rel=1e-6)
    single, point = space.with_single_gradients(), jnp.asarray(point)
    assert (space.gradient_dtype, single.gradient_dtype) == ("float64", "float32")
    rough = np.asarray(jax.jit(single.slope)(point))
    assert rough.dtype == np.float64
    assert 0.0 < np.linalg.norm(rough - slope) < 1e-4 * np.linalg.norm(slope)
    # The value is that of double precision.
    assert float(single.potential(point)) == pytest.approx(float(value(point)), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("by_numpy", [False, True])
def test_draws_of_the_prior_have_its_moments(space, by_numpy, rng):
    known = space.draw_by_numpy(4000, rng) if by_numpy else {}
    points = jax.jit(jax.vmap(lambda key, known: space.flatten(space.draw_prior(key, known))))
    draws = np.asarray(points(jax.random.split(jax.random.key(0), 4000), known))
    standard = jax.vmap(space.prior_gaussian.standardise)(jnp.asarray(draws))
    # Of all coordinates: 4.5 errors of means, and of variances where laws are skewed, too.
    assert np.all(np.abs(standard.mean(axis=0)) < 4.5 / 4000**0.5)
    squares = np.asarray(standard) ** 2
    error = squares.std(axis=0) / 4000**0.5
    assert np.all(np.abs(squares.mean(axis=0) - 1.0) < 4.5 * error)


@pytest.mark.slow
def test_a_position_is_observed_and_weighed_at_its_temperature(space, problem, rng):
    """As in the space that has this temperature for given, but for the prior of the temperature."""
    position = space.unflatten(jnp.asarray(0.5 * rng.standard_normal(space.size)))
    shift = float(position[TEMPERATURE][0])
    temperature = problem.temperature * float(np.exp(shift))
    given = replace(problem, temperature=temperature, temperature_spread=0.0)
    known = space_of(given, space.name, whitened=False)

    @jax.jit
    def weighed_and_observed(posterior, position):
        observed = posterior.observe(jax.random.key(1), position)
        return posterior.log_density(position), observed

    value, observed = weighed_and_observed(space, position)
    without = {site: values for site, values in position.items() if site != TEMPERATURE}
    expected, at_known = weighed_and_observed(known, without)
    prior = scipy.stats.norm(0.0, SPREAD).logpdf(shift)
    assert float(value) == pytest.approx(float(expected) + prior, rel=1e-10)
    assert float(observed.pop("temperature")) == pytest.approx(temperature, rel=1e-12)
    assert float(observed.pop("log_prior") - at_known.pop("log_prior")) == pytest.approx(prior)
    assert observed.keys() == at_known.keys()
    for quantity, values in at_known.items():
        tolerance = 1e-5 if values.dtype == jnp.float32 else 1e-9
        limit = tolerance * np.abs(values).max()
        np.testing.assert_allclose(observed[quantity], values, 0, limit, err_msg=quantity)


# --- the prior of Bartlett coordinates


@pytest.mark.parametrize("degrees", [1.0, 1000.0])
def test_a_standardised_log_chi_has_the_draws_and_moments_of_chi(degrees):
    """Moments by the trapezoidal rule, which converges faster than any power of the spacing."""
    site = StandardisedLogChi(degrees)
    by_jax = np.asarray(site.sample(jax.random.key(5), (4000,)))
    by_numpy = draw_log_chi(np.array([degrees]), (4000, 1), np.random.default_rng(5))[:, 0]
    for t in (by_jax, by_numpy):
        squares = degrees * np.exp(np.sqrt(2.0 / degrees) * t)
        assert scipy.stats.kstest(squares, scipy.stats.chi2(degrees).cdf).pvalue > 1e-4
    t = np.linspace(-60.0, 12.0, 20_001)
    density = np.exp(np.asarray(site.log_prob(t)))
    total, mean, square = (np.trapezoid(density * t**power, t) for power in range(3))
    assert total == pytest.approx(1.0, rel=1e-9)
    assert float(site.mean) == pytest.approx(mean, rel=1e-9)
    assert float(site.variance) == pytest.approx(square - mean**2, rel=1e-9)


# --- laws of the exact posterior under changes of the data that leave it as it is, or move it


NAMES = ("narrow", "two layers, three outputs")
FACTOR = 1.7


def potentials(problem):
    """−ln p(x, y) at three points of Bartlett coordinates, whose prior is the same for all."""
    space = space_of(problem, whitened=False)
    points = np.random.default_rng(3).standard_normal((3, space.size))
    return np.array([float(space.potential(jnp.asarray(point))) for point in points])


def scaled(problem):
    """Labels c y, with the readout's variance c²σ_a² and the temperature c²𝒯."""
    *variances, readout = problem.architecture.variances
    architecture = replace(problem.architecture, variances=(*variances, FACTOR**2 * readout))
    return replace(
        problem, architecture=architecture, labels=FACTOR * problem.labels,
        temperature=FACTOR**2 * problem.temperature,
    )  # fmt: skip


def rotated(problem):
    """Channels of all inputs turned by one orthogonal matrix."""
    drawn = np.random.default_rng(7).standard_normal(2 * (problem.architecture.channels,))
    return replace(problem, attended=problem.attended @ np.linalg.qr(drawn)[0])


def twice(problem):
    """Every example two times, each with twice the noise."""
    return replace(
        problem,
        attended=jnp.concatenate([problem.attended, problem.attended]),
        labels=jnp.concatenate([problem.labels, problem.labels]),
        temperature=2.0 * problem.temperature,
    )


def more_by_scale(problem):
    """p(c y) d(c y) = p(y) dy."""
    return problem.labels.size * np.log(FACTOR)


def more_by_twice(problem):
    """N(y; f, 2𝒯)² against N(y; f, 𝒯): the exponents are the same."""
    size, temperature = problem.labels.size, float(problem.temperature)
    return size * np.log(4 * np.pi * temperature) - 0.5 * size * np.log(2 * np.pi * temperature)


LAWS = {
    "scaled": (scaled, more_by_scale),
    "rotated": (rotated, lambda problem: 0.0),
    "twice": (twice, more_by_twice),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_the_density_changes_by_a_constant_that_is_known(name, law, rng):
    change, more = LAWS[law]
    problem = random_problem(ARCHITECTURES[name], rng, temperature=0.3)
    expected = potentials(problem) + more(problem)
    received = potentials(change(problem))
    assert_equal_to_rounding(received, expected, operations=1e4, condition=1e3)


@pytest.mark.parametrize("space", ["hidden_weights", "weights"])
@pytest.mark.parametrize("name", NAMES)
def test_heads_may_be_exchanged_with_their_weights(name, space, rng):
    """The density of weights stays, and overlaps of their paths go with them."""
    problem = random_problem(ARCHITECTURES[name], rng, temperature=0.3)
    heads = problem.architecture.heads
    orders = [rng.permutation(count) for count in heads]
    paths = np.arange(problem.architecture.path_count).reshape(heads)[np.ix_(*orders)].ravel()
    posterior, other = (
        space_of(one, space, whitened=False)
        for one in (problem, replace(problem, attended=problem.attended[:, paths]))
    )
    position = posterior.unflatten(jnp.asarray(rng.standard_normal(posterior.size)))
    layers = enumerate(orders, start=1)
    moved = position | {f"V_{layer}": position[f"V_{layer}"][order] for layer, order in layers}
    expected, received = float(posterior.log_density(position)), float(other.log_density(moved))
    assert received == pytest.approx(expected, rel=1e-10)
    one, two = (
        of.observe(jax.random.key(1), at)["order_parameter"]
        for of, at in ((posterior, position), (other, moved))
    )
    if space == "weights":
        outputs = problem.architecture.outputs
        rows = (paths[:, None] * outputs + np.arange(outputs)).ravel()
        np.testing.assert_allclose(two, np.asarray(one)[np.ix_(rows, rows)], rtol=1e-10)


# --- what a new space touches: one class, and one for its data


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Intercept(Space):
    """y_i ~ N(x, 𝒯) for one number x ~ N(0, 1): the smallest space that there is."""

    name = "intercept"

    def model(self, labels, inputs=None):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([1]).to_event())
        count = len(self.data.labels if inputs is None else inputs)
        with numpyro.plate("example", count):
            numpyro.sample("y", dist.Normal(x[0], jnp.sqrt(self.temperature)), obs=labels)

    def given(self, position, key):
        return Given(lambda inputs: jnp.full((len(inputs), 1), position["x"][0]))


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Nothing(Data):
    """Examples without inputs."""

    def train(self, position):
        return self.labels

    def test(self, position):
        return self.labels[:1]

    def examples(self, position):
        return self.labels, self.labels


@pytest.mark.slow
def test_a_new_space_is_sampled(rng):
    """Against the normal posterior of a mean in closed form, within six standard errors."""
    labels, temperature = 1.0 + rng.standard_normal((5, 1)), 0.5
    space = Intercept(
        data=Nothing(labels=jnp.asarray(labels)), temperature=jnp.asarray(temperature)
    )
    chosen, collected = SPLIT_HMC, DrawCollector()
    chosen.draw(space, chain_settings(chains=2, warmup=200), collected)
    draws = collected.draws["predictor"][..., 0, 0]
    variance = 1.0 / (1.0 + len(labels) / temperature)
    mean = variance * labels.sum() / temperature
    error = np.sqrt(variance / 500)  # of a quarter of the draws, whatever their correlation
    assert abs(draws.mean() - mean) < 6 * error
    assert abs(draws.var() / variance - 1.0) < 6 * np.sqrt(2 / 500)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Scale(Intercept):
    """The same of one number that is not negative."""

    def model(self, labels, inputs=None):
        x = numpyro.sample("x", dist.HalfNormal(1.0))
        with numpyro.plate("example", len(self.data.labels)):
            numpyro.sample("y", dist.Normal(0.0, x), obs=labels)


def small_space(kind, examples: int):
    return kind(data=Nothing(labels=jnp.ones((examples, 1))), temperature=jnp.asarray(0.5))


def test_a_prior_that_is_bounded_is_refused():
    """Coordinates of trajectories are all real numbers."""
    with pytest.raises(TypeError, match=r"\bx\b"):
        _ = small_space(Scale, 3).shapes


def test_threads_run_models_one_after_the_other():
    """NumPyro has one list of handlers for all of them; every space is of other shapes."""

    def density_and_size(examples: int) -> tuple[float, int]:
        space = small_space(Intercept, examples)
        value = jax.eval_shape(space.log_density, {"x": jnp.zeros(1)})
        return value.shape, space.size

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(density_and_size, range(100, 160)))
    assert found == [((), 1)] * 60
