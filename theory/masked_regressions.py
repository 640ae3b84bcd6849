"""The support-vector identity for attention whose queries may see only some keys.

A query that sees the keys S attends exactly as the regressor over S alone does: with
h_S(x) = Σ_{j∈S} s(x, k_j), the values are v_j = β_j^S / h_S(k_j). One set of values, shared by all
queries, is therefore as many regressions as there are sets of visible keys:

    β_j^S = v_j h_S(k_j),    y^S = G^S β^S + ε sign β^S,    G^S_ij = s(k_i, k_j)/(h_S(k_i) h_S(k_j))

The signs are those of v in every one of them, so a key is a support vector of all the regressions
that contain it or of none; sizes of β and labels differ from set to set. It follows that no single
list of labels yields a masked attention in general: the same labels regressed on two sets give a
key two values.

One regression for all queries needs the kernel m_ij s(k_i, k_j)/(h_i h_j), h_i over what query i
sees, to be symmetric and positive semi-definite. For all keys alike that is so if and only if the
mask splits the tokens into groups that see all of their own and nothing else: equal keys make the
kernel the mask up to positive factors, and a symmetric 0-1 matrix with i ~ j ~ k but not i ~ k has
a 3 × 3 minor of determinant −1; of groups, on the other hand, the kernel is made block by block.
Padding is such a mask, causal and windowed masks are not. (This project's own derivation.)
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from theory.attention_kernel import Similarity
from theory.masks import require_visible_keys
from theory.support_vectors import regression_of_attention


@dataclass(frozen=True)
class VisibleRegression:
    """The regression behind the queries that see one set of keys, named by their indices."""

    visible: tuple[int, ...]
    queries: tuple[int, ...]
    coefficients: Float[np.ndarray, "_visible value_channel"]
    labels: Float[np.ndarray, "_visible value_channel"]


def masked_regressions(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    mask: Bool[np.ndarray, "query key"],
    tube: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> tuple[VisibleRegression, ...]:
    """One regression per set of visible keys, in the order in which queries first see them.

    Raises ValueError where a query sees no key.
    """
    require_visible_keys(mask)
    queries: dict[tuple[int, ...], list[int]] = {}
    for query, row in enumerate(mask):
        visible = tuple(int(key) for key in np.flatnonzero(row))
        queries.setdefault(visible, []).append(query)
    return tuple(
        VisibleRegression(
            visible,
            tuple(seeing),
            *regression_of_attention(keys[list(visible)], values[list(visible)], tube, similarity),
        )
        for visible, seeing in queries.items()
    )


def is_one_regression(mask: Bool[np.ndarray, "token token"]) -> bool:
    """Whether the mask splits the tokens into groups: one regression then holds for all queries.

    Each token must see itself, and tokens that see one another must see the same keys.
    """
    seen = mask[:, None, :] == mask[None, :, :]
    return bool(np.all(np.diag(mask)) and np.all(mask == mask.T) and np.all(seen.all(-1) | ~mask))
