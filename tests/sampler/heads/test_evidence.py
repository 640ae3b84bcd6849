"""Evidence of heads against problems that are built by hand without them."""

from dataclasses import replace
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import xarray as xr

from sampler.heads.evidence import (
    EVIDENCE,
    EVIDENCE_INFINITE,
    EVIDENCE_NEXT,
    log_evidence_of_all,
    predictions_at_infinite_width,
)
from sampler.heads.measures import TheoryWithoutHeads, predictions_solved_again
from tests.assertions import assert_equal_to_rounding
from tests.small import small_problem
from theory import LearningProblem, OrderParameters, solve_next_order, solve_saddle_point
from theory.action import action
from theory.architecture import all_heads
from theory.evidence import action_without_data

HEADS = all_heads((2, 2))


def by_hand(learning: LearningProblem, head: tuple[int, int]) -> LearningProblem:
    """Inputs of the paths that do not pass a head, in a network of one head less in its layer."""
    layer, gone = head
    paths = [path[layer] != gone for path in product(*map(range, learning.architecture.heads))]
    heads = [count - (place == layer) for place, count in enumerate(learning.architecture.heads)]
    architecture = replace(learning.architecture, heads=tuple(heads))
    return replace(
        learning, architecture=architecture, attended=learning.attended[:, np.array(paths)]
    )


def wide(learning: LearningProblem) -> float:
    """ln N(y; 0, K + 𝒯) of each output, K = σ_0² ⋯ σ_a² Σ_π ξ^π·ξ^π/(D Π)."""
    arch = learning.architecture
    kernel = np.einsum("xpi,zpi->xz", learning.attended, learning.attended)
    kernel = kernel * np.prod(arch.variances) / (arch.channels * np.prod(arch.heads))
    noisy = kernel + learning.temperature * np.eye(len(kernel))
    return sum(scipy.stats.multivariate_normal(cov=noisy).logpdf(y) for y in learning.labels.T)


def leading(learning: LearningProblem) -> float:
    """−½ (A* − A_0 + n ln 2π)."""
    solved = solve_saddle_point(learning)
    assert solved.converged
    lowest = float(action(solved.order_parameters, learning.architecture, learning.energy))
    excess = lowest - action_without_data(learning.architecture)
    return -0.5 * (excess + learning.labels.size * np.log(2.0 * np.pi))


def at_next_order(learning: LearningProblem) -> float:
    return solve_next_order(learning, solve_saddle_point(learning)).log_evidence


@pytest.mark.parametrize("outputs", [1, 2])
def test_at_infinite_width_it_is_that_of_gaussian_labels(outputs, rng):
    learning = small_problem(rng, outputs=outputs).learning
    received = predictions_at_infinite_width(learning, HEADS)[EVIDENCE_INFINITE]
    expected = [wide(learning) - wide(by_hand(learning, head)) for head in HEADS]
    scale = abs(wide(learning))
    assert_equal_to_rounding(received.value, expected, operations=1000, condition=10, scale=scale)
    assert np.array_equal(received.mcse, np.zeros(len(HEADS)))


@pytest.mark.heavy
def test_it_is_that_of_the_network_solved_again_without_the_head(rng):
    learning = small_problem(rng).learning
    learning = replace(learning, architecture=replace(learning.architecture, widths=(9, 8, 7)))
    saddle = solve_saddle_point(learning)
    theory = TheoryWithoutHeads(
        learning, jnp.zeros((3, 4, 6)), np.asarray(saddle.order_parameters.matrices[0])
    )
    beyond = solve_next_order(learning, saddle).log_evidence
    table = xr.Dataset({"action": saddle.action, "log_evidence_next_order": beyond})
    whole = log_evidence_of_all(learning, table)
    found = predictions_solved_again(theory, HEADS, np.ones((3, 1)), whole)
    for key, ln_evidence in ((EVIDENCE, leading), (EVIDENCE_NEXT, at_next_order)):
        expected = np.array([ln_evidence(learning) - ln_evidence(by_hand(learning, head))
                             for head in HEADS])  # fmt: skip
        # The gradient that is left moves a minimum in second order, and next order in first.
        limit = 1e-7 * max(1.0, abs(ln_evidence(learning)))
        assert np.abs(found[key].value - expected).max() < limit, key
        assert np.ptp(expected) > 1e3 * limit
    unknown = log_evidence_of_all(learning, table.drop_vars("log_evidence_next_order"))
    assert EVIDENCE_NEXT not in predictions_solved_again(
        theory, HEADS[:1], np.ones((3, 1)), unknown
    )


def test_it_tends_to_that_of_infinite_width(rng):
    """Leading order differs by something over the width."""
    learning = small_problem(rng).learning
    limit = predictions_at_infinite_width(learning, HEADS)[EVIDENCE_INFINITE].value
    gaps = []
    for width in (10_000, 40_000):
        sizes = replace(learning.architecture, widths=(width,) * 3)
        at_width = replace(learning, architecture=sizes)
        lost = [leading(at_width) - leading(by_hand(at_width, head)) for head in HEADS]
        gaps.append(np.array(lost) - limit)
    np.testing.assert_allclose(gaps[0] / gaps[1], 4.0, rtol=0.01)


def test_the_only_head_of_a_layer_has_none(rng):
    learning = small_problem(rng).learning
    smaller = by_hand(by_hand(learning, (0, 1)), (1, 1))
    found = predictions_at_infinite_width(smaller, [(0, 0), (1, 0)])[EVIDENCE_INFINITE]
    assert np.isnan(found.value).all()
    overlap = np.asarray(OrderParameters.gp_limit(smaller.architecture).matrices[0])
    theory = TheoryWithoutHeads(smaller, smaller.attended, overlap)
    labels = np.asarray(smaller.labels)
    again = predictions_solved_again(theory, [(0, 0)], labels, {EVIDENCE: 0.0})
    assert np.isnan(again[EVIDENCE].value).all()
