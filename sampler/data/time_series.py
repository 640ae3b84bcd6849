"""Labelled time series: drawn, or read from files.

The channels are C features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0: D in all, and as many key channels, so that every attention variant fits.

    x^c_t = z_t + noise,  x^{c+C/2}_t = z_{t∓lag} + noise,  z_t = √2 cos(phase of t)

with − for class +1. The phase starts anywhere on the circle, so that z read backwards has the same
law and class −1 is class +1 with time reversed: nothing tells them apart in a single time step, nor
in any mean over time steps.

Files are those of the UEA archive, `<problem>_TRAIN.ts` and `<problem>_TEST.ts`: a header of lines
that begin with @, among them `@classLabel true first second`, ends at @data. Then a series a line:
channels with a colon behind each and commas between their values, and the class. Comments begin
with # or %.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator, model_validator

from sampler.data.drawn_task import DrawnSplits, DrawnTask, LogitWeights, TaskOfHeads
from sampler.data.examples import Examples, StreamedExamples
from sampler.data.labelled_inputs import LabelledSplits, classes_of, labels_of, with_positions
from sampler.errors import ABSENT, InputError
from sampler.settings.refusals import refuse_untrainable
from sampler.settings.task_sections import Attention, DataSettings, TaskSettings
from sampler.settings.training import Training, TrainingTask
from sampler.settings.types import Count, Even, FilePath, Fraction, NotNegative, Seed, Several, Text
from sampler.streams import Stream, stream

HEAD_KINDS = ("lag", "uniform", "random", "learned")
DEFAULT_HEADS = {"heads": (("lag", "random"), ("uniform", "random")), "lag": 5}


class SeriesFiles(DataSettings):
    """Settings of labelled time series in files of the UEA archive or like them."""

    if TYPE_CHECKING:
        classes: tuple[str, ...]

    folder: FilePath
    """Folder of the files `<problem>_TRAIN.ts` and `<problem>_TEST.ts`."""
    problem: Text | None = None
    """The name in these files; by default that of the folder."""
    stride: Count | None = None
    """Time steps whose mean is a token; by default as few as leave at most `max_tokens`."""
    max_tokens: Several = 50
    """The largest number of tokens, where `stride` is not set."""


class AttendedSeries(TaskOfHeads):
    """Series to which lag heads, or others, attend.

    Channels are those of the series and one-hot positions; token 0 is the beginning-of-sequence
    token (BOS), whose features are 0.
    """

    head_kinds: ClassVar = HEAD_KINDS
    attention_defaults: ClassVar = DEFAULT_HEADS

    def logit_weights(self, attention: Attention, tokens: int, channels: int) -> LogitWeights:
        """Those of lag heads; InputError if the series are too short for them."""
        lag = attention.lag
        if any("lag" in kinds for kinds in attention.heads) and lag >= tokens - 1:
            remedy = f"must be below the {tokens - 1} tokens of a series"
            raise InputError("attention.lag", lag, remedy)
        return {"lag": lambda: lag_weights(channels - tokens, tokens, lag)}


class TimeSeries(AttendedSeries, DrawnTask):
    """Series of a hidden oscillation: one half of the channels leads the other, or follows it.

    The classes differ in the sign of `lag` alone: one is the other with time reversed.
    """

    kind: Literal["time_series"] = "time_series"
    tokens: Several = 40
    """Time steps of a series."""
    channels: Even = 16
    """Channels of a time step."""
    lag: Count = 5
    """Time steps by which one half leads the other."""
    period: Annotated[int, Field(strict=True, ge=3)] = 20
    """Period of the oscillation, in time steps."""
    phase_noise: NotNegative = 0.1
    """Standard deviation of the phase steps of the oscillation."""
    noise: NotNegative = 0.8
    """Standard deviation of the noise in every channel; the signal's is 1."""

    @model_validator(mode="after")
    def classes_differ(self) -> "TimeSeries":
        """z_{t−lag} and z_{t+lag} are 2 lag steps apart: whole periods make them the same."""
        if 2 * self.lag % self.period == 0:
            fields = ("period", "lag") if "period" in self.model_fields_set else ("lag", "period")
            (field, value), (other, beside) = ((name, getattr(self, name)) for name in fields)
            remedy = "twice the lag must not be a multiple of the period"
            remedy = f"with {other} = {beside} both classes are the same: {remedy}"
            raise InputError(f"task.{field}", value, remedy)
        return self

    @classmethod
    def section_for(cls, settings: Mapping[str, Any]) -> type[TaskSettings]:
        """Series of the archive where a folder is named, drawn ones otherwise."""
        return SeriesArchive if "folder" in settings else cls

    def draw(self, examples: int, of: Stream) -> StreamedExamples:
        return series_examples(draw_series(self, examples, stream(self.seed, of)))


class SeriesArchive(SeriesFiles, AttendedSeries):
    """Labelled series of the UEA multivariate archive, or of one's own in one of its formats."""

    kind: Literal["time_series"] = "time_series"
    classes: tuple[Text, Text] | None = None
    """The two classes to separate, +1 first; by default the only two there are."""
    head_seed: Seed = 0
    """Seed of the heads."""

    @field_validator("classes")
    @classmethod
    def are_two(cls, classes):
        if classes is not None and classes[0] == classes[1]:
            raise ValueError("name two different classes")
        return classes

    def splits(self, attention: Attention) -> DrawnSplits:
        """Read the series of two classes, averaged over `stride` steps.

        Raises InputError for a file that cannot be used, or where the classes to separate are open.
        """
        train, test, names = read_archive(self)
        if len(names) > 2:
            remedy = f"{self.folder} has more than two: {', '.join(names)}; name two of them"
            raise InputError("task.classes", ABSENT, remedy)
        return series_examples(train), series_examples(test), None


class LabelledSeries(SeriesFiles, TrainingTask):
    """Labelled multivariate time series, for classification.

    Two classes are +1 and −1 at one output; more have an output each, 1 for the class and 0 for the
    others, less their mean 1/classes.
    """

    of_training: ClassVar = "series"

    kind: Literal["time_series"] = "time_series"
    classes: tuple[Text, ...] = ()
    """The classes to tell apart; by default all."""
    examples_per_class: Count | None = None
    """Series of each class to learn; by default all that are not for validation."""
    fraction_validation: Fraction = 0.25
    """Fraction of each class, of the series for training, that is for validation."""
    seed: Seed = 0
    """Seed of the choice of series."""

    def read(self, training: Training) -> LabelledSplits:
        splits = read_series_splits(self)
        refuse_untrainable(training.variants, splits.sizes.tokens, "a series and its BOS")
        return splits

    @field_validator("classes")
    @classmethod
    def are_different(cls, classes):
        if len(classes) == 1 or len(set(classes)) != len(classes):
            raise ValueError("name at least two classes, each of them once")
        return classes


# --- series that are drawn, and heads


def lag_weights(features: int, positions: int, lag: int) -> np.ndarray:
    """Make W/β of the logits x_sᵀ W x_t of a lag head, [channel, channel], keys first.

    It attends `lag` steps back if the second half of the features follows the first, else BOS.
    Features: (1/C) Σ_c (x_s^c x_t^{c+C/2} − x_s^{c+C/2} x_t^c), the area that channel pairs sweep
    from s to t, of mean ±1 at a quarter of a period. Positions: +1 for the token `lag` steps back,
    1.5 for BOS. The logit there is then 2 or 0 on average; of an odd number of features the last
    one is left out.
    """
    weights = np.zeros((features + positions, features + positions))
    first = np.arange(features // 2)
    other = first + features // 2
    weights[first, other] = 1.0 / features
    weights[other, first] = -1.0 / features
    later = np.arange(lag + 1, positions)
    weights[features + later - lag, features + later] = 1.0
    weights[features, features + 1 :] = 1.5
    return weights


def series_examples(series: Examples) -> StreamedExamples:
    """Examples of series, with BOS and positions."""
    values = series.inputs
    return StreamedExamples.of(lambda part: with_positions(values[part]), series.labels, values)


def draw_series(settings: TimeSeries, examples: int, generator: np.random.Generator) -> Examples:
    """Draw series of both classes, first class + then class −, as evenly as `examples` allows."""
    classes = (np.arange(examples) >= (examples + 1) // 2).astype(int)
    labels = labels_of(classes, 2)
    lag, tokens = settings.lag, settings.tokens
    # E z_t z_{t+k} = cos(2π k/period) exp(−k phase_noise²/2), a lag longer than the series at
    # either end.
    steps = settings.tokens + 2 * settings.lag
    start = generator.uniform(0.0, 2 * np.pi, (examples, 1))
    phase_noise = settings.phase_noise * generator.standard_normal((examples, steps - 1))
    turned = np.cumsum(2 * np.pi / settings.period + phase_noise, axis=1)
    hidden = np.sqrt(2.0) * np.cos(start + np.pad(turned, ((0, 0), (1, 0))))
    now = hidden[:, lag : lag + tokens]
    other = np.where(labels > 0, hidden[:, :tokens], hidden[:, 2 * lag :])
    signal = np.repeat(np.stack([now, other], axis=-1), settings.channels // 2, axis=-1)
    values = signal + settings.noise * generator.standard_normal(signal.shape)
    return Examples(values, labels)


# --- series in files


@dataclass(frozen=True)
class SeriesFile:
    """The series of a file with their classes; `classes` are those declared, in that order."""

    path: Path
    classes: tuple[str, ...]
    values: Float[np.ndarray, "example step channel"]
    labels: tuple[str, ...]


def read_ts(path: Path) -> SeriesFile:
    """Read a .ts file. Raises InputError unless it has finite series of equal lengths."""
    try:
        # Comments of archive files are not always UTF-8; what matters is ASCII.
        lines = map(str.strip, path.read_text(encoding="utf-8-sig", errors="replace").split("\n"))
        lines = [line for line in lines if line and not line.startswith(("#", "%"))]
        header = [line.split() for line in lines if line.startswith("@")]
        declared = (tuple(words[2:]) for words in header if words[0].lower() == "@classlabel")
        classes = next(declared, ())
        rows = [line.split(":") for line in lines if not line.startswith("@")]
        labels = tuple(label.strip() for *_, label in rows)
        series = [[channel.split(",") for channel in channels] for *channels, _ in rows]
        values = np.array(series, dtype=np.float64)
        if values.ndim != 3 or not np.isfinite(values).all():
            raise ValueError("a value is missing, or there are no series")
        if undeclared := sorted(set(labels).difference(classes)):
            raise ValueError(f"no @classLabel declares {', '.join(undeclared)}")
    except (OSError, ValueError) as problem:
        remedy = f"{problem}; give series of equal lengths without missing values or time stamps, "
        remedy += "in files whose names begin with task.problem"
        raise InputError("task.folder", path, remedy) from None
    return SeriesFile(path, classes, np.ascontiguousarray(values.transpose(0, 2, 1)), labels)


def read_archive(
    settings: SeriesFiles,
) -> tuple[Examples, Examples, tuple[str, ...]]:
    """Series of the classes to tell apart, for training and for the test, and names of the classes.

    Every channel has mean 0 and variance 1 on the training series; one that is constant but for
    rounding is 0 there, but for rounding. Series are averaged over neighbouring steps. Raises
    InputError for files that cannot be used.
    """
    folder = Path(settings.folder)
    problem = settings.problem or folder.name
    train, test = (read_ts(folder / f"{problem}_{split}.ts") for split in ("TRAIN", "TEST"))
    steps_and_channels = train.values.shape[1:]
    if test.values.shape[1:] != steps_and_channels:
        remedy = f"[step, dimension] of {train.path.name} is {steps_and_channels}; use files of "
        raise InputError(test.path.name, test.values.shape[1:], f"{remedy}one problem")
    names = settings.classes or train.classes
    absent = [name for name in names if name not in train.labels]
    if absent or len(names) < 2:
        remedy = f"two classes or more need series in {train.path.name}, which declares "
        remedy += ", ".join(train.classes)
        raise InputError("task.classes", absent or list(names), remedy)
    stride = settings.stride or -(-train.values.shape[1] // settings.max_tokens)
    learned, judged = (of_classes(file, names, stride) for file in (train, test))
    mean, scale = channel_scales(learned.inputs, stride)
    learned, judged = (
        replace(split, inputs=(split.inputs - mean) / scale) for split in (learned, judged)
    )
    return learned, judged, names


def channel_scales(
    values: Float[np.ndarray, "example token channel"], stride: int
) -> tuple[Float[np.ndarray, " channel"], Float[np.ndarray, " channel"]]:
    """Mean and standard deviation of every channel; a value, and 1, of one that is constant.

    Channels are constant if they differ by no more than rounded means over `stride` equal numbers.
    """
    low, high = values.min(axis=(0, 1)), values.max(axis=(0, 1))
    # A sum of n numbers is off by n − 1 roundings of its size at most, and division adds one.
    rounding = np.finfo(np.float64).eps * stride * np.maximum(np.abs(low), np.abs(high))
    constant = high - low <= rounding
    mean = np.where(constant, low, values.mean(axis=(0, 1)))
    return mean, np.where(constant, 1.0, values.std(axis=(0, 1)))


def of_classes(file: SeriesFile, names: tuple[str, ...], stride: int) -> Examples:
    """Select the series of these classes, averaged over neighbouring steps; number the classes."""
    places = {name: place for place, name in enumerate(names)}
    classes = np.array([places.get(label, -1) for label in file.labels])
    kept = classes >= 0
    values = averaged(file.values[kept], stride)
    return Examples(values, labels_of(classes[kept], len(names)))


def averaged(
    values: Float[np.ndarray, "example step channel"], stride: int
) -> Float[np.ndarray, "example token channel"]:
    """Average over `stride` neighbouring steps, at the end over the remaining ones."""
    starts = np.arange(0, values.shape[1], stride)
    counts = np.diff(np.append(starts, values.shape[1]))
    return np.add.reduceat(values, starts, axis=1) / counts[:, None]


# --- series that a transformer learns


def read_series_splits(settings: LabelledSeries) -> LabelledSplits:
    """Read the series of these files, split. Raises InputError where they cannot be used."""
    *series, names = read_archive(settings)
    whole, test = (replace(split, inputs=with_positions(split.inputs)) for split in series)
    train, validation = split_by_class(settings, classes_of(whole.labels), names)
    return LabelledSplits(whole.part(train), whole.part(validation), test, names)


def split_by_class(
    settings: LabelledSeries, classes: np.ndarray, names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Choose places of the series to learn and of those for validation.

    Raises InputError where a class has too few.
    """
    train, validation, wanted = [], [], settings.examples_per_class
    for number, name in enumerate(names):
        places = np.flatnonzero(classes == number)
        places = stream(settings.seed, Stream.SERIES, number).permutation(places)
        aside = max(1, round(settings.fraction_validation * len(places)))
        if len(places) - aside < (wanted or 1):
            remedy = f"class {name} has {len(places)} series, {aside} of them for validation: use "
            remedy += "fewer of each class"
            raise InputError("task.examples_per_class", wanted, remedy)
        validation.append(places[:aside])
        train.append(places[aside:][:wanted])
    return np.concatenate(train), np.concatenate(validation)
