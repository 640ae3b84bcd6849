"""The optimality conditions of support-vector regression as a complementarity problem.

The regression of `support_vectors`, with multipliers α_i of the upper edge of the tube and α̃_i of
the lower one, errors ξ_i and ξ̃_i beyond them, and f = G(α − α̃):

    0 ≤ α_i  ⊥  ε + ξ_i − (y_i − f_i) ≥ 0        0 ≤ ξ_i  ⊥  C − α_i ≥ 0
    0 ≤ α̃_i  ⊥  ε + ξ̃_i + (y_i − f_i) ≥ 0        0 ≤ ξ̃_i  ⊥  C − α̃_i ≥ 0

where a ⊥ b says a·b = 0. Together: find z = (α, α̃, ξ, ξ̃) ≥ 0 with w = M z + q ≥ 0 and z·w = 0,

        ⎛  G  −G   1   0 ⎞        ⎛ ε − y ⎞
    M = ⎜ −G   G   0   1 ⎟    q = ⎜ ε + y ⎟
        ⎜ −1   0   0   0 ⎟        ⎜   C   ⎟
        ⎝  0  −1   0   0 ⎠        ⎝   C   ⎠

a linear complementarity problem. M + Mᵀ is positive semi-definite: its solutions are a convex set,
with a single f, and for ε > 0 no key has both multipliers.

In terms of attention f is A V, what attention gives to the keys themselves, and the multipliers are
α − α̃ = h V. The conditions then read: a token whose output misses its label by less than ε has
value 0; one with a value 0 < |v_i| < C/h(k_i) misses it by exactly ε, on the side of the sign of
v_i; one that misses it by more has the largest value there is, |v_i| = C/h(k_i). A key with many
others near it has a large h, and so may have a small value only.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class ComplementarityProblem:
    """M and q: find z ≥ 0 with w = M z + q ≥ 0 and z·w = 0."""

    matrix: Float[np.ndarray, "unknown unknown"]
    offset: Float[np.ndarray, " unknown"]

    def slack(self, unknowns: Float[np.ndarray, " unknown"]) -> Float[np.ndarray, " unknown"]:
        """The other factor, w = M z + q."""
        return self.matrix @ unknowns + self.offset


def complementarity_problem(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    bound: float,
) -> ComplementarityProblem:
    """M and q of the regression with kernel G, labels y, tube ε and bound C."""
    one, nothing = np.eye(len(labels)), np.zeros_like(kernel)
    matrix = np.block(
        [
            [kernel, -kernel, one, nothing],
            [-kernel, kernel, nothing, one],
            [-one, nothing, nothing, nothing],
            [nothing, -one, nothing, nothing],
        ]
    )
    offset = np.concatenate([tube - labels, tube + labels, np.full(2 * len(labels), bound)])
    return ComplementarityProblem(matrix, offset)


def unknowns_of(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    coefficients: Float[np.ndarray, " key"],
) -> Float[np.ndarray, " unknown"]:
    """The z = (α, α̃, ξ, ξ̃) of β = α − α̃: positive and negative part, errors beyond the tube."""
    errors = labels - kernel @ coefficients
    parts = (coefficients, -coefficients, errors - tube, -errors - tube)
    return np.maximum(np.concatenate(parts), 0.0)
