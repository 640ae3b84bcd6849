"""Independent draws in place of chains: importance sampling, or the reason why not."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sampler.mcmc.chunks import OBSERVATION_STREAM, Chunk
from sampler.mcmc.settings import ChainSettings
from sampler.posterior.importance import ImportanceDraws, importance_draws
from sampler.posterior.resampling import systematic_resampling
from sampler.posterior.side_by_side import side_by_side
from sampler.posterior.space import SampledSpace
from theory import LearningProblem

# Resampling adds the noise of the kept draws to that of the weighted ones: with this many effective
# draws for each kept one, the errors of the kept ones are short by a tenth at most.
EFFECTIVE_PER_KEPT = 4
FIRST_EVALUATIONS = 20_000
MOST_EVALUATIONS = 1_000_000
OBSERVED_TOGETHER = 16


@dataclass(frozen=True)
class ImportanceOutcome:
    """Weighted draws, and the equally weighted ones resampled from them (None if not trusted)."""

    weighted: ImportanceDraws
    chunk: Chunk | None

    def explain(self) -> str:
        """One line: how good the weights are, and what follows where they do not suffice."""
        if self.chunk is not None or not self.weighted.trusted:
            return self.weighted.explain() + ("" if self.chunk else " (done here)")
        return f"{self.weighted.explain()}: fewer than the draws asked for; running NUTS instead"

    def attributes(self) -> dict:
        """What `draws.nc` says of the weights."""
        return {
            "importance_pareto_k": self.weighted.pareto_k,
            "importance_efficiency": self.weighted.efficiency,
            "importance_effective_draws": self.weighted.effective_sample_size,
            "importance_evaluations": len(self.weighted.log_weights),
            "log_evidence": self.weighted.log_evidence,
            "log_evidence_error": self.weighted.log_evidence_error,
            "log_evidence_method": "importance",
            "log_evidence_trusted": int(self.weighted.trusted),
        }


def draw_independently(
    problem: LearningProblem, space: SampledSpace, settings: ChainSettings
) -> ImportanceOutcome:
    """chains × draws equally weighted draws, if the weights can be trusted and suffice."""
    kept = settings.chains * settings.draws
    weighted = importance_draws(problem, FIRST_EVALUATIONS, settings.seed)
    wanted = EFFECTIVE_PER_KEPT * kept
    if weighted.trusted and weighted.effective_sample_size < wanted:
        evaluations = int(1.2 * wanted / weighted.efficiency)
        if evaluations <= MOST_EVALUATIONS:
            weighted = importance_draws(problem, evaluations, settings.seed)
    if not weighted.trusted or weighted.effective_sample_size < kept:
        return ImportanceOutcome(weighted, None)
    chosen = systematic_resampling(weighted.weights, kept, settings.seed)
    points = jnp.asarray(weighted.points[chosen])
    key = jax.random.fold_in(jax.random.key(settings.seed), OBSERVATION_STREAM)
    keys = jax.random.split(key, kept)
    observables = _observe(space, weighted.unflatten, keys, points)
    proposed = weighted.proposal.log_density(weighted.points[chosen])
    statistics = {"lp": weighted.log_weights[chosen] + proposed}
    shape = (settings.chains, settings.draws)
    observables, statistics = jax.tree.map(
        lambda values: np.asarray(values).reshape(*shape, *np.shape(values)[1:]),
        (observables, statistics),
    )
    chunk = Chunk("draws", settings.draws, settings.draws, observables, statistics, 0.0)
    return ImportanceOutcome(weighted, chunk)


def _observe(space: SampledSpace, unflatten, keys, points):
    """What every draw says."""

    @jax.jit
    def all_draws(keys, points, observed):
        return jax.lax.map(
            lambda one: space.observe(one[0], unflatten(one[1]), *observed),
            (keys, points),
            batch_size=side_by_side(OBSERVED_TOGETHER),
        )

    return all_draws(keys, points, space.observed)
