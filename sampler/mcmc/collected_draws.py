"""Draws gathered chunk by chunk: all small arrays, every k-th draw of large ones.

Free of JAX: `check` states from the limits how much memory a run takes.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sampler.attention.learned import LOGITS
from sampler.mcmc.algorithm import Chunk

# Draws of these are kept in single precision: their Monte Carlo error is never near its rounding.
PREDICTORS = ("predictor", "predictor_mean", "predictor_variance")
PREDICTOR_VALIDATION = "predictor_validation"
# Of every training example: its log likelihood, and a label simulated, given all labels or those
# of the others.
LOG_LIKELIHOOD, REPLICATED = "log_likelihood", "posterior_predictive"
LEFT_OUT = "leave_one_out_predictive"
POINTWISE = (LOG_LIKELIHOOD, REPLICATED, LEFT_OUT)
LOG_PRIOR = "log_prior"
# Number of training examples from which on draws have no numbers of single ones.
MOST_POINTWISE = 20_000
# Bytes of the draws of one predictor, of all chains together, and of numbers per draw of training
# examples and the logit weights of a layer.
PREDICTOR_BYTES, KEPT_BYTES, LOGIT_BYTES = 64 * 2**20, 32 * 2**20, 128 * 2**20
# Size from which on predictors are observed of every 8th draw of a chain, where they follow
# from order parameters, which are judged.
MANY_NUMBERS, EVERY = 256, 8
# Draws of each chain, and of all chains, of what only some draws are wanted.
MOST_THINNED, THINNED_IN_ALL = 400, 6400
# Kinds of gathered arrays, which name them.
DRAWS, STATISTICS, WARMUP = "draws", "statistics", "warmup"
COUNTS, SECONDS, ELSEWHERE = "counts", "seconds", "elsewhere"

# Gives which elements of a draw the problem fixes, by the name of the draws.
Fixed = Callable[[], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Limit:
    """How much of a quantity is kept: every k-th draw, k = 1, 2, 4, … the smallest that fits.

    bytes   of the kept draws of all chains
    most    draws of each chain, of what only some draws are wanted
    in_all  the same of all chains together
    """

    bytes: int = sys.maxsize
    most: int = sys.maxsize
    in_all: int = sys.maxsize

    def draws(self, chains: int, bytes_of_draw: int) -> int:
        """Draws of each chain that are kept at most, two at least."""
        size = max(1, bytes_of_draw)
        return max(2, min(self.bytes // size, self.most, self.in_all // chains))


WHOLE = Limit()
LIMITS = {
    **dict.fromkeys(PREDICTORS, Limit(PREDICTOR_BYTES)),
    **dict.fromkeys(POINTWISE, Limit(KEPT_BYTES)),
    PREDICTOR_VALIDATION: Limit(most=MOST_THINNED, in_all=THINNED_IN_ALL),
    LOGITS: Limit(LOGIT_BYTES),  # of each layer
}


@dataclass(frozen=True)
class ThinnedDraws:
    """Every k-th draw: values [chain, kept, …] and the numbers of these draws.

    judged  whether diagnostics judge them, as other draws do not determine them
    """

    values: np.ndarray
    draws: np.ndarray
    judged: bool = True


@dataclass
class Kept:
    """Draws of one quantity: those whose number is a multiple of a stride.

    The stride doubles when there are too many, so the kept draws depend on the draws alone, not on
    the chunks that they come in nor on how many are still to come.

    some    whether only every 8th draw is handed on
    rows    number of a first chain → pieces [chain, draw, …], of chains handed on together
    seen    number of a first chain → its draws so far
    """

    limit: Limit = WHOLE
    stride: int = 1
    some: bool = False
    rows: dict[int, list[np.ndarray]] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    def add(self, values: np.ndarray, first: int = 0, made: int | None = None) -> None:
        """Add further draws of the chains from this one on.

        made  how many there were, of which these are those that are observed; None: all of them
        """
        seen, made = self.seen.get(first, 0), values.shape[1] if made is None else made
        numbers = seen + np.arange(made)
        if self.some:
            numbers = numbers[numbers % EVERY == 0]
        due = numbers % self.stride == 0
        self.rows.setdefault(first, []).append(values if due.all() else values[:, due])
        self.seen[first] = seen + made
        chains = sum(len(pieces[0]) for pieces in self.rows.values())
        of_draw = values.dtype.itemsize * int(np.prod(values.shape[2:]))
        most = self.limit.draws(chains, of_draw * chains)
        while -(-max(self.seen.values()) // self.stride) > most:
            self._halve()

    def _halve(self) -> None:
        self.stride *= 2
        for pieces in self.rows.values():
            pieces[:] = [np.ascontiguousarray(_joined(pieces)[:, ::2])]

    @property
    def is_whole(self) -> bool:
        """Whether all draws are kept, and wanted."""
        return self.stride == 1 and self.limit.most == sys.maxsize

    @property
    def values(self) -> np.ndarray:
        """The kept draws [chain, draw, …] of all chains; of those that have fewer, no numbers."""
        rows = [_joined(pieces) for _, pieces in sorted(self.rows.items())]
        if len(rows) == 1:
            return rows[0]
        longest = max(row.shape[1] for row in rows)
        return np.concatenate([_lengthened(row, longest) for row in rows])

    @property
    def thinned(self) -> ThinnedDraws:
        values = self.values
        return ThinnedDraws(values, self.stride * np.arange(values.shape[1]), not self.some)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All that it is, for `restored`."""
        counts = np.array([(self.stride, self.some), *self.seen.items()])
        return {COUNTS: counts} | {f"{first}": _joined(row) for first, row in self.rows.items()}

    @classmethod
    def restored(cls, limit: Limit, arrays: Mapping[str, np.ndarray]) -> "Kept":
        (stride, some), *seen = arrays[COUNTS].tolist()
        rows = {first: [arrays[f"{first}"]] for first, _ in seen}
        return cls(limit, stride, bool(some), rows, dict(seen))


@dataclass
class DrawCollector:
    """Collects chunks; call it with each one, then read the result.

    Predictors are rounded to single precision as they come.

    limits        of large arrays, by name, or by the beginning of the name of logit weights
    weights       names of the weights, of which `weight_draws` evenly spaced draws are wanted
    fixed         gives the elements that the problem fixes, by the name of the draws
    """

    limits: Mapping[str, Limit] = field(default_factory=lambda: LIMITS)
    weights: Sequence[str] = ()
    weight_draws: int = 0
    fixed: Fixed = dict
    seconds: dict[str, float] = field(default_factory=lambda: {"warmup": 0.0, "draws": 0.0})
    _kept: dict[str, dict[str, Kept]] = field(
        default_factory=lambda: {DRAWS: {}, STATISTICS: {}, WARMUP: {}}
    )
    _elsewhere: dict[str, float] = field(default_factory=dict)

    def __call__(self, chunk: Chunk) -> None:
        self.seconds[chunk.phase] += chunk.seconds
        if chunk.first is None:
            for name, values in chunk.statistics.items():
                self._elsewhere[name] = self._elsewhere.get(name, 0.0) + float(values.sum())
            return
        of_phase = STATISTICS if chunk.phase == "draws" else WARMUP
        for name, values in chunk.statistics.items():
            self._add(of_phase, name, np.array(values, order="C"), chunk.first)
        for name, values in chunk.observables.items():
            self._add(DRAWS, name, rounded(name, values), chunk.first)
        for name, values in chunk.thinned.items():
            self._add(DRAWS, name, rounded(name, values), chunk.first, chunk.draws)

    def _add(
        self,
        kind: str,
        name: str,
        values: np.ndarray,
        first: int,
        made: int | None = None,
    ) -> None:
        of_kind = self._kept[kind]
        if name not in of_kind:
            some = made is not None
            of_kind[name] = Kept(self._limit(kind, name), EVERY if some else 1, some)
        of_kind[name].add(values, first, made)

    def _limit(self, kind: str, name: str) -> Limit:
        if kind != DRAWS:
            return WHOLE
        if name in self.weights:  # at least half of them are kept, however many draws come
            return Limit(most=2 * self.weight_draws)
        return self.limits.get(LOGITS if name.startswith(LOGITS) else name, WHOLE)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All that was gathered, by keys `kind/name`, for `restore`."""
        arrays = {f"{SECONDS}/{phase}": np.asarray(v) for phase, v in self.seconds.items()}
        arrays |= {f"{ELSEWHERE}/{name}": np.asarray(v) for name, v in self._elsewhere.items()}
        for kind, of_kind in self._kept.items():
            for name, kept in of_kind.items():
                arrays |= {f"{kind}/{name}/{part}": v for part, v in kept.arrays.items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from where the collector stood whose `arrays` these are."""
        parts: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        for key, values in arrays.items():
            kind, name, *part = key.split("/")
            if part:
                parts.setdefault((kind, name), {})[part[0]] = values
            else:
                where = self.seconds if kind == SECONDS else self._elsewhere
                where[name] = float(values)
        for (kind, name), of_name in parts.items():
            self._kept[kind][name] = Kept.restored(self._limit(kind, name), of_name)

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Name → [chain, draw, …] of everything that is kept whole."""
        return {name: kept.values for name, kept in self._kept[DRAWS].items() if kept.is_whole}

    @property
    def judged(self) -> dict[str, np.ndarray]:
        """Draws that diagnostics may judge: all that are whole, and predictors that are not.

        But for those that follow from order parameters.
        """
        some = {n: d.values for n, d in self.thinned.items() if n in PREDICTORS and d.judged}
        return self.draws | some

    @property
    def stands_still(self) -> bool:
        """Whether an element of anything that is judged has one value in all draws."""
        return any(stands_still(v).all(axis=0).any() for v in self.judged.values())

    @property
    def thinned(self) -> dict[str, ThinnedDraws]:
        """Name → draws of quantities that are thinned."""
        return {n: kept.thinned for n, kept in self._kept[DRAWS].items() if not kept.is_whole}

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        """Sampler statistics of the draws, name → [chain, draw]."""
        return {name: kept.values for name, kept in self._kept[STATISTICS].items()}

    @property
    def warmup_statistics(self) -> dict[str, np.ndarray]:
        """Sampler statistics of warm-up, name → [chain, draw]."""
        return {name: kept.values for name, kept in self._kept[WARMUP].items()}

    @property
    def draws_made(self) -> int:
        """Draws of each chain so far."""
        made = self._kept[STATISTICS].get("lp")
        return 0 if made is None else max(made.seen.values())

    def total(self, name: str | None) -> int:
        """Sum of a statistic over all steps, warm-up included; 0 without this statistic."""
        kept = [self._kept[kind][name] for kind in (WARMUP, STATISTICS) if name in self._kept[kind]]
        pieces = [piece for one in kept for row in one.rows.values() for piece in row]
        return int(sum(piece.sum() for piece in pieces) + self._elsewhere.get(name, 0.0))


def rounded(name: str, values: np.ndarray) -> np.ndarray:
    """Return a copy of draws of this name, predictors in single precision.

    A copy, as these values may be part of a longer buffer; in the layout that a file gives back.
    """
    single = name in (*PREDICTORS, *POINTWISE, PREDICTOR_VALIDATION)
    return np.array(values, dtype=np.float32 if single else None, order="C")


def stands_still(values: np.ndarray) -> np.ndarray:
    """Which elements of draws [chain, draw, …] no draw of a chain changes [chain, element]."""
    flat = values.reshape(*values.shape[:2], -1)
    return (flat == flat[:, :1]).all(axis=1)


def evenly_spaced(size: int, most: int) -> np.ndarray:
    """Return the places of all of `size` elements, or of `most` of them with both ends."""
    return np.arange(size) if size <= most else np.linspace(0, size - 1, most).astype(int)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """All pieces [chain, draw, …] as one array, which takes their place: no second copy is kept."""
    if len(pieces) > 1:
        pieces[:] = [np.concatenate(pieces, axis=1)]
    return pieces[0]


def _lengthened(row: np.ndarray, length: int) -> np.ndarray:
    """A row padded to a number of draws with NaN, or counts of 0."""
    missing = [(0, 0), (0, length - row.shape[1])]
    empty = 0 if np.issubdtype(row.dtype, np.integer) else np.nan
    return np.pad(row, missing, constant_values=empty) if row.shape[1] < length else row
