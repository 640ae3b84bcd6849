"""What a sweep prints: a row per point, and the points that failed by name."""

from collections.abc import Mapping, Sequence

from sampler.errors import ExitCode
from sampler.jobs.point import PointOutcome

ENDINGS = {
    ExitCode.OK: "fine",
    ExitCode.DIAGNOSTICS_FAILED: "diagnostics fail",
    ExitCode.NOT_CONVERGED: "saddle point not converged",
    ExitCode.REQUEUE: "stopped, saved",
}
HEADER = ("point", "theory", "sampled", "± MCSE", "GP", "")
COLUMNS = ("accuracy_theory", "accuracy_sampled", "accuracy_sampled_mcse", "accuracy_gp")


def sweep_text(rows: Sequence[Mapping[str, str]], outcomes: Mapping[str, PointOutcome]) -> str:
    """Accuracies of every point of a sweep table, and how the point ended."""
    cells = [HEADER] + [
        (
            row["point"],
            *(decimals(row.get(column) or "") for column in COLUMNS),
            ending(outcomes[row["point"]]),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    lines = [
        f"{line[0]:<{widths[0]}}"
        + "".join(f"  {c:>{w}}" for c, w in zip(line[1:-1], widths[1:-1], strict=True))
        + f"  {line[-1]}"
        for line in cells
    ]
    return "\n".join(["accuracy", *(line.rstrip() for line in lines)])


def failures_text(outcomes: Mapping[str, PointOutcome]) -> str:
    """One line per point that did not end well; empty if all did."""
    failed = {label: one for label, one in outcomes.items() if one.code != ExitCode.OK}
    if not failed:
        return ""
    lines = [f"  {label}: {one.problem or ending(one)}" for label, one in failed.items()]
    return "\n".join([f"{len(failed)} of {len(outcomes)} points failed:", *lines])


def ending(outcome: PointOutcome) -> str:
    return ENDINGS.get(outcome.code, f"failed (exit code {int(outcome.code)})")


def decimals(cell: str) -> str:
    return f"{float(cell):.4f}" if cell else "–"
