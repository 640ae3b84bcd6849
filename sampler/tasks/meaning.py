"""What is doubtful about arrays that are brought.

Attention is [key, query]: the weights of a query sum to 1 over keys. The class of one output is its
sign. Other programs have [query, key], and classes 0 and 1.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.padding import within

# Weights in bfloat16, of eight digits, sum to 1 up to so much, and somewhat less exact ones too.
ROUNDED = 2.0**-7


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
    """Say so where the labels of one output are 0 and 1."""
    if labels.shape[1] > 1 or np.unique(labels).tolist() != [0.0, 1.0]:
        return ()
    remedy = "where they are classes, store −1 and +1: the class of an output is its sign"
    return (f"labels_train are 0 and 1, taken as numbers: {remedy}",)
