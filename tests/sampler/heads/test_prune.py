"""Heads removed from a trained network and from its theory, against brute force; `prune`."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.analysis.predictors import predicted
from sampler.cli import main
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.heads.path_sum import PathSum, TheoryOfHeads, all_heads
from sampler.heads.removal import in_order
from sampler.jobs.prune import pruned_heads, refuse_unprunable
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from sampler.storage.result_files import read_table
from sampler.transformer.trained_transformer import read_model
from tests.assertions import assert_equal_to_rounding
from tests.commands import made_once, without_drawing
from tests.training_recipes import TINY, train_in
from theory import (
    AttentionPaths,
    LearningProblem,
    Predictor,
    head_scores,
    predict,
)
from theory.observables import accuracy

ANALYSIS = """
name = "analysis"
[task]
kind = "one_shot"
model = "model"
examples_train = 12
examples_test = 40
examples_validation = 24
[network]
widths = [6, 5, 4]
[posterior]
temperature = 0.5
"""
HEADS = (2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A trained model with 2 and 3 heads, and a solved directory."""
    text = TINY.replace("130", "40").replace("heads = [2, 2]", f"heads = {list(HEADS)}")

    def make(folder: Path) -> int:
        train_in(folder, text, ANALYSIS)
        words = ["solve", str(folder / "analysis.toml"), "--out", str(folder / "solved")]
        with without_drawing():
            return main(words)

    folder, code = made_once(tmp_path_factory, "trained_and_solved_with_validation", make)
    assert code == ExitCode.OK
    return folder


def load(folder, *overrides):
    recipe = load_recipe(folder / "analysis.toml", overrides)
    task = build_task(recipe)
    return task, build_problem(recipe, task)


@pytest.fixture(scope="module")
def solved(folder) -> TheoryOfHeads:
    """The theory of the test examples."""
    _, problem = load(folder)
    overlap = predicted(read_table(folder / "solved", "theory.nc"), "order_parameter")
    return TheoryOfHeads(problem.learning, problem.attended_test, overlap)


def trained_by_tokens(folder, task, removed=()):
    """The trained network's own forward pass, token by token, with some values zero."""
    stored = read_model(folder / "model").parameters
    parameters = {name: values.astype(np.float64) for name, values in stored.items()}
    for layer, head in removed:
        values = parameters[f"W_V_{layer + 1}"].copy()
        values[head] = 0.0
        parameters[f"W_V_{layer + 1}"] = values
    hidden = task.test.inputs @ parameters["W_in"].T
    for layer, omega in enumerate(task.test.attention, start=1):
        values = parameters[f"W_V_{layer}"]
        hidden = np.einsum("hij,xkj,xhkq->xqi", values, hidden, omega) / np.sqrt(len(values))
    return hidden.mean(axis=1) @ parameters["readout"]


def test_removed_heads_of_the_trained_network_have_zero_output(folder):
    task, problem = load(folder)
    for removed in ((), [(0, 1)], [(0, 0), (1, 2)]):
        received = PathSum.of_trained(problem.trained, problem.attended_test).without(removed)
        expected = trained_by_tokens(folder, task, removed)
        assert_equal_to_rounding(received[:, 0], expected, operations=48 * 64 * 6)
    assert problem.trained.architecture.heads == HEADS
    assert problem.trained.architecture.widths == (6, 5, 4)


def test_a_network_that_keeps_heads_is_the_one_whose_others_are_zero(folder):
    """Its own 1/√H_l is undone: the smaller network computes the same f."""
    task, _ = load(folder)
    _, smaller = load(folder, "network.heads=[[1], [2, 0]]")
    received = smaller.trained.predictor(smaller.attended_test)[:, 0]
    expected = trained_by_tokens(folder, task, [(0, 0), (1, 1)])
    assert_equal_to_rounding(received, expected, operations=48 * 64 * 6)


def test_the_trained_overlap_is_that_of_the_readout_carried_down(folder):
    """U_GD ∝ V_eff V_effᵀ with V_eff^{(h1,h2)} = readout · W_V^{2,h2} W_V^{1,h1}."""
    parameters = read_model(folder / "model").parameters
    rows = [
        parameters["readout"].astype(float) @ parameters["W_V_2"][two] @ parameters["W_V_1"][one]
        for one in range(HEADS[0])
        for two in range(HEADS[1])
    ]
    expected = np.stack(rows) @ np.stack(rows).T
    received = load(folder)[1].trained.overlap()
    scale = np.trace(received) / np.trace(expected)
    # the trained parameters are single precision, and so is one of their products
    single = np.finfo(np.float32).eps / np.finfo(float).eps
    assert_equal_to_rounding(received, scale * expected, operations=100 * single)
    # √N_1 √N_2 √N_a of the weights, over √N_2 √N_a of the products: N_1, once divided by N_1
    assert scale == pytest.approx(1.0)


def test_the_theory_table_has_the_trained_network(folder):
    theory, (task, problem) = read_table(folder / "solved", "theory.nc"), load(folder)
    overlap = problem.trained.overlap()
    np.testing.assert_array_equal(theory["order_parameter_trained"].values, overlap)
    scores = head_scores(overlap, AttentionPaths(HEADS))
    np.testing.assert_array_equal(theory["head_score_trained"].values, scores)
    expected = accuracy(trained_by_tokens(folder, task)[:, None], problem.labels_test)
    assert float(theory["accuracy_trained"]) == expected
    assert 0.0 < float(theory["accuracy_nearest_neighbour"]) <= 1.0
    _, other = load(folder, "network.readout=last")
    assert other.trained is None, "the trained network reads the mean over tokens"


def test_zero_rows_and_columns_of_the_order_parameter_are_paths_that_see_nothing(solved):
    """The same predictor as that of the full U_1 on inputs whose removed paths are zero."""
    removed = [(0, 0), (1, 2)]
    gone = np.any([AttentionPaths(HEADS).uses(*head) for head in removed], axis=0)
    seen = jnp.asarray(np.where(gone[:, None], 0.0, 1.0))
    learning = solved.learning
    blind = LearningProblem(
        learning.architecture, learning.attended * seen, learning.labels, learning.temperature
    )
    predictor = Predictor.for_examples(blind, solved.attended * seen)
    expected, _ = predict(predictor, jnp.asarray(solved.factor))
    received = solved.zeroed(removed)
    kernel = learning.energy.kernels.kernel(jnp.asarray(solved.factor))
    condition = np.linalg.norm(kernel, 2) / learning.temperature
    assert_equal_to_rounding(received, expected, operations=12**2, condition=condition)
    assert np.abs(received - solved.zeroed([])).max() > 1e-3 * np.abs(received).max()


@pytest.fixture(scope="module")
def pruned(folder):
    """The stored result of `prune`."""
    words = ["prune", str(folder / "solved"), "--orders", "3", "--seed", "4"]
    assert main(words) == ExitCode.OK
    return json.loads((folder / "solved" / "pruning.json").read_text())


@pytest.mark.heavy
def test_prune_writes_its_table_and_its_figures(folder, solved, pruned):
    theory, problem = read_table(folder / "solved", "theory.nc"), load(folder)[1]
    predictions = pruned["predicted"]
    scores = predicted(theory, "head_score")
    assert predictions["score"]["values"] == list(scores[np.isfinite(scores)])
    heads, labels = all_heads(HEADS), problem.labels_test
    network = PathSum.of_trained(problem.trained, problem.attended_test)
    whole = accuracy(network.without([]), labels)
    for place, head in enumerate(heads):
        lost = pruned["measured"]["zero_accuracy"]["values"][place]
        assert lost == pytest.approx(whole - accuracy(network.without([head]), labels))
    curves = pruned["curves"]
    assert [len(curves[name]) for name in ("score", "taylor", "random")] == [1, 1, 3]
    assert len({json.dumps(one["removed"]) for one in curves["random"]}) > 1
    for key in ("taylor", "score"):
        expected = in_order(predictions[key]["values"], heads, HEADS)
        assert curves[key][0]["removed"] == [[layer + 1, head] for layer, head in expected]
    for count, point in enumerate(curves["score"][0]["accuracy"]["zeroed"]["values"]):
        assert point == accuracy(solved.zeroed(expected[:count]), labels)
    for name in ("head_scores", "pruning"):
        assert (folder / "solved" / "figures" / f"{name}.png").is_file()


@pytest.mark.heavy
def test_without_validation_examples_numbers_come_from_test_examples(folder):
    task, problem = load(folder, "task.examples_validation=0")
    assert task.validation is None
    theory = read_table(folder / "solved", "theory.nc")
    result = pruned_heads(problem, theory, 0, 0)
    assert result.examples_numbers is None
    network = PathSum.of_trained(problem.trained, problem.attended_test)
    whole = network.without([])
    expected = [
        np.mean(np.abs(2 * (whole - problem.labels_test) * (whole - network.without([head]))))
        for head in all_heads(HEADS)
    ]
    np.testing.assert_allclose(result.predicted["taylor"].values, expected, rtol=1e-8)


def test_random_heads_come_after_the_trained_ones(folder):
    task, problem = load(folder)
    more, _ = load(folder, "task.random_heads=1")
    assert more.head_names == (("0", "1", "r0"), ("0", "1", "2", "r0"))
    assert more.trained is None
    for few, many in zip(task.train.attention, more.train.attention, strict=True):
        np.testing.assert_array_equal(few, many[:, :-1])
        assert not np.allclose(many[:, -1], many[:, 0])
    assert problem.trained is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trained": None}, "has no trained network to prune"),
        ({"converged": 0}, "its saddle point did not converge"),
    ],
)
def test_what_cannot_be_pruned_says_why(folder, change, message):
    problem = load(folder)[1]
    if "trained" in change:
        problem = replace(problem, trained=None)
    with pytest.raises(InputError, match=message):
        refuse_unprunable(folder, problem, bool(change.get("converged", 1)))
