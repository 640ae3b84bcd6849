"""Predictions of what a head is worth, against finite differences, loops over paths and copies."""

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.heads import evidence
from sampler.heads.evidence import EVIDENCE
from sampler.heads.measures import (
    TheoryWithoutHeads,
    losses,
    predictions_of_model,
    predictions_of_theory,
    predictions_solved_again,
)
from tests.assertions import assert_equal_to_rounding
from tests.small import small_problem
from theory.architecture import all_heads

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

    def interpolated_slopes(self, along_of, steps, gates=None):
        """Of one's own choice: nothing else is sent for other examples."""
        outputs = self.outputs(np.ones(sum(self.heads)), "zero")
        return -(self.sent * along_of(outputs, list(range(EXAMPLES)))[:, None]).sum(axis=-1)

    @property
    def numbers(self):
        return (1, 2)

    def output_count(self):
        return 1

    def pass_seconds(self):
        return 0.0

    def magnitudes(self):
        return np.arange(3.0)


def mean_with_error(values):
    """Mean and standard error over examples, head by head."""
    loop = [(np.mean(one), np.std(one, ddof=1) / np.sqrt(EXAMPLES)) for one in values]
    return np.transpose(loop)


@pytest.mark.parametrize("loss", ["squared", "likelihood"])
def test_gradients_are_those_of_the_loss_of_each_example(loss, rng):
    """Taylor importance is a mean of sizes, patching the change of the loss with its sign."""
    model = Sum(rng.standard_normal((EXAMPLES, sum(HEADS), 1)))
    labels = rng.choice([-1.0, 1.0], (EXAMPLES, 1))
    found = predictions_of_model(model, labels, loss, seed=5)
    step = 1e-6
    for kind, key in (("zero", "patching"), ("mean", "patching_mean")):
        closing = [
            (
                losses(loss, model.outputs(1.0 - step * one, kind), labels)
                - losses(loss, model.outputs(1.0 + step * one, kind), labels)
            )
            / (2 * step)
            for one in np.eye(sum(HEADS))
        ]
        expected = {key: mean_with_error(closing)}
        if kind == "zero":
            assert np.ptp(np.sign(closing)) == 2, "signs differ: a mean of sizes is another number"
            expected["taylor"] = mean_with_error(np.abs(closing))
        for name, (value, error) in expected.items():
            np.testing.assert_allclose(found[name].value, value, rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(found[name].mcse, error, rtol=1e-6, atol=1e-8)
    assert found["magnitude"].value.tolist() == [0.0, 1.0, 2.0]
    assert found["random"].value.tolist() == np.random.default_rng(5).random(3).tolist()


@pytest.fixture
def theory(rng) -> TheoryWithoutHeads:
    problem = small_problem(rng)
    rows = rng.standard_normal((4, 6))
    return TheoryWithoutHeads(problem.learning, problem.attended_test, rows @ rows.T / 6)


def test_a_mean_is_left_of_the_paths_removed_and_of_no_other(theory):
    removed = [(0, 1), (1, 0)]
    paths = list(product(*map(range, theory.learning.architecture.heads)))
    expected = {"zero": 0.0, "mean": 0.0}
    for place, path in enumerate(paths):
        brought = theory.contributions[:, place]
        gone = any(path[layer] == head for layer, head in removed)
        expected["zero"] = expected["zero"] + (0.0 * brought if gone else brought)
        expected["mean"] = expected["mean"] + (brought.mean(axis=0) if gone else brought)
    for kind, values in expected.items():
        values = np.broadcast_to(values, theory.removed([]).shape)
        assert_equal_to_rounding(theory.removed(removed, kind), values, operations=100)


def test_a_theory_that_does_not_converge_without_a_head_predicts_nothing_of_it(theory, monkeypatch):
    def stops(problem, starts):
        return SimpleNamespace(converged=False, order_parameters=None)

    monkeypatch.setattr(evidence, "solve_saddle_point", stops)
    assert theory.solved_again([(0, 1)]) is None
    labels = np.sign(theory.removed([]))
    heads = all_heads((2, 2))
    found = predictions_of_theory(theory, heads, labels)
    found |= predictions_solved_again(theory, heads, labels, {EVIDENCE: 0.0})
    assert np.isnan(found["solved_again"].value).all()
    assert np.isnan(found[EVIDENCE].value).all()
    assert np.isfinite(found["zeroed"].value).all()


@pytest.mark.parametrize(("shift", "usable"), [(0.0, True), (-1.0, False)])
def test_next_order_predicts_losses_where_it_is_positive_definite(shift, usable, theory):
    """Its scores are of sizes |U_1|, which are there all the same."""
    lowest = np.linalg.eigvalsh(theory.overlap)[0]
    next_order = 1.1 * theory.overlap + shift * (1.1 * lowest + 0.5) * np.eye(4)
    labels, heads = np.sign(theory.removed([])), all_heads((2, 2))
    found = predictions_of_theory(theory, heads, labels, next_order)
    assert ("removed_next_order" in found) == usable
    beyond = replace(theory, overlap=next_order)
    assert found["score_next_order"].value.tolist() == beyond.scores(heads).tolist()
    if usable:
        whole = ((beyond.removed([]) - labels) ** 2).sum(axis=1)
        for place, head in enumerate(heads):
            gained = ((beyond.removed([head]) - labels) ** 2).sum(axis=1) - whole
            value = found["removed_next_order"].value[place]
            assert_equal_to_rounding(value, gained.mean(), operations=100, scale=whole.max())


def test_the_factor_of_an_overlap_is_one(theory):
    factor = jnp.asarray(theory.factor)
    assert_equal_to_rounding(factor @ factor.T, theory.overlap, operations=100)
