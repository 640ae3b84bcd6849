"""Attention that is sampled: at known logits that of fixed attention, and its infinite width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sampler.data.make import build_task
from sampler.posterior.space import Space
from tests.recipes import (
    DIGITS,
    MARKOV,
    learned_problem,
    learned_recipe,
    logits_of_random_heads,
    problem_with_random_heads,
)

SPACES = ("order_parameters", "hidden_weights", "weights")
CASES = {
    "two layers": {},
    "first token, three layers": {
        "heads": (("learned",), ("random", "learned"), ("learned", "learned")),
        "network": {"readout": "first"},
    },
    "narrow, a layer without": {"heads": (("learned", "learned"), ("uniform",)), "widths": 1},
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
