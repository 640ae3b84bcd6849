"""The theory of fixed attention at draws of attention that is sampled.

Given logit weights W the values are those of a network whose attention is fixed. Its leading order
can be averaged over draws W of the exact posterior; or it has a posterior of attention of its own,
p(W) p_theory(y | W), in which these draws count with weights ∝ p_theory(y | W)/p(y | W).
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import sampler
from theory import (
    Architecture,
    LearningProblem,
    compress,
    log_evidence_at_leading_order,
    solve_saddle_point,
)


@dataclass(frozen=True)
class LeadingOrder:
    """ln p(y | W) = −½ (A* − A_0) − (P O/2) ln 2π and U_1 at the saddle point of one W."""

    log_evidence: float
    order_parameter: Float[np.ndarray, "row row"]


def leading_order(
    attended: Float[np.ndarray, "example path channel"],
    labels: Float[np.ndarray, "example output"],
    architecture: Architecture,
    temperature: float,
) -> LeadingOrder:
    """Solve at attended inputs that were made with W, in float64; NaN where nothing converged."""
    problem = LearningProblem(architecture, jnp.asarray(attended), jnp.asarray(labels), temperature)
    saddle = solve_saddle_point(compress(problem))
    if not saddle.converged:
        size = architecture.order_parameter_sizes[0]
        return LeadingOrder(np.nan, np.full((size, size), np.nan))
    overlap = np.asarray(saddle.order_parameters.matrices[0])
    return LeadingOrder(log_evidence_at_leading_order(problem, saddle.action), overlap)


def exact_log_evidence(
    attended: Float[np.ndarray, "example path channel"],
    labels: Float[np.ndarray, "example output"],
    architecture: Architecture,
    temperature: float,
    seed: int,
) -> tuple[float, float]:
    """ln p(y | W) with its error, by importance draws of the order parameters."""
    recipe = sampler.Recipe(
        task=sampler.Arrays(
            attended=attended,
            labels=labels,
            attended_test=attended[:2],
            labels_test=labels[:2],
            heads=architecture.heads,
        ),
        network={"widths": architecture.widths},
        posterior={"temperature": temperature},
    )
    found = sampler.weighted_draws(sampler.make_problem(recipe), 20_000, seed)
    if not found.trusted:
        raise SystemExit(found.explain())
    return found.log_evidence, found.log_evidence_error


@dataclass(frozen=True)
class OverDraws:
    """A mean over draws of attention, its error by repetitions, and effective draws (Σw)²/Σw²."""

    value: float
    error: float
    effective: float


def over_draws(
    values: Float[np.ndarray, "repetition draw"],
    weights: Float[np.ndarray, " repetition"],
    logs: Float[np.ndarray, "repetition draw"] | None = None,
) -> OverDraws:
    """Σ w g/Σ w: averaged over the exact posterior, or over that of a theory.

    weights  of repetitions, which sum to 1
    logs     ln p_theory(y | W)/p(y | W); None: draws of a repetition count alike
    """
    shares = np.ones(values.shape) if logs is None else np.exp(logs - logs.max())
    above, below = (shares * values).mean(axis=1), shares.mean(axis=1)
    total = weights @ below
    value = float(weights @ above / total)
    # To first order, of a ratio of means.
    deviations = weights / total * (above - value * below)
    count, each = len(values), weights[:, None] * shares
    error = np.sqrt(np.sum(deviations**2) * count / (count - 1))
    return OverDraws(value, float(error), float(each.sum() ** 2 / np.sum(each**2)))
