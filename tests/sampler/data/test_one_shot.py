"""The one_shot task: episodes of a trained model, with its attention, in the theory's terms."""

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.cli import main
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.network import network_outputs
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from sampler.transformer.model import read_model, theory_weights
from sampler.transformer.network import transformer_outputs
from tests.pictures import write_all_runs, write_labelled, write_omniglot
from tests.training_recipes import ANALYSIS, TINY, train_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A trained model, and a recipe that takes it."""
    folder = tmp_path_factory.mktemp("analysis")
    train_in(folder, TINY.replace("130", "40"), ANALYSIS)
    return folder


def load(folder, *overrides):
    return load_recipe(folder / "analysis.toml", overrides)


def test_a_model_is_moved_with_its_pictures(folder, tmp_path):
    """Those of the place where it was trained are gone, or are others, which is refused."""
    before = build_task(load(folder)).identity
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


@pytest.mark.heavy
def test_the_task_is_that_of_the_trained_network(folder):
    """Its value weights in the sampled network give its own predictions on every split."""
    recipe = load(folder)
    task = build_task(recipe)
    assert task.heads == (2, 2)
    assert [split.examples for split in task.splits] == [10, 8, 6]
    model, problem = read_model(folder / "model"), build_problem(recipe, task)
    weights = theory_weights(model.parameters, model.network)
    parameters = {k: jnp.asarray(v, jnp.float64) for k, v in model.parameters.items()}
    for split, attended in zip(
        task.splits,
        (problem.learning.attended, problem.attended_test, problem.attended_validation),
        strict=True,
    ):
        assert set(np.unique(split.labels)) == {-1.0, 1.0}
        expected = np.asarray(
            transformer_outputs(parameters, jnp.asarray(split.inputs), model.network)
        )
        received = network_outputs(
            {k: jnp.asarray(v) for k, v in weights.items()}, attended, problem.architecture
        )[:, 0]
        np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_splits_are_drawn_independently_of_each_others_size(folder):
    task = build_task(load(folder))
    other = build_task(load(folder, "task.examples_train=4", "task.examples_validation=0"))
    assert np.array_equal(task.test.inputs, other.test.inputs)
    assert other.validation is None
    seeded = build_task(load(folder, "task.seed=1"))
    assert not np.array_equal(task.test.inputs, seeded.test.inputs)


def test_some_characters_of_the_other_images(folder, rng):
    write_labelled(folder / "three.npz", rng, characters=3)
    chosen = build_task(load(folder, "task.test=three.npz", 'task.test_characters=["0", "2"]'))
    with np.load(folder / "three.npz") as stored:
        kept = stored["labels"] != 1
        np.savez(folder / "two.npz", images=stored["images"][kept], labels=stored["labels"][kept])
    alone = build_task(load(folder, "task.test=two.npz"))
    assert np.array_equal(chosen.test.inputs, alone.test.inputs)


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ('task.test_characters=["3"]', "task.test_characters"),
        ("task.model=nowhere", "task.model"),
        ("task.test=all_runs", "task.folder"),
        ("task.test=pictures.npz", "task.test"),
        ("task.examples_validation=1", "task.examples_validation"),
        ("network.widths=[3, 4]", "network.widths"),
    ],
)
def test_what_cannot_be_used_is_refused(folder, setting, field):
    with pytest.raises(InputError) as caught:
        build_task(load(folder, setting))
    assert caught.value.field == field


@pytest.mark.heavy
def test_omniglot_in_a_folder_that_moved(tmp_path):
    """Training from zip files, judged on the one-shot runs too; the folder then moves."""
    files = tmp_path / "files"
    files.mkdir()
    alphabets = {"Greek": 3, "Latin": 3, "Korean": 3}
    write_omniglot(files / "images_background_small1.zip", alphabets)
    write_all_runs(files / "all_runs.zip")
    recipe = tmp_path / "train.toml"
    images = 'images = "omniglot"\nfolder = "files"\ncharacters_test = ["Korean"]'
    text = TINY.replace('images = "pictures.npz"', images).replace("130", "2")
    recipe.write_text(text.replace("fraction_test = 0.25\n", ""))
    assert main(["train", str(recipe), "--out", str(tmp_path / "model")]) == ExitCode.OK
    summary = json.loads((tmp_path / "model" / "training_summary.json").read_text())
    assert summary["splits"]["all_runs"]["episodes"] == 60
    assert summary["splits"]["test"]["characters"] == 3
    files.rename(tmp_path / "elsewhere")
    (tmp_path / "analysis.toml").write_text(ANALYSIS)
    with pytest.raises(InputError, match=r"^task\.folder = "):
        build_task(load(tmp_path))
    for test in ("characters", "all_runs"):
        task = build_task(load(tmp_path, "task.folder=elsewhere", f"task.test={test}"))
        assert task.test.examples == 8
