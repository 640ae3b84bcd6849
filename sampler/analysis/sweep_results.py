"""Results of a sweep: its Dataset over the swept settings, and one DataFrame of it."""

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

from sampler.analysis.difference import UNDECIDED, statement
from sampler.analysis.predictors import AXIS, LEADING, SAMPLED, is_users, predictor_name
from sampler.analysis.quantities import NUMBER
from sampler.analysis.results import RunResults
from sampler.analysis.verdict import HEADLINE, Verdict
from sampler.settings.point_labels import setting_text
from sampler.storage.directory import SWEEP_DATASET_FILE
from sampler.storage.files import read_json
from sampler.storage.result_files import has_results, read_table

SWEEP_FILE, SELECTION_FILE = "sweep.csv", "selection.json"
SEED_AVERAGES_FILE = "seed_averages.csv"
# Columns for the place of a point, not its results; those that hold text; and flags of points
# that are no columns of the table.
PLACES = ("point", "directory", "width")
TEXTS = (
    "point", "directory", "sampled_space", "saddle_point", "next_order_status", "diagnostics",
)  # fmt: skip
FLAGS = ("stored", "one_width")
PASSED, FAILED = "pass", "fail"
CONVERGED, NOT_CONVERGED = "converged", "not converged"
# Attribute of a swept setting whose values are written as in a recipe: they are lists, or mixed.
TOML = "toml"

# Columns of one quantity by one predictor, as `ComparisonTree.table` has them.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class PointSummary:
    """A point of a sweep, as its DataFrame has it.

    label      `key=value,…`
    directory  of the run
    settings   swept key → its value here, as a label of the Dataset
    columns    single columns of the table
    cells      (quantity, predictor) → numbers, differences and attributes of the quantity
    """

    label: str
    directory: Path
    settings: Mapping[str, object]
    columns: Mapping[str, Any]
    cells: Mapping[tuple[str, str], Row]

    @property
    def stored(self) -> bool:
        """Whether the run has results."""
        return bool(self.columns["stored"])

    @property
    def one_width(self) -> int | None:
        """The width of all layers; None where layers differ."""
        return int(self.columns["width"]) if self.columns["one_width"] else None

    @property
    def trusted(self) -> bool | None:
        """Whether the samples passed their diagnostics; None where nothing was sampled."""
        return {PASSED: True, FAILED: False}.get(self.text("diagnostics"))

    def number(self, quantity: str, predictor: str = LEADING, name: str = "value") -> float:
        """A number of a quantity, NaN where there is none."""
        return float(self.cells.get((quantity, predictor), {}).get(name, math.nan))

    def compared(self, quantity: str, predictor: str = LEADING) -> Row | None:
        """A predictor against the samples, for `statement`; None if no difference is stated."""
        row = self.cells.get((quantity, predictor))
        return row if row is not None and row["state"] else None

    def column(self, name: str) -> float:
        """A single number of the table, NaN where there is none."""
        return float(self.columns.get(name, math.nan))

    def text(self, name: str) -> str:
        return str(self.columns.get(name, ""))


@dataclass(frozen=True)
class SweepResults:
    """Results of a sweep: its Dataset, and those of its points; a file never written is None.

    Files are read when they are first asked for. Every property raises InputError for a file that
    is damaged or of another schema.
    """

    directory: Path

    @classmethod
    def held(cls, directory: Path, **given: Any) -> "SweepResults":
        """Results, some of them in memory: the dataset, the selection, ….

        Missing arguments are read from the directory at first use.
        """
        sweep = cls(directory)
        vars(sweep).update(given)
        return sweep

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The content of `sweep.nc`; InputError also where there is no such file."""
        return read_table(self.directory, SWEEP_DATASET_FILE)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each point, quantity and predictor, with the columns of a comparison."""
        return frame_of_sweep(self.dataset)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The content of `sweep.csv`, a row for each point."""
        return table_of_sweep(self.dataset)

    @cached_property
    def points(self) -> list[PointSummary]:
        """Every point of the grid, in its order, whether anything is stored of it or not."""
        keys, points = self.dataset["point"].dims, []
        cells: dict[str, dict] = {}
        for (label, *place), row in self.frame.to_dict("index").items():
            cells.setdefault(label, {})[*place] = row
        for place in np.ndindex(self.dataset["point"].shape):
            at = dict(zip(keys, place, strict=True))
            here = self.dataset.isel(at)
            columns = {str(name): one.item() for name, one in here.items() if not one.dims}
            settings = {str(key): setting_at(self.dataset[key], at[key]) for key in keys}
            directory, label = self.directory / columns["directory"], columns["point"]
            points.append(PointSummary(label, directory, settings, columns, cells.get(label, {})))
        return points

    @cached_property
    def rows(self) -> list[PointSummary]:
        """The points by width if only it differs, else in the order of the grid."""
        widths = [point.column("width") for point in self.points]
        distinct = np.isfinite(widths).all() and len({*widths}) == len(widths)
        return [self.points[at] for at in np.argsort(widths)] if distinct else self.points

    @property
    def widths(self) -> np.ndarray | None:
        """The width of each row; None if rows have equal widths."""
        widths = np.array([point.column("width") for point in self.rows])
        return widths if (np.diff(widths) > 0).all() else None

    def numbers(self, quantity: str, predictor: str = LEADING, name: str = "value") -> np.ndarray:
        """A number of every row, NaN where there is none."""
        return np.array([point.number(quantity, predictor, name) for point in self.rows])

    @property
    def user_theories(self) -> list[str]:
        return [name for name in map(str, self.dataset[AXIS].values) if is_users(name)]

    @cached_property
    def runs(self) -> list[RunResults | None]:
        """The results of every row; None where nothing is stored."""
        places = [point.directory for point in self.rows]
        return [self.read.get(at, RunResults(at)) if has_results(at) else None for at in places]

    @cached_property
    def read(self) -> dict[Path, RunResults]:
        """Results of points whose files were read when the sweep was gathered, by directory."""
        return {}

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


# --- derived from the Dataset


def frame_of_sweep(dataset: xr.Dataset) -> pd.DataFrame:
    """Numbers, states and attributes of quantities, by (point, quantity, predictor)."""
    grid, within = dataset["point"].dims, ({"quantity"}, {"quantity", AXIS})
    names = [str(name) for name, of in dataset.items() if set(of.dims) - {*grid} in within]
    frame = dataset[["point", *names]].to_dataframe(dim_order=[*grid, "quantity", AXIS])
    return frame.reset_index().set_index(["point", "quantity", AXIS])


def table_of_sweep(dataset: xr.Dataset) -> pd.DataFrame:
    """The table of a sweep, a row for each point in the order of the grid.

    Numbers have columns `<quantity>_<predictor>`, those of the samples their Monte Carlo error as
    `<quantity>_sampled_error` and the error by the finite test set as `…_test_error`.
    """
    grid, frame = dataset["point"].dims, frame_of_sweep(dataset)
    single = [str(name) for name, of in dataset.items() if of.dims == grid and name not in FLAGS]
    columns = {name: dataset[name].values.ravel() for name in single}
    numbers = frame[frame["show"] == NUMBER]
    for name, ending in {"value": "", "error": "_error", "test_error": "_test_error"}.items():
        for (quantity, who), values in numbers[name].unstack(["quantity", AXIS]).items():
            if values.notna().any() and (name == "value" or who == SAMPLED):
                told = values.reindex(columns["point"]).values
                columns[f"{quantity}_{who}{ending}"] = told
    others = sorted({*columns} - {*PLACES})
    return pd.DataFrame({name: columns[name] for name in [*PLACES, *others]})


def setting_at(axis: xr.DataArray, place: int) -> Any:
    """The value of a swept setting, read as a recipe where it is written so."""
    value = axis.values[place]
    if TOML not in axis.attrs:
        return value.item() if isinstance(value, np.generic) else value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:  # a word with lists
        return value


def is_seed(key: str) -> bool:
    """Whether a swept key only draws other random numbers."""
    return key.rpartition(".")[2] in ("seed", "head_seed")


def seed_averages(table: pd.DataFrame, settings: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Settings without seeds, the number of points, and every column's mean and standard error.

    Points that lack a number do not count for it; one number alone has no error. `unsolved` counts
    how many no saddle point was found, which lack the numbers of the theory, and `failed` at how
    many the diagnostics failed, which do not count for numbers of the samples.
    """
    others = [
        ",".join(setting_text(key, value) for key, value in of_point.items() if not is_seed(key))
        for of_point in settings
    ]
    numbers = table.drop(columns=[*PLACES, *TEXTS], errors="ignore").astype(float)
    # The error over points has the name of the error of one point, and is of both together.
    of_one = [name for name in numbers if name.endswith((f"_{SAMPLED}_error", "_test_error"))]
    numbers = numbers.drop(columns=of_one)
    nowhere = pd.Series("", table.index)
    unsolved = table.get("saddle_point", nowhere) == NOT_CONVERGED
    failed = table.get("diagnostics", nowhere) == FAILED
    of_samples = [name for name in numbers if name.endswith(f"_{SAMPLED}")]
    numbers.loc[failed, of_samples] = np.nan
    groups = numbers.groupby(index := pd.Index(others, name="settings"), sort=False)
    errors = groups.sem().add_suffix("_error")
    counts = {"points": groups.size()} | {
        name: of.groupby(index, sort=False).sum()
        for name, of in {"unsolved": unsolved, "failed": failed}.items()
    }
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
        headline = f"Diagnostics failed at {len(failed)} of {len(sampled)} sampled points."
        return Verdict("bad", headline, (*reasons, f"They failed at {', '.join(failed)}."))
    headline = f"Diagnostics passed at all {len(sampled)} sampled points."
    return Verdict("good", headline, reasons)


def sweep_trend(points: Sequence[PointSummary]) -> Verdict:
    """Whether the relative error of the theory in U_1 falls as the width grows.

    It does where its 95 % interval at the largest width lies below that at the smallest. Only
    points with trusted samples count, whatever their error; too few draws at an end decide nothing.
    """
    compared = [p for p in points if p.trusted and p.one_width and p.compared(HEADLINE)]
    compared.sort(key=lambda point: point.one_width)
    widths = {point.one_width for point in compared}
    if len(widths) < 2:
        headline = "No trend with width: fewer than two widths have trusted samples and a theory."
        return Verdict("neutral", headline, (), worst_and_best(points))
    if len(widths) < len(compared):
        headline = "Several points share a width: the table compares theory and samples at each."
        return Verdict("neutral", headline, (), worst_and_best(points))
    at_width = {f"N = {point.one_width}": point for point in compared}
    reasons = tuple(
        f"U₁, {at}: {statement(point.compared(HEADLINE))}." for at, point in at_width.items()
    )
    narrow, wide = (compared[at].compared(HEADLINE) for at in (0, -1))
    tone, headline = "neutral", "The draws do not tell whether the relative error in U₁ changes."
    if not {narrow["state"], wide["state"]} & {*UNDECIDED}:
        if wide["low"] > narrow["high"]:
            tone, headline = (
                "caution",
                "The relative error of the theory in U₁ grows with the width.",
            )
        elif wide["high"] < narrow["low"]:
            tone, headline = "good", "The relative error of the theory in U₁ falls with the width."
    first, *_, last = at_width
    return Verdict(tone, headline, reasons, extent_at({at: at_width[at] for at in (first, last)}))


def extent_at(points: Mapping[str, PointSummary]) -> str:
    """A sentence on how far the theory is off at some points, each with the name of its place."""
    rows = {at: point.compared(HEADLINE) for at, point in points.items()}
    texts = [
        f"{statement(row)} at {at}" for at, row in rows.items() if row["state"] not in UNDECIDED
    ]
    return f"U₁, {predictor_name(LEADING)}: {'; '.join(texts)}." if texts else ""


def worst_and_best(points: Sequence[PointSummary]) -> str:
    """The same at the points where the theory is furthest from the samples and closest to them."""
    compared = [point for point in points if point.trusted and point.compared(HEADLINE)]
    compared.sort(key=lambda point: -point.compared(HEADLINE)["below"])
    return extent_at({point.label: point for point in (*compared[:1], *compared[-1:])})
