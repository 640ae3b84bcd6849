"""Verdicts: on the samples, whether they can be trusted, and on theories, what the samples allow to
say of them.

The quantity of the headline is fixed in advance, whatever the numbers are. Sentences about the
others follow in an order that is fixed as well. Each holds on its own at its 95 %: of twenty
quantities without any difference one may well seem to be off.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from html import escape

import xarray as xr

from sampler.analysis.difference import AGREES, DIFFERS, RESOLVED, Difference
from sampler.analysis.predictors import LEADING, NEXT, predictor_name
from sampler.analysis.text import count
from sampler.mcmc.diagnostics import ESS_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT

HEADLINE = "order_parameter"
MOST_REASONS = 3
TONES = {RESOLVED: "caution", DIFFERS: "caution", AGREES: "good"}
NO_THEORY = (
    "No theory of this network at its width: infinite width is another network, and its scores "
    "stand beside those of the samples."
)
TEMPERATURE_SAMPLED = (
    "The temperature was sampled; the theory is solved at its prior median, and part of its "
    "difference comes from there."
)
ORDER = (
    "The theory is that of wide layers. At finite width its error is of order 1/N, with a factor "
    "that it does not know: what is seen here is that error, not a fault of the samples."
)
BOTH_ORDERS = (
    "The theory is that of wide layers. At finite width its leading order has an error of order "
    "1/N, its next order one of order 1/N², with factors that it does not know: what is seen "
    "here is that error, not a fault of the samples."
)

# Quantity → difference.
Differences = Mapping[str, Difference]


@dataclass(frozen=True)
class Verdict:
    """A sentence with the word that colours it, and the sentences that give the reasons.

    short: of a sweep, what the command ends with; empty where that is the headline.
    """

    tone: str
    headline: str
    reasons: tuple[str, ...] = ()
    short: str = ""

    @property
    def line(self) -> str:
        return self.short or self.headline

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
    explanation = str(theory.attrs["next_order_explanation"])
    return f"{explanation[0].upper()}{explanation[1:]}."


def theory_verdict(
    trusted: bool | None,
    converged: bool | None,
    differences: Mapping[str, Differences],
    labels: Mapping[str, str],
    temperature_sampled: bool = False,
    doubt: str | None = None,
    has_user_theories: bool = False,
    has_other_networks: bool = False,
) -> Verdict:
    """Verdict of the samples on the theory.

    trusted      whether the draws passed their diagnostics, None if nothing was sampled
    converged    None if there is no theory
    differences  predictor → quantity → difference
    labels       quantity → what it is called
    doubt        why the next order is not to be trusted
    has_other_networks
                 whether infinite width stands beside the samples, which is no theory of theirs
    """
    if converged is None and has_user_theories:
        return Verdict("neutral", "Each theory of this network has a verdict of its own.")
    if converged is None:
        headline = "There is no theory in this directory to compare the samples with."
        return Verdict("neutral", headline)
    if not converged:
        headline = "The saddle point did not converge: the theory predicts nothing here."
        return Verdict("bad", headline)
    if trusted is None:
        return Verdict("neutral", "Theory only: nothing was sampled to compare it with.")
    if not trusted:
        headline = "No conclusion about the theory: the samples fail their diagnostics."
        return Verdict("bad", headline)
    names = [name for name in (LEADING, NEXT) if differences.get(name)]
    if not names and has_other_networks:
        return Verdict("neutral", NO_THEORY)
    if not names:
        return Verdict("neutral", "Theory and samples have nothing in common to compare.")
    of_orders = {name: differences[name] for name in names}
    decisive, *others = headline_first(of_orders[names[0]])
    reasons = [sentence(labels[name], name, of_orders) for name in others]
    if any(difference.differs for of in of_orders.values() for difference in of.values()):
        reasons.append(BOTH_ORDERS if NEXT in names else ORDER)
    reasons += [doubt] if doubt else []
    reasons += [TEMPERATURE_SAMPLED] if temperature_sampled else []
    tone = TONES.get(of_orders[names[0]][decisive].state, "neutral")
    return Verdict(tone, sentence(labels[decisive], decisive, of_orders), tuple(reasons))


def headline_first(quantities: Collection[str]) -> list[str]:
    return sorted(quantities, key=lambda name: name != HEADLINE)


def user_verdict(
    name: str, trusted: bool, differences: Differences, labels: Mapping[str, str]
) -> Verdict:
    """Verdict of the samples on a theory of the user's own, from its predictions alone.

    The headline is about U_1 where it predicts that, else about the first quantity it predicts.
    """
    if not trusted:
        headline = f"No conclusion about {name}: the samples fail their diagnostics."
        return Verdict("bad", headline)
    if not differences:
        return Verdict("neutral", f"{name} predicts nothing that the samples can be compared with.")
    decisive, *others = headline_first(differences)
    texts = {key: f"{labels[key]}: {difference.text()}." for key, difference in differences.items()}
    tone = TONES.get(differences[decisive].state, "neutral")
    return Verdict(tone, f"{name}, {texts[decisive]}", tuple(texts[key] for key in others))


def sentence(label: str, quantity: str, differences: Mapping[str, Differences]) -> str:
    """How far every predictor is off in a quantity."""
    texts = {
        predictor_name(name): of[quantity].text()
        for name, of in differences.items()
        if quantity in of
    }
    if len(texts) == 2 and len(set(texts.values())) == 1:
        return f"{label}: {both_agree(next(iter(texts.values())))}."
    return f"{label}: {'; '.join(f'{name} {text}' for name, text in texts.items())}."


def both_agree(text: str) -> str:
    """What is said of one order, of both of them: `differs` becomes `differ`."""
    if text.startswith("not "):
        return text
    for one, several in (("agrees", "agree"), ("differs", "differ")):
        text = text.replace(one, several)
    return f"both orders {text}"


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
    sizes = [count(worst(judged, f"ess_{part}", min)) for part in ("bulk", "tail")]
    parts = [
        f"R-hat ≤ {worst(judged, 'r_hat', max):.4f} (limit {diagnostics.r_hat_limit:.5g})",
        f"ESS ≥ {sizes[0]} bulk, {sizes[1]} tail (limit {ESS_LIMIT:.0f})",
    ]
    numbers = diagnostics.numbers
    if numbers.get("bfmi"):
        parts += [
            f"E-BFMI ≥ {min(numbers['bfmi']):.2f} (limit {BFMI_LIMIT})",
            f"{numbers['divergences']} of {draws} draws diverged "
            f"(limit {100 * DIVERGENCE_LIMIT:g} %)",
        ]
    counted = f"{diagnostics.chains} chains of {diagnostics.draws} draws"
    if "ancestors" in numbers:
        counted = f"{diagnostics.chains} repetitions of {diagnostics.draws} particles"
        parts.append("errors are those of the repetitions")
    return f"{counted}: {'; '.join(parts)}."


def worst(judged: Collection[QuantityDiagnostics], key: str, choose: Callable) -> float:
    """The worst value of one diagnostic; NaN is the worst of all."""
    values = [getattr(quantity, key) for quantity in judged]
    return float("nan") if any(value != value for value in values) else choose(values)
