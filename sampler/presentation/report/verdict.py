"""Verdict on the draws of a run: can they be trusted."""

from collections.abc import Callable, Collection

from sampler.analysis.estimate import RESOLVED_MCSE
from sampler.analysis.numbers import count
from sampler.analysis.verdict import Verdict
from sampler.mcmc.diagnostics import ESS_LIMIT, R_HAT_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT

MOST_REASONS = 3


def trust_verdict(diagnostics: Diagnostics | None) -> Verdict:
    """Whether the samples can be trusted, every number beside its limit."""
    if diagnostics is None:
        return Verdict("neutral", "Nothing has been sampled, or the draws were not judged yet.")
    numbers = (_limits_sentence(diagnostics),) if diagnostics.quantities else ()
    if diagnostics.passed:
        return Verdict("good", "The samples can be trusted.", numbers)
    reasons = diagnostics.reasons
    if len(reasons) > MOST_REASONS:
        more = f"{len(reasons) - MOST_REASONS} more reasons are among the diagnostics below."
        reasons = (*reasons[:MOST_REASONS], more)
    return Verdict("bad", "The samples cannot be trusted: diagnostics failed.", numbers + reasons)


def _limits_sentence(diagnostics: Diagnostics) -> str:
    """The worst of every diagnostic over all quantities."""
    draws, judged = diagnostics.chains * diagnostics.draws, diagnostics.quantities.values()
    parts = [
        f"R-hat at most {worst(judged, 'r_hat', max):.4f} (limit {R_HAT_LIMIT})",
        f"effective sample size at least {count(worst(judged, 'ess_bulk', min))} in the bulk and "
        f"{count(worst(judged, 'ess_tail', min))} in the tails (limit {ESS_LIMIT:.0f})",
    ]
    found = diagnostics.numbers
    if found.get("bfmi"):
        parts += [
            f"E-BFMI at least {min(found['bfmi']):.2f} (limit {BFMI_LIMIT})",
            f"{found['divergences']} of {draws} draws diverged "
            f"(limit {100 * DIVERGENCE_LIMIT:g} %)",
        ]
    elif "bfmi" in found:
        parts.append("the draws are independent")
    return f"{diagnostics.chains} chains of {diagnostics.draws} draws: {'; '.join(parts)}."


def worst(judged: Collection[QuantityDiagnostics], key: str, choose: Callable) -> float:
    """The worst value of one diagnostic; NaN is the worst of all."""
    values = [getattr(quantity, key) for quantity in judged]
    return float("nan") if any(value != value for value in values) else choose(values)


READING = (
    "As a whole: the size of the difference without the part that Monte Carlo noise adds to it, "
    "and its 95 % interval; a difference is resolved where the interval does not reach 0. MCSE is "
    f"the Monte Carlo standard error of one element. One element above {RESOLVED_MCSE:g} MCSE is "
    "more than noise; of many elements the largest has to be above the column beside it."
)
