"""Small problems with nonlinear values, and the forward pass of their networks in NumPy."""

import jax.numpy as jnp
import numpy as np
from scipy.special import erf, ndtr

from tests.problems import READOUTS, NetworkData, random_network_data
from theory import Architecture, NonlinearProblem, TokenExamples
from theory.nonlinear_kernels import ERF, GELU

NONLINEAR = ("relu", "erf", "gelu")
DEFINITIONS = {
    "linear": lambda u: u,
    "relu": lambda u: np.sqrt(2.0) * np.maximum(u, 0.0),
    "erf": lambda u: ERF * erf(u),
    "gelu": lambda u: GELU * u * ndtr(u),
}


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


# --- means of Gaussian pairs

# Variances and covariances: any, independent, nearly and fully correlated, opposite, no u at all.
CASES = np.array(
    [
        (0.7, 0.4, 1.9),
        (1.3, -1.1, 1.2),
        (0.5, 0.0, 2.0),
        (1.0, 1.0 - 1e-9, 1.0),
        (1.7, 1.7, 1.7),
        (4.0, 2.0, 1.0),
        (4.0, -2.0, 1.0),
        (0.0, 0.0, 0.8),
        (0.0, 0.0, 0.0),
    ]
)


def between(edges, count):
    """Points and weights of Gauss–Legendre quadrature between neighbouring edges."""
    points, weights = np.polynomial.legendre.leggauss(count)
    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    half = (high - low) / 2.0
    return (low + half * (1.0 + points)).ravel(), (half * weights).ravel()


def by_quadrature(values, left, both, right):
    """E φ(u)φ(v), E φ(v) and E φ'(v) = E vφ(v)/q₂₂, in polar coordinates.

    Angles are integrated between those at which u or v is zero, where the ReLU has its kink.
    """
    phi = DEFINITIONS[values]
    along = both / np.sqrt(left) if left else 0.0
    across = np.sqrt(max(right - along**2, 0.0))
    kink = np.arctan2(-along, across) % np.pi
    edges = sorted({0.0, np.pi / 2, np.pi, 3 * np.pi / 2, 2 * np.pi, kink, kink + np.pi})
    angles, of_angle = between(edges, 60)
    radius, of_radius = between([0.0, 3.0, 6.0, 13.0], 40)
    weights = np.outer(of_radius * radius * np.exp(-(radius**2) / 2.0), of_angle / (2.0 * np.pi))
    x, y = radius[:, None] * np.cos(angles), radius[:, None] * np.sin(angles)
    u, v = np.sqrt(left) * x, along * x + across * y
    slope = np.sum(weights * phi(v) * v) / right if right else np.nan
    return np.sum(weights * phi(u) * phi(v)), np.sum(weights * phi(v)), slope
