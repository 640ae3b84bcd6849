"""Arrays in memory: the data of their file, kept beside the results, known by what is in them."""

import re
from pathlib import Path

import numpy as np
import pytest

import sampler
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.settings.recipe import load_recipe
from tests.commands import in_process

NETWORK = {"widths": 3}
CHAINS = {"chains": 2, "warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3}
LAYERS = (2, 1)


@pytest.fixture
def arrays(rng) -> dict[str, np.ndarray]:
    """Arrays under the names that a file has."""
    found = {"head_names_1": np.array(["a", "b"]), "head_names_2": np.array(["c"])}
    for split, examples in (("train", 5), ("test", 4)):
        found[f"inputs_{split}"] = rng.standard_normal((examples, 3, 2))
        found[f"labels_{split}"] = rng.choice([-1.0, 1.0], examples)
        for layer, heads in enumerate(LAYERS, start=1):
            found[f"attention_{split}_{layer}"] = rng.random((examples, heads, 3, 3))
    return found


def arguments_of(arrays: dict[str, np.ndarray]) -> dict:
    """The same as arguments of `sampler.Arrays`."""
    given = {"head_names": [["a", "b"], ["c"]]}
    for split, end in (("train", ""), ("test", "_test")):
        given |= {f"{name}{end}": arrays[f"{name}_{split}"] for name in ("inputs", "labels")}
        given[f"attention{end}"] = [arrays[f"attention_{split}_{layer}"] for layer in (1, 2)]
    return given


def recipe_of(task: sampler.Arrays) -> sampler.Recipe:
    return sampler.Recipe(task=task, network=NETWORK, sampler=CHAINS)


def test_arrays_in_memory_are_those_of_a_file(arrays, tmp_path):
    np.savez(tmp_path / "mine.npz", **arrays)
    of_file = build_task(recipe_of(sampler.Arrays(tmp_path / "mine.npz")))
    in_memory = build_task(recipe_of(sampler.Arrays(**arguments_of(arrays))))
    assert in_memory.identity == of_file.identity
    assert in_memory.path_names == of_file.path_names == ("a·c", "b·c")


def test_check_prints_no_path_of_a_file_that_does_not_exist(arrays, tmp_path):
    np.savez(tmp_path / "mine.npz", **arrays)
    in_memory = recipe_of(sampler.Arrays(**arguments_of(arrays)))
    of_file = recipe_of(sampler.Arrays(tmp_path / "mine.npz"))
    assert re.findall(r'"(/[^"]+)"', sampler.check(in_memory)) == []
    assert re.findall(r'"(/[^"]+)"', sampler.check(of_file)) == [str(tmp_path / "mine.npz")]
    kept = in_memory.task.kept_in(tmp_path)
    kept.keep(tmp_path)
    (path,) = re.findall(r'"(/[^"]+)"', sampler.check(recipe_of(kept)))
    assert Path(path).parent == tmp_path
    assert Path(path).is_file()


def test_a_recipe_knows_arrays_by_their_values(arrays):
    given = arguments_of(arrays)
    one, same = recipe_of(sampler.Arrays(**given)), recipe_of(sampler.Arrays(**given))
    assert one == same
    assert one.hash8 == same.hash8
    for name in ("inputs", "labels_test"):
        other = sampler.Arrays(**given | {name: given[name] + 1e-9})
        assert recipe_of(other).hash8 != one.hash8
    before = build_task(one).checksum
    given["inputs"][0] += 1.0  # the task has copies
    assert build_task(one).checksum == before
    teacher = one.changed({"task.labels": "teacher", "task.teacher_seed": 3})
    assert build_task(teacher).checksum == before
    assert teacher.task.labels == "teacher"


@pytest.mark.slow
def test_a_directory_keeps_the_arrays_of_its_recipe(arrays, tmp_path, undrawn):
    """A command then does what Python does: nothing is left to be done, or the same is refused."""
    recipe = recipe_of(sampler.Arrays(**arguments_of(arrays)))
    expected = sampler.sample(recipe, progress=False)["posterior"]
    run = sampler.run(recipe, out=tmp_path / "run", figures=False, progress=False)
    assert run.draws["posterior"].equals(expected)
    assert run.recipe.hash8 == recipe.hash8
    (kept,) = (tmp_path / "run").glob("data-*.npz")
    with np.load(kept) as stored:
        assert set(stored.files) == set(arrays)
        for key, array in arrays.items():
            np.testing.assert_array_equal(stored[key], array)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert in_process("resume", moved, "--more", "4") in (0, 3)
    assert sampler.open_results(moved).draws["posterior"].sizes["draw"] == 10
    swept = sampler.sweep(
        recipe, {"network.widths": [3, 4]}, out=tmp_path / "sweep", figures=False, progress=False
    )
    assert swept.points["network.widths=3"].draws["posterior"].equals(expected)
    assert len(list((tmp_path / "sweep").rglob("data-*.npz"))) == 1
    point = load_recipe(tmp_path / "sweep" / "network.widths=4" / "recipe.toml")
    assert (tmp_path / "sweep") in type(kept)(point.task.path).parents
    other = arguments_of(arrays) | {"labels": -arrays["labels_train"]}
    with pytest.raises(InputError):
        sampler.run(recipe_of(sampler.Arrays(**other)), out=moved, progress=False)
