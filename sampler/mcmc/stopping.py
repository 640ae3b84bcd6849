"""The rules that end draws: checks at fixed numbers of them, two in a row of which must pass.

A check applies the diagnostics to the draws so far, with a margin. Checks are at 400 draws a chain
and whenever that number has grown by 1.3: where chains end depends on their draws alone.
Repetitions need one check to pass: at the number requested, and whenever it has grown by 1.3.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from sampler.mcmc.algorithm import LARGEST_ERROR, Algorithm, ChainSettings, Chunk
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.diagnostics import R_HAT_LIMIT, Diagnostics, diagnose

FIRST_CHECK = 400
CHECKED_ESS = 500.0
# Factor of effective draws at which more draws cannot mend a failure.
PLENTY = 4.0
# Elements of each quantity that are judged first; all others only where these pass.
JUDGED_FIRST = 50
# Repetitions up to which more are made until they can be trusted, further ones before they are
# judged again, as a share of all, and those of which fewer have no error.
MOST_REPETITIONS, GROWTH, FEWEST_REPETITIONS = 32, 0.3, 2
REASONS = {
    "trusted": "their diagnostics pass",
    "not_finite": "more would not make them finite",
    "failed": "more of them would not change what fails",
    "max_draws": "`max_draws` is reached",
    "max_minutes": "`max_minutes` = {max_minutes:g} are over",
    "repetitions": f"no more than {MOST_REPETITIONS} are added until they can be trusted",
}


def next_check(done: int, most: int) -> int:
    """Draws at the next check: the first of 400, 520, 676, 879 … above `done`, `most` at most."""
    number = FIRST_CHECK
    while number <= done:
        number = -(-13 * number // 10)
    return min(number, most)


@dataclass(frozen=True)
class InterimVerdict:
    """Verdict of the diagnostics after a number of draws of each chain, or of repetitions.

    done            draws, or repetitions
    seconds         computing time of all draws so far
    r_hat           the worst; None if unknown
    ess             the smallest effective sample size, of the quantity `of`; None: unknown
    finite          whether all draws are finite; a chain that is not stays so
    evidence_error  of the log evidence, of an algorithm that finds it; None: unknown
    """

    done: int
    passed: bool
    seconds: float
    r_hat: float | None
    ess: float | None
    of: str
    finite: bool = True
    evidence_error: float | None = 0.0

    @property
    def text(self) -> str:
        """Draws and worst numbers in one line."""
        return f"at {self.done}: {self.numbers}"

    @property
    def numbers(self) -> str:
        """The worst numbers."""
        if not self.finite:
            return "numbers that are not finite"
        if self.r_hat is None or self.ess is None:
            return "not to be judged"
        return f"R-hat {self.r_hat:.3f}, ESS {self.ess:.0f} of {self.of}"

    def draws_needed(self, most: int) -> int:
        """Draws by which two checks should have passed, if ESS and 1/(R-hat − 1) grow with them."""
        if self.passed:
            return next_check(self.done, most)
        if self.r_hat is None or not self.ess:
            return most
        factor = max(CHECKED_ESS / self.ess, (self.r_hat - 1.0) / (R_HAT_LIMIT - 1.0))
        needed = int(min(most, self.done * factor))
        checked = next_check(max(self.done, needed - 1), most)
        return next_check(checked, most)


@dataclass
class StoppingRule:
    """Ends Markov chains after two checks in a row that pass; call it with every chunk.

    max_draws     draws of each chain at most
    max_minutes   computing time since the run was started or resumed, looked at after every chunk
    judged        whether draws of this name are judged
    fewest        draws that are made whatever the checks
    warmup        steps of warm-up
    checks        verdicts so far
    """

    algorithm: Algorithm
    collected: DrawCollector
    max_draws: int
    max_minutes: float
    judged: Callable[[str], bool] = lambda name: True
    fewest: int = 1
    warmup: int = 0
    seconds: float = 0.0
    checks: list[InterimVerdict] = field(default_factory=list)

    judged_first: ClassVar[int | None] = JUDGED_FIRST

    def __call__(self, chunk: Chunk) -> None:
        self.seconds += chunk.seconds
        if chunk.phase == "draws" and self.is_check(chunk.done):
            self.checks.append(self.checked(chunk.done))

    @property
    def out_of_time(self) -> bool:
        """Whether the minutes are over."""
        return self.seconds >= 60.0 * self.max_minutes

    @property
    def ended(self) -> str | None:
        """Reason why no more draws are made, as in `REASONS`; None: they are."""
        return self.verdict_of_checks or ("max_minutes" if self.out_of_time else None)

    def next_end(self, phase: str, done: int) -> int:
        """Steps of a phase at which the next chunk ends; `done` if there is none."""
        if self.ended:
            return done
        return self.warmup if phase == "warmup" else self.next_check(done)

    # --- checks

    def next_check(self, done: int) -> int:
        """Draws at the next check."""
        return next_check(done, self.max_draws)

    def is_check(self, done: int) -> bool:
        """Whether draws are judged at this number; also where the minutes end them."""
        return self.out_of_time or done == self.next_check(done - 1)

    def judge(self, most: int | None) -> Diagnostics:
        """The diagnostics of some elements of each quantity; None: all that count."""
        draws = {n: v for n, v in self.collected.judged.items() if self.judged(n)}
        statistics = self.algorithm.stored(self.collected.statistics)
        limits = {"ess_limit": CHECKED_ESS} | ({} if most is None else {"most": most})
        limits["fixed"] = self.collected.fixed
        return diagnose(draws, statistics, self.algorithm, **limits)

    def checked(self, done: int) -> InterimVerdict:
        """Judge the draws so far."""
        verdict = self.judge(self.judged_first)
        if verdict.passed and self.judged_first is not None:
            verdict = self.judge(None)
        worst = {
            name: min(judged.ess_bulk, judged.ess_tail)
            for name, judged in verdict.quantities.items()
        } or {"nothing": np.nan}
        of = min(worst, key=lambda name: worst[name])
        r_hat = max((judged.r_hat for judged in verdict.quantities.values()), default=np.nan)
        evidence = self.algorithm.evidence(self.collected.statistics)
        error = 0.0 if evidence is None else evidence.error
        r_hat, ess, error = (
            float(n) if np.isfinite(n) else None for n in (r_hat, worst[of], error)
        )
        drawn = (self.collected.statistics["lp"], *self.collected.draws.values())
        finite = all(np.isfinite(values).all() for values in drawn)
        seconds = self.collected.seconds["draws"]
        return InterimVerdict(done, verdict.passed, seconds, r_hat, ess, of, finite, error)

    @property
    def verdict_of_checks(self) -> str | None:
        """Reason in the checks why no more draws are made."""
        if not self.checks:
            return None
        last, two = self.checks[-1], self.checks[-2:]
        if not last.finite:
            return "not_finite"
        if last.done < self.fewest:
            return None
        if len(two) > 1 and all(verdict.passed for verdict in two):
            return "trusted"
        if len(two) > 1 and all(self.is_beyond_draws(verdict) for verdict in two):
            return "failed"
        return "max_draws" if last.done >= self.max_draws else None

    def is_beyond_draws(self, check: InterimVerdict) -> bool:
        """Whether a check failed although there are far more draws than it asks for."""
        judged = check.r_hat is not None and check.ess is not None
        plenty = judged and check.ess >= PLENTY * CHECKED_ESS and check.r_hat <= R_HAT_LIMIT
        return plenty and not check.passed

    # --- text, and stored attributes

    @property
    def has_enough(self) -> bool:
        """Whether there are draws to be judged."""
        return self.collected.draws_made > 0

    def draws_expected(self, chunk: Chunk) -> int:
        """Draws by which it will end, by the last check."""
        if self.checks and not self.ended:
            return self.checks[-1].draws_needed(chunk.total)
        return self.next_end("draws", chunk.done)

    @property
    def text(self) -> str:
        """One line about the last check; empty before the first."""
        return self.checks[-1].text if self.checks else ""

    @property
    def reason(self) -> str:
        """Why no more draws were made, in words."""
        return REASONS.get(self.ended or "", "going on").format(**vars(self))

    def explain(self) -> str:
        """One line: after how many draws and why the chains ended."""
        if not self.checks:
            return ""
        last = self.checks[-1]
        return f"{last.done} draws a chain, {self.reason} ({last.numbers})"

    @property
    def stored(self) -> list[dict[str, Any]]:
        """The checks as JSON has them, for `restore`."""
        return [asdict(check) for check in self.checks]

    def restore(self, stored: Iterable[Mapping[str, Any]]) -> None:
        self.checks = [InterimVerdict(**check) for check in stored]


class RepetitionRule(StoppingRule):
    """Ends repetitions after a check that passes, from `fewest` on."""

    judged_first: ClassVar[int | None] = None

    def next_check(self, done: int) -> int:
        """Repetitions at the next check: `fewest`, and each time by `GROWTH` more."""
        count = self.fewest
        while count <= done and count < MOST_REPETITIONS:
            count = min(MOST_REPETITIONS, count + max(1, round(GROWTH * count)))
        return count

    def is_check(self, done: int) -> bool:
        return done == self.next_check(done - 1)

    @property
    def made(self) -> int:
        """Repetitions so far."""
        return len(self.collected.statistics.get("lp", ()))

    @property
    def verdict_of_checks(self) -> str | None:
        """Reason in the last check why no more repetitions are made."""
        if not self.checks:
            return None
        last = self.checks[-1]
        if last.passed:
            return "trusted"
        if self.is_beyond_draws(last):
            return "failed"
        return "repetitions" if last.done >= MOST_REPETITIONS else None

    def is_beyond_draws(self, check: InterimVerdict) -> bool:
        """Whether effective draws and evidence are known well enough, and something else is not."""
        known = None not in (check.ess, check.evidence_error)
        return known and check.ess >= CHECKED_ESS and check.evidence_error <= LARGEST_ERROR

    @property
    def has_enough(self) -> bool:
        """Whether there are repetitions whose spread has an error."""
        return self.made >= FEWEST_REPETITIONS

    @property
    def text(self) -> str:
        """Nothing: their number suffices."""
        return ""

    def explain(self) -> str:
        """One line: how many repetitions there are, and why no more were made."""
        return f"{self.made} repetitions, {self.reason}"


def rule_for(
    algorithm: Algorithm,
    collected: DrawCollector,
    settings: ChainSettings,
    max_minutes: float,
    judged: Callable[[str], bool],
    fewest_draws: int,
) -> StoppingRule:
    """The rule by which draws are made until they can be trusted.

    It adds draws of each chain, or chains, by the algorithm.
    """
    arguments = algorithm, collected, settings.draws, max_minutes, judged
    if algorithm.counts.axis == "chain":
        return RepetitionRule(*arguments, settings.chains)
    return StoppingRule(*arguments, fewest_draws, settings.warmup)
