"""Can these draws be trusted? Diagnostics in function space, and a verdict with reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import chdtri

from sampler.mcmc.algorithm import Algorithm
from sampler.mcmc.collected_draws import Fixed, evenly_spaced, stands_still
from sampler.mcmc.convergence import FEWEST_DRAWS, rank_diagnostics, repetition_diagnostics

R_HAT_LIMIT = 1.01
# Of repetitions R-hat² is 1 + 1/n where one of them is worth n independent draws: more repetitions
# make errors smaller, and it no smaller. With this limit the worst element has ten.
R_HAT_OF_REPETITIONS = 1.05
ESS_LIMIT = 400.0
# Of a quantity with more elements than this, an even selection is diagnosed: of the predictor, its
# mean and its variance a thousand together.
MOST_DIAGNOSED = 333
# Of elements that do not move.
MOST_NAMED = 3


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
    `warning` is shown first, whatever the verdict.
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
    fixed: Fixed = dict,
    *,
    ess_limit: float = ESS_LIMIT,
    most: int = MOST_DIAGNOSED,
    more_draws: str = "draws",
) -> Diagnostics:
    """Judge draws [chain, draw, …] by rank-normalised split R-hat and effective sample size.

    Of a quantity there may be some of the draws alone. The algorithm
    judges its own statistics, such as BFMI and divergences. Frozen or non-finite chains, elements
    that do not move although the problem does not fix them, a single chain and fewer than four
    draws fail. `fixed` gives the fixed elements where something does not move, as masks
    of the elements of a draw. `most` elements of each are judged; `more_draws` names the setting to
    raise. Settings of chains and algorithms are in backticks in the reasons.

    Of repetitions effective draws are those of the means of repetitions, of as many as their
    weights are worth, for the worst element as estimated from few repetitions (`worst_share`).
    """
    quantities = {**draws, "log_posterior": statistics["lp"]}
    chains, count = statistics["lp"].shape
    reasons, shortfalls, judged, judgement = [], [], {}, algorithm.judge(statistics)
    if_frozen = judgement.remedy or algorithm.remedy_if_frozen
    limits, worth = Limits(ess_limit), algorithm.repetitions(statistics)
    if worth is not None:
        limits = Limits(ess_limit, R_HAT_OF_REPETITIONS, f"`{algorithm.counts.draws}`")
    if chains == 1:
        reasons.append("1 chain: R-hat needs at least 2 chains; raise `chains`")
    if count < FEWEST_DRAWS:
        needed = f"R-hat and ESS need at least {FEWEST_DRAWS}"
        reasons.append(f"draws: {count} of each chain, {needed}; raise `{more_draws}`")
        quantities = {}
    for name, values in quantities.items():
        flat, still = values.reshape(*values.shape[:2], -1), stands_still(values)
        if still.all(axis=0).any():
            known = _known_values(name, flat, fixed)
        else:
            known = np.zeros(flat.shape[2], bool)
        problem = _unsound(name, flat, still[:, ~known], if_frozen)
        if problem:
            reasons.append(problem)
            continue
        stuck = still.any(axis=0) & ~known
        if stuck.any():
            places = _element_names(name, values.shape[2:])[stuck]
            reasons.append(_stuck_text(places, if_frozen))
        places = evenly_spaced(flat.shape[2], most)
        moving = places[~(known | stuck)[places]]
        if chains > 1 and moving.size:
            judged[name] = _judge(flat[..., moving], worth)
            missed = _shortfall(name, judged[name], limits, more_draws)
            shortfalls += [missed] if missed else []
    reasons += [*_worst_first(shortfalls, judgement.remedy), *judgement.reasons]
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


def _known_values(name: str, flat: np.ndarray, fixed: Fixed) -> np.ndarray:
    """Which elements have one value in all draws of all chains because the problem fixes it."""
    of_draw = fixed().get(name)
    if of_draw is None:
        return np.zeros(flat.shape[2], bool)
    return np.asarray(of_draw, bool) & (flat == flat[:1, :1]).all(axis=(0, 1))


def _element_names(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Name and place in one draw of every element, without the axis of a single output."""
    shape = shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape
    return np.array([f"{name}{list(at)}" if at else name for at in np.ndindex(shape)])


def _stuck_text(places: np.ndarray, remedy: str) -> str:
    """The reason given for elements that do not move in a chain, though others do."""
    named = ", ".join(places[:MOST_NAMED])
    if len(places) > MOST_NAMED:
        named += f" and {len(places) - MOST_NAMED} others"
    return f"{named}: no draw of a chain differs from the last; {remedy}"


def _unsound(name: str, flat: np.ndarray, still: np.ndarray, remedy: str) -> str | None:
    """Why these draws cannot be diagnosed at all, if they cannot."""
    finite = np.isfinite(flat).all(axis=(1, 2))
    if not finite.all():
        return (
            f"{name}: chain {int(np.argmin(finite))} holds numbers that are not finite; "
            "use double precision, or check the data"
        )
    frozen = still.all(axis=1) & bool(still.shape[1])
    if frozen.any():
        return (
            f"{name}: chain {int(np.argmax(frozen))} is frozen (no draw differs from the last); "
            f"{remedy}"
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
        bulk, *tails = (worth / max(worst_share(one, len(values)), 1.0 / draws) for one in shares)
        bulk, tail = np.array([bulk]), np.array([min(tails)])
    else:
        r_hat, bulk, tail = rank_diagnostics(values)
    worst = int(np.argmax(np.where(np.isfinite(r_hat), r_hat, np.inf)))
    return QuantityDiagnostics(float(r_hat[worst]), float(bulk.min()), float(tail.min()))


def worst_share(shares: Float[np.ndarray, " element"], repetitions: int) -> float:
    """Share of the variance between repetitions of the worst element, as far as it is determined.

    By R repetitions the share of an element is known to a factor χ²_{R−1}/(R − 1), and the largest
    of m elements that all have the same is larger than the median of the largest of m such factors
    half of the time. So the largest is divided by it, where it exceeds 1; the result is no less
    than the mean over elements.
    Where all elements are alike the effective draws are right (0.97 of them at 8 repetitions and
    333 elements, and 0.3 by the largest share itself). One element that is a hundred times slower
    than 332 others has 3.5 times fewer than are stated, and 79 times fewer than by the mean.
    """
    beyond = -np.expm1(np.log(0.5) / len(shares))  # P(one factor is above that median)
    by_chance = chdtri(repetitions - 1, beyond) / (repetitions - 1)
    return float(max(np.mean(shares), np.max(shares) / max(by_chance, 1.0)))


@dataclass(frozen=True)
class Limits:
    """Limits of effective draws and R-hat, and the setting to raise for R-hat if not draws."""

    ess: float
    r_hat: float = R_HAT_LIMIT
    remedy: str = ""


class Shortfall(NamedTuple):
    """A quantity that misses limits: its share of the effective draws, limits, and the remedy."""

    enough: float
    text: str
    remedy: str


def _shortfall(
    name: str, judged: QuantityDiagnostics, limits: Limits, more_draws: str
) -> Shortfall | None:
    """Limits that a quantity misses, in one line; a comparison with NaN counts as missed."""
    missed, remedy = [], f"raise `{more_draws}`"
    if not judged.r_hat <= limits.r_hat:
        remedy = "raise " + (limits.remedy or f"`warmup` and `{more_draws}`")
        missed.append(f"R-hat {judged.r_hat:.4f} exceeds {limits.r_hat:.5g}")
    sizes = {"bulk": judged.ess_bulk, "tail": judged.ess_tail}
    few = [
        f"{kind} ESS {np.floor(ess):.0f}" for kind, ess in sizes.items() if not ess >= limits.ess
    ]
    if few:
        missed.append(f"{', '.join(few)} below {limits.ess:.0f}")
    if not missed:
        return None
    enough = min(sizes.values()) / limits.ess
    return Shortfall(enough if enough == enough else -1.0, f"{name}: {'; '.join(missed)}", remedy)


def _worst_first(shortfalls: Sequence[Shortfall], of_all: str) -> list[str]:
    """A line for each quantity; the first has the remedy, the most that any of them asks for.

    of_all  the remedy of everything that fails, where there is such
    """
    if not shortfalls:
        return []
    first, *others = (one.text for one in sorted(shortfalls))
    remedy = of_all or max((one.remedy for one in shortfalls), key=len)
    return [f"{first}; {remedy}", *others]
