"""Every quantity that is compared: one row says what is predicted, what the draws say, and how it
is shown.

`Quantity("accuracy", …)` in `QUANTITIES` is one row of every table, of `comparison.nc` and of
`comparison.json`. From outside the package another is added by `QUANTITIES.register(name, row)`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.analysis.calibration import (
    calibration_error,
    calibration_error_of_test_set,
    labels_are_signs,
    mixture_density,
    probability_of_positive,
)
from sampler.analysis.difference import RELATIVE, Difference, difference_of
from sampler.analysis.estimates import (
    Estimate,
    batch_means,
    bootstrap,
    mean_of,
    predictor_estimates,
)
from sampler.analysis.leave_one_out import sampled_elpd
from sampler.analysis.names import quantity_name
from sampler.analysis.scores import (
    ACCURACY,
    DENSITY,
    SCORES,
    error_of_mean,
    log_normal_density,
    scores_of,
)
from sampler.analysis.theory_and_draws import Prediction, TheoryAndDraws
from sampler.analysis.validation import GROUP as VALIDATION
from sampler.analysis.validation import sampled_scores
from sampler.registry import Registry
from theory import AttentionPaths, head_scores
from theory.observables import accuracy, binomial_error, correct, labels_are_classes

# How a quantity is shown: element by element with paths or heads as names, as a number in the table
# of all predictors, or by its difference as a whole alone.
PATHS, HEADS, NUMBER, WHOLE = "paths", "heads", "number", "whole"


Sampled = Callable[[TheoryAndDraws], Estimate | None]
Predicted = Callable[[Prediction, TheoryAndDraws], Any]


@dataclass(frozen=True)
class Quantity:
    """A compared quantity.

    label      what it is called in tables
    predicted  name of a variable of `theory.nc`, or a function of everything that one predictor
               predicts: an array, a number, an `Estimate`, None where it does not predict this
    sampled    the posterior's, with its Monte Carlo error; None where it is not known
    unit       of a difference: "%" of the size of the quantity, or the unit of the numbers; empty
               where nothing is said of a difference
    show       PATHS, HEADS, NUMBER or WHOLE
    share      whether it is a share, shown in per cent
    brief      whether the terminal shows it, beside the report
    least      the smallest Monte Carlo error that a difference is held against
    """

    label: str
    predicted: str | Predicted
    sampled: Sampled
    unit: str = RELATIVE
    show: str = NUMBER
    share: bool = False
    brief: bool = True
    least: Callable[[TheoryAndDraws], float] | None = None

    def prediction(self, of: Prediction, given: TheoryAndDraws) -> Estimate | None:
        """What one predictor predicts; None where it does not."""
        value = of.get(self.predicted) if isinstance(self.predicted, str) else None
        if not isinstance(self.predicted, str):
            value = self.predicted(of, given)
        if value is None or isinstance(value, Estimate):
            return value
        return Estimate(np.asarray(value, dtype=np.float64))

    def difference(
        self, predicted: Estimate, sampled: Estimate, given: TheoryAndDraws, symmetric: bool
    ) -> Difference | None:
        """The prediction against the samples as a whole; None where nothing is said of it."""
        if not self.unit:
            return None
        theory, estimate = np.asarray(predicted.value), sampled
        if self.least is not None:
            estimate = replace(estimate, mcse=np.maximum(estimate.mcse, self.least(given)))
            estimate = replace(estimate, deviations=None)
        if self.share and self.unit != RELATIVE:
            theory = 100.0 * theory
            scaled = {
                name: 100.0 * np.asarray(getattr(estimate, name)) for name in ("value", "mcse")
            }
            estimate = replace(estimate, **scaled)
        return difference_of(theory, estimate, self.unit, symmetric)


# --- what the draws say


def mean(name: str) -> Sampled:
    """The posterior mean of a quantity under its name in `draws.nc`."""
    return lambda given: mean_of(given.draws[name], given.weights) if name in given.draws else None


def predictor_moment(place: int) -> Sampled:
    """Posterior mean (0) or variance (1) of f."""

    def of(given: TheoryAndDraws) -> Estimate | None:
        return (
            predictor_estimates(given.predictors, given.weights)[place]
            if given.predictors
            else None
        )

    return of


def sampled_head_scores(given: TheoryAndDraws) -> Estimate | None:
    """Head scores of the posterior mean of U_1, errors by bootstrap."""
    if "order_parameter" not in given.draws or not given.heads:
        return None
    batches = batch_means(given.draws["order_parameter"], weights=given.weights)
    paths = AttentionPaths(given.heads)
    return bootstrap(
        lambda means: np.stack([head_scores(one, paths) for one in means]),
        batches,
        weights=given.weights,
    )


def predicted_head_scores(of: Prediction, given: TheoryAndDraws) -> np.ndarray | None:
    if "head_score" in of or "order_parameter" not in of or not given.heads:
        return of.get("head_score")
    return head_scores(of["order_parameter"], AttentionPaths(given.heads))


def sampled_alignment(given: TheoryAndDraws) -> Estimate | None:
    """Kernel–task alignment by component, NaN where it is not known; None without a theory."""
    if given.theory is None or "kernel_alignment" not in given.theory:
        return None
    if "kernel" not in given.tree.children:
        return None
    drawn = given.tree["kernel"].to_dataset()
    value, mcse = np.full((2, given.theory.sizes["component"]), np.nan)
    known = drawn.sizes["component"]
    value[:known] = drawn["kernel_alignment"].values
    mcse[:known] = drawn["kernel_alignment_mcse"].values
    return Estimate(value, mcse)


def off_diagonal_cosine(
    one: Float[np.ndarray, "*batch path path"], other: Float[np.ndarray, "path path"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Σ_{π≠π'} A B / √(Σ A² Σ B²) over the elements off the diagonal; leading axes are kept."""
    off = ~np.eye(one.shape[-1], dtype=bool)
    a, b = one[..., off], other[..., off]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def trained_overlap(given: TheoryAndDraws) -> np.ndarray | None:
    """U_1 of the network that gradient descent trained; None without one, or with one path."""
    table = given.theory
    known = table is not None and "order_parameter_trained" in table and table.sizes["path"] > 1
    return table["order_parameter_trained"].values if known else None


def sampled_cosine(given: TheoryAndDraws) -> Estimate | None:
    trained = trained_overlap(given)
    if trained is None or "order_parameter" not in given.draws:
        return None
    batches = batch_means(given.draws["order_parameter"], weights=given.weights)
    return bootstrap(
        lambda means: off_diagonal_cosine(means, trained), batches, weights=given.weights
    )


def predicted_cosine(of: Prediction, given: TheoryAndDraws) -> float | None:
    trained = trained_overlap(given)
    if trained is None or "order_parameter" not in of:
        return None
    return float(off_diagonal_cosine(of["order_parameter"], trained))


# --- scores on the test set


def sampled_accuracy(given: TheoryAndDraws) -> Estimate | None:
    """Accuracy of the posterior mean predictor."""
    labels, moments = given.labels_test, given.test_moments
    if moments is None or not labels_are_classes(labels):
        return None
    found = moments.estimate(lambda mean, _: correct(mean, labels).mean(axis=-1))
    return replace(found, test_error=binomial_error(float(found.value), len(labels)))


def predicted_accuracy(of: Prediction, given: TheoryAndDraws) -> Estimate | None:
    labels = given.labels_test
    if "predictor_mean" not in of or not labels_are_classes(labels):
        return None
    value = accuracy(of["predictor_mean"].reshape(labels.shape), labels)
    return Estimate(value, test_error=binomial_error(value, len(labels)))


def half_an_example(given: TheoryAndDraws) -> float:
    """An accuracy moves in steps of one test example: its error is no less than half of one."""
    return 0.5 / len(given.labels_test)


def sampled_density(given: TheoryAndDraws) -> Estimate | None:
    """Log predictive density of one Gaussian with the posterior's mean and variance."""
    labels, moments = given.labels_test, given.test_moments
    if moments is None or len(labels) < 2:
        return None

    def density(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return log_normal_density((labels - mean) ** 2, variance).mean(axis=(-2, -1))

    found = moments.estimate(density)
    error = scores_of(*moments.posterior, labels, 0.0)[DENSITY].test_error
    return replace(found, test_error=error)


def predicted_density(of: Prediction, given: TheoryAndDraws) -> Estimate | None:
    moments, labels = predicted_labels(of, given), given.labels_test
    return None if moments is None else scores_of(*moments, labels, 0.0)[DENSITY]


def predicted_labels(of: Prediction, given: TheoryAndDraws) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and variance of test labels by one predictor; None where it has not both."""
    labels = given.labels_test
    if (
        labels is None
        or len(labels) < 2
        or not {"predictor_mean", "predictor_variance"} <= of.keys()
    ):
        return None
    mean, variance = (of[f"predictor_{one}"].reshape(labels.shape) for one in ("mean", "variance"))
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        return None
    return mean, variance + float(of["temperature"])


def sampled_mixture(given: TheoryAndDraws) -> Estimate | None:
    """Log predictive density of the mixture over draws that know their own mean and variance."""
    labels, draws = given.labels_test, given.predictors
    if given.test_moments is None or len(labels) < 2 or "predictor_mean" not in draws:
        return None
    temperature = draws.get("temperature", given.temperature)
    return mixture_density(draws, labels, temperature, given.weights)


def sampled_calibration(given: TheoryAndDraws) -> Estimate | None:
    labels, moments = given.labels_test, given.test_moments
    if moments is None or len(labels) < 2 or not labels_are_signs(labels):
        return None
    positive = labels > 0

    def error(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        probability = probability_of_positive(mean, variance)
        return calibration_error(probability, np.broadcast_to(positive, probability.shape))

    probability = probability_of_positive(*moments.posterior)
    of_test_set = calibration_error_of_test_set(probability, positive)
    return replace(moments.estimate(error), test_error=of_test_set)


def predicted_calibration(of: Prediction, given: TheoryAndDraws) -> Estimate | None:
    moments, labels = predicted_labels(of, given), given.labels_test
    if moments is None or not labels_are_signs(labels):
        return None
    probability, positive = probability_of_positive(*moments), labels > 0
    value = float(calibration_error(probability, positive))
    return Estimate(value, test_error=calibration_error_of_test_set(probability, positive))


# --- evidence, temperature, validation


def sampled_evidence(given: TheoryAndDraws) -> Estimate | None:
    """ln p(y) of the samples: exact at this width up to its Monte Carlo error."""
    attributes = given.tree["sample_stats"].attrs
    if "log_evidence" not in attributes:
        return None
    remark = str(attributes.get("log_evidence_method", "importance"))
    if not attributes.get("log_evidence_trusted", 1):
        remark += ", NOT to be trusted"
    numbers = (float(attributes[name]) for name in ("log_evidence", "log_evidence_error"))
    return Estimate(*numbers, remark=remark)


def predicted_evidence(of: Prediction, given: TheoryAndDraws) -> np.ndarray | None:
    """ln p(y); None where the samples average theirs over temperatures, of which this has one."""
    return None if "temperature" in given.draws else of.get("log_evidence")


def sampled_temperature(given: TheoryAndDraws) -> Estimate | None:
    """The temperature that was sampled; None where it was given."""
    if "temperature" not in given.draws:
        return None
    draws = given.draws["temperature"]
    return replace(mean_of(draws, given.weights), spread=float(draws.std(ddof=1)))


def predicted_temperature(of: Prediction, given: TheoryAndDraws) -> np.ndarray | None:
    return of.get("temperature") if "temperature" in given.draws else None


def sampled_validation(score: str, given: TheoryAndDraws) -> Estimate | None:
    if VALIDATION not in given.tree.children:
        return None
    return sampled_scores(given.tree[VALIDATION].to_dataset(), given.weights).get(score)


def predicted_validation(score: str, of: Prediction, _: TheoryAndDraws) -> Estimate | None:
    name = f"validation_{score}"
    if name not in of:
        return None
    return Estimate(of[name], test_error=error_of_mean(of[f"{name}_by_example"]))


def of_validation(score: str) -> Quantity:
    label = f"{score.replace('_', ' ')}, validation split"
    functions = partial(predicted_validation, score), partial(sampled_validation, score)
    return Quantity(label, *functions, unit="", share=score == ACCURACY, brief=False)


HEADLINE = "order_parameter"
QUANTITIES: Registry[Quantity] = Registry(
    "compared quantity",
    {
        HEADLINE: Quantity("U₁", HEADLINE, mean(HEADLINE), show=PATHS),
        "predictor_mean": Quantity(
            "predictor mean m(x)", "predictor_mean", predictor_moment(0), show=WHOLE
        ),
        "predictor_variance": Quantity(
            "predictor variance v(x)", "predictor_variance", predictor_moment(1), show=WHOLE
        ),
        "head_score": Quantity(
            "head score", predicted_head_scores, sampled_head_scores, show=HEADS, brief=False
        ),
        # Where little is to be seen of a component, noise makes its absolute value larger on
        # average: nothing is said of a difference.
        "kernel_alignment": Quantity(
            "kernel alignment", "kernel_alignment", sampled_alignment, unit="", show=WHOLE,
            brief=False,
        ),
        "cosine_to_trained": Quantity(
            "cosine of U₁ off its diagonal with that of gradient descent",
            predicted_cosine, sampled_cosine, unit="", brief=False,
        ),
        ACCURACY: Quantity(
            "accuracy", predicted_accuracy, sampled_accuracy, unit="points", share=True,
            least=half_an_example,
        ),
        DENSITY: Quantity(
            "log predictive density", predicted_density, sampled_density, unit="nats"
        ),
        f"{DENSITY}_of_mixture": Quantity(
            "log predictive density, mixture over draws",
            lambda *_: None, sampled_mixture, unit="", brief=False,
        ),
        "expected_calibration_error": Quantity(
            "calibration error", predicted_calibration, sampled_calibration, unit="", brief=False
        ),
        "elpd": Quantity(
            "leave-one-out density", "elpd", lambda given: sampled_elpd(given.tree), unit=""
        ),
        "log_evidence": Quantity("log evidence", predicted_evidence, sampled_evidence, unit=""),
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
        for name in given.draws
        if UPPER.fullmatch(name)
    }
    rows = dict(QUANTITIES.items())
    return {HEADLINE: rows.pop(HEADLINE)} | upper | rows


def axes_of_quantity(name: str, given: TheoryAndDraws, sampled: Estimate) -> dict[str, np.ndarray]:
    """Axes of an array with their coordinates; numbered ones for a quantity from outside."""
    shape = np.shape(sampled.value)
    if not shape:
        return {}
    try:
        axes = given.axes_of(name)
    except KeyError:
        axes = {}
    if tuple(map(len, axes.values())) != shape:
        axes = {f"{name}_{place}": np.arange(size) for place, size in enumerate(shape)}
    return axes
