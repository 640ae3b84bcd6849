"""Norms, residuals, MLPs and attention that is sampled in networks outside the theory."""

from dataclasses import replace
from itertools import cycle, product
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.settings.network_sections import Mlp
from sampler.token_network import predict_split
from sampler.token_problem import TokenProblem
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.token_networks import (
    Learned,
    data_of,
    drawn_weights,
    loops,
    network_of,
    problem_of_splits,
    split_of,
)
from theory import Architecture

# Widths between branches are equal, as residuals need them; inside a pair it is another.
SHAPES = {
    "one layer": (Architecture((2,), (5, 5), (0.9, 1.5, 0.6), 4, outputs=2), (False,)),
    "two layers": (Architecture((2, 3), (5, 5, 5), (0.9, 1.5, 0.6, 1.3), 4), (False, False)),
    "pair, layer": (
        Architecture((2, 2, 1), (5, 4, 5, 5), (0.9, 1.5, 0.6, 1.3, 0.8), 4),
        (True, False),
    ),
}
MLPS = {function: Mlp(width=3, activation=function) for function in ("relu", "erf", "gelu")}
BLOCKS = list(product(("none", "before", "after"), (False, True), (False, True)))
# Every kind of block once. Periods of 3, 5 and 7: nothing else is chosen with them.
READOUTS = ("last", "mean", "first", "mean", "last")
FUNCTIONS = ("relu", "linear", "erf", "gelu", "relu", "gelu", "erf")
CHOICES = zip(cycle(SHAPES), cycle(READOUTS), cycle(FUNCTIONS))
BLOCKS = [(*block, *choice) for block, choice in zip(BLOCKS, CHOICES, strict=False)]


def received(network, split, weights):
    arrays = {name: jnp.asarray(values) for name, values in weights.items()}
    return np.asarray(predict_split(arrays, split, network))


def assert_equals_loops(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(("norm", "residual", "has_mlp", "shape", "readout", "values"), BLOCKS)
def test_every_block_equals_loops(norm, residual, has_mlp, shape, readout, values, rng):
    arch, pairs = SHAPES[shape]
    mlp = list(MLPS.values())[len(norm) % 3] if has_mlp else None
    network = network_of(arch, pairs, values, norm, readout, residual=residual, mlp=mlp)
    data, weights = data_of(network, rng, examples=2, tokens=3), drawn_weights(network, rng)
    expected = loops(network, data, weights)
    assert_equals_loops(received(network, split_of(data, None), weights), expected)


LEARNED = {
    "one layer": ((True, False),),
    "two layers": ((False, False), (True, False, True)),
    "pair, layer": ((True, True), (True,)),
}
FORMS = {"full": (1.3,), "low_rank": (1.3, 0.8)}


def with_heads(network, learned: Learned, tokens: int):
    heads = learned.heads(network, tokens)
    return replace(network, logits=heads.sites, stream=learned.stream), heads


@pytest.mark.parametrize(
    ("shape", "stream", "form", "norm", "readout"),
    [
        ("two layers", True, "low_rank", "before", "last"),
        ("one layer", True, "full", "none", "mean"),
        ("pair, layer", False, "low_rank", "after", "first"),
    ],
)
def test_learned_heads_equal_loops(shape, stream, form, norm, readout, rng):
    arch, pairs = SHAPES[shape]
    settings = {"residual": True, "mlp": MLPS["relu"]}
    network = network_of(arch, pairs, "relu", norm, readout, **settings)
    learned = Learned(form, LEARNED[shape], stream, FORMS[form])
    network, heads = with_heads(network, learned, tokens=3)
    data, weights = data_of(network, rng, examples=2, tokens=3), drawn_weights(network, rng)
    found = received(network, split_of(data, heads), weights)
    assert_equals_loops(found, loops(network, data, weights, learned))


def stream_network(form="full", norm="none", readout="mean", **settings):
    """One layer of two learned heads that read the stream, for three tokens."""
    arch, pairs = SHAPES["one layer"]
    network = network_of(arch, pairs, "linear", norm, readout, **settings)
    return with_heads(network, Learned(form, ((True, True),), True, FORMS[form]), 3)


def test_logit_weights_of_zero_make_uniform_attention(rng):
    network, heads = stream_network(residual=True, mlp=MLPS["gelu"])
    data, weights = data_of(network, rng, tokens=3), drawn_weights(network, rng)
    found = received(network, split_of(data, heads), weights | {"logits_1": np.zeros((2, 5, 5))})
    uniform = replace(data, attention=(np.full((3, 2, 3, 3), 1 / 3),))
    fixed = replace(network, logits=())
    assert_equal_to_rounding(
        found, received(fixed, split_of(uniform, None), weights), operations=200
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_first_layer_that_reads_the_stream_reads_inputs_by_other_weights(form, rng):
    """z = V_0 x/√D, so that z_sᵀ W z_t/N = x_sᵀ (V_0ᵀ W V_0/DN) x_t, and W_Q z/√N alike."""
    network, heads = stream_network(form)
    data, weights = data_of(network, rng, tokens=3), drawn_weights(network, rng)
    first = weights["V_0"] / sqrt(network.architecture.channels * network.architecture.widths[0])
    if form == "full":
        below = np.einsum("ni,hnm,mj->hij", first, weights["logits_1"], first)
    else:
        below = np.einsum("hqgn,ni->hqgi", weights["logits_1"], first)
    of_inputs = replace(Learned(form, ((True, True),), True, FORMS[form]), stream=False)
    other, other_heads = with_heads(replace(network, logits=()), of_inputs, 3)
    expected = received(network, split_of(data, heads), weights)
    found = received(other, split_of(data, other_heads), weights | {"logits_1": below})
    assert_equal_to_rounding(found, expected, operations=500)


def test_the_order_of_tokens_does_not_matter_to_a_mean_over_them(rng):
    network, heads = stream_network("low_rank", "before", residual=True, mlp=MLPS["erf"])
    data, weights = data_of(network, rng, tokens=3), drawn_weights(network, rng)
    other = replace(data, inputs=data.inputs[:, [2, 0, 1]])
    expected = received(network, split_of(data, heads), weights)
    assert_equal_to_rounding(
        received(network, split_of(other, heads), weights), expected, operations=500
    )
    network, heads = stream_network("low_rank", "before", "last", residual=True, mlp=MLPS["erf"])
    one, another = (received(network, split_of(d, heads), weights) for d in (data, other))
    assert np.abs(one - another).min() > 1e-3


def test_residuals_keep_second_moments_exactly(rng):
    """Second moments S_{tt'} = E z_t z_t' over the prior: S ← (S + σ_l² Σ_h Ωᵀ S Ω/H)/2.

    After an MLP of a ReLU S_tt is (1 + σ_l⁴) S_tt/2; Var f = σ_a² S_tt of the token that is read.
    """
    arch, pairs = Architecture((2,), (5, 5), (0.9, 1.5, 0.6), 4), (False,)
    network = network_of(arch, pairs, residual=True, mlp=MLPS["relu"])
    data = data_of(network, rng, examples=1, tokens=3)
    inputs, omega = data.inputs[0], data.attention[0][0]
    moment = 0.9 * inputs @ inputs.T / 4
    by_heads = np.einsum("hst,sr,hru->tu", omega, moment, omega) / 2
    moment = ((moment + 1.5 * by_heads) / 2)[-1, -1]
    expected = 0.6 * moment * (1 + 1.5**2) / 2
    weights = {
        name: rng.standard_normal((40_000, *shape)) for name, shape in network.weight_shapes.items()
    }
    for name, layer in network.weight_layers.items():
        weights[name] *= sqrt(network.variances[layer])
    tokens = split_of(data, None)
    outputs = jax.vmap(lambda one: predict_split(one, tokens, network))(weights)
    squares = np.asarray(outputs)[:, 0, 0] ** 2
    mcse = squares.std(ddof=1) / np.sqrt(squares.size)
    assert_within_mcse(squares.mean(), expected, mcse, what="Var f")


def block_problem(rng) -> TokenProblem:
    """A network with all of it, with data."""
    network, heads = stream_network("low_rank", "before", "last", residual=True, mlp=MLPS["gelu"])
    splits = [split_of(data_of(network, rng, examples, 3), heads) for examples in (4, 2)]
    labels = jnp.asarray(rng.standard_normal((4, 2)))
    return problem_of_splits(network, splits[0], labels, 0.3, splits[1])


@pytest.mark.slow
def test_the_posterior_is_that_of_the_loops_and_its_gradient_fits(rng):
    """ln p(y, weights) from the loops; its gradient from differences of both signs."""
    problem = block_problem(rng)
    network = problem.network
    space = problem.space("weights", keep=tuple(network.weight_shapes))
    weights = drawn_weights(network, rng)
    position = {name: jnp.asarray(values) for name, values in weights.items()}
    data = data_of(network, np.random.default_rng(0), 4, 3)
    data = replace(data, inputs=np.asarray(problem.data.tokens[0]))
    learned = Learned("low_rank", ((True, True),), True, FORMS["low_rank"])
    expected = scipy.stats.norm.logpdf(
        problem.labels, loops(network, data, weights, learned), sqrt(0.3)
    ).sum()
    layers = network.weight_layers
    for name, values in weights.items():
        variance = network.variances[layers[name]] if name in layers else 1.0
        expected += scipy.stats.norm.logpdf(values, 0, sqrt(variance)).sum()
    log_density = jax.jit(space.log_density)
    assert_equal_to_rounding(float(log_density(position)), expected, operations=2000)
    slopes = jax.jit(jax.grad(space.log_density))(position)
    for name, values in position.items():
        direction = jnp.asarray(rng.standard_normal(values.shape))

        def difference(step, name=name, along=direction, values=values):
            ends = (position | {name: values + sign * step * along} for sign in (1, -1))
            above, below = map(log_density, ends)
            return float(above - below) / (2 * step)

        near, far = difference(1e-4), difference(2e-4)
        # The error of the far one is four times that of the near one, but for rounding.
        error = abs(near - far) + 100 * np.finfo(float).eps * abs(expected) / 1e-4
        assert abs(float(jnp.sum(slopes[name] * direction)) - near) < error, name
    seen = space.observe(jax.random.key(0), position)
    assert {*network.weight_shapes} <= {*seen}


def test_weights_of_mlps_have_the_variances_of_their_layer_and_logits_have_none(rng):
    space = block_problem(rng).space("weights")
    deviations = space.unflatten(space.prior_gaussian.scale)
    expected = {"V_0": 0.9, "V_1": 1.5, "a": 0.6, "mlp_in_1": 1.5, "mlp_out_1": 1.5, "logits_1": 1}
    received = {name: np.unique(values).item() ** 2 for name, values in deviations.items()}
    assert received == pytest.approx(expected, rel=1e-14)
