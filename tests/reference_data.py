"""Where the arrays of the published four-path problem are, and how a problem is made of them."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

from tests import ROOT, SHARED
from theory import Architecture, LearningProblem

REDUCED = Path(__file__).parent / "reference" / "markov_four_paths_100.npz"
PUBLISHED_DATA = ROOT / "runs" / "markov_published.npz"
FULL = SHARED / "reference" / "markov_four_paths.npz"

# What the published weight-space sampler found at N = 10 in a long run of NUTS: means of U_1 and
# their Monte Carlo standard errors; paths are good, adversarial 1, denoising, adversarial 2.
PUBLISHED_OVERLAP = {
    (0, 0): (14.961, 0.129),
    (0, 1): (0.052, 0.026),
    (0, 2): (-5.991, 0.068),
    (0, 3): (-0.460, 0.019),
    (1, 1): (0.511, 0.011),
    (1, 2): (-0.141, 0.018),
    (1, 3): (0.040, 0.005),
    (2, 2): (7.240, 0.070),
    (2, 3): (0.077, 0.016),
    (3, 3): (0.336, 0.007),
}
# The same elements sampled over the order parameters by an independent program.
TRIAL_OVERLAP = {
    (0, 0): (14.845, 0.052),
    (0, 2): (-5.927, 0.030),
    (1, 1): (0.5291, 0.0038),
    (2, 2): (7.213, 0.026),
    (3, 3): (0.3423, 0.0024),
}
PUBLISHED_READOUT = (2.171, 0.018)  # |a|²/N of the same run
PUBLISHED_ACCURACIES = (0.963, 0.968)  # lowest and highest of its three runs, 1,000 test examples


def load_reduced_reference() -> dict[str, np.ndarray]:
    """Arrays of tests/reference, described in its README.md, with the data of `runs`."""
    with np.load(REDUCED) as stored, np.load(PUBLISHED_DATA) as data:
        chosen = stored["test_examples"]
        return dict(stored) | {
            "attended_inputs_train": data["attended_train"],
            "y_train": data["labels_train"],
            "attended_inputs_test": data["attended_test"][chosen],
            "y_test": data["labels_test"][chosen],
        }


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
