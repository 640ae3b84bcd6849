"""One-shot image classification with the attention of a trained transformer."""

from pathlib import Path

import numpy as np

from sampler.errors import InputError
from sampler.jobs.image_section import ImageSection
from sampler.jobs.recipe_sections import OneShotSection
from sampler.tasks.all_runs import ARCHIVE, read_all_runs
from sampler.tasks.character_splits import (
    CharacterSplits,
    check_drawings,
    refuse_shared_drawings,
    split_characters,
)
from sampler.tasks.drawings import Drawings
from sampler.tasks.episodes import Episodes, draw_episodes
from sampler.tasks.image_source import images_checksum, omniglot_folder, read_drawings
from sampler.tasks.patches import episode_inputs, normalised_patches
from sampler.tasks.random_streams import stream
from sampler.tasks.task import Split, Task, name_paths
from sampler.transformer.frozen import frozen_attention
from sampler.transformer.model_file import TrainedModel, read_model

# First entries of the spawn keys: changing the size of one split leaves the others as they are.
TRAIN_STREAM, TEST_STREAM, VALIDATION_STREAM = 0, 1, 2


def make_one_shot(settings: OneShotSection) -> Task:
    """Episodes of the characters a model was trained, chosen and to be tested on.

    The inputs are the trained network's, the attention matrices those of its W_Q and W_K. Raises
    InputError where model or images cannot be used, or where the images are not the model's.
    """
    model = read_model(Path(settings.model))
    images = model.recipe.task
    if settings.folder is not None:
        images = images.model_copy(update={"folder": settings.folder})
    splits = split_characters(read_drawings(images), images)
    if images_checksum(splits) != model.images:
        raise InputError(
            "task.model",
            settings.model,
            "was trained on other images than those that its recipe names; restore them, or set "
            "task.folder",
        )

    def draw(drawings: Drawings, examples: int, key: int) -> Split:
        return make_split(
            model, drawings, draw_episodes(drawings, examples, stream(settings.seed, key))
        )

    validation = None
    if settings.examples_validation:
        validation = draw(splits.validation, settings.examples_validation, VALIDATION_STREAM)
    names = tuple(tuple(map(str, range(heads))) for heads in model.recipe.training.heads)
    return Task(
        draw(splits.train, settings.examples_train, TRAIN_STREAM),
        make_split(model, *draw_test_set(settings, images, splits)),
        names,
        name_paths(names),
        validation,
    )


def draw_test_set(
    settings: OneShotSection, images: ImageSection, splits: CharacterSplits
) -> tuple[Drawings, Episodes]:
    """Drawings and episodes of the test set: the model's test characters, or other images."""
    generator = stream(settings.seed, TEST_STREAM)
    if settings.test == "all_runs":
        folder = omniglot_folder(images)
        drawings, episodes = read_all_runs(folder, settings.examples_test, generator)
        refuse_shared_drawings(splits.train, drawings, "task.test", ARCHIVE)
        return drawings, episodes
    drawings = splits.test
    if settings.test != "characters":
        other = ImageSection(kind="one_shot", images=settings.test)
        drawings = read_drawings(other)
        check_drawings(drawings)
        refuse_shared_drawings(splits.train, drawings, "task.test", settings.test)
    return drawings, draw_episodes(drawings, settings.examples_test, generator)


def make_split(model: TrainedModel, drawings: Drawings, episodes: Episodes) -> Split:
    """Inputs, targets and attention of episodes, float64."""
    # Only what the episodes show: patches of all drawings would take gigabytes.
    shown, places = np.unique(episodes.drawings, return_inverse=True)
    patches = normalised_patches(drawings.images[shown], model.recipe.task.channels)
    embedding = model.embedding.astype(np.float64)
    places = places.reshape(episodes.drawings.shape)
    inputs = episode_inputs(patches, places, episodes.labels, embedding)
    return Split(inputs, episodes.targets[:, None], frozen_attention(model.parameters, inputs))
