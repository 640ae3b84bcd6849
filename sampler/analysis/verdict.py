"""Verdicts: on the samples, whether they can be trusted, and on the theory, what they say of it.

The quantity of the headline is fixed in advance, whatever the numbers are. A sentence about the
others follows in an order that is fixed as well. Each holds by itself at its 95 %: of twenty
quantities without any difference one may well seem to be off.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from html import escape

import xarray as xr

from sampler.analysis.difference import NO_DIFFERENCE, NOT_RESOLVED, RESOLVED, Difference
from sampler.analysis.labels import LEADING, NEXT, NEXT_ORDER, own_key
from sampler.analysis.text import count
from sampler.mcmc.diagnostics import ESS_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT

HEADLINE = "order_parameter"
MOST_REASONS = 3
TONES = {RESOLVED: "caution", NOT_RESOLVED: "good"}
SAMPLED_SETTINGS = (
    "The temperature was sampled; the theory is solved at its prior median, and part of its "
    "difference comes from there."
)
EACH_BY_ITSELF = "Each theory of this network has a verdict of its own."
ORDER = (
    "The theory is that of wide layers. At finite width its error is of order 1/N, with a factor "
    "that it does not know: what is seen here is that error, not a fault of the samples."
)
BOTH_ORDERS = (
    "The theory is that of wide layers. At finite width its leading order has an error of order "
    "1/N, its next order one of order 1/N², with factors that it does not know: what is seen "
    "here is that error, not a fault of the samples."
)


@dataclass(frozen=True)
class Verdict:
    """A sentence in bold with the word that colours it, and the sentences that give the reasons.

    in_short: on a sweep, what the command ends with; empty where that is the headline.
    """

    tone: str
    headline: str
    reasons: tuple[str, ...] = ()
    in_short: str = ""

    @property
    def line(self) -> str:
        return self.in_short or self.headline

    def __str__(self) -> str:
        return "\n  ".join([self.headline, *self.reasons])

    def _repr_html_(self) -> str:
        reasons = "".join(f"<li>{escape(reason)}</li>" for reason in self.reasons)
        return f"<p><b>{escape(self.headline)}</b></p>" + (f"<ul>{reasons}</ul>" * bool(reasons))


def saddle_point_converged(theory: xr.Dataset | None) -> bool | None:
    """Whether the saddle point converged, True where that is not stored; None without a table."""
    return None if theory is None else bool(theory.attrs.get("converged", 1))


def doubt_of_next_order(theory: xr.Dataset | None) -> str | None:
    """Reason why the next order is not trusted or not there; None where there is none."""
    status = None if theory is None else theory.attrs.get("next_order_status")
    if status is None or status == "fine":
        return None
    found = str(theory.attrs["next_order_explanation"])
    return f"{found[0].upper()}{found[1:]}."


def theory_verdict(
    trusted: bool | None,
    converged: bool | None,
    found: Mapping[str, Difference],
    sampled_settings: bool = False,
    doubt: str | None = None,
) -> Verdict:
    """Verdict of the samples on the theory.

    trusted: whether the draws passed their diagnostics, None if nothing was sampled. converged:
    None if there is no theory. found: key of `comparison.json` → difference, that of the next order
    under the key with `_next_order`. sampled_settings: whether the temperature was sampled,
    too. doubt: why the next order is not to be trusted.
    """
    if converged is None:
        headline = "There is no theory in this directory to hold the samples against."
        return Verdict("neutral", headline)
    if not converged:
        headline = "The saddle point did not converge: the theory predicts nothing here."
        return Verdict("bad", headline)
    if trusted is None:
        return Verdict("neutral", "Theory only: nothing was sampled to hold it against.")
    if not trusted:
        headline = "No conclusion about the theory: the samples fail their diagnostics."
        return Verdict("bad", headline)
    decisive = found.get(HEADLINE)
    if decisive is None:
        return Verdict("neutral", "Theory and samples have nothing in common to compare.")
    headline = both_orders(HEADLINE, found)
    leading = [key for key in found if key != HEADLINE and not key.endswith(NEXT_ORDER)]
    reasons = [both_orders(key, found) for key in leading]
    known = any(key.endswith(NEXT_ORDER) for key in found)
    order = BOTH_ORDERS if known else ORDER
    reasons += [order] if any(one.resolved for one in found.values()) else []
    reasons += [doubt] if doubt else []
    reasons += [SAMPLED_SETTINGS] if sampled_settings else []
    return Verdict(TONES.get(decisive.state, "neutral"), headline, tuple(reasons))


def own_verdict(name: str, trusted: bool, found: Mapping[str, Difference]) -> Verdict:
    """Verdict of the samples on a theory of the user's own, from its predictions alone.

    The headline is about U_1 where it predicts that, else about the first quantity it predicts.
    """
    if not trusted:
        headline = f"No conclusion about {name}: the samples fail their diagnostics."
        return Verdict("bad", headline)
    ending = own_key("", name)
    mine = {key.removesuffix(ending): one for key, one in found.items() if key.endswith(ending)}
    if not mine:
        return Verdict("neutral", f"{name} predicts nothing that the samples can be held against.")
    decisive, *others = sorted(mine, key=lambda key: key != HEADLINE)
    said = {
        key: f"{replace(one, name=one.name.removesuffix(f', {name}')).finding}."
        for key, one in mine.items()
    }
    headline = f"{name}: {said[decisive]}"
    return Verdict(
        TONES.get(mine[decisive].state, "neutral"), headline, tuple(said[key] for key in others)
    )


def both_orders(key: str, found: Mapping[str, Difference]) -> str:
    """A sentence on how far the theory is off in a quantity, to both orders where known."""
    leading, beyond = found[key], found.get(f"{key}{NEXT_ORDER}")
    if beyond is not None and leading.statement == beyond.statement:
        return f"Both orders: {leading.finding}."
    text = f"{LEADING.capitalize()}: {leading.finding}"
    if beyond is None:
        return f"{text}."
    left = f"{NO_DIFFERENCE} left" if leading.resolved else NO_DIFFERENCE
    return f"{text}; {NEXT}: {beyond.in_short.replace(NO_DIFFERENCE, left)}."


# --- on the samples


def trust_verdict(diagnostics: Diagnostics | None) -> Verdict:
    """Whether the samples can be trusted, every number beside its limit."""
    if diagnostics is None:
        return Verdict("neutral", "Nothing has been sampled, or the draws were not judged yet.")
    numbers = (limits_sentence(diagnostics),) if diagnostics.quantities else ()
    warning = diagnostics.warning
    if diagnostics.passed and warning:
        return Verdict("caution", warning, ("The samples pass their diagnostics.", *numbers))
    if diagnostics.passed:
        return Verdict("good", "The samples can be trusted.", numbers)
    reasons = diagnostics.reasons
    if len(reasons) > MOST_REASONS:
        more = f"{len(reasons) - MOST_REASONS} more reasons are among the diagnostics below."
        reasons = (*reasons[:MOST_REASONS], more)
    headline = "The samples cannot be trusted: diagnostics failed."
    headline = f"{warning} {headline}" if warning else headline
    return Verdict("bad", headline, numbers + reasons)


def limits_sentence(diagnostics: Diagnostics) -> str:
    """The worst of every diagnostic over all quantities."""
    draws, judged = diagnostics.chains * diagnostics.draws, diagnostics.quantities.values()
    parts = [
        f"R-hat at most {worst(judged, 'r_hat', max):.4f} (limit {diagnostics.r_hat_limit:.5g})",
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
    counted = f"{diagnostics.chains} chains of {diagnostics.draws} draws"
    if "ancestors" in found:
        counted = f"{diagnostics.chains} repetitions of {diagnostics.draws} particles"
        parts.append("errors are those of the repetitions")
    return f"{counted}: {'; '.join(parts)}."


def worst(judged: Collection[QuantityDiagnostics], key: str, choose: Callable) -> float:
    """The worst value of one diagnostic; NaN is the worst of all."""
    values = [getattr(quantity, key) for quantity in judged]
    return float("nan") if any(value != value for value in values) else choose(values)
