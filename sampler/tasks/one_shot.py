"""One-shot image classification with the attention of a trained transformer."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, field_validator

from sampler.errors import InputError
from sampler.images.drawings import Drawings
from sampler.images.episodes import (
    Episodes,
    draw_episodes,
    episode_inputs,
    nearest_neighbour,
    normalised_patches,
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
from sampler.recipes.sections import CountFromZero, Seed, Several, Text, ValidationCount
from sampler.recipes.task_section import IMAGE_FILES, TaskSection
from sampler.recipes.training_recipe import ImageSection
from sampler.tasks.splits import AnySplit, Split, made_in_parts
from sampler.tasks.task import Pictures, Task, name_paths
from sampler.transformer.frozen import FrozenNetwork, frozen_attention, theory_weights
from sampler.transformer.model_file import TrainedModel, draw_parameters, read_model

# First entries of the spawn keys: changing the size of one split leaves the others as they are.
TRAIN_STREAM, TEST_STREAM, VALIDATION_STREAM, HEAD_STREAM = 0, 1, 2, 3
# What the images of an episode are, by their label.
IMAGES = ("support, −1", "support, +1", "query")


class OneShotSection(TaskSection):
    """One-shot image classification with the attention of a trained model.

    `model` is the directory of a training, relative to the recipe, whose images and characters are
    used; `folder` says where those of Omniglot are now, if they were moved. `test` takes the test
    characters of the training, Omniglot's one-shot runs, or other images as the test set, of which
    `test_characters` chooses some.
    `random_heads` adds so many heads to every layer, with queries and keys as before training.
    """

    data_paths: ClassVar = ("model", "folder")
    image_paths: ClassVar = ("test",)
    # A trained network averages its tokens.
    network_defaults: ClassVar = {"readout": "mean"}

    model: Text
    folder: Text | None = None
    test: Annotated[str, Field(strict=True)] = "characters"
    test_characters: tuple[Text, ...] = ()
    random_heads: CountFromZero = 0
    examples_train: Several = 600
    examples_test: Several = 1000
    examples_validation: ValidationCount = 1000
    seed: Seed = 0

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
        model = read_model(Path(self.model))
        images = model.recipe.task
        if not isinstance(images, ImageSection):
            remedy = f'was trained on {images.of_training}; use task.kind = "trained_series"'
            raise InputError("task.model", Path(self.model), remedy)
        model = with_random_heads(model, self.random_heads, self.seed)
        if self.folder is not None:
            images = images.model_copy(update={"folder": self.folder})
        splits = split_characters(read_drawings(images), images)
        if splits.checksum != model.data:
            raise InputError(
                "task.model",
                self.model,
                "was trained on other images than those that its recipe names; restore them, or "
                "set task.folder",
            )

        def draw(drawings: Drawings, examples: int, key: int) -> Episodes:
            return draw_episodes(drawings, examples, stream(self.seed, key))

        validation = None
        if self.examples_validation:
            episodes = draw(splits.validation, self.examples_validation, VALIDATION_STREAM)
            validation = make_split(model, splits.validation, episodes)
        train = draw(splits.train, self.examples_train, TRAIN_STREAM)

        test = draw_test_set(self, images, splits)
        # Random heads have no trained values.
        weights = None if self.random_heads else theory_weights(model.parameters, model.shape)
        names = name_heads(model.recipe.training.heads, self.random_heads)
        return Task(
            make_split(model, splits.train, train),
            make_split(model, *test),
            names,
            name_paths(names),
            validation,
            None if weights is None else FrozenNetwork(weights),
            nearest_neighbour(*test),
            pictures=Pictures(splits.train.images, train.drawings, train.labels, IMAGES),
        )


def name_heads(heads: tuple[int, ...], random_heads: int) -> tuple[tuple[str, ...], ...]:
    """Numbers for the heads of every layer, and r0, r1, … for the random ones after them."""
    added = [f"r{head}" for head in range(random_heads)]
    return tuple((*map(str, range(count)), *added) for count in heads)


def with_random_heads(model: TrainedModel, count: int, seed: int) -> TrainedModel:
    """The model with heads in every layer whose W_Q and W_K are as they are before training."""
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
    """Drawings and episodes of the test set: the model's test characters, or other images."""
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


def make_split(model: TrainedModel, drawings: Drawings, episodes: Episodes) -> AnySplit:
    """Inputs, targets and attention of episodes, float64."""
    # Only what the episodes show: patches of all drawings would take gigabytes.
    shown, places = np.unique(episodes.drawings, return_inverse=True)
    places = places.reshape(episodes.drawings.shape)
    patches = normalised_patches(drawings.images[shown], model.recipe.task.channels)
    embedding, variants = model.embedding.astype(np.float64), model.recipe.training.variants
    labels = episodes.targets[:, None]

    def make(part: slice) -> Split:
        inputs = episode_inputs(patches, places[part], episodes.labels[part], embedding)
        return Split(inputs, labels[part], frozen_attention(model.parameters, inputs, variants))

    origin = (patches, places, episodes.labels, embedding, *model.parameters.values())
    return made_in_parts(make, labels, repr(variants), origin)
