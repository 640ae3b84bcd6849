"""Hidden Markov chain classification: which of two chains made this noisy sequence?"""

from types import MappingProxyType

import numpy as np

from sampler.attention.bilinear import bilinear_attention, bilinear_form
from sampler.attention.markov_heads import head_weights
from sampler.random_streams import stream
from sampler.recipes.sections import AttentionSection, MarkovChainSection
from sampler.tasks.chosen_heads import chosen_forms, name_heads, refuse_unfit_forms
from sampler.tasks.positions import with_positions
from sampler.tasks.task import Split, Task, name_paths

# First entries of the spawn keys: the random streams of a task never share numbers.
TRAIN_STREAM, TEST_STREAM, HEAD_STREAM, VALIDATION_STREAM = 0, 1, 2, 3
# What four paths are called, by the heads they go through.
NAMED_PATHS = MappingProxyType(
    {
        ("good", "uniform"): "good",
        ("good", "random"): "adversarial 1",
        ("random", "uniform"): "denoising",
        ("random", "random"): "adversarial 2",
    }
)


def make_markov_chain(settings: MarkovChainSection, attention: AttentionSection) -> Task:
    """Draw the sequences and the heads of the hidden Markov task.

    Channels are `features` token features and `tokens` + 1 one-hot positions; token 0 is the
    beginning-of-sequence token (BOS), whose features are 0.
    """
    weights = draw_heads(settings, attention)
    refuse_unfit_forms(attention, settings.tokens + 1)

    def draw(examples: int, key: int) -> Split:
        return draw_split(settings, examples, key, weights, attention)

    train = draw(settings.examples_train, TRAIN_STREAM)
    test = draw(settings.examples_test, TEST_STREAM)
    validation = None
    if settings.examples_validation:
        validation = draw(settings.examples_validation, VALIDATION_STREAM)
    names = name_heads(attention)
    return Task(train, test, names, name_paths(names, NAMED_PATHS), validation)


def draw_heads(settings: MarkovChainSection, attention: AttentionSection) -> tuple[np.ndarray, ...]:
    """Logit weights, one array [head, channel, channel] per layer."""
    positions = settings.tokens + 1
    return tuple(
        np.stack(
            [
                head_weights(
                    kind,
                    settings.features,
                    positions,
                    attention.inverse_temperature,
                    stream(settings.head_seed, HEAD_STREAM, layer, head),
                )
                for head, kind in enumerate(kinds)
            ]
        )
        for layer, kinds in enumerate(attention.heads)
    )


def draw_split(
    settings: MarkovChainSection,
    examples: int,
    stream_key: int,
    logit_weights: tuple[np.ndarray, ...],
    attention: AttentionSection,
) -> Split:
    """Sequences of both classes, first class + then class −, as evenly as `examples` allows."""
    generator = stream(settings.seed, stream_key)
    labels = np.where(np.arange(examples) < (examples + 1) // 2, 1.0, -1.0)
    stay = np.where(labels > 0, settings.stay_positive, settings.stay_negative)
    states = draw_states(stay, settings.tokens, generator)
    features = draw_features(states, settings, generator)
    inputs = with_positions(features)
    return Split(inputs, labels[:, None], attend(inputs, logit_weights, attention))


def attend(
    inputs: np.ndarray, logit_weights: tuple[np.ndarray, ...], attention: AttentionSection
) -> tuple[np.ndarray, ...]:
    """Attention matrices [example, head, key, query] of every layer."""
    if attention.form is None:
        return tuple(bilinear_attention(inputs, weights) for weights in logit_weights)
    return tuple(
        bilinear_form(inputs, weights, of_layer)
        for weights, of_layer in zip(logit_weights, chosen_forms(attention), strict=True)
    )


def draw_states(stay: np.ndarray, tokens: int, generator: np.random.Generator) -> np.ndarray:
    """Hidden states ±1, [example, token]; `stay` [example] is the probability to keep a state."""
    first = np.where(generator.random(stay.size) < 0.5, 1.0, -1.0)
    stays = generator.random((stay.size, tokens - 1)) < stay[:, None]
    flips = np.where(stays, 1.0, -1.0)
    return np.cumprod(np.concatenate([first[:, None], flips], axis=1), axis=1)


def draw_features(
    states: np.ndarray, settings: MarkovChainSection, generator: np.random.Generator
) -> np.ndarray:
    """Token features v₊ or v₋ plus noise, [example, token, feature].

    The noise has its own standard deviation within the plane of v₊ = √2 (1, 0) and
    v₋ = √2 (0, 1) (each half of the features a block) and across it.
    """
    half = settings.features // 2
    upper = np.concatenate([np.ones(half), np.zeros(half)])
    lower = 1.0 - upper
    signal = np.sqrt(2.0) * np.where(states[..., None] > 0, upper, lower)
    noise = generator.standard_normal(signal.shape)
    # v₊ and v₋ are orthogonal: their directions span the same plane as v₊ − v₋ and v₊ + v₋.
    plane = np.stack([upper, lower]) / np.sqrt(half)
    within = (noise @ plane.T) @ plane
    return (
        signal + settings.parallel_noise * within + settings.perpendicular_noise * (noise - within)
    )
