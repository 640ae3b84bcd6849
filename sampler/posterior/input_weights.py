"""The input projection V_0 given all other weights and the labels: an exact Gaussian draw."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.posterior.standard_normals import standard_normals
from theory.energy import LabelEnergy


def draw_input_weights(
    key: Array,
    lowest: Float[Array, "row width"],
    factor: Float[Array, "row rank"],
    energy: LabelEnergy,
    features: Float[Array, "example path channel"],
    input_variance: float,
) -> Float[Array, "width channel"]:
    """V_0 from p(V_0 | V_1 … V_L, a, y) by Matheron's rule.

    With V and ε drawn from the prior and from N(0, 𝒯), and f_V the network that has V as its input
    projection,
        V_0 = V + σ_0/√N_1 Σ_{μc} α_{μc} Σ_π w_1^{(π,c)} φ^π(x_μ)ᵀ,  α = (K + 𝒯 1)⁻¹ (y − f_V − ε).

    lowest    w_1, the path weights of the lowest layer
    factor    any F with F Fᵀ = w_1 w_1ᵀ/N_1
    features  φ^π(x_μ) of the training examples
    """
    _, paths, channels = features.shape
    width = lowest.shape[1]
    shapes = {"V_0": (width, channels), "noise": energy.labels.shape}
    normal = standard_normals(key, shapes, lowest.dtype)
    by_path = (lowest @ normal["V_0"] / width**0.5).reshape(paths, -1, channels)
    noisy_prior = jnp.einsum("xpi,pci->xc", features, by_path)
    noisy_prior += jnp.sqrt(energy.temperature) * normal["noise"]
    alpha = energy.noisy_kernel(factor).solve((energy.labels - noisy_prior).reshape(-1))
    pulled_back = jnp.einsum("xpi,xc->pci", features, alpha.reshape(energy.labels.shape))
    correction = lowest.T @ pulled_back.reshape(lowest.shape[0], channels) / width**0.5
    return input_variance**0.5 * (normal["V_0"] + correction)
