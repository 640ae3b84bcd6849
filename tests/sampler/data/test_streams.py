"""Training, test and validation data share nothing, nor depend on how many the others are."""

import itertools
import tomllib
from pathlib import Path

import numpy as np
import pytest

from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.settings.recipe import Recipe, TrainingRecipe
from tests.recipes import TINY, write_labelled, write_untrained
from tests.sampler.data.test_arrays import arrays
from tests.sampler.data.test_series_files import make_series, ts_text

EXAMPLES = 24
SIZES = {"examples_train": EXAMPLES, "examples_test": EXAMPLES, "examples_validation": EXAMPLES}


def archive_of_series(folder: Path) -> dict:
    """Files with as many test series as training series."""
    labels = ("walk", "run") * (EXAMPLES // 2)
    for seed, split in enumerate(("TRAIN", "TEST")):
        text = ts_text(make_series(EXAMPLES, seed), labels)
        (folder / f"{folder.name}_{split}.ts").write_text(text)
    return {"folder": str(folder)}


def file_of_arrays(folder: Path) -> dict:
    np.savez(
        folder / "own.npz", **arrays(sizes=dict.fromkeys(("train", "test", "validation"), EXAMPLES))
    )
    return {"path": str(folder / "own.npz")}


def untrained_model(folder: Path, task: dict) -> dict:
    """A model as it is before training, with the data that it would be trained on."""
    write_untrained(folder, TrainingRecipe(**tomllib.loads(TINY) | {"task": task}))
    return {"model": str(folder), **SIZES}


def model_of_episodes(folder: Path) -> dict:
    task = tomllib.loads(TINY)["task"]
    images = write_labelled(folder / "pictures.npz", np.random.default_rng(5))
    return untrained_model(folder, task | {"images": str(images)})


def other_pictures(folder: Path) -> dict:
    other = write_labelled(folder / "other.npz", np.random.default_rng(6), characters=2)
    return {**model_of_episodes(folder), "test": str(other)}


# Kind and source → the settings of a task with splits of equal sizes.
SOURCES = {
    ("markov_chain", "drawn"): lambda folder: SIZES,
    ("time_series", "drawn"): lambda folder: SIZES,
    ("time_series", "archive"): archive_of_series,
    ("digits", "drawings"): lambda folder: SIZES,
    ("copy", "drawn"): lambda folder: SIZES,
    ("in_context_regression", "drawn"): lambda folder: SIZES,
    ("associative_recall", "drawn"): lambda folder: SIZES,
    ("arrays", "file"): file_of_arrays,
    ("one_shot", "characters"): model_of_episodes,
    ("one_shot", "other pictures"): other_pictures,
}


@pytest.mark.parametrize(("kind", "source"), SOURCES)
def test_splits_of_equal_size_share_no_example(kind, source, tmp_path):
    """With equal sizes, two splits of one stream would be equal to the bit."""
    settings = {"kind": kind, **SOURCES[kind, source](tmp_path)}
    task = build_task(Recipe(task=settings, network={"widths": 10}))
    assert len(task.splits) == (2 if source == "archive" else 3)
    for one, other in itertools.combinations(task.splits, 2):
        assert one.inputs.shape == other.inputs.shape
        assert one.examples == EXAMPLES
        for example in one.inputs:
            assert not np.any(np.all(example == other.inputs, axis=(1, 2)))


# Kinds and sources whose sizes are settings.
SIZED = [key for key in SOURCES if key not in {("time_series", "archive"), ("arrays", "file")}]
# Examples are taken from a pool in an order, so that fewer of them are the first of more.
FROM_A_POOL = {("digits", "drawings")}
NAMES = ("train", "test", "validation")


def splits_of(settings, **sizes):
    return build_task(Recipe(task=settings | sizes, network={"widths": 10})).named_splits


def assert_first_of(split, expected):
    for one, other in zip(split.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(one, other[: len(one)])


@pytest.mark.parametrize(("kind", "source"), SIZED)
def test_a_split_stays_where_another_has_another_size(kind, source, tmp_path):
    """Bit for bit: inputs, labels and attention."""
    settings = {"kind": kind, **SOURCES[kind, source](tmp_path)}
    expected = splits_of(settings)
    for changed in NAMES:
        received = splits_of(settings, **{f"examples_{changed}": EXAMPLES - 11})
        for name in NAMES:
            if name != changed or (kind, source) in FROM_A_POOL:
                assert_first_of(received[name], expected[name])
            assert received[name].examples == EXAMPLES - 11 * (name == changed)
    without = splits_of(settings, examples_validation=0)
    for name in ("train", "test"):
        assert_first_of(without[name], expected[name])
        assert without[name].examples == expected[name].examples


LIMITS = [
    ({"examples_train": 800, "examples_validation": 98, "examples_test": 899}, None),
    ({"examples_train": 801, "examples_validation": 98}, "task.examples_validation"),
    ({"examples_validation": 2, "examples_test": 900}, "task.examples_test"),
    ({"examples_train": 897, "examples_test": 900}, None),
    ({"examples_train": 898, "examples_test": 900}, "task.examples_test"),
]


@pytest.mark.parametrize(("sizes", "refused"), LIMITS)
def test_no_drawing_of_a_digit_is_in_two_splits_at_the_largest_sizes(sizes, refused):
    settings = {"kind": "digits", "patch": 4, "examples_train": 2, "examples_test": 2}
    if refused:
        with pytest.raises(InputError) as caught:
            splits_of(settings | sizes)
        assert str(caught.value).startswith(refused)
        return
    splits = splits_of(settings | sizes).values()
    images = np.concatenate([split.inputs.reshape(split.examples, -1) for split in splits])
    assert len(images) == sum(sizes.values())
    assert len(np.unique(images, axis=0)) == len(images)
