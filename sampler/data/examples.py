"""Examples of a task: held as arrays, or made block by block where they would not fit.

Blocks follow the order of the examples, and each of them is held. Nothing but attended inputs is
needed of the examples in a network of the theory, so that blocks can be forgotten.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.padding import read_weights, within
from sampler.mcmc.collected_draws import evenly_spaced

# Examples of up to so many bytes are held. A block has at most so many, and that many examples.
HELD_BYTES, BLOCK_BYTES, BLOCK = 2**28, 2**26, 256
# Training examples that attention is measured on.
MEASURED_EXAMPLES = 16
KeptHeads = tuple[tuple[int, ...], ...]
Checksum = Any  # of hashlib, whose type has no public name
Labels = Float[np.ndarray, "example output"]
# Ω of every layer, from the inputs [example, token, channel].
Attend = Callable[[np.ndarray], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Examples:
    """Examples whose arrays are held: tokens with attention, or inputs at the end of every path.

    inputs      [example, token, channel], float64; or ξ^π [example, path, channel], paths in flat
                order, h_1 slowest
    labels      [example, output], float64; None where a test set has no labels
    attention   one array [example, head, key, query] per layer, float64; none before heads attend
    lengths     [example], whole numbers: tokens of each sequence; those behind them are padding,
                which no token before attends to. None where all sequences have all tokens
    path_heads  of inputs at the end of every path, the number of heads of each layer
    """

    inputs: np.ndarray
    labels: np.ndarray | None = None
    attention: tuple[np.ndarray, ...] = ()
    lengths: np.ndarray | None = None
    path_heads: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """[example, token or path, channel]."""
        return self.inputs.shape

    @property
    def examples(self) -> int:
        return self.shape[0]

    @property
    def tokens(self) -> int | None:
        """The number of tokens, padding included; None where there are paths."""
        return self.shape[1] if self.path_heads is None else None

    @property
    def channels(self) -> int:
        return self.shape[2]

    @property
    def heads(self) -> tuple[int, ...]:
        if self.path_heads is not None:
            return self.path_heads
        return tuple(matrices.shape[1] for matrices in self.attention)

    @property
    def holds_tokens(self) -> bool:
        return self.path_heads is None

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        heads = None if self.path_heads is None else np.array(self.path_heads, dtype=np.int64)
        arrays = self.inputs, self.labels, *self.attention, self.lengths, heads
        return tuple(array for array in arrays if array is not None)

    def add_to(self, checksum: Checksum) -> None:
        add_arrays(checksum, self.arrays)

    @property
    def sums(self) -> list:
        """Shape of every array, and sums that identify its numbers."""
        return [[*array.shape, *array_sums(array)] for array in self.arrays]

    @property
    def first_block(self) -> "Examples":
        """What is looked at for all of them."""
        return self

    def blocks(self, first: int = 0) -> Iterator["Examples"]:
        """Yield the examples from this one on, in blocks."""
        for start in range(first, self.examples, BLOCK):
            yield self.part(slice(start, start + BLOCK))

    def part(self, chosen: slice | np.ndarray) -> "Examples":
        labels, lengths = (
            None if array is None else array[chosen] for array in (self.labels, self.lengths)
        )
        attention = tuple(matrices[chosen] for matrices in self.attention)
        return Examples(self.inputs[chosen], labels, attention, lengths, self.path_heads)

    def keeping(self, kept: KeptHeads) -> "Examples":
        """The examples of the sub-network with these heads, layer by layer."""
        if self.path_heads is not None:
            paths = np.arange(math.prod(self.heads)).reshape(self.heads)[np.ix_(*kept)]
            inputs = self.inputs[:, paths.ravel()]
            return replace(self, inputs=inputs, path_heads=tuple(map(len, kept)))
        layers = zip(self.attention, kept, strict=True)
        attention = tuple(matrices[:, list(heads)] for matrices, heads in layers)
        return replace(self, attention=attention)

    def with_labels(self, labels: Labels) -> "Examples":
        return replace(self, labels=labels)


@dataclass(frozen=True)
class StreamedExamples:
    """Examples that are made block by block, but for their labels.

    make          make(first, size) yields the examples from this one on, so many at a time; None
                  for as many as fit a block
    labels        [example, output], float64; None where a test set has no labels
    examples      how many there are
    follows_from  follows_from() is a text, and arrays, from which the numbers of all follow
    kept          heads of the network, if they are not all
    """

    make: Callable[[int, int | None], Iterator[Examples]]
    labels: np.ndarray | None
    examples: int
    follows_from: Callable[[], tuple[Any, ...]]
    kept: KeptHeads | None = None

    @classmethod
    def of(
        cls, inputs_of: Callable[[slice], np.ndarray], labels: Labels, *arrays: np.ndarray
    ) -> "StreamedExamples":
        """Examples whose inputs follow from arrays; `inputs_of` makes those of some examples."""

        def make(first: int, size: int) -> Iterator[np.ndarray]:
            for start in range(first, len(labels), size):
                yield inputs_of(slice(start, start + size))

        return cls.of_blocks(make, labels, "", *arrays)

    @classmethod
    def of_blocks(
        cls,
        make: Callable[[int, int], Iterator[np.ndarray]],
        labels: Labels,
        text: str,
        *arrays: np.ndarray,
    ) -> "StreamedExamples":
        """Examples whose inputs [example, token, channel] come in blocks.

        make          make(first, size) yields those from an example on, so many at a time
        text, arrays  that all inputs follow from
        """

        def blocks(first: int, size: int | None) -> Iterator[Examples]:
            size = size or block_size(next(make(0, 1)).size)
            return labelled(map(Examples, make(first, size)), labels, first)

        return cls(blocks, labels, len(labels), lambda: (text, *arrays))

    @property
    def holds_tokens(self) -> bool:
        return False

    @cached_property
    def first(self) -> Examples:
        """The first example alone, which has the sizes of all."""
        one = next(self.make(0, 1))
        return one if self.kept is None else one.keeping(self.kept)

    @property
    def shape(self) -> tuple[int, ...]:
        """[example, token or path, channel]."""
        return self.examples, *self.first.shape[1:]

    @property
    def tokens(self) -> int | None:
        return self.first.tokens

    @property
    def channels(self) -> int:
        return self.first.channels

    @property
    def heads(self) -> tuple[int, ...]:
        return self.first.heads

    def add_to(self, checksum: Checksum) -> None:
        """Add to a checksum the origin of all numbers, and the heads."""
        checksum.update(repr(self.sums).encode())

    @property
    def identity(self) -> str:
        """Text that identifies the examples, with all heads."""
        text, *arrays = self.follows_from()
        return checksum_of(text, *arrays) if arrays else text

    @property
    def sums(self) -> list:
        """Identity of the examples, and the heads that are kept."""
        return [self.identity, self.kept and [list(heads) for heads in self.kept]]

    @property
    def first_block(self) -> Examples:
        """What is looked at for all of them."""
        return next(self.blocks())

    def blocks(self, first: int = 0) -> Iterator[Examples]:
        """Yield the examples from this one on, in blocks, each as it comes."""
        for block in self.make(first, None):
            yield block if self.kept is None else block.keeping(self.kept)

    def keeping(self, kept: KeptHeads) -> "StreamedExamples":
        """The examples of the sub-network with these heads, layer by layer."""
        return replace(self, kept=kept)

    def with_labels(self, labels: Labels) -> "StreamedExamples":
        def blocks(first: int, size: int | None) -> Iterator[Examples]:
            return labelled(self.make(first, size), labels, first)

        return replace(
            self, make=blocks, labels=labels, follows_from=lambda: (self.identity, labels)
        )

    def with_attention(self, attend: Attend, text: str, *weights: np.ndarray) -> "AnyExamples":
        """The examples with the matrices of heads, held where inputs and matrices fit into memory.

        attend         makes the matrices of every layer
        text, weights  that these follow from
        """

        def blocks(first: int, size: int | None) -> Iterator[Examples]:
            size = size or block_size(sum(array.size for array in streamed.first.arrays))
            for block in self.make(first, size):
                yield replace(block, attention=attend(block.inputs))

        def follows_from() -> tuple[Any, ...]:
            before, *arrays = self.follows_from()
            return before + text, *arrays, *weights

        streamed = replace(self, make=blocks, follows_from=follows_from)
        one = streamed.first
        numbers = one.inputs.size + sum(matrices.size for matrices in one.attention)
        if 8 * self.examples * numbers <= HELD_BYTES:
            return next(streamed.make(0, self.examples))
        return streamed


AnyExamples = Examples | StreamedExamples


def held(split: AnyExamples) -> Examples:
    """Examples whose arrays are in memory, as a check has seen before."""
    assert isinstance(split, Examples)
    return split


def labelled(blocks: Iterator[Examples], labels: Labels, first: int) -> Iterator[Examples]:
    """Give blocks their part of all labels, the first of them being that of this example."""
    for block in blocks:
        end = first + block.examples
        yield block.with_labels(labels[first:end])
        first = end


def block_size(numbers: int, most: int | None = BLOCK) -> int:
    """Choose the number of examples of a block from the numbers of each."""
    fitting = max(1, BLOCK_BYTES // (8 * numbers))
    return fitting if most is None else min(most, fitting)


# --- checksums


def add_arrays(checksum: Checksum, arrays: tuple[np.ndarray, ...]) -> None:
    """Add shapes, types and numbers to a checksum."""
    for array in arrays:
        checksum.update(repr((array.shape, array.dtype.str)).encode())
        checksum.update(np.ascontiguousarray(array).data)


def checksum_of(text: str, *arrays: np.ndarray) -> str:
    """SHA-256 of a text and of arrays."""
    checksum = hashlib.sha256(text.encode())
    add_arrays(checksum, arrays)
    return checksum.hexdigest()


def array_sums(array: np.ndarray) -> tuple[float, float]:
    """Return Σ |x| and Σ w x, 0 < w < 1, which are close where only the rounding differs."""
    numbers = np.asarray(array, np.float64).ravel()
    weights = np.modf(np.arange(1, numbers.size + 1) * 0.6180339887498949)[0]
    return float(np.abs(numbers).sum()), float(weights @ numbers)


# --- examples that are looked at, and what a network of the theory sees of them


def measured_examples(count: int) -> Int[np.ndarray, " measured"]:
    """Numbers of the training examples that attention is measured on, evenly spaced."""
    return evenly_spaced(count, MEASURED_EXAMPLES)


def spread_over_labels(train: AnyExamples, count: int) -> Int[np.ndarray, " chosen"] | None:
    """Choose at most this many examples, evenly from all sorted by label; return their numbers.

    The largest label comes first for one output, else class after class. None where the examples
    are not held.
    """
    if isinstance(train, StreamedExamples):
        return None
    labels = train.labels
    keys = -labels[:, 0] if labels.shape[1] == 1 else labels.argmax(axis=1)
    order = np.argsort(keys, kind="stable")
    places = np.linspace(0, len(order) - 1, min(len(order), count)).round().astype(int)
    return order[places]


def attended_by_numpy(
    block: Examples, readout: str, pairs: tuple[bool, ...]
) -> Float[np.ndarray, "example path channel"]:
    """Attended inputs ξ^π(x) = x Ω^{h_1} ··· Ω^{h_L} t*, as `theory.attended_inputs` has them."""
    if block.path_heads is not None:
        return block.inputs
    examples, tokens, _ = block.shape
    lengths = np.full(examples, tokens) if block.lengths is None else block.lengths
    weights = read_weights(within(lengths, tokens), readout)[
        :, None, :
    ]  # [example, paths through the layers above, key]
    for omega, is_pair in zip(reversed(block.attention), reversed(pairs), strict=True):
        if is_pair:
            omega = (omega[:, :, None] * omega[:, None]).reshape(examples, -1, tokens, tokens)
        weights = np.einsum("ehkq,epq->ehpk", omega, weights, optimize=True)
        weights = weights.reshape(examples, -1, tokens)
    return weights @ block.inputs
