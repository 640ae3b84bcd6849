"""Training, test and validation data share nothing, whatever the task and its source."""

import itertools
import tomllib
from pathlib import Path

import numpy as np
import pytest

from sampler.data.episodes import PATCHES, UNKNOWN, position_table
from sampler.data.make import build_task
from sampler.data.one_shot import read_drawings, split_characters
from sampler.data.raven import MatrixSplits, MatrixTokens
from sampler.data.time_series import series_to_learn
from sampler.settings.recipe import make_recipe
from sampler.training.training_data import draw_embedding
from sampler.transformer.model import (
    TrainedModel,
    Transformer,
    draw_parameters,
    read_model,
    write_model,
)
from tests.pictures import write_all_runs, write_labelled
from tests.sampler.data.test_arrays import arrays
from tests.sampler.data.test_series_files import make_series, ts_text
from tests.training_recipes import TINY

# So many that all drawings of a character are asked for: a shared one would be seen.
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


def untrained_model(folder: Path) -> dict:
    """A model as it is before training, with the characters that it would be trained on."""
    settings = tomllib.loads(TINY)
    settings["task"]["images"] = str(
        write_labelled(folder / "pictures.npz", np.random.default_rng(5))
    )
    recipe = make_recipe(settings)
    splits = split_characters(read_drawings(recipe.task), recipe.task)
    parameters = draw_parameters(Transformer.of(recipe, recipe.task.token_channels), 0, 0)
    embedding = np.asarray(draw_embedding(recipe), np.float32)
    write_model(folder, TrainedModel(recipe, parameters, embedding, 0, splits.checksum))
    return {"model": str(folder), **SIZES}


def model_of_series(folder: Path) -> dict:
    """The same of time series, as many for validation as to learn from."""
    for split, size, seed in (("TRAIN", 2 * EXAMPLES, 0), ("TEST", EXAMPLES, 1)):
        labels = ("walk", "run") * (size // 2)
        (folder / f"Gait_{split}.ts").write_text(ts_text(make_series(size, seed), labels))
    settings = tomllib.loads(TINY)
    settings["task"] = {
        "kind": "time_series", "folder": str(folder), "problem": "Gait", "fraction_validation": 0.5,
    }  # fmt: skip
    recipe = make_recipe(settings)
    splits = series_to_learn(recipe)
    network = Transformer.of(recipe, splits.train.inputs.shape[2], splits.outputs)
    write_model(
        folder, TrainedModel(recipe, draw_parameters(network, 0, 0), None, 0, splits.checksum)
    )
    return {"model": str(folder), **SIZES}


def model_of_matrices(folder: Path) -> dict:
    """The same of Raven's matrices."""
    settings = tomllib.loads(TINY)
    settings["task"] = {"kind": "raven"}
    recipe = make_recipe(settings)
    tokens, splits = MatrixTokens.of(recipe.task), MatrixSplits(recipe.task)
    network = Transformer.of(recipe, tokens.channels, tokens.outputs)
    parameters = draw_parameters(network, 0, 0)
    write_model(folder, TrainedModel(recipe, parameters, None, 0, splits.checksum))
    return {"model": str(folder), **SIZES}


def other_pictures(folder: Path) -> dict:
    other = write_labelled(folder / "other.npz", np.random.default_rng(6), characters=2)
    return {**untrained_model(folder), "test": str(other)}


def one_shot_runs(folder: Path) -> dict:
    write_all_runs(folder / "all_runs.zip")
    return {**untrained_model(folder), "test": "all_runs", "folder": str(folder)}


# Kind and source → the settings of a task with splits of equal sizes.
SOURCES = {
    ("markov_chain", "drawn"): lambda folder: SIZES,
    ("time_series", "drawn"): lambda folder: SIZES,
    ("time_series", "archive"): archive_of_series,
    ("digits", "drawings"): lambda folder: SIZES,
    ("copy", "drawn"): lambda folder: SIZES,
    ("raven", "drawn"): lambda folder: SIZES,
    ("raven", "model"): model_of_matrices,
    ("arrays", "file"): file_of_arrays,
    ("one_shot", "characters"): untrained_model,
    ("one_shot", "other pictures"): other_pictures,
    ("one_shot", "all runs"): one_shot_runs,
    ("trained_series", "files"): model_of_series,
}


def queries_of(split, embedding) -> set[bytes]:
    """The drawings that the episodes of a split ask for, without positions and labels."""
    inputs = split.inputs - position_table(*split.inputs.shape[1:])
    patches = inputs[:, -PATCHES:] - embedding[UNKNOWN].astype(np.float64)
    return {drawing.tobytes() for drawing in np.round(patches, 9) + 0.0}


@pytest.mark.parametrize(("kind", "source"), SOURCES)
def test_splits_of_equal_size_share_no_example(kind, source, tmp_path):
    """With equal sizes, two splits of one stream would be equal to the bit."""
    settings = {"kind": kind, **SOURCES[kind, source](tmp_path)}
    task = build_task(make_recipe({"name": "x", "task": settings, "network": {"widths": 10}}))
    assert len(task.splits) == (2 if source == "archive" else 3)
    for one, other in itertools.combinations(task.splits, 2):
        assert one.inputs.shape == other.inputs.shape
        assert one.examples == EXAMPLES
        for example in one.inputs:
            assert not np.any(np.all(example == other.inputs, axis=(1, 2)))
    if kind == "one_shot":
        embedding = read_model(tmp_path).embedding
        queries = [queries_of(split, embedding) for split in task.splits]
        assert all(len(drawings) > 1 for drawings in queries)
        for one, other in itertools.combinations(queries, 2):
            assert not one & other, "a drawing is in two splits"
