"""The log evidence for chains over order parameters: by importance, else by bridge sampling.

Importance weights need no chains, and are the more accurate where their tail is light. Where it is
heavy, bridge sampling of the chains' draws is used, as all its terms are bounded. For a normalised
q fitted to the posterior, ln p(y) solves

    Σ_{θ ~ q} expit(Δ(θ)) = Σ_{θ ~ posterior} expit(−Δ(θ)),   expit(Δ) = 1/(1 + e^{−Δ}),
    Δ(θ) = ln p(θ, y) − ln q(θ) − ln p(y) + ln(effective posterior draws per draw from q):

the optimal bridge of Meng and Wong (1996), first found by Bennett (1976).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_expit, logsumexp

from sampler.mcmc.algorithm import BRIDGED_DRAWS, LARGEST_ERROR, Evidence, lost_points_text
from sampler.mcmc.convergence import mean_ess, mean_mcse
from sampler.posterior.importance_sampling import (
    BatchedDensity,
    importance_draws,
    proposal_about,
    require_hessian,
    weighed,
)
from sampler.posterior.order_parameters import OrderParameterSpace
from sampler.posterior.t_mixture import TMixture, refit
from sampler.streams import Stream, stream

EVALUATIONS = 20_000
IMPORTANCE, BRIDGE = "importance", "bridge"
# Two halves further apart than this many errors mean that the error is wrong.
MOST_APART = 4.0


class Bridged(NamedTuple):
    """ln p(y) and its error from posterior draws and as many draws of q, and how many were lost."""

    value: float
    error: float
    lost: int


def evidence_beside(
    space: OrderParameterSpace, points: Float[np.ndarray, "chain draw coordinate"], seed: int
) -> Evidence:
    """Log evidence ln p(y) by importance where its weights can be trusted, else from draws.

    space   of the order parameters, with its mode, in float64
    points  flat coordinates of every draw of chains, for bridge sampling
    """
    lost, shape = 0, float("inf")
    try:
        weighted = importance_draws(space, EVALUATIONS, seed)
    except FloatingPointError as problem:
        reason = f"importance: {problem}"
    else:
        value, error = weighted.log_evidence, weighted.log_evidence_error
        lost, shape, reason = weighted.lost, weighted.pareto_k, weighted.explain()
        if weighted.trusted and error <= LARGEST_ERROR:
            return Evidence(
                value, error, IMPORTANCE, True, reason, lost, stored_beside(lost, shape)
            )
    bridged = bridge_evidence(space, points, seed)
    text = f"{reason}: not trusted; {bridged.text}"
    if lost and not bridged.lost:
        text += f"; {lost_points_text(lost, 'draws of q')}"
    every, trusted = lost + bridged.lost, bridged.trusted and not lost
    beside = stored_beside(every, shape)
    return replace(bridged, trusted=trusted, text=text, lost=every, beside=beside)


def stored_beside(lost: int, pareto_k: float) -> dict[str, Any]:
    """Attributes of `draws.nc`: points lost, and the shape of the tail that chooses the method."""
    return {"log_evidence_lost": lost, "log_evidence_pareto_k": pareto_k}


def bridge_evidence(
    space: OrderParameterSpace, points: Float[np.ndarray, "chain draw coordinate"], seed: int
) -> Evidence:
    """Log evidence ln p(y) from draws of the posterior of U_1 … U_a in Bartlett coordinates.

    space   of the order parameters, with its mode
    points  flat coordinates of every draw

    Raises ValueError for fewer than 8 draws per chain, or too many coordinates for a Hessian.
    """
    return evidence_of_halves(*bridge_halves(space, points, seed))


def bridge_halves(
    space: OrderParameterSpace, points: Float[np.ndarray, "chain draw coordinate"], seed: int
) -> list[Bridged]:
    """Both halves of every chain, each bridged to a proposal fitted to the other half.

    Fitted and averaged draws are kept apart.
    """
    require_hessian(space.size)
    points = points.astype(np.float64)
    draws = points.shape[1]
    if draws < BRIDGED_DRAWS:
        raise ValueError(f"{draws} draws per chain: bridge sampling needs at least {BRIDGED_DRAWS}")
    rng = stream(seed, Stream.BRIDGE)
    density, first = BatchedDensity.of(space), proposal_about(space.reference)
    halves, found = (points[:, : draws // 2], points[:, draws // 2 :]), []
    for bridged, fitted in (halves, halves[::-1]):
        flat = fitted.reshape(-1, points.shape[2])
        proposal = refit(first, flat, np.full(len(flat), 1.0 / len(flat)), rng)
        found.append(bridge(proposal, density, bridged, rng))
    return found


def evidence_of_halves(first: Bridged, second: Bridged) -> Evidence:
    """The mean of both; not trusted where it is uncertain, they disagree, or a density is lost."""
    (early, early_error, _), (late, late_error, _) = first, second
    spread, lost = float(np.hypot(early_error, late_error)), first.lost + second.lost
    error = spread / 2.0
    apart = abs(early - late) / spread if np.isfinite(spread) else float("nan")
    value, known = (early + late) / 2.0, bool(error <= LARGEST_ERROR and apart <= MOST_APART)
    text = (
        f"bridge sampling: ln p(y) = {value:.3f} ± {error:.3f} (limit of the error "
        f"{LARGEST_ERROR}), halves {apart:.1f} errors apart (limit {MOST_APART:g})"
    )
    if not np.isfinite(error):
        text = "bridge sampling: ln p(y) has no error, as chains did not move"
    if lost:
        text += f"; {lost_points_text(lost, 'draws of q')}"
    elif not known:
        text += "; raise `draws`"
    return Evidence(value, error, BRIDGE, known and not lost, text, lost)


def bridge(
    proposal: TMixture,
    density: BatchedDensity,
    bridged: Float[np.ndarray, "chain draw coordinate"],
    rng: np.random.Generator,
) -> Bridged:
    """ln p(y) from posterior draws and as many of q."""
    from scipy.optimize import brentq

    chains, draws, coordinates = bridged.shape
    flat = bridged.reshape(-1, coordinates)
    of_posterior = weighed(flat, proposal, density)[0].reshape(chains, draws)
    of_proposal, lost = weighed(proposal.draw(len(flat), rng), proposal, density)
    effective = float(mean_ess(np.tanh(centred(of_posterior))))
    # A chain that never moves has no effective sample size.
    ratio = np.log(np.clip(np.nan_to_num(effective, nan=1.0), 1.0, len(flat)) / len(flat))

    def excess(evidence: float) -> float:
        low = log_mean_expit(of_proposal - evidence + ratio)
        return low - log_mean_expit(evidence - of_posterior - ratio) - ratio

    both = np.concatenate([of_proposal[np.isfinite(of_proposal)], of_posterior.ravel()])
    margin = 5.0 + np.log(len(flat))
    evidence = brentq(excess, both.min() - margin, both.max() + margin, xtol=1e-10)
    of_q = expit(of_proposal - evidence + ratio)
    of_p = expit(evidence - of_posterior - ratio)
    error_of_q = of_q.std(ddof=1) / np.sqrt(of_q.size)
    error_of_p = float(mean_mcse(of_p))
    # Of chains that never moved the terms may still differ by rounding.
    if not (error_of_p > 0.0 and np.ptp(bridged, axis=1).any()):
        return Bridged(float(evidence), float("inf"), lost)
    error = np.hypot(error_of_q / of_q.mean(), error_of_p / of_p.mean())
    return Bridged(float(evidence), float(error), lost)


def log_mean_expit(values: np.ndarray) -> float:
    """ln of the mean of expit, where every term may be too small to be a number."""
    return float(logsumexp(log_expit(values)) - np.log(values.size))


def centred(values: np.ndarray) -> np.ndarray:
    """Values about their median in units of their spread, at least one."""
    return (values - np.median(values)) / max(1.0, float(values.std()))
