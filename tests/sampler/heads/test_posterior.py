"""Slopes of the exact posterior: draws that are weighted again, and quadrature over one U_1."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.heads.derivatives import (
    AFTER_EXACT,
    EVIDENCE_SLOPE_EXACT,
    LEARNING_EXACT,
    SIZE,
)
from sampler.heads.measures import TheoryWithoutHeads
from sampler.heads.posterior import predictions_of_posterior
from sampler.problem import square_roots
from tests.assertions import assert_within_mcse
from tests.problems import exact_scalar_posterior, scalar_problem
from tests.small import small_problem
from theory import AttentionPaths, Predictor, predict
from theory.architecture import all_heads
from theory.gate_response import paths_of_heads

STEP = 1e-4


def moved(theory: TheoryWithoutHeads, head: int, gate: float) -> TheoryWithoutHeads:
    """The theory whose attended inputs of all paths through a head are multiplied."""
    uses = paths_of_heads(AttentionPaths(theory.learning.architecture.heads))[head]
    by_path = jnp.asarray(1.0 + (gate - 1.0) * uses)[None, :, None]
    learning = replace(theory.learning, attended=theory.learning.attended * by_path)
    return replace(theory, learning=learning, attended=theory.attended * by_path)


def at_draws(draws, theory: TheoryWithoutHeads):
    """m and −E/2 of every draw."""
    predictor = Predictor.for_examples(theory.learning, theory.attended)
    factors = map(jnp.asarray, square_roots(draws))
    found = [(predict(predictor, one)[0], theory.learning.energy(one)) for one in factors]
    means, energies = (np.array(one) for one in zip(*found, strict=True))
    return means, -0.5 * energies


@pytest.mark.heavy
@pytest.mark.parametrize("outputs", [1, 2])
def test_slopes_with_learning_are_those_of_draws_that_are_weighted_again(outputs, rng):
    """The law of U_1 moves with a gate by the likelihood alone: weights are those of its ratio.

    Derivatives of such a mean are exact at any draws. They are weighted by their chains, too.
    """
    problem = small_problem(rng, outputs=outputs)
    rows = 4 * outputs
    labels = rng.standard_normal((5, outputs))
    draws = rng.standard_normal((2, 12, rows, 2 * rows)) / np.sqrt(2 * rows)
    draws = draws @ draws.swapaxes(-1, -2)
    theory = TheoryWithoutHeads(problem.learning, problem.attended_test, draws[0, 0])
    heads = all_heads((2, 2))[::-1]
    for shares in (None, np.array([0.75, 0.25])):
        found = predictions_of_posterior(theory, heads, labels, draws, shares)
        known = np.repeat([0.5, 0.5] if shares is None else shares, 12) / 12
        flat = draws.reshape(24, rows, rows)
        _, before = at_draws(flat, theory)
        for place in range(4):
            pair, logs = [], []
            for gate in (1.0 - STEP, 1.0 + STEP):
                means, after = at_draws(flat, moved(theory, 3 - place, gate))
                weights = known * np.exp(after - before)
                mean = np.tensordot(weights / weights.sum(), means, axes=1)
                pair.append(((mean - labels) ** 2).sum(axis=1))
                logs.append(np.log(weights.sum()))
            slope = (pair[1] - pair[0]) / (2 * STEP)
            # Central differences leave a third derivative times STEP²/6, and rounding over STEP.
            limit = 1e3 * STEP**2 * max(1.0, np.abs(slope).max())
            assert abs(found[LEARNING_EXACT].value[place] + slope.mean()) < limit
            assert abs(found[LEARNING_EXACT + SIZE].value[place] - np.abs(slope).mean()) < limit
            evidence = (logs[1] - logs[0]) / (2 * STEP)
            limit = 1e3 * STEP**2 * max(1.0, abs(evidence))
            assert abs(found[EVIDENCE_SLOPE_EXACT].value[place] - evidence) < limit
    difference = found[LEARNING_EXACT].value - found[AFTER_EXACT].value
    assert np.abs(difference).max() > 1e-2


def test_slopes_of_one_path_are_those_of_a_quadrature_over_its_order_parameter(rng):
    """U_1 is a number there. Errors are those of independent draws by its distribution function."""
    problem, attended = scalar_problem(rng)
    labels = rng.standard_normal((len(attended), 1))
    exact = exact_scalar_posterior(problem, attended)
    grid = exact.log_order_parameter_grid
    distribution = np.cumsum(exact.density) * (grid[1] - grid[0])
    # Half of a cell lies below the middle of it.
    distribution -= 0.5 * exact.density * (grid[1] - grid[0])
    draws = np.exp(np.interp(rng.random((4, 1000)), distribution, grid))[..., None, None]
    theory = TheoryWithoutHeads(problem, attended, draws[0, 0])
    found = predictions_of_posterior(theory, [(0, 0)], labels, draws)
    losses, evidence = [], []
    for gate in (1.0 - STEP, 1.0 + STEP):
        there = replace(problem, attended=problem.attended * gate)
        one = exact_scalar_posterior(there, attended * gate)
        losses.append((one.predictor_mean - labels[:, 0]) ** 2)
        evidence.append(one.log_evidence)
    slope = (losses[1] - losses[0]) / (2 * STEP)
    for key, expected in (
        (LEARNING_EXACT, -slope.mean()),
        (LEARNING_EXACT + SIZE, np.abs(slope).mean()),
        (EVIDENCE_SLOPE_EXACT, (evidence[1] - evidence[0]) / (2 * STEP)),
    ):
        value, mcse = found[key].value[0], found[key].mcse[0]
        assert_within_mcse(value, expected, mcse, what=key)
        assert mcse < 0.1 * abs(value), key
