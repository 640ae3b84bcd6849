"""Output and overlaps of the network that gradient descent made."""

import jax.numpy as jnp
import numpy as np

from sampler.network import overlaps
from sampler.network import predict as predict_from_paths
from sampler.transformer.frozen import FrozenNetwork
from theory import Architecture


def architecture_of(network: FrozenNetwork) -> Architecture:
    """The trained network's own widths; its weights have no prior."""
    return Architecture(
        heads=network.heads,
        widths=network.widths,
        variances=(1.0,) * (len(network.heads) + 2),
        channels=network.channels,
        outputs=network.weights["a"].shape[0],
    )


def as_arrays(network: FrozenNetwork) -> dict:
    return {name: jnp.asarray(values) for name, values in network.weights.items()}


def trained_overlap(network: FrozenNetwork) -> np.ndarray:
    """U_GD = w_1 w_1ᵀ/N_1 [path, path]: the overlap that the posterior of U_1 is about."""
    return np.asarray(overlaps(as_arrays(network), architecture_of(network))[0])


def trained_predictor(network: FrozenNetwork, attended) -> np.ndarray:
    """f of the trained network on attended inputs, [example, output]."""
    return np.asarray(predict_from_paths(as_arrays(network), attended, architecture_of(network)))
