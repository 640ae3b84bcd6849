"""Rows of a triangle in the place of examples: everything is what it was."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assertions import assert_equal_to_rounding
from tests.dense import dense_kernel_of_infinite_width
from tests.problems import ARCHITECTURES, random_problem
from theory import (
    DenseEnergy,
    LearningProblem,
    Predictor,
    Triangle,
    compress,
    kernel_alignment,
    predict,
    solve_saddle_point,
    sub_network,
)
from theory.learning_problem import LARGEST_LABELS


def rounding_of(problem, factor):
    """What rounding does to what K + 𝒯 1 is inverted for: sums over its rows, its condition."""
    noisy = np.asarray(problem.energy.kernels.kernel(factor))
    eigenvalues = np.linalg.eigvalsh(noisy) + problem.temperature
    condition = eigenvalues[-1] / problem.temperature
    return {"operations": len(noisy) ** 2, "condition": condition}


def both(name, rng, more=20, temperature=0.1) -> tuple[LearningProblem, LearningProblem]:
    """A problem with so many examples more than Π D, and the same compressed."""
    architecture = ARCHITECTURES[name]
    examples = architecture.path_count * architecture.channels + more
    problem = random_problem(architecture, rng, examples=examples, temperature=temperature)
    return problem, compress(problem)


def random_factor(problem, rng):
    rows = problem.architecture.order_parameter_sizes[0]
    return jnp.asarray(np.tril(rng.standard_normal((rows, rows))) + 2.0 * np.eye(rows))


@pytest.mark.parametrize("name", ["two layers, three outputs"])
def test_nothing_changes_up_to_as_many_examples_as_features(name, rng):
    for more in (-1, 0):
        problem, small = both(name, rng, more)
        assert small is problem


@pytest.mark.parametrize(
    ("name", "more"),
    [("one head", 1), ("two layers, three outputs", 40)],
)
def test_energy_and_its_derivatives(name, more, rng):
    problem, small = both(name, rng, more)
    arch = problem.architecture
    assert small.labels.shape == (arch.path_count * arch.channels, arch.outputs)
    assert (small.examples, len(problem.labels)) == (problem.examples, problem.examples)
    factor = random_factor(problem, rng)
    constant, rounding = small.residual_log_likelihood, rounding_of(problem, factor)
    size = {True: problem.labels.size, False: small.labels.size}
    values = []
    for one, is_whole in ((problem, True), (small, False)):
        energy = one.energy
        value, (slope, by_temperature) = jax.jit(
            jax.value_and_grad(lambda f, t, e: replace(e, temperature=t)(f), argnums=(0, 1))
        )(factor, energy.temperature, energy)
        unit = size[is_whole] * np.log(2.0 * np.pi)
        likelihood = -0.5 * (float(value) + unit) + one.residual_log_likelihood
        by_temperature += jax.grad(one.residual.energy)(energy.temperature)
        hessian = jax.jit(lambda f, e: jax.hessian(e)(f))(factor, energy)
        dense = DenseEnergy(one).at(np.asarray(factor))
        values.append((likelihood, slope, by_temperature, hessian, dense.curvature))
        assert_equal_to_rounding(dense.value, value, **rounding, what="dense")
    assert constant != 0.0
    for what, (received, expected) in enumerate(zip(*values[::-1], strict=True)):
        assert_equal_to_rounding(received, expected, **rounding, what=what)


def test_limits_of_the_temperature_and_the_saddle_point_are_those_of_all_examples(rng):
    """The rounding of tr K at infinite width, or the size of all labels where they are large."""
    problem, small = both("one layer, two outputs", rng, 5)
    arch = problem.architecture
    kernel = dense_kernel_of_infinite_width(problem.attended, problem.attended, arch)
    trace, squares = arch.outputs * np.trace(kernel), 1e20 * float(np.sum(problem.labels**2))
    large = replace(problem, labels=1e10 * problem.labels)
    for whole, expected in ((problem, 2.0**-52 * trace), (large, squares / LARGEST_LABELS)):
        for one in (whole, compress(whole)):
            assert one.lowest_temperature == pytest.approx(expected, rel=1e-12, abs=0.0)
    one, other = map(solve_saddle_point, (problem, small))
    assert one.action == pytest.approx(other.action, rel=1e-10)


def test_alignments(rng):
    problem, small = both("two layers, three outputs", rng)
    factor = random_factor(problem, rng)
    kernel, labels = problem.energy.kernels.kernel(factor), problem.energy.flat_labels
    expected = np.asarray(kernel_alignment(kernel, labels))[: small.labels.size]
    received = kernel_alignment(
        small.energy.kernels.kernel(factor), small.energy.flat_labels, small.residual_squares
    )
    # Of eigenvectors it is the smallest distance between eigenvalues that magnifies rounding.
    eigenvalues = np.linalg.eigvalsh(np.asarray(kernel))[::-1][: len(expected) + 1]
    magnified = eigenvalues[0] / np.min(-np.diff(eigenvalues))
    rounding = {"operations": len(kernel), "condition": magnified, "scale": 1.0}
    assert_equal_to_rounding(received, expected, **rounding)


def test_sub_networks_are_compressed_further(rng):
    problem, small = both("two layers", rng)
    kept, tests = ((0,), (0, 2)), problem.attended[:5]
    whole = replace(
        problem,
        architecture=replace(problem.architecture, heads=(1, 2)),
        attended=problem.attended[:, [0, 2]],
    )
    factor = random_factor(whole, rng)
    expected = predict(Predictor.for_examples(whole, tests[:, [0, 2]]), factor)
    energy = whole.energy(factor) + whole.labels.size * np.log(2.0 * np.pi)
    rounding = rounding_of(whole, factor)
    for one in (problem, small):
        part, some = sub_network(one, kept, tests)
        assert len(part.labels) == 2 * problem.architecture.channels
        assert part.examples == problem.examples
        for one_moment, of_whole in zip(
            predict(Predictor.for_examples(part, some), factor), expected, strict=True
        ):
            assert_equal_to_rounding(one_moment, of_whole, **rounding)
        received = part.energy(factor) + part.labels.size * np.log(2.0 * np.pi)
        received -= 2.0 * part.residual_log_likelihood
        assert_equal_to_rounding(received, energy, **rounding)


@settings(max_examples=30, deadline=None)
@given(cuts=st.sets(st.integers(1, 199), max_size=12))
def test_the_triangle_does_not_depend_on_blocks(cuts):
    """R of R Rᵀ = X Xᵀ for the columns X | y of all examples, wherever they are divided."""
    rng = np.random.default_rng(5)
    attended, labels = rng.standard_normal((200, 2, 3)), rng.standard_normal((200, 2))
    found = Triangle.empty(2, 3, 2)
    for start, end in pairwise([0, *sorted(cuts), 200]):
        found = found.fold(attended[start:end], labels[start:end])
    flat = attended.reshape(200, -1)
    columns = np.concatenate([flat, labels], axis=1)
    expected = np.linalg.cholesky(columns.T @ columns).T
    rounding = {"operations": columns.size, "condition": np.linalg.cond(columns) ** 2}
    assert found.examples == 200
    assert_equal_to_rounding(found.matrix, expected, **rounding)
    squares = np.sum((labels - flat @ np.linalg.lstsq(flat, labels)[0]) ** 2)
    assert_equal_to_rounding(found.squares, squares, **rounding)


def test_what_no_network_can_fit_is_not_lost_in_what_it_can(rng):
    """|y|² − |y_∥|² has no correct digit here, the rows below the triangle have ten."""
    attended = rng.standard_normal((50, 1, 4))
    noise = rng.standard_normal((50, 1))
    basis = np.linalg.qr(attended[:, 0])[0]
    noise -= basis @ (basis.T @ noise)
    labels = attended[:, 0] @ rng.standard_normal((4, 1)) + 1e-9 * noise
    triangle = Triangle.empty(1, 4, 1).fold(attended, labels)
    assert triangle.squares == pytest.approx(1e-18 * np.sum(noise**2), rel=1e-5)
