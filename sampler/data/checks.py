"""Requirements on the arrays of a split, and warnings about suspicious ones.

Attention is [key, query]: the weights of a query sum to 1 over keys. The class of one output is its
sign. Other programs have [query, key], and classes 0 and 1.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.padding import refuse_attended_padding, within
from sampler.data.examples import AnyExamples, Examples, StreamedExamples
from sampler.errors import InputError, Verbatim

# Weights in bfloat16, of eight digits, sum to 1 up to so much, and somewhat less exact ones too.
ROUNDED = 2.0**-7
# What has a square.
LARGEST = math.sqrt(np.finfo(np.float64).max)
# An array of a split, its name, and its axes: those of one name are equally long.
NamedArray = tuple[str, Any, tuple[str, ...]]


def check_examples(split: AnyExamples, name: str, first: int = 0) -> None:
    """Raise InputError unless the arrays of a split are finite and fit together.

    Of a streamed split these are its labels: its blocks are checked as they come, and `first` is
    the number of the first example of such a block.
    """
    sizes: dict[str, int] = {}
    if isinstance(split, StreamedExamples):
        sizes["example"] = split.examples
    elif split.path_heads is not None:
        if min(split.heads, default=0) < 1:
            raise InputError("heads", list(split.heads), "give at least one head for each layer")
        sizes["path"] = math.prod(split.heads)
    for field, array, axes in named_arrays(split, name):
        check_array(field, array, axes, sizes, first)
    refuse_overflow(split, name)
    if isinstance(split, Examples) and split.lengths is not None:
        check_padding(split, name, first)


def named_arrays(split: AnyExamples, name: str) -> Iterator[NamedArray]:
    """Yield the arrays of a split that are held, under their names in a file."""
    is_held = isinstance(split, Examples)
    if is_held:
        what, axis = ("inputs", "token") if split.path_heads is None else ("attended", "path")
        yield f"{what}_{name}", split.inputs, ("example", axis, "channel")
    if split.labels is not None or name != "test":
        yield f"labels_{name}", split.labels, ("example", "output")
    if is_held:
        for layer, matrices in enumerate(split.attention, start=1):
            axes = ("example", f"head of layer {layer}", "token", "token")
            yield f"attention_{name}_{layer}", matrices, axes
        if split.lengths is not None:
            yield f"lengths_{name}", split.lengths, ("example",)


def check_array(
    field: str, array: Any, axes: tuple[str, ...], sizes: dict[str, int], first: int
) -> None:
    """Raise InputError unless an array is finite and has these axes, none empty.

    sizes  of the axes of arrays before it, to which those of this one are added
    first  number of its first example
    """
    dtype, is_whole = getattr(array, "dtype", None), axes == ("example",)
    if dtype is None or not (dtype.kind in "iu" if is_whole else dtype == np.float64):
        wanted = "integers" if is_whole else "float64"
        raise InputError(field, Verbatim(f"({dtype})"), f"must be an array of {wanted}")
    fits = array.ndim == len(axes) and array.size > 0
    for axis, size in zip(axes, array.shape, strict=False):
        fits = fits and sizes.setdefault(axis, size) == size
    if not fits:
        agreed = [f"{sizes[axis]} for {axis}" for axis in dict.fromkeys(axes) if axis in sizes]
        remedy = f"the shape must be [{', '.join(axes)}], with no axis of length 0"
        raise InputError(field, array.shape, "; ".join([remedy, *agreed]))
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(index) for index in np.argwhere(~finite)[0])
        remedy = f"every entry must be finite ({(~finite).sum()} of {array.size} are not)"
        raise InputError(f"{field}{[first + place[0], *place[1:]]}", float(array[place]), remedy)


def largest(array: np.ndarray) -> float:
    """Largest absolute value, without a copy."""
    return float(max(array.max(), -array.min()))


def largest_attended(split: Examples) -> float:
    """A bound of attended inputs: inputs times column sums of |Ω|.

    Infinite where it overflows; that of the inputs themselves, where attention makes them smaller.
    """
    size = largest(split.inputs)
    with np.errstate(over="ignore"):
        for matrices in split.attention:
            weights = matrices if matrices.min() >= 0.0 else np.abs(matrices)
            size *= max(1.0, float(weights.sum(axis=2).max()))
    return size


def refuse_overflow(split: AnyExamples, name: str) -> None:
    """Raise InputError where sums of squares of attended inputs, or of labels, overflow."""
    sizes = []
    if isinstance(split, Examples):
        field = "inputs" if split.path_heads is None else "attended"
        of_inputs = largest(split.inputs), largest_attended(split), split.inputs.size
        sizes.append((f"{field}_{name}", *of_inputs))
    if split.labels is not None:
        size = largest(split.labels)
        sizes.append((f"labels_{name}", size, size, split.labels.size))
    for field, value, size, numbers in sizes:
        if not size * math.sqrt(numbers) < LARGEST:
            remedy = "squares overflow; scale inputs and labels to a size of about 1"
            if size > 1.1 * value:
                remedy = f"attention makes them as large as {size:.2g}: {remedy}"
            raise InputError(field, Verbatim(f"(numbers up to {value:.2g})"), remedy)


def check_padding(split: Examples, name: str, first: int) -> None:
    """Raise InputError unless lengths fit the tokens, and no token attends to padding."""
    lengths = split.lengths
    outside = np.flatnonzero((lengths < 1) | (lengths > split.tokens))
    if outside.size:
        place = int(outside[0])
        remedy = f"must be a number of tokens from 1 to {split.tokens}, as inputs_{name} has"
        raise InputError(f"lengths_{name}[{first + place}]", int(lengths[place]), remedy)
    real = within(lengths, split.tokens)
    for layer, matrices in enumerate(split.attention, start=1):
        refuse_attended_padding(f"attention_{name}_{layer}", matrices, real, first)


def check_agreement(train: AnyExamples, other: AnyExamples, name: str) -> None:
    """Raise InputError unless another split describes the same network and labels as training."""
    data = "attended" if train.tokens is None else "inputs"
    layouts = ["attended inputs" if split.tokens is None else "tokens" for split in (train, other)]
    compared = [
        (name, "layout", *layouts),
        (f"{data}_{name}", "channels", train.channels, other.channels),
        (f"attention_{name}", "layers", len(train.heads), len(other.heads)),
    ]
    for layer, heads in enumerate(zip(train.heads, other.heads, strict=False), start=1):
        compared.append((f"attention_{name}_{layer}", "heads", *heads))
    if other.labels is not None:
        outputs = train.labels.shape[1], other.labels.shape[1]
        compared.append((f"labels_{name}", "outputs", *outputs))
    for field, what, expected, received in compared:
        if received != expected:
            remedy = f"there must be {expected}, as for training"
            raise InputError(field, Verbatim(f"({what}: {received})"), remedy)


# --- doubts


def data_doubts(
    splits: Mapping[str, Examples], labels: Float[np.ndarray, "example output"]
) -> tuple[str, ...]:
    """Attention that looks transposed, and labels of one output that are 0 and 1."""
    transposed = []
    for name, split in splits.items():
        for layer, matrices in enumerate(split.attention, start=1):
            count = int(transposed_heads(matrices, split.lengths).sum())
            if count:
                heads = f"{count} of {matrices.shape[1]} heads"
                transposed.append(f"attention_{name}_{layer} ({heads})")
    doubts = []
    if transposed:
        doubts.append(
            f"{', '.join(transposed)}: sums over queries are 1 and sums over keys are not, as of "
            "[query, key] from PyTorch; [example, head, key, query] is read: swap the last two axes"
        )
    if labels.shape[1] == 1 and np.unique(labels).tolist() == [0.0, 1.0]:
        doubts.append(
            "labels_train are 0 and 1, taken as numbers: where they are classes, store −1 and +1: "
            "the class of an output is its sign"
        )
    return tuple(doubts)


def transposed_heads(
    matrices: Float[np.ndarray, "example head token token"],
    lengths: Int[np.ndarray, " example"] | None,
) -> np.ndarray:
    """Tell of each head whether it looks transposed.

    Sums over queries are 1 in all examples, and those over keys are not. Padding does not count.
    """
    examples, _, tokens, _ = matrices.shape
    real = within(np.full(examples, tokens) if lengths is None else lengths, tokens)

    def is_one(axis: int) -> np.ndarray:
        close = np.abs(matrices.sum(axis=axis) - 1.0) <= ROUNDED
        return (close | ~real[:, None]).all(axis=(0, 2))

    over_keys, over_queries = is_one(2), is_one(3)
    return over_queries & ~over_keys
