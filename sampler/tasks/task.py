"""The container that every task fills and that theory and sampler read."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

import numpy as np

from sampler.errors import InputError
from sampler.transformer.frozen import FrozenNetwork


@dataclass(frozen=True)
class Split:
    """The examples of one split: training, validation or test.

    inputs     [example, token, channel], float64
    labels     [example, output], float64; None where a test split has no labels
    attention  one array [example, head, key, query] per layer, float64
    """

    inputs: np.ndarray
    labels: np.ndarray | None
    attention: tuple[np.ndarray, ...]

    @property
    def examples(self) -> int:
        return self.inputs.shape[0]

    @property
    def tokens(self) -> int:
        return self.inputs.shape[1]

    @property
    def channels(self) -> int:
        return self.inputs.shape[2]


@dataclass(frozen=True)
class Task:
    """Training and test data with the attention matrices that the inputs fix.

    head_names has one tuple of names per layer; path_names follows the flat path order, the head
    of layer 1 varying slowest. Layers are those of value weights: an attention whose entry of
    `hypernetworks` is true serves two of them, which so have the same heads (none is without it).
    Settings are chosen on `validation`, which has labels (None: there
    is no such split). `trained` is the network that the attention comes from, where there is one,
    and `nearest_neighbour` ±1 as the nearest support of each test episode says, 0 for a tie.
    Raises InputError, naming the array, if anything does not fit.
    """

    train: Split
    test: Split
    head_names: tuple[tuple[str, ...], ...]
    path_names: tuple[str, ...]
    validation: Split | None = None
    trained: FrozenNetwork | None = None
    nearest_neighbour: np.ndarray | None = None
    hypernetworks: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        check_split(self.train, "train")
        if self.hypernetworks is not None and len(self.hypernetworks) != len(self.train.attention):
            raise InputError(
                "hypernetworks",
                self.hypernetworks,
                f"say it for each of the {len(self.train.attention)} layers of attention",
            )
        for name, split in (("test", self.test), ("validation", self.validation)):
            if split is not None:
                check_split(split, name)
                check_agreement(self.train, split, name)
        if tuple(map(len, self.head_names)) != self.heads:
            raise InputError(
                "head_names", self.head_names, f"name the heads of each layer, {self.heads} in all"
            )
        paths = int(np.prod(self.heads))
        if len(self.path_names) != paths or len(set(self.path_names)) != paths:
            raise InputError("path_names", self.path_names, f"give {paths} different names")

    @property
    def pairs(self) -> tuple[bool, ...]:
        """Whether each layer of attention serves two layers of weights."""
        return self.hypernetworks or (False,) * len(self.train.attention)

    @property
    def layers(self) -> int:
        return len(self.heads)

    @property
    def heads(self) -> tuple[int, ...]:
        """The number of heads of each layer."""
        heads = tuple(matrices.shape[1] for matrices in self.train.attention)
        return paired(heads, self.pairs)

    @property
    def outputs(self) -> int:
        return self.train.labels.shape[1]

    @property
    def channels(self) -> int:
        return self.train.channels

    @property
    def splits(self) -> tuple[Split, ...]:
        """Training, test and, where there is one, validation split."""
        return tuple(s for s in (self.train, self.test, self.validation) if s is not None)

    @property
    def checksum(self) -> str:
        """SHA-256 of every number."""
        checksum = hashlib.sha256()
        for split in self.splits:
            for array in (split.inputs, split.labels, *split.attention):
                if array is not None:
                    checksum.update(repr((array.shape, array.dtype.str)).encode())
                    checksum.update(np.ascontiguousarray(array).data)
        return checksum.hexdigest()


def name_paths(
    head_names: tuple[tuple[str, ...], ...],
    known: Mapping[tuple[str, ...], str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Names of all paths in flat order: a known name, or the names of the heads on the path."""
    return tuple(known.get(path, "·".join(path)) for path in product(*head_names))


def paired(of_attention: tuple, hypernetworks: tuple[bool, ...]) -> tuple:
    """One entry per layer of attention as one per layer of weights: twice in a hypernetwork."""
    return tuple(
        entry
        for entry, is_pair in zip(of_attention, hypernetworks, strict=True)
        for _ in range(1 + is_pair)
    )


def check_split(split: Split, name: str) -> None:
    """Raise InputError unless the arrays of a split are finite and their shapes fit together."""
    check_array(f"inputs_{name}", split.inputs, ("example", "token", "channel"))
    if split.labels is not None:
        check_array(f"labels_{name}", split.labels, ("example", "output"))
        if split.labels.shape[0] != split.examples:
            raise InputError(
                f"labels_{name}",
                split.labels.shape,
                f"give one label for each of the {split.examples} examples of inputs_{name}",
            )
    elif name != "test":
        raise InputError(f"labels_{name}", None, "this split needs labels [example, output]")
    if not split.attention:
        raise InputError(f"attention_{name}", (), "give attention matrices for at least one layer")
    for layer, matrices in enumerate(split.attention, start=1):
        field = f"attention_{name}_{layer}"
        check_array(field, matrices, ("example", "head", "key", "query"))
        heads = matrices.shape[1]
        expected = (split.examples, heads, split.tokens, split.tokens)
        if matrices.shape != expected:
            raise InputError(
                field,
                matrices.shape,
                f"the shape must be {expected}, [example, head, key, query], to fit inputs_{name}",
            )


def check_agreement(train: Split, other: Split, name: str) -> None:
    """Raise InputError unless another split describes the same network and labels as training."""
    if other.channels != train.channels:
        raise InputError(
            f"inputs_{name}",
            other.inputs.shape,
            f"use {train.channels} channels, as in inputs_train",
        )
    if other.labels is not None and other.labels.shape[1] != train.labels.shape[1]:
        raise InputError(
            f"labels_{name}",
            other.labels.shape,
            f"use {train.labels.shape[1]} outputs, as in labels_train",
        )
    if len(other.attention) != len(train.attention):
        raise InputError(
            f"attention_{name}",
            f"{len(other.attention)} layers",
            f"give {len(train.attention)} layers, as in attention_train",
        )
    for layer, (ours, theirs) in enumerate(zip(train.attention, other.attention, strict=True)):
        if theirs.shape[1] != ours.shape[1]:
            raise InputError(
                f"attention_{name}_{layer + 1}",
                theirs.shape,
                f"use {ours.shape[1]} heads, as in attention_train_{layer + 1}",
            )


def check_array(field: str, array: np.ndarray, axes: tuple[str, ...]) -> None:
    """Raise InputError unless the array is float64, finite, and has these axes, none empty."""
    expected = f"[{', '.join(axes)}]"
    if not isinstance(array, np.ndarray) or array.dtype != np.float64:
        received = getattr(array, "dtype", type(array).__name__)
        raise InputError(field, str(received), f"must be a float64 array {expected}")
    if array.ndim != len(axes) or array.size == 0:
        raise InputError(
            field, array.shape, f"the shape must be {expected}, with no axis of length 0"
        )
    # The sum of a finite array of moderate numbers is finite: one pass, no array of booleans.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(index) for index in np.argwhere(~finite)[0])
        raise InputError(
            f"{field}{list(place)}",
            float(array[place]),
            f"every entry must be finite ({(~finite).sum()} of {array.size} are not)",
        )
