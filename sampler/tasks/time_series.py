"""Time series of a hidden oscillation: does one half of the channels lead the other, or follow it?

    x^c_t = z_t + noise,  x^{c+C/2}_t = z_{t∓lag} + noise,  z_t = √2 cos(phase of t)

with − for class +1. The phase starts anywhere on the circle, so that z read backwards has the same
law and class −1 is class +1 with time reversed: nothing tells them apart in a single time step, nor
in any mean over time steps.
"""

import numpy as np

from sampler.random_streams import stream
from sampler.recipes.sections import AttentionSection
from sampler.recipes.time_series_section import TimeSeriesSection
from sampler.tasks.series_task import LabelledSeries, series_task
from sampler.tasks.task import Task

# First entries of the spawn keys; 2 belongs to the heads (`series_task`).
TRAIN_STREAM, TEST_STREAM, VALIDATION_STREAM = 0, 1, 3


def make_time_series(settings: TimeSeriesSection, attention: AttentionSection) -> Task:
    """Draw the series and the heads of the time-series task."""

    def draw(examples: int, key: int) -> LabelledSeries:
        return draw_series(settings, examples, stream(settings.seed, key))

    validation = None
    if settings.examples_validation:
        validation = draw(settings.examples_validation, VALIDATION_STREAM)
    return series_task(
        draw(settings.examples_train, TRAIN_STREAM),
        draw(settings.examples_test, TEST_STREAM),
        validation,
        attention,
        settings.head_seed,
    )


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
