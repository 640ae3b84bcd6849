"""The tables of a sweep: its points, and those that were chosen."""

from collections.abc import Mapping, Sequence
from itertools import product
from urllib.parse import quote

from sampler.analysis.difference import Difference
from sampler.analysis.predictors import (
    AXIS,
    INFINITE,
    LEADING,
    NAMES,
    NEXT,
    SAMPLED,
    TUNED,
    is_users,
    predictor_name,
)
from sampler.analysis.sweeps import PointSummary
from sampler.analysis.text import NO_BREAK, Number, count
from sampler.analysis.verdict import HEADLINE
from sampler.presentation.status import reached_text
from sampler.presentation.table import Cell, Column, Link, Table
from sampler.recipes.settings import short_label
from sampler.storage.status import FINISHED, INTERRUPTED, RunState, state_of

SHARE = {"unit": f"{NO_BREAK}%", "scale": 100.0, "digits": 3}
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
        chosen = group["log_evidence"] if criterion == "log_evidence" else group
        choices = [(chosen.get(who) or {}).get(criterion) for who in NAMES]
        if any(choices):
            others = short_label(group["settings"])
            what = f"{others}: {name}" if others else name
            rows.append([what, *(choice_text(one, group["settings"]) for one in choices)])
    caption = (
        "By log predictive density and accuracy on the validation split, by the evidence of the "
        "training labels. In brackets a second one within one standard error."
    )
    return Table("Points chosen", ("chosen by", *NAMES.values()), rows, caption)


def choice_text(choice: Mapping | None, fixed: Mapping) -> str:
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
    own = [name for name in map(str, points[0].summary[AXIS].values) if is_users(name)]
    predictors = {LEADING: 0, NEXT: 1, **{name: at for at, name in enumerate(own, start=2)}}
    predictors |= {SAMPLED: 0, TUNED: 1000, INFINITE: 1000}
    columns = [
        Column("point"),
        *(Column(predictor_name(name), **SHARE, dropped=at) for name, at in predictors.items()),
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
    return Table(
        "Points", columns, [point_cells(point, list(predictors)) for point in points], caption
    )


def point_cells(point: PointSummary, predictors: Sequence[str]) -> list[object]:
    page = f"{quote(point.directory.name)}/report.html"
    there = (point.directory / "report.html").is_file()
    overlap, mean = (point.difference(name) for name in (HEADLINE, "predictor_mean"))
    accuracies: list[object] = [point.number("accuracy", name) for name in predictors]
    error = point.number("accuracy", SAMPLED, "error")
    accuracies[predictors.index(SAMPLED)] = (point.number("accuracy", SAMPLED), error)
    words = {None: "not sampled", True: "trusted", False: "diagnostics failed"}
    return [
        Link(point.label, page) if there else point.label,
        *accuracies,
        difference_cell(overlap),
        difference_cell(point.difference(HEADLINE, NEXT)),
        difference_cell(mean),
        overlap and overlap.largest_mcse,
        point.column("r_hat"),
        count(point.column("ess")),
        words[point.trusted],
        state_in_short(state_of(point.directory)),
    ]


def difference_cell(one: Difference | None) -> Cell:
    """A resolved difference with its error, or what it is below."""
    if one is None or not one.decided:
        return Number(None)
    return one.number(one.value, one.error) if one.resolved else one.text(short=True)


def state_in_short(state: RunState) -> str:
    """Return the state in one or two words, for a narrow column."""
    if state.word == FINISHED:
        return f"exit code {state.exit_code}" if state.exit_code else FINISHED
    reached = f" after {reached_text(state.checkpoint)}" if state.checkpoint else ""
    return f"{state.word}{reached}" if state.word == INTERRUPTED else state.word
