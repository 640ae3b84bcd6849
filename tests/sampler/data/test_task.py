"""Heads of tasks: distances, hypernetworks, more paths than anything can hold, refusals."""

import itertools
import math

import numpy as np
import pytest

import sampler
from sampler.attention import similarity
from sampler.attention.similarity import HeadDistances
from sampler.data.examples import Examples
from sampler.data.make import build_task
from sampler.data.markov_chain import MarkovChain
from sampler.data.task import MOST_PATHS, name_paths, refuse_too_many_paths
from sampler.errors import InputError
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


def test_two_heads_have_no_spread_and_single_heads_no_distance(rng):
    two, one = (random_split(rng, (heads,)) for heads in (2, 1))
    assert HeadDistances.of(two.attention, two.inputs).matrices[1] == 0.0
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
    """Of both of which heads are left out."""
    task = build_task(recipe_of(hypernetwork=[True, False]))
    assert task.heads == (2, 2, 3)
    assert len(task.train.attention) == 2
    assert len(task.path_names) == len(set(task.path_names)) == 12
    assert task.path_names[3] == "good∘random·uniform"
    task = build_task(recipe_of(hypernetwork=[False, True], heads=[[1], [2, 0]]))
    assert task.heads == (1, 2, 2)
    assert task.path_names == (
        "random·good∘good", "random·good∘uniform", "random·uniform∘good", "random·uniform∘uniform",
    )  # fmt: skip


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


# --- more paths than anything can hold


def with_tokens(heads: tuple[int, ...]) -> sampler.Arrays:
    """Random tokens and attention of layers with so many heads, as in a file."""
    rng, arrays = np.random.default_rng(2), {"labels_train": np.ones(6)}
    for name in ("train", "test"):
        arrays[f"inputs_{name}"] = rng.standard_normal((6, 3, 4))
        for layer, count in enumerate(heads, start=1):
            arrays[f"attention_{name}_{layer}"] = rng.random((6, count, 3, 3))
    return sampler.Arrays(**arrays)


def test_heads_of_a_deep_transformer_are_refused_but_for_a_few_of_them():
    task, kept = with_tokens((16,) * 24), ((5, 1), *((2,),) * 23)
    for command in (sampler.solve, sampler.sample):
        with pytest.raises(InputError) as refused:
            command(Recipe(task=task, network={"widths": 3}))
        assert refused.value.field == "network.heads"
    found = build_task(Recipe(task=task, network={"widths": 3, "heads": kept}))
    assert list(found.path_names) == [head + "·2" * 23 for head in "51"]
    for received, whole, heads in zip(
        found.train.attention, task.make(None).train.attention, kept, strict=True
    ):
        np.testing.assert_array_equal(received, whole[:, heads])


def test_the_limit_is_a_number_of_paths():
    names = [["a", "b"]] * int(math.log2(MOST_PATHS))
    assert len(name_paths(names)) == MOST_PATHS
    assert name_paths([*names, ["c"]])[-1].endswith("b·c")
    assert name_paths([*names, ["c", "d"]]) == ()
    refuse_too_many_paths([2] * len(names))
    with pytest.raises(InputError):
        refuse_too_many_paths([2, 3, 4000])


# --- settings that cannot be used


SIZES = {"examples_train": 6, "examples_test": 4}
SCALED = {"form": {"kind": "scaled_heads", "scale": 12}}
# Kind of the task, its settings, those of attention and of the network, and the key that is named.
REFUSED = [
    ("markov_chain", {"tokens": 3}, {"heads": [["lag"]]}, {}, "attention.heads[0][0]"),
    ("markov_chain", {}, {}, {"hypernetwork": [True]}, "network.hypernetwork"),
    ("markov_chain", {}, {}, {"hypernetwork": True, "heads": [[0]] * 4}, "network.heads"),
    ("time_series", {"period": 10, "lag": 5}, {}, {}, "task.period"),
    ("time_series", {"tokens": 7}, {"lag": 2, **SCALED}, {}, "attention.form"),
    ("copy", {"tokens": 1}, {}, {}, "task.tokens"),
    ("digits", {"examples_test": 1797}, {}, {}, "task.examples_test"),
]


@pytest.mark.parametrize(("kind", "task", "attention", "network", "field"), REFUSED)
def test_what_cannot_be_used_is_refused(kind, task, attention, network, field):
    sections = {"task": {"kind": kind, **SIZES, **task}, "network": {"widths": 3, **network}}
    with pytest.raises(InputError) as caught:
        build_task(Recipe(name="a", attention=attention, **sections))
    assert caught.value.field == field
