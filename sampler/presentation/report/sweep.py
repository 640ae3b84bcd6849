"""Verdicts and tables of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, product
from pathlib import Path
from urllib.parse import quote

from sampler.analysis.difference import Difference
from sampler.analysis.labels import NEXT_ORDER
from sampler.analysis.numbers import Number, count, percent
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.analysis.verdict import HEADLINE, Verdict, extent
from sampler.presentation.figures.studies import short_label
from sampler.presentation.report.elements import Cell, Link, Table
from sampler.presentation.report.tables import difference_cell, sampled_accuracy, theory_accuracy
from sampler.presentation.report.verdict import worst
from sampler.presentation.style import EXACT, LEADING, LIMIT, NEXT
from sampler.recipes.recipe import Recipe
from sampler.storage.results import has_results
from sampler.storage.run_directory import point_directory
from sampler.storage.status import state_of


@dataclass(frozen=True)
class ReportedPoint:
    """One point of a grid. run: None if nothing is stored yet. width: None if layers differ."""

    label: str
    directory: Path
    state: str
    run: RunResults | None
    found: Mapping[str, Difference]
    width: int | None

    @property
    def trusted(self) -> bool | None:
        """Whether its samples passed; None if it was not sampled."""
        diagnostics = None if self.run is None else self.run.diagnostics
        return None if diagnostics is None else diagnostics.passed


def reported_points(directory: Path, recipe: Recipe) -> list[ReportedPoint]:
    """All points of a recipe's grid, those that were never begun included."""
    points = []
    for label, point in recipe.points():
        where = point_directory(directory, label)
        run = RunResults(where) if has_results(where) else None
        found = {} if run is None else run.differences
        widths = point.network.widths
        same = widths if isinstance(widths, int) else None
        points.append(ReportedPoint(label, where, state_of(where), run, found, same))
    return points


def sweep_trust(points: Sequence[ReportedPoint]) -> Verdict:
    """How many points were sampled, and which of them failed their diagnostics."""
    sampled = [point for point in points if point.trusted is not None]
    failed = [point.label for point in sampled if not point.trusted]
    stored = sum(point.run is not None for point in points)
    reasons = () if stored == len(points) else (f"{stored} of {len(points)} points have results.",)
    if not sampled:
        return Verdict("neutral", "No point was sampled.", reasons)
    if failed:
        headline = (
            f"The samples of {len(failed)} of {len(sampled)} sampled points cannot be trusted."
        )
        return Verdict("bad", headline, (*reasons, f"Diagnostics failed at {', '.join(failed)}."))
    headline = f"The samples of all {len(sampled)} sampled points can be trusted."
    return Verdict("good", headline, reasons)


LAW = (
    "All points have the same number of examples: the 1/N of the theory is that of examples in "
    "proportion to N and does not apply here; at a fixed number theory and exact posterior share "
    "their first correction to infinite width, and no power is predicted."
)


def sweep_trend(points: Sequence[ReportedPoint], finite_size: Mapping | None) -> Verdict:
    """Whether theory and exact posterior approach each other as the width grows.

    They do where the 95 % interval of the relative difference of U_1 at the largest width lies
    below that at the smallest. Only points with trusted samples count, whatever their difference.
    finite_size: the content of `finite_size.json`.
    """
    compared = [point for point in points if point.trusted and point.width and point.found]
    compared.sort(key=lambda point: point.width)
    widths = {point.width for point in compared}
    if len(widths) < 2:
        headline = "No trend with width: fewer than two widths have trusted samples and a theory."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    if len(widths) < len(compared):
        headline = "Several points share a width: the table compares theory and samples at each."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    one, other = compared[0].found.get(HEADLINE), compared[-1].found.get(HEADLINE)
    if one is None or other is None:
        return Verdict("neutral", "No trend with width: U₁ was not compared.")
    reasons = [
        f"{one.name}, N = {point.width}: {point.found[HEADLINE].statement}."
        for point in compared
        if HEADLINE in point.found
    ]
    fitted = "Fitted powers of N of the difference of U₁, from N = 30 on: "
    slopes = _slopes(finite_size, "power_laws")
    if slopes:
        reasons.append(f"{fitted}{slopes}. {LAW}")
    beyond = _slopes(finite_size, "power_laws_next_order")
    if beyond:
        reasons.append(f"{fitted.replace('of U₁', 'of U₁ to next order')}{beyond}.")
    reasons += _accuracy_reasons(points)
    short = _extent_at({f"N = {p.width}": p for p in (compared[0], compared[-1])})
    if other.interval[0] > one.interval[1]:
        headline = f"Theory and exact posterior part as the width grows, by {one.name}."
        return Verdict("caution", headline, tuple(reasons), short)
    if other.interval[1] < one.interval[0]:
        headline = (
            f"Theory and exact posterior approach each other as the width grows, by {one.name}."
        )
        return Verdict("good", headline, tuple(reasons), short)
    headline = f"The samples do not resolve a trend with width, by {one.name}."
    return Verdict("neutral", headline, tuple(reasons), short)


def _extent_at(points: Mapping[str, ReportedPoint]) -> str:
    """How well the theory holds at some points, each with the name of its place, in a sentence."""
    ends = {at: point.found[HEADLINE] for at, point in points.items()}
    said = [f"{extent(one)} at {at}" for at, one in ends.items() if one.said]
    return f"The theory holds in U₁ {', '.join(said)}." if said else ""


def _worst_and_best(points: Sequence[ReportedPoint]) -> str:
    """The same at the points where the theory is furthest from the samples and closest to them."""
    known = [point for point in points if point.trusted and HEADLINE in point.found]
    known.sort(key=lambda point: -point.found[HEADLINE].below)
    return _extent_at({point.label: point for point in (known[:1] + known[-1:])})


def sweep_verdict(directory: Path, recipe: Recipe) -> str:
    """The verdict on the theory of a whole sweep, in one line."""
    finite_size = SweepResults(directory).finite_size
    return sweep_trend(reported_points(directory, recipe), finite_size).line


def _slopes(finite_size: Mapping | None, key: str) -> str:
    """The slope of every path that has one."""
    return "; ".join(
        f"{law['path']} {Number(law['slope'], law['slope_error'])}"
        for law in (finite_size or {}).get(key, ())
        if law.get("slope") is not None
    )


def _accuracy_reasons(points: Sequence[ReportedPoint]) -> tuple[str, ...]:
    """Accuracy at the smallest and the largest width."""
    solved = [p for p in points if p.run is not None and p.width and p.run.theory is not None]
    solved = sorted(solved, key=lambda point: point.width)
    if len({point.width for point in solved}) < 2 or len(solved) > len({p.width for p in solved}):
        return ()
    said = []
    for point in (solved[0], solved[-1]):
        sampled = sampled_accuracy(point.run)
        exact = f", exact posterior {percent(sampled.value, sampled.mcse)}" if sampled else ""
        said.append(
            f"{LEADING} {percent(theory_accuracy(point.run, 'theory'))}{exact} at N = {point.width}"
        )
    limit = percent(theory_accuracy(solved[0].run, "gp"))
    return (f"Accuracy: {'; '.join(said)}; infinite width {limit}.",)


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


def selection_table(selection: Mapping | None) -> Table | None:
    """What every predictor chooses by every criterion; None where nothing is chosen.

    Among temperatures a row for each other setting. selection: the content of `selection.json`.
    """
    if selection is None:
        return None
    groups = selection.get("by_temperature") or [{"settings": {}, **selection}]
    rows = []
    for group, (criterion, name) in product(groups, CRITERIA.items()):
        found = group["log_evidence"] if criterion == "log_evidence" else group
        chosen = [(found.get(who) or {}).get(criterion) for who in PREDICTORS]
        if any(chosen):
            others = short_label(group["settings"])
            what = f"{others}: {name}" if others else name
            rows.append([what, *(_chosen(one, group["settings"]) for one in chosen)])
    kept = [any(column) for column in zip(*rows, strict=True)]
    caption = (
        "Points chosen: by log predictive density and accuracy on the validation split, by the "
        "evidence of the training labels. In brackets a second one within one standard error."
    )
    header = ("chosen by", *PREDICTORS.values())
    kept_rows = [[*compress(row, kept)] for row in rows]
    return Table(caption, [*compress(header, kept)], kept_rows) if rows else None


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


def points_table(points: Sequence[ReportedPoint]) -> Table:
    """A row per point: accuracies, differences, diagnostics, and its own page.

    Columns without any number, those of samples where there are none, are left out.
    """
    header = (
        "point", LEADING, NEXT, EXACT, LIMIT, "U₁ off by",
        "U₁ off by, next order", "m(x) off by", "U₁, MCSE", "R-hat", "ESS", "samples", "state",
    )  # fmt: skip
    caption = "Accuracy on the test set."
    if any(point.trusted is not None for point in points):
        caption = (
            "Accuracy on the test set (± MCSE), how far theory and samples are apart as a whole in "
            "U₁ and predictor mean m(x), the largest difference of U₁ in MCSE, worst R-hat, "
            "smallest ESS."
        )
    rows = [_row(point) for point in points]
    kept = [
        any(not isinstance(cell, Number) or cell.defined for cell in column)
        for column in zip(*rows, strict=True)
    ]
    return Table(caption, [*compress(header, kept)], [[*compress(row, kept)] for row in rows])


def _row(point: ReportedPoint) -> list[Cell]:
    run = point.run
    page = f"{quote(point.directory.name)}/report.html"
    there = (point.directory / "report.html").is_file()
    label: Cell = Link(point.label, page) if there else point.label
    sampled = None if run is None else sampled_accuracy(run)
    compared = (HEADLINE, f"{HEADLINE}{NEXT_ORDER}", "predictor_mean")
    overlap, beyond, mean = (point.found.get(key) for key in compared)
    judged = [] if point.trusted is None else list(run.diagnostics.quantities.values())
    smallest = (
        min(worst(judged, "ess_bulk", min), worst(judged, "ess_tail", min)) if judged else None
    )
    said = {None: "not sampled", True: "trusted", False: "diagnostics failed"}
    return [
        label,
        percent(None if run is None else theory_accuracy(run, "theory")),
        percent(None if run is None else theory_accuracy(run, "next_order")),
        percent(sampled and sampled.value, sampled and sampled.mcse),
        percent(None if run is None else theory_accuracy(run, "gp")),
        difference_cell(overlap),
        difference_cell(beyond),
        difference_cell(mean),
        Number(overlap and overlap.worst_in_mcse, digits=3),
        Number(worst(judged, "r_hat", max) if judged else None, digits=5),
        count(smallest),
        said[point.trusted],
        state_in_short(point.state),
    ]


def state_in_short(state: str) -> str:
    """What `status` says in one or two words, for a narrow column."""
    command, _, rest = state.rpartition("`")
    if not command:
        return state
    phrase = rest.strip().split(";")[0]
    return "finished" if phrase == "finished with exit code 0" else phrase.split(" with ")[-1]
