"""How far theory and samples are apart, quantity by quantity."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from sampler.analysis.finite_size import RESOLVED_MCSE
from sampler.presentation.summary import pair_name


@dataclass(frozen=True)
class Difference:
    """Sampled − theory over the elements of one quantity.

    whole            ‖sampled − theory‖ / ‖sampled‖
    whole_error      ‖MCSE‖ / ‖sampled‖: no correlation between elements can make the error of
                     `whole` larger
    in_mcse, relative    median and largest absolute value over the elements
    at               where the difference is largest in units of the MCSE
    elements         how many are defined
    """

    name: str
    elements: int
    whole: float
    whole_error: float
    median_in_mcse: float
    worst_in_mcse: float
    at: str
    median_relative: float
    worst_relative: float

    @property
    def resolved(self) -> bool:
        """Whether the largest difference is more than Monte Carlo noise in so many elements."""
        return self.worst_in_mcse > largest_by_chance(self.elements)


def largest_by_chance(elements: int) -> float:
    """What the largest of n errors exceeds as rarely as one alone exceeds 3 MCSE (Bonferroni)."""
    return float(norm.isf(norm.sf(RESOLVED_MCSE) / max(1, elements)))


def differences(comparison: Mapping, path_names: Sequence[str]) -> dict[str, Difference]:
    """Key of `comparison.json` → difference, for every compared quantity."""
    found = {}
    for key, entry in comparison.items():
        keys = ("theory", "sampled", "mcse")
        if isinstance(entry, dict) and all(isinstance(entry.get(k), list) for k in keys):
            measured = difference(key, entry, path_names)
            if measured is not None:
                found[key] = measured
    return found


def difference(key: str, entry: Mapping, path_names: Sequence[str]) -> Difference | None:
    """One quantity; None if none of its elements is defined."""
    theory, sampled, mcse = (np.array(entry[k], dtype=float) for k in ("theory", "sampled", "mcse"))
    shown = np.isfinite(theory) & np.isfinite(sampled) & np.isfinite(mcse) & (mcse > 0.0)
    if is_overlap(key):
        shown &= np.triu(np.ones(shown.shape, dtype=bool))  # the matrices are symmetric
    if not shown.any():
        return None
    gap = sampled - theory
    with np.errstate(divide="ignore", invalid="ignore"):
        in_mcse = np.where(shown, np.abs(gap / mcse), -np.inf)
        relative = np.where(shown & (sampled != 0.0), np.abs(gap / sampled), -np.inf)
    worst = tuple(int(i) for i in np.unravel_index(np.argmax(in_mcse), in_mcse.shape))
    size = np.linalg.norm(sampled[shown])
    names = path_names if key == "order_parameter" else ()
    return Difference(
        name=quantity_name(key),
        elements=int(shown.sum()),
        whole=float(np.linalg.norm(gap[shown]) / size),
        whole_error=float(np.linalg.norm(mcse[shown]) / size),
        median_in_mcse=float(np.median(in_mcse[shown])),
        worst_in_mcse=float(in_mcse[worst]),
        at=place(key, worst, names),
        median_relative=float(np.median(relative[shown])),
        worst_relative=float(relative.max()),
    )


def is_overlap(key: str) -> bool:
    return "order_parameter" in key


def quantity_name(key: str) -> str:
    """A quantity as readers know it, U₁ for `order_parameter`."""
    layer = re.fullmatch(r"order_parameter_layer_(\d+)", key)
    if layer:
        return "U" + layer.group(1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
    known = {
        "order_parameter": "U₁",
        "readout_order_parameter": "Uₐ (readout)",
        "log_posterior": "log posterior",
        "temperature": "temperature",
        "prior_variances": "prior variances",
        "predictor": "predictor f(x)",
        "predictor_mean": "predictor mean m(x)",
        "predictor_variance": "predictor variance v(x)",
    }
    return known.get(key, key.replace("_", " "))


def place(key: str, at: Sequence[int], names: Sequence[str] = ()) -> str:
    """An element in words: paths by name, test examples by number."""
    if names and len(at) == 2:
        return pair_name(names, *at)
    numbers = ", ".join(map(str, at))
    if key.startswith("predictor"):
        return f"test example {numbers}"
    return f"[{numbers}]" if numbers else ""
