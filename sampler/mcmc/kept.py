"""Limits of the draws that are kept, and the forms other than all draws.

Free of JAX: `check` states from it how much memory a run takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

# Draws of these are kept in single precision: their Monte Carlo error is never near its rounding.
PREDICTORS = ("predictor", "predictor_mean", "predictor_variance")
PREDICTOR_VALIDATION = "predictor_validation"
# Of every training example: its log likelihood, and a label drawn anew, given all labels or those
# of the others; and, where examples are too many for that, the weights of attended inputs from
# which all of it follows.
LOG_LIKELIHOOD, REPLICATED = "log_likelihood", "posterior_predictive"
LEFT_OUT = "leave_one_out_predictive"
POINTWISE = (LOG_LIKELIHOOD, REPLICATED, LEFT_OUT)
LOG_PRIOR = "log_prior"
EFFECTIVE = "effective_weights"
# From so many training examples on draws say nothing of single ones.
MOST_POINTWISE = 20_000
# The draws of one predictor are kept whole up to this size, of all chains together. Above it, every
# k-th of them is, and all draws of so many elements for the diagnostics.
PREDICTOR_BYTES = 2**20
SELECTED = 10
# However many the test examples are, half as many draws of each chain are kept, if they fit into
# the size up to which what draws say of training examples is kept whole.
PREDICTOR_DRAWS = 64
KEPT_BYTES = 32 * 2**20
# Draws of the logit weights of a layer are kept whole up to this size; above it, some of them.
LOGIT_BYTES = 128 * 2**20
# Of what only some draws are wanted, at least half as many of each chain are kept; of many chains
# half as many as make the second number in all.
MOST_THINNED, THINNED_IN_ALL = 400, 6400


def most_thinned(chains: int) -> int:
    """Draws of a chain that are kept at most, of what only some draws are wanted."""
    return min(MOST_THINNED, max(2, THINNED_IN_ALL // chains))


# Gives which elements of a draw the problem fixes, by the name of the draws.
Fixed = Callable[[], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class ThinnedDraws:
    """Every so many draws: values [chain, kept, …] and the numbers of these draws."""

    values: np.ndarray
    draws: np.ndarray


@dataclass(frozen=True)
class SelectedDraws:
    """Draws of some elements of a quantity that is too large to keep.

    values  [chain, draw, element]
    places  of these elements in one draw, counted along its last axis first
    shape   of one draw
    """

    values: np.ndarray
    places: np.ndarray
    shape: tuple[int, ...]


def stands_still(values: np.ndarray) -> np.ndarray:
    """Which elements of draws [chain, draw, …] no draw of a chain changes [chain, element]."""
    flat = values.reshape(*values.shape[:2], -1)
    return (flat == flat[:, :1]).all(axis=1)


def evenly_spaced(size: int, most: int) -> np.ndarray:
    """Return the places of all of `size` elements, or of `most` of them with both ends."""
    return np.arange(size) if size <= most else np.linspace(0, size - 1, most).astype(int)
