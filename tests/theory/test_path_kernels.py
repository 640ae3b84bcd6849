"""Path kernels in every form, K + temperature factorised, and the inverse of a triangle."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    random_network_data,
    random_order_parameters,
)
from theory import (
    Features,
    NoisyKernel,
    make_path_kernels,
)
from theory.energy import BLOCK, gram_of_lower, inverse_of_lower
from theory.path_kernels import store_path_kernels
from theory.size_limits import stored_bytes


def path_kernels_by_loops(left, right, architecture):
    """σ_0² ξ^π(x)·ξ^π'(x') / (D Π), one number at a time."""
    left, right, paths = np.asarray(left), np.asarray(right), architecture.path_count
    kernels = np.empty((paths, paths, len(left), len(right)))
    for p, q, x, y in itertools.product(*map(range, kernels.shape)):
        kernels[p, q, x, y] = left[x, p] @ right[y, q]
    return architecture.variances[0] * kernels / (architecture.channels * paths)


def kernel_by_loops(overlap, kernels, outputs):
    """K_{(x,c),(x',c')} = Σ U^{(π,c),(π',c')} C_{ππ'}(x, x'), one number at a time."""
    paths, _, examples, others = kernels.shape
    kernel = np.zeros((examples * outputs, others * outputs))
    for x, y in itertools.product(range(examples), range(others)):
        for c, d in itertools.product(range(outputs), repeat=2):
            for p, q in itertools.product(range(paths), repeat=2):
                term = overlap[p * outputs + c, q * outputs + d] * kernels[p, q, x, y]
                kernel[x * outputs + c, y * outputs + d] += term
    return kernel


def two_sets(architecture, rng):
    left = random_network_data(architecture, rng, examples=4).attended
    right = random_network_data(architecture, rng, examples=3).attended
    return left, right


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_both_forms_equal_the_loops(name, rng):
    architecture = ARCHITECTURES[name]
    left, right = two_sets(architecture, rng)
    overlap = random_order_parameters(architecture, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    for other in (None, right):
        expected_kernels = path_kernels_by_loops(
            left, left if other is None else other, architecture
        )
        expected = kernel_by_loops(overlap, expected_kernels, architecture.outputs)
        form = make_path_kernels(left, other, architecture)
        assert isinstance(form, Features), "tiny problems take the feature form"
        scale = np.abs(expected_kernels).max()
        terms = architecture.path_count**2 * architecture.channels
        size = scale * np.abs(overlap).max()
        stored = store_path_kernels(form, architecture.outputs)
        sizes = architecture.path_count, architecture.outputs
        assert stored.nbytes == stored_bytes(4, None if other is None else 3, *sizes)
        for one in (form, stored):
            received = jax.jit(lambda form, factor: form.kernel(factor))(one, factor)
            assert_equal_to_rounding(received, expected, operations=2 * terms, scale=size)


PATHS, CHANNELS = 3, 4
EXAMPLES = [1, 65, 530]  # one block, two, more than the least


@pytest.fixture(params=EXAMPLES)
def forms(request, rng):
    features = jnp.asarray(rng.standard_normal((request.param, PATHS, CHANNELS)))
    return Features(features, None), store_path_kernels(Features(features), 1)


def test_kernel_and_pull_back_are_those_of_the_features(forms, rng):
    rank = 2

    def kernel_and_slopes(form, factor, slope):
        kernel, pull_back = jax.vjp(form.kernel, factor)
        return kernel, pull_back(slope)[0]

    factor = jnp.asarray(rng.standard_normal((PATHS, rank)))
    slope = rng.standard_normal(2 * [len(forms[0].left)])
    slope = jnp.asarray(slope + slope.T)
    (expected, expected_slopes), (kernel, slopes) = (
        jax.jit(kernel_and_slopes)(form, factor, slope) for form in forms
    )
    assert forms[1].nbytes == stored_bytes(len(kernel), None, PATHS, 1)
    terms = PATHS**2 * CHANNELS * rank
    assert_equal_to_rounding(kernel, expected, operations=terms)
    assert np.array_equal(kernel, kernel.T)
    assert_equal_to_rounding(slopes, expected_slopes, operations=terms * len(kernel), condition=10)


def test_an_indefinite_kernel_gives_nan():
    noisy = NoisyKernel.factorise(jnp.diag(jnp.array([1.0, -2.0])), 0.3)
    assert np.isnan(noisy.log_determinant)


SIZES = [7, BLOCK, 3 * BLOCK + 1]


def random_lower(rng, size, count=()):
    """Cholesky factors of well-conditioned matrices."""
    noise = rng.standard_normal((*count, size, size)) / np.sqrt(size)
    return jnp.asarray(np.linalg.cholesky(noise @ noise.swapaxes(-1, -2) + np.eye(size)))


@pytest.mark.parametrize("size", SIZES)
def test_the_inverse_inverts_and_is_lower_triangular(size, rng):
    lower = random_lower(rng, size)
    inverse = np.asarray(jax.jit(inverse_of_lower)(lower))
    condition = np.linalg.cond(lower)
    assert_equal_to_rounding(inverse @ lower, np.eye(size), operations=size, condition=condition)
    assert not np.triu(inverse, 1).any()


@pytest.mark.parametrize("size", SIZES)
def test_the_gram_matrix_is_the_full_product(size, rng):
    lower = random_lower(rng, size)
    assert_equal_to_rounding(
        jax.jit(gram_of_lower)(lower), np.asarray(lower).T @ np.asarray(lower), operations=size
    )
