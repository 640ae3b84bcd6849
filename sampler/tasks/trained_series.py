"""Time series of several classes: what a transformer learns of them, and the task it leaves.

Tokens are those of the task `time_series`: the channels of the series in units of the training
file's mean and standard deviation, a beginning-of-sequence token, one-hot positions.
"""

from pathlib import Path
from typing import ClassVar

import numpy as np

from sampler.errors import InputError
from sampler.numerics import stream
from sampler.recipes.sections import Count, FilePath, Seed
from sampler.recipes.task_section import TaskSection
from sampler.recipes.training_recipe import SeriesSection, TrainingRecipe, refuse_unfit_variants
from sampler.tasks.series_files import Series, read_archive
from sampler.tasks.splits import AnySplit
from sampler.tasks.task import (
    Task,
    Unattended,
    name_paths,
    number_heads,
    read_model_of,
    refuse_other_data,
    split_of_model,
    with_positions,
)
from sampler.transformer.classified import Classified, ClassifiedSplits, targets_of
from sampler.transformer.model import FrozenNetwork, TrainedModel, theory_weights

# First entries of the spawn keys.
SPLIT_STREAM, CHOICE_STREAM = 0, 1


def series_to_learn(recipe: TrainingRecipe) -> ClassifiedSplits:
    """Read the series of a training recipe, split; InputError where they cannot be used."""
    splits = read_series_splits(recipe.task)
    refuse_unfit_variants(recipe.training, splits.train.inputs.shape[1], "a series and its BOS")
    return splits


def read_series_splits(settings: SeriesSection) -> ClassifiedSplits:
    """Read the series of these files, split. Raises InputError where they cannot be used."""
    archive = read_archive(settings, two_classes=False)

    def classified(series: Series) -> Classified:
        targets = targets_of(series.classes, len(archive.names))
        return Classified(with_positions(series.values), series.classes, targets)

    whole = classified(archive.train)
    train, validation = split_by_class(settings, whole.classes, archive.names)
    test = classified(archive.test)
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
            raise InputError("task.examples_per_class", settings.examples_per_class, remedy)
        validation.append(places[:aside])
        train.append(places[aside:][: settings.examples_per_class])
    return np.concatenate(train), np.concatenate(validation)


class TrainedSeriesSection(TaskSection):
    """Time series with the attention of a transformer that `train` trained on them.

    Labels are what the model was trained on: ±1 for two classes, an output each for more.
    """

    # A trained network averages its tokens.
    network_defaults: ClassVar = {"readout": "mean"}

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

    def make(self, attention: None) -> Task:
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
        trained = FrozenNetwork(theory_weights(model.parameters, model.shape))
        return Task(train, test, names, name_paths(names), validation, trained)

    def chosen(self, model: TrainedModel, split: Classified, name: str) -> AnySplit:
        """Choose by chance as many series of a split as are asked for, and attend to them."""
        wanted, count = getattr(self, f"examples_{name}"), split.examples
        if wanted is not None:
            if wanted > count:
                remedy = f"there are {count} series; use at most those"
                raise InputError(f"task.examples_{name}", wanted, remedy)
            place = ("train", "test", "validation").index(name)
            split = split.part(stream(self.seed, CHOICE_STREAM, place).permutation(count)[:wanted])
        labels = split.targets.reshape(count if wanted is None else wanted, -1)
        examples = Unattended(lambda part: split.inputs[part], labels, (split.inputs,))
        return split_of_model(model, examples)
