"""Heads removed together: greedy orders, and the theory of what is left."""

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.heads.gates import Numbering, all_heads, closed_gates
from sampler.heads.joint import (
    Candidates,
    RemovableModel,
    RemovalCurve,
    greedy_order,
    removed_together,
)
from sampler.heads.left import JointTheory
from sampler.heads.measures import TheoryWithoutHeads, losses, predictions_of_theory
from sampler.heads.removal import Numbers
from tests.problems import random_network_data, random_problem
from theory import Architecture, Predictor, predict, solve_saddle_point

COUNTS = (3, 2)
HEADS = tuple(all_heads(COUNTS))
EXAMPLES = 40


class Product:
    """A model whose heads act together: f = Σ_h g_h a_h + Σ_{h<h'} g_h g_h' b_hh'."""

    heads, numbers = COUNTS, (1, 2)

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.alone = generator.standard_normal((EXAMPLES, len(HEADS)))
        self.together = np.triu(generator.standard_normal((EXAMPLES, len(HEADS), len(HEADS))), 1)

    def outputs(self, gates, replacement):
        pairs = np.einsum("xij,i,j->x", self.together, gates, gates)
        return (self.alone @ gates + pairs)[:, None]

    def slopes(self, along, replacement, gates=None):
        gates = np.ones(len(HEADS)) if gates is None else gates
        both = self.together + self.together.swapaxes(1, 2)
        return along * (self.alone + both @ gates)

    def magnitudes(self):
        return np.arange(len(HEADS), dtype=float)

    def output_count(self):
        return 1


def removable(seed: int = 0) -> RemovableModel:
    labels = np.sign(np.random.default_rng(seed + 100).standard_normal((EXAMPLES, 1)))
    return RemovableModel(Product(seed), HEADS, labels, "likelihood", "zero")


def test_taylor_importance_is_computed_anew():
    """The order by it is another one than that of the numbers of the whole model."""
    model = removable()
    order = greedy_order(model.taylor, Candidates(HEADS, COUNTS, True))
    at_once = [HEADS[place] for place in np.argsort(model.taylor([]))]
    assert order != at_once
    for count, head in enumerate(order):
        gates = closed_gates(COUNTS, order[:count])
        step, slopes = 1e-6, []
        for place in range(len(HEADS)):
            moved = step * np.eye(len(HEADS))[place]
            up, down = (
                losses(
                    "likelihood", model.model.outputs(gates + sign * moved, "zero"), model.labels
                )
                for sign in (1, -1)
            )
            slopes.append(np.abs(up - down).mean() / (2 * step))
        np.testing.assert_allclose(model.taylor(order[:count]), slopes, rtol=1e-6, atol=1e-8)
        left = [place for place, one in enumerate(HEADS) if one not in order[:count]]
        assert HEADS.index(head) == min(left, key=lambda place: slopes[place])


def test_a_layer_keeps_a_head_where_it_must():
    order = greedy_order(removable().taylor, Candidates(HEADS, COUNTS, False))
    assert len(order) == len(HEADS) - len(COUNTS)
    assert {layer for layer, _ in HEADS if (layer, _) not in order} == {0, 1}


def curve(*values: float) -> RemovalCurve:
    removed = tuple(HEADS[:count] for count in range(len(values)))
    return RemovalCurve(removed, Numbers(values, (0.0,) * len(values)), None)


def test_a_limit_ends_at_the_first_set_that_costs_more():
    assert curve(0.0, 0.1, 0.3, 0.1).heads_within(0.2) == 1
    assert curve(0.0, 0.1, 0.2, 0.1).heads_within(0.2) == 3
    assert curve(0.0, 0.5).heads_within(0.2) == 0
    assert curve(0.0, float("nan"), 0.1).heads_within(0.2) == 0


def test_costs_are_paired_and_choose_on_other_examples():
    heads = Numbering.of(COUNTS)
    validation, test = removable(1), removable(2)
    found = removed_together(
        validation, test, heads, Candidates(HEADS, COUNTS, True),
        {"taylor": validation.taylor}, sets=5, random=3, seed=0,
    )  # fmt: skip
    (order,) = found.orders["taylor"]
    assert len(found.orders["random"]) == 3
    for one, model in ((order.validation, validation), (order.test, test)):
        for place, shown in enumerate(one.removed):
            removed = [(layer - 1, head) for layer, head in shown]
            gates = closed_gates(COUNTS, removed)
            whole, without = (
                losses("likelihood", model.model.outputs(g, "zero"), model.labels)
                for g in (np.ones(len(HEADS)), gates)
            )
            gained = without - whole
            expected = gained.mean(), gained.std(ddof=1) / np.sqrt(EXAMPLES)
            np.testing.assert_allclose(one.at(place), expected, rtol=1e-12, atol=1e-15)


# --- the theory of what is left


@pytest.fixture(scope="module")
def theory():
    rng = np.random.default_rng(5)
    architecture = Architecture((2, 2), (12, 12, 12), (1.2, 0.8, 1.1, 0.9), channels=4)
    problem = random_problem(architecture, rng, examples=8)
    data = random_network_data(architecture, rng, examples=6)
    solved = solve_saddle_point(problem)
    whole = TheoryWithoutHeads(
        problem, data.attended, np.asarray(solved.order_parameters.matrices[0])
    )
    heads = tuple(all_heads((2, 2)))
    labels = rng.standard_normal((6, 1))
    return JointTheory(whole, solved.order_parameters, heads, heads, labels)


def test_without_removals_numbers_are_those_of_single_heads(theory):
    single = predictions_of_theory(theory.whole, theory.heads, theory.labels)
    for key, expected in single.items():
        received = theory.numbers(key, [])
        np.testing.assert_allclose(received, expected.value, rtol=1e-6, atol=1e-9, err_msg=key)


def test_what_is_left_is_solved_as_the_network_without_these_heads(theory):
    gone = [(0, 1)]
    costs = theory.numbers("solved_again", gone)
    # One of the first layer's two heads is gone, and the other one is its last.
    assert np.isnan(costs[:2]).all()
    for place, head in ((2, (1, 0)), (3, (1, 1))):
        outputs = theory.whole.solved_again([*gone, head])
        expected = float(losses("squared", outputs, theory.labels).mean())
        np.testing.assert_allclose(costs[place], expected, rtol=1e-6)


def test_the_cost_of_a_set_is_that_of_its_predictor(theory):
    gone = [(0, 1), (1, 0)]
    whole = theory.whole
    factor = np.array(whole.factor)
    for path in range(4):
        if path // 2 == 1 or path % 2 == 0:
            factor[path] = 0.0
    predictor = Predictor.for_examples(whole.learning, whole.attended)
    mean, _ = predict(predictor, jnp.asarray(factor))
    expected = float(losses("squared", np.asarray(mean), theory.labels).mean())
    np.testing.assert_allclose(theory.of_set("zeroed", gone), expected, rtol=1e-10)
