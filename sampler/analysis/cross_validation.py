"""Leave-one-out cross-validation: each training label as the rest of the examples predict it.

The posterior without an example is reached by weighing the draws of the posterior with
1/p(y_i | draw), the weights smoothed by a Pareto tail (PSIS); its shape k decides whether that may
be trusted. The theory and the limit of infinite width predict without any draws.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import logsumexp

from sampler.analysis.estimates import OF_CHAINS, Averages, Estimate
from sampler.analysis.predictors import INFINITE, LEADING, TUNED
from sampler.analysis.text import counted
from sampler.mcmc.collected_draws import (
    LOG_LIKELIHOOD,
    MOST_POINTWISE,
    DrawCollector,
    evenly_spaced,
)
from sampler.mcmc.convergence import bulk_ess, mean_mcse
from sampler.posterior.spaces import HIDDEN_WEIGHTS, WEIGHTS, kind_of
from sampler.problem import AnyProblem, Problem
from theory import (
    Combinations,
    LearningProblem,
    LeftOutAtSaddle,
    OrderParameters,
    SaddlePoint,
    left_out_log_density,
)
from theory.size_limits import hessian_fits

# Of fewer draws the largest fifth, at least five, is no tail; examples that a draw is judged by.
FEWEST_DRAWS, JUDGED = 25, 20
GROUP, ELPD, PARETO_K, MCSE = "leave_one_out", "elpd", "pareto_k", "mcse"
# Of the sum over examples, whose terms come from the same draws and err together.
MCSE_OF_SUM = "mcse_of_sum"
GIVEN_WEIGHTS = "ln N(y_i; f(x_i), temperature) given all weights"
GIVEN_OVERLAP = (
    "leave-one-out predictive ln p(y_i | all other labels, U_1), weights integrated out: what "
    "leave-one-out cross-validation needs; its sum over examples is not the joint log likelihood"
)
GIVEN_HIDDEN = GIVEN_OVERLAP.replace("U_1), weights", "hidden weights), the readout")


# --- from log likelihoods


def pointwise_elpd(
    log_likelihood: Float[np.ndarray, "chain draw example"],
    averages: Averages = OF_CHAINS,
) -> tuple[dict[str, Float[np.ndarray, " example"]], Float[np.ndarray, "chain draw"]]:
    """Each example's ln p(y_i | y_{−i}) by PSIS, its Monte Carlo error, and Pareto's k.

    And by how much each draw moves the sum over examples. Of repetitions the draws have the weights
    of theirs, and errors are those of the spread between repetitions. Too few draws, or draws that
    do not move, have no tail: their weights stay as they are, and k is NaN.
    """
    values = np.moveaxis(np.asarray(log_likelihood, dtype=np.float64), -1, 0)
    values = values.reshape(len(values), -1)
    efficiency, repetitions = relative_efficiency(log_likelihood), averages.weights
    log_weights, pareto_k = -values, np.full(len(values), np.nan)
    if repetitions is not None:
        with np.errstate(divide="ignore"):  # an evidence may be too small to have a weight
            each = values.shape[1] // len(repetitions)
            log_weights = log_weights + np.log(np.repeat(repetitions, each))
    if values.shape[1] >= FEWEST_DRAWS:
        from arviz_stats.base import array_stats  # only here: importing it takes long

        for example, row in enumerate(-log_weights):
            # A tail of equal values is refused, and of few draws not all weights are finite.
            with suppress(ValueError), np.errstate(divide="ignore", invalid="ignore"):
                smooth, shape = array_stats.psislw(row, r_eff=efficiency)
                if np.isfinite(smooth).all():
                    log_weights[example], pareto_k[example] = smooth, shape
    log_weights = log_weights - logsumexp(log_weights, axis=1, keepdims=True)
    # Where densities of draws differ very much, weights and densities apart are 0.
    elpd = logsumexp(log_weights + values, axis=1, keepdims=True)
    shares = np.exp(log_weights + values - elpd) - np.exp(log_weights)
    if repetitions is None:
        # As of any mean with weights that sum to one; draws of chains are worth fewer.
        error = np.sqrt(np.sum(shares**2, axis=1) / efficiency)
    else:
        each = shares.reshape(len(shares), len(repetitions), -1)
        error = error_over_repetitions(each, averages)
    terms = {ELPD: elpd[:, 0], MCSE: error, PARETO_K: pareto_k}
    return terms, shares.sum(axis=0).reshape(log_likelihood.shape[:2])


def error_over_repetitions(
    shares: Float[np.ndarray, "*term repetition draw"], averages: Averages
) -> np.ndarray:
    """The error of sums over all draws, from the spread between repetitions.

    shares: by how much each draw moves a sum, which is its weight times how far it is from it.
    """
    moved = np.moveaxis(shares.sum(axis=-1), -1, 0)
    of_weight = averages.weights.reshape(-1, *[1] * (moved.ndim - 1))
    apart = np.divide(moved, of_weight, out=np.zeros_like(moved), where=of_weight > 0.0)
    return np.asarray(averages.of_means(apart).mcse)


def error_of_total(moved: Float[np.ndarray, "chain draw"], averages: Averages = OF_CHAINS) -> float:
    """The Monte Carlo error of Σ_i ln p(y_i | y_{−i}), from the influence of each draw."""
    if averages.weights is not None:
        return float(error_over_repetitions(moved, averages))
    return float(moved.size * mean_mcse(moved))


def relative_efficiency(log_likelihood: Float[np.ndarray, "chain draw example"]) -> float:
    """Effective draws of a likelihood for each draw, at most 1; the mean over some examples."""
    chosen = evenly_spaced(log_likelihood.shape[2], JUDGED)
    values = np.asarray(log_likelihood[..., chosen], dtype=np.float64)
    moving = (np.ptp(values, axis=1) > 0).all(axis=0)
    if values.shape[1] < 4 or not moving.any():
        return 1.0
    with np.errstate(divide="ignore", invalid="ignore"):  # half a chain may not move
        shares = bulk_ess(values[..., moving]) / (values.shape[0] * values.shape[1])
    shares = shares[np.isfinite(shares)]
    return float(np.clip(shares.mean(), 1e-3, 1.0)) if shares.size else 1.0


# --- of draws


def leave_one_out_table(
    problem: AnyProblem, collected: DrawCollector, space: str
) -> xr.Dataset | None:
    """Group `leave_one_out`: elpd, its MCSE and Pareto's k of every example; with labels.

    None where draws have no numbers of single examples.
    """
    stored = collected.draws.get(LOG_LIKELIHOOD)
    if stored is None and LOG_LIKELIHOOD in collected.thinned:
        stored = collected.thinned[LOG_LIKELIHOOD].values
    if stored is None:
        return None
    averages = Averages.of(collected.statistics)
    labels, checksum = np.asarray(problem.training_examples[1]), hashlib.sha256()
    add_labels(checksum, labels)
    terms, moved = pointwise_elpd(stored, averages)
    table = {name: (("example",), values.astype(np.float32)) for name, values in terms.items()}
    table["y"] = (("example", "output"), labels)
    definition = GIVEN_WEIGHTS if kind_of(space) == WEIGHTS else GIVEN_OVERLAP
    about = {
        "log_likelihood": GIVEN_HIDDEN if space == HIDDEN_WEIGHTS else definition,
        "draws": stored.shape[0] * stored.shape[1],
        "labels": checksum.hexdigest(),
        MCSE_OF_SUM: error_of_total(moved, averages),
    }
    return xr.Dataset(table, attrs=about)


def add_labels(checksum, labels) -> None:
    """Add labels, in double precision, to their identification."""
    checksum.update(np.ascontiguousarray(labels, dtype=np.float64).tobytes())


# --- of theories


def left_out_by_example(
    problem: Problem, saddle: SaddlePoint, tuned: LearningProblem
) -> tuple[dict[str, dict], str]:
    """Columns `elpd` and `elpd_by_example` of predictors, and identification of the labels.

    ln p(y_i | y_{−i}). At infinite width U_1 depends on no label: leave-one-out is exact. A saddle
    point is moved as its example was not there; one with very many coordinates has no such column.
    Nothing where examples are too many for numbers of single ones.
    tuned: the training data at the temperature that infinite width chooses for itself.
    """
    if problem.learning.examples >= MOST_POINTWISE:
        return {}, ""
    limit = OrderParameters.gp_limit(problem.architecture).factors[0]
    densities: dict[str, Callable] = {
        name: partial(left_out_log_density, learning, limit)
        for name, learning in {INFINITE: problem.learning, TUNED: tuned}.items()
    }
    if saddle.converged and hessian_fits(problem.architecture):
        densities[LEADING] = LeftOutAtSaddle.of(problem.learning, saddle).log_density
    parts: dict[str, list[np.ndarray]] = {name: [] for name in densities}
    checksum = hashlib.sha256()
    for block in problem.blocks():
        add_labels(checksum, block[1])
        examples = None
        if problem.learning.residual_examples:
            examples = Combinations.of(problem.learning, *block)
        for name, density in densities.items():
            parts[name].append(np.asarray(density(examples)))
    columns = {}
    for name, blocks in parts.items():
        if blocks:
            values = np.concatenate(blocks).astype(np.float32)
            total = values.sum(dtype=np.float64)
            columns[name] = {"elpd_by_example": (("example",), values), "elpd": ((), total)}
    return columns, checksum.hexdigest()


# --- compared


def sampled_elpd(tree: xr.DataTree) -> Estimate | None:
    """Σ_i ln p(y_i | y_{−i}) of the samples, by PSIS; None if unknown.

    A remark warns where Pareto's k does not allow to trust the number.
    """
    if GROUP not in tree.children:
        return None
    table = tree[GROUP].to_dataset().astype(np.float64, keep_attrs=True)
    elpd, draws = table[ELPD].values, int(table.attrs["draws"])
    unreliable, remark = count_unreliable(table[PARETO_K].values, draws), ""
    if unreliable:
        remark = (
            f"PSIS, NOT reliable: k > {limit_of_k(draws):.2g} at {counted(unreliable, 'example')}"
        )
    mcse = table.attrs[MCSE_OF_SUM]
    return Estimate(
        elpd.sum(), mcse, test_error=error_of_sum(elpd), remark=remark, trusted=not unreliable
    )


def sampled_elpd_by_example(tree: xr.DataTree) -> Float[np.ndarray, " example"] | None:
    """The terms of that sum; None if unknown, or Pareto's k is too large for one."""
    if GROUP not in tree.children:
        return None
    table = tree[GROUP].to_dataset()
    if count_unreliable(table[PARETO_K].values, int(table.attrs["draws"])):
        return None
    return np.asarray(table[ELPD].values, dtype=np.float64)


def limit_of_k(draws: int) -> float:
    """min(1 − 1/log₁₀ S, 0.7): above it the terms of PSIS are not reliable."""
    return min(1.0 - 1.0 / np.log10(max(draws, 11)), 0.7)


def count_unreliable(pareto_k: Float[np.ndarray, " example"], draws: int) -> int:
    """Examples whose k is above its limit, or unknown."""
    return int(np.sum(~(pareto_k <= limit_of_k(draws))))


def error_of_sum(values: Float[np.ndarray, " example"]) -> float:
    """Standard error √(n Var) of a sum over n examples."""
    return float(np.sqrt(len(values)) * values.std(ddof=1)) if len(values) > 1 else np.nan
