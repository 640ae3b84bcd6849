"""The log evidence beside chains over order parameters: by importance, else by bridge sampling.

Importance weights need no chains, and are the more accurate where their tail is light. Where it is
heavy, bridge sampling of the chains' draws stands, as all its terms are bounded. With
l(x) = ln p(x, y) − ln q(x) for a normalised q fitted to the posterior, r = ln p(y) solves

    Σ_{x ~ q} s(l(x) − r + m) = Σ_{x ~ posterior} s(r − l(x) − m),   s(t) = 1/(1 + e^{−t}),

m the logarithm of effective posterior draws per draw from q: the optimal bridge of Meng and Wong
(1996), first found by Bennett (1976).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_expit, logsumexp

from sampler.mcmc.algorithm import BRIDGED_DRAWS, lost_points_text
from sampler.mcmc.convergence import mean_ess, mean_mcse
from sampler.mcmc.tempered import LARGEST_ERROR
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
# Two halves further apart than this many errors say that the error is wrong.
MOST_APART = 4.0


@dataclass(frozen=True)
class EvidenceBeside:
    """Log evidence ln p(y) with its error, and by which method it was found.

    log_evidence  its value
    error         Monte Carlo standard error
    method        "importance" or "bridge"
    trusted       whether value and error can be trusted
    lost          draws of proposals, of either method, at which the density is not a number
    pareto_k      shape of the tail of the importance weights, which chooses the method
    text          one line about it
    """

    log_evidence: float
    error: float
    method: str
    trusted: bool
    lost: int
    pareto_k: float
    text: str

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What `draws.nc` says of it."""
        return {
            "log_evidence": self.log_evidence,
            "log_evidence_error": self.error,
            "log_evidence_method": self.method,
            "log_evidence_trusted": int(self.trusted),
            "log_evidence_lost": self.lost,
            "log_evidence_pareto_k": self.pareto_k,
        }


def evidence_beside(
    space: OrderParameterSpace, points: Float[np.ndarray, "chain draw coordinate"], seed: int
) -> EvidenceBeside:
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
            return EvidenceBeside(value, error, IMPORTANCE, True, lost, shape, reason)
    bridged = bridge_evidence(space, points, seed)
    text = f"{reason}: not trusted; {bridged.explain()}"
    if lost and not bridged.lost:
        text += f"; {lost_points_text(lost, 'draws of q')}"
    return EvidenceBeside(
        log_evidence=bridged.log_evidence,
        error=bridged.error,
        method=BRIDGE,
        trusted=bridged.trusted and not lost,
        lost=lost + bridged.lost,
        pareto_k=shape,
        text=text,
    )


@dataclass(frozen=True)
class BridgeEvidence:
    """Log evidence ln p(y) by bridge sampling, with its error.

    log_evidence  mean of the two halves
    error         its Monte Carlo standard error
    halves        the two estimates: draws of one half bridged to a q fitted to the other
    apart         their distance in standard errors of the distance
    lost          draws of q at which the density is not a number
    """

    log_evidence: float
    error: float
    halves: tuple[float, float]
    apart: float
    lost: int = 0

    @property
    def trusted(self) -> bool:
        """Whether the error means something, the halves agree, and every density is a number."""
        return bool(self.error <= LARGEST_ERROR and self.apart <= MOST_APART) and not self.lost

    def explain(self) -> str:
        """One line: value, error, limits, and the remedy where it is not trusted."""
        text = (
            f"bridge sampling: ln p(y) = {self.log_evidence:.3f} ± {self.error:.3f} (limit of the "
            f"error {LARGEST_ERROR}), halves {self.apart:.1f} errors apart (limit {MOST_APART:g})"
        )
        if not np.isfinite(self.error):
            text = "bridge sampling: ln p(y) has no error, as chains did not move"
        if self.lost:
            return f"{text}; {lost_points_text(self.lost, 'draws of q')}"
        return text if self.trusted else f"{text}; raise `draws`"


def bridge_evidence(
    space: OrderParameterSpace, points: Float[np.ndarray, "chain draw coordinate"], seed: int
) -> BridgeEvidence:
    """Log evidence ln p(y) from draws of the posterior of U_1 … U_a in Bartlett coordinates.

    space   of the order parameters, with its mode
    points  flat coordinates of every draw

    Each half of every chain is bridged to a proposal fitted to the other half, which keeps what is
    fitted apart from what is averaged. Raises ValueError for fewer than 8 draws per
    chain, or too many coordinates for a Hessian.
    """
    require_hessian(space.size)
    points = points.astype(np.float64)
    draws = points.shape[1]
    if draws < BRIDGED_DRAWS:
        raise ValueError(f"{draws} draws per chain: bridge sampling needs at least {BRIDGED_DRAWS}")
    rng = stream(seed, Stream.BRIDGE)
    density, first = BatchedDensity.of(space), proposal_about(space.reference)
    halves = points[:, : draws // 2], points[:, draws // 2 :]
    estimates, lost = [], 0
    for bridged, fitted in (halves, halves[::-1]):
        flat = fitted.reshape(-1, points.shape[2])
        proposal = refit(first, flat, np.full(len(flat), 1.0 / len(flat)), rng)
        *estimate, lost_here = bridge(proposal, density, bridged, rng)
        estimates.append(estimate)
        lost += lost_here
    (early, early_error), (late, late_error) = estimates
    spread = float(np.hypot(early_error, late_error))
    return BridgeEvidence(
        log_evidence=(early + late) / 2.0,
        error=spread / 2.0,
        halves=(early, late),
        apart=abs(early - late) / spread if np.isfinite(spread) else float("nan"),
        lost=lost,
    )


def bridge(
    proposal: TMixture,
    density: BatchedDensity,
    bridged: Float[np.ndarray, "chain draw coordinate"],
    rng: np.random.Generator,
) -> tuple[float, float, int]:
    """ln p(y) and its error from posterior draws and as many of q, of which so many are lost."""
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
        return float(evidence), float("inf"), lost
    error = np.hypot(error_of_q / of_q.mean(), error_of_p / of_p.mean())
    return float(evidence), float(error), lost


def log_mean_expit(values: np.ndarray) -> float:
    """ln of the mean of 1/(1 + e^{−t}), where every term may be too small to be a number."""
    return float(logsumexp(log_expit(values)) - np.log(values.size))


def centred(values: np.ndarray) -> np.ndarray:
    """Values about their median in units of their spread, at least one."""
    return (values - np.median(values)) / max(1.0, float(values.std()))
