"""The action of the order parameters, whose minimum is the theory's prediction."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Num

from theory.architecture import Architecture
from theory.energy import LabelEnergy
from theory.order_parameters import OrderParameters


def entropy_terms(
    order_parameters: OrderParameters,
    heads: Sequence[int],
    widths: Sequence | Num[Array, " above"],
    variances: Sequence | Num[Array, " above"],
) -> Float[Array, ""]:
    """The part of the action that does not see the data.

    N_a (tr U_a/σ_a² − ln det U_a)
      + Σ_l N_l ( tr[U_{l+1}⁻¹ Tr_h U_l]/σ_l² − ln det U_l + H_l ln det U_{l+1} )

    heads [layer], widths N_1 … N_L, N_a and variances σ_1² … σ_L², σ_a² [layer + 1]; widths and
    variances may be traced, so one compilation serves every width. With U_l = F_l F_lᵀ the partial
    trace is Σ_h |F_{l+1}⁻¹ F_l[h]|², F_l[h] the rows of head h: nothing is inverted.
    Source: arXiv 2405.15926, action.
    """
    *factors, above = order_parameters.factors
    total = widths[-1] * (jnp.sum(above**2) / variances[-1] - log_determinant(above))
    for layer in reversed(range(len(heads))):
        factor, head_count, rows = factors[layer], heads[layer], above.shape[0]
        by_head = factor.reshape(head_count, rows, head_count * rows)
        whitened = solve_triangular(above, by_head.transpose(1, 0, 2).reshape(rows, -1), lower=True)
        total += widths[layer] * (
            jnp.sum(whitened**2) / variances[layer]
            - log_determinant(factor)
            + head_count * log_determinant(above)
        )
        above = factor
    return total


def log_determinant(factor: Float[Array, "n n"]) -> Float[Array, ""]:
    """ln det(F Fᵀ) of a Cholesky factor."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))


def action(
    order_parameters: OrderParameters, architecture: Architecture, energy: LabelEnergy
) -> Float[Array, ""]:
    """A(U_a, U_L … U_1) = entropy terms + ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y.

    Not divided by a width. Source: arXiv 2405.15926, action (there written for one width).
    """
    entropy = entropy_terms(
        order_parameters,
        architecture.heads,
        architecture.widths,
        architecture.order_parameter_variances,
    )
    return entropy + energy(order_parameters.factors[0])
