"""Labelled time series, made or read.

The channels are C features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0: D in all, and as many key channels, so that every attention variant fits.

    x^c_t = z_t + noise,  x^{c+C/2}_t = z_{t∓lag} + noise,  z_t = √2 cos(phase of t)

with − for class +1. The phase starts anywhere on the circle, so that z read backwards has the same
law and class −1 is class +1 with time reversed: nothing tells them apart in a single time step, nor
in any mean over time steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator, model_validator

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.numerics import stream
from sampler.recipes.sections import Count, NotNegative, Seed, Several, Text, ValidationCount
from sampler.recipes.task_section import AttentionSection, TaskSection
from sampler.tasks.series_files import SeriesFile, read_arff, read_ts
from sampler.tasks.splits import AnySplit
from sampler.tasks.task import (
    LayerWeights,
    Task,
    attended,
    draw_layers,
    draw_splits,
    name_heads,
    name_paths,
    refuse_unfit_variants,
    with_positions,
)

HEAD_KINDS = ("lag", "uniform", "random")
# How far lag heads look back by default: the lag of the series that are drawn.
DEFAULT_LAG = 5
DEFAULT_HEADS = {"heads": (("lag", "random"), ("uniform", "random")), "lag": DEFAULT_LAG}


class TimeSeriesSection(TaskSection):
    """Series of a hidden oscillation: one half of the channels leads the other, or follows it.

    The classes differ in the sign of `lag` alone: one is the other with time reversed. `period` is
    that of the oscillation in time steps, `phase_noise` the standard deviation of its phase steps,
    `noise` that of white noise in every channel, whose signal has variance 1.
    """

    head_kinds: ClassVar = HEAD_KINDS
    attention_defaults: ClassVar = DEFAULT_HEADS

    examples_train: Several = 100
    examples_test: Several = 1000
    examples_validation: ValidationCount = 0
    tokens: Several = 40
    channels: Annotated[int, Field(strict=True, ge=2, multiple_of=2)] = 16
    lag: Count = DEFAULT_LAG
    period: Annotated[int, Field(strict=True, ge=3)] = 20
    phase_noise: NotNegative = 0.1
    noise: NotNegative = 0.8
    seed: Seed = 0
    head_seed: Seed = 0

    @model_validator(mode="after")
    def classes_differ(self) -> "TimeSeriesSection":
        """z_{t−lag} and z_{t+lag} are 2 lag steps apart: whole periods make them the same."""
        if 2 * self.lag % self.period == 0:
            fields = ("period", "lag") if "period" in self.model_fields_set else ("lag", "period")
            (field, value), (other, beside) = ((name, getattr(self, name)) for name in fields)
            remedy = "twice the lag must not be a multiple of the period"
            raise InputError(
                f"task.{field}",
                value,
                f"with {other} = {beside} both classes are the same: {remedy}",
            )
        return self

    @classmethod
    def section_for(cls, settings: Mapping[str, Any]) -> type[TaskSection]:
        """Series of the archive where a folder is named, drawn ones otherwise."""
        return SeriesArchiveSection if "folder" in settings else cls

    def make(self, attention: AttentionSection) -> Task:
        """Draw the series and the heads."""
        series = draw_splits(
            self, lambda size, key: draw_series(self, size, stream(self.seed, key))
        )
        return series_task(*series, attention, self.head_seed)


class SeriesArchiveSection(TaskSection):
    """Series of the UEA multivariate archive, in a folder relative to the recipe.

    `problem` is the name in `<problem>_TRAIN.ts` and `<problem>_TEST.ts`, or `.arff`, by default
    that of the folder. `classes` names the two classes to separate, +1 first, where there are more.
    Each token is the mean of `stride` time steps, by default as few as leave at most `max_tokens`.
    """

    head_kinds: ClassVar = HEAD_KINDS
    attention_defaults: ClassVar = DEFAULT_HEADS
    data_paths: ClassVar = ("folder",)

    folder: Text
    problem: Text | None = None
    classes: tuple[Text, Text] | None = None
    stride: Count | None = None
    max_tokens: Several = 50
    head_seed: Seed = 0

    @field_validator("classes")
    @classmethod
    def are_two(cls, classes):
        if classes is not None and classes[0] == classes[1]:
            raise ValueError("name two different classes")
        return classes

    def make(self, attention: AttentionSection) -> Task:
        """Read the series of two classes, averaged over `stride` steps, and draw the heads.

        Every channel has mean 0 and variance 1 on the training series; a constant one is 0 there.
        Raises InputError for a file that cannot be used, or where the classes to separate are open.
        """
        folder = Path(self.folder)
        if not folder.is_dir():
            raise InputError("task.folder", self.folder, "is no folder; name one with series")
        problem = self.problem or folder.name
        train, test = (read_series(folder, problem, split) for split in ("TRAIN", "TEST"))
        check_agreement(train, test)
        chosen = chosen_classes(self.classes, train)
        stride = self.stride or -(-train.values.shape[1] // self.max_tokens)
        series = [of_classes(file, chosen, stride) for file in (train, test)]
        return series_task(*standardised(*series), None, attention, self.head_seed)


def query_and_key_weights(
    kind: str,
    features: int,
    positions: int,
    lag: int,
    inverse_temperature: float,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """W_Q and W_K of one head, each [key channel, channel], for logits (W_K x_s)·(W_Q x_t)/√D.

    lag      attends `lag` steps back if the second half of the features follows the first, else BOS
    uniform  all logits are equal
    random   Gaussian entries of variance 1/D, W_Q multiplied by the inverse temperature

    Only a random head draws from the generator. Raises ValueError for any other kind.
    """
    channels = features + positions
    if kind == "random":
        query, key = generator.standard_normal((2, channels, channels)) / np.sqrt(channels)
        return inverse_temperature * query, key
    if kind == "lag":
        logit_weights = lag_weights(features, positions, lag)
    elif kind == "uniform":
        logit_weights = np.zeros((channels, channels))
    else:
        raise ValueError(f"head kind {kind!r}: use one of {', '.join(HEAD_KINDS)}")
    # Keys are the inputs themselves, as in `bilinear_attention`.
    return inverse_temperature * np.sqrt(channels) * logit_weights, np.eye(channels)


def lag_weights(features: int, positions: int, lag: int) -> np.ndarray:
    """W/β of the logits x_sᵀ W x_t of a lag head, [channel, channel], keys first.

    Features: (1/C) Σ_c (x_s^c x_t^{c+C/2} − x_s^{c+C/2} x_t^c), the area that channel pairs sweep
    from s to t, of mean ±1 at a quarter of a period. Positions: +1 for the token `lag` steps back,
    1.5 for BOS. The logit there is then 2 or 0 on average; of an odd number of features the last
    one is left out.
    """
    weights = np.zeros((features + positions, features + positions))
    one = np.arange(features // 2)
    other = one + features // 2
    weights[one, other] = 1.0 / features
    weights[other, one] = -1.0 / features
    later = np.arange(lag + 1, positions)
    weights[features + later - lag, features + later] = 1.0
    weights[features, features + 1 :] = 1.5
    return weights


@dataclass(frozen=True)
class LabelledSeries:
    """Series with a class, ±1, each."""

    values: Float[np.ndarray, "example token channel"]
    labels: Float[np.ndarray, " example"]


def series_task(
    train: LabelledSeries,
    test: LabelledSeries,
    validation: LabelledSeries | None,
    attention: AttentionSection,
    head_seed: int,
) -> Task:
    """The task of these series, with frozen heads as the recipe has them.

    Channels are those of the series and one-hot positions; token 0 is the beginning-of-sequence
    token (BOS), whose features are 0. Raises InputError if the series are too short for the heads.
    """
    _, tokens, channels = train.values.shape
    lag = DEFAULT_LAG if attention.lag is None else attention.lag
    if lag >= tokens and any("lag" in kinds for kinds in attention.heads):
        raise InputError("attention.lag", lag, f"must be below the {tokens} tokens of a series")
    refuse_unfit_variants(attention, tokens + 1)
    weights = draw_heads(channels, tokens + 1, lag, attention, head_seed)

    def split_of(series: LabelledSeries) -> AnySplit:
        values, labels = series.values, series.labels[:, None]
        return attended(
            lambda part: with_positions(values[part]), labels, weights, attention, (values,)
        )

    later = None if validation is None else split_of(validation)
    names = name_heads(attention)
    return Task(split_of(train), split_of(test), names, name_paths(names), later)


def draw_heads(
    channels: int, positions: int, lag: int, attention: AttentionSection, seed: int
) -> tuple[LayerWeights, ...]:
    """W_Q and W_K, [head, key channel, channel] each, of every layer."""

    def weights_of(kind: str, generator: np.random.Generator):
        beta = attention.inverse_temperature
        return query_and_key_weights(kind, channels, positions, lag, beta, generator)

    return draw_layers(attention, weights_of, seed)


def draw_series(
    settings: TimeSeriesSection, examples: int, generator: np.random.Generator
) -> LabelledSeries:
    """Series of both classes, first class + then class −, as evenly as `examples` allows."""
    labels = np.where(np.arange(examples) < (examples + 1) // 2, 1.0, -1.0)
    lag, tokens = settings.lag, settings.tokens
    hidden = draw_oscillation(settings, examples, generator)
    now = hidden[:, lag : lag + tokens]
    other = np.where(labels[:, None] > 0, hidden[:, :tokens], hidden[:, 2 * lag :])
    signal = np.repeat(np.stack([now, other], axis=-1), settings.channels // 2, axis=-1)
    values = signal + settings.noise * generator.standard_normal(signal.shape)
    return LabelledSeries(values, labels)


def draw_oscillation(
    settings: TimeSeriesSection, examples: int, generator: np.random.Generator
) -> np.ndarray:
    """z [example, time step], a lag longer than the series at either end.

    E z_t z_{t+k} = cos(2π k/period) exp(−k phase_noise²/2).
    """
    steps = settings.tokens + 2 * settings.lag
    start = generator.uniform(0.0, 2 * np.pi, (examples, 1))
    phase_noise = settings.phase_noise * generator.standard_normal((examples, steps - 1))
    turned = np.cumsum(2 * np.pi / settings.period + phase_noise, axis=1)
    return np.sqrt(2.0) * np.cos(start + np.pad(turned, ((0, 0), (1, 0))))


READERS: dict[str, Callable[[Path], SeriesFile]] = {".ts": read_ts, ".arff": read_arff}


def read_series(folder: Path, problem: str, split: str) -> SeriesFile:
    """The series of `<problem>_<split>`, from .ts where there are both formats."""
    for suffix, read in READERS.items():
        path = folder / f"{problem}_{split}{suffix}"
        if path.is_file():
            return read(path)
    names = " or ".join(f"{problem}_{split}{suffix}" for suffix in READERS)
    raise InputError("task.folder", folder, f"holds no {names}; put it there, or set task.problem")


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


def units(
    values: Float[np.ndarray, "example token channel"],
) -> tuple[Float[np.ndarray, " channel"], Float[np.ndarray, " channel"]]:
    """Mean and standard deviation of every channel; the latter 1 for a constant one."""
    constant = np.ptp(values, axis=(0, 1)) == 0.0
    return values.mean(axis=(0, 1)), np.where(constant, 1.0, values.std(axis=(0, 1)))


def standardised(train: LabelledSeries, test: LabelledSeries) -> tuple[LabelledSeries, ...]:
    """Both splits in units of the training series' mean and standard deviation, by channel."""
    mean, scale = units(train.values)
    return tuple(
        LabelledSeries((series.values - mean) / scale, series.labels) for series in (train, test)
    )
