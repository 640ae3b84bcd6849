"""The posterior of all weights with a forward pass through every layer and every token.

This is how the network is defined, and what a NumPyro user would write: the order of products is
left to `einsum`, and of the last layer only the token that is read is computed. It defines the
same posterior as `sampler.posterior.weights`, from inputs and attention matrices.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from theory import Architecture


def token_by_token_model(
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head token token"], ...],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""],
    architecture: Architecture,
) -> None:
    """Gaussian priors and the tempered likelihood; the output is read from the last token.

    z^1 = V_0 x/√D,   z^{l+1} = Σ_h V_l^h z^l Ω^{l,h} / √(H_l N_l),   f = a z^{L+1}_last / √N_a
    """
    arch = architecture
    weights = {}
    for name, shape in arch.weight_shapes.items():
        scale = jnp.asarray(arch.weight_variances[name] ** 0.5, labels.dtype)
        prior = dist.Normal(jnp.zeros(shape, labels.dtype), scale).to_event(len(shape))
        weights[name] = numpyro.sample(name, prior)
    hidden = jnp.einsum("ni,xti->xnt", weights["V_0"], inputs) / arch.channels**0.5
    for layer, heads in enumerate(arch.heads):
        omega, values = attention[layer], weights[f"V_{layer + 1}"]
        if layer + 1 == arch.layers:
            omega = omega[..., -1:]  # no other token of the last layer is ever read
        hidden = jnp.einsum("hmn,xnk,xhkq->xmq", values, hidden, omega)
        hidden = hidden / (heads * arch.widths[layer]) ** 0.5
    outputs = hidden[:, :, 0] @ weights["a"].T / arch.widths[-1] ** 0.5
    numpyro.sample("y", dist.Normal(outputs, jnp.sqrt(temperature)).to_event(2), obs=labels)
