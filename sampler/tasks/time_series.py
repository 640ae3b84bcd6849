"""Labelled time series, made or read.

The channels are C features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0: D in all, and as many key channels, so that heads of all kinds go through any form.

    x^c_t = z_t + noise,  x^{c+C/2}_t = z_{t∓lag} + noise,  z_t = √2 cos(phase of t)

with − for class +1. The phase starts anywhere on the circle, so that z read backwards has the same
law and class −1 is class +1 with time reversed: nothing tells them apart in a single time step, nor
in any mean over time steps.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sampler.attention.heads import factored_form
from sampler.errors import InputError
from sampler.numerics import stream
from sampler.recipes.sections import AttentionSection
from sampler.recipes.task_sections import DEFAULT_LAG, TimeSeriesSection
from sampler.tasks.task import (
    Split,
    Task,
    chosen_forms,
    draw_layers,
    name_heads,
    name_paths,
    refuse_unfit_forms,
    with_positions,
)

HEAD_KINDS = ("lag", "uniform", "random")


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
    # Keys are the inputs themselves, as in `bilinear_form`.
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


# First entry of the spawn keys of heads; those of the data are others.
HEAD_STREAM = 2

LayerWeights = tuple[np.ndarray, np.ndarray]


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
    refuse_unfit_forms(attention, tokens + 1)
    weights = draw_heads(channels, tokens + 1, lag, attention, head_seed)

    def attended(series: LabelledSeries) -> Split:
        inputs = with_positions(series.values)
        matrices = tuple(
            factored_form(inputs, *of_layer, forms)
            for of_layer, forms in zip(weights, chosen_forms(attention), strict=True)
        )
        return Split(inputs, series.labels[:, None], matrices)

    names = name_heads(attention)
    return Task(
        attended(train),
        attended(test),
        names,
        name_paths(names),
        None if validation is None else attended(validation),
    )


def draw_heads(
    channels: int, positions: int, lag: int, attention: AttentionSection, seed: int
) -> tuple[LayerWeights, ...]:
    """W_Q and W_K, [head, key channel, channel] each, of every layer."""

    def weights_of(kind: str, generator: np.random.Generator):
        beta = attention.inverse_temperature
        return query_and_key_weights(kind, channels, positions, lag, beta, generator)

    return draw_layers(attention, weights_of, seed, HEAD_STREAM)


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
