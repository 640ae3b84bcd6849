"""The results of a sweep gathered from its points: one Dataset over the swept settings.

The summaries of all points stand in it along the swept keys, [swept key, …, quantity, predictor],
U_1 as [swept key, …, predictor, path, path_], and single columns as [swept key, …]. Everything else
of a sweep, its CSV files, verdicts, tables and figures, derives from it.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.comparison import NUMBERS, summary_of_theory
from sampler.analysis.predictors import AXIS, SAMPLED, in_order
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import (
    COLUMN,
    CUT,
    FAILED,
    PASSED,
    PATHS,
    SUB_NETWORK,
    TEXTS,
    TOML,
    SweepResults,
)
from sampler.analysis.verdict import worst
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.recipes.settings import toml_value
from sampler.storage.run_directory import (
    RECIPE_FILE,
    SCHEMA_VERSION,
    SWEEP_DATASET_FILE,
    point_directory,
)

# Columns of `theory.nc` without predictors that a point has in the table.
OF_THEORY = (
    *CUT, "head_distance_matrices", "head_distance_outputs", "participation_ratio",
    "off_diagonal_share",
)  # fmt: skip


@dataclass(frozen=True)
class SweptPoint:
    """A point of a grid and what is stored of it.

    label: `key=value,…`.  settings: the swept keys and their values here.
    """

    label: str
    settings: Mapping[str, object]
    recipe: Recipe
    run: RunResults


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


def stored_sweep(directory: Path) -> SweepResults:
    """Open a sweep as it was last gathered, or gather it where it never was."""
    if (directory / SWEEP_DATASET_FILE).is_file():
        return SweepResults(directory)
    return gathered(directory, load_recipe(directory / RECIPE_FILE))


def gathered(
    directory: Path, recipe: Recipe, points: Sequence[SweptPoint] | None = None
) -> SweepResults:
    """Return the results of a sweep as its points are now.

    points: `swept_points`, where they are known and are wanted once more.
    """
    points = swept_points(directory, recipe) if points is None else points
    return SweepResults.held(directory, dataset=sweep_dataset(directory, recipe, points))


def sweep_dataset(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> xr.Dataset:
    """Everything of every point over the swept keys; what one lacks is NaN, or an empty text."""
    grid = {key: coordinate(key, values) for key, values in recipe.sweep.items()}
    shape = tuple(map(len, grid.values()))
    runs = [point.run for point in points]
    of_points = columns_of_rows([point_row(directory, point) for point in points])
    of_points["stored"] = ((), np.array([run.stored for run in runs]), {})
    one_width = [isinstance(point.recipe.network.widths, int) for point in points]
    of_points["one_width"] = ((), np.array(one_width), {})
    summaries = summaries_of(runs)
    predictors = in_order(unique(name for one in summaries for name in one[AXIS].values))
    quantities = unique(name for one in summaries for name in one["quantity"].values)
    of_points |= summary_columns(summaries, quantities, predictors)
    coordinates: dict[str, Any] = grid | {"quantity": quantities, AXIS: predictors}
    paths, matrices = order_parameters(runs, predictors)
    if paths:
        of_points |= matrices
        coordinates |= dict.fromkeys(PATHS, paths)
    names, accuracies = sub_networks(runs)
    if names:
        of_points["accuracy_of_sub_network"] = ((SUB_NETWORK,), accuracies, {})
        coordinates[SUB_NETWORK] = names
    columns = {
        name: ((*grid, *axes), values.reshape(*shape, *values.shape[1:]), attributes)
        for name, (axes, values, attributes) in of_points.items()
    }
    columns |= about_quantities(summaries, quantities)
    attributes = {"name": recipe.name, "schema_version": SCHEMA_VERSION}
    return xr.Dataset(columns, coords=coordinates, attrs=attributes)


def unique(names: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(map(str, names)))


def columns_of_rows(rows: Sequence[Mapping]) -> dict[str, tuple]:
    """Axes beside the point, values [point] and attributes of every column of a table."""
    columns = {}
    for name in unique(name for row in rows for name in row):
        if name in TEXTS:
            values = np.array([row.get(name, "") for row in rows], dtype=object)
        else:
            values = np.array([row.get(name, math.nan) for row in rows])
        columns[name] = ((), values, {COLUMN: name})
    return columns


def coordinate(key: str, values: Sequence[Any]) -> xr.Variable:
    """Return values along an axis: numbers or words as they are, lists and mixtures as TOML."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return xr.Variable(key, list(values))
    texts = [value if isinstance(value, str) else toml_value(value) for value in values]
    return xr.Variable(key, texts, {TOML: 1})


def point_row(sweep: Path, point: SweptPoint) -> dict[str, Any]:
    """Where the point is, its width, what its theory says of heads, and the state of its draws."""
    run = point.run
    row: dict[str, Any] = {
        "point": point.label,
        "directory": str(run.directory.relative_to(sweep)),
        "width": point.recipe.network.widest,
    }
    if run.theory is not None:
        row |= {name: float(run.theory[name]) for name in OF_THEORY if name in run.theory}
        if "next_order_status" in run.theory.attrs:
            row["next_order_status"] = run.theory.attrs["next_order_status"]
    if run.comparison is not None:
        row["sampled_space"] = run.space or point.recipe.sampler.space
        row["diagnostics"] = PASSED if run.trusted else FAILED
        judged = list(run.diagnostics.quantities.values())
        if judged:
            row["r_hat"] = worst(judged, "r_hat", max)
            row["ess"] = min(worst(judged, f"ess_{part}", min) for part in ("bulk", "tail"))
    return row


def summaries_of(runs: Sequence[RunResults]) -> list[xr.Dataset]:
    """The summary of every point: that of its comparison over what the theory says alone."""
    nothing = xr.Dataset(coords={"quantity": [], AXIS: []})
    summaries = []
    for run in runs:
        of_theory = nothing if run.theory is None else summary_of_theory(run.theory)
        if run.comparison is None:
            summaries.append(of_theory)
            continue
        summary = run.comparison.summary
        if run.drawn_attribute("log_evidence_trusted", "sample_stats") == 0:
            untrusted = (summary["quantity"] == "log_evidence") & (summary[AXIS] == SAMPLED)
            summary = summary.assign({name: summary[name].where(~untrusted) for name in NUMBERS})
        summaries.append(merged(summary, of_theory))
    return summaries


def merged(compared: xr.Dataset, of_theory: xr.Dataset) -> xr.Dataset:
    """A comparison with the quantities of the theory that it lacks."""
    missing = [name for name in of_theory["quantity"].values
               if name not in compared["quantity"].values]  # fmt: skip
    predictors = unique([*compared[AXIS].values, *of_theory[AXIS].values])
    if not missing and len(predictors) == compared.sizes[AXIS]:
        return compared
    both = [one.reindex({AXIS: predictors}) for one in (compared, of_theory.sel(quantity=missing))]
    both = [one.assign(state=one["state"].fillna("")) for one in both]
    return xr.concat(both, "quantity", data_vars="all", join="override")


def summary_columns(
    summaries: Sequence[xr.Dataset], quantities: Sequence[str], predictors: Sequence[str]
) -> dict[str, tuple]:
    """Every number of the summaries, [point, quantity, predictor]."""
    shape = (len(summaries), len(quantities), len(predictors))
    columns = {name: np.full(shape, np.nan) for name in NUMBERS}
    states = np.full(shape, "", dtype=object)
    for place, summary in enumerate(summaries):
        if not summary.sizes["quantity"]:
            continue
        rows = [quantities.index(str(name)) for name in summary["quantity"].values]
        beside = [predictors.index(str(name)) for name in summary[AXIS].values]
        at = np.ix_([place], rows, beside)
        for name, values in columns.items():
            values[at] = summary[name].values[None]
        states[at] = summary["state"].values[None]
    axes = ("quantity", AXIS)
    return {name: (axes, values, {}) for name, values in columns.items()} | {
        "state": (axes, states, {})
    }


def about_quantities(summaries: Sequence[xr.Dataset], quantities: Sequence[str]) -> dict:
    """Label, unit and form of every quantity."""
    about: dict[str, dict[str, Any]] = {}
    for summary in summaries:
        for place, name in enumerate(map(str, summary["quantity"].values)):
            words = {key: summary[key].values[place] for key in ("label", "unit", "show", "share")}
            known = about.setdefault(name, words)
            known["unit"] = known["unit"] or words["unit"]
    return {
        key: ("quantity", np.array([about[name][key] for name in quantities], dtype=object))
        for key in ("label", "unit", "show")
    } | {"share": ("quantity", np.array([int(about[name]["share"]) for name in quantities], int))}


def order_parameters(
    runs: Sequence[RunResults], predictors: Sequence[str]
) -> tuple[list[str], dict[str, tuple]]:
    """Paths, U_1 [point, predictor, path, path_] with the samples, and its Monte Carlo error.

    Nothing if no point has one, or if the points differ in their paths.
    """
    names = {tuple(run.path_names) for run in runs} - {()}
    if len(names) != 1:
        return [], {}
    paths = list(names.pop())
    shape = (len(runs), len(predictors), len(paths), len(paths))
    values, errors = np.full(shape, np.nan), np.full((len(runs), *shape[2:]), np.nan)
    for place, run in enumerate(runs):
        for predictor, matrix in run.predictions("order_parameter").items():
            if predictor in predictors:
                values[place, predictors.index(predictor)] = matrix
        sampled = run.sampled("order_parameter")
        if sampled is not None:
            values[place, predictors.index(SAMPLED)] = sampled.value
            errors[place] = sampled.mcse
    return paths, {
        "order_parameter": ((AXIS, *PATHS), values, {}),
        "order_parameter_error": (PATHS, errors, {}),
    }


def sub_networks(runs: Sequence[RunResults]) -> tuple[list[str], np.ndarray]:
    """Names of the sub-networks, and their accuracies at infinite width [point, sub-network]."""
    tables = [run.theory for run in runs]
    known = [t is not None and SUB_NETWORK in t.coords for t in tables]
    names = unique(
        name
        for t, there in zip(tables, known, strict=True)
        if there
        for name in t[SUB_NETWORK].values
    )
    values = np.full((len(runs), len(names)), np.nan)
    for place, (table, there) in enumerate(zip(tables, known, strict=True)):
        for column, name in enumerate(names):
            if there and name in table[SUB_NETWORK].values:
                values[place, column] = table["accuracy_of_sub_network"].sel({SUB_NETWORK: name})
    return names, values
