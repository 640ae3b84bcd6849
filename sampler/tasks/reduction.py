"""Fewer channels for attended inputs: the directions in which most of their variance lies.

K sees the channels of attended inputs only through σ_0² ξ^π(x)·ξ^π'(x')/(D Π). With orthonormal
directions V [channel, kept] of all paths together, ξ̂^π = √(D̂/D) Vᵀ ξ^π has D̂ channels and
    ξ̂^π(x)·ξ̂^π'(x')/D̂ = ξ^π(x)·V Vᵀ ξ^π'(x')/D,
so that path kernels keep their scale, and are equal where all directions with variance are kept.
What is left out is positive semi-definite; its share of the trace of K, at U_1 ∝ 1, is the share of
the second moment that no kept direction has.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.errors import InputError

# Share of the second moment that is kept by default, and the most channels.
SHARE, MOST = 0.99, 200
# Below this share of the largest one, an eigenvalue is rounding: products of float64 numbers that
# were stored as float32 have no more.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Directions:
    """Orthonormal directions of attended inputs, by falling share of the second moment.

    matrix  V [channel, kept]
    share   of the second moment that lies in them
    """

    matrix: Float[np.ndarray, "channel kept"]
    share: float

    def reduce(
        self, attended: Float[np.ndarray, "example path channel"]
    ) -> Float[np.ndarray, "example path kept"]:
        """Attended inputs with D̂ channels, √(D̂/D) Vᵀ ξ^π, in the precision of those given."""
        channels, kept = self.matrix.shape
        scaled = (kept / channels) ** 0.5 * self.matrix
        return np.asarray(attended @ scaled, dtype=attended.dtype)


def check_share(share: Any) -> None:
    """Raise InputError unless it is a share above 0."""
    is_number = isinstance(share, Real) and not isinstance(share, bool)
    if not is_number or not 0.0 < share <= 1.0:
        raise InputError("share", share, "must be above 0, and 1 at most")


def second_moment(
    blocks: Iterable[Float[np.ndarray, "_example path channel"]],
) -> Float[np.ndarray, "channel channel"]:
    """Σ ξ^π(x) ξ^π(x)ᵀ over paths and examples, in float64, block by block.

    Neither centred nor divided by the number of examples: K is not centred, and only shares count.
    """
    total: np.ndarray | float = 0.0
    for block in blocks:
        rows = np.reshape(block, (-1, block.shape[-1])).astype(np.float64)
        total = total + rows.T @ rows
    if isinstance(total, float):
        raise ValueError("no block of attended inputs: directions need at least one example")
    return total


def principal_directions(
    second_moment: Float[np.ndarray, "channel channel"], share: float = SHARE, most: int = MOST
) -> Directions:
    """Return the fewest directions with this share of a second moment, `most` of them at most.

    A share of 1 keeps every direction that has more than rounding. Raises InputError for a share or
    a number of directions that means nothing, and for inputs that are zero or not finite.
    """
    check_share(share)
    if most < 1:
        raise InputError("most", most, "must be 1 or more directions")
    if not np.isfinite(second_moment).all() or not second_moment.any():
        remedy = "attended inputs must be finite, and not all zero"
        raise InputError("second_moment", float(np.trace(second_moment)), remedy)
    values, vectors = np.linalg.eigh(second_moment)
    values, vectors = values[::-1], vectors[:, ::-1]
    values = np.where(values > ROUNDING * values[0], values, 0.0)
    shares = np.cumsum(values) / values.sum()
    enough = np.count_nonzero(values)
    if share < 1.0:
        enough = int(np.searchsorted(shares, share)) + 1
    kept = min(enough, most)
    return Directions(np.ascontiguousarray(vectors[:, :kept]), float(min(shares[kept - 1], 1.0)))
