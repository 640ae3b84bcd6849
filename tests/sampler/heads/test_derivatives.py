"""Derivatives by gates as predictions, against differences of losses of each example."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.heads.derivatives import (
    AFTER,
    EVIDENCE_SLOPE,
    INFINITE,
    INFINITE_LEARNING,
    LEARNING,
    SIZE,
    predictions_at_saddle,
)
from tests.small import small_problem
from theory import OrderParameters, Predictor, path_contributions, predict, solve_saddle_point
from theory.architecture import all_heads
from theory.gate_response import path_gates

STEP = 1e-4


@pytest.fixture(scope="module")
def solved():
    problem = small_problem(np.random.default_rng(3)).learning
    saddle = solve_saddle_point(problem)
    assert saddle.converged
    return problem, saddle.order_parameters


@pytest.mark.heavy
def test_slopes_are_those_of_the_losses_of_each_example(solved, rng):
    problem, order_parameters = solved
    heads = all_heads(problem.architecture.heads)
    attended = jnp.asarray(rng.standard_normal((7, *problem.attended.shape[1:])))
    labels = rng.standard_normal((7, problem.architecture.outputs))
    factor = order_parameters.factors[0]
    terms = np.asarray(path_contributions(problem, factor, attended))
    found = predictions_at_saddle(problem, order_parameters, terms, attended, heads, labels)

    def loss(mean):
        return ((np.asarray(mean) - labels) ** 2).sum(axis=1)

    wide = OrderParameters.gp_limit(problem.architecture).factors[0]
    for place in range(len(heads)):
        after, infinite, learning, wider = [], [], [], []
        for value in (1.0 - STEP, 1.0 + STEP):
            gates = jnp.ones(len(heads)).at[place].set(value)
            by_path = path_gates(gates, problem.architecture.heads, 1)[None, :, None]
            seen = attended * by_path
            after.append(loss(path_contributions(problem, factor, seen).sum(axis=1)))
            infinite.append(loss(path_contributions(problem, wide, seen).sum(axis=1)))
            moved = replace(problem, attended=problem.attended * by_path)
            wider.append(loss(predict(Predictor.for_examples(moved, seen), wide)[0]))
            again = solve_saddle_point(moved, initial=order_parameters).order_parameters
            learning.append(loss(predict(Predictor.for_examples(moved, seen), again.factors[0])[0]))
        pairs = {
            AFTER: after, INFINITE: infinite, LEARNING: learning, INFINITE_LEARNING: wider,
        }  # fmt: skip
        for key, pair in pairs.items():
            slope = (pair[1] - pair[0]) / (2 * STEP)
            limit = 1e3 * STEP**2 * max(1.0, np.abs(slope).max())
            assert abs(found[key].value[place] + slope.mean()) < limit
            assert abs(found[key + SIZE].value[place] - np.abs(slope).mean()) < limit
            error = np.abs(slope).std(ddof=1) / np.sqrt(len(slope))
            assert abs(found[key + SIZE].mcse[place] - error) < limit
    assert found[EVIDENCE_SLOPE].value.shape == (len(heads),)


def test_many_paths_have_slopes_at_order_parameters_that_stay(solved, rng, monkeypatch):
    problem, order_parameters = solved
    attended = jnp.asarray(rng.standard_normal((3, *problem.attended.shape[1:])))
    terms = np.asarray(path_contributions(problem, order_parameters.factors[0], attended))
    labels = np.zeros((3, problem.architecture.outputs))
    monkeypatch.setattr("sampler.heads.derivatives.is_dense", lambda _: False)
    heads = all_heads(problem.architecture.heads)
    found = predictions_at_saddle(problem, order_parameters, terms, attended, heads, labels)
    keys = AFTER, INFINITE, INFINITE_LEARNING
    assert set(found) == {key + size for key in keys for size in ("", SIZE)}
