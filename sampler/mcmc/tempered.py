"""Tempered sequential Monte Carlo as an algorithm: its settings, statistics and verdict.

A chain is a repetition and a draw one of its particles, all of equal weight. Free of JAX:
computations are in `sampler.mcmc.repetitions`, those of one repetition in
`sampler.mcmc.tempered_smc`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtrit

from sampler.mcmc.algorithm import (
    LARGEST_ERROR,
    Algorithm,
    ChainSettings,
    Counts,
    Evidence,
    Judgement,
    OnChunk,
    Snapshot,
    lost_points_text,
)
from sampler.posterior.importance_weights import effective_draws, normalised_weights

# Rate of false disagreement of two equal starts.
FALSE_ALARMS = 0.005
# Of every repetition: fewer particles at the start that all others descend from are remarked on.
FEWEST_ANCESTORS = 0.05


@dataclass(frozen=True)
class Tempered(Algorithm):
    """Tempered sequential Monte Carlo, from a mixture at all modes and again from the prior.

    particles          of each repetition
    target_acceptance  acceptance probability that steps of trajectories adapt to
    """

    particles: int
    target_acceptance: float

    counts: ClassVar[Counts] = Counts("repetitions", "particles", "repetitions")
    lacks: ClassVar[tuple[str, ...]] = ("precision", "chains", "warmup", "draws", "thinning")
    gives_evidence: ClassVar[bool] = True
    statistics: ClassVar[Mapping[str, str]] = {
        **Algorithm.statistics,
        "acceptance_rate": "acceptance probability of the last trajectory",
        "ancestor": "particle at the start that it descends from",
        "mode": "mode at the start that it is nearest to; −1 where none was found",
        "log_evidence": "log evidence of the repetition",
        "log_evidence_prior": "log evidence of the repetition of this number from the prior alone",
        "temperatures": "values of γ of the repetition",
        "lowest_acceptance": "smallest mean acceptance probability at any γ of the repetition",
        "lost": "points of the repetition, and of that from the prior, without a density",
        "power": "power γ of p(θ, y)/q_0(θ)",
        "effective_share": "effective number of the weights that led here, per particle",
        "step_size": "step of the next trajectory",
        "moves": "trajectories of every particle",
        "n_steps": "gradients of all particles",
        "ancestors": "particles at the start that others still descend from",
    }
    gradients: ClassVar[str | None] = "n_steps"
    remedy_if_frozen: ClassVar[str] = "raise `particles`"

    def suited(self, space):
        """The space with gradients in single precision, where that pays."""
        from sampler.mcmc.split_hmc import suited

        return suited(space)

    def draw(
        self, space, settings: ChainSettings, on_chunk: OnChunk, resume: Snapshot | None = None
    ) -> None:
        from sampler.mcmc.repetitions import draw_repetitions

        draw_repetitions(space, self.target_acceptance, settings, on_chunk, resume)

    def describe(self, statistics: Mapping[str, np.ndarray], totals: Mapping[str, float]) -> str:
        """The latest temperature of a repetition."""
        if "power" not in statistics:
            return ""
        last = {name: float(values[0, -1]) for name, values in statistics.items()}
        return (
            f"γ = {last['power']:.3g}, acceptance {last['acceptance_rate']:.2f}, step size "
            f"{last['step_size']:.3g}, moves {last['moves']:.0f}, ancestors {last['ancestors']:.0f}"
        )

    def repetitions(self, statistics: Mapping[str, np.ndarray]) -> float:
        """Repetitions of equal weight that these are worth."""
        weights = repetition_weights(statistics)
        return float(len(statistics["lp"])) if weights is None else effective_draws(weights)

    def evidence(self, statistics: Mapping[str, np.ndarray]) -> Evidence:
        """The log evidence of repetitions from the modes; with that from the prior."""
        modes, prior = two_starts(statistics)
        text = f"{modes.count} repetitions: ln p(y) = {modes.text(3)}"
        if prior is not None:
            text += f"; from the prior alone {prior.text(3)}"
        trusted, beside = not self.judge(statistics).reasons, {"repetitions": modes.count}
        return Evidence(modes.value, modes.wide, "tempered", trusted, text, beside=beside)

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        """Judge the evidences of repetitions and of both starts; report ancestors and modes."""
        (modes, prior), reasons, remarks, warning = two_starts(statistics), [], [], ""
        apart, most_apart = (None, None) if prior is None else starts_apart(modes, prior)
        if prior is not None and not abs(apart) <= most_apart:
            missing = "modes" if apart > 0.0 else "prior"
            warning = (
                f"Two starts disagree: ln p(y) = {modes.text()} from the modes, "
                f"{prior.text()} from the prior alone. Particles from the {missing} missed a "
                "part of the posterior; the draws are those from the modes."
            )
            if missing == "modes":
                reasons.append(
                    f"the log evidence from the prior is {apart:.1f} errors above that from the "
                    f"modes (limit {most_apart:.1f}), whose particles miss something; raise "
                    "`particles`"
                )
        if not modes.wide <= LARGEST_ERROR:
            reasons.append(
                f"ln p(y) = {modes.text()} over repetitions: its error "
                f"exceeds {LARGEST_ERROR}; raise `repetitions` or `particles`"
            )
        lost = int(np.sum(statistics.get("lost", np.zeros((1, 1)))[:, 0]))
        if lost:
            reasons.append(lost_points_text(lost, "points that particles began at or were led to"))
        ancestors = [len(np.unique(of_repetition)) for of_repetition in statistics["ancestor"]]
        count = statistics["ancestor"].shape[1]
        if min(ancestors) < FEWEST_ANCESTORS * count:
            remarks.append(
                f"the {count} particles of a repetition descend from {min(ancestors)} at its start"
            )
        numbers = {
            "acceptance": float(np.mean(statistics["acceptance_rate"])),
            "lowest_acceptance": float(np.min(statistics["lowest_acceptance"])),
            "temperatures": statistics["temperatures"][:, 0].astype(int).tolist(),
            "ancestors": ancestors,
            "log_evidence_of_repetitions": statistics["log_evidence"][:, 0].tolist(),
            "log_evidence_prior": None if prior is None else prior.value,
            "log_evidence_prior_error": None if prior is None else prior.wide,
            "starts_apart": apart,
            "starts_apart_limit": most_apart,
            "weights_of_modes": weights_of_modes(statistics),
            "lost_points": lost,
        }
        return Judgement(tuple(reasons), tuple(remarks), numbers, warning)


class OfStart(NamedTuple):
    """Log evidence of the repetitions that begin alike, its error by their spread, their number."""

    value: float
    error: float
    count: int

    @property
    def wide(self) -> float:
        """The error of which two hold the evidence in 95 %, as two of a Gaussian do.

        Few repetitions know their spread badly: by Student's t distribution it is 1.7 times the
        error of four of them, 1.2 times that of eight. Without it four that happen to agree are off
        by five errors in one of a hundred problems.
        """
        quantile = stdtrit(max(self.count - 1, 1), ndtr(2.0))
        return self.error * float(quantile) / 2.0

    def text(self, places: int = 2) -> str:
        return f"{self.value:.{places}f} ± {self.wide:.{places}f}".replace("-", "−")


def two_starts(statistics: Mapping[str, np.ndarray]) -> tuple[OfStart, OfStart | None]:
    """Log evidence from the modes, and from the prior alone, where any begin there."""
    modes, prior = (statistics[name][:, 0] for name in ("log_evidence", "log_evidence_prior"))
    made = prior[~np.isnan(prior)]
    of_prior = OfStart(*log_mean(made), made.size) if made.size else None
    return OfStart(*log_mean(modes), len(modes)), of_prior


def starts_apart(modes: OfStart, prior: OfStart) -> tuple[float, float]:
    """Prior minus modes in standard errors, and the limit of chance (`FALSE_ALARMS`).

    The quantile of Student's t distribution: errors are those of a few repetitions, and the degrees
    of freedom of their difference are Welch's. Where ln Z scatters by
    more than 0.3 its mean is not normal either: evidences of four to eight repetitions that scatter
    by 1 from the prior alone disagree in 3 %, nearly always with that from the prior too low, which
    is a warning and no failure.
    """
    spread = float(np.hypot(modes.error, prior.error))
    apart = (prior.value - modes.value) / spread if spread else 0.0
    squares = np.square([modes.error, prior.error])
    if not np.isfinite(squares).all():  # of a single repetition
        return apart, math.inf
    parts = squares**2 / (np.array([modes.count, prior.count]) - 1)
    degrees = squares.sum() ** 2 / parts.sum() if parts.any() else math.inf
    return apart, float(stdtrit(degrees, 1.0 - 0.5 * FALSE_ALARMS))


def log_mean(logs: Float[np.ndarray, " repetition"]) -> tuple[float, float]:
    """Logarithm of the mean of e^logs, and its standard error by their spread."""
    largest = float(np.max(logs))
    if not np.isfinite(largest):
        return largest, float("inf")
    values = np.exp(logs - largest)
    mean, count = values.mean(), len(values)
    error = values.std(ddof=1) / np.sqrt(count) / mean if count > 1 else np.inf
    return largest + float(np.log(mean)), float(error)


def repetition_weights(statistics: Mapping[str, Any]) -> Float[np.ndarray, " repetition"] | None:
    """Weights of repetitions, in proportion to their evidence; None for other chains."""
    if "ancestor" not in statistics:
        return None
    return normalised_weights(np.asarray(statistics["log_evidence"])[:, 0])


def weights_of_modes(statistics: Mapping[str, np.ndarray]) -> list[float]:
    """Share of the posterior that is nearest to each of the modes that were logs."""
    modes = np.asarray(statistics["mode"]).astype(int)
    weights = repetition_weights(statistics)
    return [float(weights @ (modes == k).mean(axis=1)) for k in range(modes.max() + 1)]
