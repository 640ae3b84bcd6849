"""Copying a token: the label is the token before the last one, which heads find by its position.

T tokens, each one of V symbols, independent and uniform. Inputs are one-hot, centred and multiplied
by √V, so that their covariance is 1 − J/V; the label is the input of the token before the last, one
output per symbol. Logits of heads depend on the position of the key alone.
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import layer_matrices
from sampler.attention.learned import LearnedHeads
from sampler.attention.variants import Finite
from sampler.data.heads_of_task import (
    RawExamples,
    attended_split,
    chosen_variants,
    draw_layers,
    learned_heads,
    name_heads,
    refuse_unfit_length,
)
from sampler.data.labels import scaled_one_hot
from sampler.data.split import draw_splits
from sampler.data.task import Task, name_paths
from sampler.runtime import stream
from sampler.settings.task import LEARNED, AttentionSection, DrawnSection
from sampler.settings.types import Several

# How many tokens before the end the copied one stands.
COPIED = -2


class CopySection(DrawnSection):
    """Sequences of symbols, labelled by the one before the last; one output per symbol.

    `attention.inverse_temperature` is the standard deviation of the logits of random heads, and of
    learned ones a priori.
    """

    head_kinds: ClassVar = ("copy", "uniform", "random", LEARNED)
    attention_defaults: ClassVar = {"heads": ((LEARNED,),), "inverse_temperature": 0.3}

    tokens: Several = 24
    """Tokens of a sequence."""
    symbols: Several = 6
    """Symbols that a token may be."""
    copied_logit: Finite = 4.0
    """Logit of the token before the last in copy heads; those of all others are 0."""

    def make(self, attention: AttentionSection) -> Task:
        refuse_unfit_length(attention, self.tokens)

        def logits_of(kind: str, generator: np.random.Generator) -> tuple[np.ndarray]:
            return (self.head_logits(kind, attention.inverse_temperature, generator),)

        logits = draw_layers(attention, logits_of, self.head_seed)
        variants = chosen_variants(attention)
        matrices = tuple(
            matrices_of_positions(of_layer, those)
            for (of_layer,), those in zip(logits, variants, strict=True)
        )

        def attend(inputs: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(np.broadcast_to(one, (len(inputs), *one.shape)) for one in matrices)

        def draw(examples: int, key: int) -> RawExamples:
            generator = stream(self.seed, key)
            symbols = generator.integers(self.symbols, size=(examples, self.tokens))
            labels = scaled_one_hot(symbols[:, COPIED], self.symbols)
            return RawExamples(
                lambda part: scaled_one_hot(symbols[part], self.symbols), labels, (symbols,)
            )

        train, test, validation = (
            attended_split(one, attend, variants, matrices) for one in draw_splits(self, draw)
        )
        names, scale = name_heads(attention), np.array([attention.inverse_temperature])
        learned = learned_heads(attention, self.symbols, LearnedHeads("positions", scale, (), ()))
        return Task(train, test, names, name_paths(names), validation, learned=learned)

    def generating_heads(self, examples: int, tokens: int) -> dict[str, np.ndarray]:
        """All attention of all queries on the token that is copied."""
        matrices = np.zeros((examples, tokens, tokens))
        matrices[:, COPIED] = 1.0
        return {"copied token": matrices}

    def head_logits(
        self, kind: str, scale: float, generator: np.random.Generator
    ) -> Float[np.ndarray, " key"]:
        """Logits of the keys of one head, by their positions.

        copy     `copied_logit` for the token before the last, 0 for others
        uniform  0 for all
        random   independent normal numbers of this standard deviation
        learned  as random: one draw of the prior

        Only a random head draws from the generator.
        """
        if kind in ("random", LEARNED):
            return scale * generator.standard_normal(self.tokens)
        logits = np.zeros(self.tokens)
        if kind == "copy":
            logits[COPIED] = self.copied_logit
        return logits


def matrices_of_positions(
    logits: Float[np.ndarray, "head key"], variants: tuple
) -> Float[np.ndarray, "head key query"]:
    """Matrices of heads whose logits depend on the key's position alone, one variant for each."""
    keys = logits[None, :, :, None]
    return np.ascontiguousarray(layer_matrices(variants, np.ones_like(keys), keys)[0])
