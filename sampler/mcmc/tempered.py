"""Tempered sequential Monte Carlo as an algorithm: its settings, statistics and verdict.

A chain is a repetition and a draw one of its particles, all of equal weight. Free of JAX: what is
computed is in `sampler.mcmc.repetitions`, and of one repetition in `sampler.mcmc.tempered_smc`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from sampler.mcmc.algorithm import (
    Algorithm,
    ChainSettings,
    Counts,
    Judgement,
    OnChunk,
    Snapshot,
    lost_points_text,
)

# The error of a logarithm is the relative error of its argument only where that is small.
LARGEST_ERROR = 0.3
# Two starts that have seen the same are said to disagree this often.
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
        "temperatures": "values of λ of the repetition",
        "lowest_acceptance": "smallest mean acceptance probability at any λ of the repetition",
        "lost": "points of the repetition, and of that from the prior, without a density",
        "power": "power λ of p(x, y)/q_0(x)",
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
            f"λ = {last['power']:.3g}, acceptance {last['acceptance_rate']:.2f}, step size "
            f"{last['step_size']:.3g}, {last['moves']:.0f} moves, {last['ancestors']:.0f} ancestors"
        )

    def repetitions(self, statistics: Mapping[str, np.ndarray]) -> float:
        """Repetitions of equal weight that these are worth."""
        weights = repetition_weights(statistics)
        return float(len(statistics["lp"])) if weights is None else effective_repetitions(weights)

    def found(self, statistics: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], str]:
        """The log evidence of both starts."""
        logs = evidences(statistics)
        attributes = {
            "log_evidence": logs.value,
            "log_evidence_error": logs.error,
            "log_evidence_method": "tempered",
            "log_evidence_trusted": int(self.judge(statistics).reasons == ()),
            "repetitions": logs.count,
        }
        text = f"{logs.count} repetitions: ln p(y) = {logs.value:.3f} ± {logs.error:.3f}"
        if logs.prior is not None:
            text += f"; from the prior alone {logs.prior:.3f} ± {logs.prior_error:.3f}"
        return attributes, text

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        """Judge the evidences of repetitions and of both starts; report ancestors and modes."""
        logs, reasons, remarks, warning = evidences(statistics), [], [], ""
        if not logs.agree:
            warning = logs.two_starts
            if logs.prior > logs.value:
                reasons.append(
                    f"the log evidence from the prior is {logs.apart:.1f} errors above that from "
                    f"the modes (limit {logs.most_apart:.1f}), whose particles miss something; "
                    "raise `particles`"
                )
        if not logs.error <= LARGEST_ERROR:
            reasons.append(
                f"log evidence {logs.value:.2f} ± {logs.error:.2f} over repetitions: its error "
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
            "log_evidence_prior": logs.prior,
            "log_evidence_prior_error": logs.prior_error,
            "starts_apart": logs.apart,
            "starts_apart_limit": logs.most_apart,
            "weights_of_modes": weights_of_modes(statistics),
            "lost_points": lost,
        }
        return Judgement(tuple(reasons), tuple(remarks), numbers, warning)


@dataclass(frozen=True)
class Evidences:
    """Log evidence of repetitions from the modes, and of those from the prior alone.

    prior, prior_error  None where there are none
    count, prior_count  repetitions, by whose spread the errors are known
    """

    value: float
    error: float
    count: int
    prior: float | None
    prior_error: float | None
    prior_count: int

    @property
    def apart(self) -> float | None:
        """Prior minus modes, in standard errors of the difference."""
        if self.prior is None:
            return None
        spread = float(np.hypot(self.error, self.prior_error))
        difference = self.prior - self.value
        return difference / spread if spread else 0.0

    @property
    def agree(self) -> bool:
        """Whether both are within their errors of each other."""
        return self.apart is None or abs(self.apart) <= self.most_apart

    @property
    def most_apart(self) -> float | None:
        """Errors between both that chance exceeds with probability `FALSE_ALARMS`.

        The quantile of Student's t law: errors are those of a few repetitions, and the degrees of
        freedom of their difference are Welch's, (e₁² + e₂²)²/Σ eᵢ⁴/(nᵢ − 1). None without the
        prior. Where ln Z scatters by more than 0.3 its mean is not normal either: evidences of
        four to eight repetitions that scatter by 1 from the prior alone disagree in 3 %, nearly
        always with that from the prior too low, which is a warning and no failure.
        """
        if self.prior is None:
            return None
        squares = np.square([self.error, self.prior_error])
        if not np.isfinite(squares).all():  # of a single repetition
            return math.inf
        parts = squares**2 / (np.array([self.count, self.prior_count]) - 1)
        degrees = squares.sum() ** 2 / parts.sum() if parts.any() else math.inf
        return float(stdtrit(degrees, 1.0 - 0.5 * FALSE_ALARMS))

    @property
    def two_starts(self) -> str:
        """Both evidences in words, and what their difference says."""
        low = self.prior > self.value
        return (
            f"Two starts disagree: log evidence {self.value:.2f} ± {self.error:.2f} from the "
            f"modes, {self.prior:.2f} ± {self.prior_error:.2f} from the prior alone. Particles "
            f"from the {'modes' if low else 'prior'} missed a part of the posterior; the draws are "
            "those from the modes."
        )


def evidences(statistics: Mapping[str, np.ndarray]) -> Evidences:
    """Evidences of both starts from the statistics of draws [chain, draw]."""
    value, error = log_mean(statistics["log_evidence"][:, 0])
    prior = np.asarray(statistics["log_evidence_prior"][:, 0])
    made = prior[~np.isnan(prior)]
    others = log_mean(made) if made.size else (None, None)
    return Evidences(value, error, len(statistics["log_evidence"]), *others, made.size)


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
    """Weights of repetitions, in proportion to their evidence; None where chains are no such."""
    if "ancestor" not in statistics:
        return None
    logs = np.asarray(statistics["log_evidence"])[:, 0]
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def effective_repetitions(weights: Float[np.ndarray, " repetition"]) -> float:
    """1/Σw²: repetitions of equal weight that these are worth."""
    return float(1.0 / np.sum(weights**2))


def weights_of_modes(statistics: Mapping[str, np.ndarray]) -> list[float]:
    """Share of the posterior that is nearest to each of the modes that were logs."""
    modes = np.asarray(statistics["mode"]).astype(int)
    weights = repetition_weights(statistics)
    return [float(weights @ (modes == k).mean(axis=1)) for k in range(modes.max() + 1)]
