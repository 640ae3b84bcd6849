"""Draws gathered chunk by chunk: kept whole, or every k-th where they would not fit."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from sampler.attention.learned import LOGITS
from sampler.mcmc.chains import Chunk
from sampler.mcmc.kept import (
    EFFECTIVE,
    KEPT_BYTES,
    LOGIT_BYTES,
    POINTWISE,
    PREDICTOR_BYTES,
    PREDICTOR_DRAWS,
    PREDICTOR_VALIDATION,
    PREDICTORS,
    SELECTED,
    Fixed,
    SelectedDraws,
    ThinnedDraws,
    evenly_spaced,
    most_thinned,
    stands_still,
)

# Kinds of what is gathered, and the parts of what is thinned that grow with the draws.
DRAWS, STATISTICS, WARMUP = "draws", "statistics", "warmup"
THINNED, SECONDS = "thinned", "seconds"
VALUES_PART, SELECTED_PART = "values", "selected"


@dataclass
class DrawCollector:
    """Collects chunks; call it with each one, then read what it has.

    Predictors are rounded to single precision as they come, and kept whole until their draws exceed
    `predictor_bytes`; then every 2^k-th draw is kept, at least half of `predictor_draws` of each
    chain, and all draws of some elements for the diagnostics. Of predictors of a validation split
    every 2^k-th draw is kept, and so it is of what draws say of training examples where that
    exceeds `kept_bytes`, and of logit weights above a limit of their own. What is kept depends on
    the draws alone, not on the chunks they come in nor on how many are still to come.

    weights       names of the weights, of which `weight_draws` evenly spaced draws are wanted
    fixed         gives the elements that the problem fixes, by the name of the draws
    """

    predictor_bytes: int = PREDICTOR_BYTES
    predictor_draws: int = PREDICTOR_DRAWS
    kept_bytes: int = KEPT_BYTES
    weights: Collection[str] = ()
    weight_draws: int = 0
    fixed: Fixed = dict
    seconds: dict[str, float] = field(default_factory=lambda: {"warmup": 0.0, "draws": 0.0})
    _pieces: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _statistics: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _warmup: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _running: dict[str, "_Thinned"] = field(default_factory=dict)

    def __call__(self, chunk: Chunk) -> None:
        self._gather_statistics(chunk)
        for name, values in chunk.observables.items():
            values = rounded(name, values)
            if name in (PREDICTOR_VALIDATION, EFFECTIVE) and name not in self._running:
                self._running[name] = _Thinned(most_thinned(len(values)))
            if name in self.weights and name not in self._running:
                # At least half of them are kept, however many draws come.
                self._running[name] = _Thinned(2 * self.weight_draws)
            if name in self._running:
                self._running[name].add(values)
                continue
            pieces = self._pieces.setdefault(name, [])
            pieces.append(values)
            if sum(piece.nbytes for piece in pieces) > self._most_bytes(name):
                most = self._most_draws(name, pieces[0][:, :1].nbytes)
                self._running[name] = _thinned_kind(name)(max(2, most))
                for piece in self._pieces.pop(name):
                    self._running[name].add(piece)

    def _most_bytes(self, name: str) -> int:
        """Size up to which draws of this name are kept whole."""
        if name in PREDICTORS:
            return self.predictor_bytes
        if name in POINTWISE:
            return self.kept_bytes
        return LOGIT_BYTES if name.startswith(LOGITS) else sys.maxsize

    def _most_draws(self, name: str, bytes_of_draw: int) -> int:
        """Draws of a chain that are kept at most of what is too large."""
        most = self._most_bytes(name) // bytes_of_draw
        if name in PREDICTORS:
            most = max(most, min(self.predictor_draws, self.kept_bytes // bytes_of_draw))
        return most

    def _gather_statistics(self, chunk: Chunk) -> None:
        self.seconds[chunk.phase] += chunk.seconds
        where = self._statistics if chunk.phase == "draws" else self._warmup
        for name, values in chunk.statistics.items():
            where.setdefault(name, []).append(np.array(values, order="C"))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All that was gathered, by keys `kind/name`, for `restore`."""
        arrays = {f"{SECONDS}/{phase}": np.asarray(v) for phase, v in self.seconds.items()}
        for kind, gathered in self._kinds.items():
            arrays |= {f"{kind}/{name}": _joined(pieces) for name, pieces in gathered.items()}
        for name, thinned in self._running.items():
            arrays |= {f"{THINNED}/{name}/{part}": v for part, v in thinned.arrays.items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from where the collector stood whose `arrays` these are."""
        thinned: dict[str, dict[str, np.ndarray]] = {}
        for key, values in arrays.items():
            kind, name, *part = key.split("/")
            if kind == SECONDS:
                self.seconds[name] = float(values)
            elif kind == THINNED:
                thinned.setdefault(name, {})[part[0]] = values
            else:
                self._kinds[kind][name] = [values]
        for name, parts in thinned.items():
            self._running[name] = _thinned_kind(name).of(parts)

    @property
    def _kinds(self) -> dict[str, dict[str, list[np.ndarray]]]:
        return {DRAWS: self._pieces, STATISTICS: self._statistics, WARMUP: self._warmup}

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Name → [chain, draw, …] of everything that is kept whole."""
        return {name: _joined(pieces) for name, pieces in self._pieces.items()}

    @property
    def selected(self) -> dict[str, SelectedDraws]:
        """Name → draws of some elements of predictors whose draws were not all kept."""
        running = self._running.items()
        return {
            n: thinned.selected for n, thinned in running if isinstance(thinned, _ThinnedPredictor)
        }

    @property
    def stands_still(self) -> bool:
        """Whether an element of anything has one value in all draws."""
        selected = {name: some.values for name, some in self.selected.items()}
        return any(stands_still(v).all(axis=0).any() for v in (self.draws | selected).values())

    @property
    def thinned(self) -> dict[str, ThinnedDraws]:
        """Name → some draws of quantities of which not all are kept."""
        return {n: thinned.draws for n, thinned in self._running.items()}

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        """Sampler statistics of the draws, name → [chain, draw]."""
        return {name: _joined(pieces) for name, pieces in self._statistics.items()}

    @property
    def warmup_statistics(self) -> dict[str, np.ndarray]:
        """Sampler statistics of warm-up, name → [chain, draw]."""
        return {name: _joined(pieces) for name, pieces in self._warmup.items()}

    @property
    def draws_made(self) -> int:
        """Draws of each chain so far."""
        return sum(piece.shape[1] for piece in self._statistics.get("lp", []))

    def total(self, name: str | None) -> int:
        """Sum of a statistic over all chains, warm-up included; 0 where there is no such."""
        pieces = [*self._warmup.get(name, []), *self._statistics.get(name, [])]
        return int(sum(piece.sum() for piece in pieces))


def rounded(name: str, values: np.ndarray) -> np.ndarray:
    """Return a copy of draws of this name, predictors in single precision.

    A copy, as these values may be part of a longer buffer; in the layout that a file gives back.
    """
    single = name in (*PREDICTORS, *POINTWISE, PREDICTOR_VALIDATION)
    return np.array(values, dtype=np.float32 if single else None, order="C")


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """All pieces [chain, draw, …] as one array, which takes their place: no second copy is kept."""
    if len(pieces) > 1:
        pieces[:] = [np.concatenate(pieces, axis=1)]
    return pieces[0]


class _Thinned:
    """Every draw whose number is a multiple of a stride, which doubles when they are too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._stride = 1
        self._seen = 0
        self._kept: list[np.ndarray] = []

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "_Thinned":
        made = cls(int(arrays["most"]))
        made._stride, made._seen = int(arrays["stride"]), int(arrays["seen"])
        made._kept = list(np.swapaxes(arrays[VALUES_PART], 0, 1))
        return made

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "most": np.asarray(self._most),
            "stride": np.asarray(self._stride),
            "seen": np.asarray(self._seen),
            VALUES_PART: np.stack(self._kept, axis=1),
        }

    def add(self, values: np.ndarray) -> None:
        for draw in np.swapaxes(values, 0, 1):
            due = self._seen % self._stride == 0
            if due and len(self._kept) == self._most:
                self._kept = self._kept[::2]
                self._stride *= 2
                due = self._seen % self._stride == 0
            if due:
                self._kept.append(draw.copy())
            self._seen += 1

    @property
    def draws(self) -> ThinnedDraws:
        numbers = self._stride * np.arange(len(self._kept))
        return ThinnedDraws(np.stack(self._kept, axis=1), numbers)


class _ThinnedPredictor(_Thinned):
    """As `_Thinned`, and every draw of some elements."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._selected: list[np.ndarray] = []

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "_ThinnedPredictor":
        made = super().of(arrays)
        made._selected = [arrays[SELECTED_PART]]
        return made

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return super().arrays | {SELECTED_PART: _joined(self._selected)}

    def add(self, values: np.ndarray) -> None:
        flat = values.reshape(*values.shape[:2], -1)
        self._selected.append(flat[:, :, evenly_spaced(flat.shape[2], SELECTED)])
        super().add(values)

    @property
    def selected(self) -> SelectedDraws:
        shape = self._kept[0].shape[1:]
        places = evenly_spaced(int(np.prod(shape)), SELECTED)
        return SelectedDraws(_joined(self._selected), places, shape)


def _thinned_kind(name: str) -> type[_Thinned]:
    return _ThinnedPredictor if name in PREDICTORS else _Thinned
