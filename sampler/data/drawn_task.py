"""Tasks whose examples and heads are drawn: the methods of such a task, and its data.

A task draws the examples of a split (`draw`) and says which logits its heads have
(`logit_weights`, or `heads`); sizes, seeds, splits, attention matrices, learned heads and checks
are the same for all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sampler.attention.learned import LearnedHeads
from sampler.attention.logits import head_matrices
from sampler.data.examples import StreamedExamples
from sampler.data.heads_of_task import chosen_variants, learned_heads, name_heads
from sampler.data.task import PathNames, Task
from sampler.settings.task_sections import LEARNED, UNIFORM, Attention, TaskSettings
from sampler.settings.types import Seed, Several, ValidationCount
from sampler.streams import Stream, stream

# W/β [channel, channel] of a kind of heads, for logits x_sᵀ W x_t.
LogitWeights = Mapping[str, Callable[[], np.ndarray]]
# Training, test and validation examples, before heads attend to them.
DrawnSplits = tuple[StreamedExamples, StreamedExamples, StreamedExamples | None]


@dataclass(frozen=True)
class DrawnHeads:
    """How the heads of a task are made.

    weights_of   draws logit weights of one head, of the form that `random` has, from its kind and a
                 random generator of its own: an array, or two of low rank, W_Q and W_K
    random       form and scale of random heads, which learned ones have a priori
    named_paths  paths that have a name of their own, by the names of their heads
    """

    weights_of: Callable[[str, np.random.Generator], tuple[np.ndarray, ...]]
    random: LearnedHeads
    named_paths: PathNames = field(default_factory=dict)

    @classmethod
    def of_logits(cls, beta: float, channels: int, logit_weights: LogitWeights) -> "DrawnHeads":
        """Heads with W_Q and W_K [key channel, channel], for logits (W_K x_s)·(W_Q x_t)/√D.

        uniform  0
        random   Gaussian entries of variance 1/D, W_Q multiplied by the inverse temperature β
        learned  as random: one draw of the prior

        and of other kinds those of logits β x_sᵀ W x_t. Only a random head draws random numbers.
        """
        root = np.sqrt(channels)

        def weights_of(kind: str, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            if kind in ("random", LEARNED):
                query, key = generator.standard_normal((2, channels, channels)) / root
                return beta * query, key
            uniform = kind == UNIFORM
            weights = np.zeros((channels, channels)) if uniform else logit_weights[kind]()
            # Keys are the inputs themselves.
            return beta * root * weights, np.eye(channels)

        scale = np.array([beta * (1.0 / root), 1.0 / root])
        random = LearnedHeads("low_rank", scale, (), (), channels)
        return cls(weights_of, random)


class TaskOfHeads(TaskSettings):
    """Settings of a task whose heads are chosen by kind and drawn, with a field `head_seed`."""

    if TYPE_CHECKING:
        head_seed: int

    def splits(self, attention: Attention) -> DrawnSplits:
        """Training, test and validation examples; InputError where they cannot be had."""
        raise NotImplementedError

    def logit_weights(self, attention: Attention, tokens: int, channels: int) -> LogitWeights:
        """W/β of each kind of heads beside "uniform", "random" and "learned"."""
        return {}

    def heads(self, attention: Attention, tokens: int, channels: int) -> DrawnHeads:
        """How heads are made: by `logit_weights`, unless a task overrides this."""
        weights = self.logit_weights(attention, tokens, channels)
        return DrawnHeads.of_logits(attention.inverse_temperature, channels, weights)

    def make(self, attention: Attention | None = None) -> Task:
        """Make the examples, and the heads that `attention` chooses, by default the task's own.

        Raises InputError where they do not fit each other, or the data cannot be used.
        """
        attention = (attention or Attention()).filled_in(self.attention_defaults)
        splits = self.splits(attention)
        _, tokens, channels = splits[0].shape
        heads = self.heads(attention, tokens, channels)
        variants = chosen_variants(attention, tokens)
        layers = []
        for layer, kinds in enumerate(attention.heads):
            of_heads = [
                heads.weights_of(kind, stream(self.head_seed, Stream.HEADS, layer, head))
                for head, kind in enumerate(kinds)
            ]
            layers.append(tuple(np.stack(arrays) for arrays in zip(*of_heads, strict=True)))

        def attend(inputs: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(
                head_matrices(
                    heads.random.form, weights if len(weights) > 1 else weights[0], inputs, those
                )
                for weights, those in zip(layers, variants, strict=True)
            )

        weights = tuple(array for of_layer in layers for array in of_layer)
        return Task.of(
            *(split and split.with_attention(attend, repr(variants), *weights) for split in splits),
            name_heads(attention),
            named_paths=heads.named_paths,
            learned=learned_heads(attention, variants, channels, heads.random),
        )


class DrawnTask(TaskOfHeads):
    """Settings of tasks that draw their examples and the weights of their heads."""

    examples_train: Several = 100
    """Examples to learn from."""
    examples_test: Several = 1000
    """Examples of the test set."""
    examples_validation: ValidationCount = 0
    """Examples of the validation set; without one: 0."""
    seed: Seed = 0
    """Seed of the examples."""
    head_seed: Seed = 0
    """Seed of the heads."""

    def draw(self, examples: int, of: Stream) -> StreamedExamples:
        """So many examples, their random numbers from this stream of the seed."""
        raise NotImplementedError

    def splits(self, attention: Attention) -> DrawnSplits:
        """The examples of each split, from a random stream of its own."""
        sizes = (
            (self.examples_train, Stream.TRAIN),
            (self.examples_test, Stream.TEST),
            (self.examples_validation, Stream.VALIDATION),
        )
        return tuple(self.draw(size, of) if size else None for size, of in sizes)
