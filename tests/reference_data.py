"""Where the arrays of the published four-path problem are, and how a problem is made of them."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

from theory import Architecture, LearningProblem

REDUCED = Path(__file__).parent / "reference" / "markov_four_paths_100.npz"
FULL = Path(__file__).parents[2] / "shared" / "reference" / "markov_four_paths.npz"


def load_reduced_reference() -> dict[str, np.ndarray]:
    """Arrays of tests/reference, described in its README.md."""
    with np.load(REDUCED) as stored:
        return dict(stored)


def load_full_reference() -> dict[str, np.ndarray] | None:
    """The complete file beside the checkout, or None where there is none."""
    if not FULL.is_file():
        return None
    with np.load(FULL) as stored:
        return dict(stored)


def reference_problem(arrays: dict[str, np.ndarray], width: int) -> LearningProblem:
    """The four-path problem at one width: two layers of two heads, D = 231, all variances 1."""
    attended = jnp.asarray(arrays["attended_inputs_train"], float)
    architecture = Architecture.uniform((2, 2), width, attended.shape[2])
    labels = jnp.asarray(arrays["y_train"], float)[:, None]
    return LearningProblem(architecture, attended, labels, float(arrays["temperature"]))
