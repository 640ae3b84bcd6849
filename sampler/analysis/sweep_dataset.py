"""The results of a sweep gathered from its points: one Dataset over the swept settings.

It has the summaries of all points along the swept keys, [swept key, …, quantity, predictor],
U_1 as [swept key, …, predictor, path, path_], and single columns as [swept key, …]. Everything else
of a sweep, its CSV files, verdicts, tables and figures, derives from it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.comparison import ABOUT, NUMBERS, summary_of_theory, summary_table
from sampler.analysis.difference import NOT_TRUSTED
from sampler.analysis.predictors import AXIS, SAMPLED, in_order
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_results import (
    CONVERGED,
    FAILED,
    NOT_CONVERGED,
    PASSED,
    TEXTS,
    TOML,
    SweepResults,
)
from sampler.analysis.verdict import saddle_point_converged, worst
from sampler.settings.recipe import Recipe
from sampler.settings.toml import toml_value
from sampler.storage.directory import RECIPE_FILE, SWEEP_DATASET_FILE, point_directory
from sampler.storage.files import SCHEMA_VERSION

PATHS = ("path", "path_")
# Columns of `theory.nc` without predictors that a point has in the table.
OF_THEORY = (
    "head_distance_matrices", "head_distance_outputs", "participation_ratio", "off_diagonal_share",
)  # fmt: skip


@dataclass(frozen=True)
class SweptPoint:
    """A point of a grid and its stored results.

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
    return gathered(directory, Recipe.load(directory / RECIPE_FILE))


def gathered(
    directory: Path, recipe: Recipe, points: Sequence[SweptPoint] | None = None
) -> SweepResults:
    """Return the results of a sweep as its points are now.

    points: `swept_points`, if known already.
    """
    points = swept_points(directory, recipe) if points is None else points
    dataset = sweep_dataset(directory, recipe, points)
    read = {point.run.directory: point.run for point in points}
    return SweepResults.held(directory, dataset=dataset, read=read)


def sweep_dataset(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> xr.Dataset:
    """Everything of every point over the swept keys; missing values are NaN, or an empty text."""
    summaries = [summary_of(point.run) for point in points]
    same_paths = len({tuple(point.run.path_names) for point in points} - {()}) == 1
    tables = []
    for point, summary in zip(points, summaries, strict=True):
        parts = [summary.drop_vars(ABOUT), xr.Dataset(point_row(directory, point))]
        parts += [order_parameter(point.run)] if same_paths else []
        tables.append(xr.merge(parts, join="outer", compat="no_conflicts"))
    about = about_quantities(summaries)
    table = xr.merge([along_grid(recipe.sweep, tables), about], join="outer", compat="no_conflicts")
    quantities = dict.fromkeys(str(name) for one in summaries for name in one["quantity"].values)
    order = {"quantity": list(quantities), AXIS: in_order(map(str, table[AXIS].values))}
    for name in {*TEXTS, "state"} & {*map(str, table)}:
        table[name] = table[name].astype(object).fillna("")
    return table.reindex(order).assign_attrs(name=recipe.name, schema_version=SCHEMA_VERSION)


def along_grid(grid: Mapping[str, Sequence[Any]], tables: Sequence[xr.Dataset]) -> xr.Dataset:
    """Tables of all points, in the order of the grid, along the swept keys; NaN where one lacks it.

    Points may differ in their variables and in the labels of an axis.
    """
    axes = {key: coordinate(key, values) for key, values in grid.items()}
    tables = xr.align(*tables, join="outer")
    names = dict.fromkeys(name for table in tables for name in table)
    labels = {name: axis for table in tables for name, axis in table.coords.items()}
    places, placed = itertools.product(*(axis.values for axis in axes.values())), []
    for place, table in zip(places, tables, strict=True):
        missing = {name: np.nan for name in names if name not in table}
        at = {key: [value] for key, value in zip(axes, place, strict=True)}
        placed.append(table.assign(missing).assign_coords(labels).expand_dims(at))
    table = xr.combine_by_coords(placed, data_vars="all", coords="minimal", combine_attrs="drop")
    return table.reindex(axes).assign_coords(axes).transpose(*axes, ...)


def coordinate(key: str, values: Sequence[Any]) -> xr.Variable:
    """Return values along an axis: numbers or words as they are, lists and mixtures as TOML."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return xr.Variable(key, list(values))
    texts = [value if isinstance(value, str) else toml_value(value) for value in values]
    return xr.Variable(key, texts, {TOML: 1})


def point_row(sweep: Path, point: SweptPoint) -> dict[str, Any]:
    """Directory of the point, its width, head scores of its theory, and the state of its draws."""
    run, network = point.run, point.recipe.network
    row: dict[str, Any] = {
        "point": point.label,
        "directory": str(run.directory.relative_to(sweep)),
        "width": network.widest,
        "stored": run.stored,
        "one_width": isinstance(network.widths, int),
    }
    if run.theory is not None:
        row |= {name: float(run.theory[name]) for name in OF_THEORY if name in run.theory}
        row["saddle_point"] = CONVERGED if saddle_point_converged(run.theory) else NOT_CONVERGED
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


def summary_of(run: RunResults) -> xr.Dataset:
    """The summary of a comparison, with the quantities of the theory that it lacks.

    A number of the samples that fails a check of its own, as an evidence may, is NaN; where all
    fail, the column `diagnostics` is `fail`.
    """
    of_theory = summary_table({}, []) if run.theory is None else summary_of_theory(run.theory)
    if run.comparison is None:
        return of_theory
    summary = run.comparison.summary
    if run.trusted:
        untrusted = (summary["state"] == NOT_TRUSTED) & (summary[AXIS] == SAMPLED)
        summary = summary.assign({name: summary[name].where(~untrusted) for name in NUMBERS})
    missing = ~of_theory["quantity"].isin(summary["quantity"]).values
    tables = [summary, of_theory.isel(quantity=missing)]
    both = xr.concat(tables, "quantity", data_vars="all", join="outer")
    return both.assign(state=both["state"].fillna(""))


def about_quantities(summaries: Sequence[xr.Dataset]) -> xr.Dataset:
    """Label, unit and form of every quantity."""
    tables = [t[["label", "unit", "show", "share"]] for t in summaries if t.sizes["quantity"]]
    about = reduce(xr.Dataset.combine_first, tables or summaries[:1])
    return about.assign(share=about["share"].astype(int))


def order_parameter(run: RunResults) -> xr.Dataset:
    """U_1 [predictor, path, path_] with the samples, and its Monte Carlo error."""
    matrices, sampled = run.predictions("order_parameter"), run.sampled("order_parameter")
    columns: dict[str, Any] = {}
    if sampled is not None:
        matrices[SAMPLED] = sampled.value
        columns["order_parameter_error"] = (PATHS, sampled.mcse)
    if not matrices:
        return xr.Dataset()
    columns["order_parameter"] = ((AXIS, *PATHS), np.stack(list(matrices.values())))
    return xr.Dataset(columns, {AXIS: list(matrices)} | dict.fromkeys(PATHS, run.path_names))
