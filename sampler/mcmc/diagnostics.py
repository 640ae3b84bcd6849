"""Can these draws be trusted? Diagnostics in function space, and a verdict with reasons."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from arviz_stats.base import array_stats

R_HAT_LIMIT = 1.01
ESS_LIMIT = 400.0
BFMI_LIMIT = 0.3
DIVERGENCE_LIMIT = 0.001
# Of more numbers than this, an even selection is diagnosed.
MOST_DIAGNOSED = 1000
AXES = {"chain_axis": 0, "draw_axis": 1}


@dataclass(frozen=True)
class QuantityDiagnostics:
    """Worst values over the elements of one quantity; `at` says where R-hat is worst."""

    r_hat: float
    ess_bulk: float
    ess_tail: float
    at: tuple[int, ...]


@dataclass(frozen=True)
class Diagnostics:
    """Numbers, verdict ("pass" or "fail"), the reasons for a failure, and remarks."""

    verdict: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    quantities: Mapping[str, QuantityDiagnostics]
    bfmi: tuple[float, ...]
    chains: int
    draws: int
    divergences: int
    saturated_share: float
    leapfrog_steps_per_draw: float
    sync_efficiency: float

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    @property
    def worst_ess(self) -> float:
        """Smallest bulk or tail effective sample size of any diagnosed element."""
        return min(min(q.ess_bulk, q.ess_tail) for q in self.quantities.values())

    def as_dict(self) -> dict:
        """Plain numbers and text, for `comparison.json`."""
        return asdict(self) | {"quantities": {k: asdict(v) for k, v in self.quantities.items()}}


def diagnose(
    draws: Mapping[str, np.ndarray],
    statistics: Mapping[str, np.ndarray],
    *,
    max_tree_depth: int | None,
) -> Diagnostics:
    """Judge draws [chain, draw, …] by rank-normalised split R-hat, ESS, BFMI and divergences.

    `max_tree_depth` is that of NUTS, None for other samplers. Independent draws have no energy and
    no trajectory: `statistics` then holds the log posterior alone. Divergences above 0.1 % of
    draws, frozen or non-finite chains and a single chain fail; trajectories that reached the
    maximal depth are lost efficiency and only remarked on.
    """
    quantities = dict(draws) | {"log_posterior": statistics["lp"]}
    chains, count = statistics["lp"].shape
    reasons, remarks, judged = [], [], {}
    if chains == 1:
        reasons.append("1 chain: R-hat needs at least 2 chains; raise sampler.chains")
    for name, values in quantities.items():
        flat, places = _selected(values)
        problem = _unsound(name, flat)
        if problem:
            reasons.append(problem)
            continue
        varying = flat.std(axis=(0, 1)) > 0
        if chains > 1 and varying.any():
            judged[name] = _judge(flat[..., varying], places[varying], values.shape[2:])
            reasons += _shortfalls(name, judged[name])
    is_chain = "energy" in statistics
    bfmi = _bfmi(statistics["energy"]) if is_chain else []
    if bfmi and min(bfmi) < BFMI_LIMIT:
        reasons.append(
            f"BFMI {min(bfmi):.2f} is below {BFMI_LIMIT}: energies are explored too slowly; "
            "raise sampler.warmup"
        )
    divergences = int(statistics["diverging"].sum()) if is_chain else 0
    if divergences:
        text = f"{divergences} of {chains * count} draws diverged"
        if divergences > DIVERGENCE_LIMIT * chains * count:
            limit = f"{text} (limit {DIVERGENCE_LIMIT:.1%})"
            reasons.append(f"{limit}; raise sampler.target_acceptance or sampler.warmup")
        else:
            remarks.append(text)
    saturated = _saturated_share(statistics, max_tree_depth)
    if saturated:
        remarks.append(
            f"{saturated:.0%} of draws reached the maximal tree depth {max_tree_depth}: lost "
            "efficiency, not an error"
        )
    steps = statistics["n_steps"].astype(float) if is_chain else np.ones((1, 1))
    return Diagnostics(
        verdict="fail" if reasons else "pass",
        reasons=tuple(reasons),
        remarks=tuple(remarks),
        quantities=judged,
        bfmi=tuple(bfmi),
        chains=chains,
        draws=count,
        divergences=divergences,
        saturated_share=saturated,
        leapfrog_steps_per_draw=float(steps.mean()),
        sync_efficiency=float(steps.mean() / steps.max(axis=0).mean()),
    )


def _selected(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[chain, draw, element], at most MOST_DIAGNOSED elements evenly chosen, and their places."""
    flat = np.asarray(values, dtype=np.float64).reshape(*values.shape[:2], -1)
    places = np.arange(flat.shape[2])
    if places.size > MOST_DIAGNOSED:
        places = np.linspace(0, places.size - 1, MOST_DIAGNOSED).astype(int)
    return flat[:, :, places], places


def _unsound(name: str, flat: np.ndarray) -> str | None:
    """Why these draws cannot be diagnosed at all, if they cannot."""
    finite = np.isfinite(flat).all(axis=(1, 2))
    if not finite.all():
        return (
            f"{name}: chain {int(np.argmin(finite))} holds numbers that are not finite; "
            'use sampler.precision = "float64" or check the data'
        )
    moves = (np.diff(flat, axis=1) != 0).any(axis=(1, 2))
    if not moves.all():
        return (
            f"{name}: chain {int(np.argmin(moves))} is frozen (no draw differs from the last); "
            "raise sampler.target_acceptance or sampler.warmup"
        )
    return None


def _judge(flat: np.ndarray, places: np.ndarray, shape: tuple[int, ...]) -> QuantityDiagnostics:
    r_hat = np.atleast_1d(array_stats.rhat(flat, method="rank", **AXES))
    bulk = np.atleast_1d(array_stats.ess(flat, method="bulk", **AXES))
    tail = np.atleast_1d(array_stats.ess(flat, method="tail", prob=(0.05, 0.95), **AXES))
    worst = int(np.argmax(np.where(np.isfinite(r_hat), r_hat, np.inf)))
    at = tuple(int(index) for index in np.unravel_index(places[worst], shape)) if shape else ()
    return QuantityDiagnostics(float(r_hat[worst]), float(bulk.min()), float(tail.min()), at)


def _shortfalls(name: str, judged: QuantityDiagnostics) -> list[str]:
    """Limits that are missed; a comparison with NaN counts as missed."""
    missed = []
    if not judged.r_hat <= R_HAT_LIMIT:
        missed.append(
            f"{name}: R-hat {judged.r_hat:.4f} exceeds {R_HAT_LIMIT}; "
            "raise sampler.warmup and sampler.draws"
        )
    for kind, ess in (("bulk", judged.ess_bulk), ("tail", judged.ess_tail)):
        if not ess >= ESS_LIMIT:
            missed.append(
                f"{name}: {kind} ESS {ess:.0f} is below {ESS_LIMIT:.0f}; raise sampler.draws"
            )
    return missed


def _bfmi(energy: np.ndarray) -> list[float]:
    """Σ (E_t − E_{t−1})² / Σ (E_t − Ē)² of each chain; 0 where the energy never changes."""
    energy = np.asarray(energy, dtype=np.float64)
    changes = np.mean(np.diff(energy, axis=1) ** 2, axis=1)
    spread = energy.var(axis=1)
    return [float(c / s) if s > 0 else 0.0 for c, s in zip(changes, spread, strict=True)]


def _saturated_share(statistics: Mapping[str, np.ndarray], max_tree_depth: int | None) -> float:
    if max_tree_depth is None:
        return 0.0
    return float(np.mean(statistics["trajectory_steps"] >= 2**max_tree_depth - 1))
