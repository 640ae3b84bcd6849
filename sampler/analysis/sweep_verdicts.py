"""Verdicts on a sweep: whether its samples can be trusted, and the trend with width."""

from collections.abc import Mapping, Sequence

from sampler.analysis.labels import LEADING
from sampler.analysis.sweeps import PointSummary
from sampler.analysis.text import Number, percent
from sampler.analysis.verdict import HEADLINE, Verdict, extent


def sweep_trust(points: Sequence[PointSummary]) -> Verdict:
    """Return the number of points sampled, and those that failed their diagnostics."""
    sampled = [point for point in points if point.trusted is not None]
    failed = [point.label for point in sampled if not point.trusted]
    stored = sum(point.stored for point in points)
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


def sweep_trend(points: Sequence[PointSummary], finite_size: Mapping | None) -> Verdict:
    """Whether theory and exact posterior approach each other as the width grows.

    They do where the 95 % interval of the relative difference of U_1 at the largest width lies
    below that at the smallest. Only points with trusted samples count, whatever their difference.
    finite_size: the content of `finite_size.json`.
    """
    compared = [p for p in points if p.trusted and p.one_width and p.differences]
    compared.sort(key=lambda point: point.one_width)
    widths = {point.one_width for point in compared}
    if len(widths) < 2:
        headline = "No trend with width: fewer than two widths have trusted samples and a theory."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    if len(widths) < len(compared):
        headline = "Several points share a width: the table compares theory and samples at each."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    one, other = (p.differences.get(HEADLINE) for p in (compared[0], compared[-1]))
    if one is None or other is None:
        return Verdict("neutral", "No trend with width: U₁ was not compared.")
    reasons = [
        f"{one.name}, N = {point.one_width}: {point.differences[HEADLINE].statement}."
        for point in compared
        if HEADLINE in point.differences
    ]
    fitted = "Fitted powers of N of the difference of U₁, from N = 30 on: "
    slopes = _slopes(finite_size, "power_laws")
    if slopes:
        reasons.append(f"{fitted}{slopes}. {LAW}")
    beyond = _slopes(finite_size, "power_laws_next_order")
    if beyond:
        reasons.append(f"{fitted.replace('of U₁', 'of U₁ to next order')}{beyond}.")
    reasons += _accuracy_reasons(points)
    short = _extent_at({f"N = {p.one_width}": p for p in (compared[0], compared[-1])})
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


def _extent_at(points: Mapping[str, PointSummary]) -> str:
    """How well the theory holds at some points, each with the name of its place, in a sentence."""
    ends = {at: point.differences[HEADLINE] for at, point in points.items()}
    said = [f"{extent(one)} at {at}" for at, one in ends.items() if one.said]
    return f"The theory holds in U₁ {', '.join(said)}." if said else ""


def _worst_and_best(points: Sequence[PointSummary]) -> str:
    """The same at the points where the theory is furthest from the samples and closest to them."""
    known = [point for point in points if point.trusted and HEADLINE in point.differences]
    known.sort(key=lambda point: -point.differences[HEADLINE].below)
    return _extent_at({point.label: point for point in (known[:1] + known[-1:])})


def _slopes(finite_size: Mapping | None, key: str) -> str:
    """The slope of every path that has one."""
    return "; ".join(
        f"{law['path']} {Number(law['slope'], law['slope_error'])}"
        for law in (finite_size or {}).get(key, ())
        if law.get("slope") is not None
    )


def _accuracy_reasons(points: Sequence[PointSummary]) -> tuple[str, ...]:
    """Accuracy at the smallest and the largest width."""
    solved = [p for p in points if p.one_width and p.solved]
    solved = sorted(solved, key=lambda point: point.one_width)
    widths = {point.one_width for point in solved}
    if not 2 <= len(widths) == len(solved):
        return ()
    said = []
    for point in (solved[0], solved[-1]):
        sampled = percent(point.number("accuracy_sampled"), point.number("accuracy_sampled_mcse"))
        exact = f", exact posterior {sampled}" if point.has("accuracy_sampled") else ""
        leading = percent(point.number("accuracy_theory"))
        said.append(f"{LEADING} {leading}{exact} at N = {point.one_width}")
    limit = percent(solved[0].number("accuracy_gp"))
    return (f"Accuracy: {'; '.join(said)}; infinite width {limit}.",)
