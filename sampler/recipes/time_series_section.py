"""The sections of the time-series task: series that are made, and series of an archive."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from sampler.recipes.image_section import Text
from sampler.recipes.sections import (
    Count,
    HeadKind,
    NotNegative,
    Seed,
    TaskSettings,
    ValidationCount,
)

SERIES_HEADS: tuple[HeadKind, ...] = ("lag", "uniform", "random")
# How far lag heads look back if nothing is said: the lag of the series that are made.
DEFAULT_LAG = 5


class TimeSeriesSection(TaskSettings):
    """Series of a hidden oscillation: one half of the channels leads the other, or follows it.

    The classes differ in the sign of `lag` alone: one is the other with time reversed. `period` is
    that of the oscillation in time steps, `phase_noise` the standard deviation of its phase steps,
    `noise` that of white noise in every channel, whose signal has variance 1.
    """

    head_kinds: ClassVar = SERIES_HEADS

    kind: Literal["time_series"]
    examples_train: Annotated[int, Field(strict=True, ge=2)] = 100
    examples_test: Annotated[int, Field(strict=True, ge=2)] = 1000
    examples_validation: ValidationCount = 0
    tokens: Annotated[int, Field(strict=True, ge=2)] = 40
    channels: Annotated[int, Field(strict=True, ge=2, multiple_of=2)] = 16
    lag: Count = DEFAULT_LAG
    period: Annotated[int, Field(strict=True, ge=3)] = 20
    phase_noise: NotNegative = 0.1
    noise: NotNegative = 0.8
    seed: Seed = 0
    head_seed: Seed = 0

    @field_validator("period")
    @classmethod
    def lets_the_classes_differ(cls, period, others):
        lag = others.data.get("lag")
        if lag is not None and 2 * lag % period == 0:
            raise ValueError(
                f"with lag = {lag} both classes are the same: twice the lag must not be a multiple "
                "of the period"
            )
        return period


class SeriesArchiveSection(TaskSettings):
    """Series of the UEA multivariate archive, in a folder relative to the recipe.

    `problem` is the name in `<problem>_TRAIN.ts` and `<problem>_TEST.ts`, or `.arff`, by default
    that of the folder. `classes` names the two classes to separate, +1 first, where there are more.
    Each token is the mean of `stride` time steps, by default as few as leave at most `max_tokens`.
    """

    head_kinds: ClassVar = SERIES_HEADS

    kind: Literal["time_series"]
    folder: Text
    problem: Text | None = None
    classes: tuple[Text, Text] | None = None
    stride: Count | None = None
    max_tokens: Annotated[int, Field(strict=True, ge=2)] = 50
    head_seed: Seed = 0

    @field_validator("classes")
    @classmethod
    def are_two(cls, classes):
        if classes is not None and classes[0] == classes[1]:
            raise ValueError("name two different classes")
        return classes
