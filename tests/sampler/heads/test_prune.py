"""Heads removed from trained networks and their theory, against brute force; `prune`."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.analysis.predictors import predicted
from sampler.cli import main
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.heads.costs import in_order
from sampler.heads.path_sum import PathSum, ZeroedTheory, all_heads
from sampler.jobs.prune import pruned, refuse_unprunable
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from sampler.storage.result_files import read_table
from sampler.transformer.trained_transformer import TrainedValues, read_model
from tests.assertions import assert_equal_to_rounding
from tests.commands import made_once, without_drawing
from tests.dense import dense_kernel
from tests.problems import (
    ARCHITECTURES,
    NetworkData,
    random_network_data,
    random_problem,
    random_weights,
    token_by_token,
)
from tests.recipes import TINY, train_in
from theory import (
    Architecture,
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


def test_a_network_that_keeps_heads_is_the_one_whose_others_are_zero(folder):
    """Its own 1/√H_l is undone: the smaller network computes the same f."""
    task, _ = load(folder)
    _, smaller = load(folder, "network.heads=[[1], [2, 0]]")
    received = smaller.trained.predictor(smaller.attended_test)[:, 0]
    expected = trained_by_tokens(folder, task, [(0, 0), (1, 1)])
    assert_equal_to_rounding(received, expected, operations=48 * 64 * 6)


def test_the_theory_table_has_the_trained_network(folder):
    theory, (task, problem) = read_table(folder / "solved", "theory.nc"), load(folder)
    overlap = problem.trained.overlap()
    np.testing.assert_array_equal(theory["order_parameter_trained"].values, overlap)
    scores = head_scores(overlap, AttentionPaths(HEADS))
    np.testing.assert_array_equal(theory["head_score_trained"].values, scores)
    expected = accuracy(trained_by_tokens(folder, task)[:, None], problem.labels_test)
    assert float(theory["accuracy_trained"]) == expected
    _, other = load(folder, "network.readout=last")
    assert other.trained is None, "the trained network reads the mean over tokens"


def test_zero_rows_and_columns_of_the_order_parameter_are_paths_that_see_nothing(folder):
    """The same predictor as that of the full U_1 on inputs whose removed paths are zero."""
    removed, (_, problem) = [(0, 0), (1, 2)], load(folder)
    overlap = predicted(read_table(folder / "solved", "theory.nc"), "order_parameter")
    learning, attended = problem.learning, problem.attended_test
    solved = ZeroedTheory.at(learning, attended, overlap)
    gone = np.any([AttentionPaths(HEADS).uses(*head) for head in removed], axis=0)
    seen = jnp.asarray(np.where(gone[:, None], 0.0, 1.0))
    blind = LearningProblem(
        learning.architecture, learning.attended * seen, learning.labels, learning.temperature
    )
    expected, _ = predict(
        Predictor.for_examples(blind, attended * seen), jnp.asarray(solved.factor)
    )
    received = solved.without(removed)
    kernel = learning.energy.kernels.kernel(jnp.asarray(solved.factor))
    condition = np.linalg.norm(kernel, 2) / learning.temperature
    assert_equal_to_rounding(received, expected, operations=12**2, condition=condition)
    assert np.abs(received - solved.without([])).max() > 1e-3 * np.abs(received).max()


def test_rows_of_a_removed_head_are_those_of_all_outputs(rng):
    """Head 1 of the second of layers with 3 and 2 heads, three outputs; kernels written out."""
    problem = random_problem(ARCHITECTURES["two layers, three outputs"], rng)
    test, outputs = rng.standard_normal((4, 6, 4)), 3
    factor = rng.standard_normal((18, 18))
    overlap = factor @ factor.T / 18
    kept = np.array([second != 1 for _ in range(3) for second in range(2) for _ in range(outputs)])
    zeroed = overlap * np.outer(kept, kept)
    attended, arch = np.asarray(problem.attended), problem.architecture
    noisy = dense_kernel(attended, attended, zeroed, arch) + problem.temperature * np.eye(18)
    weights = np.linalg.solve(noisy, np.ravel(problem.labels))
    expected = dense_kernel(test, attended, zeroed, arch) @ weights
    received = ZeroedTheory.at(problem, jnp.asarray(test), overlap).without([(1, 1)])
    np.testing.assert_allclose(received, expected.reshape(4, outputs), rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_prune_writes_costs_orders_and_figures(folder):
    """Of the network's own forward pass, token by token, and of the theory without heads."""
    words = ["prune", str(folder / "solved"), "--orders", "3", "--seed", "4"]
    assert main(words) == ExitCode.OK
    stored = json.loads((folder / "solved" / "pruning.json").read_text())
    found, (task, problem) = xr.Dataset.from_dict(stored), load(folder)
    theory, labels = read_table(folder / "solved", "theory.nc"), problem.labels_test
    scores = predicted(theory, "head_score")
    assert found["head_score"].values.tolist() == scores[np.isfinite(scores)].tolist()
    zeroed = ZeroedTheory.at(
        problem.learning, problem.attended_test, predicted(theory, "order_parameter")
    )
    heads = all_heads(HEADS)
    models = {
        "zero": lambda removed: trained_by_tokens(folder, task, removed)[:, None],
        "theory": zeroed.without,
    }
    for name, model in models.items():
        before = (model([]) - labels) ** 2
        for place, head in enumerate(heads):
            gained = (model([head]) - labels) ** 2 - before
            error = gained.std(ddof=1) / len(gained) ** 0.5
            received = [float(found[f"{name}_loss{end}"][place]) for end in ("", "_error")]
            np.testing.assert_allclose(received, [gained.mean(), error], rtol=1e-6, atol=1e-9)
            lost = accuracy(model([]), labels) - accuracy(model([head]), labels)
            assert float(found[f"{name}_accuracy"][place]) == pytest.approx(lost)
    names = found["order"].values.tolist()
    assert names == ["head_score", "taylor", "random", "random", "random"]
    steps = np.stack([found["order_layer"][0] - 1, found["order_number"][0]], axis=-1)
    steps = list(map(tuple, steps.tolist()))
    assert steps == in_order(found["head_score"].values, heads, HEADS)
    for count in range(len(steps) + 1):
        shares = [accuracy(model(steps[:count]), labels) for model in models.values()]
        received = found["accuracy_in_order"][0, count], found["theory_accuracy_in_order"][0, count]
        assert [float(one) for one in received] == pytest.approx(shares)
    for name in ("head_scores", "pruning"):
        assert (folder / "solved" / "figures" / f"{name}.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("validated", [True, False])
def test_taylor_importance_is_of_validation_examples_where_there_are_any(folder, validated):
    task, problem = load(folder, *([] if validated else ["task.examples_validation=0"]))
    found = pruned(problem, read_table(folder / "solved", "theory.nc"), 0, 0)
    assert ("examples_validation" in found.attrs) == validated
    attended, labels = (
        (problem.attended_validation, problem.labels_validation)
        if validated
        else (problem.attended_test, problem.labels_test)
    )
    network = PathSum.of_trained(problem.trained, attended)
    whole = network.without([])
    expected = [
        np.mean(np.abs(2 * (whole - labels) * (whole - network.without([head]))))
        for head in all_heads(HEADS)
    ]
    np.testing.assert_allclose(found["taylor"], expected, rtol=1e-8)
    assert (task.validation is not None) == validated


def test_from_python_a_task_has_the_costs_of_its_network(folder):
    """As the command has them, and a limit that all meet leaves a head in each layer."""
    task = load_recipe(folder / "analysis.toml").task
    found = sampler.ablate_heads(task, progress=False).result
    expected = pruned(load(folder)[1], read_table(folder / "solved", "theory.nc"), 0, 0)
    assert {"mean_loss", "zero_accuracy", "taylor", "magnitude"} < set(found)
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-12)
    assert found.attrs["loss"] == "squared"
    largest = sampler.removable(task, loss=1e6, progress=False)
    left = [count - len(largest.heads[layer]) for layer, count in enumerate(HEADS, start=1)]
    assert left == [1, 1]
    with pytest.raises(InputError):
        largest.apply(None)


def test_random_heads_come_after_the_trained_ones(folder):
    task, problem = load(folder)
    more, _ = load(folder, "task.random_heads=1")
    assert more.head_names == (("0", "1", "r0"), ("0", "1", "2", "r0"))
    assert more.trained is None
    for few, many in zip(task.train.attention, more.train.attention, strict=True):
        np.testing.assert_array_equal(few, many[:, :-1])
        assert not np.allclose(many[:, -1], many[:, 0])
    assert problem.trained is not None


def test_what_cannot_be_pruned_is_refused(folder):
    """Without a trained network, and where the saddle point did not converge."""
    problem = load(folder)[1]
    refuse_unprunable(folder, problem, True)
    for one, converged in ((replace(problem, trained=None), True), (problem, False)):
        with pytest.raises(InputError):
            refuse_unprunable(folder, one, converged)


# --- sums over paths of a network that is drawn


@pytest.fixture(scope="module")
def drawn() -> tuple[TrainedValues, NetworkData]:
    random, architecture = (
        np.random.default_rng(1),
        Architecture(HEADS, (5, 4, 3), (1.0,) * 4, 3, 2),
    )
    data = random_network_data(architecture, random, readout="mean")
    return TrainedValues(random_weights(architecture, random), architecture), data


@pytest.fixture(scope="module")
def trained(drawn) -> PathSum:
    network, data = drawn
    return PathSum.of_trained(network, data.attended)


def by_token(drawn, gates) -> np.ndarray:
    """The network with a gate on every head, head by head and token by token."""
    network, data = drawn
    weights, of_layers = dict(network.weights), np.split(gates, [HEADS[0]])
    for layer, of_layer in enumerate(of_layers, start=1):
        weights[f"V_{layer}"] = of_layer[:, None, None] * weights[f"V_{layer}"]
    return token_by_token(network.architecture, data, weights)


@pytest.mark.parametrize("removed", [[], [(0, 1)], [(1, 1)], [(0, 0), (1, 2)]])
def test_a_network_without_heads_is_that_of_its_tokens(drawn, trained, removed):
    """A mean is that of what is sent over all paths through the heads."""
    gates = np.array([head not in removed for head in all_heads(HEADS)], float)
    whole, without = by_token(drawn, np.ones(sum(HEADS))), by_token(drawn, gates)
    assert_equal_to_rounding(trained.without(removed), without, operations=1000)
    expected = without + (whole - without).mean(axis=0)
    assert_equal_to_rounding(trained.without(removed, "mean"), expected, operations=1000)


def test_slopes_are_finite_differences(drawn, trained):
    along = np.random.default_rng(2).standard_normal((6, 2))
    slopes = trained.slopes(along)
    for place in range(sum(HEADS)):
        step = 1e-5 * np.eye(sum(HEADS))[place]
        up, down = (by_token(drawn, 1.0 + sign * step) for sign in (1, -1))
        expected = (along * (up - down) / 2e-5).sum(axis=1)
        np.testing.assert_allclose(slopes[:, place], expected, rtol=1e-6, atol=1e-8)


def test_magnitudes_are_norms_of_values(drawn, trained):
    network, *_ = drawn
    expected = [
        np.linalg.norm(network.weights[f"V_{layer + 1}"][head]) for layer, head in all_heads(HEADS)
    ]
    np.testing.assert_allclose(trained.magnitudes, expected)
