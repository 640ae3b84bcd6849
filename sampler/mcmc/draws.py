"""Draws gathered chunk by chunk: kept whole, or as running moments where they would not fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sampler.mcmc.chunks import Chunk

# The draws of one quantity are kept up to this size; above, only moments of batches of draws.
KEPT_BYTES = 512 * 2**20
BATCHES_PER_CHAIN = 20


@dataclass(frozen=True)
class BatchMoments:
    """First and second moments of consecutive batches of draws, [chain, batch, …].

    Enough for means, variances and their Monte Carlo errors (batch means) without the draws.
    """

    mean: np.ndarray
    mean_square: np.ndarray
    batch_size: int


@dataclass
class DrawCollector:
    """Collects chunks; call it with each one, then read `draws`, `moments` and `statistics`.

    Quantities named in `may_be_reduced` are kept as moments when all their draws would exceed
    `kept_bytes`.
    """

    draws_total: int
    may_be_reduced: tuple[str, ...] = ("predictor", "predictor_mean", "predictor_variance")
    kept_bytes: int = KEPT_BYTES
    seconds: dict[str, float] = field(default_factory=lambda: {"warmup": 0.0, "draws": 0.0})
    _pieces: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _statistics: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _warmup: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _batches: dict[str, "_Batches"] = field(default_factory=dict)

    def __call__(self, chunk: Chunk) -> None:
        self.seconds[chunk.phase] += chunk.seconds
        where = self._statistics if chunk.phase == "draws" else self._warmup
        for name, values in chunk.statistics.items():
            where.setdefault(name, []).append(values)
        for name, values in chunk.observables.items():
            if self._is_reduced(name, values):
                size = max(1, self.draws_total // BATCHES_PER_CHAIN)
                batches = self._batches.setdefault(name, _Batches(size))
                batches.add(values)
            else:
                self._pieces.setdefault(name, []).append(values)

    def _is_reduced(self, name: str, values: np.ndarray) -> bool:
        if name in self._batches or name in self._pieces:
            return name in self._batches
        per_draw = values[:, 0].nbytes
        return name in self.may_be_reduced and per_draw * self.draws_total > self.kept_bytes

    @property
    def reduced(self) -> frozenset[str]:
        """Names of the quantities of which only moments are kept."""
        return frozenset(self._batches)

    @property
    def partial_moments(self) -> dict[str, dict[str, np.ndarray]]:
        """Sums of the batches so far, name → arrays: what `restore` takes."""
        return {name: batches.arrays for name, batches in self._batches.items()}

    def restore(self, partial_moments: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Go on with sums of batches from where an earlier collector of these draws stood."""
        self._batches = {name: _Batches.of(sums) for name, sums in partial_moments.items()}

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Name → [chain, draw, …]."""
        return {name: np.concatenate(pieces, axis=1) for name, pieces in self._pieces.items()}

    @property
    def moments(self) -> dict[str, BatchMoments]:
        """Name → moments of the quantities whose draws were not kept."""
        return {name: batches.moments for name, batches in self._batches.items()}

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        """Sampler statistics of the draws, name → [chain, draw]."""
        return {name: np.concatenate(p, axis=1) for name, p in self._statistics.items()}

    @property
    def warmup_statistics(self) -> dict[str, np.ndarray]:
        """Sampler statistics of warm-up, name → [chain, draw]."""
        return {name: np.concatenate(p, axis=1) for name, p in self._warmup.items()}

    def total(self, name: str | None) -> int:
        """Sum of a statistic over all chains, warm-up included; 0 where there is no such."""
        pieces = [*self._warmup.get(name, []), *self._statistics.get(name, [])]
        return int(sum(piece.sum() for piece in pieces))


class _Batches:
    """Sums of draws in batches of equal size; an incomplete last batch is left out."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._seen = 0
        self._sums: list[list[np.ndarray]] = []

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "_Batches":
        batches = cls(int(arrays["size"]))
        batches._seen = int(arrays["seen"])
        batches._sums = [[*pair] for pair in np.array(arrays["sums"])]
        return batches

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "size": np.asarray(self._size),
            "seen": np.asarray(self._seen),
            "sums": np.array(self._sums),
        }

    def add(self, values: np.ndarray) -> None:
        for draw in np.swapaxes(values, 0, 1).astype(np.float64):
            if self._seen % self._size == 0:
                self._sums.append([np.zeros_like(draw), np.zeros_like(draw)])
            self._sums[-1][0] += draw
            self._sums[-1][1] += draw**2
            self._seen += 1

    @property
    def moments(self) -> BatchMoments:
        full = self._sums[: self._seen // self._size]
        mean, mean_square = (
            np.stack([sums[i] for sums in full], axis=1) / self._size for i in (0, 1)
        )
        return BatchMoments(mean, mean_square, self._size)
