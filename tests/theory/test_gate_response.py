"""Derivatives by gates of heads against problems whose attended inputs are multiplied by gates."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import random_network_data, random_problem
from theory import (
    Architecture,
    AttentionPaths,
    OrderParameters,
    Predictor,
    path_contributions,
    predict,
    solve_saddle_point,
)
from theory.action import action
from theory.architecture import all_heads
from theory.compression import compress
from theory.gate_response import (
    contributions_by_head,
    gate_response,
    path_gates,
    slopes_at_infinite_width,
    slopes_at_overlaps,
)

STEP = 1e-4


def gated(problem, attended, head, value):
    """Problem and test inputs with the gate of one head at a value."""
    heads = problem.architecture.heads
    gates = np.ones(sum(heads))
    gates[all_heads(heads).index(head)] = value
    by_path = path_gates(jnp.asarray(gates), heads, 1)[None, :, None]
    return replace(problem, attended=problem.attended * by_path), attended * by_path


CASES = {"one layer": ((3,), 1), "two layers": ((2, 2), 1), "two outputs": ((2, 2), 2)}


@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_those_of_solving_again(case, rng):
    heads, outputs = CASES[case]
    widths, variances = (9,) * (len(heads) + 1), (1.2, 0.8, 1.1, 0.9)[: len(heads) + 2]
    architecture = Architecture(heads, widths, variances, channels=4, outputs=outputs)
    problem = random_problem(architecture, rng, examples=8)
    attended = random_network_data(architecture, rng, examples=5).attended
    solved = solve_saddle_point(problem)
    assert solved.converged
    found = gate_response(problem, solved.order_parameters, attended)
    factor = solved.order_parameters.factors[0]
    at_overlaps = slopes_at_overlaps(
        problem,
        Predictor.for_examples(problem, attended),
        jnp.stack([2.0 * factor, factor]),
        attended,
    )
    at_fixed_overlap = at_overlaps.mean_slopes[1]
    after = contributions_by_head(
        np.asarray(path_contributions(problem, factor, attended)), AttentionPaths(heads)
    )
    for place, head in enumerate(all_heads(heads)):
        means, actions, fixed, kept, energies = [], [], [], [], []
        for value in (1.0 - STEP, 1.0 + STEP):
            moved, seen = gated(problem, attended, head, value)
            again = solve_saddle_point(moved, initial=solved.order_parameters)
            assert again.converged
            predictor = Predictor.for_examples(moved, seen)
            means.append(np.asarray(predict(predictor, again.order_parameters.factors[0])[0]))
            energies.append(float(moved.energy(factor)))
            fixed.append(np.asarray(predict(predictor, factor)[0]))
            actions.append(float(action(again.order_parameters, moved.architecture, moved.energy)))
            kept.append(np.asarray(path_contributions(problem, factor, seen)).sum(axis=1))

        def slope(pair):
            return (pair[1] - pair[0]) / (2 * STEP)

        # Central differences leave a third derivative times STEP²/6, and rounding over STEP.
        size = max(1.0, np.abs(found.with_learning).max())
        limit = 1e3 * STEP**2 * size
        assert np.abs(found.with_learning[..., place] - slope(means)).max() < limit
        assert np.abs(at_fixed_overlap[..., place] - slope(fixed)).max() < limit
        assert np.abs(after[..., place] - slope(kept)).max() < limit
        assert abs(found.action[place] - slope(actions)) < limit * max(
            1.0, abs(found.action[place])
        )
        assert abs(at_overlaps.energy[1, place] - slope(energies)) < limit * max(
            1.0, abs(at_overlaps.energy[1, place])
        )
    terms = np.asarray(path_contributions(problem, factor, attended))
    assert_equal_to_rounding(at_overlaps.contributions[1], terms, operations=1000)
    # The three are different things.
    assert np.abs(found.with_learning - at_fixed_overlap).max() > 100 * limit
    assert np.abs(at_fixed_overlap - after).max() > 100 * limit


@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES)
def test_at_infinite_width_they_are_those_at_its_overlap(case, rng):
    """Of 30 examples, which rows stand for, as well."""
    heads, outputs = CASES[case]
    variances = (1.2, 0.8, 1.1, 0.9)[: len(heads) + 2]
    architecture = Architecture(heads, (9,) * (len(heads) + 1), variances, 4, outputs)
    attended = random_network_data(architecture, rng, examples=5).attended
    factor = OrderParameters.gp_limit(architecture).factors[0]
    for examples in (8, 30):
        problem = compress(random_problem(architecture, rng, examples=examples))
        predictor = Predictor.for_examples(problem, attended)
        expected = slopes_at_overlaps(problem, predictor, factor[None], attended)
        terms, slopes = slopes_at_infinite_width(problem, attended)
        noisy = problem.energy.kernels.kernel(factor) + problem.temperature * np.eye(
            problem.labels.size
        )
        rounding = {"operations": 100, "condition": np.linalg.cond(noisy)}
        assert_equal_to_rounding(terms, expected.contributions[0], **rounding)
        assert_equal_to_rounding(slopes, expected.mean_slopes[0], **rounding)
