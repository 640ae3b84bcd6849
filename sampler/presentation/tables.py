"""The tables of a run, each built once: the terminal, the page and notebooks show the same."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sampler.analysis.compared import Row
from sampler.analysis.difference import (
    CONFIDENCE,
    SAYING_NOTHING,
    Difference,
    largest_by_chance,
)
from sampler.analysis.estimate import RESOLVED_MCSE
from sampler.analysis.labels import (
    EXACT,
    LEADING,
    LIMIT,
    NEXT,
    NEXT_ORDER,
    element_name,
    own_key,
    quantity_name,
)
from sampler.analysis.predictive_quality import PredictiveQuality, Quality
from sampler.analysis.results import RunResults
from sampler.analysis.text import NO_BREAK, Number, count, percent
from sampler.mcmc.diagnostics import ESS_LIMIT, R_HAT_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT
from sampler.presentation.table import Cell, Column, Table

MOST_ROWS = 15
PERCENT = {"unit": f"{NO_BREAK}%", "scale": 100.0}
OTHER_PREDICTORS = {
    "diagonal_only": f"{LEADING}, U₁ diagonal only",
    "equal_diagonal": f"{LEADING}, U₁ with equal diagonal",
    "trained": "network trained by gradient descent",
    "nearest_neighbour": "nearest neighbour in pixels",
}
READING = (
    "As a whole: the size of the difference without the part that Monte Carlo noise adds to it, "
    "and its 95 % interval; a difference is resolved where the interval does not reach 0. MCSE is "
    f"the Monte Carlo standard error of one element. One element above {RESOLVED_MCSE:g} MCSE is "
    "more than noise; of many elements the largest has to be above the number beside it."
)


# --- theory against samples, line by line


def comparison_table(title: str, what: str, rows: Sequence[Row], caption: str = "") -> Table:
    """Lines of the comparison: theories, exact posterior, their differences, infinite width."""
    own = list(dict.fromkeys(name for row in rows for name in row.own))
    columns = [
        Column(what),
        Column(LEADING, "theory", meaning="to leading order in 1/N"),
        Column(NEXT, "next_order", meaning="to next order in 1/N"),
        # The last of many are left out first, when there is no room even without differences.
        *(Column(name, dropped=place) for place, name in enumerate(own, start=1)),
        Column(EXACT, "sampled", "mcse", "posterior mean ± MCSE"),
        Column(
            "diff/MCSE", "difference_in_mcse", digits=2, dropped=1001,
            meaning="sampled − leading order, in Monte Carlo standard errors",
        ),
        Column(
            "diff", "relative_difference", digits=2, **PERCENT, dropped=1002,
            meaning="sampled − leading order, relative to the sampled number",
        ),
        Column(LIMIT, "gp", meaning="of the network of infinite width", dropped=1000),
        Column(
            "test set error", "test_error", digits=2, dropped=1003,
            meaning="standard error of the sampled number by the finite test set",
        ),
    ]  # fmt: skip
    return Table(title, columns, [comparison_cells(row, own) for row in rows], caption)


def comparison_cells(row: Row, own: Sequence[str]) -> list[object]:
    """One line of the comparison."""

    def shown(value: float | None, error: float | None = None) -> Cell:
        return percent(value, error) if row.share else Number(value, error)

    return [
        row.name,
        shown(row.theory),
        shown(row.next_order),
        *(shown(row.own.get(name)) for name in own),
        shown(row.sampled, row.mcse),
        row.difference_in_mcse,
        row.relative_difference,
        shown(row.gp),
        percent(row.test_error, digits=2) if row.share else row.test_error,
    ]


def order_parameter_table(run: RunResults) -> Table:
    """Elements of U₁; the diagonal alone where there are many."""
    compared = run.compared("order_parameter")
    rows = [] if compared is None else compared.rows("order_parameter", run.path_names)
    rows = [replace(row, name=row.name.removeprefix("U₁ ")) for row in rows]
    shown = rows
    if len(rows) > MOST_ROWS:
        shown = [row for row in rows if len(set(row.element)) == 1][:MOST_ROWS]
    caption = "Path by path: theory and posterior mean ± MCSE."
    if len(shown) < len(rows):
        caption += f" {len(shown)} of {len(rows)} elements; all are in comparison.json."
    return comparison_table("Order parameter U₁", "paths", shown, caption)


def numbers_table(run: RunResults) -> Table:
    """Everything compared that is a single number: accuracy, scores, evidence, added quantities."""
    found = {} if run.comparison is None else run.comparison.rows(run.path_names)
    rows = [row for key, of_key in found.items() if key != "order_parameter" for row in of_key]
    caption = "Of the test set; the log evidence is that of the training labels."
    plain = [
        replace(row, name=f"{row.name}, by {row.remark}") if row.remark else row
        for row in rows
        if row.spread is None
    ]
    return comparison_table("Accuracy, scores and evidence", "quantity", plain, caption)


def head_score_table(run: RunResults) -> Table:
    """Head scores of the posterior mean of U₁ beside the theory's, largest first."""
    compared = run.compared("head_score")
    rows = []
    if compared is not None and compared.theory is not None and compared.theory.shape[1] > 1:
        rows = compared.element_rows("head_score", run.path_names)
    rows = sorted(rows, key=lambda row: -row.sampled)
    caption = "The share of |U₁| on paths through a head, relative to the largest; sampled ± MCSE."
    return comparison_table("Head scores, largest first", "head", rows, caption)


def sampled_settings_table(run: RunResults) -> Table:
    """Prior median, posterior mean ± MCSE and standard deviation of what was sampled beside U₁."""
    found = run.compared("hyper_parameters")
    rows = [
        [row.name, row.theory, (row.sampled, row.mcse), row.spread]
        for row in ([] if found is None else found.rows("hyper_parameters", ()))
    ]
    deviation = Column("posterior standard deviation", digits=3)
    caption = "Their prior is log-normal about the median, at which the theory is solved."
    columns = ("", "prior median", "sampled ± MCSE", deviation)
    return Table("Sampled with the rest", columns, rows, caption)


# --- how good every theory is as a whole


def predictor_accuracies(run: RunResults) -> dict[str, tuple[float, float | None]]:
    """Predictor → accuracy and its error: Monte Carlo if it was sampled, else of the test set."""
    compared, sampled = run.compared("accuracy"), run.sampled_accuracy
    found = {LEADING: run.theory_accuracy("theory"), NEXT: run.theory_accuracy("next_order")}
    found |= {} if compared is None else compared.own or {}
    if sampled:
        found[EXACT] = sampled.value
    found[LIMIT] = run.theory_accuracy("gp")
    if run.theory is not None and "accuracy_gp_subnetwork" in run.theory:
        limits = run.theory["accuracy_gp_subnetwork"]
        for name, value in zip(limits["subnetwork"].values, limits.values, strict=True):
            found[f"{LIMIT}, only {name}"] = float(value)
    for name, label in OTHER_PREDICTORS.items():
        found[label] = run.theory_accuracy(name)
    errors = {EXACT: sampled.mcse} if sampled else {}
    return {
        name: (value, errors.get(name, run.test_set_error(value)))
        for name, value in found.items()
        if math.isfinite(value)
    }


def summary_table(run: RunResults) -> Table:
    """Accuracy of every predictor, and how far theories are from the exact posterior."""
    known = predictor_accuracies(run)
    own = () if run.comparison is None else run.comparison.own
    endings = {LEADING: "", NEXT: NEXT_ORDER, **{name: own_key("", name) for name in own}}
    quantities = {"order_parameter": "U₁ off by", "predictor_mean": "m(x) off by"}
    rows = []
    for name in dict.fromkeys([*endings, *known]):
        value, error = known.get(name, (math.nan, None))
        ending = endings.get(name)
        found = [
            None if ending is None else run.differences.get(f"{key}{ending}") for key in quantities
        ]
        if name in known or any(one is not None for one in found):
            rows.append([name, percent(value, error), *map(difference_cell, found)])
    caption = (
        "Accuracy on the test set (± Monte Carlo error of the exact posterior, else of the test "
        "set, which is common to all rows), and how far theories are from the exact posterior in "
        "U₁ and in the predictor mean m(x)."
    )
    return Table("At a glance", ("", "accuracy", *quantities.values()), rows, caption)


def difference_cell(one: Difference | None) -> Cell:
    """A resolved difference with its error, or what it is below."""
    if one is None or one.state in SAYING_NOTHING:
        return Number(None)
    return one.shown(one.value, one.error) if one.resolved else f"< {one.shown(one.below)}"


def differences_table(found: Mapping[str, Difference]) -> Table:
    """Return the table of differences of quantities: as a whole, median and largest element."""
    columns = (
        "quantity",
        "as a whole",
        Column("95 % interval", dropped=1),
        Column("elements", dropped=2),
        Column("median, MCSE", digits=3, dropped=3),
        Column("largest, MCSE", digits=3, dropped=4),
        Column("largest by chance, MCSE", digits=2, dropped=5),
        Column("median, relative", digits=2, **PERCENT, dropped=6),
        Column("largest, relative", digits=2, **PERCENT, dropped=7),
        Column("largest in MCSE at", dropped=8),
    )
    rows = [
        [
            one.name,
            one.statement.removesuffix(CONFIDENCE),
            interval_text(one),
            count(one.elements),
            one.median_in_mcse,
            one.worst_in_mcse,
            largest_by_chance(one.elements),
            one.median_relative,
            one.worst_relative,
            one.at,
        ]
        for one in found.values()
    ]
    title = "Sampled minus theory, relative to the size of the quantity, with 95 % confidence"
    caption = (
        "Of accuracy and log predictive density it is the difference itself. By element: absolute "
        "value, in Monte Carlo standard errors (MCSE) and relative to the sampled element; an "
        f"element close to zero has a large relative difference of no weight. {READING}"
    )
    return Table(title, columns, rows, caption)


def interval_text(one: Difference) -> str:
    """Both ends of the interval; empty where nothing can be said."""
    if one.state in SAYING_NOTHING:
        return ""
    low, high = (one.shown(end) for end in one.interval)
    return f"{low} to {high}"


# --- predictive distributions


def qualities(quality: PredictiveQuality | None) -> dict[str, Quality]:
    """Name → quality of theories, exact posterior and infinite width, as far as they are known."""
    if quality is None:
        return {}
    known = {
        LEADING: quality.theory,
        NEXT: quality.next_order,
        **(quality.own or {}),
        EXACT: quality.sampled,
        LIMIT: quality.gp,
    }
    return {name: one for name, one in known.items() if one is not None}


def reliability_tables(quality: PredictiveQuality | None) -> list[Table]:
    """The reliability of each predictive distribution, bin by bin."""
    columns = (
        "probability between",
        "labels",
        Column("mean probability", digits=3, **PERCENT),
        Column("share of labels +1", digits=3, **PERCENT),
    )
    caption = "The share of labels +1 where a probability of +1 was predicted."
    return [
        Table(
            f"Reliability, {who}",
            columns,
            [
                [
                    f"{Number(one.low, digits=2)} to {Number(one.high, digits=2)}",
                    count(one.count),
                    one.mean_probability,
                    (one.fraction, one.error),
                ]
                for one in found.reliability
            ],
            caption,
        )
        for who, found in qualities(quality).items()
    ]


# --- the draws


def diagnostics_table(diagnostics: Diagnostics) -> Table:
    """The worst R-hat and effective sample sizes of every quantity."""
    rows = [
        [
            quantity_name(key),
            one.r_hat,
            element_name(key, one.at),
            count(one.ess_bulk),
            count(one.ess_tail),
            "within limits" if within_limits(one) else "misses a limit",
        ]
        for key, one in diagnostics.quantities.items()
    ]
    caption = (
        f"Rank-normalised split R-hat (limit {R_HAT_LIMIT}), effective sample sizes "
        f"(limit {ESS_LIMIT:.0f})."
    )
    columns = ("quantity", Column("R-hat", digits=5), "at", "bulk ESS", "tail ESS", "verdict")
    return Table("Worst element of every quantity", columns, rows, caption)


def within_limits(one: QuantityDiagnostics) -> bool:
    """Whether a quantity passes; a number that is undefined misses its limit."""
    return one.r_hat <= R_HAT_LIMIT and min(one.ess_bulk, one.ess_tail) >= ESS_LIMIT


COST = {
    "seconds": "seconds, compilation and warm-up included",
    "seconds_warmup": "seconds of warm-up",
    "seconds_draws": "seconds of drawing",
    "gradients": "gradients",
    "effective_draws": "effective draws of the slowest element of U₁",
    "effective_draws_per_second": "effective draws per second",
}


def sampler_table(diagnostics: Diagnostics, cost: Mapping[str, float]) -> Table:
    """Return the table of the sampler: how it ran, and what it cost."""
    rows: list[list[object]] = [
        ["chains", count(diagnostics.chains), ""],
        ["draws of each chain", count(diagnostics.draws), ""],
    ]
    found = diagnostics.numbers
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
