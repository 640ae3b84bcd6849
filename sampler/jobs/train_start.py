"""Beginning a training, or going on with one, up to where JAX is needed."""

from pathlib import Path

from sampler.errors import ExitCode
from sampler.jobs.claim import claim_directory
from sampler.jobs.fingerprint import fingerprint_of
from sampler.jobs.interruption import Interruption
from sampler.jobs.lock import locked
from sampler.jobs.training_recipe import TrainingRecipe
from sampler.numerics import use_float64
from sampler.tasks.character_splits import CharacterSplits, split_characters
from sampler.tasks.image_source import images_checksum, read_drawings

COMMAND = "train"


def read_splits(recipe: TrainingRecipe) -> CharacterSplits:
    """The drawings of a training recipe. Raises InputError where they cannot be used."""
    return split_characters(read_drawings(recipe.task), recipe.task)


def start_training(recipe: TrainingRecipe, directory: Path, interruption: Interruption) -> ExitCode:
    """Read the images, claim the directory, and train what is left of the training."""
    splits = read_splits(recipe)
    images = images_checksum(splits)
    fingerprint = fingerprint_of(recipe, images)
    claim_directory(directory, recipe, COMMAND, fingerprint)
    with locked(directory):
        use_float64()
        from sampler.jobs.train import TrainingJob

        job = TrainingJob(recipe, splits, images, directory, fingerprint, interruption)
        return job.work()
