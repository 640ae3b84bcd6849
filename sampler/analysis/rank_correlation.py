"""Spearman's rank correlation, with bootstrap intervals."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

REPLICATES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's ρ and two 95 % percentile intervals.

    over_pairs     other heads could have been trained: pairs (score, drop) are drawn again
    over_examples  other examples could have been tested on: the drops are measured again
    """

    value: float
    over_pairs: tuple[float, float]
    over_examples: tuple[float, float]

    def as_dict(self) -> dict:
        return {
            "value": self.value,
            "interval_over_heads": self.over_pairs,
            "interval_over_examples": self.over_examples,
        }


def spearman(
    one: Float[np.ndarray, "*batch pair"], other: Float[np.ndarray, "*batch pair"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Correlation of the ranks along the last axis, ties at their mean; NaN without variation."""
    ranks = [rankdata(values, axis=-1) for values in (one, other)]
    a, b = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def rank_correlation(
    scores: Float[np.ndarray, " head"],
    lost: Float[np.ndarray, "head example"] | Bool[np.ndarray, "head example"],
    seed: int = 0,
) -> RankCorrelation:
    """ρ between scores and drops, a drop being the mean over examples of what was lost there."""
    lost = np.asarray(lost, dtype=np.float64)
    generator = np.random.default_rng(seed)
    heads, examples = lost.shape

    def over(draw: Callable[[], np.ndarray]) -> tuple[float, float]:
        found = np.array([draw() for _ in range(REPLICATES)])
        # A sample of equal scores or drops has no correlation.
        found = found[np.isfinite(found)]
        if not found.size:
            return float("nan"), float("nan")
        tail = (1.0 - LEVEL) / 2.0
        return float(np.quantile(found, tail)), float(np.quantile(found, 1.0 - tail))

    drops = lost.mean(axis=1)

    def other_heads():
        chosen = generator.integers(heads, size=heads)
        return spearman(scores[chosen], drops[chosen])

    def other_examples():
        counts = generator.multinomial(examples, np.full(examples, 1 / examples))
        return spearman(scores, lost @ (counts / examples))

    return RankCorrelation(float(spearman(scores, drops)), over(other_heads), over(other_examples))
