"""Kernels and their alignment: of theory and draws the same, with errors that hold."""

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from sampler.analysis.kernels import (
    kernel_of,
    path_kernels,
    sampled_alignment_table,
    sampled_kernels,
)
from sampler.analysis.quantities import sampled_alignment
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.data.split import AttendedSplit, StreamedSplit, spread_over_labels
from sampler.problem import Problem, ShownExamples, square_roots
from tests.small import PATH_NAMES, random_observables, small_problem
from theory import Features, OrderParameters, kernel_alignment


def showing_all(problem: Problem) -> Problem:
    """The problem with all its training examples shown."""
    learning = problem.learning
    numbers = np.arange(len(learning.labels))
    shown = ShownExamples(numbers, np.asarray(learning.labels), learning.attended)
    return replace(problem, shown=shown)


def whole_kernel(problem: Problem, overlap: np.ndarray) -> np.ndarray:
    """K over (example, output) as samplers have it."""
    factor = jnp.asarray(square_roots(overlap))
    return np.asarray(Features(problem.learning.features, None).kernel(factor))


def mean_of_outputs(kernel: np.ndarray, outputs: int) -> np.ndarray:
    size = len(kernel) // outputs
    return np.einsum("xcyc->xy", kernel.reshape(size, outputs, size, outputs)) / outputs


@pytest.mark.parametrize("outputs", [1, 2])
def test_kernels_shown_are_those_of_the_network(rng, outputs):
    problem = showing_all(small_problem(rng, outputs=outputs))
    draws = random_observables(problem, rng)
    leading, beyond = draws["order_parameter"][0, :2]
    for overlap in (leading, beyond):
        expected = mean_of_outputs(whole_kernel(problem, overlap), outputs)
        np.testing.assert_allclose(kernel_of(problem, overlap)["kernel"][1], expected, rtol=1e-12)
    # At infinite width U_1 is a multiple of 1: the sum over paths of their own kernels.
    table = path_kernels(problem, leading)
    blocks = table["path_kernels"].values
    limit = np.asarray(OrderParameters.gp_limit(problem.architecture).matrices[0])
    scale = np.prod(problem.architecture.order_parameter_variances)
    expected = scale * np.einsum("ppxy->xy", blocks)
    np.testing.assert_allclose(kernel_of(problem, limit)["kernel"][1], expected, rtol=1e-12)
    assert tuple(table["shown_path"].values) == PATH_NAMES


@pytest.mark.parametrize("outputs", [1, 2])
def test_kernel_of_draws_is_the_mean_of_their_kernels(rng, outputs):
    problem = showing_all(small_problem(rng, outputs=outputs))
    draws = random_observables(problem, rng)
    received = sampled_kernels(problem, draws)
    overlaps = draws["order_parameter"].reshape(-1, *draws["order_parameter"].shape[2:])
    kernels = [mean_of_outputs(whole_kernel(problem, one), outputs) for one in overlaps]
    np.testing.assert_allclose(received["kernel"], np.mean(kernels, axis=0), rtol=1e-10)
    mean = np.mean(kernels, axis=0)
    middle = np.eye(len(mean)) - 1.0 / len(mean)
    centred = middle @ mean @ middle
    expected = centred / np.mean(np.diag(centred))
    np.testing.assert_allclose(received["centred_kernel"], expected, rtol=1e-9, atol=1e-12)
    error = np.std(kernels, axis=0, ddof=1) / np.sqrt(len(kernels))
    # Independent draws: 20 batches know a standard deviation to 16 %.
    ratio = received["kernel_mcse"].values / error
    assert abs(ratio.mean() - 1.0) < 3.0 * 0.16
    labels = jnp.asarray(problem.labels).reshape(-1)
    expected = kernel_alignment(jnp.asarray(whole_kernel(problem, overlaps.mean(axis=0))), labels)
    np.testing.assert_allclose(received["kernel_alignment"], expected, rtol=1e-8)


def test_errors_of_the_alignment_are_how_far_it_scatters(rng):
    problem = small_problem(rng)
    centre = np.diag([9.0, 4.0, 2.0, 1.0])
    values, errors = [], []
    for _ in range(40):
        noise = rng.standard_normal((20, 4, 4))
        batches = centre + 0.05 * (noise + noise.swapaxes(1, 2))
        table = sampled_alignment_table(problem, batches)
        values.append(table["kernel_alignment"])
        errors.append(table["kernel_alignment_mcse"])
    scatter = np.std(values, axis=0, ddof=1)
    # Three standard errors of a standard deviation known by 40 values.
    limit = 3.0 / np.sqrt(2 * 39)
    np.testing.assert_allclose(np.mean(errors, axis=0) / scatter, 1.0, atol=limit)


def test_components_that_were_not_followed_are_not_compared():
    columns = {"kernel_alignment": (("predictor", "component"), np.array([[0.5, 0.4, 0.3]]))}
    theory = xr.Dataset(columns, {"predictor": ["leading"]})
    group = xr.Dataset(
        {
            "kernel_alignment": ("component", np.array([0.6, 0.4])),
            "kernel_alignment_mcse": ("component", np.array([0.05, 0.02])),
        }
    )
    tree = xr.DataTree.from_dict({"kernel": group})
    received = sampled_alignment(TheoryAndDraws(theory, tree))
    np.testing.assert_array_equal(received.value, [0.6, 0.4, np.nan])
    np.testing.assert_array_equal(received.mcse, [0.05, 0.02, np.nan])
    assert sampled_alignment(TheoryAndDraws(theory, xr.DataTree())) is None


def test_examples_are_chosen_evenly_and_sorted_by_label():
    labels = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])[:, None]
    split = AttendedSplit(np.zeros((6, 1, 2)), labels, (1,))
    np.testing.assert_array_equal(spread_over_labels(split, 10), [0, 2, 4, 1, 3, 5])
    np.testing.assert_array_equal(spread_over_labels(split, 2), [0, 5])
    classes = np.eye(3)[[2, 0, 1, 0]]
    split = AttendedSplit(np.zeros((4, 1, 2)), classes, (1,))
    np.testing.assert_array_equal(spread_over_labels(split, 4), [1, 3, 2, 0])
    source = SimpleNamespace(identity=str, blocks=iter)
    assert spread_over_labels(StreamedSplit(source, labels, 6, (1,), 2, None), 4) is None
