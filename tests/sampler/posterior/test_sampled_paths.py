"""Attention that is sampled: at known logits that of fixed attention, and laws by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sampler.attention.learned import LearnedHeads
from sampler.attention.sampled import SampledAttention
from sampler.attention.variants import Softmax
from sampler.data.make import build_task
from sampler.posterior.data import SampledPaths
from sampler.posterior.space import Space
from sampler.token_problem import LearnedProblem
from tests.assertions import assert_within_mcse
from tests.learned import (
    DIGITS,
    MARKOV,
    SERIES,
    learned_problem,
    learned_recipe,
    logits_of_random_heads,
    problem_with_random_heads,
)
from theory.architecture import Architecture

SPACES = ("order_parameters", "hidden_weights", "weights")
CASES = {
    "two layers": {},
    "first token, three layers": {
        "heads": (("learned",), ("random", "learned"), ("learned", "learned")),
        "network": {"readout": "first"},
    },
    "narrow, a layer without": {"heads": (("learned", "learned"), ("uniform",)), "widths": 1},
    "series": {
        "task": SERIES,
        "heads": (("lag", "learned"), ("learned",)),
        "attention": {"lag": 2},
    },
    "three outputs": {"task": DIGITS, "heads": (("learned", "similar"),)},
    "hypernetwork": {"heads": (("learned", "good"),), "network": {"hypernetwork": True}},
    "temperature sampled": {"posterior": {"temperature_spread": 0.4}},
    "window": {
        "attention": {"form": {"kind": "softmax", "mask": "window", "window": 1}},
        "network": {"readout": "mean"},
    },
    "pooled and normalised": {
        "attention": {"form": {"kind": "scaled_heads", "scale": 2, "beta": 1.0}}
    },
    # Of its logits keys alone are read, which random heads of this task have weights for.
    "robust": {
        "task": SERIES,
        "heads": (("learned", "random"), ("learned",)),
        "attention": {"lag": 2, "form": {"kind": "robust", "limit": 1.5}},
    },
    "head normalised": {
        "heads": (("learned", "learned"), ("learned", "learned")),
        "attention": {"form": {"kind": "head_normalised"}},
    },
    "a variant a head": {
        "attention": {
            "form": [
                [{"kind": "linear"}, {"kind": "softmax"}],
                [{"kind": "softmax"}, {"kind": "batch_normalised"}],
            ]
        }
    },
}
# Every case in one of the spaces, in turn.
PAIRS = [(case, SPACES[place % 3]) for place, case in enumerate(CASES)]


def pair_of_spaces(changes: dict, name: str) -> tuple[Space, Space, dict]:
    """The posterior with learned heads, that of the random heads, and the logits of these."""
    recipe = learned_recipe(**changes)
    logits = logits_of_random_heads(recipe, build_task(recipe))
    with_random = problem_with_random_heads(**changes)
    keep = () if name == "order_parameters" else tuple(with_random.architecture.weight_shapes)
    fixed = with_random.space(name, keep=keep, whitened=False)
    learned = learned_problem(**changes).space(name, keep=keep)
    return learned, fixed, {name: jnp.asarray(values) for name, values in logits.items()}


@jax.jit
def densities_and_observables(space: Space, key, position):
    """ln p(x, y), ln p(y | x), and what is observed of a draw: in one compilation."""
    likelihood = space.log_likelihood(position)
    return space.log_density(position), likelihood, space.observe(key, position)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "space"), PAIRS)
def test_at_the_logits_of_random_heads_it_is_the_network_of_fixed_attention(case, space):
    learned, fixed, logits = pair_of_spaces(CASES[case], space)
    position = fixed.draw_prior(jax.random.key(1))
    there, key = {**position, **logits}, jax.random.key(2)
    expected, likelihood, wanted = densities_and_observables(fixed, key, position)
    received, received_likelihood, found = densities_and_observables(learned, key, there)
    received -= sum(scipy.stats.norm.logpdf(values).sum() for values in logits.values())
    np.testing.assert_allclose(received, expected, rtol=1e-12)
    np.testing.assert_allclose(received_likelihood, likelihood, rtol=1e-12)
    assert set(learned.shapes) == {*fixed.shapes, *logits}
    wanted.pop("log_prior")
    for name, values in wanted.items():
        scale = np.abs(values).max()
        single = values.dtype == jnp.float32
        tolerance = 3e-7 if single else 1e-11
        np.testing.assert_allclose(
            found[name], values, rtol=0, atol=tolerance * scale, err_msg=name
        )


@pytest.mark.slow
@pytest.mark.parametrize("case", ["two layers", "pooled and normalised"])
def test_gradients_are_those_of_finite_differences(case):
    space = learned_problem(**CASES[case]).space("order_parameters")
    point = space.flatten(space.draw_prior(jax.random.key(3)))
    directions = jax.random.normal(jax.random.key(4), (3, point.size))
    value = jax.jit(space.potential)
    gradient, step = jax.grad(value)(point), 1e-3
    for direction in directions / jnp.linalg.norm(directions, axis=1, keepdims=True):
        # Of sixth order: at this step its error is that of rounding.
        weights = {1: 45.0, 2: -9.0, 3: 1.0}
        expected = sum(
            w * (value(point + n * step * direction) - value(point - n * step * direction))
            for n, w in weights.items()
        ) / (60.0 * step)
        np.testing.assert_allclose(gradient @ direction, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_blocks_of_examples_change_nothing(monkeypatch):
    changes = {"task": {**MARKOV, "examples_train": 11}}
    space = learned_problem(**changes).space("order_parameters")
    point = space.flatten(space.draw_prior(jax.random.key(5)))
    expected = jax.value_and_grad(space.potential)(point)
    monkeypatch.setattr("sampler.attention.sampled.BLOCK_BYTES", 2**15)
    size = space.data.attention.numbers(space.data.tokens) * 8
    assert 2 < 11 * size / 2**15 < 11  # several blocks of several examples
    received = jax.value_and_grad(space.potential)(point)
    np.testing.assert_allclose(received[0], expected[0], rtol=1e-13)
    np.testing.assert_allclose(received[1], expected[1], rtol=1e-10, atol=1e-12)


# --- laws of networks with learned heads, against integrals and simulations that know no density


DRAWS = 20_000


def of_positions(rng, widths=(3, 2), deviation=1.2) -> LearnedProblem:
    """One layer, one head, two tokens, logits of positions alone: a line of attention."""
    architecture = Architecture((1,), widths, (0.8, 1.3, 0.9), channels=3)
    heads = LearnedHeads("positions", np.array([deviation]), ((True,),), ((Softmax(),),))
    attention = SampledAttention.of(heads, 2, 3, (False,), "last")
    inputs = rng.standard_normal((6, 2, 3))
    labels = (inputs[:, :1] @ np.array([1.0, -0.5, 0.8]))[:, :, None][:, :, 0]
    empty = (np.empty((6, 1, 2, 2)),)
    tokens = attention.tokens(inputs[:4], (empty[0][:4],))
    data = SampledPaths(
        labels=jnp.asarray(labels[:4]),
        attention=attention,
        tokens=tokens,
        tokens_test=attention.tokens(inputs[4:], (empty[0][4:],)),
    )
    return LearnedProblem(
        network=architecture, data=data, temperature=0.2, path_names=("0",), head_names=(("0",),),
        exchangeable=False,
    )  # fmt: skip


def quadrature(problem: LearnedProblem) -> dict[str, np.ndarray]:
    """Posterior moments by quadrature over the difference of logits, u_a and U_1."""
    data, arch = problem.data, problem.architecture
    deviation = float(data.attention.scale[0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    differences, of_difference = np.sqrt(2.0) * deviation * nodes, weights
    laws = []
    for width in arch.widths:  # χ²_N/N: Gauss–Laguerre
        chi, weight = scipy.special.roots_genlaguerre(60, width / 2.0 - 1.0)
        laws.append((2.0 * chi / width, weight))
    (first, of_first), (top, of_top) = laws
    overlaps = arch.variances[1] * arch.variances[2] * np.outer(first, top).ravel()
    of_overlap = np.outer(of_first, of_top).ravel()
    train, test = (np.asarray(one.inputs) for one in (data.tokens, data.tokens_test))
    labels, temperature = np.asarray(data.labels)[:, 0], problem.temperature
    total, sums = 0.0, {}
    for difference, weight in zip(differences, of_difference, strict=True):
        first_token = 1.0 / (1.0 + np.exp(-difference))
        read = np.array([first_token, 1.0 - first_token])
        scale = np.sqrt(arch.variances[0] / arch.channels)
        mine, theirs = scale * read @ train, scale * read @ test
        values, vectors = np.linalg.eigh(mine @ mine.T)
        rotated = vectors.T @ labels
        noisy = overlaps[:, None] * values + temperature
        likelihood = np.exp(-0.5 * (np.log(2 * np.pi * noisy) + rotated**2 / noisy).sum(axis=1))
        mass = weight * of_overlap * likelihood
        cross = theirs @ mine.T @ vectors
        mean = overlaps[:, None] * ((rotated / noisy) @ cross.T)
        prior = (theirs**2).sum(axis=1)
        variance = overlaps[:, None] * prior - overlaps[:, None] ** 2 * ((1 / noisy) @ cross.T**2)
        moments = {
            "attention": np.full(len(overlaps), first_token),
            "attention squared": np.full(len(overlaps), first_token**2),
            "order_parameter": overlaps,
            "predictor_mean": mean,
            "predictor_variance": variance,
        }
        total += mass.sum()
        for name, values_of in moments.items():
            sums[name] = sums.get(name, 0.0) + mass @ values_of
    normal = np.sqrt(2 * np.pi) * np.prod([scipy.special.gamma(n / 2.0) for n in arch.widths])
    found = {name: one / total for name, one in sums.items()}
    return found | {"evidence": total / normal}


@pytest.mark.slow
def test_moments_and_evidence_of_one_head_are_those_of_quadrature(rng):
    """Prior draws of the density, weighted by its likelihood, are draws of the posterior."""
    problem = of_positions(rng)
    exact = quadrature(problem)
    space = problem.space("order_parameters")
    keys = jax.random.split(jax.random.key(7), DRAWS)

    @jax.jit
    def one(key):
        position = space.draw_prior(key)
        found = space.observe(key, position)
        omega = space.data.attention.matrices(position, space.data.tokens)[0]
        kept = ("predictor_mean", "predictor_variance")
        read, overlap = omega[0, 0, 0, 0], space.factors(position)[0][0, 0] ** 2
        observed = {"attention": read, "attention squared": read**2, "order_parameter": overlap}
        return space.log_likelihood(position), observed | {name: found[name] for name in kept}

    log_likelihood, draws = jax.lax.map(one, keys, batch_size=500)
    weights = np.exp(np.asarray(log_likelihood))
    error = weights.std() / np.sqrt(DRAWS)
    assert abs(weights.mean() - exact["evidence"]) < 4 * error < 0.1 * exact["evidence"]
    weights /= weights.sum()
    assert 1.0 / np.sum(weights**2) > 1000
    for name, values in draws.items():
        values = np.asarray(values).reshape(DRAWS, -1)
        mean = weights @ values
        mcse = np.sqrt(weights**2 @ (values - mean) ** 2)
        assert_within_mcse(mean, np.ravel(exact[name]), mcse, what=name)


@pytest.mark.slow
def test_infinite_width_is_the_limit_of_wide_networks():
    """Of three outputs, at a temperature that is sampled."""
    changes = {"task": DIGITS, "heads": (("learned", "near"),)}
    spreads = {"posterior": {"temperature_spread": 0.4}}
    limit = learned_problem(widths="infinite", **changes, **spreads)
    limit = limit.space("attention")
    position = limit.draw_prior(jax.random.key(6))
    expected = float(limit.log_likelihood(position))
    differences = []
    for width in (10**4, 10**6):
        wide = learned_problem(widths=width, **changes, **spreads)
        wide = wide.space("order_parameters")
        centre = {name: jnp.zeros(shape) for name, shape in wide.shapes.items()}
        differences.append(float(wide.log_likelihood({**centre, **position})) - expected)
    assert abs(differences[1]) < 1e-4 * abs(expected)
    np.testing.assert_allclose(differences[0] / differences[1], 100.0, rtol=0.05)
