"""The examples of a task: held as arrays, or made block by block where they would not fit.

Blocks follow the order of the examples, and each is a split of its own. Nothing but attended inputs
is needed of the examples in a network of the theory, so that blocks can be forgotten.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.padding import read_weights, within
from sampler.mcmc.collected_draws import evenly_spaced

# Splits of up to so many bytes are held. A block has at most so many, and that many examples.
HELD_BYTES, BLOCK_BYTES, BLOCK = 2**28, 2**26, 256
# Training examples that attention is measured on.
MEASURED_EXAMPLES = 16
KeptHeads = tuple[tuple[int, ...], ...]
Checksum = Any  # of hashlib, whose type has no public name


class HeldSplit:
    """A split whose arrays are held, the first of them [example, token or path, channel]."""

    arrays: tuple[np.ndarray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """[example, token or path, channel]."""
        return self.arrays[0].shape

    @property
    def examples(self) -> int:
        return self.shape[0]

    @property
    def channels(self) -> int:
        return self.shape[2]

    def add_to(self, checksum: Checksum) -> None:
        add_arrays(checksum, self.arrays)

    @property
    def sums(self) -> list:
        """Shape of every array, and sums that tell its numbers from others."""
        return [[*array.shape, *array_sums(array)] for array in self.arrays]

    def blocks(self, first: int = 0) -> Iterator[Self]:
        """Yield the examples from this one on, in blocks."""
        for start in range(first, self.examples, BLOCK):
            yield self.part(slice(start, start + BLOCK))


@dataclass(frozen=True)
class Split(HeldSplit):
    """The examples of one split: training, validation or test.

    inputs     [example, token, channel], float64
    labels     [example, output], float64; None where a test split has no labels
    attention  one array [example, head, key, query] per layer, float64
    lengths    [example], whole numbers: tokens of each sequence; those behind them are padding,
               which no token before attends to. None where all sequences have all tokens
    """

    inputs: np.ndarray
    labels: np.ndarray | None
    attention: tuple[np.ndarray, ...]
    lengths: np.ndarray | None = None

    @property
    def tokens(self) -> int:
        """The number of tokens, padding included."""
        return self.inputs.shape[1]

    @property
    def heads(self) -> tuple[int, ...]:
        return tuple(matrices.shape[1] for matrices in self.attention)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        arrays = self.inputs, self.labels, *self.attention, self.lengths
        return tuple(array for array in arrays if array is not None)

    def part(self, examples: slice | np.ndarray) -> "Split":
        labels, lengths = (
            None if array is None else array[examples] for array in (self.labels, self.lengths)
        )
        attention = tuple(matrices[examples] for matrices in self.attention)
        return Split(self.inputs[examples], labels, attention, lengths)

    def keeping(self, kept: KeptHeads) -> "Split":
        """The split of the sub-network with these heads, layer by layer."""
        layers = zip(self.attention, kept, strict=True)
        return replace(
            self, attention=tuple(matrices[:, list(heads)] for matrices, heads in layers)
        )


@dataclass(frozen=True)
class AttendedSplit(HeldSplit):
    """The examples of one split as they are at the end of every attention path, without tokens.

    attended  [example, path, channel], float64: ξ^π, paths in flat order, h_1 slowest
    labels    [example, output], float64; None where a test split has no labels
    heads     the number of heads of each layer
    """

    attended: np.ndarray
    labels: np.ndarray | None
    heads: tuple[int, ...]

    tokens: ClassVar[None] = None

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        labels = () if self.labels is None else (self.labels,)
        return self.attended, *labels, np.array(self.heads, dtype=np.int64)

    def part(self, examples: slice | np.ndarray) -> "AttendedSplit":
        labels = None if self.labels is None else self.labels[examples]
        return AttendedSplit(self.attended[examples], labels, self.heads)

    def keeping(self, kept: KeptHeads) -> "AttendedSplit":
        """The split of the sub-network with these heads, layer by layer."""
        paths = np.arange(math.prod(self.heads)).reshape(self.heads)[np.ix_(*kept)]
        return AttendedSplit(self.attended[:, paths.ravel()], self.labels, tuple(map(len, kept)))


@dataclass(frozen=True)
class BlockSource:
    """What makes the examples of a split, block by block.

    blocks    blocks(first, size) yields the examples from this one on, so many at a time; None for
              as many as fit a block
    identity  identity() is text from which the numbers of all examples follow
    """

    blocks: Callable[[int, int | None], Iterator[Split | AttendedSplit]]
    identity: Callable[[], str]


@dataclass(frozen=True)
class StreamedSplit:
    """The examples of one split that are too many to be held, but for their labels.

    source     makes them
    labels     [example, output], float64; None where a test split has no labels
    all_heads  the number of heads of each layer of attention that the source has
    tokens     None where there are attended inputs instead
    kept       heads of the network, if they are not all
    """

    source: BlockSource
    labels: np.ndarray | None
    examples: int
    all_heads: tuple[int, ...]
    channels: int
    tokens: int | None
    kept: KeptHeads | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """[example, token or path, channel]."""
        return self.examples, self.tokens or math.prod(self.heads), self.channels

    @property
    def heads(self) -> tuple[int, ...]:
        return self.all_heads if self.kept is None else tuple(map(len, self.kept))

    def add_to(self, checksum: Checksum) -> None:
        """Add to a checksum what all numbers follow from: source and heads."""
        checksum.update(repr(self.sums).encode())

    @property
    def sums(self) -> list:
        """Identity of the source, and the heads that are kept."""
        return [self.source.identity(), self.kept and [list(heads) for heads in self.kept]]

    def keeping(self, kept: KeptHeads) -> "StreamedSplit":
        """The split of the sub-network with these heads, layer by layer."""
        return replace(self, kept=kept)

    def blocks(self, first: int = 0) -> Iterator[Split | AttendedSplit]:
        """Yield the examples from this one on, in blocks, each as it comes."""
        for block in self.source.blocks(first, None):
            yield block if self.kept is None else block.keeping(self.kept)


AnySplit = Split | AttendedSplit | StreamedSplit


def held_or_streamed(source: BlockSource, labels: np.ndarray) -> Split | StreamedSplit:
    """The split of a source, held where inputs and attention matrices fit into memory."""
    examples, first = len(labels), next(source.blocks(0, 1))
    numbers = examples * (first.inputs.size + sum(matrices.size for matrices in first.attention))
    if 8 * numbers <= HELD_BYTES:
        return next(source.blocks(0, examples))
    return StreamedSplit(source, labels, examples, first.heads, first.channels, first.tokens)


def block_size(numbers: int, most: int | None = BLOCK) -> int:
    """Choose how many examples a block has, each of them with so many numbers."""
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


def spread_over_labels(train: AnySplit, count: int) -> Int[np.ndarray, " chosen"] | None:
    """Choose up to so many examples, evenly from all of them sorted by label; return their numbers.

    The largest label comes first for one output, else class after class. None where the examples
    are not held.
    """
    if isinstance(train, StreamedSplit):
        return None
    labels = train.labels
    keys = -labels[:, 0] if labels.shape[1] == 1 else labels.argmax(axis=1)
    order = np.argsort(keys, kind="stable")
    places = np.linspace(0, len(order) - 1, min(len(order), count)).round().astype(int)
    return order[places]


def attended_by_numpy(
    split: Split | AttendedSplit, readout: str, pairs: tuple[bool, ...]
) -> Float[np.ndarray, "example path channel"]:
    """Attended inputs ξ^π(x) = x Ω^{h_1} ··· Ω^{h_L} t*, as `theory.attended_inputs` has them."""
    if isinstance(split, AttendedSplit):
        return split.attended
    examples, tokens, _ = split.inputs.shape
    lengths = np.full(examples, tokens) if split.lengths is None else split.lengths
    weights = read_weights(within(lengths, tokens), readout)[
        :, None, :
    ]  # [example, paths through the layers above, key]
    for omega, is_pair in zip(reversed(split.attention), reversed(pairs), strict=True):
        if is_pair:
            omega = (omega[:, :, None] * omega[:, None]).reshape(examples, -1, tokens, tokens)
        weights = np.einsum("ehkq,epq->ehpk", omega, weights, optimize=True)
        weights = weights.reshape(examples, -1, tokens)
    return weights @ split.inputs
