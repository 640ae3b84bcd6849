"""Quality of predictions: densities, scores, calibration.

The model is a regression, y = f(x) + √𝒯 ε, used on labels ±1. Of all numbers that its predictive
density p(y | x) covers only two occur, and the probability of the class +1 is that of +1 given that
it is one of them,

    p₊ = p(y = +1 | x) / (p(y = +1 | x) + p(y = −1 | x)).

It is made of the same density as the log predictive density, which a Φ(m/√s) is not: that one asks
for the sign of a y that may be any number. For one Gaussian of mean m and variance s = v + 𝒯 it is
p₊ = 1/(1 + exp(−2m/s)). Theory and GP limit are one Gaussian. The samples are a mixture of them,

    p(y | x) = ⟨N(y; m_d, v_d + 𝒯)⟩ over draws d,

wherever each draw knows its own mean m_d and variance v_d given U_1. Draws of all weights know only
f_d, and a mixture of Gaussians as narrow as √𝒯 would rest on the few draws that come close to a
label: there one Gaussian has the posterior's mean and variance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy.special import expit, ndtr

from sampler.analysis.compared import NAN, Row
from sampler.analysis.difference import Difference, difference_of
from sampler.analysis.draws_table import (
    stored_labels,
    stored_predictors,
    stored_weights,
)
from sampler.analysis.estimate import (
    Estimate,
    RepetitionWeights,
    batch_means,
    bootstrap,
    centre_of,
    mean_over_batches,
)
from sampler.analysis.labels import NEXT_ORDER
from sampler.analysis.validation import log_normal_density

SCORES = ("log_predictive_density", "expected_calibration_error")
BINS = 10
REPLICATES = 1000
DRAWN_TOGETHER = 10**6  # labels, to bound memory
EXAMPLES_TOGETHER = 100  # the same


@dataclass(frozen=True)
class Score:
    """A score with its error by the finite test set, and its Monte Carlo error where sampled.

    degrees                  of freedom that the Monte Carlo error is known by
    if_calibrated            of a calibration error: its mean over labels drawn from the predicted
                             probabilities, with the standard deviation `if_calibrated_deviation`
    """

    value: float
    error: float
    mcse: float | None = None
    degrees: int | None = None
    if_calibrated: float | None = None
    if_calibrated_deviation: float | None = None


@dataclass(frozen=True)
class ReliabilityBin:
    """Examples whose probability of +1 is in [low, high), and the share of them labelled +1."""

    low: float
    high: float
    count: int
    mean_probability: float
    fraction: float
    error: float

    def interval(self) -> tuple[float, float]:
        """Interval of the share, to one standard deviation."""
        return wilson_interval(round(self.fraction * self.count), self.count)


@dataclass(frozen=True)
class Quality:
    """Quality of one predictive distribution on the test set.

    predictive  which density the samples have, "mixture" or "gaussian"
    """

    log_predictive_density: Score | None
    expected_calibration_error: Score | None
    reliability: tuple[ReliabilityBin, ...]
    predictive: str | None = None

    @property
    def scores(self) -> dict[str, Score]:
        """Key → score, of those that are known."""
        found = {key: getattr(self, key) for key in SCORES}
        return {key: score for key, score in found.items() if score is not None}


@dataclass(frozen=True)
class PredictiveQuality:
    """Quality of theory, GP limit, samples and next order; None where it cannot be said.

    gp, gp_own  of infinite width, at the same temperature and at its own
    """

    theory: Quality | None
    gp: Quality | None
    sampled: Quality | None
    next_order: Quality | None = None
    own: Mapping[str, Quality] | None = None
    gp_own: Quality | None = None

    def rows(self, _: str, __: Sequence[str]) -> list[Row]:
        """Both scores; none where nothing was sampled or there is nothing beside it."""
        rows: list[Row] = []
        if self.theory is None and self.gp is None and not self.own:
            return rows
        for key, found in (self.sampled.scores if self.sampled else {}).items():
            theory, gp, gp_own, next_order = (
                NAN if one is None or key not in one.scores else one.scores[key].value
                for one in (self.theory, self.gp, self.gp_own, self.next_order)
            )
            own = {name: one.scores[key].value for name, one in (self.own or {}).items()}
            given = {"gp": gp, "gp_own": gp_own, "next_order": next_order, "own": own}
            given["test_error"] = found.error
            mcse = NAN if found.mcse is None else found.mcse
            rows.append(Row.of(key.replace("_", " "), theory, found.value, mcse, **given))
        return rows

    def difference(self, _: str) -> Difference | None:
        """Difference of the log predictive densities of theory and samples, in nats a label."""
        key = "log_predictive_density"
        one, other = (None if q is None else q.scores.get(key) for q in (self.theory, self.sampled))
        if one is None or other is None or not other.mcse:
            return None
        numbers = map(np.asarray, (other.value, other.mcse))
        estimate = Estimate(*numbers, degrees=other.degrees or 0)
        return difference_of(key, one.value, estimate, unit="nats")


def wilson_interval(positive: int, count: int, deviations: float = 1.0) -> tuple[float, float]:
    """Wilson's interval, z standard deviations wide, of a share seen in `count` examples.

    (f + z²/2n ± z √(f(1 − f)/n + z²/4n²)) / (1 + z²/n)

    Unlike √(f(1 − f)/n) it has a width where all examples agree (Wilson, 1927).
    """
    from scipy.stats import binomtest

    level = 1.0 - 2.0 * ndtr(-deviations)
    found = binomtest(positive, count).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


def bin_of(probability: np.ndarray) -> np.ndarray:
    """Bins of equal width, [b/B, (b + 1)/B); 1 belongs to the last one.

    The boundaries are the same for every predictor, so that theory, GP and samples can be held
    against each other bin by bin; bins of equal mass could not.
    """
    return np.minimum((probability * BINS).astype(int), BINS - 1)


def reliability(
    probability: Float[np.ndarray, "*shape"], positive: Bool[np.ndarray, "*shape"]
) -> tuple[ReliabilityBin, ...]:
    """Bins that have examples: what was predicted there, and what share of labels is +1.

    `error` is half the Wilson interval of one standard deviation, by the finite number of examples.
    """
    bins, found = bin_of(probability), []
    for place in np.unique(bins):
        inside = bins == place
        count, right = int(inside.sum()), int(positive[inside].sum())
        low, high = wilson_interval(right, count)
        mean = float(probability[inside].mean())
        found.append(
            ReliabilityBin(
                float(place / BINS), float((place + 1) / BINS), count, mean, right / count,
                (high - low) / 2,
            )
        )  # fmt: skip
    return tuple(found)


def surplus_by_bin(
    probability: Float[np.ndarray, "*leading example"],
    positive: Bool[np.ndarray, "*leading example"],
) -> Float[np.ndarray, "*leading bin"]:
    """Σ_i (p_i − [y_i = +1]) over the examples whose p is in the bin."""
    *leading, examples = probability.shape
    rows = int(np.prod(leading))
    place = np.arange(rows)[:, None] * BINS + bin_of(probability).reshape(rows, examples)
    surplus = np.bincount(place.ravel(), (probability - positive).ravel(), rows * BINS)
    return surplus.reshape(*leading, BINS)


def calibration_error(
    probability: Float[np.ndarray, "*leading example output"],
    positive: Bool[np.ndarray, "*leading example output"],
) -> Float[np.ndarray, "*leading"]:
    """ECE = Σ_b n_b/n |mean p in b − share of +1 in b| = Σ_b |Σ_{i in b} (p_i − [y_i = +1])|/n.

    Absolute values do not average out: with a finite test set it is biased upwards, above 0 even
    for a predictor that is calibrated. `calibration` says by how much.
    """
    flat = (*probability.shape[:-2], -1)
    surplus = surplus_by_bin(probability.reshape(flat), positive.reshape(flat))
    size = probability.shape[-2] * probability.shape[-1]
    return np.asarray(np.abs(surplus).sum(axis=-1) / size)


def calibration(
    probability: Float[np.ndarray, "example output"], positive: Bool[np.ndarray, "example output"]
) -> Score:
    """ECE, its error by the finite test set, and what it would be if the predictor were calibrated.

    The error is a bootstrap over test examples. `if_calibrated` is the mean of the ECE over labels
    drawn from the predicted probabilities, `if_calibrated_deviation` its standard deviation
    (Bröcker and Smith, 2007): an ECE a few deviations above that mean is not chance.
    """
    rng, examples = np.random.default_rng(0), len(probability)
    chosen = rng.multinomial(examples, np.full(examples, 1 / examples), REPLICATES)
    resampled = np.abs(chosen @ surplus_by_bin(probability, positive)).sum(axis=1)
    ideal: list[float] = []
    while len(ideal) < REPLICATES:
        count = min(REPLICATES - len(ideal), max(1, DRAWN_TOGETHER // probability.size))
        copies = np.broadcast_to(probability, (count, *probability.shape))
        ideal += calibration_error(copies, rng.random(copies.shape) < copies).tolist()
    return Score(
        value=float(calibration_error(probability, positive)),
        error=float(resampled.std(ddof=1)) / probability.size,
        if_calibrated=float(np.mean(ideal)),
        if_calibrated_deviation=float(np.std(ideal, ddof=1)),
    )


LABELS = np.array([1.0, -1.0])
# Averaged densities below this, relative to the largest one, count as this.
SMALLEST = float(np.finfo(np.float64).tiny)

LogDensities = Float[np.ndarray, "*leading example output label"]


def log_densities(
    mean: np.ndarray, variance: np.ndarray, temperature: float | np.ndarray
) -> LogDensities:
    """ln N(±1; m, v + 𝒯), that of +1 first, of means and variances [..., example, output]."""
    return log_normal_density((LABELS - mean[..., None]) ** 2, (variance + temperature)[..., None])


def probability_of_positive(
    densities: LogDensities,
) -> Float[np.ndarray, "*leading example output"]:
    """p₊ = 1/(1 + p(−1)/p(+1)) from the logarithms of both densities."""
    return expit(densities[..., 0] - densities[..., 1])


def quality(densities: LogDensities, labels: Float[np.ndarray, "example output"]) -> Quality:
    """Log predictive density, expected calibration error and reliability.

    Errors are those of a finite test set: the standard error of a mean over examples, and a
    bootstrap over examples.
    """
    positive = labels > 0
    at_label = np.where(positive, densities[..., 0], densities[..., 1]).mean(axis=-1)
    probability = probability_of_positive(densities)
    error = float(at_label.std(ddof=1) / np.sqrt(at_label.size))
    return Quality(
        Score(float(at_label.mean()), error),
        calibration(probability, positive),
        reliability(probability, positive),
    )


def predictive_quality(
    theory: xr.Dataset | None,
    tree: xr.DataTree,
    own: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> PredictiveQuality:
    """Quality of theory, GP limit, samples, and of own theories that predict mean and variance.

    None where it cannot be said: without test labels or with labels that are not ±1 in every
    output, and for a theory that there is not or that did not converge.
    """
    labels = stored_labels(tree)
    if labels is None or len(labels) < 2 or not np.all(np.abs(labels) == 1):
        return PredictiveQuality(None, None, None)
    temperature = float(tree["constant_data"]["temperature"])

    def of_gaussian(
        given: Mapping | None, prefix: str, order: str = "", temperature: float = temperature
    ) -> Quality | None:
        names = [f"{prefix}_{moment}{order}" for moment in ("mean", "variance")]
        if given is None or any(name not in given for name in names):
            return None
        mean, variance = (np.asarray(given[name]).reshape(labels.shape) for name in names)
        known = np.isfinite(mean).all() and np.isfinite(variance).all()
        return quality(log_densities(mean, variance, temperature), labels) if known else None

    sampled = sampled_quality(stored_predictors(tree), labels, temperature, stored_weights(tree))
    owned = {name: of_gaussian(one, "predictor") for name, one in (own or {}).items()}
    known = theory is not None and "gp_own_temperature" in theory
    own_temperature = float(theory["gp_own_temperature"]) if known else None
    return PredictiveQuality(
        of_gaussian(theory, "predictor"),
        of_gaussian(theory, "gp"),
        sampled,
        of_gaussian(theory, "predictor", NEXT_ORDER),
        {name: one for name, one in owned.items() if one is not None} or None,
        None if own_temperature is None else of_gaussian(theory, "gp_own", "", own_temperature),
    )


def sampled_quality(
    draws: Mapping[str, np.ndarray],
    labels: Float[np.ndarray, "example output"],
    temperature: float,
    weights: RepetitionWeights = None,
) -> Quality | None:
    """Quality of the sampled predictive density; `mcse` beside `error` is the Monte Carlo error.

    `predictive` says which density it is, "mixture" or "gaussian". The MCSE is a bootstrap over
    batches of draws. None of draws that are not finite, which diagnostics name.
    """
    if not all(np.isfinite(values).all() for values in draws.values()):
        return None
    of_draws = np.asarray(draws.get("temperature", temperature), dtype=np.float64)
    if "predictor_mean" in draws:
        kind, (batches, densities) = "mixture", mixture(draws, labels.shape, of_draws, weights)
    else:
        mean = float(of_draws.mean())
        kind, (batches, densities) = (
            "gaussian",
            gaussian(draws["predictor"], labels.shape, mean, weights),
        )
    positive = labels > 0

    def log_density(means: np.ndarray) -> np.ndarray:
        found = densities(means)
        return np.where(positive, found[..., 0], found[..., 1]).mean(axis=(-2, -1))

    def error(means: np.ndarray) -> np.ndarray:
        probability = probability_of_positive(densities(means))
        return calibration_error(probability, np.broadcast_to(positive, probability.shape))

    found = quality(densities(mean_over_batches(batches, weights)), labels)
    scores = {}
    for key, statistic in zip(SCORES, (log_density, error), strict=True):
        spread = bootstrap(statistic, batches, weights=weights)
        mcse = float(spread.mcse)
        scores[key] = replace(getattr(found, key), mcse=mcse, degrees=spread.degrees)
    return replace(found, predictive=kind, **scores)


Densities = Callable[[np.ndarray], LogDensities]


def mixture(
    draws: Mapping[str, np.ndarray],
    shape: tuple[int, ...],
    temperature: np.ndarray,
    weights: RepetitionWeights = None,
) -> tuple[np.ndarray, Densities]:
    """Batch means of the densities of every draw, and their logarithms from such means.

    temperature is one number, or [chain, draw].
    """
    mean, variance = (
        values.reshape(*values.shape[:2], *shape)
        for values in (draws["predictor_mean"], draws["predictor_variance"])
    )
    found = []
    for first in range(0, shape[0], EXAMPLES_TOGETHER):
        block = (..., slice(first, first + EXAMPLES_TOGETHER), slice(None))
        of_draw = log_densities(
            *(np.asarray(values[block], dtype=np.float64) for values in (mean, variance)),
            temperature[..., None, None],
        )
        # Relative to the largest one, or all densities far from a label would be 0.
        largest = of_draw.max(axis=(0, 1))
        found.append((batch_means(np.exp(of_draw - largest), weights=weights), largest))
    batches = np.concatenate([one for one, _ in found], axis=1)
    largest = np.concatenate([one for _, one in found])
    return batches, lambda means: np.log(np.maximum(means, SMALLEST)) + largest


def gaussian(
    values: Float[np.ndarray, "chain draw *shape"],
    shape: tuple[int, ...],
    temperature: float,
    weights: RepetitionWeights = None,
) -> tuple[np.ndarray, Densities]:
    """Batch means of f and of its squared deviations, and log densities from such means."""
    values = values.reshape(*values.shape[:2], *shape)
    centre, count = centre_of(values, weights), values.shape[0] * values.shape[1]
    parts = np.stack([values, (values - centre) ** 2], axis=-1)
    batches = batch_means(parts, weights=weights)

    def densities(means: np.ndarray) -> LogDensities:
        shift = means[..., 0] - centre
        between = np.maximum(means[..., 1] - shift**2, 0.0) * (count / (count - 1))
        return log_densities(means[..., 0], between, temperature)

    return batches, densities
