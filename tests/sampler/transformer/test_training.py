"""Training: it learns, it can be interrupted anywhere, and what it leaves can be read."""

import csv
import json
import shutil
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from sampler.errors import ExitCode, InputError, RequeueError
from sampler.images.drawings import nearest_neighbour
from sampler.jobs.train import read_splits, start_training
from sampler.recipes.training_recipe import load_training_recipe
from sampler.storage.checkpoint import read_sealed
from sampler.transformer.evaluation import accuracy_with_error, learning_data
from sampler.transformer.model import MODEL_FILE, TransformerShape, read_model
from sampler.transformer.training import initial_state, train
from tests import commands
from tests.commands import AfterChunks, made_once
from tests.commands import in_process as command
from tests.pictures import random_drawings
from tests.training_recipes import write_training
from theory.observables import binomial_error


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    return write_training(folder, np.random.default_rng(5))


@pytest.fixture(scope="module")
def finished(recipe_file, tmp_path_factory) -> Path:

    def make(folder: Path) -> int:
        return command("train", recipe_file, "--out", folder / "model")

    folder, code = made_once(tmp_path_factory, "finished_training", make)
    assert code == ExitCode.OK
    return folder / "model"


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    directory = tmp_path / "copy"
    shutil.copytree(finished, directory)
    return directory


def assert_same_model(received: Path, expected: Path) -> None:
    """Model, curve and summary, bit for bit, but for the seconds it took."""
    assert (received / MODEL_FILE).read_bytes() == (expected / MODEL_FILE).read_bytes()
    curve = "learning_curve.csv"
    assert (received / curve).read_text() == (expected / curve).read_text()
    one, other = (
        json.loads((directory / "training_summary.json").read_text())
        for directory in (received, expected)
    )
    assert one | {"seconds": 0} == other | {"seconds": 0}


@pytest.mark.heavy
def test_loss_falls_and_unseen_characters_are_told_apart(recipe_file):
    settings = ["training.steps=300", "training.learning_rate=3e-3", "training.batch=32"]
    settings += ["training.widths=16", "training.key_size=8", "training.validation_every=75"]
    recipe = load_training_recipe(recipe_file, [f"{s}" for s in settings])
    with jax.enable_x64(False):
        data = learning_data(recipe, read_splits(recipe))
        state = train(recipe, data, initial_state(recipe, data), lambda state: None)
    losses = [point["training_loss"] for point in state.curve]
    print(state.curve)
    assert [point["step"] for point in state.curve] == [75, 150, 225, 300]
    assert losses[-1] < 0.6 * losses[0]
    best = state.best_point
    assert best["validation_accuracy"] == max(p["validation_accuracy"] for p in state.curve)


@pytest.mark.heavy
@pytest.mark.parametrize("chunks", [1, 3, 4])
def test_interrupted_training_goes_on_bit_for_bit(chunks, recipe_file, finished, tmp_path, capsys):
    recipe, directory = load_training_recipe(recipe_file), tmp_path / "model"
    with pytest.raises(RequeueError) as stopped:
        start_training(recipe, directory, AfterChunks(chunks))
    assert str(stopped.value) == f"training step {(40, 80, 100, 120)[chunks - 1]} of 130"
    capsys.readouterr()
    assert command("status", directory) == ExitCode.OK
    assert f"interrupted after {stopped.value}" in capsys.readouterr().out
    assert not (directory / MODEL_FILE).exists()
    assert command("resume", directory) == ExitCode.OK
    assert_same_model(directory, finished)
    assert "going on after" in (directory / "run.log").read_text()


def test_finished_training_is_left_alone(copy, recipe_file, capsys):
    before = (copy / MODEL_FILE).stat().st_mtime_ns
    for words in (["train", recipe_file, "--out", copy], ["resume", copy]):
        assert command(*words) == ExitCode.OK
        assert "was finished before, with exit code 0" in capsys.readouterr().out
    assert (copy / MODEL_FILE).stat().st_mtime_ns == before
    assert command("status", copy) == ExitCode.OK
    assert "network, saved at training step 130 of 130" in capsys.readouterr().out


def test_damaged_checkpoint_is_noticed_and_the_one_before_used(copy, finished, capsys):
    for name in (MODEL_FILE, "training_summary.json"):
        (copy / name).unlink()
    newest = max(
        (copy / "checkpoint").iterdir(), key=lambda path: read_sealed(path).header["sequence"]
    )
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    assert command("resume", copy) == ExitCode.OK
    assert f"{newest.name} does not have the checksum" in capsys.readouterr().err
    assert_same_model(copy, finished)
    for path in (copy / "checkpoint").iterdir():
        path.write_bytes(b"damaged")
    (copy / MODEL_FILE).unlink()
    assert command("resume", copy) == ExitCode.BAD_INPUT
    assert "no checkpoint can be used" in capsys.readouterr().err


def test_another_recipe_and_other_images_are_refused(copy, recipe_file, tmp_path, capsys):
    words = ["train", recipe_file, "--out", copy, "--set", "training.seed=1"]
    assert command(*words) == ExitCode.BAD_INPUT
    assert "another recipe" in capsys.readouterr().err
    images = recipe_file.parent / "pictures.npz"
    kept = images.read_bytes()
    try:
        write_training(recipe_file.parent, np.random.default_rng(6))
        assert command("resume", copy) == ExitCode.BAD_INPUT
        assert "was begun with other the data" in capsys.readouterr().err
    finally:
        images.write_bytes(kept)


def test_what_a_training_is_not(copy, recipe_file):
    for words in (
        ["resume", copy, "--more", 3],
        ["reproduce", copy],
        ["run", recipe_file],
        ["train", commands_recipe(copy)],
    ):
        assert command(*words) == ExitCode.BAD_INPUT


def commands_recipe(folder: Path) -> Path:
    path = folder / "run.toml"
    path.write_text(commands.TINY)
    return path


@pytest.mark.parametrize(
    ("setting", "start"),
    [
        ("training.heads=[]", "training.heads"),
        ("training.heads=[0]", "training.heads[0]"),
        ("training.widths=[3,4]", "training.widths"),
        ("training.optimizer=adam", "training.optimizer"),
        ("training.learning_rate=1e30", "training.learning_rate"),
        # One step, whose own loss is finite: what it leaves is not.
        ("training.learning_rate=1e30 training.steps=1", "training.learning_rate"),
        ("task.images=pictures.png", "task.images"),
        ("task.fraction_test=1.5", "task.fraction_test"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
def test_a_bad_setting_is_named(setting, start, recipe_file, tmp_path, capsys):
    words = ["train", recipe_file, "--out", tmp_path / "model", "--set", *setting.split()]
    assert command(*words) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"attention-posterior: {start} = "), line


def test_what_is_left_behind(finished, recipe_file):
    recipe = load_training_recipe(recipe_file)
    assert load_training_recipe(finished / "recipe.toml") == recipe
    model = read_model(finished)
    assert model.recipe == recipe
    shapes = TransformerShape.of(recipe.training, 64).parameter_shapes
    assert {k: v.shape for k, v in model.parameters.items()} == shapes
    with (finished / "learning_curve.csv").open() as file:
        curve = list(csv.DictReader(file))
    assert [row["step"] for row in curve] == ["40", "80", "120", "130"]
    summary = json.loads((finished / "training_summary.json").read_text())
    assert summary["model_sha256"] == model.checksum
    assert summary["step"] == model.step
    assert list(summary["splits"]) == ["train", "validation", "test"]
    for split in summary["splits"].values():
        right = split["network"]["accuracy"]
        assert split["network"]["error"] == pytest.approx(binomial_error(right, 60))
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["finished"] == {"train": 0}
    assert manifest["seeds"] == {"task": {"seed": 0}, "training": 0}


def test_no_model_and_a_damaged_one(copy, tmp_path):
    with pytest.raises(InputError, match=r"^task\.model = .*holds no model\.bin"):
        read_model(tmp_path)
    path = copy / MODEL_FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"^task\.model = .*checksum"):
        read_model(copy)


def test_nearest_neighbour_finds_the_character(rng):
    from sampler.images.drawings import draw_episodes

    drawings = random_drawings(rng, characters=8, drawings=6)
    episodes = draw_episodes(drawings, 200, rng)
    found = nearest_neighbour(drawings, episodes)
    error = binomial_error(1.0, episodes.targets.size)
    assert accuracy_with_error(found, episodes.targets) == {"accuracy": 1.0, "error": error}
    assert accuracy_with_error(np.zeros(4), np.ones(4))["accuracy"] == 0.5


@pytest.mark.long
def test_killed_and_stopped_trainings_end_with_the_same_bits(recipe_file, tmp_path):
    """Real signals to real processes; long enough that they arrive in the middle."""
    settings = ["--set", "training.steps=4000", "training.validation_every=200"]
    cache = tmp_path / "cache"
    cache.mkdir()
    whole = tmp_path / "whole"
    code, errors = commands.command("train", recipe_file, "--out", whole, *settings, cache=cache)
    assert code == ExitCode.OK, errors
    for number, sent in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1)):
        directory = tmp_path / f"model-{number}"
        words = ["train", recipe_file, "--out", directory, *settings]
        process = commands.start(*words, cache=cache)
        while process.poll() is None and not list(directory.glob("checkpoint/state-1.bin")):
            time.sleep(0.002)
        process.send_signal(sent)
        code, errors = commands.finish(process)
        assert code == (-sent if sent == signal.SIGKILL else ExitCode.REQUEUE), errors
        assert not (directory / MODEL_FILE).exists()
        code, errors = commands.command("resume", directory, cache=cache)
        assert code == ExitCode.OK, errors
        assert_same_model(directory, whole)
