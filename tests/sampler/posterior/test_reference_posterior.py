"""The collapsed posterior of the published problem against two other programs that sampled it.

And the theory against the collapsed posterior when the data grow with the width, for two outputs.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.analysis.estimates import mean_of
from sampler.mcmc.hamiltonian import NUTS
from tests.assertions import assert_within_mcse
from tests.problems import (
    copied,
    sampled,
    space_of,
    weighted_mean_and_error,
)
from tests.reference_data import PUBLISHED_OVERLAP, TRIAL_OVERLAP, published_draws
from theory import Architecture, LearningProblem, solve_saddle_point

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("expected", [PUBLISHED_OVERLAP, TRIAL_OVERLAP], ids=["weights", "trial"])
def test_overlaps_of_the_published_problem(expected):
    _, draws, factors = published_draws()
    mean, mcse = weighted_mean_and_error(draws.weights, factors @ factors.swapaxes(1, 2))
    rows, columns = map(list, zip(*expected, strict=True))
    values, errors = map(np.array, zip(*expected.values(), strict=True))
    combined = np.hypot(mcse[rows, columns], errors)
    assert_within_mcse(mean[rows, columns], values, combined)


WIDTH, COPIES = 8, (1, 2, 4, 8)


def two_outputs(rng) -> LearningProblem:
    """Two paths, one of them weaker; two outputs, the signs of linear functions of the other."""
    attended = rng.standard_normal((8, 2, 4)) * np.array([1.0, 0.6])[:, None]
    labels = np.sign(attended[:, 0] @ rng.standard_normal((4, 2)))
    architecture = Architecture.uniform((2,), WIDTH, channels=4, outputs=2)
    return LearningProblem(architecture, jnp.asarray(attended), jnp.asarray(labels), 0.1)


def difference(problem: LearningProblem) -> tuple[float, float]:
    """|U_exact − U_theory| over |U_theory|, all elements of U_1 together, and its error."""
    saddle = solve_saddle_point(problem)
    assert saddle.converged, saddle.explain()
    theory = np.asarray(saddle.order_parameters.matrices[0])
    collected = sampled(space_of(problem), NUTS, warmup=200, draws=1500, seed=1)
    exact = mean_of(collected.draws["order_parameter"])
    upper = np.triu_indices(len(theory))
    gap, mcse = (exact.value - theory)[upper], exact.mcse[upper]
    # The square of the noise is no difference.
    size = np.sqrt(np.sum(gap**2) - np.sum(mcse**2))
    error = np.sqrt(np.sum((gap * mcse) ** 2)) / size
    norm = np.linalg.norm(theory[upper])
    return size / norm, error / norm


@pytest.mark.long
@pytest.mark.usefixtures("without_annotation_checks")
def test_they_part_as_one_over_the_width(rng):
    """N and P doubled together, the data in copies: the same problem but for its width."""
    problem = two_outputs(rng)
    widths = np.array([WIDTH * copies for copies in COPIES])
    found = []
    for copies, width in zip(COPIES, widths, strict=True):
        wider = copied(problem, copies)
        architecture = replace(wider.architecture, widths=(int(width),) * 2)
        found.append(difference(replace(wider, architecture=architecture)))
    sizes, errors = np.array(found).T
    assert np.all(sizes > 4 * errors), "the differences must be resolved"
    # Against the law 1/N through their weighted mean, with one degree of freedom less than points.
    scaled, scaled_errors = sizes * widths, errors * widths
    mean = np.average(scaled, weights=scaled_errors**-2.0)
    away = np.abs(scaled - mean) / scaled_errors
    assert np.all(away < 4.0), away
