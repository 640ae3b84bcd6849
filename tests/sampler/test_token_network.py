"""The forward pass token by token, against the sum over paths and loops from the definition."""

from dataclasses import replace
from functools import partial
from itertools import cycle, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sampler.token_network as module
from sampler.network import network_outputs
from sampler.token_network import READ, predict_tokens
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import (
    ARCHITECTURES,
    NetworkData,
    random_network_data,
    random_weights,
    weight_variances,
)
from tests.token_networks import PAIRED, data_of, loops, network_of
from theory import Architecture, attended_inputs, pair_matrices

KINDS = [
    ("relu", "none", "layer, pair, layer", "mean"),
    ("linear", "after", "one pair", "last"),
    ("relu", "after", "two layers", "first"),
    ("erf", "before", "layer, pair, layer", "last"),
    ("gelu", "none", "two layers", "mean"),
]


def received(network, data, weights):
    return compiled(network)(on_device(weights), *arrays_of(data))


def on_device(weights):
    return {name: jnp.asarray(values) for name, values in weights.items()}


def arrays_of(data, dtype=jnp.float64):
    return jnp.asarray(data.inputs, dtype), tuple(jnp.asarray(m, dtype) for m in data.attention)


def compiled(network):
    return jax.jit(partial(predict_tokens, network=network))


# Every architecture and every readout, not every pair: each is compiled anew.
@pytest.mark.parametrize(("name", "readout"), list(zip(ARCHITECTURES, cycle(READ), strict=False)))
def test_linear_it_is_the_sum_over_paths(name, readout, rng):
    arch = ARCHITECTURES[name]
    data = random_network_data(arch, rng, readout=readout)
    weights = random_weights(arch, rng)
    expected = np.asarray(network_outputs(on_device(weights), data.attended, arch))
    found = received(network_of(arch, readout=readout), data, weights)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(("name", "readout"), list(zip(PAIRED, ("last", "mean"), strict=True)))
def test_a_linear_hypernetwork_is_the_sum_over_hadamard_paths(name, readout, rng):
    """Σ over pairs of heads of products of attention entries: two layers, one mixing of tokens."""
    arch, hypernetworks = PAIRED[name]
    network = network_of(arch, hypernetworks, readout=readout)
    data, weights = data_of(network, rng), random_weights(arch, rng)
    expected = loops(network, data, weights)
    attention = tuple(
        pair_matrices(jnp.asarray(omega)) if is_pair else jnp.asarray(omega)
        for omega, is_pair in zip(data.attention, hypernetworks, strict=True)
    )
    attended = attended_inputs(jnp.asarray(data.inputs), attention, readout)
    assert attended.shape[1] == arch.path_count
    by_path = network_outputs(on_device(weights), attended, arch)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(by_path, expected, rtol=0, atol=1e-12 * scale)
    by_token = received(network, data, weights)
    np.testing.assert_allclose(by_token, expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize(("values", "norm", "name", "readout"), KINDS)
def test_it_equals_loops_over_the_definition(values, norm, name, readout, rng):
    arch, hypernetworks = PAIRED[name] if name in PAIRED else (ARCHITECTURES[name], None)
    network = network_of(arch, hypernetworks, values, norm, readout)
    data, weights = data_of(network, rng), random_weights(arch, rng)
    expected = loops(network, data, weights)
    found = received(network, data, weights)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.slow
def test_no_example_sees_another_and_batches_do_not_matter(rng, monkeypatch):
    arch, hypernetworks = PAIRED["layer, pair, layer"]
    network = network_of(arch, hypernetworks, "relu", "after")
    data, weights = data_of(network, rng, examples=5), on_device(random_weights(arch, rng))
    together = received(network, data, weights)
    changed = replace(data, inputs=data.inputs.copy())
    changed.inputs[1:] = rng.standard_normal(changed.inputs[1:].shape)
    np.testing.assert_array_equal(received(network, changed, weights)[0], together[0])

    def total(weights):
        outputs = predict_tokens(weights, *arrays_of(data), network)
        return jnp.sum(jnp.sin(outputs)), outputs

    def gradient_and_outputs():
        return jax.jit(jax.grad(lambda w: total(w), has_aux=True))(weights)

    gradient, _ = gradient_and_outputs()
    # two examples at a time, and one left over
    numbers = module.hidden_numbers(arrays_of(data)[0], network)
    monkeypatch.setattr(module, "EXAMPLES_BYTES", 2 * 8 * numbers)
    in_pieces, outputs = gradient_and_outputs()
    np.testing.assert_allclose(outputs, together, rtol=0, atol=1e-12 * np.abs(together).max())
    for name, expected in gradient.items():
        assert bool(jnp.isfinite(expected).all())
        assert bool((expected != 0).any())
        size = float(jnp.abs(expected).max())
        np.testing.assert_allclose(in_pieces[name], expected, rtol=0, atol=1e-12 * size)


def test_normalised_layers_forget_the_scale_of_their_input(rng):
    """Mean zero and variance one over units, whatever the inputs' scale; constants give zero."""
    hidden = jnp.asarray(100 * rng.standard_normal((4, 50)) + 3)
    found = module.layer_normalised(hidden)
    np.testing.assert_allclose(found.mean(axis=1), np.zeros(4), atol=1e-14)
    variance = np.asarray(hidden).var(axis=1)
    assert_equal_to_rounding(
        np.asarray(found).var(axis=1), variance / (variance + 1e-5), operations=500
    )
    np.testing.assert_array_equal(module.layer_normalised(jnp.full((2, 3), 7.0)), np.zeros((2, 3)))


def test_relu_values_keep_the_second_moment_of_one_token(rng):
    """One head that attends to one token: Var f is that of the linear network, σ_0² … σ_a² |x|²/D.

    √2 max(u, 0) of a symmetric u has the second moment of u, so that the ReLU changes f but not
    its prior variance; checked by drawing 40,000 networks from the prior.
    """
    arch = ARCHITECTURES["one head"]
    network = network_of(arch, values="relu")
    inputs = rng.standard_normal((1, 3, arch.channels))
    omega = np.zeros((1, 1, 3, 3))
    omega[:, :, 1] = 1.0  # every query attends to token 1
    expected = np.prod(arch.variances) * np.sum(inputs[0, 1] ** 2) / arch.channels
    squares = prior_outputs(network, NetworkData(inputs, (omega,), "last"), rng)[:, 0] ** 2
    mcse = squares.std(ddof=1) / np.sqrt(squares.size)
    assert_within_mcse(squares.mean(), expected, mcse, what="Var f")


def test_relu_values_of_several_heads_and_tokens_have_the_arc_cosine_moments(rng):
    """Given V_0: E f² = σ_a² (2/H) Σ Ω Ω' E[relu(u) relu(u')], u and u' Gaussian, by quadrature's
    closed form |z||z'| (sin θ + (π − θ) cos θ)/2π σ_1²/N_1 for one head and |z||z'|/2π for two."""
    arch = Architecture((2,), (6, 5), (0.7, 1.3, 0.6), channels=3)
    network = network_of(arch, values="relu")
    data = data_of(network, rng, examples=1, tokens=3)
    fixed = random_weights(arch, rng)["V_0"]
    hidden = data.inputs[0] @ fixed.T / np.sqrt(arch.channels)
    omega = data.attention[0][0][:, :, -1]  # [head, key] of the last query
    moment = 0.0
    for (h, s), (g, r) in product(np.ndindex(omega.shape), repeat=2):
        size = np.linalg.norm(hidden[s]) * np.linalg.norm(hidden[r])
        # different heads have independent values: their angle is a right one
        cosine = np.clip(hidden[s] @ hidden[r] / size, -1, 1) if h == g else 0.0
        angle = np.arccos(cosine)
        relu = size * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi)
        moment += omega[h, s] * omega[g, r] * 2 * relu * arch.variances[1] / arch.widths[0]
    expected = arch.variances[2] * moment / arch.heads[0]
    squares = prior_outputs(network, data, rng, V_0=fixed)[:, 0] ** 2
    mcse = squares.std(ddof=1) / np.sqrt(squares.size)
    assert_within_mcse(squares.mean(), expected, mcse, what="E f²")


def prior_outputs(network, data, rng, draws=40_000, **fixed):
    """f of the only example, [draw, output], for weights drawn from the prior."""
    arch = network.architecture
    weights = {
        name: jnp.asarray(
            np.sqrt(weight_variances(arch)[name]) * rng.standard_normal((draws, *size))
        )
        for name, size in arch.weight_shapes.items()
    }
    for name, values in fixed.items():
        weights[name] = jnp.broadcast_to(jnp.asarray(values), (draws, *values.shape))
    outputs = jax.jit(jax.vmap(lambda w: predict_tokens(w, *arrays_of(data), network)))(weights)
    return np.asarray(outputs)[:, 0]
