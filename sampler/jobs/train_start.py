"""Beginning a training, or going on with one, up to where JAX is needed."""

from pathlib import Path

from sampler.errors import ExitCode
from sampler.images.character_splits import CharacterSplits, split_characters
from sampler.images.image_source import images_checksum, read_drawings
from sampler.jobs.interruption import Interruption
from sampler.numerics import use_float64
from sampler.recipes.training_recipe import TRAIN, TrainingRecipe
from sampler.storage.claim import claim_directory
from sampler.storage.fingerprint import fingerprint
from sampler.storage.lock import locked


def read_splits(recipe: TrainingRecipe) -> CharacterSplits:
    """The drawings of a training recipe. Raises InputError where they cannot be used."""
    return split_characters(read_drawings(recipe.task), recipe.task)


def start_training(recipe: TrainingRecipe, directory: Path, interruption: Interruption) -> ExitCode:
    """Read the images, claim the directory, and train what is left of the training."""
    splits = read_splits(recipe)
    images = images_checksum(splits)
    common = fingerprint(recipe, images)
    claim_directory(directory, recipe, TRAIN, common)
    with locked(directory):
        use_float64()
        from sampler.jobs.train import TrainingJob

        job = TrainingJob(recipe, splits, images, directory, common, interruption)
        return job.work()
