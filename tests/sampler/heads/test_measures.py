"""Predictions of what a head is worth, against finite differences, loops over paths and copies."""

from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from sampler.heads import measures
from sampler.heads.gates import all_heads
from sampler.heads.measures import (
    TheoryWithoutHeads,
    losses,
    predictions_of_model,
    predictions_of_theory,
    predictions_solved_again,
)
from tests.assertions import assert_equal_to_rounding
from tests.small import small_problem

EXAMPLES, HEADS = 7, (1, 2)


@dataclass(frozen=True)
class Sum:
    """A gated model whose output is the sum of what its heads send, [example, head, output]."""

    sent: np.ndarray
    heads: tuple[int, ...] = HEADS

    def replaced(self, replacement) -> np.ndarray:
        return self.sent.mean(axis=0) if replacement == "mean" else np.zeros(self.sent.shape[1:])

    def outputs(self, gates, replacement):
        gate = np.asarray(gates)[..., None]
        return (gate * self.sent + (1.0 - gate) * self.replaced(replacement)).sum(axis=1)

    def slopes(self, along, replacement, gates=None):
        return ((self.sent - self.replaced(replacement)) * along[:, None]).sum(axis=-1)

    @property
    def numbers(self):
        return (1, 2)

    def output_count(self):
        return 1

    def magnitudes(self):
        return np.arange(3.0)


def mean_with_error(values):
    """Mean and standard error over examples, head by head."""
    loop = [(np.mean(one), np.std(one, ddof=1) / np.sqrt(EXAMPLES)) for one in values]
    return np.transpose(loop)


@pytest.mark.parametrize("loss", ["squared", "likelihood"])
def test_taylor_importance_is_the_mean_size_of_finite_differences(loss, rng):
    model = Sum(rng.standard_normal((EXAMPLES, sum(HEADS), 1)))
    labels = rng.choice([-1.0, 1.0], (EXAMPLES, 1))
    received = predictions_of_model(model, labels, loss)
    step = 1e-6
    closing = [
        (
            losses(loss, model.outputs(1.0 - step * one, "zero"), labels)
            - losses(loss, model.outputs(1.0 + step * one, "zero"), labels)
        )
        / (2 * step)
        for one in np.eye(sum(HEADS))
    ]
    assert np.ptp(np.sign(closing)) == 2, "signs differ: a mean of sizes is another number"
    value, error = mean_with_error(np.abs(closing))
    np.testing.assert_allclose(received["taylor"].value, value, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(received["taylor"].mcse, error, rtol=1e-6, atol=1e-8)
    assert received["magnitude"].value.tolist() == [0.0, 1.0, 2.0]


@pytest.fixture
def theory(rng) -> TheoryWithoutHeads:
    problem = small_problem(rng)
    rows = rng.standard_normal((4, 6))
    return TheoryWithoutHeads(problem.learning, problem.attended_test, rows @ rows.T / 6)


def test_the_paths_of_removed_heads_are_left_out_of_the_sum(theory):
    removed = [(0, 1), (1, 0)]
    paths = list(product(*map(range, theory.learning.architecture.heads)))
    expected = sum(
        theory.contributions[:, place]
        for place, path in enumerate(paths)
        if not any(path[layer] == head for layer, head in removed)
    )
    assert_equal_to_rounding(theory.removed(removed), expected, operations=100)


def test_predictions_of_the_theory_are_losses_gained_without_a_head(theory, rng):
    labels, heads = rng.choice([-1.0, 1.0], theory.removed([]).shape), all_heads((2, 2))
    received = predictions_of_theory(theory, heads, labels)
    for key, without in (("removed", theory.removed), ("zeroed", theory.zeroed)):
        whole = ((without([]) - labels) ** 2).sum(axis=1)
        for place, head in enumerate(heads):
            gained = ((without([head]) - labels) ** 2).sum(axis=1) - whole
            expected = gained.mean(), gained.std(ddof=1) / len(gained) ** 0.5
            value = received[key].value[place], received[key].mcse[place]
            assert_equal_to_rounding(value, expected, operations=100, scale=whole.max())


def test_a_theory_that_does_not_converge_without_a_head_predicts_nothing_of_it(theory, monkeypatch):
    def stops(problem, starts):
        return SimpleNamespace(converged=False, order_parameters=None)

    monkeypatch.setattr(measures, "solve_saddle_point", stops)
    assert theory.solved_again([(0, 1)]) is None
    predicted = predictions_solved_again(theory, all_heads((2, 2)), np.sign(theory.removed([])))
    assert np.isnan(predicted["solved_again"].value).all()
