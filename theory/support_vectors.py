"""The support-vector identity: attention is a regressor, its values are the coefficients.

ε-insensitive regression (`tube_regression`) of one label per key and channel, with the kernel
G_ij = s(k_i, k_j) / (h(k_i) h(k_j)) of `attention_kernel`, has the solution

    f(x) = Σ_j β_j s(x, k_j) / (h(x) h(k_j)) = Σ_j A(x, k_j) v_j,    v_j = β_j / h(k_j),

the attention of query x over the keys with values v: for every x, with no bias term, whatever the
labels. Channels are independent regressions. A key whose labels lie strictly inside the tube in
every channel has value 0 and can be removed from the sum over values, though not from h; the keys
with any β ≠ 0 are the support vectors.

Conversely, any values V are the solution of a regression: take β = V h and the labels
y = Gβ + ε sign β with any C > max|β|. For softmax and distinct keys it is the only solution; where
G is singular other β give the same f.

Source: arXiv 2406.13781; there with a bias b, which adds b to every value, since rows of A sum
to 1.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from theory.attention_kernel import Similarity, attention_kernel, attention_matrix, normalisers
from theory.tube_regression import solve_tube_regression


@dataclass(frozen=True)
class SupportVectorAttention:
    """Attention whose values solve a regression.

    `residual` is the largest violation of the optimality conditions, `rounding` what rounding can
    add to y − f(k) whenever it is computed, both in units of the labels.
    """

    keys: Float[np.ndarray, "key channel"]
    labels: Float[np.ndarray, "key value_channel"]
    coefficients: Float[np.ndarray, "key value_channel"]
    tube: float
    similarity: Similarity
    residual: float
    rounding: float

    @property
    def values(self) -> Float[np.ndarray, "key value_channel"]:
        """Values v_j = β_j / h(k_j)."""
        return self.coefficients / normalisers(self.keys, self.similarity)[:, None]

    @property
    def support_vectors(self) -> tuple[int, ...]:
        """The keys with β_j ≠ 0 in any channel."""
        return tuple(int(key) for key in np.flatnonzero(self.coefficients.any(axis=1)))

    @property
    def inside_tube(self) -> Bool[np.ndarray, "key value_channel"]:
        """Where |y − f(k)| < ε by more than residual and rounding can explain."""
        errors = self.labels - self.regressor(self.keys)
        return np.abs(errors) < self.tube - self.residual - self.rounding

    def regressor(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Regressor f(x) = Σ_j β_j s(x, k_j) / (h(x) h(k_j))."""
        return attention_kernel(queries, self.keys, self.similarity) @ self.coefficients

    def attend(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Σ_j A(x, k_j) v_j, which is the regressor."""
        return attention_matrix(queries, self.keys, self.similarity) @ self.values


def support_vector_attention(
    keys: Float[np.ndarray, "key channel"],
    labels: Float[np.ndarray, "key value_channel"],
    tube: float,
    bound: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> SupportVectorAttention:
    """The attention that regresses labels at the keys: min ½βᵀGβ − yᵀβ + ε|β|₁ over |β| ≤ C.

    Raises ValueError for keys too large for float64, a negative tube or a bound that is not
    positive, and RuntimeError where the optimality conditions are not met to rounding.
    """
    kernel = attention_kernel(keys, keys, similarity)
    channels = [solve_tube_regression(kernel, column, tube, bound) for column in labels.T]
    return SupportVectorAttention(
        keys=keys,
        labels=labels,
        coefficients=np.stack([channel.coefficients for channel in channels], axis=1),
        tube=tube,
        similarity=similarity,
        residual=max(channel.residual for channel in channels),
        rounding=max(channel.rounding for channel in channels),
    )


def regression_of_attention(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    tube: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> tuple[Float[np.ndarray, "key value_channel"], Float[np.ndarray, "key value_channel"]]:
    """Coefficients β = V h and labels y = Gβ + ε sign β of a regression solved by these values.

    They solve it for every C ≥ max|β|.
    """
    coefficients = values * normalisers(keys, similarity)[:, None]
    fit = attention_kernel(keys, keys, similarity) @ coefficients
    return coefficients, fit + tube * np.sign(coefficients)
