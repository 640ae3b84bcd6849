"""From labelled time series to a task: positions, heads and their attention."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sampler.attention.factored import factored_form
from sampler.attention.series_heads import query_and_key_weights
from sampler.errors import InputError
from sampler.recipes.sections import AttentionSection
from sampler.recipes.time_series_section import DEFAULT_LAG
from sampler.tasks.chosen_heads import chosen_forms, draw_layers, name_heads, refuse_unfit_forms
from sampler.tasks.positions import with_positions
from sampler.tasks.task import Split, Task, name_paths

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
