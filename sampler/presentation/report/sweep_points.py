"""The points of a sweep as its page reads them: where each stands, and what it found."""

from dataclasses import dataclass
from pathlib import Path

from sampler.presentation.report.differences import Difference, differences
from sampler.presentation.stored_run import StoredRun, has_results, read_stored_run
from sampler.recipes.recipe import Recipe
from sampler.storage.point_directory import point_directory
from sampler.storage.status import state_of


@dataclass(frozen=True)
class ReportedPoint:
    """One point of a grid. run: None if nothing is stored yet. width: None if layers differ."""

    label: str
    directory: Path
    state: str
    run: StoredRun | None
    found: dict[str, Difference]
    width: int | None

    @property
    def trusted(self) -> bool | None:
        """Whether its samples passed; None if it was not sampled."""
        diagnostics = ((self.run and self.run.comparison) or {}).get("diagnostics")
        return None if not diagnostics else diagnostics["verdict"] == "pass"


def reported_points(directory: Path, recipe: Recipe) -> list[ReportedPoint]:
    """All points of a recipe's grid, those that were never begun included."""
    points = []
    for label, point in recipe.points():
        where = point_directory(directory, label)
        run = read_stored_run(where) if has_results(where) else None
        found = {}
        if run is not None and run.comparison:
            found = differences(run.comparison, run.path_names)
        widths = point.network.widths
        same = widths if isinstance(widths, int) else None
        points.append(ReportedPoint(label, where, state_of(where), run, found, same))
    return points
