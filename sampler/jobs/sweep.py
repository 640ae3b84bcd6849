"""A sweep: the points that are left to do, on an engine, and the tables of all of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sampler.errors import ABSENT, ExitCode, InputError
from sampler.jobs.point import COMMAND, PointOutcome, SweepPoint, finished_earlier
from sampler.jobs.sweep_text import ending, failures_text, sweep_text
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.claim import claim_directory
from sampler.storage.fingerprint import fingerprint
from sampler.storage.lock import locked
from sampler.storage.log import LOG, log_to
from sampler.storage.manifest import finish_command
from sampler.storage.point_directory import point_directory
from sampler.storage.run_directory import RECIPE_FILE
from sampler.tasks.make import make_task

# Exit codes of points that were not run to their end.
NOT_RUN = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.INTERRUPTED)
Engine = Callable[[Sequence[SweepPoint]], Iterator[tuple[SweepPoint, PointOutcome]]]


def sweep_points(recipe: Recipe, directory: Path) -> list[SweepPoint]:
    """The points of a recipe's grid, where `run` puts them.

    Raises InputError if the recipe has no grid, or if two points would share a directory.
    """
    if not recipe.sweep:
        raise InputError("--over", ABSENT, "name what to vary, as in --over network.widths=10,100")
    points = [
        SweepPoint(label, point, point_directory(directory, label))
        for label, point in recipe.points()
    ]
    shared, times = Counter(point.directory.name for point in points).most_common(1)[0]
    if times > 1:
        raise InputError("sweep", shared, "two points have this directory; give each value once")
    return points


def open_sweep(recipe: Recipe, directory: Path) -> None:
    """Claim the directory of a sweep for this recipe, after a look at its data.

    To everything else it then is the directory of a `run` of the same grid.
    """
    claim_directory(directory, recipe, COMMAND, fingerprint(recipe, make_task(recipe).checksum))


def is_opened(recipe: Recipe, directory: Path) -> bool:
    """Whether the directory is that of this sweep already.

    The many tasks of a job array begin at once: they read the directory and leave it as it is.
    """
    stored = directory / RECIPE_FILE
    return stored.is_file() and load_recipe(stored) == recipe


def run_sweep(recipe: Recipe, directory: Path, engine: Engine) -> ExitCode:
    """Bring every point to its end and write the tables; the exit code is that of the worst point.

    Points that an earlier call finished are not run again.
    """
    points = sweep_points(recipe, directory)
    open_sweep(recipe, directory)
    with locked(directory):
        outcomes = finished_points(points)
        left = [point for point in points if point.label not in outcomes]
        print(f"{recipe.name}: {len(points)} points, {len(outcomes)} finished earlier", flush=True)
        for point, outcome in engine(left) if left else ():
            outcomes[point.label] = outcome
            report(directory, f"{len(outcomes)}/{len(points)} {point.label}: {ending(outcome)}")
        for point in points:
            outcomes.setdefault(point.label, PointOutcome(ExitCode.REQUEUE, "not begun"))
        worst = worst_code(outcome.code for outcome in outcomes.values())
        if worst != ExitCode.REQUEUE:  # else there is little time left
            with log_to(directory):
                gather(recipe, directory, outcomes)
            if worst not in NOT_RUN:
                finish_command(directory, COMMAND, worst)
    print(failures_text(outcomes) or "every point is fine")
    print(f"results: {directory}")
    return worst


def report(directory: Path, line: str) -> None:
    print(line, flush=True)
    with log_to(directory):
        LOG.info(line)


def finished_points(points: Sequence[SweepPoint]) -> dict[str, PointOutcome]:
    """Label → outcome of the points whose directories hold everything."""
    codes = {point.label: finished_earlier(point) for point in points}
    return {label: PointOutcome(code) for label, code in codes.items() if code is not None}


def gather(recipe: Recipe, directory: Path, outcomes: dict[str, PointOutcome]) -> None:
    """Write and print the tables and draw the figures, from whatever points there are."""
    from sampler.jobs.run import gather as write_tables
    from sampler.jobs.sweep_dataset import read_rows

    worst = worst_code(outcome.code for outcome in outcomes.values())
    write_tables(COMMAND, recipe, directory, worst)
    rows = read_rows(directory)
    print("\n" + sweep_text(rows, {row["point"]: outcomes[row["point"]] for row in rows}) + "\n")


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    """The gravest exit code: points that were not run to their end count before any verdict."""
    return max(codes, key=lambda code: (code in NOT_RUN, code))
