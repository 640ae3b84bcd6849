"""The trained network in the theory's terms: its attention as given, its other weights by name."""

import numpy as np

from sampler.attention.softmax import softmax_attention
from sampler.transformer.shape import Parameters, TransformerShape


def frozen_attention(parameters: Parameters, inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """Ω of every layer, [example, head, key, query], float64, from inputs x_0 and W_Q, W_K."""
    layers = sum(name.startswith("W_V_") for name in parameters)
    return tuple(
        softmax_attention(
            inputs,
            *(parameters[f"W_{kind}_{layer}"].astype(np.float64) for kind in "QK"),
        )
        for layer in range(1, layers + 1)
    )


def theory_weights(parameters: Parameters, shape: TransformerShape) -> dict[str, np.ndarray]:
    """The weights V_0, V_l and a with which the theory's network is the trained one.

        V_0 = √D W_in,   V_l^h = √N_l W_V^{l,h},   a = √N_a readout

    since the theory divides by √D, √(H_l N_l) and √N_a, the trained network by √H_l alone. Weights
    drawn uniformly from ±1/√(fan-in) have variance 1/3 in these terms.
    """
    weights = {"V_0": np.sqrt(shape.channels) * parameters["W_in"].astype(np.float64)}
    for layer in range(1, shape.layers + 1):
        values = parameters[f"W_V_{layer}"].astype(np.float64)
        weights[f"V_{layer}"] = np.sqrt(shape.widths[layer - 1]) * values
    readout = parameters["readout"].astype(np.float64)[None, :]
    weights["a"] = np.sqrt(shape.widths[-1]) * readout
    return weights
