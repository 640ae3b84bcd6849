"""Tables of how draws were made, and of whether they can be trusted."""

from collections.abc import Mapping
from typing import Any

from sampler.analysis.names import quantity_name
from sampler.analysis.text import Number, count, percent
from sampler.mcmc.diagnostics import ESS_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT
from sampler.mcmc.tempered import MOST_APART
from sampler.presentation.table import Column, Table


def diagnostics_table(diagnostics: Diagnostics) -> Table:
    """The worst R-hat and effective sample sizes of every quantity."""
    rows = [
        [
            quantity_name(key),
            one.r_hat,
            count(one.ess_bulk),
            count(one.ess_tail),
            "within limits" if within_limits(one, diagnostics.r_hat_limit) else "misses a limit",
        ]
        for key, one in diagnostics.quantities.items()
    ]
    caption = (
        f"Rank-normalised split R-hat (limit {diagnostics.r_hat_limit:.5g}), effective sample "
        f"sizes (limit {ESS_LIMIT:.0f})."
    )
    columns = ("quantity", Column("R-hat", digits=5), "bulk ESS", "tail ESS", "verdict")
    return Table("Worst element of every quantity", columns, rows, caption)


def within_limits(one: QuantityDiagnostics, r_hat_limit: float) -> bool:
    """Whether a quantity passes; a number that is undefined misses its limit."""
    return one.r_hat <= r_hat_limit and min(one.ess_bulk, one.ess_tail) >= ESS_LIMIT


COST = {
    "seconds": "seconds, compilation and warm-up included",
    "seconds_warmup": "seconds of warm-up",
    "seconds_draws": "seconds of drawing",
    "gradients": "gradients",
    "effective_draws": "effective draws of the slowest element of U₁",
    "effective_draws_per_second": "effective draws per second",
}


CHAINS = "chains", "draws of each chain"


def tempered_rows(found: Mapping[str, Any]) -> list[list[object]]:
    """Rows about temperatures, ancestors, modes and evidences of repetitions."""
    evidence = found["log_evidence_of_repetitions"]
    rows: list[list[object]] = [
        ["temperatures, at most", count(max(found["temperatures"])), ""],
        ["smallest acceptance at a temperature", percent(found["lowest_acceptance"]), ""],
        ["acceptance at the last one", percent(found["acceptance"]), ""],
        ["ancestors of a repetition, at least", count(min(found["ancestors"])), ""],
        ["log evidence, smallest of a repetition", Number(min(evidence), digits=5), ""],
        ["log evidence, largest of a repetition", Number(max(evidence), digits=5), ""],
    ]
    if found["log_evidence_prior"] is not None:
        number = Number(found["log_evidence_prior"], found["log_evidence_prior_error"])
        rows.append(["log evidence from the prior alone", number, ""])
        limit = f"at most {MOST_APART:g} either way"
        rows.append(["errors between both starts", Number(found["starts_apart"], digits=2), limit])
    for mode, weight in enumerate(found["weights_of_modes"]):
        rows.append([f"posterior near mode {mode}", percent(weight), ""])
    return rows


def sampler_table(diagnostics: Diagnostics, cost: Mapping[str, float]) -> Table:
    """Return the table of the sampler: how it ran, and what it cost."""
    found = diagnostics.numbers
    words = ("repetitions", "particles of each") if "ancestors" in found else CHAINS
    numbers = (diagnostics.chains, diagnostics.draws)
    rows: list[list[object]] = [
        [word, count(one), ""] for word, one in zip(words, numbers, strict=True)
    ]
    if "ancestors" in found:
        rows += tempered_rows(found)
    if found.get("bfmi"):
        share = found["divergences"] / (diagnostics.chains * diagnostics.draws)
        limit = f"at most {100 * DIVERGENCE_LIMIT:g} %"
        rows += [
            ["smallest E-BFMI", Number(min(found["bfmi"]), digits=3), f"at least {BFMI_LIMIT}"],
            ["divergences", count(found["divergences"]), ""],
            ["divergences, share of draws", percent(share), limit],
            ["leapfrog steps per draw", found["leapfrog_steps_per_draw"], ""],
            ["at the maximal tree depth", percent(found["saturated_share"]), ""],
        ]
    rows += [[label, cost[key], ""] for key, label in COST.items() if key in cost]
    return Table("The sampler, and what it cost", ("", "value", "limit"), rows)
