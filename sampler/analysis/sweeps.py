"""Results of a sweep, read: its table, its grid, and what was chosen from it."""

import csv
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.labels import LEADING
from sampler.analysis.results import RunResults
from sampler.analysis.text import Number, percent
from sampler.analysis.verdict import HEADLINE, Verdict, extent
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.results import has_results
from sampler.storage.run_directory import (
    RECIPE_FILE,
    check_schema,
    point_directory,
    read_json,
    read_stored,
)

SWEEP_FILE, SWEEP_DATASET_FILE = "sweep.csv", "sweep.nc"
SELECTION_FILE, FINITE_SIZE_FILE = "selection.json", "finite_size.json"
SEED_AVERAGES_FILE = "seed_averages.csv"

# The first columns of the table of a sweep; all others follow by name.
COLUMNS = (
    "point", "directory", "width", "accuracy_theory", "accuracy_gp", "accuracy_sampled",
    "accuracy_sampled_mcse", "accuracy_sampled_binomial", "sampled_space",
    "accuracy_diagonal_only", "accuracy_equal_diagonal",
)  # fmt: skip
# Attribute of what is a column of the table in the Dataset, where names have no slash: its name.
COLUMN = "column"
GAUSSIAN_PROCESS_PREFIX = "gp:"


def read_sweep(directory: Path) -> xr.Dataset:
    """Read `sweep.nc`; InputError if it is absent, damaged or of another schema."""

    def load(file: Path) -> xr.Dataset:
        table = xr.load_dataset(file, engine="h5netcdf")
        check_schema(table.attrs.get("schema_version"), str(file))
        if missing := [name for name in COLUMNS[:3] if name not in table]:
            raise ValueError(f"it has no variable {missing[0]}")
        return table

    return read_stored(directory / SWEEP_DATASET_FILE, "run", load)


def columns_of_sweep(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the columns of the table of a sweep by name, [row] in the order of its points."""
    found = {v.attrs[COLUMN]: v.values.ravel() for v in dataset.values() if COLUMN in v.attrs}
    first = [name for name in COLUMNS if name in found]
    return {name: found[name] for name in [*first, *sorted({*found} - {*first})]}


def rows_of_sweep(dataset: xr.Dataset) -> list[dict[str, str]]:
    """Return the rows of the table of a sweep as text, empty where a number does not exist."""
    columns = columns_of_sweep(dataset)
    return [
        {name: cell_text(value) for name, value in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]


def cell_text(value: object) -> str:
    """Return a cell of a CSV file: a number in full, empty where it is not finite."""
    return "" if isinstance(value, float) and not np.isfinite(value) else str(value)


def read_table(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file of a sweep, each a column → text, empty where undefined.

    Raises InputError if the file is absent or damaged.
    """

    def load(file: Path) -> list[dict[str, str]]:
        with file.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream, restval=""))
        if not rows:
            raise ValueError("it has no rows")
        if None in rows[0]:
            raise ValueError("its rows are longer than its header")
        return rows

    return read_stored(path, "run", load)


@dataclass(frozen=True)
class SweptPoint:
    """A point of a grid and what is stored of it.

    label: `key=value,…`.  settings: the swept keys and their values here.
    """

    label: str
    settings: Mapping[str, object]
    recipe: Recipe
    run: RunResults

    @property
    def width(self) -> int:
        """The width, the largest where layers differ."""
        return self.recipe.network.widest

    @property
    def space(self) -> str:
        """The space that was sampled, or that the recipe names."""
        return self.run.space or self.recipe.sampler.space


def swept_points(directory: Path, recipe: Recipe) -> list[SweptPoint]:
    """Every point of a recipe's grid, in its order, whether anything is stored of it or not."""
    values = itertools.product(*recipe.sweep.values())
    return [
        SweptPoint(
            label,
            dict(zip(recipe.sweep, of_point, strict=True)),
            point,
            RunResults(point_directory(directory, label)),
        )
        for (label, point), of_point in zip(recipe.points(), values, strict=True)
    ]


@dataclass(frozen=True)
class SweepTable:
    """The table of a sweep, sorted by width when width is what distinguishes its rows.

    points: label of each row.  directories: run directory of each row.
    columns: each column by name, [row], numbers or text.
    """

    points: tuple[str, ...]
    directories: tuple[Path, ...]
    columns: dict[str, np.ndarray]

    @classmethod
    def of(cls, directory: Path, columns: dict[str, np.ndarray]) -> "SweepTable":
        """Return the table of these columns, in this order of the rows."""
        return cls(
            points=tuple(map(str, columns["point"])),
            directories=tuple(directory / where for where in columns["directory"]),
            columns=columns,
        )

    def values(self, name: str) -> np.ndarray:
        """Return one numeric column, [row], NaN where there is none."""
        found = self.columns.get(name, np.full(len(self.points), np.nan))
        return np.asarray(found, dtype=np.float64)

    @property
    def widths(self) -> np.ndarray | None:
        """The width of each row, or None if the rows are not told apart by their width."""
        widths = self.values("width")
        distinct = np.isfinite(widths).all() and len(set(widths)) == len(widths)
        return widths if distinct else None

    @property
    def subnetworks(self) -> list[str]:
        """Labels of the sub-networks whose Gaussian process limit was tabulated."""
        size = len(GAUSSIAN_PROCESS_PREFIX)
        return [name[size:] for name in self.columns if name.startswith(GAUSSIAN_PROCESS_PREFIX)]

    def subnetwork_accuracy(self, label: str) -> np.ndarray:
        """The Gaussian process accuracy of one sub-network, [row]."""
        return self.values(GAUSSIAN_PROCESS_PREFIX + label)


@dataclass(frozen=True)
class SweepResults:
    """Results of a sweep beside those of its points; a file never written is None.

    A file is read when it is first asked for, and kept. Every property raises InputError for a
    file that is damaged or of another schema.
    """

    directory: Path

    @cached_property
    def table(self) -> SweepTable:
        """The table in `sweep.nc`; InputError also where there is no such file."""
        columns = columns_of_sweep(read_sweep(self.directory))
        table = SweepTable.of(self.directory, columns)
        if table.widths is None:
            return table
        order = np.argsort(table.widths)
        return SweepTable.of(self.directory, {name: v[order] for name, v in columns.items()})

    @cached_property
    def runs(self) -> list[RunResults | None]:
        """The results of every row of the table; None where nothing is stored."""
        places = self.table.directories
        return [RunResults(place) if has_results(place) else None for place in places]

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, object]]:
        """Label of a point → the swept keys and their values there; empty without a recipe."""
        path = self.directory / RECIPE_FILE
        points = swept_points(self.directory, load_recipe(path)) if path.is_file() else []
        return {point.label: point.settings for point in points}

    @property
    def solved(self) -> RunResults | None:
        """The first run that has a theory."""
        return next((run for run in self.runs if run is not None and run.theory is not None), None)

    @cached_property
    def dataset(self) -> xr.Dataset | None:
        """The content of `sweep.nc`: columns of the table and U_1 over the swept keys."""
        there = (self.directory / SWEEP_DATASET_FILE).is_file()
        return read_sweep(self.directory) if there else None

    @cached_property
    def selection(self) -> dict | None:
        """The content of `selection.json`: the points chosen by validation split or evidence."""
        return self._json(SELECTION_FILE)

    @cached_property
    def finite_size(self) -> dict | None:
        """The content of `finite_size.json`: U_1 by width, and power laws."""
        return self._json(FINITE_SIZE_FILE)

    @cached_property
    def seed_averages(self) -> list[dict[str, str]] | None:
        """The rows of `seed_averages.csv`."""
        path = self.directory / SEED_AVERAGES_FILE
        return read_table(path) if path.is_file() else None

    def _json(self, name: str) -> dict | None:
        path = self.directory / name
        return read_json(path) if path.is_file() else None


def width_of(point: SweptPoint) -> int | None:
    """Return the width of a point; None where layers differ."""
    widths = point.recipe.network.widths
    return widths if isinstance(widths, int) else None


def sweep_trust(points: Sequence[SweptPoint]) -> Verdict:
    """Return the number of points sampled, and those that failed their diagnostics."""
    sampled = [point for point in points if point.run.trusted is not None]
    failed = [point.label for point in sampled if not point.run.trusted]
    stored = sum(point.run.stored for point in points)
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


def sweep_trend(points: Sequence[SweptPoint], finite_size: Mapping | None) -> Verdict:
    """Whether theory and exact posterior approach each other as the width grows.

    They do where the 95 % interval of the relative difference of U_1 at the largest width lies
    below that at the smallest. Only points with trusted samples count, whatever their difference.
    finite_size: the content of `finite_size.json`.
    """
    compared = [p for p in points if p.run.trusted and width_of(p) and p.run.differences]
    compared.sort(key=width_of)
    widths = {width_of(point) for point in compared}
    if len(widths) < 2:
        headline = "No trend with width: fewer than two widths have trusted samples and a theory."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    if len(widths) < len(compared):
        headline = "Several points share a width: the table compares theory and samples at each."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    one, other = (p.run.differences.get(HEADLINE) for p in (compared[0], compared[-1]))
    if one is None or other is None:
        return Verdict("neutral", "No trend with width: U₁ was not compared.")
    reasons = [
        f"{one.name}, N = {width_of(point)}: {point.run.differences[HEADLINE].statement}."
        for point in compared
        if HEADLINE in point.run.differences
    ]
    fitted = "Fitted powers of N of the difference of U₁, from N = 30 on: "
    slopes = _slopes(finite_size, "power_laws")
    if slopes:
        reasons.append(f"{fitted}{slopes}. {LAW}")
    beyond = _slopes(finite_size, "power_laws_next_order")
    if beyond:
        reasons.append(f"{fitted.replace('of U₁', 'of U₁ to next order')}{beyond}.")
    reasons += _accuracy_reasons(points)
    short = _extent_at({f"N = {width_of(p)}": p for p in (compared[0], compared[-1])})
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


def _extent_at(points: Mapping[str, SweptPoint]) -> str:
    """How well the theory holds at some points, each with the name of its place, in a sentence."""
    ends = {at: point.run.differences[HEADLINE] for at, point in points.items()}
    said = [f"{extent(one)} at {at}" for at, one in ends.items() if one.said]
    return f"The theory holds in U₁ {', '.join(said)}." if said else ""


def _worst_and_best(points: Sequence[SweptPoint]) -> str:
    """The same at the points where the theory is furthest from the samples and closest to them."""
    known = [point for point in points if point.run.trusted and HEADLINE in point.run.differences]
    known.sort(key=lambda point: -point.run.differences[HEADLINE].below)
    return _extent_at({point.label: point for point in (known[:1] + known[-1:])})


def _slopes(finite_size: Mapping | None, key: str) -> str:
    """The slope of every path that has one."""
    return "; ".join(
        f"{law['path']} {Number(law['slope'], law['slope_error'])}"
        for law in (finite_size or {}).get(key, ())
        if law.get("slope") is not None
    )


def _accuracy_reasons(points: Sequence[SweptPoint]) -> tuple[str, ...]:
    """Accuracy at the smallest and the largest width."""
    solved = [p for p in points if width_of(p) and p.run.theory is not None]
    solved = sorted(solved, key=width_of)
    widths = {width_of(point) for point in solved}
    if not 2 <= len(widths) == len(solved):
        return ()
    said = []
    for point in (solved[0], solved[-1]):
        sampled = point.run.sampled_accuracy
        exact = f", exact posterior {percent(sampled.value, sampled.mcse)}" if sampled else ""
        leading = percent(point.run.theory_accuracy("theory"))
        said.append(f"{LEADING} {leading}{exact} at N = {width_of(point)}")
    limit = percent(solved[0].run.theory_accuracy("gp"))
    return (f"Accuracy: {'; '.join(said)}; infinite width {limit}.",)
