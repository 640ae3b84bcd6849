"""Trainings of seconds, and networks as they are before training."""

from pathlib import Path

import numpy as np

from sampler.cli import main
from sampler.errors import ExitCode
from sampler.settings.recipe import TrainingRecipe
from sampler.training.steps import initial_state
from sampler.training.training_data import learning_data
from sampler.transformer.trained_transformer import TrainedTransformer, write_model
from tests.pictures import write_labelled

TINY = """
name = "tiny"
[task]
kind = "one_shot"
images = "pictures.npz"
fraction_validation = 0.25
fraction_test = 0.25
[training]
heads = [2, 2]
widths = [6, 5, 4]
key_size = 3
steps = 130
batch = 4
validation_every = 40
validation_examples = 50
evaluation_examples = 60
"""

# What analyses the trained model.
ANALYSIS = """
name = "analysis"
[task]
kind = "one_shot"
model = "model"
examples_train = 10
examples_test = 8
examples_validation = 6
[network]
widths = [6, 5, 4]
[posterior]
temperature = 0.5
[sampler]
chains = 2
warmup = 20
draws = 30
"""


def write_training(folder: Path, rng, text: str = TINY) -> Path:
    """A recipe and the pictures it names."""
    write_labelled(folder / "pictures.npz", rng)
    path = folder / "tiny.toml"
    path.write_text(text)
    return path


def train_in(folder: Path, text: str, analysis: str = "") -> None:
    """Train a recipe into `model`, and put a recipe that analyses it beside it."""
    recipe = write_training(folder, np.random.default_rng(5), text)
    assert main(["train", str(recipe), "--out", str(folder / "model")]) == ExitCode.OK
    (folder / "analysis.toml").write_text(analysis)


def write_untrained(folder: Path, recipe: TrainingRecipe) -> TrainedTransformer:
    """A network as it is before training, in a directory."""
    splits = recipe.task.read(recipe.training)
    data = learning_data(recipe, splits)
    parameters = initial_state(recipe, data).best
    model = TrainedTransformer(recipe, parameters, data.embedding, 0, splits.checksum)
    write_model(folder, model)
    return model
