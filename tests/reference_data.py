"""Where the arrays of the published four-path problem are, and how a problem is made of them."""

from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from sampler.posterior.importance_sampling import ImportanceDraws, importance_draws
from tests import ROOT
from tests.problems import drawn_factors, space_of
from theory import Architecture, LearningProblem

REFERENCE = Path(__file__).parent / "reference" / "markov_four_paths.npz"
PUBLISHED_DATA = ROOT / "runs" / "markov_published.npz"

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


def load_reference(every: int = 10) -> dict[str, np.ndarray]:
    """The published four-path problem and its values, on every tenth test example or on all.

    Arrays of tests/reference, described in its README.md, with the data of `runs`.
    """
    with np.load(REFERENCE) as stored, np.load(PUBLISHED_DATA) as data:
        of_test_examples = {
            "attended_inputs_test": data["attended_test"],
            "y_test": data["labels_test"],
            **{name: stored[name] for name in stored if name.endswith(("_mean", "_variance"))},
        }
        return {
            **stored,
            "attended_inputs_train": data["attended_train"],
            "y_train": data["labels_train"],
            **{name: values[::every] for name, values in of_test_examples.items()},
        }


def reference_problem(arrays: dict[str, np.ndarray], width: int) -> LearningProblem:
    """The four-path problem at one width: two layers of two heads, D = 231, all variances 1."""
    attended = jnp.asarray(arrays["attended_inputs_train"], float)
    architecture = Architecture.uniform((2, 2), width, attended.shape[2])
    labels = jnp.asarray(arrays["y_train"], float)[:, None]
    return LearningProblem(architecture, attended, labels, float(arrays["temperature"]))


@cache
def published_draws() -> tuple[LearningProblem, ImportanceDraws, np.ndarray]:
    """The problem of ten units, independent draws of its posterior, and factors F of their U_1."""
    problem = reference_problem(load_reference(), 10)
    space = space_of(problem)
    draws = importance_draws(space, 20_000, seed=10)
    assert draws.trusted, draws.explain()
    assert draws.effective_sample_size > 3_000
    return problem, draws, drawn_factors(space, draws)
