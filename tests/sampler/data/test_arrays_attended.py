"""Attended inputs in the place of tokens and attention: the same problem, and what is refused."""

import numpy as np
import pytest

from sampler.data.arrays import task_of_arrays
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.problem import build_problem
from sampler.settings.recipe import Recipe, load_recipe
from tests.tasks import KEPT_HEADS, remove, replace, spoil, write_arrays

HEADS = (2, 3)
SPLITS = {"train": 6, "test": 5, "validation": 4}


def with_tokens() -> dict[str, np.ndarray]:
    """Two layers with 2 and 3 heads, 4 tokens, 5 channels."""
    rng = np.random.default_rng(3)
    arrays = {}
    for name, examples in SPLITS.items():
        arrays[f"inputs_{name}"] = rng.standard_normal((examples, 4, 5))
        arrays[f"labels_{name}"] = rng.choice([-1.0, 1.0], examples)
        for layer, heads in enumerate(HEADS, start=1):
            arrays[f"attention_{name}_{layer}"] = rng.random((examples, heads, 4, 4)) / 2
    return arrays


RECIPE = Recipe(name="a", task={"kind": "arrays", "path": "-"}, network={"widths": 2})


def attended(tokens: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same problem at the end of the paths, its last token read out."""
    problem = build_problem(RECIPE, task_of_arrays(tokens))
    ends = (problem.learning.attended, problem.attended_test, problem.attended_validation)
    found = {f"attended_{name}": np.asarray(end) for name, end in zip(SPLITS, ends, strict=True)}
    labels = {key: array for key, array in tokens.items() if key.startswith("labels_")}
    return found | labels | {"heads": np.array(HEADS)}


def test_both_layouts_make_the_same_problem():
    tokens = with_tokens()
    one, other = (
        build_problem(RECIPE, task_of_arrays(arrays)) for arrays in (tokens, attended(tokens))
    )
    for name in ("attended", "labels"):
        np.testing.assert_array_equal(getattr(one.learning, name), getattr(other.learning, name))
    for name in ("attended_test", "labels_test", "attended_validation", "labels_validation"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.path_names == other.path_names
    assert one.learning.architecture == other.learning.architecture


def test_other_heads_are_another_problem():
    arrays = attended(with_tokens())
    other = arrays | {"heads": np.array([3, 2])}
    assert task_of_arrays(other).checksum != task_of_arrays(arrays).checksum


def test_a_sub_network_keeps_the_paths_of_its_heads(tmp_path):
    arrays = attended(with_tokens())
    recipe = write_arrays(tmp_path, arrays, KEPT_HEADS)
    task = build_task(load_recipe(recipe))
    assert task.heads == (1, 2)
    assert task.path_names == ("1·2", "1·0")
    for name, split in zip(SPLITS, (task.train, task.test, task.validation), strict=True):
        np.testing.assert_array_equal(split.inputs, arrays[f"attended_{name}"][:, [5, 3]])


@pytest.mark.parametrize(
    ("network", "field"),
    [
        ('readout = "mean"', "readout"),
        ("mlp = {width = 2}", "mlp"),
        ("hypernetwork = true", "hypernetwork"),
        ("heads = [[0], [3]]", "heads"),
    ],
)
def test_a_network_that_needs_tokens_is_refused(network, field, tmp_path):
    settings = f'[sampler]\nspace = "weights"\n[network]\nwidths = 3\n{network}\n'
    recipe = write_arrays(tmp_path, attended(with_tokens()), settings)
    with pytest.raises(InputError) as caught:
        build_task(load_recipe(recipe))
    assert caught.value.field == f"network.{field}"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (remove("attended_train"), "attended_train"),
        (remove("heads"), "heads"),
        (lambda arrays: arrays.update(inputs_train=np.ones((6, 4, 5))), "attended_train"),
        (lambda arrays: arrays.update(attended_tset=np.ones(3)), "attended_tset"),
        (replace("heads", lambda a: a[:1]), "attended_train"),
        (replace("heads", lambda a: a * 10**9), "attended_train"),
        (replace("attended_train", spoil(np.nan, (1, 2, 3))), "attended_train"),
    ],
)
def test_an_array_that_cannot_be_used_is_named(change, field):
    arrays = attended(with_tokens())
    change(arrays)
    with pytest.raises(InputError) as caught:
        task_of_arrays(arrays)
    assert caught.value.field.partition("[")[0] == field
