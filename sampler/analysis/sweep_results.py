"""Results of a sweep: its Dataset over the swept settings, and the tables that derive from it."""

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from sampler.analysis.comparison import difference_at, number_of
from sampler.analysis.difference import Difference
from sampler.analysis.predictors import (
    AXIS,
    INFINITE,
    LEADING,
    SAMPLED,
    TUNED,
    is_users,
    predictor_name,
)
from sampler.analysis.quantities import NUMBER
from sampler.analysis.results import RunResults
from sampler.analysis.text import percent
from sampler.analysis.verdict import HEADLINE, Verdict
from sampler.settings.point_labels import setting_text
from sampler.storage.directory import SWEEP_DATASET_FILE
from sampler.storage.files import read_json
from sampler.storage.result_files import has_results, read_table

SWEEP_FILE, SELECTION_FILE = "sweep.csv", "selection.json"
SEED_AVERAGES_FILE = "seed_averages.csv"
# Columns that say where a point is, not what it came to; those that hold text; and flags of points
# that are no columns of the table.
PLACES = ("point", "directory", "width")
TEXTS = ("point", "directory", "sampled_space", "next_order_status", "diagnostics")
FLAGS = ("stored", "one_width")
PASSED, FAILED = "pass", "fail"
# Attribute of a swept setting whose values are written as in a recipe: they are lists, or mixed.
TOML = "toml"
PATHS = ("path", "path_")


def table_of_sweep(dataset: xr.Dataset) -> pd.DataFrame:
    """The table of a sweep, a row for each point in the order of the grid.

    Numbers have columns `<quantity>_<predictor>`, those of the samples their Monte Carlo error as
    `<quantity>_sampled_error` and the error by the finite test set as `…_test_error`.
    """
    grid = dataset["point"].dims
    columns = {str(name): values for name, values in dataset.items() if values.dims == grid}
    columns = {name: values for name, values in columns.items() if name not in FLAGS}
    numbers = dataset.isel(quantity=(dataset["show"] == NUMBER).values)
    for quantity, predictor in itertools.product(*(numbers[n].values for n in ("quantity", AXIS))):
        cells = numbers.sel({"quantity": quantity, AXIS: predictor})
        endings = {"": "value"}
        if predictor == SAMPLED:
            endings |= {"_error": "error", "_test_error": "test_error"}
        for ending, name in endings.items():
            if cells[name].notnull().any():
                columns[f"{quantity}_{predictor}{ending}"] = cells[name]
    others = sorted({*columns} - {*PLACES})
    return pd.DataFrame({name: columns[name].values.ravel() for name in [*PLACES, *others]})


@dataclass(frozen=True)
class PointSummary:
    """A point of a sweep, as its Dataset has it.

    label      `key=value,…`
    directory  of the run
    settings   swept key → its value here, as a label of the Dataset
    one_width  the width of all layers; None where layers differ
    stored     whether the run has results
    summary    numbers and differences [quantity, predictor], and single columns of the table
    """

    label: str
    directory: Path
    settings: Mapping[str, object]
    one_width: int | None
    stored: bool
    summary: xr.Dataset

    @property
    def trusted(self) -> bool | None:
        """Whether the samples passed their diagnostics; None where nothing was sampled."""
        return {PASSED: True, FAILED: False}.get(self.text("diagnostics"))

    @property
    def solved(self) -> bool:
        return math.isfinite(self.column("participation_ratio"))

    def number(self, quantity: str, predictor: str = LEADING, name: str = "value") -> float:
        """A number of the summary, NaN where there is none."""
        return number_of(self.summary, quantity, predictor, name)

    def difference(self, quantity: str, predictor: str = LEADING) -> Difference | None:
        """A predictor against the samples as a whole; None where nothing is said of it."""
        return difference_at(self.summary, quantity, predictor)

    def column(self, name: str) -> float:
        """A single number of the table, NaN where there is none."""
        return float(self.summary[name]) if name in self.summary else math.nan

    def text(self, name: str) -> str:
        return str(self.summary[name].values) if name in self.summary else ""


@dataclass(frozen=True)
class SweepResults:
    """Results of a sweep: its Dataset, and those of its points; a file never written is None.

    Files are read when they are first asked for. Every property raises InputError for a file that
    is damaged or of another schema.
    """

    directory: Path

    @classmethod
    def held(cls, directory: Path, **given: Any) -> "SweepResults":
        """Results of which some are in memory: the dataset, the selection, ….

        What is not given is read from the directory when it is asked for.
        """
        sweep = cls(directory)
        vars(sweep).update(given)
        return sweep

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The content of `sweep.nc`; InputError also where there is no such file."""
        return read_table(self.directory, SWEEP_DATASET_FILE)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The content of `sweep.csv`, a row for each point."""
        return table_of_sweep(self.dataset)

    @cached_property
    def points(self) -> list[PointSummary]:
        """Every point of the grid, in its order, whether anything is stored of it or not."""
        return points_of_dataset(self.dataset, self.directory)

    @cached_property
    def rows(self) -> list[PointSummary]:
        """The points by width where it is what tells them apart, else in the order of the grid."""
        widths = [point.column("width") for point in self.points]
        distinct = np.isfinite(widths).all() and len({*widths}) == len(widths)
        return [self.points[at] for at in np.argsort(widths)] if distinct else self.points

    @property
    def widths(self) -> np.ndarray | None:
        """The width of each row; None if the rows are not told apart by their width."""
        widths = self.columns("width")
        return widths if (np.diff(widths) > 0).all() else None

    def numbers(self, quantity: str, predictor: str = LEADING, name: str = "value") -> np.ndarray:
        """A number of every row, NaN where there is none."""
        return np.array([point.number(quantity, predictor, name) for point in self.rows])

    def columns(self, name: str) -> np.ndarray:
        """A single column of the table for every row, NaN where there is nothing."""
        return np.array([point.column(name) for point in self.rows])

    @property
    def user_theories(self) -> list[str]:
        return [name for name in map(str, self.dataset[AXIS].values) if is_users(name)]

    @cached_property
    def runs(self) -> list[RunResults | None]:
        """The results of every row; None where nothing is stored."""
        places = [point.directory for point in self.rows]
        return [RunResults(place) if has_results(place) else None for place in places]

    @property
    def solved(self) -> RunResults | None:
        return next((run for run in self.runs if run is not None and run.theory is not None), None)

    @cached_property
    def selection(self) -> dict[str, dict] | None:
        """The content of `selection.json`: the temperature chosen at each of the other settings."""
        path = self.directory / SELECTION_FILE
        return read_json(path) if path.is_file() else None

    @cached_property
    def seed_averages(self) -> pd.DataFrame | None:
        """The content of `seed_averages.csv`; None where no seed is swept."""
        if not any(map(is_seed, self.dataset["point"].dims)):
            return None
        return seed_averages(self.table, [point.settings for point in self.points])


# --- what is derived from the Dataset


def points_of_dataset(dataset: xr.Dataset, directory: Path) -> list[PointSummary]:
    """Every point of a sweep, in the order of its grid."""
    keys, points = dataset["point"].dims, []
    for place in np.ndindex(dataset["point"].shape):
        at = dict(zip(keys, place, strict=True))
        summary = dataset.isel(at)
        points.append(
            PointSummary(
                label=str(summary["point"].values),
                directory=directory / str(summary["directory"].values),
                settings={str(key): setting_at(dataset[key], at[key]) for key in keys},
                one_width=int(summary["width"]) if bool(summary["one_width"]) else None,
                stored=bool(summary["stored"]),
                summary=summary,
            )
        )
    return points


def setting_at(axis: xr.DataArray, place: int) -> Any:
    """The value of a swept setting, read as a recipe where it is written so."""
    value = axis.values[place]
    if TOML not in axis.attrs:
        return value.item() if isinstance(value, np.generic) else value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:  # a word beside lists
        return value


def is_seed(key: str) -> bool:
    """Whether a swept key only draws other random numbers."""
    return key.rpartition(".")[2] in ("seed", "head_seed")


def seed_averages(table: pd.DataFrame, settings: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Settings without seeds, the number of points, and every column's mean and standard error.

    Points that lack a number do not count for it; one number alone has no error. Points whose
    diagnostics failed do not count for numbers of the samples: `failed` says how many they are.
    """
    others = [
        ",".join(setting_text(key, value) for key, value in of_point.items() if not is_seed(key))
        for of_point in settings
    ]
    numbers = table.drop(columns=[*PLACES, *TEXTS], errors="ignore").astype(float)
    # The error over points has the name of the error of one point, and is of both together.
    of_one = [name for name in numbers if name.endswith((f"_{SAMPLED}_error", "_test_error"))]
    numbers = numbers.drop(columns=of_one)
    failed = pd.Series(False, table.index)
    if "diagnostics" in table:
        failed = table["diagnostics"] == FAILED
    of_samples = [name for name in numbers if name.endswith(f"_{SAMPLED}")]
    numbers.loc[failed, of_samples] = np.nan
    groups = numbers.groupby(index := pd.Index(others, name="settings"), sort=False)
    errors = groups.sem().add_suffix("_error")
    counts = {"points": groups.size(), "failed": failed.groupby(index, sort=False).sum()}
    averages = pd.concat([pd.DataFrame(counts), groups.mean(), errors], axis=1)
    by_column = [name for column in numbers for name in (column, f"{column}_error")]
    return averages[[*counts, *by_column]].reset_index()


# --- verdicts


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


def sweep_trend(points: Sequence[PointSummary]) -> Verdict:
    """Whether theory and exact posterior approach each other as the width grows.

    They do where the 95 % interval of the relative difference of U_1 at the largest width lies
    below that at the smallest. Only points with trusted samples count, whatever their difference;
    too few draws at an end decide nothing.
    """
    compared = [p for p in points if p.trusted and p.one_width and p.difference(HEADLINE)]
    compared.sort(key=lambda point: point.one_width)
    widths, accuracies = {point.one_width for point in compared}, accuracy_reasons(points)
    if len(widths) < 2:
        headline = "No trend with width: fewer than two widths have trusted samples and a theory."
        return Verdict("neutral", headline, accuracies, worst_and_best(points))
    if len(widths) < len(compared):
        headline = "Several points share a width: the table compares theory and samples at each."
        return Verdict("neutral", headline, accuracies, worst_and_best(points))
    of_widths = [f"U₁, N = {p.one_width}: {p.difference(HEADLINE).text()}." for p in compared]
    reasons = (*of_widths, *accuracies)
    short = extent_at({f"N = {p.one_width}": p for p in (compared[0], compared[-1])})
    narrow, wide = (p.difference(HEADLINE) for p in (compared[0], compared[-1]))
    tone = "neutral"
    headline = (
        "The draws cannot tell whether theory and exact posterior differ less in U₁ the larger the "
        "width."
    )
    if not (narrow.decided and wide.decided):
        return Verdict(tone, headline, reasons, short)
    if wide.low > narrow.high:
        tone = "caution"
        headline = "Theory and exact posterior differ more in U₁ the larger the width."
    elif wide.high < narrow.low:
        tone = "good"
        headline = "Theory and exact posterior differ less in U₁ the larger the width."
    return Verdict(tone, headline, reasons, short)


def extent_at(points: Mapping[str, PointSummary]) -> str:
    """A sentence on how far the theory is off at some points, each with the name of its place."""
    ends = {at: point.difference(HEADLINE) for at, point in points.items()}
    texts = [
        f"{difference.text()} at {at}" for at, difference in ends.items() if difference.decided
    ]
    return f"U₁, {predictor_name(LEADING)}: {'; '.join(texts)}." if texts else ""


def worst_and_best(points: Sequence[PointSummary]) -> str:
    """The same at the points where the theory is furthest from the samples and closest to them."""
    compared = [point for point in points if point.trusted and point.difference(HEADLINE)]
    compared.sort(key=lambda point: -point.difference(HEADLINE).below)
    return extent_at({point.label: point for point in (*compared[:1], *compared[-1:])})


def accuracy_reasons(points: Sequence[PointSummary]) -> tuple[str, ...]:
    """Accuracies at both ends, beside the better of both kinds of infinite width."""
    solved = sorted((p for p in points if p.one_width and p.solved), key=lambda p: p.one_width)
    widths = {point.one_width for point in solved}
    if not 2 <= len(widths) == len(solved):
        return ()
    texts = []
    for point in (solved[0], solved[-1]):
        value, error, test_error = (
            point.number("accuracy", SAMPLED, name) for name in ("value", "error", "test_error")
        )
        sampled = f"{percent(value, error, test_error=test_error)} (± MCSE ± test set)"
        exact = f", exact posterior {sampled}" if point.trusted and np.isfinite(value) else ""
        leading = percent(point.number("accuracy"))
        texts.append(f"{predictor_name(LEADING)} {leading}{exact} at N = {point.one_width}")
    same, tuned = (solved[0].number("accuracy", name) for name in (INFINITE, TUNED))
    limit = f"{percent(same)} at the same temperature"
    if np.isfinite(tuned):
        limit = f"{limit}, {percent(tuned)} tuned"
    return (f"Accuracy: {'; '.join(texts)}; {predictor_name(INFINITE)} {limit}.",)
