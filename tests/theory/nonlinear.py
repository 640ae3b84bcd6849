"""Small problems with nonlinear values, and the forward pass of their networks in NumPy."""

import jax.numpy as jnp
import numpy as np

from tests.problems import READOUTS, NetworkData, random_network_data
from tests.theory.test_activations import DEFINITIONS
from theory import Architecture, NonlinearProblem, TokenExamples

NONLINEAR = ("relu", "erf", "gelu")


def read(data: NetworkData) -> TokenExamples:
    attention = tuple(jnp.asarray(omega) for omega in data.attention)
    return TokenExamples.read(jnp.asarray(data.inputs), attention, data.readout)


def nonlinear_problem(
    architecture: Architecture, values: str, rng, *, examples=6, tokens=3, readout="mean"
) -> tuple[NonlinearProblem, TokenExamples, tuple[NetworkData, NetworkData]]:
    """A problem, test examples, and the arrays of both."""
    train, test = (
        random_network_data(architecture, rng, examples=n, tokens=tokens, readout=readout)
        for n in (examples, 4)
    )
    labels = jnp.asarray(rng.standard_normal((examples, architecture.outputs)))
    problem = NonlinearProblem(architecture, values, read(train), labels, 0.1)
    return problem, read(test), (train, test)


def last_hidden(architecture, data: NetworkData, weights, values: str) -> np.ndarray:
    """z^{L+1} t* [example, unit], token by token."""
    phi, found = DEFINITIONS[values], []
    for example, tokens in enumerate(data.inputs):
        hidden = weights["V_0"] @ tokens.T / np.sqrt(architecture.channels)
        for layer, heads in enumerate(architecture.heads):
            scale = np.sqrt(architecture.widths[layer])
            hidden = sum(
                phi(weights[f"V_{layer + 1}"][head] @ hidden / scale)
                @ data.attention[layer][example, head]
                for head in range(heads)
            ) / np.sqrt(heads)
        found.append(hidden @ READOUTS[data.readout](len(tokens)))
    return np.array(found)
