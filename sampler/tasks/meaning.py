"""Numbers that are brought: those refused for meaning nothing here, and those that are doubtful.

Attention is [key, query]: the weights of a query sum to 1 over keys. The class of one output is its
sign. Other programs have [query, key], and classes 0 and 1, or numbered.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.padding import within
from sampler.errors import InputError, Verbatim

# Weights in bfloat16, of eight digits, sum to 1 up to so much, and somewhat less exact ones too.
ROUNDED = 2.0**-7
# The squares of larger numbers, summed, may exceed the largest there is.
LARGEST = 1e150


def refuse_huge(field: str, array: Float[np.ndarray, "..."], first: int = 0) -> None:
    """Raise InputError for a finite number whose square may not be one.

    `first` is the number of the first example.
    """
    outside = np.argwhere(np.abs(array) > LARGEST)
    if len(outside):
        example, *place = map(int, outside[0])
        remedy = f"must not exceed {LARGEST:g}; divide all of this array, or mark what is missing"
        raise InputError(f"{field}{[first + example, *place]}", float(array[*outside[0]]), remedy)


def refuse_zero(nonzero: Mapping[str, bool]) -> None:
    """Raise InputError, naming it, for an array without a number but 0: so were every output."""
    for field, has_numbers in nonzero.items():
        if not has_numbers:
            raise InputError(field, 0.0, "is zero throughout; store what the network computed")


def refuse_other_classes(
    train: Float[np.ndarray, "..."], other: Float[np.ndarray, "..."], name: str
) -> None:
    """Raise InputError where one of two splits has classes −1 and 1, and the other 0 and 1."""
    signs, bits = (-1.0, 1.0), (0.0, 1.0)
    for one, two in ((signs, bits), (bits, signs)):
        # The first of each pair is not among the others.
        if all(
            np.isin(labels, pair).all() and (labels == pair[0]).any()
            for labels, pair in ((train, one), (other, two))
        ):
            remedy = (
                f"must mean what labels_train does, {one[0]:g} and {one[1]:g}: store the same "
                "numbers for the same classes"
            )
            raise InputError(f"labels_{name}", Verbatim(f"{two[0]:g} and {two[1]:g}"), remedy)


def concerns_of(
    splits: Mapping[str, Iterable[Float[np.ndarray, "_example _head _key _query"]]],
    lengths: Mapping[str, Int[np.ndarray, " _example"] | None],
    labels: Float[np.ndarray, "example output"],
) -> tuple[str, ...]:
    found = []
    for name, attention in splits.items():
        for layer, matrices in enumerate(attention, start=1):
            count = int(transposed_heads(matrices, lengths[name]).sum())
            if count:
                heads = f"{count} of {matrices.shape[1]} heads"
                found.append(f"attention_{name}_{layer} ({heads})")
    transposed = (
        f"{', '.join(found)}: sums over queries are 1 and sums over keys are not, as of [query, "
        "key] from PyTorch; [example, head, key, query] is read: swap the last two axes"
    )
    return (*([transposed] if found else []), *concerns_of_labels(labels))


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


def concerns_of_labels(labels: Float[np.ndarray, "example output"]) -> tuple[str, ...]:
    """Say so where the labels of one output look like the numbers of classes."""
    values = np.unique(labels)
    numbers = np.arange(len(values)) + values[0]
    if labels.shape[1] > 1 or len(values) < 2 or values[0] not in (0.0, 1.0):
        return ()
    if len(labels) < 2 * len(values) or not np.array_equal(values, numbers):
        return ()
    if len(values) == 2:
        said = f"labels_train are {values[0]:g} and {values[1]:g}"
        remedy = "where they are classes, store −1 and +1: the class of an output is its sign"
    else:
        said = f"labels_train are the whole numbers {values[0]:g} … {values[-1]:g} in one output"
        remedy = "where they are classes, give each an output, +1 for it and −1 for others"
    return (f"{said}, taken as numbers: {remedy}",)
