"""Seconds and gradients per effective draw of the worst element of U_1, by NUTS."""

from dataclasses import dataclass

import jax
import numpy as np
from arviz_stats.base import array_stats

from sampler.mcmc.chunks import Chunk, sample_in_chunks
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.settings import ChainSettings
from tests.benchmarks.competitors import COMPETITORS

# competitor → (warm-up, draws) of each chain: what is slow gets few draws, to end within minutes.
SCHEDULE = {
    "path-contracted, published data": (200, 300),
    "path-contracted, recipe's data": (200, 300),
    "token by token, recipe's data": (50, 50),
}
CHAINS = 2


@dataclass(frozen=True)
class EffectiveDraws:
    """Cost of the draws, without warm-up and compilation.

    effective_draws  bulk ESS of the worst element of U_1, all chains together
    """

    competitor: str
    draws: int
    seconds: float
    gradients: int
    effective_draws: float


def measure_effective_draws(competitor: str, width: int, precision: str) -> EffectiveDraws:
    """Run NUTS with NumPyro's defaults.

    The loop is the one of `sampler.mcmc.chunks`, which gives bit for bit what NumPyro's `MCMC`
    gives: every competitor is sampled by the same algorithm, and only the model differs.
    """
    warmup, draws = SCHEDULE[competitor]
    settings = ChainSettings(chains=CHAINS, warmup=warmup, draws=draws, seed=0)
    collected = DrawCollector(draws)

    def on_chunk(chunk: Chunk) -> None:
        collected(chunk)

    with jax.enable_x64(precision == "float64"):
        sample_in_chunks(COMPETITORS[competitor](width, precision), settings, on_chunk)
    overlap = collected.draws["order_parameter"].astype(float)
    ess = array_stats.ess(overlap, chain_axis=0, draw_axis=1, method="bulk")
    return EffectiveDraws(
        competitor,
        draws,
        collected.seconds["draws"],
        int(collected.statistics["n_steps"].sum()),
        float(np.min(ess)),
    )


def effective_draws_table(found: list[EffectiveDraws]) -> str:
    """One row per competitor."""
    lines = [
        "| posterior | draws | leapfrog steps per draw | ESS | gradients per effective draw | "
        "seconds per effective draw |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        cells = [
            row.competitor,
            f"{CHAINS} × {row.draws}",
            f"{row.gradients / (CHAINS * row.draws):.0f}",
            f"{row.effective_draws:.0f}",
            f"{row.gradients / row.effective_draws:.0f}",
            f"{row.seconds / row.effective_draws:.3g}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
