"""Copying a token: the label is the token before the last one, which heads find by its position.

T tokens, each one of V symbols, independent and uniform. Inputs are one-hot, centred and multiplied
by √V, so that their covariance is 1 − J/V; the label is the input of the token before the last, one
output per symbol. Logits of heads depend on the position of the key alone.
"""

from typing import ClassVar, Literal

import numpy as np

from sampler.attention.learned import LearnedHeads
from sampler.attention.variants import Finite
from sampler.data.drawn_task import DrawnHeads, DrawnTask
from sampler.data.examples import StreamedExamples
from sampler.data.labelled_inputs import scaled_one_hot
from sampler.settings.task_sections import LEARNED, Attention
from sampler.settings.types import Several
from sampler.streams import Stream, stream

# How many tokens before the end the copied one stands.
COPIED = -2


class Copy(DrawnTask):
    """Sequences of symbols, labelled by the one before the last; one output per symbol.

    `attention.inverse_temperature` is the standard deviation of the logits of random heads, and of
    learned ones a priori.
    """

    head_kinds: ClassVar = ("copy", "uniform", "random", LEARNED)
    attention_defaults: ClassVar = {"heads": ((LEARNED,),), "inverse_temperature": 0.3}

    kind: Literal["copy"] = "copy"
    tokens: Several = 24
    """Tokens of a sequence."""
    symbols: Several = 6
    """Symbols that a token may be."""
    copied_logit: Finite = 4.0
    """Logit of the token before the last in copy heads; those of all others are 0."""

    def draw(self, examples: int, of: Stream) -> StreamedExamples:
        generator = stream(self.seed, of)
        symbols = generator.integers(self.symbols, size=(examples, self.tokens))
        labels = scaled_one_hot(symbols[:, COPIED], self.symbols)
        return StreamedExamples.of(
            lambda part: scaled_one_hot(symbols[part], self.symbols), labels, symbols
        )

    def heads(self, attention: Attention, tokens: int, channels: int) -> DrawnHeads:
        """Logits [key] of every head.

        They are `copied_logit` for the token before the last of a copy head, independent normal
        numbers of standard deviation β for a random head or a draw of a learned one, else 0.
        """
        beta = attention.inverse_temperature

        def logits_of(kind: str, generator: np.random.Generator) -> tuple[np.ndarray]:
            if kind in ("random", LEARNED):
                return (beta * generator.standard_normal(self.tokens),)
            logits = np.zeros(self.tokens)
            if kind == "copy":
                logits[COPIED] = self.copied_logit
            return (logits,)

        random = LearnedHeads("positions", np.array([beta]), (), ())
        return DrawnHeads(logits_of, random)
