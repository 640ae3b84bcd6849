"""One-shot classification of images with the attention of a trained transformer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import field_validator

from sampler.data.characters import (
    CharacterSplits,
    OneShotImages,
    check_drawings,
    images_of,
    read_drawings,
    refuse_shared_drawings,
    source_of,
    split_characters,
)
from sampler.data.episodes import (
    TOKENS,
    PickedExamples,
    draw_episodes,
    episode_inputs,
    normalised_patches,
    position_table,
)
from sampler.data.examples import StreamedExamples
from sampler.data.heads_of_task import with_chosen_heads
from sampler.data.image_files import Drawings
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.settings.task_sections import Attention, TaskSettings
from sampler.settings.types import (
    CountFromZero,
    FilePath,
    ImagesOrName,
    Seed,
    Several,
    ValidationCount,
)
from sampler.streams import Stream, stream
from sampler.transformer.trained_transformer import (
    TrainedTransformer,
    draw_parameters,
    frozen_attention,
    read_model,
    trained_network,
)


class OneShot(TaskSettings):
    """One-shot image classification with the attention of a transformer trained by `train`.

    The images and characters are those of the training.
    """

    # A trained network averages its tokens.
    network_defaults: ClassVar = {"readout": "mean"}
    brings_heads: ClassVar = True

    kind: Literal["one_shot"] = "one_shot"
    model: FilePath
    """Directory of the training."""
    folder: FilePath | None = None
    """Folder of Omniglot's files now, if they were moved."""
    test: ImagesOrName = "characters"
    """The test set: "characters" of the training's test split, "digits", or a file of other images,
    .npz or in the format of MNIST."""
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
        return source_of(test, ("characters", "digits"))

    def make(self, attention: Attention | None = None) -> Task:
        """Draw episodes of the characters that a model was trained, chosen and to be tested on.

        The inputs are the trained network's, the attention matrices those of its W_Q and W_K.
        Raises InputError where model or images cannot be used, or the images are not the model's.
        """
        model = read_image_model(self.model)
        images = model.recipe.task
        model = with_random_heads(model, self.random_heads, self.seed)
        if self.folder is not None:
            images = images.model_copy(update={"folder": self.folder})
        splits = split_characters(read_drawings(images), images)
        refuse_other_images(self.model, model, splits.checksum)

        def draw(drawings: Drawings, examples: int, of: Stream) -> StreamedExamples:
            episodes = draw_episodes(drawings, examples, stream(self.seed, of))
            return tokens_of_episodes(model, drawings, episodes)

        test, validation = tested_drawings(self, splits), self.examples_validation
        examples = (
            draw(splits.train, self.examples_train, Stream.TRAIN),
            draw(test, self.examples_test, Stream.TEST),
            draw(splits.validation, validation, Stream.EPISODES_TO_VALIDATE)
            if validation
            else None,
        )
        task = attended_by(model, examples, self.random_heads)
        return with_chosen_heads(task, attention)


def with_random_heads(model: TrainedTransformer, count: int, seed: int) -> TrainedTransformer:
    """Add heads to every layer whose W_Q and W_K are as they are before training."""
    if not count:
        return model
    shape = replace(model.network, heads=(count,) * len(model.network.heads))
    drawn = draw_parameters(shape, seed, Stream.RANDOM_HEADS)
    parameters = {
        name: np.concatenate([values, drawn[name]]) if name.startswith(("W_Q", "W_K")) else values
        for name, values in model.parameters.items()
    }
    return replace(model, parameters=parameters)


def tested_drawings(settings: OneShot, splits: "CharacterSplits") -> Drawings:
    """The drawings to test on: those of the model's test characters, or other images."""
    if settings.test == "characters":
        return splits.test
    drawings = read_drawings(OneShotImages(images=settings.test))
    check_drawings(drawings)
    refuse_shared_drawings(splits.train, drawings, settings.test)
    return drawings


def tokens_of_episodes(
    model: TrainedTransformer, drawings: Drawings, episodes: PickedExamples
) -> StreamedExamples:
    """Inputs of a trained model and targets of episodes, float64."""
    # Only what the episodes show: patches of all drawings would take gigabytes.
    images, labels = episodes.places
    shown, places = np.unique(images, return_inverse=True)
    places = places.reshape(images.shape)
    patches = normalised_patches(drawings.images[shown], images_of(model.recipe.task).channels)
    embedding = model.embedding.astype(np.float64)
    positions = position_table(TOKENS, embedding.shape[1])

    def inputs_of(part: slice) -> np.ndarray:
        return episode_inputs(patches, positions, embedding, places[part], labels[part])

    origin = patches, places, labels, embedding
    return StreamedExamples.of(inputs_of, episodes.targets[:, None], *origin)


# --- the trained model


def read_image_model(directory: str) -> TrainedTransformer:
    """Read a model that was trained on images; InputError for one of other data."""
    model = read_model(Path(directory))
    if not isinstance(model.recipe.task, OneShotImages):
        remedy = f"was trained on {model.recipe.task.of_training}, not on images"
        raise InputError("task.model", Path(directory), remedy)
    return model


def refuse_other_images(directory: str, model: TrainedTransformer, checksum: str) -> None:
    """Raise InputError unless the images are those that the model was trained on."""
    if checksum != model.data:
        remedy = "was trained on other images; restore those, or set task.folder"
        raise InputError("task.model", Path(directory), remedy)


def attended_by(
    model: TrainedTransformer, splits: Sequence[StreamedExamples | None], random_heads: int
) -> Task:
    """The task of training, test and validation examples to which a trained model attends.

    random_heads  further heads of the model in each layer, which have no trained values
    """
    variants, parameters = model.recipe.training.variants, model.parameters

    def attend(inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return frozen_attention(parameters, inputs, variants)

    further = [f"r{head}" for head in range(random_heads)]
    return Task.of(
        *(
            split and split.with_attention(attend, repr(variants), *parameters.values())
            for split in splits
        ),
        [[*map(str, range(count)), *further] for count in model.recipe.training.heads],
        trained=None if random_heads else trained_network(model),
    )
