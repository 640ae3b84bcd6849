"""Verdicts on a run: can the draws be trusted, does the theory hold."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sampler.analysis.compared import Difference
from sampler.analysis.estimate import RESOLVED_MCSE
from sampler.mcmc.diagnostics import ESS_LIMIT, R_HAT_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT
from sampler.presentation.report.elements import Number, count, percent

# What the verdict on the theory rests on: how paths count, and what the network predicts.
DECISIVE = ("order_parameter", "predictor_mean")
MOST_REASONS = 3
SAMPLED_SETTINGS = (
    "Temperature or prior variances were sampled; the theory is solved at their prior medians, and "
    "part of its difference comes from there."
)


@dataclass(frozen=True)
class Verdict:
    """A sentence in bold with the word that colours it, and the sentences that give the reasons."""

    tone: str
    headline: str
    reasons: tuple[str, ...] = ()


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


def theory_verdict(
    trusted: bool | None,
    converged: bool | None,
    found: dict[str, Difference],
    width: int | None,
    sampled_settings: bool = False,
) -> Verdict:
    """Whether the theory holds: what the samples resolve, beside the correction of order 1/N.

    trusted: None if nothing was sampled. converged: None if there is no theory. sampled_settings:
    whether temperature or prior variances were sampled with the rest.
    """
    if converged is None:
        headline = "There is no theory in this directory to hold the samples against."
        return Verdict("neutral", headline)
    if not converged:
        headline = "The saddle point did not converge: the theory predicts nothing here."
        return Verdict("bad", headline)
    if trusted is None:
        return Verdict("neutral", "Theory only: nothing was sampled to hold it against.")
    decisive = [found[key] for key in DECISIVE if key in found]
    if not decisive:
        return Verdict("neutral", "Theory and samples were not compared yet.")
    sentences = tuple(_difference_sentence(one) for one in decisive)
    if sampled_settings:
        sentences += (SAMPLED_SETTINGS,)
    if not trusted:
        return Verdict("bad", "No conclusion about the theory: the samples do not allow one.")
    worse = max(decisive, key=lambda one: one.whole)
    largest = percent(worse.whole, worse.whole_error)
    if width is None:
        return Verdict("neutral", f"Theory and samples differ by {largest} at most.", sentences)
    order = 1.0 / width
    reasons = (
        *sentences,
        f"The theory is exact for wide networks; at finite width the order of its error is "
        f"1/N, here {percent(order)} (N = {width}).",
    )
    if not any(one.resolved for one in found.values()):
        tone = "good" if worse.whole_error <= order else "neutral"
        headline = (
            f"Theory and exact posterior cannot be told apart here: they differ by {largest}."
        )
        return Verdict(tone, headline, reasons)
    if worse.whole <= order:
        headline = f"The theory holds here to within 1/N: it is off by {largest} at most."
        return Verdict("good", headline, reasons)
    if worse.whole - RESOLVED_MCSE * worse.whole_error <= order:
        headline = f"The theory is off by about 1/N here, by up to {largest}."
        return Verdict("neutral", headline, reasons)
    headline = f"The theory is off by more than 1/N here: by up to {largest}."
    return Verdict("caution", headline, reasons)


def _difference_sentence(one: Difference) -> str:
    told = "more" if one.resolved else "no more"
    return (
        f"{one.name}: sampled and theory differ by {percent(one.whole, one.whole_error)} as a "
        f"whole; element by element by {Number(one.median_in_mcse, digits=3)} MCSE in the median "
        f"and {Number(one.worst_in_mcse, digits=3)} MCSE at most ({one.at}), "
        f"which is {told} than Monte Carlo noise."
    )


READING = (
    f"MCSE is the Monte Carlo standard error of the samples. A difference above {RESOLVED_MCSE:g} "
    "MCSE is real; whether it matters, its relative size says. With more draws the first grows and "
    "the second stays."
)
