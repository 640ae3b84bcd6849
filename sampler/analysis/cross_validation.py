"""Leave-one-out cross-validation: each training label as the rest of the examples predict it.

The posterior without an example is reached by weighing the draws of the posterior with
1/p(y_i | draw), the weights smoothed by a Pareto tail (PSIS); its shape k says whether that may be
trusted. The theory and the limit of infinite width predict without any draws.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import logsumexp

from sampler.analysis.estimates import Estimate, RepetitionWeights, over_repetitions
from sampler.analysis.predictors import INFINITE, LEADING, TUNED
from sampler.analysis.validation import kept_draws
from sampler.mcmc.collected_draws import (
    EFFECTIVE,
    LOG_LIKELIHOOD,
    MOST_POINTWISE,
    DrawCollector,
    evenly_spaced,
)
from sampler.mcmc.convergence import bulk_ess, mean_mcse
from sampler.mcmc.tempered import repetition_weights
from sampler.network import outputs_of
from sampler.posterior.given import log_likelihood_of_examples
from sampler.posterior.spaces import HIDDEN_WEIGHTS, WEIGHTS, kind_of
from sampler.problem import AnyProblem, Problem, square_roots
from sampler.runtime import jax_settings
from theory import (
    Combinations,
    LearningProblem,
    LeftOutAtSaddle,
    OrderParameters,
    SaddlePoint,
    left_out_log_density,
)
from theory.leave_one_out import left_out
from theory.size_limits import hessian_fits

# Draws of all chains that are asked about examples which are too many for all draws, and so many of
# these that are left out in turn, at a millisecond each.
MOST_DRAWS, MOST_LEFT_OUT = 400, 2000
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
    repetitions: RepetitionWeights = None,
) -> tuple[dict[str, Float[np.ndarray, " example"]], Float[np.ndarray, "chain draw"]]:
    """Each example's ln p(y_i | y_{−i}) by PSIS, its Monte Carlo error, and Pareto's k.

    And by how much each draw moves the sum over examples. Of repetitions the draws have the weights
    of theirs, and errors are those of the spread between repetitions. Too few draws, or draws that
    do not move, have no tail: their weights stay as they are, and k is NaN.
    """
    values = np.moveaxis(np.asarray(log_likelihood, dtype=np.float64), -1, 0)
    values = values.reshape(len(values), -1)
    efficiency = relative_efficiency(log_likelihood)
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
        error = error_over_repetitions(each, repetitions)
    terms = {ELPD: elpd[:, 0], MCSE: error, PARETO_K: pareto_k}
    return terms, shares.sum(axis=0).reshape(log_likelihood.shape[:2])


def error_over_repetitions(
    shares: Float[np.ndarray, "*term repetition draw"], weights: Float[np.ndarray, " repetition"]
) -> np.ndarray:
    """The error of sums over all draws, from the spread between repetitions.

    shares: by how much each draw moves a sum, which is its weight times how far it is from it.
    """
    moved = np.moveaxis(shares.sum(axis=-1), -1, 0)
    of_weight = weights.reshape(-1, *[1] * (moved.ndim - 1))
    apart = np.divide(moved, of_weight, out=np.zeros_like(moved), where=of_weight > 0.0)
    return np.asarray(over_repetitions(apart, weights).mcse)


def error_of_total(
    moved: Float[np.ndarray, "chain draw"], repetitions: RepetitionWeights = None
) -> float:
    """The Monte Carlo error of Σ_i ln p(y_i | y_{−i}), from what each draw moves it by."""
    if repetitions is not None:
        return float(error_over_repetitions(moved, repetitions))
    return float(moved.size * mean_mcse(moved))


def relative_efficiency(log_likelihood: Float[np.ndarray, "chain draw example"]) -> float:
    """Effective draws of a likelihood for each draw, at most 1; the mean over some examples."""
    chosen = evenly_spaced(log_likelihood.shape[2], JUDGED)
    values = np.asarray(log_likelihood[..., chosen], dtype=np.float64)
    moving = (np.ptp(values, axis=1) > 0).all(axis=0)
    if values.shape[1] < 4 or not moving.any():
        return 1.0
    with np.errstate(divide="ignore", invalid="ignore"):  # half a chain may stand still
        shares = bulk_ess(values[..., moving]) / (values.shape[0] * values.shape[1])
    shares = shares[np.isfinite(shares)]
    return float(np.clip(shares.mean(), 1e-3, 1.0)) if shares.size else 1.0


# --- of draws


def leave_one_out_table(
    problem: AnyProblem, collected: DrawCollector, space: str
) -> xr.Dataset | None:
    """Group `leave_one_out`: elpd, its MCSE and Pareto's k of every example; labels beside them.

    From the log likelihoods of draws, or by a pass over the examples where they are too many for
    that, of an even selection of them. None where nothing is known of single examples.
    """
    weights, checksum = repetition_weights(collected.statistics), hashlib.sha256()
    stored = collected.draws.get(LOG_LIKELIHOOD)
    if stored is None and LOG_LIKELIHOOD in collected.thinned:
        stored = collected.thinned[LOG_LIKELIHOOD].values
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    if stored is not None:
        labels = np.asarray(problem.training_examples[1])
        add_labels(checksum, labels)
        parts.append((stored, labels))
    elif isinstance(problem, Problem):
        of_block = block_log_likelihood(problem, collected)
        for attended, labels in examples_left_out(problem, checksum) if of_block else ():
            of_draws = of_block(jnp.asarray(attended), jnp.asarray(labels))
            parts.append((of_draws, np.asarray(labels)))
    if not parts:
        return None
    columns, moved = zip(*(pointwise_elpd(of_draws, weights) for of_draws, _ in parts), strict=True)
    table = {
        name: (("example",), np.concatenate([each[name] for each in columns]).astype(np.float32))
        for name in (ELPD, MCSE, PARETO_K)
    }
    table["y"] = (("example", "output"), np.concatenate([labels for _, labels in parts]))
    definition = GIVEN_WEIGHTS if kind_of(space) == WEIGHTS else GIVEN_OVERLAP
    if space == HIDDEN_WEIGHTS and stored is not None:
        definition = GIVEN_HIDDEN
    chains, draws = parts[0][0].shape[:2]
    about = {
        "log_likelihood": definition,
        "draws": chains * draws,
        "labels": checksum.hexdigest(),
        MCSE_OF_SUM: error_of_total(sum(moved), weights),
    }
    return xr.Dataset(table, attrs=about)


def add_labels(checksum, labels) -> None:
    """Add labels, in double precision, to what identifies them."""
    checksum.update(np.ascontiguousarray(labels, dtype=np.float64).tobytes())


def examples_left_out(problem: Problem, checksum) -> Iterator[tuple[Any, Any]]:
    """Attended inputs and labels of the examples that are left out in turn, a few at a time.

    All of them, or an even selection of `MOST_LEFT_OUT` where they are too many for all draws. All
    labels are added to the checksum.
    """
    count = problem.learning.examples
    chosen, start, parts = evenly_spaced(count, MOST_LEFT_OUT), 0, []
    for attended, labels in problem.blocks():
        add_labels(checksum, labels)
        if count < MOST_POINTWISE:
            yield attended, labels
            continue
        inside = chosen[(chosen >= start) & (chosen < start + len(labels))] - start
        parts.append((np.asarray(attended)[inside], np.asarray(labels)[inside]))
        start += len(labels)
    if parts:
        yield tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def block_log_likelihood(
    problem: Problem, collected: DrawCollector
) -> Callable[[Any, Any], np.ndarray] | None:
    """A function of attended inputs and labels to log likelihoods [chain, draw, example].

    None where the draws say nothing of examples.
    """
    drawn, learning = collected.draws, problem.learning
    if EFFECTIVE in collected.thinned:
        thinned = collected.thinned[EFFECTIVE]
        chosen = kept_draws(*thinned.values.shape[:2], MOST_DRAWS)
        numbers, given = thinned.draws[chosen], {"weights": thinned.values[:, chosen]}
        of_draw = partial(_given_weights, architecture=learning.architecture.sizes)
    elif "order_parameter" in drawn:
        numbers = kept_draws(*drawn["order_parameter"].shape[:2], MOST_DRAWS)
        given = {"factor": square_roots(drawn["order_parameter"][:, numbers])}
        of_draw = _given_overlap
    else:
        return None
    shape = (len(next(iter(given.values()))), len(numbers))
    given["temperature"] = np.full(shape, problem.temperature)
    if "temperature" in drawn:
        given["temperature"] = drawn["temperature"][:, numbers]
    draws = {name: jnp.asarray(v.reshape(-1, *v.shape[2:])) for name, v in given.items()}
    compiled = jax.jit(partial(_of_block, of_draw))

    def of_block(attended, labels):
        with jax_settings():
            block = attended, labels
            if of_draw is _given_overlap:
                block = Combinations.of(learning, attended, labels)
            values = np.asarray(compiled(draws, learning.energy, block))
        return values.reshape(*shape, -1)

    return of_block


def _of_block(of_draw, draws, energy, block):
    return jax.lax.map(lambda draw: of_draw(draw, energy, block), draws)


def _given_weights(draw, _, block, *, architecture):
    attended, labels = block
    outputs = outputs_of(draw["weights"].astype(attended.dtype), attended, architecture)
    return log_likelihood_of_examples(outputs, labels, draw["temperature"])


def _given_overlap(draw, energy, block):
    at_temperature = replace(energy, temperature=draw["temperature"])
    whitening = at_temperature.noisy_kernel(draw["factor"]).whitening
    return left_out(at_temperature, whitening, block).log_density


# --- of theories


def left_out_by_example(
    problem: Problem, saddle: SaddlePoint, tuned: LearningProblem
) -> tuple[dict[str, dict], str]:
    """Columns `elpd` and `elpd_by_example` of predictors, and what identifies the labels.

    ln p(y_i | y_{−i}). At infinite width U_1 depends on no label: leave-one-out is exact. A saddle
    point is moved as its example was not there; one with very many coordinates has no such column.
    tuned: the training data at the temperature that infinite width chooses for itself.
    """
    limit = OrderParameters.gp_limit(problem.architecture).factors[0]
    densities: dict[str, Callable] = {
        name: partial(left_out_log_density, learning, limit)
        for name, learning in {INFINITE: problem.learning, TUNED: tuned}.items()
    }
    if saddle.converged and hessian_fits(problem.architecture):
        densities[LEADING] = LeftOutAtSaddle.of(problem.learning, saddle).log_density
    parts: dict[str, list[np.ndarray]] = {name: [] for name in densities}
    checksum = hashlib.sha256()
    for block in examples_left_out(problem, checksum):
        examples = None
        if problem.learning.residual_examples:
            examples = Combinations.of(problem.learning, *block)
        for name, density in densities.items():
            parts[name].append(np.asarray(density(examples)))
    few = problem.learning.examples < MOST_POINTWISE
    axis, columns = "example" if few else "example_left_out", {}
    for name, blocks in parts.items():
        if blocks:
            values = np.concatenate(blocks).astype(np.float32)
            total = values.sum(dtype=np.float64)
            columns[name] = {"elpd_by_example": ((axis,), values), "elpd": ((), total)}
    return columns, checksum.hexdigest()


# --- compared


def sampled_elpd(tree: xr.DataTree) -> Estimate | None:
    """Σ_i ln p(y_i | y_{−i}) of the samples, by PSIS; None where it is not known.

    Of 20,000 training examples and more, the sum over 2,000 of them. A remark warns where Pareto's
    k does not allow to trust the number.
    """
    if GROUP not in tree.children:
        return None
    table = tree[GROUP].to_dataset().astype(np.float64, keep_attrs=True)
    elpd, draws = table[ELPD].values, int(table.attrs["draws"])
    unreliable, remark = count_unreliable(table[PARETO_K].values, draws), ""
    if unreliable:
        remark = f"PSIS, NOT reliable: k > {limit_of_k(draws):.2g} at {unreliable} examples"
    mcse = table.attrs[MCSE_OF_SUM]
    return Estimate(
        elpd.sum(), mcse, test_error=error_of_sum(elpd), remark=remark, trusted=not unreliable
    )


def sampled_elpd_by_example(tree: xr.DataTree) -> Float[np.ndarray, " example"] | None:
    """The terms of that sum; None where they are not known, or Pareto's k is too large for one."""
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
