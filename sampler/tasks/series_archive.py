"""Time series of the UEA multivariate archive, from a folder that the user names."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.recipes.sections import AttentionSection
from sampler.recipes.task_sections import SeriesArchiveSection
from sampler.tasks.series_files import SeriesFile, read_arff, read_ts
from sampler.tasks.task import Task
from sampler.tasks.time_series import LabelledSeries, series_task

READERS: dict[str, Callable[[Path], SeriesFile]] = {".ts": read_ts, ".arff": read_arff}


def read_series_archive(settings: SeriesArchiveSection, attention: AttentionSection) -> Task:
    """Training and test series of two classes, averaged over `stride` steps, and their heads.

    Every channel has mean 0 and variance 1 on the training series; a constant one is 0 there.
    Raises InputError for a file that cannot be used, or where the classes to separate are open.
    """
    folder = Path(settings.folder)
    if not folder.is_dir():
        raise InputError("task.folder", settings.folder, "is no folder; name one with series")
    problem = settings.problem or folder.name
    train, test = (read_series(folder, problem, split) for split in ("TRAIN", "TEST"))
    check_agreement(train, test)
    chosen = chosen_classes(settings.classes, train)
    stride = settings.stride or -(-train.values.shape[1] // settings.max_tokens)
    series = [of_classes(file, chosen, stride) for file in (train, test)]
    return series_task(*standardised(*series), None, attention, settings.head_seed)


def read_series(folder: Path, problem: str, split: str) -> SeriesFile:
    """The series of `<problem>_<split>`, from .ts where there are both formats."""
    for suffix, read in READERS.items():
        path = folder / f"{problem}_{split}{suffix}"
        if path.is_file():
            return read(path)
    names = " or ".join(f"{problem}_{split}{suffix}" for suffix in READERS)
    raise InputError(
        "task.folder", str(folder), f"holds no {names}; put it there, or set task.problem"
    )


def check_agreement(train: SeriesFile, test: SeriesFile) -> None:
    """Raise InputError unless test series have the channels and the length of training series."""
    for axis, what in ((2, "dimensions"), (1, "time steps")):
        expected, received = train.values.shape[axis], test.values.shape[axis]
        if received != expected:
            raise InputError(
                test.path.name,
                Verbatim(f"{received} {what}"),
                f"{train.path.name} has {expected}; use files of one problem",
            )


def chosen_classes(classes: tuple[str, str] | None, train: SeriesFile) -> tuple[str, str]:
    """The two classes to separate, +1 first. Raises InputError if that is open or impossible."""
    known = ", ".join(train.classes)
    if classes is None:
        if len(train.classes) > 2:
            first, second, *_ = train.classes
            raise InputError(
                "task.classes",
                ABSENT,
                f"{train.path.name} has {len(train.classes)} classes, {known}; name the two to "
                f'separate, as in classes = ["{first}", "{second}"]',
            )
        classes = train.classes
    if len(set(classes)) < 2:
        raise InputError(train.path.name, known, "declares fewer than two classes; nothing to tell")
    for name in classes:
        if name not in train.classes:
            raise InputError("task.classes", name, f"is no class of {train.path.name}: {known}")
        if name not in train.labels:
            raise InputError(train.path.name, name, "no training series is of this class")
    return classes


def of_classes(file: SeriesFile, classes: tuple[str, str], stride: int) -> LabelledSeries:
    """The series of two classes, +1 and −1, averaged over neighbouring time steps."""
    labels = np.array(file.labels, dtype=object)
    kept = (labels == classes[0]) | (labels == classes[1])
    if not kept.any():
        raise InputError(file.path.name, list(classes), "no series is of these classes")
    signs = np.where(labels[kept] == classes[0], 1.0, -1.0)
    return LabelledSeries(averaged(file.values[kept], stride), signs)


def averaged(
    values: Float[np.ndarray, "example step channel"], stride: int
) -> Float[np.ndarray, "example token channel"]:
    """Means over `stride` neighbouring steps, the last one over what is left."""
    starts = np.arange(0, values.shape[1], stride)
    counts = np.diff(np.append(starts, values.shape[1]))
    return np.add.reduceat(values, starts, axis=1) / counts[:, None]


def standardised(train: LabelledSeries, test: LabelledSeries) -> tuple[LabelledSeries, ...]:
    """Both splits in units of the training series' mean and standard deviation, by channel."""
    mean = train.values.mean(axis=(0, 1))
    constant = np.ptp(train.values, axis=(0, 1)) == 0.0
    scale = np.where(constant, 1.0, train.values.std(axis=(0, 1)))
    return tuple(
        LabelledSeries((series.values - mean) / scale, series.labels) for series in (train, test)
    )
