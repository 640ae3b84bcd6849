"""Independent draws of the order parameters: weighted draws, resampled to equal weights."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sampler.mcmc.algorithm import (
    Algorithm,
    ChainSettings,
    IndependentDraws,
    Judgement,
)
from sampler.mcmc.hamiltonian import INDEPENDENT

LOG = logging.getLogger("attention_posterior")
# Resampling adds the noise of the kept draws to that of the weighted ones: with r effective draws
# for each kept one their errors are √(1 + 1/r) of what they seem, a tenth more at most.
EFFECTIVE_PER_KEPT = 5
FIRST_EVALUATIONS = 20_000
MOST_EVALUATIONS = 1_000_000
OBSERVED_TOGETHER = 16


@dataclass(frozen=True)
class Importance(Algorithm):
    """Importance draws; NUTS where their weights cannot be trusted or do not suffice."""

    spaces: ClassVar[tuple[str, ...] | None] = ("order_parameters",)
    needs_hessian: ClassVar[bool] = True
    fallback: ClassVar[str | None] = "nuts"

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        return Judgement(numbers=INDEPENDENT)

    def independent_draws(self, density, settings: ChainSettings) -> IndependentDraws:
        """Make chains × draws equally weighted draws, if weights can be trusted and suffice."""
        from sampler.posterior.importance import importance_draws, systematic_resampling

        kept = settings.chains * settings.draws
        weighted = importance_draws(density, FIRST_EVALUATIONS, settings.seed)
        wanted = EFFECTIVE_PER_KEPT * kept
        if weighted.trusted and weighted.effective_sample_size < wanted:
            evaluations = int(1.2 * wanted / weighted.efficiency)
            if evaluations <= MOST_EVALUATIONS:
                weighted = importance_draws(density, evaluations, settings.seed)
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
        log_density = weighted.log_weights[chosen] + weighted.proposal.log_density(points)

        def by_chain(values):
            values = np.asarray(values)
            return values.reshape(settings.chains, settings.draws, *values.shape[1:])

        observables = observed(density, points, settings.seed)
        return IndependentDraws(
            {name: by_chain(values) for name, values in observables.items()},
            {"lp": by_chain(log_density)},
            text,
            attributes,
        )


def observed(density, points: np.ndarray, seed: int):
    """The observables of flattened positions [draw, coordinate], each with a key of its own."""
    import jax
    import jax.numpy as jnp

    from sampler.devices import side_by_side
    from sampler.mcmc.chunks import OBSERVATION_STREAM
    from sampler.posterior.density import observables_at

    key = jax.random.fold_in(jax.random.key(seed), OBSERVATION_STREAM)
    keys = jax.random.split(key, len(points))
    together = side_by_side(OBSERVED_TOGETHER)
    return observables_at(keys, jnp.asarray(points), density, together)


IMPORTANCE = Importance()
