"""Tables of the samples: verdict, cost, and attention."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sampler.analysis.learned_heads import SampledHeads
from sampler.analysis.names import head_label, pair_name, quantity_name
from sampler.analysis.text import Number, count, percent
from sampler.analysis.verdict import HEADLINE
from sampler.mcmc.diagnostics import ESS_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT
from sampler.presentation.table import Column, Table
from sampler.presentation.views import MOST_ROWS

COST = {
    "seconds": "seconds, compilation and warm-up included",
    "seconds_warmup": "seconds of warm-up",
    "seconds_draws": "seconds of drawing",
    "gradients": "gradients",
    "effective_draws": "effective draws of the slowest element of {}",
    "effective_draws_per_second": "effective draws per second",
}


def diagnostics_table(diagnostics: Diagnostics) -> Table:
    """The worst R-hat and effective sample sizes of every quantity."""
    rows = [
        [
            quantity_name(name),
            quantity.r_hat,
            count(quantity.ess_bulk),
            count(quantity.ess_tail),
            "within limits" if passes(quantity, diagnostics) else "misses a limit",
        ]
        for name, quantity in diagnostics.quantities.items()
    ]
    caption = (
        f"Rank-normalised split R-hat (limit {diagnostics.r_hat_limit:.5g}), effective sample "
        f"sizes (limit {ESS_LIMIT:.0f})."
    )
    columns = ("quantity", Column("R-hat", digits=5), "bulk ESS", "tail ESS", "verdict")
    return Table("Worst element of every quantity", columns, rows, caption)


def passes(quantity: QuantityDiagnostics, diagnostics: Diagnostics) -> bool:
    """Whether a quantity is within its limits; an undefined number is not."""
    size = min(quantity.ess_bulk, quantity.ess_tail)
    return quantity.r_hat <= diagnostics.r_hat_limit and size >= ESS_LIMIT


def sampler_table(diagnostics: Diagnostics, cost: Mapping[str, float]) -> Table:
    """Course and cost of sampling."""
    numbers = diagnostics.numbers
    tempered = "ancestors" in numbers
    rows: list[list[object]] = [
        ["repetitions" if tempered else "chains", count(diagnostics.chains), ""],
        ["particles of each" if tempered else "draws of each", count(diagnostics.draws), ""],
    ]
    if tempered:
        rows += tempered_rows(numbers)
    if numbers.get("bfmi"):
        share = numbers["divergences"] / (diagnostics.chains * diagnostics.draws)
        most = f"at most {100 * DIVERGENCE_LIMIT:g} %"
        rows += [
            ["smallest BFMI", Number(min(numbers["bfmi"]), digits=3), f"at least {BFMI_LIMIT}"],
            ["divergences", count(numbers["divergences"]), ""],
            ["divergences, share of draws", percent(share), most],
            ["leapfrog steps per draw", numbers["leapfrog_steps_per_draw"], ""],
            ["at the maximal tree depth", percent(numbers["saturated_share"]), ""],
        ]
    # Where there is no U_1 they are those of the predictor.
    judged = quantity_name(HEADLINE if HEADLINE in diagnostics.quantities else "predictor")
    rows += [[label.format(judged), cost[key], ""] for key, label in COST.items() if key in cost]
    return Table("The sampler and its cost", ("", "value", "limit"), rows)


def tempered_rows(numbers: Mapping[str, Any]) -> list[list[object]]:
    """Rows about temperatures, ancestors, modes and evidences of repetitions."""
    evidence = numbers["log_evidence_of_repetitions"]
    rows: list[list[object]] = [
        ["temperatures, at most", count(max(numbers["temperatures"])), ""],
        ["smallest acceptance at a temperature", percent(numbers["lowest_acceptance"]), ""],
        ["acceptance at the last one", percent(numbers["acceptance"]), ""],
        ["ancestors of a repetition, at least", count(min(numbers["ancestors"])), ""],
        ["log evidence, smallest of a repetition", Number(min(evidence), digits=5), ""],
        ["log evidence, largest of a repetition", Number(max(evidence), digits=5), ""],
    ]
    if numbers["log_evidence_prior"] is not None:
        prior = Number(numbers["log_evidence_prior"], numbers["log_evidence_prior_error"])
        rows.append(["log evidence from the prior alone", prior, ""])
        most = f"at most {numbers['starts_apart_limit']:.1f} either way"
        rows.append(["errors between both starts", Number(numbers["starts_apart"], digits=2), most])
    rows += [
        [f"posterior near mode {mode}", percent(weight), ""]
        for mode, weight in enumerate(numbers["weights_of_modes"])
    ]
    return rows


# --- attention that was sampled


def heads_table(heads: SampledHeads) -> Table:
    """Entropy, and distance from the prior mean, of every learned head, and the prior's."""
    rows = [
        [
            f"{head_label(numbers.layer, numbers.head, numbers.name)}: {numbers.quantity}",
            (numbers.value, numbers.error),
            numbers.prior,
            numbers.prior_deviation,
            numbers.r_hat,
        ]
        for numbers in heads.to_dataframe().itertuples()
    ]
    caption = (
        "Heads of all draws in matched order; entropy in nats, distance: total variation. Errors: "
        f"{heads.kind_of_errors}. Draws of the prior are matched in the same way, and their spread "
        "is that of single draws."
    )
    columns = (
        Column("head"),
        Column("exact posterior"),
        Column("prior", meaning="mean over draws of the prior"),
        Column("spread of prior", digits=2, meaning="standard deviation of a draw of the prior"),
        Column("R-hat", digits=4),
    )
    return Table("Heads", columns, rows, caption)


def matched_paths_table(heads: SampledHeads) -> Table:
    """Elements of U₁ whose paths are in matched order; the diagonal alone where there are many."""
    columns = (Column("paths"), Column("exact posterior"))
    overlap = heads.order_parameter
    if overlap is None:
        return Table("", columns, [])
    value, mcse = np.asarray(overlap.value), np.asarray(overlap.mcse)
    pairs = np.argwhere(np.triu(np.ones_like(value, bool))).tolist()
    caption = f"Mean over the draws that attention was measured in. Errors: {heads.kind_of_errors}."
    if len(pairs) > MOST_ROWS:
        pairs = [[i, i] for i in range(min(len(value), MOST_ROWS))]
        caption += f" {len(pairs)} of {len(value)} elements of the diagonal."
    rows = [
        [pair_name(heads.path_names, i, j), (float(value[i, j]), float(mcse[i, j]))]
        for i, j in pairs
    ]
    return Table("U₁, paths in matched order", columns, rows, caption)
