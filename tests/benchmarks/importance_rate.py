"""Effective importance draws per second at every width, all cores, after compilation."""

import jax

from tests.problems import importance_draws_of, space_of
from tests.reference_data import load_reference, reference_problem

DRAWS = 40_000


def measure_importance(widths: list[int], repetitions: int) -> str:
    """A table of efficiencies and rates on the published problem."""
    lines = [
        "| N | efficiency | Pareto k | effective draws per second (all repetitions) | ln p(y) |",
        "|---|---|---|---|---|",
    ]
    with jax.enable_x64(True):
        for width in widths:
            problem = reference_problem(load_reference(), width)
            space = space_of(problem)
            found = [importance_draws_of(space, DRAWS, seed) for seed in range(repetitions)]
            rates = ", ".join(
                f"{draws.effective_sample_size / draws.seconds:,.0f}" for draws in found
            )
            last = found[-1]
            lines.append(
                f"| {width} | {last.efficiency:.2f} | {last.pareto_k:.2f} | {rates} | "
                f"{last.log_evidence:.3f} ± {last.log_evidence_error:.3f} |"
            )
    return "\n".join(lines)
