"""Time series of several classes: a transformer learns them, and leaves its attention."""

import json

import numpy as np
import pytest

import sampler
from sampler.data.labelled_inputs import classes_of
from sampler.data.time_series import LabelledSeries, split_by_class
from sampler.errors import ExitCode, InputError
from sampler.settings.recipe import TrainingRecipe, load_recipe
from sampler.training.training_data import ClassifiedData, learning_data
from sampler.transformer.trained_transformer import (
    read_model,
)
from tests.assertions import assert_equal_to_rounding
from tests.commands import in_process as command
from tests.commands import made_once
from tests.recipes import TINY, train_in
from tests.sampler.data.test_series_files import ts_text

NAMES = ("slow", "middle", "fast")
STEPS, CHANNELS = 12, 2
SERIES = """
name = "gait"
[task]
kind = "time_series"
folder = "Gait"
max_tokens = 6
"""
TRAINED = """
steps = 260
batch = 64
learning_rate = 1e-2
validation_every = 40
"""
# The network of the other trainings, with what these series need.
RECIPE = SERIES + TINY[TINY.index("[training]") : TINY.index("steps")] + TRAINED


def waves(of_each: int, seed: int) -> tuple[np.ndarray, list[str]]:
    """Oscillations of three frequencies from any phase, [example, step, channel], and classes."""
    generator = np.random.default_rng(seed)
    classes = np.tile(np.arange(len(NAMES)), of_each)
    turned = np.arange(STEPS)[:, None] * np.array([0.0, 0.3])[None] + np.arange(STEPS)[:, None]
    phase = generator.uniform(0, 2 * np.pi, (len(classes), 1, CHANNELS))
    values = np.sin(0.4 * (1 + classes[:, None, None]) * turned + phase)
    return np.round(values + 0.1 * generator.standard_normal(values.shape), 6), [
        NAMES[one] for one in classes
    ]


def write_series(folder, of_each: int = 16) -> None:
    series = folder / "Gait"
    series.mkdir()
    for split, seed in (("TRAIN", 0), ("TEST", 1)):
        (series / f"Gait_{split}.ts").write_text(ts_text(*waves(of_each, seed), NAMES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    def make(folder) -> None:
        write_series(folder)
        train_in(folder, RECIPE)

    return made_once(tmp_path_factory, "series", make)[0]


def read_splits(folder, *settings):
    recipe = load_recipe(folder / "tiny.toml", list(settings), kind=TrainingRecipe)
    return recipe.task.read(recipe.training)


@pytest.fixture
def splits(folder):
    return read_splits(folder)


def test_splits_are_disjoint_and_in_units_of_the_training_file(splits):
    assert [splits.train.examples, splits.validation.examples, splits.test.examples] == [36, 12, 48]
    assert splits.names == NAMES
    for split in (splits.train, splits.validation, splits.test):
        assert len(set(np.bincount(classes_of(split.labels)))) == 1
        assert_equal_to_rounding(
            split.labels.sum(axis=1), np.zeros(split.examples), operations=3, scale=1.0
        )
    parts = [one.inputs[:, 1:, :CHANNELS] for one in (splits.train, splits.validation)]
    whole = np.concatenate(parts)
    assert len(np.unique(whole.reshape(len(whole), -1), axis=0)) == len(whole)
    np.testing.assert_allclose(whole.mean(axis=(0, 1)), 0.0, atol=1e-13)
    np.testing.assert_allclose(whole.std(axis=(0, 1)), 1.0, atol=1e-13)
    assert splits.train.inputs.shape[1:] == (7, CHANNELS + 7)


def test_few_labels_and_two_classes(folder, splits):
    def read(setting):
        return read_splits(folder, setting)

    few = read("task.examples_per_class=2")
    assert np.bincount(classes_of(few.train.labels)).tolist() == [2, 2, 2]
    assert np.array_equal(few.validation.inputs, splits.validation.inputs)
    known = {one.tobytes() for one in splits.train.inputs}
    assert all(one.tobytes() in known for one in few.train.inputs)
    two = read('task.classes=["fast", "slow"]')
    assert two.outputs is None
    signs = np.sign(two.train.inputs[:, 1:, :CHANNELS])
    turns = (signs[:, 1:] != signs[:, :-1]).sum(axis=(1, 2))
    first, second = (turns[two.train.labels[:, 0] == label] for label in (1.0, -1.0))
    assert (len(first), len(second)) == (12, 12)
    assert first.min() > second.max()  # +1 is the class that is named first, the fast one


def test_every_class_has_series_for_validation():
    settings = LabelledSeries(folder="none", fraction_validation=0.05)
    classes = np.repeat([1, 0], [4, 60])
    train, validation = split_by_class(settings, classes, ("many", "few"))
    assert np.bincount(classes[validation]).tolist() == [3, 1]
    assert sorted([*train, *validation]) == list(range(64))


def test_every_example_comes_once_before_any_comes_again(folder, splits):
    recipe = load_recipe(folder / "tiny.toml", ["training.batch=9"], kind=TrainingRecipe)
    data = ClassifiedData(recipe, splits)
    block = data.block(3)
    assert block.examples == 900
    for start in range(0, 900, 36):
        assert sorted(block.places[0][start : start + 36]) == list(range(36))
    assert np.array_equal(block.targets, splits.train.labels[block.places[0]])
    assert not np.array_equal(block.places[0][:36], block.places[0][36:72])
    assert not np.array_equal(block.places[0], data.block(4).places[0])
    assert np.array_equal(block.places[0], data.block(3).places[0])


def test_the_network_to_keep_is_chosen_on_series_for_validation(folder, splits):
    recipe = load_recipe(folder / "tiny.toml", kind=TrainingRecipe)
    data = learning_data(recipe, splits)
    table, rows = data.validation
    inputs = table.gather(*table.arrays, *rows.places)
    np.testing.assert_allclose(inputs, splits.validation.inputs, rtol=1e-6)
    np.testing.assert_array_equal(rows.targets, splits.validation.labels)
    np.testing.assert_allclose(data.table.arrays[0], splits.train.inputs, rtol=1e-6)


def test_it_learns_and_says_what(folder):
    summary = json.loads((folder / "model" / "training_summary.json").read_text())
    sizes = {name: split["examples"] for name, split in summary["splits"].items()}
    assert sizes == {"train": 36, "validation": 12, "test": 48}
    # A guess is right in a third: at least four binomial errors of a guess above that.
    accuracy = summary["splits"]["test"]["network"]["accuracy"]
    assert accuracy > 1 / 3 + 4 * np.sqrt(2 / 9 / 48)
    model = read_model(folder / "model")
    assert model.embedding is None
    assert model.network.outputs == 3


@pytest.mark.slow
def test_until_a_loss(folder, tmp_path):
    """Training ends where the curve first falls below it, and keeps the network of that step."""
    whole = (folder / "model" / "learning_curve.csv").read_text().splitlines()[1:]
    losses = {int(row.split(",")[0]): float(row.split(",")[1]) for row in whole}
    limit = 1.001 * losses[120]
    expected = min(step for step, loss in losses.items() if loss < limit)
    assert 40 < expected < 260
    settings = [f"training.until_loss={limit}"]
    words = ["train", folder / "tiny.toml", "--out", tmp_path / "model", "--set", *settings]
    assert command(*words) == ExitCode.OK
    model = read_model(tmp_path / "model")
    assert model.step == expected
    recipe = load_recipe(folder / "tiny.toml", settings, kind=TrainingRecipe)
    # What is kept is the last network, not the best one on the validation series.
    summary = json.loads((tmp_path / "model" / "training_summary.json").read_text())
    data = learning_data(recipe, recipe.task.read(recipe.training))
    assert summary["splits"] == data.judged(model)


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ('task.classes=["slow", "lame"]', "task.classes"),
        ("task.examples_per_class=13", "task.examples_per_class"),
        ('training.form={kind="scaled_heads",scale=8}', "training.form"),
    ],
)
def test_what_cannot_be_used_is_refused(setting, field, folder):
    with pytest.raises(InputError) as caught:
        read_splits(folder, setting)
    assert caught.value.field == field


def test_a_model_of_series_is_refused_as_one_of_images(folder):
    with pytest.raises(InputError) as caught:
        sampler.OneShot(model=folder / "model").make(None)
    assert caught.value.field == "task.model"
