"""What is to be told of a run of plain arrays (`run`), from the definitions, by NumPy and SciPy.

Nothing of the program is used here. Posterior means are over chains and draws, or over repetitions
by their weights; errors of means are ArviZ's, or come from the spread of weighted repetitions;
those of functions of means come from a bootstrap over repetitions, or over ten batches a chain.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from arviz_stats.base import array_stats
from scipy.stats import binomtest, norm

REPLICATES = 1000
# The largest of theirs and of ours may be so many standard errors of a bootstrap apart.
DEVIATIONS = 5.0
THEIR_REPLICATES, THEIR_TEST_REPLICATES = 400, 1000
BINS = 10
# By how much more weighted means may be off than repetitions tell, and the least weight in that.
BEYOND, LOWEST_LOG = 3.0, -1.5


@dataclass(frozen=True)
class Expected:
    """A number or an array with its Monte Carlo error and its error by the finite examples.

    slack, test_slack   by how much errors that come from a bootstrap may differ, relative
    rows, degrees       deviations, whose products sum to the covariance of errors; of freedom
    """

    value: np.ndarray
    error: np.ndarray | float = np.nan
    test_error: float = np.nan
    slack: float = 0.0
    test_slack: float = 0.0
    rows: np.ndarray | None = None
    degrees: float = 0.0


def slack_of(values: np.ndarray, theirs: int, ours: int) -> float:
    """Relative error of the ratio of two standard deviations of such values, many times over."""
    centred = values - values.mean()
    spread = np.mean(centred**2)
    if spread == 0.0:
        return 0.0
    excess = np.mean(centred**4) / spread**2 - 1.0
    return DEVIATIONS * np.sqrt(excess / 4 * (1 / theirs + 1 / ours))


# --- posterior means


def batches_of(draws: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Means of each repetition, or of ten batches of each chain [batch, …]."""
    if weights is not None:
        return draws.mean(axis=1)
    size = draws.shape[1] // 10
    return np.concatenate(
        [
            chain[at : at + size].mean(axis=0)[None]
            for chain in draws
            for at in range(0, 10 * size, size)
        ]
    )


def mean_of(draws: np.ndarray, weights: np.ndarray | None) -> Expected:
    """Mean over the posterior of draws [chain, draw, …]."""
    means = batches_of(draws, weights)
    count = len(means)
    if weights is None:
        value, gaps = draws.mean(axis=(0, 1)), means - means.mean(axis=0)
        error = array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="mean")
        return Expected(value, error, rows=gaps / np.sqrt(count * (count - 1)), degrees=count - 1)
    value = np.average(means, axis=0, weights=weights)
    others = [np.average(np.delete(means, r, 0), axis=0, weights=np.delete(weights, r))
              for r in range(count)]  # fmt: skip
    # What the mean changes by without each repetition, and what may be missing beyond them all.
    without = np.sqrt((count - 1) / count) * (value - np.stack(others))
    beyond = BEYOND * (np.tensordot(cumulant_shares(weights), means, axes=1) - value)
    rows = np.concatenate([without, beyond[None]])
    error = np.sqrt(np.sum(rows**2, axis=0))
    return Expected(value, error, rows=rows, degrees=effective(weights) - 1)


def cumulant_shares(weights: np.ndarray) -> np.ndarray:
    """Shares of E[m] + Cov(ln w, m), a mean to second order in the cumulants of ln w and m.

    Weights below e^−1.5 of the mean one count as that.
    """
    count = len(weights)
    logs = np.maximum(np.log(count * weights), LOWEST_LOG)
    return np.full(count, 1 / count) + (logs - logs.mean()) / (count - 1)


def effective(weights: np.ndarray) -> float:
    """Repetitions of equal weight that these are worth."""
    return 1 / np.sum(weights**2)


def variance_of(draws: np.ndarray, weights: np.ndarray | None, within=0.0) -> Expected:
    """Var of draws, plus the mean of what varies within each."""
    count = draws.shape[0] * draws.shape[1]
    centre = mean_of(draws, weights).value
    return mean_of((draws - centre) ** 2 * count / (count - 1) + within, weights)


def bootstrapped(
    function: Callable[[np.ndarray], np.ndarray], value, batches: np.ndarray, weights
) -> Expected:
    """A function of means [replicate, …] over batches, with its error by drawing these again."""
    rng, count = np.random.default_rng(7), len(batches)
    chosen = rng.integers(count, size=(REPLICATES, count))
    times = np.stack([np.bincount(one, minlength=count) for one in chosen]).astype(float)
    shares = times if weights is None else times * weights
    shares /= shares.sum(axis=1, keepdims=True)
    values = np.asarray(function(np.tensordot(shares, batches, axes=1)), dtype=float)
    flat = values.reshape(REPLICATES, -1)
    slack = max(slack_of(column, THEIR_REPLICATES, REPLICATES) for column in flat.T)
    rows = (values - values.mean(axis=0)) / np.sqrt(REPLICATES - 1)
    degrees = count - 1.0
    if weights is not None:
        # The spread of few repetitions drawn again is that of weighted means of independent
        # numbers; without each of them it is larger. Beyond them all: as of means.
        without = weights / (1 - weights)
        rows *= np.sqrt((count - 1) / count * np.sum(without**2) / np.sum(weights**2))
        shares = np.maximum(cumulant_shares(weights), 0.0)
        middle = function(np.tensordot(shares / shares.sum(), batches, axes=1)[None])
        rows = np.concatenate([rows, BEYOND * (middle - value)])
        degrees = effective(weights) - 1
    error = np.sqrt(np.sum(rows**2, axis=0))
    return Expected(np.asarray(value), error, slack=slack, rows=rows, degrees=degrees)


def as_noise(temperature):
    """The variance of the noise of every label, of one temperature or of that of each draw."""
    temperature = np.asarray(temperature)
    return temperature[..., None, None] if temperature.ndim else temperature


def of_moments(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], mean, variance, noise, weights
) -> Expected:
    """A function of mean and variance of a label: E[m] and E[v + 𝒯] + Var[m]."""
    total = variance + as_noise(noise)
    centre = mean_of(mean, weights).value
    count = mean.shape[0] * mean.shape[1]
    parts = (mean - centre, (mean - centre) ** 2, total)
    batches = np.stack([batches_of(part, weights) for part in parts], axis=1)

    def of_means(means):
        shift, square, rest = np.moveaxis(means, 1, 0)
        between = np.maximum(square - shift**2, 0) * count / (count - 1)
        return function(centre + shift, rest + between)

    whole = function(centre, variance_of(mean, weights, total).value)
    return bootstrapped(of_means, whole, batches, weights)


# --- scores of a mean and a variance


def right(mean: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether each example is in its class: the sign, or the largest output; [..., example]."""
    if labels.shape[1] == 1:
        return (mean[..., 0] > 0) == (labels[:, 0] > 0)
    return mean.argmax(axis=-1) == labels.argmax(axis=-1)


def accuracy_of(mean: np.ndarray, labels: np.ndarray) -> float:
    return float(right(mean, labels).mean())


def error_of_share(correct: np.ndarray) -> float:
    """Half of Wilson's interval of one standard deviation."""
    test = binomtest(int(correct.sum()), len(correct))
    low, high = test.proportion_ci(1.0 - 2.0 * norm.sf(1.0), method="wilson")
    return (high - low) / 2


def log_density(labels, mean, variance) -> np.ndarray:
    """ln N(y; m, s)."""
    return -0.5 * np.log(2 * np.pi * variance) - (labels - mean) ** 2 / (2 * variance)


def scores_by_example(mean, variance, labels) -> dict[str, np.ndarray]:
    """Log density, squared error, averaged over outputs, and whether the class is right."""
    return {
        "log_predictive_density": log_density(labels, mean, variance).mean(axis=-1),
        "squared_error": ((labels - mean) ** 2).mean(axis=-1),
        "accuracy": right(mean, labels).astype(float),
    }


def error_of_mean(values: np.ndarray) -> float:
    return values.std(ddof=1) / np.sqrt(len(values))


def calibration_error(mean, variance, labels, times=1.0) -> np.ndarray:
    """Σ_b |Σ_{i in b} (p_i − [y_i = +1])|/n over ten bins of p₊ = p(+1)/(p(+1) + p(−1)).

    times: how often each example counts [..., example].
    """
    plus, minus = (np.exp(log_density(y, mean, variance))[..., 0] for y in (1.0, -1.0))
    chance = plus / (plus + minus)
    place = np.minimum(np.floor(BINS * chance), BINS - 1)
    surplus = times * (chance - (labels[:, 0] > 0))
    bins = [np.abs(np.sum(surplus * (place == one), axis=-1)) for one in range(BINS)]
    return sum(bins) / len(labels)


def calibration_of_test_set(mean, variance, labels) -> tuple[float, float]:
    """Error of the calibration error by drawing test examples again, and how well it is known."""
    rng, count = np.random.default_rng(3), len(labels)
    chosen = rng.integers(count, size=(REPLICATES, count))
    times = np.stack([np.bincount(one, minlength=count) for one in chosen])
    values = calibration_error(mean, variance, labels, times)
    return values.std(ddof=1), slack_of(values, THEIR_TEST_REPLICATES, REPLICATES)


def test_scores(mean, variance, labels) -> dict[str, Expected]:
    """Scores of one mean and variance on the test set, with their errors by its size."""
    known = np.isfinite(variance).all()
    scores = {"accuracy": right(mean, labels).astype(float)}
    if known:
        by_example = scores_by_example(mean, variance, labels)
        scores["log_predictive_density"] = by_example["log_predictive_density"]
    found = {
        name: Expected(
            of.mean(),
            test_error=error_of_share(of) if name == "accuracy" else error_of_mean(of),
        )
        for name, of in scores.items()
    }
    if known and labels.shape[1] == 1:
        error, slack = calibration_of_test_set(mean, variance, labels)
        value = calibration_error(mean, variance, labels)
        found["expected_calibration_error"] = Expected(value, test_error=error, test_slack=slack)
    return found


def head_scores(overlap: np.ndarray, heads: tuple[int, int]) -> np.ndarray:
    """Σ |U_1| over entries whose row or column path uses a head, relative to the largest."""
    paths = list(product(*map(range, heads)))
    outputs = overlap.shape[-1] // len(paths)
    scores = np.full((*overlap.shape[:-2], 2, max(heads)), np.nan)
    for layer in range(2):
        for head in range(heads[layer]):
            uses = np.repeat([path[layer] == head for path in paths], outputs)
            either = uses[:, None] | uses[None, :]
            scores[..., layer, head] = np.sum(np.abs(overlap) * either, axis=(-2, -1))
    return scores / np.nanmax(scores, axis=(-2, -1), keepdims=True)


def cosine(overlap: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosine of two matrices off their diagonals."""
    off = ~np.eye(len(other), dtype=bool)
    one, two = overlap[..., off], other[off]
    return one @ two / np.sqrt(np.sum(one**2, axis=-1) * np.sum(two**2))


# --- everything of a run


def predicted(told) -> dict[str, dict[str, Expected]]:
    """Quantity → predictor → what it predicts, with the error by the finite examples."""
    from tests.told.run import HEADS

    found: dict[str, dict[str, Expected]] = {}
    for who, of in told.predictions.items():
        numbers = {name: Expected(v) for name, v in of.items() if name in PLAIN}
        numbers["temperature"] = Expected(of["temperature"])
        if "temperature" in told.drawn:
            numbers.pop("log_evidence", None)  # that of the samples is of all temperatures
        if "order_parameter" in of:
            overlap = of["order_parameter"]
            numbers["head_score"] = Expected(head_scores(overlap, HEADS[told.kind]))
            numbers["cosine_to_trained"] = Expected(cosine(overlap, told.trained))
        noise = of["predictor_variance"] + of["temperature"]
        numbers |= test_scores(of["predictor_mean"], noise, told.labels["test"])
        mean, variance = of["_validation"]
        scores = scores_by_example(mean, variance + of["temperature"], told.labels["validation"])
        for score, values in scores.items():
            numbers[f"validation_{score}"] = Expected(
                values.mean(), test_error=error_of_mean(values)
            )
        for name, value in numbers.items():
            found.setdefault(name, {})[who] = value
    return found


PLAIN = (
    "order_parameter", "order_parameter_layer_2", "readout_order_parameter", "predictor_mean",
    "predictor_variance", "kernel_alignment", "elpd", "log_evidence",
)  # fmt: skip


def sampled(told) -> dict[str, Expected]:
    """Quantity → what the samples say, with both errors."""
    from tests.told.run import HEADS

    drawn, weights, labels = told.drawn, told.weights, told.labels["test"]
    found = {n: mean_of(drawn[n], weights) for n in PLAIN if "order_parameter" in n}
    if told.kind == "chains":
        mean, within = drawn["predictor"], np.zeros_like(drawn["predictor"])
    else:
        mean, within = drawn["predictor_mean"], drawn["predictor_variance"]
    found["predictor_mean"] = mean_of(mean, weights)
    found["predictor_variance"] = variance_of(mean, weights, within)
    overlaps = batches_of(drawn["order_parameter"], weights)
    whole = found["order_parameter"].value
    for name, function in {
        "head_score": lambda overlap: head_scores(overlap, HEADS[told.kind]),
        "cosine_to_trained": lambda overlap: cosine(overlap, told.trained),
    }.items():
        found[name] = bootstrapped(function, function(whole), overlaps, weights)
    found["kernel_alignment"] = Expected(*told.alignment)
    temperature = drawn.get("temperature", told.temperature)
    if "temperature" in drawn:
        found["temperature"] = mean_of(temperature, weights)
    for name, of_all in test_scores(
        found["predictor_mean"].value, label_variance(told), labels
    ).items():

        def score(mean, variance, name=name):
            if name == "expected_calibration_error":
                return calibration_error(mean, variance, labels)
            return scores_by_example(mean, variance, labels)[name].mean(axis=-1)

        of_draws = of_moments(score, mean, within, temperature, weights)
        errors = {name: getattr(of_all, name) for name in ("test_error", "test_slack")}
        found[name] = replace(of_draws, value=of_all.value, **errors)
    found["elpd"] = Expected(
        told.left_out["elpd"].sum(),
        told.left_out["mcse_of_sum"],
        np.sqrt(len(told.left_out["elpd"])) * told.left_out["elpd"].std(ddof=1),
    )
    found["log_evidence"] = Expected(*told.evidence[:2])
    return found | sampled_validation(told)


def label_variance(told) -> np.ndarray:
    """Variance of test labels over the posterior, E[v + 𝒯] + Var[m]."""
    drawn = told.drawn
    mean = drawn["predictor" if told.kind == "chains" else "predictor_mean"]
    within = drawn.get("predictor_variance", np.zeros_like(mean))
    noise = as_noise(drawn.get("temperature", told.temperature))
    return variance_of(mean, told.weights, within + noise).value


def sampled_validation(told) -> dict[str, Expected]:
    """Scores of the samples on the validation split, from the draws that were kept."""
    by_example, drawn = validation_by_example(told), told.drawn
    mean, variance, noise = drawn["validation_mean"], drawn["validation_variance"], noise_kept(told)
    found = {}
    for name, values in by_example.items():

        def score(mean, variance, name=name):
            return scores_by_example(mean, variance, told.labels["validation"])[name].mean(axis=-1)

        of_draws = of_moments(score, mean, variance, noise, told.weights)
        found[f"validation_{name}"] = Expected(
            values.mean(), of_draws.error, error_of_mean(values), of_draws.slack
        )
    return found


def noise_kept(told) -> np.ndarray:
    if "temperature" in told.drawn:
        return told.drawn["temperature"][:, told.validated]
    return np.full(told.drawn["validation_mean"].shape[:2], told.temperature)


def validation_by_example(told) -> dict[str, np.ndarray]:
    """Score → that of posterior mean and variance at each validation example."""
    mean, variance = told.drawn["validation_mean"], told.drawn["validation_variance"]
    total = variance_of(mean, told.weights, variance + as_noise(noise_kept(told))).value
    centre = mean_of(mean, told.weights).value
    return scores_by_example(centre, total, told.labels["validation"])
