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
# A quarter of an hour of one core.
MOST_OPERATIONS = 1e13


@dataclass(frozen=True)
class LogEvidence:
    """ln p(y | W) with its standard error; trusted where the weights of its draws can be."""

    value: float
    error: float
    trusted: bool


def affordable_points(architecture: Architecture, examples: int) -> int:
    """Number of W at which importance draws serve and take no more than MOST_OPERATIONS together.

    Each of them factorises a matrix of all labels, or of the rows that stand for them. 0 where
    there are too many coordinates.
    """
    sizes = architecture.heads, architecture.widths, architecture.outputs
    if bartlett_coordinate_count(*sizes) > MOST_COORDINATES:
        return 0
    labels = architecture.rows_of(examples) * architecture.outputs
    return int(MOST_OPERATIONS / (DRAWS * labels**3 / 3.0))


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
