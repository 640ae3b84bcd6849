"""Can these draws be trusted? Diagnostics in function space, and a verdict with reasons."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sampler.mcmc.algorithm import Algorithm
from sampler.mcmc.convergence import FEWEST_DRAWS, rank_diagnostics, repetition_diagnostics
from sampler.mcmc.kept import SelectedDraws, evenly_spaced
from sampler.mcmc.tempered import effective_repetitions, repetition_weights

R_HAT_LIMIT = 1.01
# Of repetitions R-hat² is 1 + 1/n where one of them is worth n independent draws: more repetitions
# make errors smaller, and it no smaller. With this limit the worst element has ten.
R_HAT_OF_REPETITIONS = 1.05
ESS_LIMIT = 400.0
# Of a quantity with more elements than this, an even selection is diagnosed: of the predictor, its
# mean and its variance a thousand together.
MOST_DIAGNOSED = 333


@dataclass(frozen=True)
class QuantityDiagnostics:
    """Worst values over the elements of one quantity."""

    r_hat: float
    ess_bulk: float
    ess_tail: float


@dataclass(frozen=True)
class Diagnostics:
    """Verdict ("pass" or "fail"), the reasons for a failure, remarks, and numbers.

    `numbers` are those of the algorithm: of Hamiltonian chains BFMI, divergences and their like.
    `warning` is said before everything else, whatever the verdict.
    """

    verdict: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    quantities: Mapping[str, QuantityDiagnostics]
    chains: int
    draws: int
    numbers: Mapping[str, Any]
    r_hat_limit: float = R_HAT_LIMIT
    warning: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and text, for `comparison.json`."""
        table = asdict(self)
        return table | table.pop("numbers")


def diagnose(
    draws: Mapping[str, np.ndarray],
    statistics: Mapping[str, np.ndarray],
    algorithm: Algorithm,
    selected: Mapping[str, SelectedDraws] | None = None,
    *,
    ess_limit: float = ESS_LIMIT,
    most: int = MOST_DIAGNOSED,
    more_draws: str = "draws",
) -> Diagnostics:
    """Judge draws [chain, draw, …] by rank-normalised split R-hat and effective sample size.

    `selected` has the elements to be judged of quantities whose draws were not kept. The algorithm
    judges its own statistics, such as BFMI and divergences. Frozen or non-finite chains, a single
    chain and fewer than four draws fail. `most` elements of each are judged; `more_draws` names the
    setting to raise. Settings of chains and algorithms stand in backticks in the reasons.

    Of repetitions effective draws are those of the means of repetitions, of as many as their
    weights are worth, on average over elements: by few repetitions they are known for no single
    element.
    """
    quantities = {**draws, **{name: some.values for name, some in (selected or {}).items()}}
    quantities["log_posterior"] = statistics["lp"]
    chains, count = statistics["lp"].shape
    reasons, judged = [], {}
    limits, worth = Limits(ess_limit), None
    if algorithm.repeated:
        limits = Limits(ess_limit, R_HAT_OF_REPETITIONS, "`particles`")
        weights = repetition_weights(statistics)
        worth = float(chains) if weights is None else effective_repetitions(weights)
    if chains == 1:
        reasons.append("1 chain: R-hat needs at least 2 chains; raise `chains`")
    if count < FEWEST_DRAWS:
        needed = f"R-hat and ESS need at least {FEWEST_DRAWS}"
        reasons.append(f"draws: {count} of each chain, {needed}; raise `{more_draws}`")
        quantities = {}
    for name, values in quantities.items():
        flat = _some_elements(values, most)
        problem = _unsound(name, flat, algorithm)
        if problem:
            reasons.append(problem)
            continue
        varying = np.flatnonzero((flat != flat[:1, :1]).any(axis=(0, 1)))
        if chains > 1 and varying.size:
            judged[name] = _judge(flat[..., varying], worth)
            reasons += _shortfalls(name, judged[name], limits, more_draws)
    judgement = algorithm.judge(statistics)
    reasons += judgement.reasons
    return Diagnostics(
        verdict="fail" if reasons else "pass",
        reasons=tuple(reasons),
        remarks=judgement.remarks,
        quantities=judged,
        chains=chains,
        draws=count,
        numbers=judgement.numbers,
        r_hat_limit=limits.r_hat,
        warning=judgement.warning,
    )


def _some_elements(values: np.ndarray, most: int) -> np.ndarray:
    """At most so many elements of draws [chain, draw, …], evenly chosen: [chain, draw, element]."""
    flat = values.reshape(*values.shape[:2], -1)
    return flat if flat.shape[2] <= most else flat[:, :, evenly_spaced(flat.shape[2], most)]


def _unsound(name: str, flat: np.ndarray, algorithm: Algorithm) -> str | None:
    """Why these draws cannot be diagnosed at all, if they cannot."""
    finite = np.isfinite(flat).all(axis=(1, 2))
    if not finite.all():
        return (
            f"{name}: chain {int(np.argmin(finite))} holds numbers that are not finite; "
            "use double precision, or check the data"
        )
    moves = (flat[:, 1:] != flat[:, :-1]).any(axis=(1, 2))
    if not moves.all():
        return (
            f"{name}: chain {int(np.argmin(moves))} is frozen (no draw differs from the last); "
            f"{algorithm.remedy_if_frozen}"
        )
    return None


def _judge(values: np.ndarray, worth: float | None) -> QuantityDiagnostics:
    """Worst values over elements, all of which vary.

    worth  repetitions of equal weight that the chains are worth; None where they are no such
    """
    if worth is not None:
        r_hat, *shares = repetition_diagnostics(values)
        draws = values.shape[1]
        # No more than there are: by chance the means of repetitions may be close together.
        bulk, *tails = (worth / max(float(np.mean(share)), 1.0 / draws) for share in shares)
        bulk, tail = np.array([bulk]), np.array([min(tails)])
    else:
        r_hat, bulk, tail = rank_diagnostics(values)
    worst = int(np.argmax(np.where(np.isfinite(r_hat), r_hat, np.inf)))
    return QuantityDiagnostics(float(r_hat[worst]), float(bulk.min()), float(tail.min()))


@dataclass(frozen=True)
class Limits:
    """Limits of effective draws and R-hat, and what to raise for R-hat where draws are not it."""

    ess: float
    r_hat: float = R_HAT_LIMIT
    remedy: str = ""


def _shortfalls(
    name: str, judged: QuantityDiagnostics, limits: Limits, more_draws: str
) -> list[str]:
    """Limits that are missed; a comparison with NaN counts as missed."""
    missed, ess_limit = [], limits.ess
    if not judged.r_hat <= limits.r_hat:
        remedy = limits.remedy or f"`warmup` and `{more_draws}`"
        missed.append(
            f"{name}: R-hat {judged.r_hat:.4f} exceeds {limits.r_hat:.5g}; raise {remedy}"
        )
    for kind, ess in (("bulk", judged.ess_bulk), ("tail", judged.ess_tail)):
        if not ess >= ess_limit:
            missed.append(
                f"{name}: {kind} ESS {ess:.0f} is below {ess_limit:.0f}; raise `{more_draws}`"
            )
    return missed
