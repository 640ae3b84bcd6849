"""Hidden Markov chains that stay or switch.

The channels are features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0. W is made of blocks (features, positions) and multiplied by the inverse temperature β.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from sampler.attention.layers import bilinear_attention
from sampler.attention.learned import LearnedHeads
from sampler.attention.variants import AttentionVariant
from sampler.data.heads_of_task import (
    chosen_variants,
    draw_layers,
    learned_heads,
    name_heads,
    refuse_unfit_length,
)
from sampler.data.labels import with_positions
from sampler.data.split import (
    AnySplit,
    Split,
    add_arrays,
    block_size,
    draw_splits,
    held_or_streamed,
)
from sampler.data.task import Task, name_paths
from sampler.runtime import stream
from sampler.settings.task import LEARNED, AttentionSection, DrawnSection
from sampler.settings.types import Count, Even, NotNegative, Probability

# What four paths are called, by the heads they go through.
NAMED_PATHS = MappingProxyType(
    {
        ("good", "uniform"): "good",
        ("good", "random"): "adversarial 1",
        ("random", "uniform"): "denoising",
        ("random", "random"): "adversarial 2",
    }
)


class MarkovChainSection(DrawnSection):
    """Hidden Markov chain classification: two classes that differ in how often the state stays."""

    head_kinds: ClassVar = ("good", "uniform", "random", "learned")
    generating_kinds: ClassVar = ("good",)
    attention_defaults: ClassVar = {"heads": (("good", "random"), ("uniform", "random"))}

    tokens: Count = 30
    """Tokens of a sequence, beside its beginning."""
    features: Even = 200
    """Channels beside the position."""
    stay_positive: Probability = 0.7
    """Probability that the hidden state stays, in class +1."""
    stay_negative: Probability = 0.3
    """Probability that the hidden state stays, in class −1."""
    parallel_noise: NotNegative = 1.0
    """Noise along the two state vectors."""
    perpendicular_noise: NotNegative = 1.0
    """Noise across the two state vectors."""

    @property
    def least_numbers(self) -> int:
        """Labels, hidden states, and the logit weights of one head."""
        return super().least_numbers * (1 + self.tokens) + (self.features + self.tokens + 1) ** 2

    def make(self, attention: AttentionSection) -> Task:
        """Draw the sequences, first class + then class −, as evenly as possible, and the heads."""
        positions = self.tokens + 1
        refuse_unfit_length(attention, positions)

        def weights_of(kind: str, generator: np.random.Generator) -> tuple[np.ndarray]:
            beta = attention.inverse_temperature
            return (head_weights(kind, self.features, positions, beta, generator),)

        weights = tuple(w for (w,) in draw_layers(attention, weights_of, self.head_seed))
        # Without variants all heads are softmax, in less memory.
        variants = ((),) * len(weights) if attention.form is None else chosen_variants(attention)

        def draw(examples: int, key: int) -> AnySplit:
            chain = HiddenMarkovChain(self, weights, variants, examples, key)
            heads, channels = tuple(map(len, weights)), self.features + positions
            sizes = chain.labels, heads, channels, positions
            return held_or_streamed(chain, lambda: next(chain.blocks(0, examples)), *sizes)

        names = name_heads(attention)
        train, test, validation = draw_splits(self, draw)
        scale = np.sqrt(attention.inverse_temperature) * random_scale(self.features, positions)
        random = LearnedHeads("full", scale, (), ())
        learned = learned_heads(attention, scale.size, random)
        paths = name_paths(names, NAMED_PATHS)
        return Task(train, test, names, paths, validation, learned=learned)


@dataclass(frozen=True)
class HiddenMarkovChain:
    """The sequences of one split, drawn all at once or, the same ones, in blocks.

    weights   logit weights [head, channel, channel] of every layer
    variants  variant of every head; none for softmax in all
    examples  how many there are
    key       of their random numbers
    """

    settings: MarkovChainSection
    weights: tuple[np.ndarray, ...]
    variants: tuple[tuple[AttentionVariant, ...], ...]
    examples: int
    key: int

    @property
    def labels(self) -> np.ndarray:
        """First class +, then class −, as evenly as possible, [example, output]."""
        first = np.arange(self.examples) < (self.examples + 1) // 2
        return np.where(first, 1.0, -1.0)[:, None]

    def identity(self) -> str:
        checksum = hashlib.sha256(repr((self.settings, self.variants)).encode())
        add_arrays(checksum, self.weights)
        return f"{self.key} {checksum.hexdigest()}"

    def blocks(self, first: int, block: int | None = None) -> Iterator[Split]:
        """The sequences from this one on, so many at a time, or as many as are best made together.

        All first states are drawn before all further states, and these before all features.
        """
        settings, tokens, labels = self.settings, self.settings.tokens, self.labels
        if block is None:
            positions, heads = tokens + 1, sum(map(len, self.weights))
            block = block_size(positions * (settings.features + positions * (1 + heads)))
        generator = stream(settings.seed, self.key)
        stay = np.where(labels[:, 0] > 0, settings.stay_positive, settings.stay_negative)
        states = draw_states(stay, tokens, generator)
        for start in range(0, first, block):
            generator.standard_normal((min(block, first - start), tokens, settings.features))
        for start in range(first, self.examples, block):
            part = slice(start, start + block)
            inputs = with_positions(draw_features(states[part], settings, generator))
            matrices = tuple(
                bilinear_attention(inputs, of_layer, those)
                for of_layer, those in zip(self.weights, self.variants, strict=True)
            )
            yield Split(inputs, labels[part], matrices)


def state_difference(features: int) -> np.ndarray:
    """The direction that reads a hidden state, [feature].

    q = (v₊ − v₋) / (|v₊ − v₋|²/2), so that q·v₊ = 1 and q·v₋ = −1.
    """
    half = features // 2
    difference = np.sqrt(2.0) * np.concatenate([np.ones(half), -np.ones(half)])
    return difference / (difference @ difference / 2.0)


def head_weights(
    kind: str,
    features: int,
    positions: int,
    inverse_temperature: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Logit weights W of one head, [channel, channel], rows for keys and columns for queries.

    good      attends to the previous token if its state is the same, to BOS otherwise
    uniform   all logits are equal
    random    Gaussian: features of variance 1/features², positions 1, cross blocks 1/features
    learned   as random: one draw of the prior

    Only a random head draws from the generator.
    """
    if kind in ("random", LEARNED):
        scale = random_scale(features, positions)
        normal = generator.standard_normal((scale.size, scale.size))
        return inverse_temperature * (normal * np.outer(scale, scale))
    weights = np.zeros((features + positions, features + positions))
    if kind == "good":
        # Features q qᵀ: +1 for two tokens of the same state, −1 otherwise, 0 with BOS. Positions:
        # +1 for the previous token, 1.5 for BOS. The logit of the previous token is then 2 or 0, of
        # BOS 1.5, and of any other token at most 1 (up to noise).
        direction = state_difference(features)
        weights[:features, :features] = np.outer(direction, direction)
        previous = np.arange(1, positions - 1)
        weights[features + previous, features + previous + 1] = 1.0
        weights[features, features + 1 :] = 1.5
    return inverse_temperature * weights


def random_scale(features: int, positions: int) -> np.ndarray:
    """Scale of every channel: an entry of W/β has the standard deviation of its row times column.

    That is 1/features within the features, 1 within the positions, 1/√features across.
    """
    return np.concatenate([np.full(features, 1.0 / np.sqrt(features)), np.ones(positions)])


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
    features = np.where(states[..., None] > 0, np.sqrt(2.0) * upper, np.sqrt(2.0) * lower)
    noise = generator.standard_normal(features.shape)
    # v₊ and v₋ are orthogonal: their directions span the same plane as v₊ − v₋ and v₊ + v₋.
    plane = np.stack([upper, lower]) / np.sqrt(half)
    within = (noise @ plane.T) @ plane
    # In place: these are the largest arrays of the task.
    noise -= within
    noise *= settings.perpendicular_noise
    within *= settings.parallel_noise
    features += within
    features += noise
    return features
