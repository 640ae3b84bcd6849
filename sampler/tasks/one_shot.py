"""One-shot image classification with the attention of a trained transformer."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import field_validator

from sampler.errors import InputError
from sampler.images.drawings import (
    Drawings,
    Episodes,
    draw_episodes,
    episode_inputs,
    nearest_neighbour,
    normalised_patches,
    position_table,
)
from sampler.images.omniglot import ARCHIVE, read_all_runs
from sampler.images.sources import (
    CharacterSplits,
    check_drawings,
    named_characters,
    omniglot_folder,
    read_drawings,
    refuse_shared_drawings,
    split_characters,
)
from sampler.numerics import stream
from sampler.recipes.sections import (
    IMAGE_FILES,
    CountFromZero,
    FilePath,
    ImagesOrName,
    Seed,
    Several,
    Text,
    ValidationCount,
)
from sampler.recipes.task_section import TaskSection
from sampler.recipes.training_recipe import TOKENS, ImageSection
from sampler.tasks.splits import AnySplit
from sampler.tasks.task import (
    Pictures,
    Task,
    Unattended,
    name_paths,
    number_heads,
    read_model_of,
    refuse_other_data,
    split_of_model,
)
from sampler.transformer.model import FrozenNetwork, TrainedModel, draw_parameters, theory_weights

# First entries of the spawn keys: changing the size of one split leaves the others as they are.
TRAIN_STREAM, TEST_STREAM, VALIDATION_STREAM, HEAD_STREAM = 0, 1, 2, 3
# Names of the images of an episode, by their label.
IMAGES = ("support, −1", "support, +1", "query")


class OneShotSection(TaskSection):
    """One-shot image classification with the attention of a transformer trained by `train`.

    The images and characters are those of the training.
    """

    # A trained network averages its tokens.
    network_defaults: ClassVar = {"readout": "mean"}

    model: FilePath
    """Directory of the training."""
    folder: FilePath | None = None
    """Folder of Omniglot's files now, if they were moved."""
    test: ImagesOrName = "characters"
    """The test set: "characters" of the training's test split, "all_runs" of Omniglot, "digits", or
    a file of other images, .npz or in the format of MNIST."""
    test_characters: tuple[Text, ...] = ()
    """Characters of the test set, by name; by default all."""
    random_heads: CountFromZero = 0
    """Further heads in every layer, with queries and keys as they are before training."""
    examples_train: Several = 600
    """Episodes to learn from."""
    examples_test: Several = 1000
    """Episodes of the test set."""
    examples_validation: ValidationCount = 1000
    """Episodes of the validation set; without one: 0."""
    seed: Seed = 0
    """Seed of the episodes and of the random heads."""

    @field_validator("test")
    @classmethod
    def is_a_source(cls, test):
        if test not in ("characters", "all_runs", "digits") and not test.endswith(IMAGE_FILES):
            raise ValueError(
                'use "characters", "all_runs", "digits", or the path of a file that ends in '
                + ", ".join(IMAGE_FILES)
            )
        return test

    def make(self, attention: None) -> Task:
        """Draw episodes of the characters that a model was trained, chosen and to be tested on.

        The inputs are the trained network's, the attention matrices those of its W_Q and W_K.
        Raises InputError where model or images cannot be used, or the images are not the model's.
        """
        model = read_model_of(self.model, ImageSection, "trained_series")
        images = model.recipe.task
        model = with_random_heads(model, self.random_heads, self.seed)
        if self.folder is not None:
            images = images.model_copy(update={"folder": self.folder})
        splits = split_characters(read_drawings(images), images)
        refuse_other_data(self.model, model, splits.checksum)
        validation = None
        if self.examples_validation:
            generator = stream(self.seed, VALIDATION_STREAM)
            episodes = draw_episodes(splits.validation, self.examples_validation, generator)
            validation = split_of_episodes(model, splits.validation, episodes)
        train = draw_episodes(splits.train, self.examples_train, stream(self.seed, TRAIN_STREAM))
        test = draw_test_set(self, images, splits)
        # Random heads have no trained values.
        weights = None if self.random_heads else theory_weights(model.parameters, model.shape)
        names = number_heads(model.recipe.training.heads, self.random_heads)
        return Task(
            split_of_episodes(model, splits.train, train),
            split_of_episodes(model, *test),
            names,
            name_paths(names),
            validation,
            None if weights is None else FrozenNetwork(weights),
            nearest_neighbour(*test),
            pictures=Pictures(splits.train.images, train.drawings, train.labels, IMAGES),
        )


def with_random_heads(model: TrainedModel, count: int, seed: int) -> TrainedModel:
    """Add heads to every layer whose W_Q and W_K are as they are before training."""
    if not count:
        return model
    shape = replace(model.shape, heads=(count,) * model.shape.layers)
    drawn = draw_parameters(shape, seed, HEAD_STREAM)
    parameters = {
        name: np.concatenate([values, drawn[name]]) if name.startswith(("W_Q", "W_K")) else values
        for name, values in model.parameters.items()
    }
    return replace(model, parameters=parameters)


def draw_test_set(
    settings: OneShotSection, images: ImageSection, splits: CharacterSplits
) -> tuple[Drawings, Episodes]:
    """Draw episodes of the test set: of the model's test characters, or of other images."""
    generator = stream(settings.seed, TEST_STREAM)
    if settings.test == "all_runs":
        if settings.test_characters:
            remedy = "these episodes are ready-made; leave it out, or choose other images"
            raise InputError("task.test_characters", list(settings.test_characters), remedy)
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
    if settings.test_characters:
        drawings = named_characters(drawings, settings.test_characters, "test_characters")
    return drawings, draw_episodes(drawings, settings.examples_test, generator)


def split_of_episodes(model: TrainedModel, drawings: Drawings, episodes: Episodes) -> AnySplit:
    """Make the split of episodes: inputs, targets and the model's attention, float64."""
    # Only what the episodes show: patches of all drawings would take gigabytes.
    shown, places = np.unique(episodes.drawings, return_inverse=True)
    places = places.reshape(episodes.drawings.shape)
    patches = normalised_patches(drawings.images[shown], model.recipe.task.channels)
    embedding = model.embedding.astype(np.float64)
    positions = position_table(TOKENS, embedding.shape[1])

    def inputs_of(part: slice) -> np.ndarray:
        return episode_inputs(patches, positions, embedding, places[part], episodes.labels[part])

    origin = (patches, places, episodes.labels, embedding)
    return split_of_model(model, Unattended(inputs_of, episodes.targets[:, None], origin))
