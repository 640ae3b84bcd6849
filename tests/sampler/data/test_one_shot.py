"""The one_shot task: characters of a trained model, its episodes, and their tokens."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sampler.cli import main
from sampler.data.characters import read_drawings, split_characters
from sampler.data.episodes import (
    TOKENS,
    UNKNOWN,
    draw_episodes,
    episode_inputs,
    normalised_patches,
    position_table,
)
from sampler.data.image_files import Drawings
from sampler.data.make import build_task
from sampler.data.one_shot import OneShot
from sampler.errors import ExitCode, InputError
from sampler.settings.recipe import Recipe, TrainingRecipe, load_recipe
from sampler.streams import Stream, stream
from sampler.transformer.trained_transformer import read_model
from tests.assertions import assert_equal_to_rounding
from tests.recipes import (
    ANALYSIS,
    TINY,
    train_in,
    write_labelled,
    write_omniglot,
    write_training,
    write_untrained,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model after two steps, and a recipe that takes it."""
    folder = tmp_path_factory.mktemp("analysis")
    train_in(folder, TINY.replace("130", "2"), ANALYSIS)
    return folder


def load(folder, *overrides):
    return load_recipe(folder / "analysis.toml", overrides)


def test_a_model_is_moved_with_its_pictures(folder, tmp_path):
    """Those of the place where it was trained are gone, or are others, which is refused."""
    task = build_task(load(folder))
    before = task.identity
    assert [split.examples for split in task.splits] == [10, 8, 6]
    assert all({*split.labels.ravel()} == {-1.0, 1.0} for split in task.splits)
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    kept = (folder / "pictures.npz").read_bytes()
    try:
        write_labelled(folder / "pictures.npz", np.random.default_rng(9))
        with pytest.raises(InputError):
            build_task(load(folder))
        (folder / "pictures.npz").unlink()
        assert build_task(load(moved)).identity == before
    finally:
        (folder / "pictures.npz").write_bytes(kept)


def test_tokens_are_those_of_the_episodes_and_random_heads_stand_behind_the_trained_ones(folder):
    sizes = {"examples_train": 4, "examples_test": 2, "examples_validation": 3, "seed": 3}
    model, random = read_model(folder / "model"), {"random_heads": 1}
    plain, more = (OneShot(model=folder / "model", **sizes, **of).make() for of in ({}, random))
    images = model.recipe.task
    drawn = split_characters(read_drawings(images), images)
    for split, drawings, of in (
        (plain.train, drawn.train, Stream.TRAIN),
        (plain.test, drawn.test, Stream.TEST),
        (plain.validation, drawn.validation, Stream.EPISODES_TO_VALIDATE),
    ):
        made = draw_episodes(drawings, split.examples, stream(3, of))
        for tokens, *places_and_labels in zip(split.inputs, *made.places, strict=True):
            shown = [
                normalised_patches(drawings.images[[place]])[0] + model.embedding[label]
                for place, label in zip(*places_and_labels, strict=True)
            ]
            expected = np.concatenate(shown) + position_table(TOKENS, 64)
            np.testing.assert_allclose(tokens, expected, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(split.labels[:, 0], made.targets)
    assert more.attention_names == (("0", "1", "r0"),) * 2
    for one, other in zip(plain.train.attention, more.train.attention, strict=True):
        np.testing.assert_array_equal(one, other[:, :2])
        assert not any(np.allclose(other[:, 2], one[:, head]) for head in range(2))
    assert plain.trained is not None
    assert more.trained is None


def test_extra_heads_stand_beside_those_of_a_hypernetwork(tmp_path, rng):
    """Layers of attention have them, of which one serves two layers of values."""
    path = write_training(tmp_path, rng)
    settings = ["training.hypernetwork=[true,false]", "training.widths=[6,5,4,3]"]
    write_untrained(tmp_path, load_recipe(path, settings, kind=TrainingRecipe))
    sizes = {"examples_train": 4, "examples_test": 2, "examples_validation": 0}
    episodes = OneShot(model=tmp_path, random_heads=1, **sizes)
    network = {"widths": 5, "hypernetwork": [True, False]}
    task = build_task(Recipe(task=episodes, network=network))
    assert [omega.shape[1] for omega in task.train.attention] == [3, 3]


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("task.model=nowhere", "task.model"),
        ("task.test=pictures.npz", "task.test"),
        ("task.examples_validation=1", "task.examples_validation"),
        ("network.widths=[3, 4]", "network.widths"),
    ],
)
def test_what_cannot_be_used_is_refused(folder, setting, field):
    with pytest.raises(InputError) as caught:
        build_task(load(folder, setting))
    assert caught.value.field == field


@pytest.mark.slow
def test_omniglot_in_a_folder_that_moved(tmp_path):
    """Training from zip files; the folder then moves."""
    files = tmp_path / "files"
    files.mkdir()
    alphabets = {"Greek": 3, "Latin": 3, "Korean": 3}
    write_omniglot(files / "images_background_small1.zip", alphabets)
    recipe = tmp_path / "train.toml"
    images = 'images = "omniglot"\nfolder = "files"\ncharacters_test = ["Korean"]'
    text = TINY.replace('images = "pictures.npz"', images).replace("130", "2")
    recipe.write_text(text.replace("fraction_test = 0.25\n", ""))
    assert main(["train", str(recipe), "--out", str(tmp_path / "model")]) == ExitCode.OK
    summary = json.loads((tmp_path / "model" / "training_summary.json").read_text())
    assert summary["splits"]["test"]["characters"] == 3
    files.rename(tmp_path / "elsewhere")
    (tmp_path / "analysis.toml").write_text(ANALYSIS)
    with pytest.raises(InputError, match=r"^task\.folder = "):
        build_task(load(tmp_path))
    assert build_task(load(tmp_path, "task.folder=elsewhere")).test.examples == 8


# --- episodes, and their tokens


EXAMPLES = 20_000
COUNTS = np.array([2, 5, 3, 9])


def drawings() -> Drawings:
    images = np.zeros((COUNTS.sum(), 32, 32), np.float32)
    return Drawings(images, ("a", "b", "c", "d"), COUNTS)


def episodes():
    return draw_episodes(drawings(), EXAMPLES, stream(0, Stream.TEST))


CHARACTER = np.repeat(np.arange(4), COUNTS)


def test_an_episode_asks_for_the_label_of_another_drawing_of_one_of_its_characters():
    made = episodes()
    of_images = CHARACTER[made.places[0]]
    assert np.all(of_images[:, 0] != of_images[:, 1])
    same = of_images[:, :2] == of_images[:, 2:]
    assert np.all(same.sum(axis=1) == 1)
    assert np.all(made.places[0][:, :2] != made.places[0][:, 2:])
    label = made.places[1][np.arange(EXAMPLES), same.argmax(axis=1)]
    assert np.array_equal(made.targets, np.where(label == 1, 1.0, -1.0))
    assert np.all(np.sort(made.places[1][:, :2]) == [0, 1])
    assert np.all(made.places[1][:, 2] == UNKNOWN)


def test_every_choice_is_uniform_and_independent():
    made = episodes()
    of_images = CHARACTER[made.places[0]]
    asked = (of_images[:, :2] == of_images[:, 2:]).argmax(axis=1)
    pairs = 4 * of_images[:, 0] + of_images[:, 1]
    cells = [pairs[pairs % 5 != 0], 2 * asked + made.places[1][:, 0]]
    # The query of a character with three drawings, given the support.
    third = (of_images[:, 2] == 2) & (asked == 0)
    cells.append(3 * made.places[0][third, 0] + made.places[0][third, 2])
    for cell, kinds in zip(cells, (12, 4, 6), strict=True):
        seen = np.unique(cell, return_counts=True)[1]
        assert seen.size == kinds
        expected = cell.size / kinds
        error = np.sqrt(expected * (1 - 1 / kinds))
        assert np.all(np.abs(seen - expected) < 4.5 * error)


# --- tokens of an episode


def test_patches_are_row_major_and_normalised(rng):
    images = rng.random((3, 32, 32)).astype(np.float32)
    images[1, :8, 8:16] = 0.25
    received = normalised_patches(images, copies=3)
    assert received.shape == (3, 16, 192)
    for patch in (0, 1, 6, 15):
        row, column = 8 * (patch // 4), 8 * (patch % 4)
        values = images[2, row : row + 8, column : column + 8].astype(float).reshape(-1)
        expected = (values - values.mean()) / np.sqrt(values.var() + 1e-5)
        for copy in range(3):
            assert_equal_to_rounding(
                received[2, patch, 64 * copy : 64 * copy + 64], expected, operations=200
            )
    assert np.array_equal(received[1, 1], np.zeros(192))


def test_positions_are_standardised_sinusoids():
    waves = np.empty((48, 64))
    for t, i in np.ndindex(48, 32):
        angle = t / 10000 ** (2 * i / 64)
        waves[t, 2 * i : 2 * i + 2] = np.sin(angle), np.cos(angle)
    expected = (waves - waves.mean()) / waves.std()
    assert_equal_to_rounding(position_table(48, 64), expected, operations=4 * 48)


def test_inputs_are_patch_plus_position_plus_label(rng):
    patches, embedding = rng.standard_normal((5, 16, 64)), rng.standard_normal((3, 64))
    drawings, labels = np.array([[4, 0, 2], [1, 1, 3]]), np.array([[1, 0, 2], [0, 1, 2]])
    positions = position_table(TOKENS, 64)
    received = episode_inputs(patches, positions, embedding, drawings, labels)
    assert received.shape == (2, TOKENS, 64)
    for example, token in ((0, 0), (0, 17), (1, 47)):
        image, patch = divmod(token, 16)
        expected = (
            patches[drawings[example, image], patch]
            + embedding[labels[example, image]]
            + positions[token]
        )
        assert_equal_to_rounding(received[example, token], expected, operations=4)
