"""Bartlett coordinates: their prior, and Taylor series of the factors along lines."""

import itertools
import math

import jax
import numpy as np
import pytest
import scipy.stats

from tests.assertions import assert_equal_to_rounding
from tests.plain_posterior import chain
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
)
from theory import BartlettCoordinates

CASES = pytest.mark.parametrize("name", EVERY_ARCHITECTURE)


def factors_by_definition(architecture, coordinates):
    """F_{L+1} = σ_a B/√N_a and F_l = σ_l (1 ⊗ F_{l+1}) B/√N_l, one entry of B at a time."""
    widths, variances = architecture.widths[::-1], architecture.variances[:0:-1]
    sizes = (architecture.outputs, *architecture.heads[::-1])
    above, blocks = np.eye(1), []
    for width, heads in zip(widths, sizes, strict=True):
        rows = heads * above.shape[1]
        rank = min(width, rows)
        blocks.append((rows, rank, width))
        above = np.eye(rank)
    values, matrices = iter(coordinates), []
    for rows, rank, width in reversed(blocks):
        matrix = np.zeros((rows, rank))
        for i in range(rank):
            nu = width - i
            matrix[i, i] = math.exp(0.5 * math.log(nu) + next(values) / math.sqrt(2 * nu))
        for i, j in itertools.product(range(rows), range(rank)):
            if i > j:
                matrix[i, j] = next(values)
        matrices.append(matrix)
    assert next(values, None) is None
    factor, factors = np.eye(1), []
    for matrix, heads, width, variance in zip(
        matrices[::-1], sizes, widths, variances, strict=True
    ):
        factor = math.sqrt(variance / width) * np.kron(np.eye(heads), factor) @ matrix
        factors.append(factor)
    return factors[::-1]


@CASES
def test_factors(name, rng):
    """By the definition, and by the compiled functions that the sampler uses."""
    architecture = ARCHITECTURES[name]
    coordinates = BartlettCoordinates(architecture)
    assert coordinates.size == architecture.bartlett_coordinate_count
    assert coordinates.architecture.is_regular is ("narrow" not in name)
    point = rng.standard_normal(coordinates.size)
    received = coordinates.factors(point)
    definition = factors_by_definition(architecture, point)
    compiled = jax.jit(lambda x: chain(coordinates, x))(point)
    for factor, *expected in zip(received, definition, compiled, strict=True):
        for other in expected:
            assert factor.shape == other.shape
            assert_equal_to_rounding(factor, other, operations=10 * factor.shape[0])


@CASES
def test_prior_of_the_coordinates(name, rng):
    """Densities of χ_{N_l − i} and of normal variables by SciPy, with the Jacobian dc/dt."""
    architecture = ARCHITECTURES[name]
    coordinates = BartlettCoordinates(architecture)
    point = 1.5 * rng.standard_normal(coordinates.size)
    received = coordinates.prior_derivatives(point)[0]
    factors = iter(received)
    parts = zip(architecture.widths, architecture.bartlett_shapes, coordinates.layers, strict=True)
    for width, shape, layer in parts:
        diagonal, below = np.split(point[layer], [shape.rank])
        for i, t in enumerate(diagonal):
            nu = width - i
            c = math.sqrt(nu) * math.exp(t / math.sqrt(2 * nu))
            expected = -scipy.stats.chi.logpdf(c, nu) - math.log(c / math.sqrt(2 * nu))
            assert next(factors) == pytest.approx(expected, abs=1e-12 * (1 + nu))
        for value in below:
            assert next(factors) == pytest.approx(-scipy.stats.norm.logpdf(value), abs=1e-14)
    assert next(factors, None) is None
