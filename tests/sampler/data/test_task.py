"""Distances between heads, and hypernetworks: layers, heads, names, heads that are left out."""

import itertools

import numpy as np
import pytest

import sampler
from sampler.attention import similarity
from sampler.attention.similarity import HeadDistances
from sampler.data.examples import Examples
from sampler.data.make import build_task
from sampler.data.markov_chain import MarkovChain
from sampler.problem import build_problem
from sampler.settings.recipe import Recipe
from tests.assertions import assert_equal_to_rounding
from theory.attended import token_readout


def random_split(rng, heads, examples=5, tokens=4, channels=3):
    attention = tuple(rng.random((examples, count, tokens, tokens)) for count in heads)
    inputs = rng.standard_normal((examples, tokens, channels))
    return Examples(inputs, rng.standard_normal((examples, 1)), attention)


def test_distances_equal_a_loop_over_pairs_examples_and_layers(rng, monkeypatch):
    monkeypatch.setattr(similarity, "EXAMPLES_AT_A_TIME", 2)
    split = random_split(rng, (2, 3, 1))
    matrices, outputs = [], []
    for layer in split.attention:
        for one, other in itertools.combinations(range(layer.shape[1]), 2):
            of_matrices, of_outputs = [], []
            for x, of_example in zip(split.inputs, layer, strict=True):
                # rows of A = Ωᵀ are queries
                first, second = of_example[one].T, of_example[other].T
                of_matrices.append(np.linalg.norm(first - second))
                of_outputs.append(np.linalg.norm(first @ x - second @ x))
            matrices.append(np.mean(of_matrices))
            outputs.append(np.mean(of_outputs))
    found = HeadDistances.of(split.attention, split.inputs)
    for received, values in ((found.matrices, matrices), (found.outputs, outputs)):
        expected = [np.mean(values), np.std(values, ddof=1)]
        assert_equal_to_rounding(np.array(received), expected, operations=1000)


def test_equal_heads_are_at_no_distance_and_single_heads_have_none(rng):
    one = random_split(rng, (1,))
    same = Examples(one.inputs, one.labels, (np.repeat(one.attention[0], 2, axis=1),))
    assert HeadDistances.of(same.attention, same.inputs) == HeadDistances((0.0, 0.0), (0.0, 0.0))
    assert np.isnan(HeadDistances.of(one.attention, one.inputs).matrices).all()


def recipe_of(**network):
    sizes = {"examples_train": 4, "examples_test": 3, "examples_validation": 2}
    heads = [["good", "random"], ["uniform", "random", "good"]]
    return Recipe(
        task=MarkovChain(tokens=3, features=4, **sizes),
        attention={"heads": heads, "form": {"kind": "head_normalised"}},
        network={"widths": 3, **network},
    )


def test_a_hypernetwork_is_two_layers_of_the_same_heads():
    task = build_task(recipe_of(hypernetwork=[True, False]))
    assert task.heads == (2, 2, 3)
    assert task.head_names[0] == task.head_names[1] == ("good", "random")
    assert len(task.train.attention) == 2
    assert len(task.path_names) == len(set(task.path_names)) == 12
    assert task.path_names[3] == "good∘random·uniform"
    assert build_task(recipe_of(hypernetwork=True)).heads == (2, 2, 3, 3)


def test_attended_inputs_are_in_the_order_of_the_names():
    """ξ^{(h', h, g)} = x (Ω_{h'} ∘ Ω_h) Ω_g t*, example by example and on every split."""
    recipe = recipe_of(hypernetwork=[True, False], readout="mean")
    task = build_task(recipe)
    problem = build_problem(recipe, task)
    readout = np.asarray(token_readout(4, "mean"))
    for split, attended in (
        (task.train, problem.learning.attended),
        (task.test, problem.attended_test),
        (task.validation, problem.attended_validation),
    ):
        for example, tokens in enumerate(split.inputs):
            lower, upper = (omega[example] for omega in split.attention)
            expected = [
                tokens.T @ (lower[a] * lower[b]) @ upper[c] @ readout
                for a in range(2)
                for b in range(2)
                for c in range(3)
            ]
            np.testing.assert_allclose(
                attended[example], expected, rtol=0, atol=1e-12 * np.abs(expected).max()
            )


def test_heads_are_left_out_of_both_layers():
    task = build_task(recipe_of(hypernetwork=[False, True], heads=[[1], [2, 0]]))
    assert task.heads == (1, 2, 2)
    assert task.path_names == (
        "random·good∘good", "random·good∘uniform", "random·uniform∘good", "random·uniform∘uniform",
    )  # fmt: skip


DRAWN = [
    sampler.MarkovChain(features=4, tokens=3),
    sampler.TimeSeries(tokens=12, channels=2),
    sampler.Digits(patch=4),
    sampler.Copy(tokens=3),
]


@pytest.mark.parametrize("section", DRAWN, ids=lambda section: section.kind)
def test_without_an_attention_a_task_has_the_heads_of_its_recipe(section):
    """As a recipe without [attention] fills them in."""
    recipe = Recipe(task=section, network={"widths": 3})
    expected, received = build_task(recipe), section.make()
    assert received.attention_names == expected.attention_names
    assert received.checksum == expected.checksum
