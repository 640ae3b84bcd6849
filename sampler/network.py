"""The network itself: its one forward pass, its path weights, and their overlaps."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import Architecture, order_parameter_names
from theory.path_kernels import sum_over_paths

# V_0 [N_1, D], V_l [head, N_{l+1}, N_l], a [output, N_a]
Weights = Mapping[str, Array]


def path_weights(
    weights: Weights, architecture: Architecture
) -> tuple[Float[Array, "_row _width"], ...]:
    """w_1 … w_L, w_{L+1} = a: the readout carried down each path, one row per (h_l … h_L, output).

    w_l^{(h_l, …)} = w_{l+1}^{(…)} V_l^{h_l} / √N_{l+1}; w_l is [p_l, N_l].
    """
    below = weights["a"]
    carried = [below]
    for layer in range(architecture.layers, 0, -1):
        values = weights[f"V_{layer}"]
        below = jnp.einsum("ri,hij->hrj", below, values) / jnp.sqrt(architecture.widths[layer])
        below = below.reshape(-1, below.shape[-1])
        carried.append(below)
    return tuple(reversed(carried))


def network_outputs(
    weights: Weights,
    attended: Float[Array | np.ndarray, "example path channel"],
    architecture: Architecture,
) -> Float[Array, "example output"]:
    """f_c(x) = Σ_π w_1^{(π,c)} · V_0 ξ^π(x) / √(Π N_1 D).

    Attention does not depend on sampled weights, so the network is linear in the attended inputs:
    contracting the weights first costs Π O N D products, whatever the number of examples, instead
    of one pass over the tokens per example.
    """
    arch, lowest = architecture, path_weights(weights, architecture)[0]
    # w_1^{(π,c)} V_0/√(Π N_1 D), which multiply the attended inputs of path π.
    scale = 1.0 / jnp.sqrt(float(arch.path_count * arch.widths[0] * arch.channels))
    effective = (lowest @ weights["V_0"]) * scale.astype(lowest.dtype)
    by_path = effective.reshape(arch.path_count, arch.outputs, arch.channels)
    return sum_over_paths(attended, by_path)


def overlaps(weights: Weights, architecture: Architecture) -> tuple[Float[Array, "_row _row"], ...]:
    """U_l = w_l w_lᵀ / N_l for l = 1 … L, and U_a = a aᵀ / N_a last."""
    return tuple(rows @ rows.T / rows.shape[1] for rows in path_weights(weights, architecture))


def named_order_parameters(
    matrices: tuple[Array | np.ndarray, ...],
) -> dict[str, Array | np.ndarray]:
    """U_1, U_2 …, U_a under the names they have in every stored table."""
    return dict(zip(order_parameter_names(len(matrices) - 1), matrices, strict=True))
