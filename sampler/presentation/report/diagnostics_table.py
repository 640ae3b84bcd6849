"""Diagnostics of the samples, quantity by quantity and chain by chain, against their limits."""

from collections.abc import Mapping

from sampler.mcmc.diagnostics import BFMI_LIMIT, DIVERGENCE_LIMIT, ESS_LIMIT, R_HAT_LIMIT
from sampler.presentation.report.differences import place, quantity_name
from sampler.presentation.report.elements import Html, table
from sampler.presentation.report.numbers import Number, count, percent


def diagnostics_table(diagnostics: Mapping) -> Html | None:
    """The worst R-hat and effective sample sizes of every quantity."""
    quantities = diagnostics.get("quantities")
    if not quantities:
        return None
    rows = [
        [
            quantity_name(key),
            Number(one["r_hat"], digits=5),
            place(key, one["at"]),
            count(one["ess_bulk"]),
            count(one["ess_tail"]),
            "within limits" if _within(one) else "misses a limit",
        ]
        for key, one in quantities.items()
    ]
    caption = (
        f"Worst element of every quantity: rank-normalised split R-hat (limit {R_HAT_LIMIT}), "
        f"effective sample sizes (limit {ESS_LIMIT:.0f})."
    )
    return table(caption, ("quantity", "R-hat", "at", "bulk ESS", "tail ESS", "verdict"), rows)


def _within(one: Mapping) -> bool:
    """A number that is undefined misses its limit."""
    values = (one["r_hat"], one["ess_bulk"], one["ess_tail"])
    if any(value is None for value in values):
        return False
    return values[0] <= R_HAT_LIMIT and min(values[1:]) >= ESS_LIMIT


def sampler_table(diagnostics: Mapping, cost: Mapping) -> Html | None:
    """How the sampler ran, and what it cost."""
    if not diagnostics.get("draws"):
        return None
    rows = [
        ["chains", count(diagnostics["chains"]), ""],
        ["draws of each chain", count(diagnostics["draws"]), ""],
    ]
    if diagnostics["bfmi"]:
        share = diagnostics["divergences"] / (diagnostics["chains"] * diagnostics["draws"])
        rows += [
            [
                "smallest E-BFMI",
                Number(min(diagnostics["bfmi"]), digits=3),
                f"at least {BFMI_LIMIT}",
            ],
            ["divergences", count(diagnostics["divergences"]), ""],
            [
                "divergences, share of draws",
                percent(share),
                f"at most {100 * DIVERGENCE_LIMIT:g} %",
            ],
            ["leapfrog steps per draw", Number(diagnostics["leapfrog_steps_per_draw"]), ""],
            ["at the maximal tree depth", percent(diagnostics["saturated_share"]), ""],
        ]
    names = {
        "seconds": "seconds, compilation and warm-up included",
        "seconds_warmup": "seconds of warm-up",
        "seconds_draws": "seconds of drawing",
        "gradients": "gradients",
        "effective_draws": "effective draws of the slowest element of U₁",
        "effective_draws_per_second": "effective draws per second",
    }
    rows += [[label, Number(cost[key]), ""] for key, label in names.items() if key in cost]
    return table("The sampler, and what it cost.", ("what", "value", "limit"), rows)
