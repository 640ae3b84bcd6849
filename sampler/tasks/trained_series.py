"""Time series of several classes: what a transformer learns of them, and the task it leaves.

Tokens are those of the task `time_series`: the channels of the series in units of the training
file's mean and standard deviation, a beginning-of-sequence token, one-hot positions.
"""

from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from sampler.errors import InputError
from sampler.numerics import stream
from sampler.recipes.sections import Count, Seed, Text
from sampler.recipes.task_section import TaskSection
from sampler.recipes.training_recipe import SeriesSection, TrainingRecipe, refuse_unfit_variants
from sampler.tasks.series_files import SeriesFile
from sampler.tasks.splits import AnySplit, Split, made_in_parts
from sampler.tasks.task import Task, name_paths, with_positions
from sampler.tasks.time_series import averaged, check_agreement, read_series, units
from sampler.transformer.classified import Classified, ClassifiedSplits, targets_of
from sampler.transformer.frozen import FrozenNetwork, frozen_attention, theory_weights
from sampler.transformer.model_file import TrainedModel, read_model

# First entries of the spawn keys.
SPLIT_STREAM, CHOICE_STREAM = 0, 1


def series_to_learn(recipe: TrainingRecipe) -> ClassifiedSplits:
    """The series of a training recipe, split; InputError where they cannot be used."""
    splits = read_series_splits(recipe.task)
    refuse_unfit_variants(recipe.training, splits.train.inputs.shape[1], "a series and its BOS")
    return splits


def read_series_splits(settings: SeriesSection) -> ClassifiedSplits:
    """The series of these files, split. Raises InputError where they cannot be used."""
    folder = Path(settings.folder)
    if not folder.is_dir():
        raise InputError("task.folder", folder, "is no folder; name one with series")
    problem = settings.problem or folder.name
    learned, unseen = (read_series(folder, problem, split) for split in ("TRAIN", "TEST"))
    check_agreement(learned, unseen)
    names = known_classes(settings, learned)
    stride = settings.stride or -(-learned.values.shape[1] // settings.max_tokens)
    chosen, test = (of_named(file, names, stride) for file in (learned, unseen))
    values, classes = chosen
    mean, scale = units(values)

    def series(values: np.ndarray, classes: np.ndarray) -> Classified:
        return Classified(
            with_positions((values - mean) / scale), classes, targets_of(classes, len(names))
        )

    whole = series(*chosen)
    train, validation = split_by_class(settings, classes, names)
    return ClassifiedSplits(whole.part(train), whole.part(validation), series(*test), names)


def known_classes(settings: SeriesSection, learned: SeriesFile) -> tuple[str, ...]:
    """The classes to tell apart. Raises InputError for one that is unknown or without series."""
    names = settings.classes or learned.classes
    known = ", ".join(learned.classes)
    if len(names) < 2:
        raise InputError(
            learned.path.name, known, "declares fewer than two classes; nothing to tell"
        )
    for name in names:
        if name not in learned.classes:
            raise InputError("task.classes", name, f"is no class of {learned.path.name}: {known}")
    return names


def of_named(
    file: SeriesFile, names: tuple[str, ...], stride: int
) -> tuple[Float[np.ndarray, "example token channel"], Int[np.ndarray, " example"]]:
    """The series of these classes, averaged over neighbouring time steps, and their classes."""
    places = {name: place for place, name in enumerate(names)}
    classes = np.array([places.get(label, -1) for label in file.labels])
    kept = classes >= 0
    if not kept.any():
        raise InputError(file.path.name, list(names), "no series is of these classes")
    return averaged(file.values[kept], stride), classes[kept]


def split_by_class(
    settings: SeriesSection, classes: np.ndarray, names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Places of the series to learn and of those for validation.

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
        train.append(places[aside : aside + wanted] if settings.examples_per_class
                     else places[aside:])  # fmt: skip
    return np.concatenate(train), np.concatenate(validation)


class TrainedSeriesSection(TaskSection):
    """Time series with the attention of a trained model.

    `model` is the directory of a training on time series, relative to the recipe; `folder` says
    where its files are now, if they were moved. Labels are what the model was trained on: ±1 for
    two classes, an output each for more. `examples_train`, `examples_test` and
    `examples_validation` take so many series of each split, by default all.
    """

    data_paths: ClassVar = ("model", "folder")
    # A trained network averages its tokens.
    network_defaults: ClassVar = {"readout": "mean"}

    model: Text
    folder: Text | None = None
    examples_train: Count | None = None
    examples_test: Count | None = None
    examples_validation: Count | None = None
    seed: Seed = 0

    def make(self, attention: None) -> Task:
        """Read the series, with the attention that the model has on them.

        Raises InputError where model or series cannot be used, or are not of one another.
        """
        model = read_model(Path(self.model))
        series = model.recipe.task
        if not isinstance(series, SeriesSection):
            remedy = f'was trained on {series.of_training}; use task.kind = "one_shot"'
            raise InputError("task.model", Path(self.model), remedy)
        if self.folder is not None:
            problem = series.problem or Path(series.folder).name
            series = series.model_copy(update={"folder": self.folder, "problem": problem})
        splits = read_series_splits(series)
        if splits.checksum != model.data:
            remedy = (
                "was trained on other series than those that its recipe names; restore them, or "
                "set task.folder"
            )
            raise InputError("task.model", Path(self.model), remedy)
        chosen = {
            name: self.some_of(getattr(splits, name), name)
            for name in ("train", "test", "validation")
        }
        names = tuple(tuple(map(str, range(count))) for count in model.recipe.training.heads)
        return Task(
            make_split(model, chosen["train"]),
            make_split(model, chosen["test"]),
            names,
            name_paths(names),
            make_split(model, chosen["validation"]),
            FrozenNetwork(theory_weights(model.parameters, model.shape)),
        )

    def some_of(self, split: Classified, name: str) -> Classified:
        """As many series of a split as are asked for, by chance."""
        field = f"examples_{name}"
        wanted, count = getattr(self, field), split.examples
        if wanted is None:
            return split
        if wanted > count:
            raise InputError(
                f"task.{field}", wanted, f"there are {count} series; use at most those"
            )
        place = ("train", "test", "validation").index(name)
        rows = stream(self.seed, CHOICE_STREAM, place).permutation(count)[:wanted]
        return split.part(rows)


def make_split(model: TrainedModel, series: Classified) -> AnySplit:
    """Inputs, labels and attention of some series, float64."""
    variants = model.recipe.training.variants
    labels = series.targets.reshape(len(series.targets), -1)

    def make(part: slice) -> Split:
        inputs = series.inputs[part]
        return Split(inputs, labels[part], frozen_attention(model.parameters, inputs, variants))

    return made_in_parts(make, labels, repr(variants), (series.inputs, *model.parameters.values()))
