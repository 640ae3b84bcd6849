"""Files of the UEA archive of time series, `<problem>_TRAIN.ts` and `<problem>_TEST.ts`.

A header of lines that begin with @, among them `@classLabel true first second`, ends at @data. Then
a series a line: channels with a colon behind each and commas between their values, and the class.
Comments begin with # or %.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from sampler.errors import ABSENT, InputError, Setting, Verbatim
from sampler.settings.types import Section
from sampler.transformer.classified import Classified, targets_of


@dataclass(frozen=True)
class SeriesFile:
    """The series of a file with their classes; `classes` are those declared, in that order."""

    path: Path
    classes: tuple[str, ...]
    values: Float[np.ndarray, "example step channel"]
    labels: tuple[str, ...]


def read_ts(path: Path) -> SeriesFile:
    """Read a .ts file. Raises InputError unless it has finite series of equal lengths."""
    # Comments of archive files are not always UTF-8; what matters is ASCII.
    lines = map(str.strip, path.read_text(encoding="utf-8-sig", errors="replace").split("\n"))
    lines = [line for line in lines if line and not line.startswith(("#", "%"))]
    header = [line.split() for line in lines if line.startswith("@")]
    rows = [line.split(":") for line in lines if not line.startswith("@")]
    classes = next((tuple(words[2:]) for words in header if words[0].lower() == "@classlabel"), ())
    labels = tuple(label.strip() for *_, label in rows)
    try:
        series = [[channel.split(",") for channel in channels] for *channels, _ in rows]
        values = np.array(series, dtype=np.float64)
        if values.ndim != 3 or not np.isfinite(values).all():
            raise ValueError("a value is missing, or there are no series")
        if undeclared := set(labels).difference(classes):
            raise ValueError(f"no @classLabel declares {', '.join(sorted(undeclared))}")
    except ValueError as problem:
        remedy = f"needs series of equal lengths without missing values or time stamps ({problem})"
        raise InputError(Setting("task", "folder"), path, remedy) from None
    return SeriesFile(path, classes, np.ascontiguousarray(values.transpose(0, 2, 1)), labels)


@dataclass(frozen=True)
class SeriesArchive:
    """The series of some classes, for training and for the test; `names` are the classes'.

    Each channel is in units of the training series.
    """

    train: Classified
    test: Classified
    names: tuple[str, ...]


def read_archive(settings: Section, two_classes: bool) -> SeriesArchive:
    """Read the series of the classes to tell apart, averaged over neighbouring steps.

    Settings are folder, problem, classes, stride and max_tokens, as of `SeriesArchiveSection`.
    Every channel has mean 0 and variance 1 on the training series; a constant one is 0 there.
    Raises InputError for files that cannot be used, and where it is open which two classes are
    meant.
    """
    folder = Path(settings.folder)
    if not folder.is_dir():
        raise InputError(Setting("task", "folder"), folder, "is no folder; name one with series")
    problem = settings.problem or folder.name
    train, test = (read_series_of(folder, problem, split) for split in ("TRAIN", "TEST"))
    for axis, what in ((2, "dimensions"), (1, "time steps")):
        expected, received = train.values.shape[axis], test.values.shape[axis]
        if received != expected:
            remedy = f"{train.path.name} has {expected}; use files of one problem"
            raise InputError(test.path.name, Verbatim(f"{received} {what}"), remedy)
    names = chosen_classes(settings.classes, train, two_classes)
    stride = settings.stride or -(-train.values.shape[1] // settings.max_tokens)
    splits = [of_classes(file, names, stride) for file in (train, test)]
    learned = splits[0].inputs
    constant = np.ptp(learned, axis=(0, 1)) == 0.0
    mean, scale = learned.mean(axis=(0, 1)), np.where(constant, 1.0, learned.std(axis=(0, 1)))
    return SeriesArchive(*(replace(s, inputs=(s.inputs - mean) / scale) for s in splits), names)


def read_series_of(folder: Path, problem: str, split: str) -> SeriesFile:
    path = folder / f"{problem}_{split}.ts"
    if not path.is_file():
        remedy, problem_key = "holds no {}; put it there, or set {}", Setting("task", "problem")
        raise InputError(Setting("task", "folder"), folder, remedy, path.name, problem_key)
    return read_ts(path)


def chosen_classes(
    wanted: tuple[str, ...] | None, train: SeriesFile, two_classes: bool
) -> tuple[str, ...]:
    """Return the classes to tell apart. Raises InputError if that is open or impossible."""
    known = ", ".join(train.classes)
    if two_classes and not wanted and len(train.classes) > 2:
        first, second, *_ = train.classes
        remedy = (
            f"{train.path.name} has {len(train.classes)} classes, {known}; name the two to "
            f'separate, as in classes = ["{first}", "{second}"]'
        )
        raise InputError(Setting("task", "classes"), ABSENT, remedy)
    names = wanted or train.classes
    if len(set(names)) < 2:
        raise InputError(train.path.name, known, "declares fewer than two classes; nothing to tell")
    for name in names:
        if name not in train.classes:
            remedy = f"is no class of {train.path.name}: {known}"
            raise InputError(Setting("task", "classes"), name, remedy)
        if name not in train.labels:
            raise InputError(train.path.name, name, "no training series is of this class")
    return names


def of_classes(file: SeriesFile, names: tuple[str, ...], stride: int) -> Classified:
    """Select the series of these classes, averaged over neighbouring steps; number the classes."""
    places = {name: place for place, name in enumerate(names)}
    classes = np.array([places.get(label, -1) for label in file.labels])
    kept = classes >= 0
    if not kept.any():
        raise InputError(file.path.name, list(names), "no series is of these classes")
    classes = classes[kept]
    return Classified(averaged(file.values[kept], stride), classes, targets_of(classes, len(names)))


def averaged(
    values: Float[np.ndarray, "example step channel"], stride: int
) -> Float[np.ndarray, "example token channel"]:
    """Average over `stride` neighbouring steps, the last time over what is left."""
    starts = np.arange(0, values.shape[1], stride)
    counts = np.diff(np.append(starts, values.shape[1]))
    return np.add.reduceat(values, starts, axis=1) / counts[:, None]
