"""Laws of the exact posterior under changes of the data that leave it as it is, or move it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, random_problem, space_of

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


def in_reverse(problem):
    return replace(problem, attended=problem.attended[::-1], labels=problem.labels[::-1])


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
    "in reverse": (in_reverse, lambda problem: 0.0),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_the_density_changes_by_a_constant_that_is_known(name, law, rng):
    change, more = LAWS[law]
    problem = random_problem(ARCHITECTURES[name], rng, temperature=0.3)
    expected = potentials(problem) + more(problem)
    received = potentials(change(problem))
    assert_equal_to_rounding(received, expected, operations=1e4, condition=1e3)
