"""Verdicts on a sweep: whether its samples can be trusted, and the trend with width."""

from collections.abc import Mapping, Sequence

import numpy as np

from sampler.analysis.finite_size import FiniteSize
from sampler.analysis.predictors import INFINITE, LEADING, NEXT, SAMPLED, TUNED, predictor_name
from sampler.analysis.sweeps import PointSummary
from sampler.analysis.text import Number, percent
from sampler.analysis.verdict import HEADLINE, Verdict

LAW = (
    "All points have the same number of examples: the 1/N of the theory is that of examples in "
    "proportion to N and does not apply here; at a fixed number theory and exact posterior share "
    "their first correction to infinite width, and no power is predicted."
)


def sweep_trust(points: Sequence[PointSummary]) -> Verdict:
    """The number of points sampled, and those that failed their diagnostics."""
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


def sweep_trend(points: Sequence[PointSummary], finite_size: FiniteSize | None) -> Verdict:
    """Whether theory and exact posterior approach each other as the width grows.

    They do where the 95 % interval of the relative difference of U_1 at the largest width lies
    below that at the smallest. Only points with trusted samples count, whatever their difference.
    """
    compared = [p for p in points if p.trusted and p.one_width and p.difference(HEADLINE)]
    compared.sort(key=lambda point: point.one_width)
    widths = {point.one_width for point in compared}
    if len(widths) < 2:
        headline = "No trend with width: fewer than two widths have trusted samples and a theory."
        return Verdict("neutral", headline, accuracy_reasons(points), worst_and_best(points))
    if len(widths) < len(compared):
        headline = "Several points share a width: the table compares theory and samples at each."
        return Verdict("neutral", headline, accuracy_reasons(points), worst_and_best(points))
    reasons = [f"U₁, N = {p.one_width}: {p.difference(HEADLINE).text()}." for p in compared]
    reasons += power_law_reasons(finite_size)
    reasons += accuracy_reasons(points)
    short = extent_at({f"N = {p.one_width}": p for p in (compared[0], compared[-1])})
    narrow, wide = (p.difference(HEADLINE) for p in (compared[0], compared[-1]))
    if wide.low > narrow.high:
        headline = "Theory and exact posterior differ more in U₁ the larger the width."
        return Verdict("caution", headline, tuple(reasons), short)
    if wide.high < narrow.low:
        headline = "Theory and exact posterior differ less in U₁ the larger the width."
        return Verdict("good", headline, tuple(reasons), short)
    headline = (
        "The draws cannot tell whether theory and exact posterior differ less in U₁ the "
        "larger the width."
    )
    return Verdict("neutral", headline, tuple(reasons), short)


def extent_at(points: Mapping[str, PointSummary]) -> str:
    """A sentence on how far the theory is off at some points, each with the name of its place."""
    ends = {at: point.difference(HEADLINE) for at, point in points.items()}
    texts = [f"{one.text()} at {at}" for at, one in ends.items() if one.decided]
    return f"U₁, {predictor_name(LEADING)}: {', '.join(texts)}." if texts else ""


def worst_and_best(points: Sequence[PointSummary]) -> str:
    """The same at the points where the theory is furthest from the samples and closest to them."""
    known = [point for point in points if point.trusted and point.difference(HEADLINE)]
    known.sort(key=lambda point: -point.difference(HEADLINE).below)
    return extent_at({point.label: point for point in (known[:1] + known[-1:])})


def power_law_reasons(finite_size: FiniteSize | None) -> list[str]:
    if finite_size is None:
        return []
    reasons = []
    for predictor, end in ((LEADING, f" {LAW}"), (NEXT, "")):
        laws = zip(finite_size.paths, finite_size.power_laws(predictor), strict=False)
        slopes = "; ".join(
            f"{path} {Number(law.slope, law.slope_error)}"
            for path, law in laws
            if np.isfinite(law.slope)
        )
        if slopes:
            name = predictor_name(predictor)
            reasons.append(
                f"Fitted powers of N of the difference of U₁ from N = 30 on, {name}: {slopes}.{end}"
            )
    return reasons


def accuracy_reasons(points: Sequence[PointSummary]) -> tuple[str, ...]:
    """Accuracies at both ends, beside the better of both kinds of infinite width."""
    solved = sorted((p for p in points if p.one_width and p.solved), key=lambda p: p.one_width)
    widths = {point.one_width for point in solved}
    if not 2 <= len(widths) == len(solved):
        return ()
    texts = []
    for point in (solved[0], solved[-1]):
        value = point.number("accuracy", SAMPLED)
        sampled = percent(value, point.number("accuracy", SAMPLED, "error"))
        exact = f", exact posterior {sampled}" if np.isfinite(value) else ""
        leading = percent(point.number("accuracy"))
        texts.append(f"{predictor_name(LEADING)} {leading}{exact} at N = {point.one_width}")
    same, tuned = (solved[0].number("accuracy", name) for name in (INFINITE, TUNED))
    limit = f"{percent(same)} at the same temperature"
    if np.isfinite(tuned):
        limit = f"{percent(tuned)} tuned, {limit}"
    return (f"Accuracy: {'; '.join(texts)}; {predictor_name(INFINITE)} {limit}.",)
