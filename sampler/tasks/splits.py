"""The examples of a task: held as arrays, or made block by block where they would not fit.

Blocks follow the order of the examples, and each is a split of its own. Nothing but attended inputs
is needed of the examples in a network of the theory, so that blocks can be forgotten.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.padding import read_weights, refuse_attended_padding, within
from sampler.errors import InputError, Verbatim

# Splits of up to so many bytes are held. A block has at most so many, and that many examples.
HELD_BYTES, BLOCK_BYTES, BLOCK = 2**28, 2**26, 256
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
        found = self.inputs, self.labels, *self.attention, self.lengths
        return tuple(array for array in found if array is not None)

    def part(self, examples: slice | np.ndarray) -> "Split":
        labels, lengths = (
            None if one is None else one[examples] for one in (self.labels, self.lengths)
        )
        attention = tuple(one[examples] for one in self.attention)
        return Split(self.inputs[examples], labels, attention, lengths)

    def keeping(self, kept: KeptHeads) -> "Split":
        """The split of the sub-network with these heads, layer by layer."""
        layers = zip(self.attention, kept, strict=True)
        return replace(self, attention=tuple(one[:, list(heads)] for one, heads in layers))


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
        paths = list(kept_paths(self.heads, kept))
        return AttendedSplit(self.attended[:, paths], self.labels, tuple(map(len, kept)))


@runtime_checkable
class BlockSource(Protocol):
    """A source of the blocks of a split."""

    def identity(self) -> str:
        """Return text from which the numbers of all examples follow."""

    def blocks(self, first: int) -> Iterator[Split | AttendedSplit]:
        """Yield the examples from this one on. Raises InputError for data that cannot be used."""


@dataclass(frozen=True)
class StreamedSplit:
    """The examples of one split that are too many to be held, but for their labels.

    source     makes them
    labels     [example, output], float64; None where a test split has no labels
    all_heads  the number of heads of each layer of attention that the source knows
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
        for block in self.source.blocks(first):
            yield block if self.kept is None else block.keeping(self.kept)


AnySplit = Split | AttendedSplit | StreamedSplit


@dataclass(frozen=True)
class PartsOf:
    """Examples that follow from something smaller, which is held, and are made in parts.

    examples  how many there are
    make      some of them
    settings  text that their numbers follow from
    origin    and arrays
    """

    examples: int
    make: Callable[[slice], Split]
    settings: str
    origin: tuple[np.ndarray, ...]

    def identity(self) -> str:
        """Return a checksum of settings and origin."""
        checksum = hashlib.sha256(self.settings.encode())
        add_arrays(checksum, self.origin)
        return checksum.hexdigest()

    def blocks(self, first: int) -> Iterator[Split]:
        size = block_size(sum(array.size for array in self.make(slice(0, 1)).arrays))
        for start in range(first, self.examples, size):
            yield self.make(slice(start, start + size))


def block_size(numbers: int, most: int | None = BLOCK) -> int:
    """Choose how many examples a block has, each of them with so many numbers."""
    fitting = max(1, BLOCK_BYTES // (8 * numbers))
    return fitting if most is None else min(most, fitting)


def held_or_streamed(
    source: BlockSource,
    whole: Callable[[], Split],
    labels: np.ndarray,
    heads: tuple[int, ...],
    channels: int,
    tokens: int,
) -> Split | StreamedSplit:
    """Hold the split where inputs and attention matrices fit into memory, else its source."""
    numbers = len(labels) * tokens * (channels + tokens * sum(heads))
    if 8 * numbers <= HELD_BYTES:
        return whole()
    return StreamedSplit(source, labels, len(labels), heads, channels, tokens)


def made_in_parts(
    make: Callable[[slice], Split],
    labels: np.ndarray,
    settings: str,
    origin: tuple[np.ndarray, ...],
) -> Split | StreamedSplit:
    """Make a split, held or streamed, by `make` from all that its numbers follow from."""
    first, source = make(slice(0, 1)), PartsOf(len(labels), make, settings, origin)
    sizes = first.heads, first.channels, first.tokens
    return held_or_streamed(source, lambda: make(slice(None)), labels, *sizes)


def add_arrays(checksum: Checksum, arrays: tuple[np.ndarray, ...]) -> None:
    """Add shapes, types and numbers to a checksum."""
    for array in arrays:
        checksum.update(repr((array.shape, array.dtype.str)).encode())
        checksum.update(np.ascontiguousarray(array).data)


def array_sums(array: np.ndarray) -> tuple[float, float]:
    """Return Σ |x| and Σ w x, 0 < w < 1, which are close where only the rounding differs."""
    numbers = np.asarray(array, np.float64).ravel()
    weights = np.modf(np.arange(1, numbers.size + 1) * 0.6180339887498949)[0]
    return float(np.abs(numbers).sum()), float(weights @ numbers)


def kept_paths(heads: tuple[int, ...], kept: KeptHeads) -> tuple[int, ...]:
    """Return the flat numbers of the paths through the kept heads, h_1 slowest."""
    paths = np.arange(math.prod(heads)).reshape(heads)[np.ix_(*kept)]
    return tuple(int(path) for path in paths.ravel())


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


def check_split(split: AnySplit, name: str, first: int = 0) -> None:
    """Raise InputError unless the arrays of a split are finite and their shapes fit together.

    `first` is the number of its first example, where it is a block of a larger one.
    """
    if isinstance(split, StreamedSplit):  # its blocks are checked as they come
        check_labels(split, name, f"examples_{name}")
    elif isinstance(split, AttendedSplit):
        check_array(f"attended_{name}", split.attended, ("example", "path", "channel"), first)
        check_labels(split, name, f"attended_{name}")
        if not split.heads or min(split.heads) < 1:
            raise InputError("heads", list(split.heads), "give at least one head for each layer")
        paths = math.prod(split.heads)
        if split.attended.shape[1] != paths:
            remedy = (
                f"the shape must be [example, {paths}, channel]: the number of paths is the "
                f"product of heads = {list(split.heads)}"
            )
            raise InputError(f"attended_{name}", split.attended.shape, remedy)
    else:
        check_array(f"inputs_{name}", split.inputs, ("example", "token", "channel"), first)
        check_labels(split, name, f"inputs_{name}")
        check_matrices(split, name, first)
        if split.lengths is not None:
            check_padding(split, name, first)


def check_labels(split: AnySplit, name: str, examples_of: str) -> None:
    """Raise InputError unless there is a label for every example of the array named last."""
    if split.labels is not None:
        check_array(f"labels_{name}", split.labels, ("example", "output"))
        if split.labels.shape[0] != split.examples:
            remedy = f"give one label for each of the {split.examples} examples of {examples_of}"
            raise InputError(f"labels_{name}", split.labels.shape, remedy)
    elif name != "test":
        raise InputError(f"labels_{name}", None, "this split needs labels [example, output]")


def check_matrices(split: Split, name: str, first: int = 0) -> None:
    """Raise InputError unless the attention matrices fit the inputs."""
    if not split.attention:
        raise InputError(f"attention_{name}", (), "give attention matrices for at least one layer")
    for layer, matrices in enumerate(split.attention, start=1):
        field = f"attention_{name}_{layer}"
        check_array(field, matrices, ("example", "head", "key", "query"), first)
        heads = matrices.shape[1]
        expected = (split.examples, heads, split.tokens, split.tokens)
        if matrices.shape != expected:
            remedy = (
                f"the shape must be {expected}, [example, head, key, query], to fit inputs_{name}"
            )
            raise InputError(field, matrices.shape, remedy)


def check_padding(split: Split, name: str, first: int = 0) -> None:
    """Raise InputError unless lengths fit the tokens, and no token attends to padding."""
    field, lengths = f"lengths_{name}", split.lengths
    if lengths.dtype.kind not in "iu" or lengths.shape != (split.examples,):
        remedy = f"give the number of tokens of each of the {split.examples} examples, integers"
        raise InputError(field, Verbatim(f"({lengths.dtype} {lengths.shape})"), remedy)
    outside = np.flatnonzero((lengths < 1) | (lengths > split.tokens))
    if outside.size:
        place = int(outside[0])
        remedy = f"must be a number of tokens from 1 to {split.tokens}, as inputs_{name} has"
        raise InputError(f"{field}[{first + place}]", int(lengths[place]), remedy)
    real = within(lengths, split.tokens)
    for layer, matrices in enumerate(split.attention, start=1):
        refuse_attended_padding(f"attention_{name}_{layer}", matrices, real, first)


def check_agreement(train: AnySplit, other: AnySplit, name: str) -> None:
    """Raise InputError unless another split describes the same network and labels as training."""

    def same(array: str, received: object, fits: bool, remedy: str) -> None:
        if not fits:
            remedy = f"{remedy}, as in {array.format('train')}"
            raise InputError(array.format(name), received, remedy)

    has_tokens = train.tokens is not None
    if (other.tokens is not None) != has_tokens:
        wanted = "inputs and attention matrices" if has_tokens else "attended inputs"
        raise InputError(name, Verbatim("(another layout)"), f"must have {wanted}, as for training")
    fits = other.channels == train.channels
    data = "inputs_{}" if has_tokens else "attended_{}"
    same(data, other.shape, fits, f"use {train.channels} channels")
    if other.labels is not None:
        outputs, shape = train.labels.shape[1], other.labels.shape
        same("labels_{}", shape, shape[1] == outputs, f"use {outputs} outputs")
    if not has_tokens:
        same("heads", list(other.heads), other.heads == train.heads, f"use {list(train.heads)}")
        return
    layers, received = len(train.heads), len(other.heads)
    same("attention_{}", f"{received} layers", received == layers, f"give {layers} layers")
    for layer, (heads, theirs) in enumerate(zip(train.heads, other.heads, strict=True), start=1):
        fits = theirs == heads
        same(f"attention_{{}}_{layer}", f"{theirs} heads", fits, f"use {heads} heads")


def check_array(field: str, array: np.ndarray, axes: tuple[str, ...], first: int = 0) -> None:
    """Raise InputError unless the array is float64, finite, and has these axes, none empty.

    `first` is the number of its first example.
    """
    expected = f"[{', '.join(axes)}]"
    if not isinstance(array, np.ndarray) or array.dtype != np.float64:
        received = getattr(array, "dtype", type(array).__name__)
        raise InputError(field, str(received), f"must be a float64 array {expected}")
    if array.ndim != len(axes) or array.size == 0:
        remedy = f"the shape must be {expected}, with no axis of length 0"
        raise InputError(field, array.shape, remedy)
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(index) for index in np.argwhere(~finite)[0])
        remedy = f"every entry must be finite ({(~finite).sum()} of {array.size} are not)"
        raise InputError(f"{field}{[first + place[0], *place[1:]]}", float(array[place]), remedy)


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
