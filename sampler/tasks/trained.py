"""Tasks with the attention of a trained transformer: one-shot images, and time series.

Tokens of series are those of the task `time_series`: the channels of the series in units of the
training file's mean and standard deviation, a beginning-of-sequence token, one-hot positions.
"""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import field_validator

from sampler.errors import InputError, Setting
from sampler.images.drawings import (
    Drawings,
    Examples,
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
from sampler.runtime import stream
from sampler.settings.refusals import refuse_untrainable
from sampler.settings.task import AttentionSection, TaskSection
from sampler.settings.training import (
    TOKENS,
    ImageSection,
    SeriesSection,
    TrainedSection,
    TrainingRecipe,
)
from sampler.settings.types import (
    IMAGE_FILES,
    Count,
    CountFromZero,
    FilePath,
    ImagesOrName,
    Seed,
    Several,
    Text,
    ValidationCount,
)
from sampler.tasks.chosen_heads import with_chosen_heads
from sampler.tasks.paths import name_paths
from sampler.tasks.series_files import read_archive
from sampler.tasks.splits import AnySplit
from sampler.tasks.task import (
    Task,
    Unattended,
    attended_split,
    number_heads,
    with_positions,
)
from sampler.transformer.classified import Classified, ClassifiedSplits
from sampler.transformer.model import (
    TrainedModel,
    draw_parameters,
    frozen_attention,
    read_model,
    trained_network,
)


def split_of_model(model: TrainedModel, examples: Unattended) -> AnySplit:
    variants, parameters = model.recipe.training.variants, model.parameters

    def attend(inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return frozen_attention(parameters, inputs, variants)

    return attended_split(examples, attend, variants, tuple(parameters.values()))


def read_model_of(directory: str, section: type[TrainedSection], kind: str) -> TrainedModel:
    """Read a model that was trained on such data; others are for tasks of another `kind`."""
    model = read_model(Path(directory))
    if not isinstance(model.recipe.task, section):
        remedy = f'was trained on {model.recipe.task.of_training}; use {{}} = "{kind}"'
        model_key, kind_key = Setting("task", "model"), Setting("task", "kind")
        raise InputError(model_key, Path(directory), remedy, kind_key)
    return model


def refuse_other_data(directory: str, model: TrainedModel, checksum: str) -> None:
    """Raise InputError unless the data are those that the model was trained on."""
    if checksum != model.data:
        remedy = (
            f"was trained on other {model.recipe.task.of_training} than those that its recipe "
            "names; restore them, or set {}"
        )
        model_key, folder_key = Setting("task", "model"), Setting("task", "folder")
        raise InputError(model_key, Path(directory), remedy, folder_key)


# First entries of the spawn keys: changing the size of one split leaves the others as they are.
TRAIN_STREAM, TEST_STREAM, VALIDATION_STREAM, HEAD_STREAM = 0, 1, 2, 3


class OneShotSection(TaskSection):
    """One-shot image classification with the attention of a transformer trained by `train`.

    The images and characters are those of the training.
    """

    # A trained network averages its tokens.
    network_defaults: ClassVar = {"readout": "mean"}
    brings_heads: ClassVar = True

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

    def make(self, attention: AttentionSection | None) -> Task:
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
        names = number_heads(model.recipe.training.heads, self.random_heads)
        task = Task(
            split_of_episodes(model, splits.train, train),
            split_of_episodes(model, *test),
            names,
            name_paths(names),
            validation,
            # Random heads have no trained values.
            None if self.random_heads else trained_network(model),
            nearest_neighbour(*test),
        )
        return with_chosen_heads(task, attention)


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
) -> tuple[Drawings, Examples]:
    """Draw episodes of the test set: of the model's test characters, or of other images."""
    generator = stream(settings.seed, TEST_STREAM)
    if settings.test == "all_runs":
        if settings.test_characters:
            remedy = "these episodes are ready-made; leave it out, or choose other images"
            characters = list(settings.test_characters)
            raise InputError(Setting("task", "test_characters"), characters, remedy)
        folder = omniglot_folder(images)
        drawings, episodes = read_all_runs(folder, settings.examples_test, generator)
        refuse_shared_drawings(splits.train, drawings, Setting("task", "test"), ARCHIVE)
        return drawings, episodes
    drawings = splits.test
    if settings.test != "characters":
        other = ImageSection(kind="one_shot", images=settings.test)
        drawings = read_drawings(other)
        check_drawings(drawings)
        refuse_shared_drawings(splits.train, drawings, Setting("task", "test"), settings.test)
    if settings.test_characters:
        drawings = named_characters(drawings, settings.test_characters, "test_characters")
    return drawings, draw_episodes(drawings, settings.examples_test, generator)


def split_of_episodes(model: TrainedModel, drawings: Drawings, episodes: Examples) -> AnySplit:
    """Make the split of episodes: inputs, targets and the model's attention, float64."""
    # Only what the episodes show: patches of all drawings would take gigabytes.
    images, labels = episodes.places
    shown, places = np.unique(images, return_inverse=True)
    places = places.reshape(images.shape)
    patches = normalised_patches(drawings.images[shown], model.recipe.task.channels)
    embedding = model.embedding.astype(np.float64)
    positions = position_table(TOKENS, embedding.shape[1])

    def inputs_of(part: slice) -> np.ndarray:
        return episode_inputs(patches, positions, embedding, places[part], labels[part])

    origin = (patches, places, labels, embedding)
    return split_of_model(model, Unattended(inputs_of, episodes.targets[:, None], origin))


# First entries of the spawn keys.
SPLIT_STREAM, CHOICE_STREAM = 0, 1


def series_to_learn(recipe: TrainingRecipe) -> ClassifiedSplits:
    """Read the series of a training recipe, split; InputError where they cannot be used."""
    splits = read_series_splits(recipe.task)
    refuse_untrainable(
        recipe.training.variants, splits.train.inputs.shape[1], "a series and its BOS"
    )
    return splits


def read_series_splits(settings: SeriesSection) -> ClassifiedSplits:
    """Read the series of these files, split. Raises InputError where they cannot be used."""
    archive = read_archive(settings, two_classes=False)

    whole, test = (
        replace(series, inputs=with_positions(series.inputs))
        for series in (archive.train, archive.test)
    )
    train, validation = split_by_class(settings, whole.classes, archive.names)
    return ClassifiedSplits(whole.part(train), whole.part(validation), test, archive.names)


def split_by_class(
    settings: SeriesSection, classes: np.ndarray, names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Choose places of the series to learn and of those for validation.

    Raises InputError where a class has too few.
    """
    train, validation = [], []
    for number, name in enumerate(names):
        places = np.flatnonzero(classes == number)
        places = stream(settings.seed, SPLIT_STREAM, number).permutation(places)
        aside = max(1, round(settings.fraction_validation * len(places)))
        wanted, left = settings.examples_per_class or 1, max(0, len(places) - aside)
        if left < wanted:
            remedy = (
                f"class {name} has {len(places)} series for training, {aside} of them for "
                f"validation: at most {left} are left"
            )
            raise InputError(
                Setting("task", "examples_per_class"), settings.examples_per_class, remedy
            )
        validation.append(places[:aside])
        train.append(places[aside:][: settings.examples_per_class])
    return np.concatenate(train), np.concatenate(validation)


class TrainedSeriesSection(TaskSection):
    """Time series with the attention of a transformer that `train` trained on them.

    Labels are what the model was trained on: ±1 for two classes, an output each for more.
    """

    # A trained network averages its tokens.
    network_defaults: ClassVar = {"readout": "mean"}
    brings_heads: ClassVar = True

    model: FilePath
    """Directory of the training."""
    folder: FilePath | None = None
    """Folder of the files of the series now, if they were moved."""
    examples_train: Count | None = None
    """Series to learn from; by default all."""
    examples_test: Count | None = None
    """Series of the test set; by default all."""
    examples_validation: Count | None = None
    """Series of the validation set; by default all."""
    seed: Seed = 0
    """Seed of the choice of series."""

    def make(self, attention: AttentionSection | None) -> Task:
        """Read the series, with the attention that the model has on them.

        Raises InputError where model or series cannot be used, or are not of one another.
        """
        model = read_model_of(self.model, SeriesSection, "one_shot")
        series = model.recipe.task
        if self.folder is not None:
            problem = series.problem or Path(series.folder).name
            series = series.model_copy(update={"folder": self.folder, "problem": problem})
        splits = read_series_splits(series)
        refuse_other_data(self.model, model, splits.checksum)
        train, test, validation = (
            self.chosen(model, getattr(splits, name), name)
            for name in ("train", "test", "validation")
        )
        names = number_heads(model.recipe.training.heads)
        trained = trained_network(model)
        task = Task(train, test, names, name_paths(names), validation, trained)
        return with_chosen_heads(task, attention)

    def chosen(self, model: TrainedModel, split: Classified, name: str) -> AnySplit:
        """Choose by chance as many series of a split as are asked for, and attend to them."""
        wanted, count = getattr(self, f"examples_{name}"), split.examples
        if wanted is not None:
            if wanted > count:
                remedy = f"there are {count} series; use at most those"
                raise InputError(Setting("task", f"examples_{name}"), wanted, remedy)
            place = ("train", "test", "validation").index(name)
            split = split.part(stream(self.seed, CHOICE_STREAM, place).permutation(count)[:wanted])
        labels = split.targets.reshape(count if wanted is None else wanted, -1)
        examples = Unattended(lambda part: split.inputs[part], labels, (split.inputs,))
        return split_of_model(model, examples)
