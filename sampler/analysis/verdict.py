"""Verdicts on the samples (whether they can be trusted) and on theories (the difference resolved).

The quantity of the headline is fixed in advance, whatever the numbers are. Sentences about the
others follow in an order that is fixed as well. Each holds on its own at its 95 %: of twenty
quantities without any difference one may well seem to be off.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from sampler.analysis.difference import (
    AGREES,
    DIFFERS,
    RESOLVED,
    UNDECIDED,
    noun,
    size_text,
)
from sampler.analysis.names import quantity_name
from sampler.analysis.predictors import (
    LEADING,
    NEXT,
    OTHER_NETWORKS,
    is_users,
    predictor_name,
)
from sampler.analysis.text import Number, count, marked
from sampler.mcmc.diagnostics import ESS_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT

HEADLINE = "order_parameter"
TONES = {RESOLVED: "caution", DIFFERS: "caution", AGREES: "good"}
FAILED = "No conclusion about {}: MCMC diagnostics failed."
# (quantity, predictor) → the row of a comparison's table.
Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]


@dataclass(frozen=True)
class Verdict:
    """A sentence with the word that colours it, and the sentences that give the reasons.

    short: of a sweep, the last line of the command; empty where that is the headline.
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
        reasons = "".join(f"<li>{marked(reason)}</li>" for reason in self.reasons)
        return f"<p><b>{marked(self.headline)}</b></p>" + (f"<ul>{reasons}</ul>" * bool(reasons))


# --- on theories


def saddle_point_converged(theory: xr.Dataset | None) -> bool | None:
    """Whether the saddle point converged, True where that is not stored; None without a table."""
    return None if theory is None else bool(theory.attrs.get("converged", 1))


def doubt_of_next_order(theory: xr.Dataset | None) -> str:
    """Reason why the next order is not trusted or not there; empty where there is none."""
    status = None if theory is None else theory.attrs.get("next_order_status")
    if status is None or status == "fine":
        return ""
    explanation = str(theory.attrs["next_order_explanation"])
    return f"{explanation[0].upper()}{explanation[1:]}."


def theory_verdict(
    diagnostics: Diagnostics | None,
    converged: bool | None,
    rows: Rows,
    *,
    width: int | None = None,
    doubt: str = "",
    temperature_sampled: bool = False,
) -> Verdict:
    """Verdict of the samples on the theory.

    diagnostics  of the draws, None if nothing was sampled
    converged    None if there is no theory
    width        N, the smallest one
    doubt        why the next order is not to be trusted
    """
    predictors = {who for _, who in rows}
    compared = {order: told for order in (LEADING, NEXT) if (told := told_of(order, rows))}
    warning = (diagnostics.warning,) if diagnostics and diagnostics.warning else ()
    tone, headline = "neutral", ""
    if converged is None and any(map(is_users, predictors)):
        headline = "Each theory of this network has a verdict of its own."
    elif converged is None:
        headline = "There is no theory in this directory to compare the samples with."
    elif not converged:
        tone = "bad"
        headline = "The saddle point did not converge: the theory predicts nothing here."
    elif diagnostics is None:
        headline = "Theory only: nothing was sampled to compare it with."
    elif not diagnostics.passed:
        tone, headline = "bad", FAILED.format("the theory")
    elif not compared and predictors & {*OTHER_NETWORKS}:
        headline = (
            "No theory of this network at its width: infinite width is another network, whose "
            "scores stand beside those of the samples."
        )
    elif not compared:
        headline = "Theory and samples have nothing in common to compare."
    if headline:
        return Verdict(tone, headline, warning)
    said = verdict_of(compared, width)
    states = {row["state"] for of in compared.values() for row in of.values()}
    reasons = [*warning, *said.reasons]
    if states & {RESOLVED, DIFFERS}:
        reasons.append(
            "Expected of a theory of wide layers: an error of order 1/N to leading order and 1/N² "
            "to next order, with factors that it does not give. One width shows no scaling."
        )
    if doubt:
        reasons.append(doubt)
    if temperature_sampled:
        reasons.append(
            "The temperature was sampled; the theory is solved at its prior median, and part of "
            "its error comes from there."
        )
    return replace(said, reasons=tuple(reasons))


def user_verdict(name: str, trusted: bool, rows: Rows) -> Verdict:
    """Verdict of the samples on a theory of the user's own, from its predictions alone.

    The headline is about U_1 where it predicts that, else about the first quantity it predicts.
    """
    if not trusted:
        return Verdict("bad", FAILED.format(name))
    if not (told := told_of(name, rows)):
        return Verdict("neutral", f"{name} predicts nothing that the samples can be compared with.")
    return verdict_of({name: told})


def verdict_of(compared: Mapping[str, Mapping[str, Row]], width: int | None = None) -> Verdict:
    """Verdicts on predictors, predictor → quantity → row: the first quantity decides."""
    first = next(iter(compared.values()))
    decisive, *others = first
    tone = TONES.get(first[decisive]["state"], "neutral")
    reasons = tuple(sentence(quantity, compared) for quantity in others)
    return Verdict(tone, sentence(decisive, compared, width), reasons)


def told_of(predictor: str, rows: Rows) -> dict[str, Row]:
    """Quantity → the row of a predictor, of those with a statement, headline first."""
    told = {name: row for (name, who), row in rows.items() if who == predictor and row["state"]}
    return {name: told[name] for name in sorted(told, key=lambda name: name != HEADLINE)}


def sentence(
    quantity: str, compared: Mapping[str, Mapping[str, Row]], width: int | None = None
) -> str:
    """How far every predictor is off in a quantity; of U_1 the norm, and the width times that.

    compared: predictor → quantity → row. width: N, for the first predictor.
    """
    told = {predictor_name(who): of[quantity] for who, of in compared.items() if quantity in of}
    (first, row), *_ = told.items()
    said = {name: size_text(one) for name, one in told.items()}
    if width is not None and row["state"] not in UNDECIDED:
        said[first] += f" (N × relative error {times_width(row, width)})"
    label = row["label"]
    subject = f"{label}, {noun(row['unit'])}"
    if quantity == HEADLINE:
        subject = f"‖{label} − theory‖/‖{label}‖"
    return f"{subject}: {'; '.join(f'{name} {text}' for name, text in said.items())}."


def times_width(row: Row, width: int) -> str:
    if row["state"] == RESOLVED:
        return f"= {Number(width * row['difference'], width * row['difference_error'])}"
    return f"< {Number(width * row['below'], digits=2)}"


# --- on the samples


def trust_verdict(diagnostics: Diagnostics | None) -> Verdict:
    """Whether the samples can be trusted: numbers with their limits, all failures, notes."""
    if diagnostics is None:
        return Verdict("neutral", "Nothing has been sampled, or the draws were not judged yet.")
    warning, passed = diagnostics.warning, diagnostics.passed
    headline = "MCMC diagnostics failed: the samples cannot be trusted."
    reasons = [limits_sentence(diagnostics)] if diagnostics.quantities else []
    for reason in diagnostics.reasons:
        name, colon, why = reason.partition(":")
        reasons.append(f"{quantity_name(name)}:{why}" if colon else reason)
    reasons += [f"Note: {remark}." for remark in diagnostics.remarks]
    if passed:
        headline = "MCMC diagnostics passed."
    if passed and warning:
        return Verdict("caution", warning, (headline, *reasons))
    tone = "good" if passed else "bad"
    return Verdict(tone, f"{warning} {headline}".lstrip(), tuple(reasons))


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
            f"BFMI ≥ {min(numbers['bfmi']):.2f} (limit {BFMI_LIMIT})",
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
