"""Predictions of the exact posterior for heads, from draws of U_1, with their MCSE.

Given U_1 the posterior mean of what each path brings is exact: its mean over draws is that of the
network. When a gate moves, the posterior of U_1 moves, too,

    dE[m]/dg = E[∂m/∂g] − ½ Cov(m, ∂E/∂g),   d ln p(y)/dg = −½ E[∂E/∂g]

with ∂/∂g at fixed U_1, where the readout learns again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.draws_table import stored_weights
from sampler.analysis.estimate import Estimate, RepetitionWeights, bootstrap, by_repetition, mean_of
from sampler.heads.derivatives import (
    AFTER_EXACT,
    EVIDENCE_SLOPE_EXACT,
    LEARNING_EXACT,
    SIZE,
    gained_by_slope,
    places_of,
)
from sampler.heads.gates import Head
from sampler.heads.measures import REMOVED_EXACT, Lost, Outputs, TheoryWithoutHeads
from sampler.problem import square_roots
from theory import SlopesAtOverlaps, contributions_by_head, mean_without, slopes_at_overlaps

# Draws of each chain at which heads are removed.
DRAWS = 100
# Batches of the draws of each chain, for errors.
BATCHES = 10
KEYS = (REMOVED_EXACT, AFTER_EXACT, AFTER_EXACT + SIZE, LEARNING_EXACT, LEARNING_EXACT + SIZE)


def predictions_at_draws(
    theory: TheoryWithoutHeads, heads: Sequence[Head], labels: Outputs, draws: xr.DataTree
) -> dict[str, Estimate]:
    """Predictions of the exact posterior at draws from all of its chains."""
    overlaps = draws["posterior"]["order_parameter"].values
    some = overlaps[:, :: max(1, overlaps.shape[1] // DRAWS)]
    return predictions_of_posterior(theory, heads, labels, some, stored_weights(draws))


def predictions_of_posterior(
    theory: TheoryWithoutHeads,
    heads: Sequence[Head],
    labels: Outputs,
    overlaps: Float[np.ndarray, "chain draw row row"],
    weights: RepetitionWeights = None,
) -> dict[str, Estimate]:
    """Scores, losses and slopes of heads, losses those of posterior means of the predictor.

    weights  of the chains where they are repetitions
    """
    overlaps = by_repetition(overlaps, weights)
    size = max(1, overlaps.shape[1] // (BATCHES if weights is None else 1))
    kept = overlaps[:, : size * (overlaps.shape[1] // size)]
    places = places_of(heads, theory.paths.heads)
    batches, energies = [], []
    for some in kept.reshape(-1, size, *kept.shape[2:]):
        factors = jnp.asarray(square_roots(some))
        found = slopes_at_overlaps(theory.learning, theory.predictor, factors, theory.attended)
        energies.append(found.energy[:, places])
        batches.append(BatchMeans.of(found, places).flat)
    shapes = BatchMeans.of(found, places)

    def gained(means: Float[np.ndarray, "replicate number"]) -> np.ndarray:
        return np.stack([gained_in_mean(shapes.like(one), theory, heads, labels) for one in means])

    losses = bootstrap(gained, np.stack(batches), replicates=100, weights=weights)
    scores = [[replace(theory, overlap=draw).scores(heads) for draw in chain] for chain in overlaps]
    energy = np.stack(energies).reshape(len(overlaps), -1, len(heads))
    return {key: Estimate(losses.value[at], losses.mcse[at]) for at, key in enumerate(KEYS)} | {
        EVIDENCE_SLOPE_EXACT: mean_of(-0.5 * energy, weights),
        "score_exact": mean_of(np.array(scores), weights),
    }


@dataclass(frozen=True)
class BatchMeans:
    """Means over draws, from which the predictor mean and its derivatives by gates follow.

    contributions  m_π(x)
    slopes         ∂m/∂g_h
    products       m ∂E/∂g_h
    energy         ∂E/∂g_h
    """

    contributions: Float[np.ndarray, "example path output"]
    slopes: Float[np.ndarray, "example output head"]
    products: Float[np.ndarray, "example output head"]
    energy: Float[np.ndarray, " head"]

    @classmethod
    def of(cls, found: SlopesAtOverlaps, places: list[int]) -> "BatchMeans":
        """Means over some draws, for heads at these places."""
        energy = found.energy[:, places]
        return cls(
            found.contributions.mean(axis=0),
            found.mean_slopes[..., places].mean(axis=0),
            np.einsum("dxo,dh->xoh", found.contributions.sum(axis=2), energy) / len(energy),
            energy.mean(axis=0),
        )

    @property
    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.contributions, self.slopes, self.products, self.energy

    @property
    def flat(self) -> Float[np.ndarray, " number"]:
        """All of them one after the other."""
        return np.concatenate([part.reshape(-1) for part in self._parts])

    def like(self, flat: Float[np.ndarray, " number"]) -> "BatchMeans":
        """Means of the same sizes from their numbers one after the other."""
        ends = np.cumsum([part.size for part in self._parts])[:-1]
        pieces = zip(np.split(flat, ends), self._parts, strict=True)
        return BatchMeans(*(numbers.reshape(part.shape) for numbers, part in pieces))


def gained_in_mean(
    means: BatchMeans, theory: TheoryWithoutHeads, heads: Sequence[Head], labels: Outputs
) -> Float[np.ndarray, "key head"]:
    """Loss gained, by `KEYS`, without each head in the mean over draws."""
    without = partial(mean_without, means.contributions, theory.paths)
    lost = Lost.without(without, heads, labels, "squared").loss
    mean = means.contributions.sum(axis=1)
    after = contributions_by_head(means.contributions, theory.paths)
    after = after[..., places_of(heads, theory.paths.heads)]
    learning = means.slopes - 0.5 * (means.products - mean[..., None] * means.energy)
    found = [lost]
    for slopes in (after, learning):
        by_example = gained_by_slope(mean, slopes, labels)
        found += [by_example, np.abs(by_example)]
    return np.stack(found).mean(axis=2)
