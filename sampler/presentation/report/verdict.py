"""Verdicts on a run: can the draws be trusted, does the theory hold."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from sampler.analysis.estimate import RESOLVED_MCSE
from sampler.mcmc.diagnostics import ESS_LIMIT, R_HAT_LIMIT
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT
from sampler.presentation.report.elements import Number, count, percent
from sampler.presentation.summary import pair_name


@dataclass(frozen=True)
class Difference:
    """Sampled − theory over the elements of one quantity.

    whole            ‖sampled − theory‖ / ‖sampled‖
    whole_error      ‖MCSE‖ / ‖sampled‖: no correlation between elements can make the error of
                     `whole` larger
    in_mcse, relative    median and largest absolute value over the elements
    at               where the difference is largest in units of the MCSE
    elements         how many are defined
    """

    name: str
    elements: int
    whole: float
    whole_error: float
    median_in_mcse: float
    worst_in_mcse: float
    at: str
    median_relative: float
    worst_relative: float

    @property
    def resolved(self) -> bool:
        """Whether the largest difference is more than Monte Carlo noise in so many elements."""
        return self.worst_in_mcse > largest_by_chance(self.elements)


def largest_by_chance(elements: int) -> float:
    """What the largest of n errors exceeds as rarely as one alone exceeds 3 MCSE (Bonferroni)."""
    return float(norm.isf(norm.sf(RESOLVED_MCSE) / max(1, elements)))


def differences(comparison: Mapping, path_names: Sequence[str]) -> dict[str, Difference]:
    """Key of `comparison.json` → difference, for every compared quantity."""
    found = {}
    for key, entry in comparison.items():
        keys = ("theory", "sampled", "mcse")
        if isinstance(entry, dict) and all(isinstance(entry.get(k), list) for k in keys):
            measured = difference(key, entry, path_names)
            if measured is not None:
                found[key] = measured
    return found


def difference(key: str, entry: Mapping, path_names: Sequence[str]) -> Difference | None:
    """One quantity; None if none of its elements is defined."""
    theory, sampled, mcse = (np.array(entry[k], dtype=float) for k in ("theory", "sampled", "mcse"))
    shown = np.isfinite(theory) & np.isfinite(sampled) & np.isfinite(mcse) & (mcse > 0.0)
    if is_overlap(key):
        shown &= np.triu(np.ones(shown.shape, dtype=bool))  # the matrices are symmetric
    if not shown.any():
        return None
    gap = sampled - theory
    with np.errstate(divide="ignore", invalid="ignore"):
        in_mcse = np.where(shown, np.abs(gap / mcse), -np.inf)
        relative = np.where(shown & (sampled != 0.0), np.abs(gap / sampled), -np.inf)
    worst = tuple(int(i) for i in np.unravel_index(np.argmax(in_mcse), in_mcse.shape))
    size = np.linalg.norm(sampled[shown])
    names = path_names if key == "order_parameter" else ()
    return Difference(
        name=quantity_name(key),
        elements=int(shown.sum()),
        whole=float(np.linalg.norm(gap[shown]) / size),
        whole_error=float(np.linalg.norm(mcse[shown]) / size),
        median_in_mcse=float(np.median(in_mcse[shown])),
        worst_in_mcse=float(in_mcse[worst]),
        at=place(key, worst, names),
        median_relative=float(np.median(relative[shown])),
        worst_relative=float(relative.max()),
    )


def is_overlap(key: str) -> bool:
    return "order_parameter" in key


def quantity_name(key: str) -> str:
    """A quantity as readers know it, U₁ for `order_parameter`."""
    layer = re.fullmatch(r"order_parameter_layer_(\d+)", key)
    if layer:
        return "U" + layer.group(1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
    known = {
        "order_parameter": "U₁",
        "readout_order_parameter": "Uₐ (readout)",
        "log_posterior": "log posterior",
        "temperature": "temperature",
        "prior_variances": "prior variances",
        "predictor": "predictor f(x)",
        "predictor_mean": "predictor mean m(x)",
        "predictor_variance": "predictor variance v(x)",
    }
    return known.get(key, key.replace("_", " "))


def place(key: str, at: Sequence[int], names: Sequence[str] = ()) -> str:
    """An element in words: paths by name, test examples by number."""
    if names and len(at) == 2:
        return pair_name(names, *at)
    numbers = ", ".join(map(str, at))
    if key.startswith("predictor"):
        return f"test example {numbers}"
    return f"[{numbers}]" if numbers else ""


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


def trust_verdict(diagnostics: dict | None) -> Verdict:
    """Whether the samples can be trusted, every number beside its limit."""
    if diagnostics is None:
        return Verdict("neutral", "Nothing has been sampled, or the draws were not judged yet.")
    judged = list((diagnostics.get("quantities") or {}).values())
    numbers = ()
    if judged:
        numbers = (_limits_sentence(diagnostics, judged),)
    if diagnostics.get("verdict") == "pass":
        return Verdict("good", "The samples can be trusted.", numbers)
    reasons = tuple(diagnostics.get("reasons", ()))
    if len(reasons) > MOST_REASONS:
        more = f"{len(reasons) - MOST_REASONS} more reasons are among the diagnostics below."
        reasons = (*reasons[:MOST_REASONS], more)
    return Verdict("bad", "The samples cannot be trusted: diagnostics failed.", numbers + reasons)


def _limits_sentence(diagnostics: dict, judged: list[dict]) -> str:
    """The worst of every diagnostic over all quantities."""
    draws = diagnostics["chains"] * diagnostics["draws"]
    parts = [
        f"R-hat at most {worst(judged, 'r_hat', max):.4f} (limit {R_HAT_LIMIT})",
        f"effective sample size at least {count(worst(judged, 'ess_bulk', min))} in the bulk and "
        f"{count(worst(judged, 'ess_tail', min))} in the tails (limit {ESS_LIMIT:.0f})",
    ]
    if diagnostics.get("bfmi"):
        parts += [
            f"E-BFMI at least {min(diagnostics['bfmi']):.2f} (limit {BFMI_LIMIT})",
            f"{diagnostics['divergences']} of {draws} draws diverged "
            f"(limit {100 * DIVERGENCE_LIMIT:g} %)",
        ]
    elif "bfmi" in diagnostics:
        parts.append("the draws are independent")
    return (
        f"{diagnostics['chains']} chains of {diagnostics['draws']} draws: " + "; ".join(parts) + "."
    )


def worst(judged: list[dict], key: str, choose) -> float:
    """The worst value of one diagnostic; NaN, which JSON writes as null, is the worst of all."""
    values = [quantity[key] for quantity in judged]
    return float("nan") if any(value is None for value in values) else choose(values)


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
        return Verdict(
            "neutral", "There is no theory in this directory to hold the samples against."
        )
    if not converged:
        return Verdict(
            "bad", "The saddle point did not converge: the theory predicts nothing here."
        )
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
