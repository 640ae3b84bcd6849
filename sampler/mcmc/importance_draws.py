"""Independent draws of the order parameters: weighted draws, resampled to equal weights."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from sampler.mcmc.algorithm import (
    Algorithm,
    ChainSettings,
    IndependentDraws,
    Judgement,
)
from sampler.mcmc.hamiltonian import INDEPENDENT
from sampler.posterior.spaces import ORDER_PARAMETERS

LOG = logging.getLogger("attention_posterior")
# Resampling adds the noise of the kept draws to that of the weighted ones: with r effective draws
# for each kept one their errors are √(1 + 1/r) of what they seem, a tenth more at most.
EFFECTIVE_PER_KEPT = 5
FIRST_EVALUATIONS = 20_000
MOST_EVALUATIONS = 1_000_000


@dataclass(frozen=True)
class Importance(Algorithm):
    """Importance draws; NUTS where their weights cannot be trusted or do not suffice."""

    spaces: ClassVar[tuple[str, ...] | None] = (ORDER_PARAMETERS,)
    needs_hessian: ClassVar[bool] = True
    fallback: ClassVar[str | None] = "nuts"

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        return Judgement(numbers=INDEPENDENT)

    def independent_draws(self, space, settings: ChainSettings) -> IndependentDraws:
        """Make chains × draws equally weighted draws, if weights can be trusted and suffice."""
        from sampler.posterior.importance import (
            BatchedDensity,
            adapt_proposal,
            draw_weighted,
            systematic_resampling,
        )
        from sampler.posterior.lost_points import count_lost

        kept, rng = settings.chains * settings.draws, np.random.default_rng(settings.seed)
        log_density = BatchedDensity.of(space)
        lost_among = partial(count_lost, space)
        proposal, lost = adapt_proposal(space, log_density, rng)
        weighted = draw_weighted(proposal, log_density, FIRST_EVALUATIONS, rng, lost_among)
        weighted = replace(weighted, lost=weighted.lost + lost)
        wanted = EFFECTIVE_PER_KEPT * kept
        if weighted.trusted and weighted.effective_sample_size < wanted:
            evaluations = int(1.2 * wanted / weighted.efficiency)
            if evaluations <= MOST_EVALUATIONS:
                further = evaluations - FIRST_EVALUATIONS
                more = draw_weighted(proposal, log_density, further, rng, lost_among)
                weighted = weighted.extend(more)
        text = weighted.explain()
        LOG.info(text)
        attributes = {
            "importance_pareto_k": weighted.pareto_k,
            "importance_efficiency": weighted.efficiency,
            "importance_effective_draws": weighted.effective_sample_size,
            "importance_evaluations": len(weighted.log_weights),
            "log_evidence": weighted.log_evidence,
            "log_evidence_error": weighted.log_evidence_error,
            "log_evidence_method": "importance",
            "log_evidence_trusted": int(weighted.trusted),
            "log_evidence_lost": weighted.lost,
        }
        if not weighted.trusted:
            return IndependentDraws(None, {}, f"{text} (done here)", attributes)
        if weighted.effective_sample_size < wanted:
            text += (
                f": fewer than {EFFECTIVE_PER_KEPT} for each of the {kept} draws asked for, whose "
                "errors would be understated; running NUTS instead"
            )
            return IndependentDraws(None, {}, text, attributes)
        chosen = systematic_resampling(weighted.weights, kept, settings.seed)
        points = weighted.points[chosen]
        log_densities = weighted.log_weights[chosen] + proposal.log_density(points)
        shape = settings.chains, settings.draws
        statistics = {"lp": log_densities.reshape(shape)}
        return IndependentDraws(points.reshape(*shape, -1), statistics, text, attributes)
