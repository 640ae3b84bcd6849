"""Path kernels and the renormalised kernel, against explicit loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, random_network_data, random_order_parameters
from theory import Architecture, FeatureForm, KernelForm, OrderParameters, path_kernels
from theory.path_kernels import SymmetricKernelForm, kernel_form_pays, store_path_kernels


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


@pytest.mark.parametrize("name", ARCHITECTURES)
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
        form = path_kernels(left, other, architecture)
        assert isinstance(form, FeatureForm), "tiny problems take the feature form"
        scale = np.abs(expected_kernels).max()
        assert_equal_to_rounding(
            form.path_kernels(), expected_kernels, operations=2 * architecture.channels, scale=scale
        )
        terms = architecture.path_count**2 * architecture.channels
        size = scale * np.abs(overlap).max()
        stored = store_path_kernels(form, architecture)
        for one in (form, stored):
            received = jax.jit(lambda form, factor: form.kernel(factor))(one, factor)
            assert_equal_to_rounding(received, expected, operations=2 * terms, scale=size)


def test_a_factor_of_low_rank_is_enough(rng):
    architecture = ARCHITECTURES["two layers, three outputs"]
    left, right = two_sets(architecture, rng)
    factor = jnp.asarray(rng.standard_normal((architecture.order_parameter_sizes[0], 2)))
    form = path_kernels(left, right, architecture)
    expected = kernel_by_loops(
        np.asarray(factor @ factor.T), np.asarray(form.path_kernels()), architecture.outputs
    )
    stored = store_path_kernels(form, architecture)
    terms = architecture.path_count**2 * architecture.channels
    size = np.abs(factor @ factor.T).max() * np.abs(form.path_kernels()).max()
    for one in (form, stored):
        assert_equal_to_rounding(one.kernel(factor), expected, operations=2 * terms, scale=size)


def test_the_gp_kernel_is_the_sum_of_the_diagonal_path_kernels(rng):
    architecture = ARCHITECTURES["two layers, three outputs"]
    left, right = two_sets(architecture, rng)
    form = path_kernels(left, right, architecture)
    received = form.kernel(OrderParameters.gp_limit(architecture).factors[0])
    summed = np.einsum("ppxy->xy", form.path_kernels())
    expected = np.kron(np.prod(architecture.variances[1:]) * summed, np.eye(architecture.outputs))
    terms = architecture.path_count * architecture.channels
    assert_equal_to_rounding(received, expected, operations=4 * terms)


def test_the_kernel_of_one_set_is_positive_semidefinite(rng):
    architecture = ARCHITECTURES["two layers, three outputs"]
    left, _ = two_sets(architecture, rng)
    factor = jnp.asarray(np.linalg.cholesky(random_order_parameters(architecture, rng)[0]))
    kernel = np.asarray(path_kernels(left, None, architecture).kernel(factor))
    assert_equal_to_rounding(kernel, kernel.T, operations=2 * architecture.path_count**2)
    eigenvalues = np.linalg.eigvalsh(kernel)
    assert eigenvalues[0] >= -len(kernel) * np.finfo(float).eps * eigenvalues[-1]


def test_the_kernel_form_is_taken_where_it_is_small_and_cheaper():
    published = Architecture.uniform((2, 2), 10, channels=231)
    assert kernel_form_pays(100, None, published)
    assert kernel_form_pays(100, 100, published)
    many_paths = Architecture.uniform((4, 4), 10, channels=64)
    assert kernel_form_pays(600, None, many_paths)
    assert not kernel_form_pays(600, 1000, many_paths), "650 MB for one use per draw"
    assert not kernel_form_pays(2000, None, many_paths), "more than 2 GB"
    few_channels = Architecture.uniform((2, 2), 10, channels=2)
    assert not kernel_form_pays(100, 100, few_channels)


def test_the_form_that_pays_is_the_form_returned(rng):
    architecture = Architecture.uniform((2,), 10, channels=100)
    attended = jnp.asarray(rng.standard_normal((5, 2, 100)))
    form = path_kernels(attended, attended, architecture)
    assert isinstance(form, KernelForm)
    assert form.packed.shape == (3, 25)
    assert isinstance(path_kernels(attended, None, architecture), SymmetricKernelForm)
