"""Slow: the collapsed posterior of the published problem against three independent samplings.

And the theory against the collapsed posterior when the data grow with the width, for two outputs.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.analysis.estimates import mean_of
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.hamiltonian import NUTS
from tests.assertions import assert_within_mcse
from tests.problems import (
    all_but,
    copied,
    importance_draws_of,
    sampled,
    space_of,
    weighted_mean_and_error,
)
from tests.reference_data import (
    PUBLISHED_OVERLAP,
    TRIAL_OVERLAP,
    load_reference,
    reference_problem,
)
from theory import Architecture, LearningProblem, solve_saddle_point

pytestmark = pytest.mark.slow

# The wider ones take a minute each and ask the same.
WIDTHS = all_but([10, 100, 1000], [10], pytest.mark.long)
MATRICES = ("order_parameter", "order_parameter_layer_2", "readout_order_parameter")


@cache
def collapsed_chains(width: int) -> DrawCollector:
    """Four chains over the order parameters."""
    problem = reference_problem(load_reference(), width)
    space = space_of(problem, test=problem.attended[:2])
    collected = sampled(space, NUTS, chains=4, warmup=150, draws=2000, seed=width)
    assert not collected.statistics["diverging"].any()
    return collected


def mean_and_error(draws):
    """Mean, Monte Carlo standard error and effective sample size of [chain, draw, …]."""
    axes = {"chain_axis": 0, "draw_axis": 1}
    mcse = array_stats.mcse(draws, method="mean", **axes)
    return draws.mean((0, 1)), mcse, array_stats.ess(draws, method="bulk", **axes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("published chains in weight space", PUBLISHED_OVERLAP), ("collapsed trial", TRIAL_OVERLAP)],
)
@pytest.mark.long
def test_overlaps_of_the_published_problem(name, expected):
    collected = collapsed_chains(10)
    mean, mcse, ess = mean_and_error(collected.draws["order_parameter"])
    rows, columns = map(list, zip(*expected, strict=True))
    values, errors = map(np.array, zip(*expected.values(), strict=True))
    assert_within_mcse(
        mean[rows, columns],
        values,
        np.hypot(mcse[rows, columns], errors),
        ess=ess[rows, columns],
        what=name,
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_importance_draws_agree_with_chains(width):
    collected = collapsed_chains(width).draws
    problem = reference_problem(load_reference(), width)
    space = space_of(problem)
    draws = importance_draws_of(space, 40_000, seed=5)
    assert draws.trusted, draws.explain()
    rate = draws.effective_sample_size / draws.seconds
    print(f"\nN = {width}: {draws.explain()}; {rate:.0f} a second")
    factors = jax.jit(jax.vmap(lambda point: space.factors(space.unflatten(point))))
    for name, factor in zip(MATRICES, factors(jnp.asarray(draws.points)), strict=True):
        rows, columns = np.tril_indices(factor.shape[1])
        overlap = np.asarray(factor @ factor.swapaxes(1, 2))[:, rows, columns]
        received, error = weighted_mean_and_error(draws.weights, overlap)
        expected, mcse, ess = mean_and_error(collected[name][..., rows, columns])
        assert_within_mcse(received, expected, np.hypot(mcse, error), ess=ess, what=name)


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
    print({int(n): f"{one:.4f} ± {e:.4f}" for n, one, e in zip(widths, sizes, errors, strict=True)})
    assert np.all(sizes > 4 * errors), "the differences must be resolved"
    # Against the law 1/N through their weighted mean, with one degree of freedom less than points.
    scaled, scaled_errors = sizes * widths, errors * widths
    mean = np.average(scaled, weights=scaled_errors**-2.0)
    away = np.abs(scaled - mean) / scaled_errors
    assert np.all(away < 4.0), away
