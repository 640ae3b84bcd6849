"""The one_shot task: episodes of a trained model, with its attention, in the theory's terms."""

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.attention.layers import variants_by_head
from sampler.attention.variants import Linear, ScaledHeads
from sampler.cli import main
from sampler.data.make import build_task
from sampler.data.one_shot import OneShot
from sampler.errors import ExitCode, InputError
from sampler.network import network_outputs
from sampler.problem import build_problem
from sampler.settings.recipe import Recipe, TrainingRecipe, load_recipe
from sampler.transformer.trained_transformer import read_model, theory_weights
from tests.pictures import write_labelled, write_omniglot
from tests.training_recipes import ANALYSIS, TINY, train_in, write_training, write_untrained

# A layer each of scaled heads and of everything else, for heads = [2, 2].
SCALED = '[[{kind="scaled_heads",scale=1},{kind="scaled_heads",scale=2,beta=1.0}],{kind="linear"}]'
VARIANTS = (ScaledHeads(scale=1), ScaledHeads(scale=2, beta=1.0)), Linear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model trained with mixed heads, and a recipe that takes it."""
    folder = tmp_path_factory.mktemp("analysis")
    text = TINY.replace("130", "40").replace("key_size", f"form = {SCALED}\nkey_size")
    train_in(folder, text, ANALYSIS)
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


@pytest.mark.slow
def test_the_task_is_that_of_the_trained_network(folder):
    """Its weights give its own predictions on every split: layer by layer, and in the theory."""
    recipe = load(folder)
    task = build_task(recipe)
    assert [split.examples for split in task.splits] == [10, 8, 6]
    model, problem = read_model(folder / "model"), build_problem(recipe, task)
    assert model.network.variants == variants_by_head(VARIANTS, (2, 2))
    weights = theory_weights(model.parameters, model.network)
    for split, attended in zip(
        task.splits,
        (problem.learning.attended, problem.attended_test, problem.attended_validation),
        strict=True,
    ):
        assert set(np.unique(split.labels)) == {-1.0, 1.0}
        expected = layer_by_layer(model, split.inputs)
        on_device = {k: jnp.asarray(v) for k, v in weights.items()}
        received = network_outputs(on_device, attended, problem.architecture)[:, 0]
        bound = 1e-12 * np.abs(expected).max()
        np.testing.assert_allclose(received, expected, rtol=0, atol=bound)
        trained = problem.trained.predictor(attended)[:, 0]
        np.testing.assert_allclose(trained, expected, rtol=0, atol=bound)


def layer_by_layer(model, inputs):
    """Outputs of the trained network in NumPy, head by head."""
    hidden = inputs @ model.parameters["W_in"].T.astype(np.float64)
    for layer, variants in enumerate(model.network.variants, start=1):
        queries, keys = (
            np.einsum("hgi,xti->xhtg", model.parameters[f"W_{k}_{layer}"], inputs) for k in "QK"
        )
        heads = [v.matrices(queries[:, [h]], keys[:, [h]]) for h, v in enumerate(variants)]
        values = model.parameters[f"W_V_{layer}"]
        omega = np.concatenate(heads, axis=1)
        hidden = np.einsum("xhst,hij,xsj->xti", omega, values, hidden) / np.sqrt(2)
    return hidden.mean(axis=1) @ model.parameters["readout"]


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
