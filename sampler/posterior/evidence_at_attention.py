"""Exact log evidence ln p(y | W) of a network whose attention is known, one W after another.

The order parameters are integrated out by importance draws around their mode at this W.
"""

from dataclasses import dataclass

from sampler.posterior.importance import importance_draws
from sampler.posterior.spaces import order_parameter_density
from theory.architecture import Architecture, bartlett_coordinate_count
from theory.compression import compress
from theory.energy import LearningProblem

# Importance draws at one W, of which a few hundred know ln p(y | W) to a few per cent.
DRAWS, PILOT_DRAWS, ROUNDS = 512, 1024, 2
# In more dimensions so few draws say nothing.
MOST_COORDINATES = 60


@dataclass(frozen=True)
class LogEvidence:
    """ln p(y | W) with its standard error; trusted where the weights of its draws can be."""

    value: float
    error: float
    trusted: bool


def few_coordinates(architecture: Architecture) -> bool:
    """Whether importance draws at one W serve for a network of these sizes."""
    sizes = architecture.heads, architecture.widths, architecture.outputs
    return bartlett_coordinate_count(*sizes) <= MOST_COORDINATES


def log_evidence_at(problem: LearningProblem, seed: int | tuple[int, ...]) -> LogEvidence:
    """The exact ln p(y | W) of a problem whose attended inputs were made with W, in float64.

    The proposal is the one around the mode, refitted where its weights cannot be trusted.
    """
    problem = compress(problem)
    density = order_parameter_density(problem, problem.attended[:1])
    for rounds in (0, ROUNDS):
        found = importance_draws(density, DRAWS, seed, rounds=rounds, pilot_draws=PILOT_DRAWS)
        if found.trusted:
            break
    return LogEvidence(found.log_evidence, found.log_evidence_error, found.trusted)
