"""The tables of a sweep: its points, and those that were chosen."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from urllib.parse import quote

from sampler.analysis.labels import EXACT, LEADING, LIMIT, NEXT, NEXT_ORDER, own_key
from sampler.analysis.sweeps import PointSummary
from sampler.analysis.text import count
from sampler.analysis.verdict import HEADLINE
from sampler.presentation.figures.studies import short_label
from sampler.presentation.status import reached_text
from sampler.presentation.table import Column, Link, Table
from sampler.presentation.tables import PERCENT, difference_cell
from sampler.storage.status import FINISHED, INTERRUPTED, RunState, state_of

SHARE = PERCENT | {"digits": 3}
OWN_ACCURACY = own_key("accuracy", "")
PREDICTORS = {
    "theory": LEADING,
    "next_order": NEXT,
    "sampled": EXACT,
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
