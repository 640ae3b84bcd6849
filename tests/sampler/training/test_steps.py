"""Training: what it refuses, what it leaves behind, what a network is judged by."""

import csv
import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from sampler.data.episodes import normalised_patches
from sampler.data.examples import Examples
from sampler.data.labelled_inputs import LabelledSplits, labels_of
from sampler.errors import ExitCode, InputError
from sampler.settings.recipe import TrainingRecipe, load_recipe
from sampler.storage.archives import read_archive, write_archive
from sampler.training import steps, training_data
from sampler.training.steps import TrainingState, initial_state, train, with_validation
from sampler.training.training_data import (
    ClassifiedData,
    accuracy_with_error,
    learning_data,
    tabled,
)
from sampler.transformer.trained_transformer import (
    MODEL_FILE,
    TrainedTransformer,
    Transformer,
    read_model,
)
from tests import ROOT
from tests.commands import in_process as command
from tests.commands import made_once
from tests.recipes import write_training


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
def copy(finished, recipe_file, tmp_path) -> Path:
    """A copy elsewhere, whose recipe has the path of its images from there."""
    directory = tmp_path / "copy"
    shutil.copytree(finished, directory)
    recipe = load_recipe(recipe_file, kind=TrainingRecipe)
    (directory / "recipe.toml").write_text(recipe.to_toml(directory))
    return directory


@pytest.mark.parametrize("colours", [1, 3])
def test_networks_are_trained_and_chosen_on_the_drawings_of_their_splits(recipe_file, colours):
    recipe = load_recipe(recipe_file, [f"task.channels={colours}"], kind=TrainingRecipe)
    splits = recipe.task.read(recipe.training)
    data = learning_data(recipe, splits)
    chosen_on, episodes = data.validation
    assert episodes.examples == 50
    assert episodes.places[0].max() < len(splits.validation.images)
    for table, split in ((data.table, splits.train), (chosen_on, splits.validation)):
        expected = normalised_patches(split.images, colours)
        np.testing.assert_allclose(table.arrays[0], expected, rtol=0, atol=1e-5)
    # Every hundred steps have episodes of their own.
    first, other, again = (data.block(number).places[0] for number in (0, 1, 1))
    assert first.shape == other.shape == (400, 3)
    assert not np.array_equal(first, other)
    assert np.array_equal(other, again)


def test_another_recipe_and_other_images_are_refused(copy, recipe_file, capsys):
    words = ["train", recipe_file, "--out", copy, "--set", "training.seed=1"]
    assert command(*words) == ExitCode.BAD_INPUT
    images = recipe_file.parent / "pictures.npz"
    kept = images.read_bytes()
    try:
        write_training(recipe_file.parent, np.random.default_rng(6))
        capsys.readouterr()
        assert command("resume", copy) == ExitCode.BAD_INPUT
        assert "the data" in capsys.readouterr().err.splitlines()[-1]
    finally:
        images.write_bytes(kept)


def test_what_a_training_is_not(copy, recipe_file):
    for words in (["resume", copy, "--more", 3], ["reproduce", copy], ["run", recipe_file]):
        assert command(*words) == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    ("setting", "start"),
    [
        ("training.widths=[3,4]", "training.widths"),
        ("training.learning_rate=1e30", "training.learning_rate"),
        # One step, whose own loss is finite: what it leaves is not.
        ("training.learning_rate=1e30 training.steps=1", "training.learning_rate"),
        ("task.images=pictures.png", "task.images"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
def test_a_bad_setting_is_named(setting, start, recipe_file, tmp_path, capsys):
    words = ["train", recipe_file, "--out", tmp_path / "model", "--set", *setting.split()]
    assert command(*words) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"attention-posterior: {start} = "), line


def test_what_is_left_behind(finished, recipe_file):
    settings = load_recipe(recipe_file, kind=TrainingRecipe).without_paths()
    left = load_recipe(finished / "recipe.toml", kind=TrainingRecipe)
    assert left.without_paths() == settings  # what is left was copied away from its images
    model = read_model(finished)
    assert model.recipe.without_paths() == settings
    with (finished / "learning_curve.csv").open() as file:
        curve = list(csv.DictReader(file))
    assert [row["step"] for row in curve] == ["40", "80", "120", "130"]
    summary = json.loads((finished / "training_summary.json").read_text())
    assert summary["model_sha256"] == model.checksum
    assert summary["step"] == model.step
    # Of eight characters two are left for each of the others; those of training are turned, too.
    characters = {name: split["characters"] for name, split in summary["splits"].items()}
    assert characters == {"train": 16, "validation": 2, "test": 2}


@pytest.mark.parametrize(
    "folder", sorted((ROOT / "runs" / "trained").iterdir()), ids=lambda f: f.name
)
def test_networks_that_ship_with_the_program_are_those_of_their_summaries(folder):
    """By a checksum that is computed here once more, from what NumPy reads."""
    checksum = hashlib.sha256()
    with np.load(folder / MODEL_FILE) as stored:
        for name in sorted(set(stored.files) - {"header"}):
            values = stored[name]
            checksum.update(
                repr((name, values.shape, values.dtype.str)).encode() + values.tobytes()
            )
    summary = json.loads((folder / "training_summary.json").read_text())
    assert summary["model_sha256"] == checksum.hexdigest() == read_model(folder).checksum


def test_other_weights_than_the_header_names_are_refused(finished, tmp_path):
    stored = read_archive(finished / MODEL_FILE)
    arrays = {name: values + (name == "W_in") for name, values in stored.arrays.items()}
    write_archive(tmp_path / MODEL_FILE, stored.header, arrays)
    with pytest.raises(InputError):
        read_model(tmp_path)


# --- what a network is judged by


NAMES = ("a", "b", "c")


def drawn(rng, examples: int) -> Examples:
    labels = labels_of(rng.integers(3, size=examples), 3)
    return Examples(rng.standard_normal((examples, 2, 2)), labels)


@pytest.fixture
def splits(rng) -> LabelledSplits:
    return LabelledSplits(*(drawn(rng, count) for count in (12, 9, 10)), NAMES)


def test_of_one_output_the_sign_is_judged():
    """Right, half right, wrong and wrong."""
    judged = accuracy_with_error(np.array([2.0, 0.0, -0.1, 3.0]), np.array([1.0, 1.0, 1.0, -1.0]))
    assert judged["accuracy"] == 1.5 / 4


@pytest.mark.slow
@pytest.mark.parametrize(("optimiser", "schedule"), [("adamw", "cosine"), ("adam", "constant")])
def test_steps_are_those_of_pytorch(optimiser, schedule, splits, monkeypatch):
    """Losses, parameters and accuracies after 102 steps, the last two of another block."""
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    rate, steps_taken, batch = 0.02, 102, 5
    training = {
        "heads": [2], "widths": 3, "key_size": 2, "steps": steps_taken, "batch": batch,
        "learning_rate": rate, "weight_decay": 0.1, "optimiser": optimiser, "schedule": schedule,
        "validation_every": 60,
    }  # fmt: skip
    recipe = TrainingRecipe(task={"kind": "time_series", "folder": "none"}, training=training)
    data = ClassifiedData(recipe, splits)
    begun = initial_state(recipe, data)
    ended = train(recipe, data, begun, lambda state: None)
    before = {name: np.array(values, float) for name, values in begun.parameters.items()}
    weights = {name: torch.tensor(values, requires_grad=True) for name, values in before.items()}

    def outputs_of(inputs):
        x = torch.tensor(inputs)
        keys, queries = (torch.einsum("hgi,eti->ehtg", weights[f"W_{k}_1"], x) for k in "KQ")
        attention = torch.softmax(queries @ keys.transpose(2, 3) / math.sqrt(2), dim=-1)
        values = torch.einsum("hmn,etn->ehtm", weights["W_V_1"], x @ weights["W_in"].T)
        hidden = (attention @ values).sum(dim=1) / math.sqrt(2)
        return hidden.mean(dim=1) @ weights["readout"].T

    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    theirs = kinds[optimiser](weights.values(), lr=rate, weight_decay=0.1)
    losses = []
    for step in range(steps_taken):
        if schedule == "cosine":
            theirs.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / steps_taken)) / 2
        block, place = divmod(step, 100)
        rows = data.block(block).places[0][batch * place : batch * (place + 1)]
        targets = torch.tensor(splits.train.labels[rows])
        loss = ((outputs_of(splits.train.inputs[rows]) - targets) ** 2).mean()
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        losses.append(loss.item())
    received = [point["training_loss"] for point in ended.curve]
    assert received == pytest.approx([np.mean(losses[:60]), np.mean(losses[60:])], rel=1e-4)
    for name, values in weights.items():
        expected = values.detach().numpy()
        moved = np.linalg.norm(expected - before[name])
        assert np.linalg.norm(ended.parameters[name] - expected) < 1e-3 * moved, name
    monkeypatch.setattr(training_data, "EXAMPLES_AT_ONCE", 4)
    parameters = {name: np.asarray(values) for name, values in ended.parameters.items()}
    found = data.judged(TrainedTransformer(recipe, parameters, None, steps_taken, ""))
    for name in ("train", "validation", "test"):
        split = getattr(splits, name)
        classes = outputs_of(split.inputs).argmax(dim=1).numpy()
        right = int(np.sum(classes == split.labels.argmax(axis=1)))
        one_deviation = math.erf(1 / math.sqrt(2))
        interval = binomtest(right, split.examples).proportion_ci(one_deviation, "wilson")
        assert found[name]["examples"] == split.examples
        assert found[name]["network"]["accuracy"] == pytest.approx(right / split.examples)
        assert 2 * found[name]["network"]["error"] == pytest.approx(interval.high - interval.low)


def test_every_number_has_part_in_the_checksum(splits):
    for part in ("inputs", "labels"):
        changed = getattr(splits.validation, part).copy()
        changed[-1, -1] += 1.0
        other = replace(splits.validation, **{part: changed})
        assert replace(splits, validation=other).checksum != splits.checksum
    assert replace(splits).checksum == splits.checksum
    assert replace(splits, names=("a", "b", "d")).checksum != splits.checksum


def test_a_point_of_the_curve_has_the_losses_since_the_one_before(splits, monkeypatch):
    """The best parameters are those of the larger accuracy, of equal ones of the smaller loss."""
    table, rows = tabled(splits.validation)
    targets = splits.validation.labels
    said = iter([targets, 2.0 * targets, 1.5 * targets, -targets])
    monkeypatch.setattr(steps, "predict_examples", lambda *_: next(said))
    state = TrainingState(0, {"w": jnp.zeros(1)}, None, {})
    for step, losses in ((10, (1.0, 3.0)), (20, (5.0,)), (30, (0.5, 1.0)), (40, (7.0,))):
        state = replace(state, step=step, losses=losses, parameters={"w": jnp.full(1, step)})
        state = with_validation(state, table, rows, Mock(spec=Transformer))
        assert state.losses == ()
    assert [point["training_loss"] for point in state.curve] == [2.0, 5.0, 0.75, 7.0]
    size = float(np.mean(targets**2))
    expected = [0.0, size, 0.25 * size, 4.0 * size]
    assert [point["validation_loss"] for point in state.curve] == pytest.approx(expected, rel=1e-15)
    assert [point["validation_accuracy"] for point in state.curve][:3] == [1.0] * 3
    assert (state.best_point["step"], state.best["w"].tolist()) == (10, [10.0])
