"""The results of a sweep gathered from its points: one Dataset over the swept settings.

Everything else of a sweep, its CSV files, verdicts, tables and figures, derives from the Dataset.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.compared import Compared
from sampler.analysis.labels import NEXT_ORDER, own_key
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import (
    COLUMN,
    COLUMNS,
    CUT,
    DIFFERENCE_FIELDS,
    FAILED,
    OWN,
    PASSED,
    PATHS,
    TEXTS,
    TOML,
    SweepResults,
)
from sampler.analysis.validation import SCORES
from sampler.analysis.verdict import worst
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.recipes.settings import toml_value
from sampler.storage.run_directory import (
    RECIPE_FILE,
    SCHEMA_VERSION,
    SWEEP_DATASET_FILE,
    point_directory,
)

REDUNDANCY = (
    "head_distance_matrices", "head_distance_outputs", "participation_ratio", "off_diagonal_share",
)  # fmt: skip
# Of the theory, beside what every table of it has.
NUMBERS = (
    *REDUNDANCY, "log_evidence", "log_evidence_gp", "log_evidence_gp_own",
    f"log_evidence{NEXT_ORDER}", f"accuracy{NEXT_ORDER}", "accuracy_gp_own", "gp_own_temperature",
)  # fmt: skip
VALIDATED = ("theory", "next_order", "gp", "gp_own")


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
    """Gather what is known of every point over the swept keys.

    Columns of a table, [swept key, …]; of every quantity compared how far theory and samples are
    apart, [swept key, …, quantity]; and U_1, [swept key, …, path, path_], if all points have the
    same paths. What a point lacks is NaN, or an empty text.
    """
    grid = {key: coordinate(key, values) for key, values in recipe.sweep.items()}
    shape = tuple(map(len, grid.values()))
    runs = [point.run for point in points]
    one_width = [isinstance(point.recipe.network.widths, int) for point in points]
    found = columns_of_rows([point_row(directory, point) for point in points])
    found["stored"] = ((), np.array([run.stored for run in runs]), {})
    found["one_width"] = ((), np.array(one_width), {})
    keys, differences = differences_of(runs)
    paths, matrices = order_parameters(runs)
    found |= differences | {name: (PATHS, values, {}) for name, values in matrices.items()}
    columns = {
        name: ((*grid, *axes), values.reshape(*shape, *values.shape[1:]), attributes)
        for name, (axes, values, attributes) in found.items()
    }
    coordinates = grid | {"quantity": keys} | (dict.fromkeys(PATHS, paths) if matrices else {})
    attributes = {"name": recipe.name, "schema_version": SCHEMA_VERSION}
    return xr.Dataset(columns, coords=coordinates, attrs=attributes)


def columns_of_rows(rows: Sequence[Mapping]) -> dict[str, tuple]:
    """Return axes beside the row, values [row] and attributes of every column of a table."""
    columns = {}
    for name in [*COLUMNS, *sorted({n for row in rows for n in row} - {*COLUMNS})]:
        if name in TEXTS:
            values = np.array([row.get(name, "") for row in rows], dtype=object)
        else:
            cells = (row.get(name) for row in rows)
            values = np.array([math.nan if cell is None else cell for cell in cells])
        columns[name.replace("/", "_")] = ((), values, {COLUMN: name})
    return columns


def coordinate(key: str, values: Sequence[Any]) -> xr.Variable:
    """Return values along an axis: numbers or words as they are, lists and mixtures as TOML."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return xr.Variable(key, list(values))
    texts = [value if isinstance(value, str) else toml_value(value) for value in values]
    return xr.Variable(key, texts, {TOML: 1})


def point_row(sweep: Path, point: SweptPoint) -> dict:
    """Return one row: where the point is, its width, accuracies, and scores on validation data."""
    row: dict = {
        "point": point.label,
        "directory": str(point.run.directory.relative_to(sweep)),
        "width": point.recipe.network.widest,
    }
    theory, comparison = point.run.theory, point.run.comparison
    if theory is not None:
        row |= {f"accuracy_{name}": float(theory[f"accuracy_{name}"]) for name in ("theory", "gp")}
        scores = (f"validation_{score}_{who}" for score in SCORES for who in VALIDATED)
        for name in (*CUT, *scores, *NUMBERS):
            if name in theory:
                row[name] = float(theory[name])
        if "next_order_status" in theory.attrs:
            row["next_order_status"] = theory.attrs["next_order_status"]
        if "subnetwork" in theory.coords:
            for name in theory["subnetwork"].values:
                value = theory["accuracy_gp_subnetwork"].sel(subnetwork=name)
                row[f"gp:{name}"] = float(value)
    if comparison is not None:
        row["sampled_space"] = point.run.space or point.recipe.sampler.space
        validation = comparison.get("validation") or {}
        for score, found in validation.get("sampled", {}).items():
            row[f"validation_{score}_sampled"] = found["value"]
            row[f"validation_{score}_sampled_mcse"] = found["mcse"]
        evidence, accuracy = comparison.get("log_evidence"), comparison.get("accuracy")
        if evidence and evidence.sampled and evidence.sampled.trusted:
            row["log_evidence_sampled"] = evidence.sampled.value
            row["log_evidence_sampled_mcse"] = evidence.sampled.mcse
        for key, found in (("accuracy", accuracy), ("log_evidence", evidence)):
            for name, value in ((found and found.own) or {}).items():
                row[own_key(key, name)] = float(value)
        if accuracy and accuracy.sampled:
            row["accuracy_sampled"] = accuracy.sampled.value
            row["accuracy_sampled_mcse"] = accuracy.sampled.mcse
            row["accuracy_sampled_binomial"] = accuracy.sampled.binomial_error
    if point.run.diagnostics is not None:
        row["diagnostics"] = PASSED if point.run.trusted else FAILED
        judged = list(point.run.diagnostics.quantities.values())
        if judged:
            row["r_hat"] = worst(judged, "r_hat", max)
            row["ess"] = min(worst(judged, f"ess_{part}", min) for part in ("bulk", "tail"))
    return row


def differences_of(runs: Sequence[RunResults]) -> tuple[list[str], dict[str, tuple]]:
    """Return quantities, and every field of their differences, [point, quantity]."""
    found = [run.differences for run in runs]
    keys = list(dict.fromkeys(key for of_run in found for key in of_run))
    if not keys:
        return [], {}
    columns = {}
    for name, missing, bounds in DIFFERENCE_FIELDS:
        values = [
            [getattr(of_run[key], name) if key in of_run else missing for key in keys]
            for of_run in found
        ]
        kind = object if missing == "" else np.float64
        axes = ("quantity", "bound") if bounds else ("quantity",)
        columns[f"difference_{name}"] = (axes, np.array(values, dtype=kind), {})
    return keys, columns


def order_parameters(runs: Sequence[RunResults]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return paths, and theories, sampled value and MCSE of U_1, each [point, path, path_].

    Empty if no point is solved, or if the points differ in their paths. The next order and theories
    of the user's own are left out where no point has them.
    """
    found: dict[int, dict[str, Any]] = {}
    names: set[tuple[str, ...]] = set()
    for place, run in enumerate(runs):
        if run.theory is None:
            continue
        names.add(tuple(run.path_names))
        compared = run.compared("order_parameter")
        solved = {"theory": run.theory["order_parameter"].values}
        if f"order_parameter{NEXT_ORDER}" in run.theory:
            solved["next_order"] = run.theory[f"order_parameter{NEXT_ORDER}"].values
        found[place] = ({} if compared is None else parts_of(compared)) | solved
    if len(names) != 1:
        return [], {}
    paths = list(names.pop())
    arrays = {}
    known = {part for tables in found.values() for part in tables}
    beyond = sorted(part for part in known if part == "next_order" or part.startswith(OWN))
    for part in ("theory", *beyond, "sampled", "mcse"):
        values = np.full((len(runs), len(paths), len(paths)), np.nan)
        for place, tables in found.items():
            if part in tables:
                values[place] = np.array(tables[part], dtype=float)
        arrays[f"order_parameter_{part}".replace("/", "_")] = values
    return paths, arrays


def parts_of(compared: Compared) -> dict[str, Any]:
    """Return sampled value, MCSE and the user's own theories of what is compared."""
    own = {f"{OWN}{name}": values for name, values in (compared.own or {}).items()}
    return {"sampled": compared.sampled.value, "mcse": compared.sampled.mcse} | own
