"""The tables of runs and sweeps, each built once: terminal, page and notebooks show the same."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from urllib.parse import quote

from sampler.analysis.compared import Row
from sampler.analysis.difference import (
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
    OWN_LIMIT,
    own_key,
)
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import PointSummary
from sampler.analysis.text import NO_BREAK, Number, count, percent
from sampler.analysis.verdict import HEADLINE
from sampler.presentation.status import reached_text
from sampler.presentation.table import Cell, Column, Link, Table
from sampler.recipes.settings import short_label
from sampler.storage.status import FINISHED, INTERRUPTED, RunState, state_of

MOST_ROWS = 15
PERCENT = {"unit": f"{NO_BREAK}%", "scale": 100.0}
OTHER_PREDICTORS = {
    "trained": "network trained by gradient descent",
    "nearest_neighbour": "nearest neighbour in pixels",
}
READING = (
    "As a whole: the size of the difference without the part that Monte Carlo noise adds to it, "
    "and its 95 % interval; where the interval reaches 0, no difference was found, and its upper "
    "end says above which size there is none. MCSE is "
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
            "diff/MCSE", "difference_in_mcse", digits=2, dropped=1002,
            meaning="sampled − leading order, in Monte Carlo standard errors",
        ),
        Column(
            "diff", "relative_difference", digits=2, **PERCENT, dropped=1003,
            meaning="sampled − leading order, relative to the sampled number",
        ),
        Column(
            OWN_LIMIT, "gp_own", dropped=1000,
            meaning="of the network of infinite width at a temperature that it chooses itself",
        ),
        Column(
            LIMIT, "gp", dropped=1001,
            meaning="of the network of infinite width at the temperature of the others",
        ),
        Column(
            "test set error", "test_error", digits=2, dropped=1004,
            meaning="standard error of the sampled number by the finite test set",
        ),
    ]  # fmt: skip
    return Table(title, columns, [comparison_cells(row, own) for row in rows], caption)


def comparison_cells(row: Row, own: Sequence[str]) -> list[object]:
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
        shown(row.gp_own),
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
    caption = "Its prior is log-normal about the median, at which the theory is solved."
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
    for name, key in ((OWN_LIMIT, "gp_own"), (LIMIT, "gp")):
        found.setdefault(name, run.theory_accuracy(key))
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
    )
    rows = [
        [
            one.name,
            one.in_short,
            interval_text(one),
            count(one.elements),
            one.median_in_mcse,
            one.worst_in_mcse,
            largest_by_chance(one.elements),
        ]
        for one in found.values()
    ]
    title = "Sampled minus theory, relative to the size of the quantity, with 95 % confidence"
    caption = (
        "Of accuracy and log predictive density it is the difference itself. By element: absolute "
        f"value, in Monte Carlo standard errors (MCSE). {READING}"
    )
    return Table(title, columns, rows, caption)


def interval_text(one: Difference) -> str:
    """Both ends of the interval; empty where nothing can be said."""
    if one.state in SAYING_NOTHING:
        return ""
    low, high = (one.shown(end) for end in one.interval)
    return f"{low} to {high}"


# --- sweeps: points, and those that were chosen

SHARE = PERCENT | {"digits": 3}
OWN_ACCURACY = own_key("accuracy", "")
PREDICTORS = {
    "theory": LEADING,
    "next_order": NEXT,
    "sampled": EXACT,
    "gp_own": OWN_LIMIT,
    "gp": LIMIT,
}
CRITERIA = {
    "log_predictive_density": "log predictive density",
    "accuracy": "accuracy",
    "log_evidence": "log evidence of the training labels",
}


def selection_table(selection: Mapping | None) -> Table:
    """The points that every predictor chooses by every criterion.

    Among temperatures a row for each other setting. selection: the content of `selection.json`.
    """
    selection = selection or {"by_temperature": []}
    groups = selection.get("by_temperature", [{"settings": {}, **selection}])
    rows = []
    for group, (criterion, name) in product(groups, CRITERIA.items()):
        found = group["log_evidence"] if criterion == "log_evidence" else group
        chosen = [(found.get(who) or {}).get(criterion) for who in PREDICTORS]
        if any(chosen):
            others = short_label(group["settings"])
            what = f"{others}: {name}" if others else name
            rows.append([what, *(_chosen(one, group["settings"]) for one in chosen)])
    caption = (
        "By log predictive density and accuracy on the validation split, by the evidence of the "
        "training labels. In brackets a second one within one standard error."
    )
    return Table("Points chosen", ("chosen by", *PREDICTORS.values()), rows, caption)


def _chosen(choice: Mapping | None, fixed: Mapping) -> str:
    """The settings that were chosen, but for those that were given."""
    if choice is None:
        return ""
    both = [choice, choice.get("runner_up")]
    if both[1] is None or not both[1]["within_errors"]:
        both = both[:1]
    first, *second = (
        short_label({key: value for key, value in one["settings"].items() if key not in fixed})
        for one in both
    )
    return f"{first} ({second[0]})" if second else first


def points_table(points: Sequence[PointSummary]) -> Table:
    """The points of a sweep: accuracies, differences, diagnostics, and the page of each."""
    named = (name for name in points[0].columns if name.startswith(OWN_ACCURACY))
    own = {name: name.removeprefix(OWN_ACCURACY) for name in named}
    columns = [
        Column("point"),
        Column(LEADING, **SHARE),
        Column(NEXT, **SHARE, dropped=1),
        *(Column(name, **SHARE, dropped=place) for place, name in enumerate(own.values(), start=2)),
        Column(EXACT, **SHARE),
        Column(OWN_LIMIT, **SHARE, dropped=1000),
        Column(LIMIT, **SHARE, dropped=1000),
        Column("U₁ off by", dropped=1001),
        Column("U₁ off by, next order", dropped=1003),
        Column("m(x) off by", dropped=1002),
        Column("U₁, MCSE", digits=3, dropped=1006),
        Column("R-hat", digits=5, dropped=1005),
        Column("ESS", dropped=1004),
        Column("samples", dropped=1007),
        Column("state"),
    ]
    caption = (
        "Accuracy on the test set (± MCSE), how far theory and samples are apart as a whole in "
        "U₁ and predictor mean m(x), the largest difference of U₁ in MCSE, worst R-hat, smallest "
        "ESS."
    )
    return Table("Points", columns, [_row(point, own) for point in points], caption)


def _row(point: PointSummary, own: Iterable[str]) -> list[object]:
    page = f"{quote(point.directory.name)}/report.html"
    there = (point.directory / "report.html").is_file()
    compared = (HEADLINE, f"{HEADLINE}{NEXT_ORDER}", "predictor_mean")
    overlap, beyond, mean = (point.differences.get(key) for key in compared)
    sampled = (point.number("accuracy_sampled"), point.number("accuracy_sampled_mcse"))
    said = {None: "not sampled", True: "trusted", False: "diagnostics failed"}
    return [
        Link(point.label, page) if there else point.label,
        point.number("accuracy_theory"),
        point.number("accuracy_next_order"),
        *(point.number(name) for name in own),
        sampled if point.has("accuracy_sampled") else None,
        point.number("accuracy_gp_own"),
        point.number("accuracy_gp"),
        difference_cell(overlap),
        difference_cell(beyond),
        difference_cell(mean),
        overlap and overlap.worst_in_mcse,
        point.number("r_hat"),
        count(point.number("ess")),
        said[point.trusted],
        state_in_short(state_of(point.directory)),
    ]


def state_in_short(state: RunState) -> str:
    """Return the state in one or two words, for a narrow column."""
    if state.word == FINISHED:
        return f"exit code {state.exit_code}" if state.exit_code else FINISHED
    reached = f" after {reached_text(state.checkpoint)}" if state.checkpoint else ""
    return f"{state.word}{reached}" if state.word == INTERRUPTED else state.word
