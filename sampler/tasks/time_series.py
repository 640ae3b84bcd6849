"""Labelled time series, made or read.

The channels are C features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0: D in all, and as many key channels, so that every attention variant fits.

    x^c_t = z_t + noise,  x^{c+C/2}_t = z_{t∓lag} + noise,  z_t = √2 cos(phase of t)

with − for class +1. The phase starts anywhere on the circle, so that z read backwards has the same
law and class −1 is class +1 with time reversed: nothing tells them apart in a single time step, nor
in any mean over time steps.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, field_validator, model_validator

from sampler.errors import InputError, Setting
from sampler.runtime import stream
from sampler.settings.task import AttentionSection, DrawnSection, SeriesFilesSection, TaskSection
from sampler.settings.types import Count, Even, NotNegative, Seed, Several, Text
from sampler.tasks.series_files import read_archive
from sampler.tasks.task import (
    Task,
    Unattended,
    attended_task,
    draw_splits,
    refuse_unfit_length,
    with_positions,
)
from sampler.transformer.classified import Classified, targets_of

HEAD_KINDS = ("lag", "uniform", "random", "learned")
# How far lag heads look back by default: the lag of the series that are drawn.
DEFAULT_LAG = 5
DEFAULT_HEADS = {"heads": (("lag", "random"), ("uniform", "random")), "lag": DEFAULT_LAG}


class TimeSeriesSection(DrawnSection):
    """Series of a hidden oscillation: one half of the channels leads the other, or follows it.

    The classes differ in the sign of `lag` alone: one is the other with time reversed.
    """

    head_kinds: ClassVar = HEAD_KINDS
    generating_kinds: ClassVar = ("lag",)
    attention_defaults: ClassVar = DEFAULT_HEADS

    tokens: Several = 40
    """Time steps of a series."""
    channels: Even = 16
    """Channels of a time step."""
    lag: Count = DEFAULT_LAG
    """Time steps by which one half leads the other."""
    period: Annotated[int, Field(strict=True, ge=3)] = 20
    """Period of the oscillation, in time steps."""
    phase_noise: NotNegative = 0.1
    """Standard deviation of the phase steps of the oscillation."""
    noise: NotNegative = 0.8
    """Standard deviation of the noise in every channel; the signal's is 1."""

    @model_validator(mode="after")
    def classes_differ(self) -> "TimeSeriesSection":
        """z_{t−lag} and z_{t+lag} are 2 lag steps apart: whole periods make them the same."""
        if 2 * self.lag % self.period == 0:
            fields = ("period", "lag") if "period" in self.model_fields_set else ("lag", "period")
            (field, value), (other, beside) = ((name, getattr(self, name)) for name in fields)
            remedy = "twice the lag must not be a multiple of the period"
            remedy = f"with {other} = {beside} both classes are the same: {remedy}"
            raise InputError(Setting("task", field), value, remedy)
        return self

    @classmethod
    def section_for(cls, settings: Mapping[str, Any]) -> type[TaskSection]:
        """Series of the archive where a folder is named, drawn ones otherwise."""
        return SeriesArchiveSection if "folder" in settings else cls

    def make(self, attention: AttentionSection) -> Task:
        """Draw the series and the heads."""
        drawn = draw_splits(self, lambda size, key: draw_series(self, size, stream(self.seed, key)))
        return series_task(drawn, attention, self.head_seed)


class SeriesArchiveSection(SeriesFilesSection, TaskSection):
    """Labelled series of the UEA multivariate archive, or of one's own in one of its formats."""

    head_kinds: ClassVar = HEAD_KINDS
    generating_kinds: ClassVar = ("lag",)
    attention_defaults: ClassVar = DEFAULT_HEADS

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

    def make(self, attention: AttentionSection) -> Task:
        """Read the series of two classes, averaged over `stride` steps, and draw the heads.

        Raises InputError for a file that cannot be used, or where the classes to separate are open.
        """
        archive = read_archive(self, two_classes=True)
        return series_task((archive.train, archive.test, None), attention, self.head_seed)


def lag_weights(features: int, positions: int, lag: int) -> np.ndarray:
    """Make W/β of the logits x_sᵀ W x_t of a lag head, [channel, channel], keys first.

    It attends `lag` steps back if the second half of the features follows the first, else BOS.
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


def series_task(
    series: tuple[Classified, Classified, Classified | None],
    attention: AttentionSection,
    head_seed: int,
) -> Task:
    """Make the task of training, test and validation series, with heads as the recipe has them.

    Channels are those of the series and one-hot positions; token 0 is the beginning-of-sequence
    token (BOS), whose features are 0. Raises InputError if the series are too short for the heads.
    """
    _, tokens, features = series[0].inputs.shape
    lag = DEFAULT_LAG if attention.lag is None else attention.lag
    if lag >= tokens and any("lag" in kinds for kinds in attention.heads):
        remedy = f"must be below the {tokens} tokens of a series"
        raise InputError(Setting("attention", "lag"), lag, remedy)
    positions = tokens + 1
    refuse_unfit_length(attention, positions)
    logit_weights = {"lag": lambda: lag_weights(features, positions, lag)}

    def examples(of_split: Classified | None) -> Unattended | None:
        if of_split is None:
            return None
        values, labels = of_split.inputs, of_split.targets[:, None]
        return Unattended(lambda part: with_positions(values[part]), labels, (values,))

    splits, channels = tuple(map(examples, series)), features + positions
    return attended_task(splits, attention, head_seed, channels, logit_weights)


def draw_series(
    settings: TimeSeriesSection, examples: int, generator: np.random.Generator
) -> Classified:
    """Draw series of both classes, first class + then class −, as evenly as `examples` allows."""
    classes = (np.arange(examples) >= (examples + 1) // 2).astype(int)
    labels = targets_of(classes, 2)
    lag, tokens = settings.lag, settings.tokens
    # E z_t z_{t+k} = cos(2π k/period) exp(−k phase_noise²/2), a lag longer than the series at
    # either end.
    steps = settings.tokens + 2 * settings.lag
    start = generator.uniform(0.0, 2 * np.pi, (examples, 1))
    phase_noise = settings.phase_noise * generator.standard_normal((examples, steps - 1))
    turned = np.cumsum(2 * np.pi / settings.period + phase_noise, axis=1)
    hidden = np.sqrt(2.0) * np.cos(start + np.pad(turned, ((0, 0), (1, 0))))
    now = hidden[:, lag : lag + tokens]
    other = np.where(labels[:, None] > 0, hidden[:, :tokens], hidden[:, 2 * lag :])
    signal = np.repeat(np.stack([now, other], axis=-1), settings.channels // 2, axis=-1)
    values = signal + settings.noise * generator.standard_normal(signal.shape)
    return Classified(values, classes, labels)
