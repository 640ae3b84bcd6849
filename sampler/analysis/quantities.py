"""Every quantity that is compared: one row has its prediction, its estimate
and its format.

`Quantity("accuracy", …)` in `QUANTITIES` is one row of every table, of `comparison.nc` and of
`comparison.json`. From outside the package another is added by `QUANTITIES.register(name, row)`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.calibration import (
    calibration_error,
    calibration_error_of_test_set,
    labels_are_signs,
    probability_of_positive,
)
from sampler.analysis.cross_validation import error_of_sum, sampled_elpd, sampled_elpd_by_example
from sampler.analysis.difference import RELATIVE, difference_of
from sampler.analysis.estimates import Estimate
from sampler.analysis.kernels import kernel_at, similarity_to_draws
from sampler.analysis.names import quantity_name
from sampler.analysis.predictors import INFINITE, NEXT, SAMPLED, TUNED
from sampler.analysis.scores import (
    ACCURACY,
    DENSITY,
    SCORES,
    density,
    error_of_mean,
    hits,
    labelled,
)
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.analysis.validation import validation_scores
from sampler.registry import Registry
from theory import AttentionPaths, head_scores
from theory.observables import binomial_error, labels_are_classes

# How a quantity is shown: as a number in the table of all predictors, or by its difference as a
# whole.
NUMBER, WHOLE = "number", "whole"

Sampled = Callable[[TheoryAndDraws], Estimate | None]
Predicted = Callable[[xr.Dataset, TheoryAndDraws], Any]


@dataclass(frozen=True)
class Quantity:
    """A compared quantity.

    label      name in tables
    predicted  name of a variable of `theory.nc`, or a function of everything that one predictor
               predicts: an array, a number, an `Estimate`, None where it does not predict this
    sampled    the posterior's, with its Monte Carlo error; None if unknown
    unit       of a difference: "%" of the size of the quantity, or the unit of the numbers; empty
               where no difference is stated
    show       NUMBER or WHOLE
    share      whether it is a share, shown in per cent
    brief      whether the terminal shows it, not the report alone
    least      the smallest Monte Carlo error that a difference is compared with
    ahead      the posterior's score minus that of another network on the same examples, with the
               error of their difference, example by example, as columns of a comparison
    missing    predictor → why its number may be missing
    """

    label: str
    predicted: str | Predicted
    sampled: Sampled
    unit: str = RELATIVE
    show: str = NUMBER
    share: bool = False
    brief: bool = True
    least: Callable[[TheoryAndDraws], float] | None = None
    ahead: Callable[[xr.Dataset, TheoryAndDraws], dict[str, float]] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    def prediction(self, of: xr.Dataset, given: TheoryAndDraws) -> Estimate | None:
        """The prediction of one predictor, or None."""
        by_name = isinstance(self.predicted, str)
        value = of.get(self.predicted) if by_name else self.predicted(of, given)
        if value is None or isinstance(value, Estimate):
            return value
        return Estimate(np.asarray(value, dtype=np.float64))

    def difference(
        self, predicted: Estimate, sampled: Estimate, given: TheoryAndDraws, symmetric: bool
    ) -> dict[str, Any]:
        """The prediction against the samples as a whole; empty if no difference is stated."""
        if not self.unit:
            return {}
        theory, value, mcse = map(np.asarray, (predicted.value, sampled.value, sampled.mcse))
        if self.least is not None:
            mcse = np.maximum(mcse, self.least(given))
            sampled = replace(sampled, deviations=None)
        scale = 100.0 if self.share and self.unit != RELATIVE else 1.0
        sampled = replace(sampled, value=scale * value, mcse=scale * mcse)
        return difference_of(scale * theory, sampled, self.unit, symmetric)


# --- posterior means


def mean(name: str) -> Sampled:
    """The posterior mean of a quantity under its name in `draws.nc`."""
    return lambda given: given.draws.mean(name) if name in given.draws else None


def sampled_alignment(given: TheoryAndDraws) -> Estimate | None:
    """Kernel–task alignment by component, NaN if unknown; None without a theory."""
    drawn = given.draws.group("kernel")
    if given.theory is None or "kernel_alignment" not in given.theory or drawn is None:
        return None
    drawn = drawn.assign_coords(component=range(drawn.sizes["component"]))
    drawn = drawn.reindex(component=range(given.theory.sizes["component"]))
    return Estimate(drawn["kernel_alignment"], drawn["kernel_alignment_mcse"])


def predicted_kernel(of: xr.Dataset, given: TheoryAndDraws) -> np.ndarray | None:
    """K between the examples that are shown, at the U_1 of a predictor."""
    if "kernel" in of:
        return of["kernel"].values
    if given.kernels is None or HEADLINE not in of:
        return None
    return kernel_at(given.theory["kernel_features"].values, of[HEADLINE].values)


def sampled_kernel(given: TheoryAndDraws) -> Estimate | None:
    if given.kernels is None:
        return None
    return given.draws.averages.bootstrap(lambda kernels: kernels, given.kernels)


def kernel_similarity(of: xr.Dataset, given: TheoryAndDraws) -> Estimate | None:
    """Centred alignment of the kernel of a predictor with that of the draws."""
    kernel = predicted_kernel(of, given)
    if kernel is None or given.kernels is None or not np.isfinite(kernel).all():
        return None
    return similarity_to_draws(kernel, given.kernels.values, given.draws.averages)


def sampled_temperature(given: TheoryAndDraws) -> Estimate | None:
    """The temperature that was sampled; None where it was given."""
    if "temperature" not in given.draws:
        return None
    spread = float(np.sqrt(given.draws.variance("temperature").value))
    return replace(given.draws.mean("temperature"), spread=spread)


def predicted_temperature(of: xr.Dataset, given: TheoryAndDraws) -> xr.DataArray | None:
    return of.get("temperature") if "temperature" in given.draws else None


def sampled_evidence(given: TheoryAndDraws) -> Estimate | None:
    """ln p(y) of the samples: exact at this width up to its Monte Carlo error."""
    attributes = given.draws.attributes
    if "log_evidence" not in attributes:
        return None
    remark = str(attributes["log_evidence_method"])
    trusted = bool(attributes.get("log_evidence_trusted", 1))
    if not trusted:
        remark += ", NOT to be trusted"
    value, error = (float(attributes[name]) for name in ("log_evidence", "log_evidence_error"))
    return Estimate(value, error, remark=remark, trusted=trusted)


def predicted_evidence(of: xr.Dataset, given: TheoryAndDraws) -> xr.DataArray | None:
    """ln p(y); None where the samples average theirs over temperatures, of which this has one."""
    return None if "temperature" in given.draws else of.get("log_evidence")


# --- functions of U_1, at that of a predictor and at the posterior mean

Statistic = Callable[[np.ndarray], np.ndarray]


def of_overlap(statistic_of: Callable[[TheoryAndDraws], Statistic | None]) -> dict[str, Any]:
    """Predicted and sampled, by bootstrap, of a function of matrices [batch, row, row].

    statistic_of: the function for these theories and draws, None where there is none.
    """

    def predicted(of: xr.Dataset, given: TheoryAndDraws) -> Any:
        statistic = statistic_of(given)
        defined = statistic is not None and "order_parameter" in of
        return statistic(of["order_parameter"].values[None])[0] if defined else None

    def sampled(given: TheoryAndDraws) -> Estimate | None:
        statistic = statistic_of(given)
        if statistic is None or "order_parameter" not in given.draws:
            return None
        return given.draws.bootstrap(statistic, "order_parameter")

    return {"predicted": predicted, "sampled": sampled}


def scores_of_heads(given: TheoryAndDraws) -> Statistic | None:
    if not given.heads:
        return None
    paths, known = AttentionPaths(given.heads), given.theory["head_score"]
    labels = {axis: known[axis].values for axis in ("layer", "head")}

    def scores(overlaps: Any) -> xr.DataArray:
        found = [head_scores(overlap, paths) for overlap in np.asarray(overlaps)]
        return xr.DataArray(np.stack(found), labels, ("replicate", *labels))

    return scores


def cosine_to_trained(given: TheoryAndDraws) -> Statistic | None:
    """Cosine with U_1 of the network that gradient descent trained; None with one path."""
    table = given.theory
    if table is None or "order_parameter_trained" not in table or table.sizes["path"] == 1:
        return None
    other = table["order_parameter_trained"].values
    return lambda overlaps: off_diagonal_cosine(np.asarray(overlaps), other)


def off_diagonal_cosine(
    values: Float[np.ndarray, "*batch path path"], other: Float[np.ndarray, "path path"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Σ_{π≠π'} A B / √(Σ A² Σ B²) over the elements off the diagonal; leading axes are kept."""
    off = ~np.eye(values.shape[-1], dtype=bool)
    a, b = values[..., off], other[..., off]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


# --- scores of mean and variance of test labels, predicted and of the posterior


# Of means and variances [..., example, output] and labels [example, output].
OfLabels = Callable[[xr.DataArray, xr.DataArray, xr.DataArray], Any]


def moments_of(
    of: xr.Dataset, given: TheoryAndDraws, needs_variance: bool
) -> tuple[xr.DataArray, xr.DataArray] | None:
    """Mean and variance of test labels by a predictor; None where it does not predict them."""
    labels = given.draws.labels_test
    if labels is None or "predictor_mean" not in of:
        return None
    mean = labelled(of["predictor_mean"], labels)
    variance = xr.full_like(mean, np.nan)
    if "predictor_variance" in of:
        variance = labelled(of["predictor_variance"], labels) + float(of["temperature"])
    if needs_variance and not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        return None
    return mean, variance


def of_test_set(
    applies: Callable[[np.ndarray], bool],
    value: OfLabels,
    test_error: OfLabels,
    needs_variance: bool = True,
) -> dict[str, Any]:
    """Predicted and sampled, by bootstrap, of a function of means, variances and labels.

    applies     whether labels [example, output] have such a score
    value       of means and variances [batch, example, output] and labels
    test_error  of one mean and variance, by the finite number of examples
    """

    def predicted(of: xr.Dataset, given: TheoryAndDraws) -> Estimate | None:
        moments, labels = moments_of(of, given, needs_variance), given.draws.labels_test
        if moments is None or not applies(labels.values):
            return None
        return Estimate(float(value(*moments, labels)), test_error=test_error(*moments, labels))

    def sampled(given: TheoryAndDraws) -> Estimate | None:
        labels, moments = given.draws.labels_test, given.draws.test_moments
        if moments is None or not applies(labels.values):
            return None
        estimate = moments.estimate(partial(value, labels=labels))
        return replace(estimate, test_error=test_error(*moments.posterior, labels))

    return {"predicted": predicted, "sampled": sampled}


def of_test_examples(
    applies: Callable[[np.ndarray], bool],
    score: OfLabels,
    error: Callable[[xr.DataArray], float] = error_of_mean,
    needs_variance: bool = True,
) -> dict[str, Any]:
    """As `of_test_set`, of the mean of a score [example], and how far the samples are ahead.

    error: of that mean, by the finite number of examples
    """

    def value(mean: xr.DataArray, variance: xr.DataArray, labels: xr.DataArray) -> xr.DataArray:
        return score(mean, variance, labels).mean(labels.dims[0])

    def test_error(*moments: xr.DataArray) -> float:
        return error(score(*moments))

    def ahead(of: xr.Dataset, given: TheoryAndDraws) -> dict[str, float]:
        other, own = moments_of(of, given, needs_variance), given.draws.test_moments
        labels = given.draws.labels_test
        if other is None or own is None or not applies(labels.values):
            return {}
        gaps = score(*own.posterior, labels) - score(*other, labels)
        return {"ahead": float(gaps.mean()), "ahead_error": error_of_mean(gaps)}

    return of_test_set(applies, value, test_error, needs_variance) | {"ahead": ahead}


def error_of_share(hit: xr.DataArray) -> float:
    return binomial_error(float(hit.mean()), len(hit))


def half_an_example(given: TheoryAndDraws) -> float:
    """An accuracy moves in steps of one test example: its error is no less than half of one."""
    return 0.5 / len(given.draws.labels_test)


def are_several(labels: np.ndarray) -> bool:
    """Whether a mean over the examples has an error."""
    return len(labels) > 1


def elpd_ahead(of: xr.Dataset, given: TheoryAndDraws) -> dict[str, float]:
    """Σ_i ln p(y_i | y_{−i}) of the samples minus that of another network."""
    ours, theirs = sampled_elpd_by_example(given.draws.tree), of.get("elpd_by_example")
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return {}
    gaps = ours - theirs.values
    return {"ahead": float(np.sum(gaps)), "ahead_error": error_of_sum(gaps)}


def are_several_signs(labels: np.ndarray) -> bool:
    return are_several(labels) and labels_are_signs(labels)


def of_probability(statistic: Callable[[np.ndarray, np.ndarray], Any]) -> OfLabels:
    """A statistic of the probability of the label +1, and its labels."""
    return lambda mean, variance, labels: statistic(
        probability_of_positive(mean.values, variance.values), labels.values > 0
    )


# --- scores on the validation split


def of_validation(score: str) -> Quantity:
    """The row of a score on the validation split."""
    name = f"validation_{score}"

    def predicted(of: xr.Dataset, _: TheoryAndDraws) -> Estimate | None:
        if name not in of:
            return None
        return Estimate(of[name], test_error=error_of_mean(of[f"{name}_by_example"]))

    def sampled(given: TheoryAndDraws) -> Estimate | None:
        return validation_scores(given.draws).get(score)

    words = {DENSITY: "log density per label"}.get(score, score.replace("_", " "))
    label = f"{words}, validation split"
    return Quantity(label, predicted, sampled, unit="", share=score == ACCURACY, brief=False)


HEADLINE = "order_parameter"
QUANTITIES: Registry[Quantity] = Registry(
    "compared quantity",
    {
        HEADLINE: Quantity("U₁", HEADLINE, mean(HEADLINE), show=WHOLE),
        "predictor_mean": Quantity(
            "predictor mean m(x)", "predictor_mean",
            lambda given: getattr(given.draws.predictor, "mean", None), show=WHOLE,
        ),
        "predictor_variance": Quantity(
            "predictor variance v(x)", "predictor_variance",
            lambda given: getattr(given.draws.predictor, "variance", None), show=WHOLE,
        ),
        "head_score": Quantity(
            "head score", **of_overlap(scores_of_heads), show=WHOLE, brief=False
        ),
        "kernel": Quantity("kernel K(x, x′)", predicted_kernel, sampled_kernel, show=WHOLE),
        "kernel_similarity": Quantity(
            "alignment of K with that of the draws", kernel_similarity, lambda _: None, unit="",
            brief=False, missing={SAMPLED: "reference", TUNED: "same K"},
        ),
        # Where little is to be seen of a component, noise makes its absolute value larger on
        # average: no difference is stated.
        "kernel_alignment": Quantity(
            "kernel alignment", "kernel_alignment", sampled_alignment, unit="", show=WHOLE,
            brief=False,
        ),
        "cosine_to_trained": Quantity(
            "cosine of U₁ off its diagonal with that of gradient descent",
            **of_overlap(cosine_to_trained), unit="", brief=False,
        ),
        ACCURACY: Quantity(
            "accuracy",
            **of_test_examples(labels_are_classes, hits, error_of_share, needs_variance=False),
            unit="points", share=True, least=half_an_example,
        ),
        DENSITY: Quantity(
            "test log density per label",
            **of_test_examples(are_several, density),
            unit="nats",
        ),
        "expected_calibration_error": Quantity(
            "calibration error",
            **of_test_set(
                are_several_signs, of_probability(calibration_error),
                of_probability(calibration_error_of_test_set),
            ),
            unit="", brief=False,
        ),
        "elpd": Quantity(
            "elpd (LOO)", "elpd", lambda given: sampled_elpd(given.draws.tree), unit="",
            ahead=elpd_ahead, missing=dict.fromkeys((NEXT, INFINITE, TUNED), "no LOO"),
        ),
        "log_evidence": Quantity(
            "log evidence", predicted_evidence, sampled_evidence, unit="",
            missing=dict.fromkeys((NEXT, SAMPLED), "needs sampler.evidence"),
        ),
        "temperature": Quantity(
            "temperature", predicted_temperature, sampled_temperature, unit=""
        ),
        **{f"validation_{score}": of_validation(score) for score in SCORES},
    },
)  # fmt: skip
UPPER = re.compile(r"order_parameter_layer_\d+|readout_order_parameter")


def quantities_of(given: TheoryAndDraws) -> dict[str, Quantity]:
    """All rows that may apply: order parameters of upper layers follow U_1."""
    upper = {
        name: Quantity(quantity_name(name), name, mean(name), show=WHOLE, brief=False)
        for name in given.draws.names
        if UPPER.fullmatch(name)
    }
    rows = dict(QUANTITIES.items())
    return {HEADLINE: rows.pop(HEADLINE)} | upper | rows
