"""What is compared, as values: theory beside samples with their errors, and the lines of the table.

Every class here is what one key of `comparison.json` holds, and says by `rows` which lines of the
comparison table it gives; the table is the same in the terminal, the report and notebooks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from sampler.analysis.estimate import RESOLVED_MCSE, Estimate
from sampler.analysis.labels import element_name, is_overlap, pair_name, quantity_name

NAN = float("nan")
# These are in the tables of the report alone, element by element.
UNLISTED = ("order_parameter_layer_", "readout_order_parameter", "head_score")


@dataclass(frozen=True)
class Row:
    """One line of the comparison table; NaN stands for a number that is not known.

    difference_in_mcse   (sampled − theory)/MCSE
    relative_difference  (sampled − theory)/|sampled|
    gp                   at infinite width; None where that says nothing
    test_error           of the sampled number, by the finite test set
    spread               posterior standard deviation of what was sampled beside the weights
    remark               how the sampled number was found
    element              its place, for one element of a matrix
    """

    name: str
    theory: float
    sampled: float
    mcse: float
    difference_in_mcse: float = NAN
    relative_difference: float = NAN
    gp: float | None = None
    test_error: float | None = None
    spread: float | None = None
    remark: str = ""
    element: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, theory: float, sampled: float, mcse: float, **rest: object) -> "Row":
        """A line of single numbers, with the differences between them."""
        difference = sampled - theory
        in_mcse = difference / mcse if mcse else NAN
        relative = difference / abs(sampled) if sampled else NAN
        return cls(name, theory, sampled, mcse, in_mcse, relative, **rest)


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


@dataclass(frozen=True)
class Compared:
    """One quantity, a number or an array, from the theory and from the draws.

    theory   of the same shape as the samples; None without a theory
    sampled  posterior mean with its Monte Carlo standard error
    parts    further estimates by name, such as the two parts of a variance
    """

    theory: Float[np.ndarray, "*element"] | np.floating | float | None
    sampled: Estimate
    parts: Mapping[str, Estimate] | None = None

    @property
    def differences(self) -> tuple[np.ndarray, np.ndarray]:
        """(sampled − theory)/MCSE and (sampled − theory)/|sampled|, element by element."""
        sampled = np.asarray(self.sampled.value)
        difference = sampled - self.theory
        with np.errstate(divide="ignore", invalid="ignore"):
            in_mcse, relative = difference / self.sampled.mcse, difference / np.abs(sampled)
        return np.asarray(in_mcse), np.asarray(relative)

    def to_json(self) -> dict:
        in_mcse, relative = (None, None) if self.theory is None else self.differences
        return {
            "theory": self.theory,
            "sampled": self.sampled.value,
            "mcse": self.sampled.mcse,
            "difference_in_mcse": in_mcse,
            "relative_difference": relative,
        } | {name: {"value": p.value, "mcse": p.mcse} for name, p in (self.parts or {}).items()}

    @classmethod
    def from_json(cls, content: Mapping) -> "Compared":
        values = {
            key: None if content.get(key) is None else np.asarray(content[key], dtype=np.float64)
            for key in ("theory", "sampled", "mcse")
        }
        parts = {
            name: Estimate(*(np.asarray(part[key], np.float64) for key in ("value", "mcse")))
            for name, part in content.items()
            if isinstance(part, Mapping)
        }
        return cls(values["theory"], Estimate(values["sampled"], values["mcse"]), parts or None)

    def rows(self, key: str, path_names: Sequence[str]) -> list[Row]:
        """Elements of U_1, a number by itself, the root mean square of any other array."""
        if self.theory is None or key.startswith(UNLISTED):
            return []
        if key == "order_parameter":
            return self.element_rows(key, path_names)
        if np.ndim(self.sampled.value) == 0:
            numbers = (self.theory, self.sampled.value, self.sampled.mcse)
            return [Row.of(quantity_name(key), *map(float, numbers))]
        in_mcse, _ = self.differences
        theory, sampled = np.asarray(self.theory), np.asarray(self.sampled.value)
        size = np.sqrt(np.mean(sampled**2))
        squares = (theory**2, sampled**2, self.sampled.mcse**2, in_mcse**2)
        numbers = [float(np.sqrt(np.mean(square))) for square in squares]
        off = float(np.sqrt(np.mean((sampled - theory) ** 2)) / size)
        return [Row(f"{key.replace('_', ' ')}, rms", *numbers, off)]

    def element_rows(self, key: str, path_names: Sequence[str] = ()) -> list[Row]:
        """A line for every element that is defined; of a symmetric matrix, its upper triangle."""
        places = np.argwhere(np.isfinite(self.theory) | np.isfinite(self.sampled.value))
        if is_overlap(key):
            places = np.argwhere(np.triu(np.ones(np.shape(self.theory), dtype=bool)))
        columns = (self.theory, self.sampled.value, self.sampled.mcse, *self.differences)
        rows = []
        for place in map(tuple, places.tolist()):
            name = element_name(key, place, path_names)
            if key == "order_parameter":
                name = f"U₁ {pair_name(path_names, *place)}"
            rows.append(Row(name, *(float(c[place]) for c in columns), element=place))
        return rows

    def difference(self, key: str, path_names: Sequence[str] = ()) -> Difference | None:
        """All elements taken together; None if none of them is defined."""
        if self.theory is None:
            return None
        theory, sampled, mcse = map(
            np.asarray, (self.theory, self.sampled.value, self.sampled.mcse)
        )
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
        return Difference(
            name=quantity_name(key),
            elements=int(shown.sum()),
            whole=float(np.linalg.norm(gap[shown]) / size),
            whole_error=float(np.linalg.norm(mcse[shown]) / size),
            median_in_mcse=float(np.median(in_mcse[shown])),
            worst_in_mcse=float(in_mcse[worst]),
            at=element_name(key, worst, path_names),
            median_relative=float(np.median(relative[shown])),
            worst_relative=float(relative.max()),
        )


@dataclass(frozen=True)
class SampledAccuracy:
    """Accuracy of the posterior mean predictor, its MCSE and the error of a finite test set."""

    value: float
    mcse: float
    binomial_error: float


@dataclass(frozen=True)
class Accuracy:
    """Accuracies on the test set; NaN where they are not known, None where nothing was sampled."""

    theory: float
    gp: float
    sampled: SampledAccuracy | None

    def rows(self, key: str, _: Sequence[str]) -> list[Row]:
        found = self.sampled
        if found is None:
            return []
        errors = {"gp": self.gp, "test_error": found.binomial_error}
        return [Row.of(key, self.theory, found.value, found.mcse, **errors)]


@dataclass(frozen=True)
class Cosine:
    """A cosine between matrices, with an error where one of them was sampled."""

    value: float
    mcse: float | None = None


@dataclass(frozen=True)
class SampledEvidence:
    """ln p(y) of the training labels by a method; `trusted` if the method's own checks passed."""

    value: float
    mcse: float
    method: str
    trusted: bool


@dataclass(frozen=True)
class Evidence:
    """ln p(y): Laplace's approximation at the saddle point, at infinite width, by the samples."""

    theory: float
    gp: float
    sampled: SampledEvidence | None

    def rows(self, _: str, __: Sequence[str]) -> list[Row]:
        found = self.sampled
        if found is None:
            return []
        remark = found.method if found.trusted else f"{found.method}, NOT to be trusted"
        given = {"gp": self.gp, "remark": remark}
        return [Row.of("log evidence", self.theory, found.value, found.mcse, **given)]


@dataclass(frozen=True)
class SampledSetting:
    """Temperature or prior variances that were sampled, beside the values the theory is given.

    prior_median         where the theory is solved
    sampled, mcse        posterior mean with its error
    standard_deviation   of the posterior
    of                   names of the elements, for more than one
    """

    prior_median: np.ndarray
    sampled: np.ndarray
    mcse: np.ndarray
    standard_deviation: np.ndarray
    of: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SampledSettings:
    """What of temperature and prior variances was sampled with the rest."""

    temperature: SampledSetting | None = None
    prior_variances: SampledSetting | None = None

    def rows(self, _: str, __: Sequence[str]) -> list[Row]:
        found = []
        if self.temperature is not None:
            found.append(("temperature", self.temperature, ()))
        if self.prior_variances is not None:
            names = enumerate(self.prior_variances.of or ())
            found += [(f"variance of {n}", self.prior_variances, (i,)) for i, n in names]
        return [
            Row(
                name, float(one.prior_median[at]), float(one.sampled[at]), float(one.mcse[at]),
                spread=float(one.standard_deviation[at]),
            )
            for name, one, at in found
        ]  # fmt: skip
