"""Hidden Markov chains that stay or switch.

The channels are features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0. W is made of blocks (features, positions) and multiplied by the inverse temperature β.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from sampler.attention.learned import LearnedHeads
from sampler.data.drawn_task import DrawnHeads, DrawnTask
from sampler.data.examples import StreamedExamples
from sampler.data.labelled_inputs import with_positions
from sampler.settings.task_sections import LEARNED, Attention
from sampler.settings.types import Count, Even, NotNegative, Probability
from sampler.streams import Stream, stream

# What four paths are called, by the heads they go through.
NAMED_PATHS = {
    ("good", "uniform"): "good",
    ("good", "random"): "adversarial 1",
    ("random", "uniform"): "denoising",
    ("random", "random"): "adversarial 2",
}


class MarkovChain(DrawnTask):
    """Hidden Markov chain classification: two classes that differ in how often the state stays."""

    head_kinds: ClassVar = ("good", "uniform", "random", "learned")
    attention_defaults: ClassVar = {"heads": (("good", "random"), ("uniform", "random"))}

    kind: Literal["markov_chain"] = "markov_chain"
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

    def heads(self, attention: Attention, tokens: int, channels: int) -> DrawnHeads:
        """Heads with the logit weights W of `head_weights`."""
        positions, beta = tokens, attention.inverse_temperature

        def weights_of(kind: str, generator: np.random.Generator) -> tuple[np.ndarray]:
            return (head_weights(kind, self.features, positions, beta, generator),)

        scale = np.sqrt(beta) * random_scale(self.features, positions)
        random = LearnedHeads("full", scale, (), ())
        return DrawnHeads(weights_of, random, NAMED_PATHS)

    def draw(self, examples: int, of: Stream) -> StreamedExamples:
        """Sequences, first class + then class −, as evenly as possible, at once or in blocks."""
        is_positive = np.arange(examples) < (examples + 1) // 2

        def blocks(first: int, size: int) -> Iterator[np.ndarray]:
            # All first states, then all further states, then all features.
            generator = stream(self.seed, of)
            stay = np.where(is_positive, self.stay_positive, self.stay_negative)
            states = draw_states(stay, self.tokens, generator)
            for start in range(0, first, size):
                before = min(size, first - start), self.tokens, self.features
                generator.standard_normal(before)
            for start in range(first, examples, size):
                yield with_positions(draw_features(states[start : start + size], self, generator))

        labels = np.where(is_positive, 1.0, -1.0)[:, None]
        text = f"{of.first} {self.model_dump_json()}"
        return StreamedExamples.of_blocks(blocks, labels, text)


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
    states: np.ndarray, chain: MarkovChain, generator: np.random.Generator
) -> np.ndarray:
    """Token features v₊ or v₋ plus noise, [example, token, feature].

    The noise has its own standard deviation within the plane of v₊ = √2 (1, 0) and
    v₋ = √2 (0, 1) (each half of the features a block) and across it.
    """
    half = chain.features // 2
    upper = np.concatenate([np.ones(half), np.zeros(half)])
    lower = 1.0 - upper
    features = np.where(states[..., None] > 0, np.sqrt(2.0) * upper, np.sqrt(2.0) * lower)
    noise = generator.standard_normal(features.shape)
    # v₊ and v₋ are orthogonal: their directions span the same plane as v₊ − v₋ and v₊ + v₋.
    plane = np.stack([upper, lower]) / np.sqrt(half)
    within = (noise @ plane.T) @ plane
    # In place: these are the largest arrays of the task.
    noise -= within
    noise *= chain.perpendicular_noise
    within *= chain.parallel_noise
    features += within
    features += noise
    return features
