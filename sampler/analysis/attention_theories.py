"""Theories of sampled attention: solved at draws W of the exact posterior, averaged over them.

Given W a network is one of fixed attention, whose theories are known. Two kinds of columns:

* averages over the attention of the exact posterior, of what a theory says of the rest;
* the posterior of attention of the theory itself, p(W) p_theory(y | W): draws of the exact one
  count with weights ∝ p_theory(y | W)/p(y | W), which know p_theory(y), too.

The exact p(y | W) is that of importance draws of the order parameters at this W. Everything here is
a ratio of means over groups of draws (repetitions, or batches of chains), and its error is that of
the spread between groups.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.estimate import Estimate, RepetitionWeights, batch_means, mean_over_batches
from sampler.analysis.labels import (
    AVERAGED,
    FLUCTUATIONS,
    LEADING,
    LIMIT,
    NEXT,
    REWEIGHTED,
    label,
    predictor_dimensions,
)
from sampler.analysis.validation import kept_draws
from sampler.attention.sampled import Tokens
from sampler.learned_problem import LearnedProblem
from sampler.mcmc.kept import evenly_spaced
from sampler.posterior.evidence_at_attention import affordable_points, log_evidence_at
from sampler.posterior.importance import LARGEST_PARETO_K, effective_draws, tail_shape
from theory.architecture import KNOWN, is_dense
from theory.energy import LearningProblem
from theory.learned_attention import PredictionsAtAttention, theories_at_attention
from theory.order_parameters import OrderParameters

# With fewer effective draws neither a mean nor its error means anything.
FEWEST_EFFECTIVE = 20.0
# Share of the draws at which a column may lack its numbers without being refused.
MOST_MISSING = 0.05
# Rows of U_1 up to which the evidence to next order takes less than a second.
MOST_ROWS = 8
MOST_EXAMPLES = 8
# Endings of the arrays of a column's errors, and the axis of groups of draws.
DEVIATIONS, GROUP, THEORY = "_deviations", "group_of_draws", "theory_of_attention"
EXACT_ROW = "exact posterior"


@dataclass(frozen=True)
class TheoryAtDraws:
    """A theory: whose predictions it has, and by whose p(y | W) draws count.

    weighted_by  None: all alike, as the exact posterior has them
    """

    predictions: str
    weighted_by: str | None = None


COLUMNS: dict[str, TheoryAtDraws] = {
    f"{LEADING}, {AVERAGED}": TheoryAtDraws("leading_order"),
    f"{NEXT}, {AVERAGED}": TheoryAtDraws("next_order"),
    f"{LIMIT}, {REWEIGHTED}": TheoryAtDraws("infinite_width", "infinite_width"),
    f"{LEADING}, {REWEIGHTED}": TheoryAtDraws("leading_order", "leading_order"),
    f"{FLUCTUATIONS}, {REWEIGHTED}": TheoryAtDraws("leading_order", "fluctuations"),
    f"{NEXT}, {REWEIGHTED}": TheoryAtDraws("next_order", "next_order"),
}


@dataclass(frozen=True)
class AtDraws:
    """Everything that was computed at draws of attention [chain, draw, …].

    values    name of a theory → name of what it predicts → numbers; under `EXACT_ROW` what follows
              from attention alone
    logs      ln p(y | W) by theory, and "exact"; NaN where one is not known
    error     of the exact one
    """

    values: Mapping[str, Mapping[str, np.ndarray]]
    logs: Mapping[str, Float[np.ndarray, "chain draw"]]
    error: Float[np.ndarray, "chain draw"]


def why_no_theories(problem: LearnedProblem, space: str, draws: int) -> str:
    """Reason why theories are not solved at draws of attention; empty where they are."""
    if draws < 1:
        return "not asked for"
    if space == "attention":
        return "at infinite width the network is its own theory"
    if problem.hyper_priors != KNOWN:
        return "the temperature was sampled, and the theories need it known"
    if not is_dense(problem.architecture):
        return "the order parameters are too large to solve the theory many times"
    return ""


def attention_theories(
    problem: LearnedProblem,
    logits: Mapping[str, np.ndarray],
    weights: RepetitionWeights,
    draws: int,
    log_evidence: float = float("nan"),
    seed: int = 0,
    done: Callable[[int, int], None] = lambda number, count: None,
) -> xr.Dataset:
    """The group `attention_theories` of `draws.nc`: columns of theories with their errors.

    logits        logit weights [chain, draw, …] of every layer
    weights       of repetitions; None where chains are Markov chains
    draws         of all chains that theories are solved at, evenly spaced
    log_evidence  exact ln p(y), where the sampler knows it
    done          told how many draws are done, of how many
    """
    started = time.perf_counter()
    first = next(iter(logits.values()))
    points = affordable_points(problem.architecture, len(problem.labels))
    exact = points >= FEWEST_EFFECTIVE
    chosen = kept_draws(*first.shape[:2], min(draws, points) if exact else draws)
    with jax.enable_x64(True):
        kept = {name: np.asarray(one[:, chosen], np.float64) for name, one in logits.items()}
        found = at_draws(problem, kept, exact, seed, done)
    table = columns_table(problem, found, weights, log_evidence)
    given = {
        f"log_evidence_given_attention_{name}": (("chain", "attention_draw"), values)
        for name, values in found.logs.items()
    }
    given["log_evidence_given_attention_error"] = (("chain", "attention_draw"), found.error)
    seconds = {"seconds": time.perf_counter() - started, "draws": first.shape[0] * len(chosen)}
    table = table.assign(given)
    names = {THEORY: table[THEORY].values, "attention_draw": chosen}
    return label(table, problem).assign_coords(names).assign_attrs(seconds)


def at_draws(
    problem: LearnedProblem,
    logits: Mapping[str, np.ndarray],
    exact: bool,
    seed: int,
    done: Callable[[int, int], None],
) -> AtDraws:
    """Solve all theories at every draw of attention, one after the other.

    exact  whether the exact ln p(y | W) is computed, too
    """
    chains, count = next(iter(logits.values())).shape[:2]
    evidence = problem.architecture.order_parameter_sizes[0] <= MOST_ROWS
    rows, start = [], None
    for number, (chain, draw) in enumerate(np.ndindex(chains, count)):
        position = {name: jnp.asarray(values[chain, draw]) for name, values in logits.items()}
        *row, start = at_one(problem, position, start, (seed, number), exact, evidence)
        rows.append(row)
        done(number + 1, chains * count)

    def stacked(parts: Iterable[np.ndarray | float]) -> np.ndarray:
        joined = np.stack([np.asarray(one, np.float64) for one in parts])
        return joined.reshape(chains, count, *joined.shape[1:])

    names = rows[0][0]
    values = {
        theory: {key: stacked(row[0][theory][key] for row in rows) for key in names[theory]}
        for theory in names
    }
    logs = {name: stacked(row[1][name] for row in rows) for name in rows[0][1]}
    return AtDraws(values, logs, logs.pop("error"))


def at_one(
    problem: LearnedProblem,
    position: Mapping[str, jax.Array],
    start: OrderParameters | None,
    seed: tuple[int, int],
    exact: bool,
    evidence: bool,
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, float], OrderParameters | None]:
    """Predictions and ln p(y | W) of every theory at one W, and where the next search may start."""
    examples = problem.examples
    learning = LearningProblem(
        problem.architecture, examples.attended(position), problem.labels, problem.temperature
    )
    tests = examples.attended(position, problem.test)
    found = theories_at_attention(learning, tests, start, evidence=evidence)
    outputs = problem.architecture.outputs
    rows = problem.architecture.order_parameter_sizes[0]
    values = {
        "infinite_width": found.infinite_width,
        "leading_order": found.leading_order if found.saddle.converged else None,
        "next_order": found.next_order,
    }
    predicted = {
        name: predictions_by_name(one, rows, len(tests), outputs) for name, one in values.items()
    }
    predicted[EXACT_ROW] = seen_attention(problem, position)
    logs = dict(found.log_evidence)
    known = log_evidence_at(learning, seed) if exact else None
    trusted = known is not None and known.trusted
    logs["exact"] = known.value if trusted else float("nan")
    logs["error"] = known.error if trusted else float("nan")
    return predicted, logs, found.saddle.order_parameters if found.saddle.converged else None


def predictions_by_name(
    one: PredictionsAtAttention | None, rows: int, tests: int, outputs: int
) -> dict[str, np.ndarray]:
    """Predictions of a theory by name; NaN where it has none. f² stands for its variance."""
    if one is None:
        square, of_test = np.full((rows, rows), np.nan), np.full((tests, outputs), np.nan)
        one = PredictionsAtAttention(square, of_test, of_test)
    return {
        "order_parameter": one.order_parameter,
        "overlap_trace": np.trace(one.order_parameter),
        "predictor_mean": one.mean,
        "predictor_square": one.variance + one.mean**2,
    }


def seen_attention(problem: LearnedProblem, position: Mapping[str, jax.Array]) -> dict:
    """Attention of the learned heads to some training examples, layer by layer.

    Over heads that can be exchanged the mean is taken: nothing else is known of them.
    """
    attention = problem.examples.attention
    shown = evenly_spaced(len(problem.labels), MOST_EXAMPLES)
    tokens: Tokens = jax.tree.map(lambda leaf: leaf[shown], problem.examples.tokens)
    found = {}
    layers = zip(attention.matrices(position, tokens), attention.learned, strict=True)
    for layer, (matrices, learned) in enumerate(layers, start=1):
        if not any(learned):
            continue
        of_heads = np.asarray(matrices)[:, list(learned)]
        found[f"attention_concentration_{layer}"] = np.mean(np.sum(of_heads**2, axis=2))
        found[f"attention_{layer}"] = of_heads.mean(axis=1) if problem.exchangeable else of_heads
    return found


# --- from numbers at draws to columns


def ratio_of_means(
    values: Float[np.ndarray, "chain draw *element"],
    shares: Float[np.ndarray, "chain draw"],
    weights: RepetitionWeights,
) -> Estimate:
    """Σ s g/Σ s over draws of weight s, with deviations of groups as those of a ratio of means.

    Draws of a repetition count with the weight of that in addition.
    """
    tail = (1,) * (values.ndim - 2)
    spread = shares.reshape(*shares.shape, *tail)
    above = batch_means(spread * values, weights=weights)
    below = batch_means(shares, weights=weights)
    total = mean_over_batches(below, weights)
    value = mean_over_batches(above, weights) / total
    count = len(below)
    group = np.full(count, 1.0 / count) if weights is None else weights
    scaled = (group / total).reshape(-1, *tail)
    deviations = scaled * (above - value * below.reshape(-1, *tail))
    deviations = deviations * np.sqrt(count / max(count - 1, 1))
    return Estimate(value, np.sqrt(np.sum(deviations**2, axis=0)), deviations, count - 1)


def variance_from(square: Estimate, mean: Estimate) -> Estimate:
    """Var f = E[f²] − E[f]², its deviations to first order."""
    deviations = square.deviations - 2.0 * mean.value * mean.deviations
    mcse = np.sqrt(np.sum(deviations**2, axis=0))
    return Estimate(square.value - mean.value**2, mcse, deviations, square.degrees)


@dataclass(frozen=True)
class DrawWeights:
    """Weights of draws under the posterior of a theory, and whether they serve.

    shares     [chain, draw], the largest being 1; draws without a number count as 0
    shift      logarithm of the largest
    effective  number of draws, (Σ w)²/Σ w²
    pareto_k   shape of their tail
    reason     why they do not serve; empty where they do
    """

    shares: Float[np.ndarray, "chain draw"]
    shift: float
    effective: float
    pareto_k: float
    reason: str = ""

    @classmethod
    def of(cls, logs: Float[np.ndarray, "chain draw"], weights: RepetitionWeights) -> "DrawWeights":
        """Weights of ln p_theory(y | W)/p(y | W) at draws."""
        known = np.isfinite(logs)
        if not known.any():
            return cls(np.zeros_like(logs), 0.0, 0.0, float("inf"), "it has no ln p(y | W)")
        shift = float(np.max(logs[known]))
        shares = np.where(known, np.exp(np.where(known, logs, shift) - shift), 0.0)
        group = np.zeros(len(logs))
        if weights is not None:
            group = np.repeat(np.log(weights), len(logs) // len(weights))
        each = (np.where(known, logs, -np.inf) + group[:, None])[known]
        effective = effective_draws(each)
        shape = tail_shape(each) if effective >= FEWEST_EFFECTIVE else float("inf")
        limit = min(LARGEST_PARETO_K, 1.0 - 1.0 / np.log10(max(each.size, 2)))
        reason = missing(known)
        if effective < FEWEST_EFFECTIVE:
            reason = f"{effective:.1f} effective draws of {each.size} (limit {FEWEST_EFFECTIVE:g})"
        elif shape > limit:
            reason = f"Pareto k = {shape:.2f} of its weights (limit {limit:.2f})"
        return cls(shares, shift, effective, shape, reason)


def missing(known: np.ndarray) -> str:
    """Reason where numbers are missing at too many draws; empty where they are not."""
    lost = int(np.sum(~known))
    if lost <= MOST_MISSING * known.size:
        return ""
    return f"not defined, or not trusted, at {lost} of {known.size} draws of attention"


def columns_table(
    problem: LearnedProblem, found: AtDraws, weights: RepetitionWeights, log_evidence: float
) -> xr.Dataset:
    """Every column's predictions with deviations, effective draws, and why it does not serve."""
    axes = axes_of(problem, found)
    parts: dict[str, dict[str, Estimate]] = {}
    sizes, shapes, reasons = {}, {}, {}
    of_attention = found.values[EXACT_ROW]
    alike = np.ones_like(found.logs["exact"])
    parts[EXACT_ROW] = {k: ratio_of_means(v, alike, weights) for k, v in of_attention.items()}
    sizes[EXACT_ROW], shapes[EXACT_ROW], reasons[EXACT_ROW] = float(alike.size), np.nan, ""
    for name, column in COLUMNS.items():
        values = found.values[column.predictions]
        defined = np.isfinite(values["overlap_trace"])
        by = DrawWeights(alike, 0.0, float(alike.size), float("nan"))
        if column.weighted_by is not None:
            by = DrawWeights.of(found.logs[column.weighted_by] - found.logs["exact"], weights)
        sizes[name], shapes[name] = by.effective, by.pareto_k
        reasons[name] = missing(defined) or by.reason
        if not (defined & (by.shares > 0.0)).any():
            continue
        shares = np.where(defined, by.shares, 0.0)
        zeroed = {
            k: np.where(defined[(..., *[None] * (v.ndim - 2))], v, 0.0) for k, v in values.items()
        }
        made = {k: ratio_of_means(v, shares, weights) for k, v in zeroed.items()}
        made["predictor_variance"] = variance_from(
            made.pop("predictor_square"), made["predictor_mean"]
        )
        if column.weighted_by is not None:
            made |= {k: ratio_of_means(v, shares, weights) for k, v in of_attention.items()}
            made["log_evidence"] = log_of_mean(by, log_evidence, weights)
        parts[name] = made
    return stacked_columns(parts, axes).assign(
        effective_draws=(THEORY, [sizes[name] for name in parts]),
        pareto_k_of_weights=(THEORY, [shapes[name] for name in parts]),
        not_usable_because=(THEORY, [reasons[name] for name in parts]),
    )


def log_of_mean(by: DrawWeights, log_evidence: float, weights: RepetitionWeights) -> Estimate:
    """ln p_theory(y) = ln p(y) + ln E[p_theory(y | W)/p(y | W)], its error that of the mean."""
    mean = ratio_of_means(by.shares, np.ones_like(by.shares), weights)
    deviations = mean.deviations / mean.value
    value = log_evidence + by.shift + np.log(mean.value)
    return Estimate(value, np.sqrt(np.sum(deviations**2)), deviations, mean.degrees)


def axes_of(problem: LearnedProblem, found: AtDraws) -> dict[str, tuple[str, ...]]:
    of_test = predictor_dimensions(problem.architecture.outputs)
    axes = {
        "order_parameter": ("path", "path_"),
        "overlap_trace": (),
        "log_evidence": (),
        "predictor_mean": of_test,
        "predictor_variance": of_test,
    }
    for name, values in found.values[EXACT_ROW].items():
        layer = name.rpartition("_")[2]
        heads = () if problem.exchangeable else (f"learned_head_{layer}",)
        of_layer = ("shown_example", *heads, f"key_{layer}", f"query_{layer}")
        axes[name] = () if values.ndim == 2 else of_layer
    return axes


def stacked_columns(
    parts: Mapping[str, Mapping[str, Estimate]], axes: Mapping[str, tuple[str, ...]]
) -> xr.Dataset:
    """All columns along one axis, NaN for what one does not predict."""
    columns = {}
    for key, dims in axes.items():
        known = [one[key] for one in parts.values() if key in one]
        if not known:
            continue
        for ending, of, more in (
            ("", lambda one: np.asarray(one.value), ()),
            (DEVIATIONS, lambda one: one.deviations, (GROUP,)),
        ):
            nothing = np.full_like(of(known[0]), np.nan, dtype=np.float64)
            stack = np.stack([of(one[key]) if key in one else nothing for one in parts.values()])
            squeezed = stack[..., 0] if stack.ndim > 1 + len(dims) + len(more) else stack
            columns[f"{key}{ending}"] = ((THEORY, *more, *dims), squeezed)
    return xr.Dataset(columns, coords={THEORY: list(parts)})
