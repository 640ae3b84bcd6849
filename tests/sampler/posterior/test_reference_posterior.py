"""Slow: the collapsed posterior of the published problem, against three independent samplings."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chunks import sample_in_chunks
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.hamiltonian import NUTS
from sampler.posterior.importance import importance_draws
from sampler.posterior.order_parameters import factors_at
from sampler.posterior.spaces import order_parameter_density
from tests.assertions import assert_within_mcse
from tests.problems import order_parameters_of, weighted_mean_and_error
from tests.reference_data import (
    PUBLISHED_OVERLAP,
    TRIAL_OVERLAP,
    load_reduced_reference,
    reference_problem,
)

pytestmark = pytest.mark.slow

MATRICES = ("order_parameter", "order_parameter_layer_2", "readout_order_parameter")


@cache
def collapsed_chains(width: int) -> DrawCollector:
    """Four chains of NUTS over the order parameters."""
    problem = reference_problem(load_reduced_reference(), width)
    settings = ChainSettings(chains=4, warmup=150, draws=2000, seed=width)
    collected = DrawCollector(settings.draws)
    sample_in_chunks(
        order_parameter_density(problem, problem.attended[:2]), NUTS, settings, collected
    )
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
def test_overlaps_of_the_published_problem(name, expected):
    collected = collapsed_chains(10)
    mean, mcse, ess = mean_and_error(collected.draws["order_parameter"])
    print(f"\n{name}; {collected.statistics['n_steps'].mean():.1f} leapfrog steps per draw")
    for (i, j), (value, error) in expected.items():
        apart = (mean[i, j] - value) / np.hypot(mcse[i, j], error)
        print(
            f"U_1[{i},{j}]: {mean[i, j]:.4f} ± {mcse[i, j]:.4f} (ESS {ess[i, j]:.0f}), expected "
            f"{value} ± {error}: {apart:+.1f} standard errors apart"
        )
    rows, columns = map(list, zip(*expected, strict=True))
    values, errors = map(np.array, zip(*expected.values(), strict=True))
    assert_within_mcse(
        mean[rows, columns],
        values,
        np.hypot(mcse[rows, columns], errors),
        ess=ess[rows, columns],
        what=name,
    )


@pytest.mark.parametrize("width", [10, 100, 1000])
def test_importance_draws_agree_with_chains(width):
    collected = collapsed_chains(width).draws
    problem = reference_problem(load_reduced_reference(), width)
    draws = importance_draws(order_parameters_of(problem), 40_000, seed=5)
    assert draws.trusted, draws.explain()
    rate = draws.effective_sample_size / draws.seconds
    print(f"\nN = {width}: {draws.explain()}; {rate:.0f} a second")
    factors = jax.jit(jax.vmap(lambda position: factors_at(position, problem.architecture)))(
        {name: jnp.asarray(values) for name, values in draws.position.items()}
    )
    for name, factor in zip(MATRICES, factors, strict=True):
        rows, columns = np.tril_indices(factor.shape[1])
        overlap = np.asarray(factor @ factor.swapaxes(1, 2))[:, rows, columns]
        received, error = weighted_mean_and_error(draws.weights, overlap)
        expected, mcse, ess = mean_and_error(collected[name][..., rows, columns])
        assert_within_mcse(received, expected, np.hypot(mcse, error), ess=ess, what=name)
