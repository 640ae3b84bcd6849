"""Compared quantities as values: theory beside samples with errors, and lines of the table.

Every class here is what one key of `comparison.json` holds, and says by `rows` which lines of the
comparison table it gives; the table is the same in the terminal, the report and notebooks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.analysis.difference import Difference, difference_of
from sampler.analysis.estimate import Estimate
from sampler.analysis.labels import (
    NEXT,
    NEXT_ORDER,
    element_name,
    head_label,
    is_overlap,
    names_of_heads,
    own_key,
    pair_name,
    quantity_name,
)

NAN = float("nan")
# These are in the tables of the report alone, element by element.
UNLISTED = ("order_parameter_layer_", "readout_order_parameter", "head_score")


@dataclass(frozen=True)
class Row:
    """One line of the comparison table; NaN stands for a number that is not known.

    theory               to leading order; `next_order` to next order in 1/N
    difference_in_mcse   (sampled − theory)/MCSE
    relative_difference  (sampled − theory)/|sampled|
    gp, gp_own           at infinite width, at the same temperature and at its own; None where that
                         says nothing
    test_error           of the sampled number, by the finite test set
    spread               posterior standard deviation of what was sampled beside the weights
    remark               how the sampled number was found
    element              its place, for one element of a matrix
    own                  name of a theory of the user's own → what it predicts
    share                whether the numbers are shares, shown in per cent
    """

    name: str
    theory: float
    sampled: float
    mcse: float
    difference_in_mcse: float = NAN
    relative_difference: float = NAN
    gp: float | None = None
    gp_own: float | None = None
    test_error: float | None = None
    spread: float | None = None
    remark: str = ""
    element: tuple[int, ...] = ()
    next_order: float = NAN
    own: Mapping[str, float] = field(default_factory=dict)
    share: bool = False

    @classmethod
    def of(cls, name: str, theory: float, sampled: float, mcse: float, **rest: object) -> "Row":
        """A line of single numbers, with the differences between them."""
        difference = sampled - theory
        in_mcse = difference / mcse if mcse else NAN
        relative = difference / abs(sampled) if sampled else NAN
        return cls(name, theory, sampled, mcse, in_mcse, relative, **rest)


def other_theories(value: Any) -> dict[str, tuple[str, Any]]:
    """Return the comparison with another theory in the place of the leading order.

    What a key of `comparison.json` then ends in → name of that theory, and the comparison: of the
    next order where it is known, and of every theory of the user's own that predicts this.
    """
    found = {}
    next_order = getattr(value, "next_order", None)
    if next_order is not None and not (isinstance(next_order, float) and np.isnan(next_order)):
        found[NEXT_ORDER] = (NEXT, replace(value, theory=next_order))
    for name, predicted in (getattr(value, "own", None) or {}).items():
        found[own_key("", name)] = (name, replace(value, theory=predicted))
    return found


@dataclass(frozen=True)
class Compared:
    """One quantity, a number or an array, from the theory and from the draws.

    theory      of the same shape as the samples; None without a theory
    sampled     posterior mean with its Monte Carlo standard error
    parts       further estimates by name, such as the two parts of a variance
    next_order  the theory to next order in 1/N; None where it is not known
    own         name of a theory of the user's own → what it predicts; None where none does
    """

    theory: Float[np.ndarray, "*element"] | np.floating | float | None
    sampled: Estimate
    parts: Mapping[str, Estimate] | None = None
    next_order: Float[np.ndarray, "*element"] | np.floating | float | None = None
    own: Mapping[str, Float[np.ndarray, "*element"] | np.floating | float] | None = None

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
            **({} if self.next_order is None else {"next_order": self.next_order}),
            "sampled": self.sampled.value,
            "mcse": self.sampled.mcse,
            "difference_in_mcse": in_mcse,
            "relative_difference": relative,
            **({} if not self.own else {"own": self.own}),
        } | {name: {"value": p.value, "mcse": p.mcse} for name, p in (self.parts or {}).items()}

    @classmethod
    def from_json(cls, content: Mapping) -> "Compared":
        values = {
            key: None if content.get(key) is None else np.asarray(content[key], dtype=np.float64)
            for key in ("theory", "next_order", "sampled", "mcse")
        }
        parts = {
            name: Estimate(*(np.asarray(part[key], np.float64) for key in ("value", "mcse")))
            for name, part in content.items()
            if isinstance(part, Mapping) and name != "own"
        }
        sampled = Estimate(values["sampled"], values["mcse"])
        own = {n: np.asarray(one, np.float64) for n, one in (content.get("own") or {}).items()}
        return cls(values["theory"], sampled, parts or None, values["next_order"], own or None)

    def rows(self, key: str, path_names: Sequence[str]) -> list[Row]:
        """Elements of U_1, or a number by itself; of other arrays nothing but their difference."""
        if (self.theory is None and not self.own) or key.startswith(UNLISTED):
            return []
        if self.theory is None:
            nothing = np.full(np.shape(self.sampled.value), NAN)
            return replace(self, theory=nothing).rows(key, path_names)
        if key == "order_parameter":
            return self.element_rows(key, path_names)
        if np.ndim(self.sampled.value):
            return []
        numbers = (self.theory, self.sampled.value, self.sampled.mcse)
        next_order = NAN if self.next_order is None else float(self.next_order)
        own = {name: float(one) for name, one in (self.own or {}).items()}
        return [Row.of(quantity_name(key), *map(float, numbers), next_order=next_order, own=own)]

    def element_rows(self, key: str, path_names: Sequence[str] = ()) -> list[Row]:
        """A line for every element that is defined; of a symmetric matrix, its upper triangle."""
        places = np.argwhere(np.isfinite(self.theory) | np.isfinite(self.sampled.value))
        if is_overlap(key):
            places = np.argwhere(np.triu(np.ones(np.shape(self.theory), dtype=bool)))
        columns = (self.theory, self.sampled.value, self.sampled.mcse, *self.differences)
        heads = names_of_heads(path_names, self.theory) if key.startswith("head_score") else None
        rows = []
        for place in map(tuple, places.tolist()):
            name = element_name(key, place, path_names)
            if heads is not None:
                name = head_label(place[0] + 1, place[1], heads[place[0]][place[1]])
            if key == "order_parameter":
                name = f"U₁ {pair_name(path_names, *place)}"
            next_order = NAN if self.next_order is None else float(self.next_order[place])
            own = {one: float(values[place]) for one, values in (self.own or {}).items()}
            numbers = (float(column[place]) for column in columns)
            rows.append(Row(name, *numbers, element=place, next_order=next_order, own=own))
        return rows

    def difference(self, key: str) -> Difference | None:
        """All elements taken together; None if none of them is defined."""
        if self.theory is None:
            return None
        return difference_of(key, self.theory, self.sampled)


@dataclass(frozen=True)
class AbsoluteValues(Compared):
    """Comparison of absolute values, element by element alone.

    Where little is to be seen of an element, noise makes its absolute value larger on average: no
    difference of all elements together can be told from that.
    """

    def rows(self, key: str, path_names: Sequence[str]) -> list[Row]:
        return []

    def difference(self, key: str) -> None:
        return None


@dataclass(frozen=True)
class SampledAccuracy:
    """Accuracy of the posterior mean predictor, its MCSE and the error of a finite test set.

    tests    number of test examples
    degrees  of freedom that the MCSE is known by
    """

    value: float
    mcse: float
    binomial_error: float
    tests: int | None = None
    degrees: int | None = None


@dataclass(frozen=True)
class Accuracy:
    """Accuracies on the test set; NaN where they are not known, None where nothing was sampled.

    gp, gp_own  at infinite width, at the same temperature and at its own
    """

    theory: float
    gp: float
    sampled: SampledAccuracy | None
    next_order: float = NAN
    own: Mapping[str, float] | None = None
    gp_own: float = NAN

    def rows(self, key: str, _: Sequence[str]) -> list[Row]:
        found = self.sampled
        if found is None:
            return []
        limits = {"gp": self.gp, "gp_own": self.gp_own}
        errors = {"test_error": found.binomial_error, **limits}
        others = {"next_order": self.next_order, "own": self.own or {}, "share": True}
        return [Row.of(key, self.theory, found.value, found.mcse, **errors, **others)]

    def difference(self, key: str) -> Difference | None:
        """Difference of the two accuracies on the same test set, in percentage points.

        An accuracy moves in steps of one test example: its error is no less than half of one.
        """
        found = self.sampled
        if found is None or not found.tests:
            return None
        mcse = max(found.mcse, 0.5 / found.tests)
        theory, *sampled = (100.0 * number for number in (self.theory, found.value, mcse))
        estimate = Estimate(*map(np.asarray, sampled), degrees=found.degrees or 0)
        return difference_of(key, theory, estimate, unit="points")


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
    """ln p(y): Laplace's approximation, to next order, at infinite width, by the samples.

    gp, gp_own  at infinite width, at the same temperature and at its own
    """

    theory: float
    gp: float
    sampled: SampledEvidence | None
    next_order: float = NAN
    own: Mapping[str, float] | None = None
    gp_own: float = NAN

    def rows(self, _: str, __: Sequence[str]) -> list[Row]:
        found = self.sampled
        if found is None:
            return []
        remark = found.method if found.trusted else f"{found.method}, NOT to be trusted"
        given = {"gp": self.gp, "gp_own": self.gp_own, "next_order": self.next_order}
        given |= {"remark": remark, "own": self.own or {}}
        return [Row.of("log evidence", self.theory, found.value, found.mcse, **given)]


@dataclass(frozen=True)
class OwnTemperature:
    """The temperature that infinite width chooses for itself.

    chosen_by  "log_predictive_density" on the validation split, or "log_evidence"
    bound      "lowest" or "highest" where it is an end of all that were tried; else empty
    """

    temperature: float
    chosen_by: str
    bound: str = ""


@dataclass(frozen=True)
class SampledSetting:
    """The temperature that was sampled, beside the value the theory is given.

    prior_median         where the theory is solved
    sampled, mcse        posterior mean with its error
    standard_deviation   of the posterior
    """

    prior_median: float
    sampled: float
    mcse: float
    standard_deviation: float


@dataclass(frozen=True)
class SampledSettings:
    """The temperature, where it was sampled with the rest."""

    temperature: SampledSetting

    def rows(self, _: str, __: Sequence[str]) -> list[Row]:
        one = self.temperature
        spread = one.standard_deviation
        return [Row("temperature", one.prior_median, one.sampled, one.mcse, spread=spread)]
