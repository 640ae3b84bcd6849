"""The tables of a sweep, and its results on its grid."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.compared import Compared
from sampler.analysis.estimate import fit_power_law
from sampler.analysis.labels import NEXT_ORDER, own_key
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import (
    FINITE_SIZE_FILE,
    SEED_AVERAGES_FILE,
    SWEEP_DATASET_FILE,
    SWEEP_FILE,
    SweptPoint,
    read_rows,
    swept_points,
)
from sampler.analysis.validation import SCORES
from sampler.jobs.selection import write_selection
from sampler.recipes.recipe import Recipe
from sampler.recipes.settings import setting_text, toml_value
from sampler.storage.run_directory import (
    SCHEMA_VERSION,
    write_atomically,
    write_json,
)

REDUNDANCY = (
    "head_distance_matrices", "head_distance_outputs", "path_alignment", "participation_ratio",
    "off_diagonal_share",
)  # fmt: skip
# Of the theory, beside what every table of it has; a table of an earlier version has fewer.
NUMBERS = (
    *REDUNDANCY, "log_evidence", "log_evidence_gp", f"log_evidence{NEXT_ORDER}",
    f"accuracy{NEXT_ORDER}",
)  # fmt: skip
VALIDATED = ("theory", "next_order", "gp")
COLUMNS = (
    "point", "directory", "width", "accuracy_theory", "accuracy_gp", "accuracy_sampled",
    "accuracy_sampled_mcse", "accuracy_sampled_binomial", "sampled_space",
    "accuracy_diagonal_only", "accuracy_equal_diagonal",
)  # fmt: skip


def write_sweep_tables(directory: Path, recipe: Recipe) -> None:
    """Write everything that a sweep stores beside its points, from whatever points there are."""
    points = swept_points(directory, recipe)
    write_sweep_table(directory, points)
    write_selection(directory, recipe, points)
    write_finite_size(directory, recipe, points)
    write_sweep_dataset(directory, recipe, points)
    write_seed_averages(directory, recipe, points)


def write_sweep_table(directory: Path, points: Sequence[SweptPoint]) -> None:
    """Write `sweep.csv`, numbers that do not exist left empty."""
    rows = [point_row(directory, point) for point in points]
    names = list(COLUMNS) + sorted({n for row in rows for n in row} - set(COLUMNS))
    write_table(directory / SWEEP_FILE, names, rows)


def write_table(path: Path, names: Sequence[str], rows: Iterable[Mapping]) -> None:
    """Write rows under these names; what a row lacks, and what is not finite, is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: cell(v) for k, v in row.items()} for row in rows)
    write_atomically(path, lambda file: file.write_text(text.getvalue()))


def point_row(sweep: Path, point: SweptPoint) -> dict:
    """One row: where the point is, its width, its accuracies, its scores on validation data."""
    row: dict = {
        "point": point.label,
        "directory": str(point.run.directory.relative_to(sweep)),
        "width": point.width,
    }
    theory, comparison = point.run.theory, point.run.comparison
    if theory is not None:
        for name in ("theory", "gp", "diagonal_only", "equal_diagonal"):
            row[f"accuracy_{name}"] = float(theory[f"accuracy_{name}"])
        for name in (*(f"validation_{s}_{who}" for s in SCORES for who in VALIDATED), *NUMBERS):
            if name in theory:
                row[name] = float(theory[name])
        if "next_order_status" in theory.attrs:
            row["next_order_status"] = theory.attrs["next_order_status"]
        if "subnetwork" in theory.coords:
            for name in theory["subnetwork"].values:
                value = theory["accuracy_gp_subnetwork"].sel(subnetwork=name)
                row[f"gp:{name}"] = float(value)
    if comparison is not None:
        row["sampled_space"] = point.space
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
    return row


def cell(value):
    return "" if isinstance(value, float) and not math.isfinite(value) else value


def write_finite_size(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> bool:
    """Write U_1 by width from theory and from every sampled space, with power laws in N.

    The theory to leading and to next order, which is NaN where it is not known. Only for sweeps
    whose points differ by width (and space); says whether it was written.
    """
    if not {"network.widths"} <= set(recipe.sweep) <= {"network.widths", "sampler.space"}:
        return False
    if not all(isinstance(point.recipe.network.widths, int) for point in points):
        return False
    theory, next_order, sampled = {}, {}, {}
    for point in points:
        width, run = point.width, point.run
        if run.theory is not None:
            theory[width] = run.theory["order_parameter"].values
            next_order[width] = at_next_order(run.theory)
            names = run.path_names
        compared = run.compared("order_parameter")
        if compared is not None:
            found = sampled.setdefault(point.space, {})
            fine = run.theory is not None and run.theory.attrs.get("next_order_status") == "fine"
            found[width] = parts_of(compared) | {"trusted": run.diagnostics_passed, "fine": fine}
    if not theory:
        return False
    widths = sorted(theory)
    content = {
        "paths": names,
        "theory": {
            "widths": widths,
            "order_parameter": [theory[w] for w in widths],
            f"order_parameter{NEXT_ORDER}": [next_order[w] for w in widths],
        },
        "sampled": {space: by_width(found) for space, found in sampled.items()},
    }
    if len(sampled.get("order_parameters", {})) >= 3:
        exact = content["sampled"]["order_parameters"]
        content["power_laws"] = power_laws(exact, names)
        if np.isfinite(exact[f"difference{NEXT_ORDER}"]).any():
            content[f"power_laws{NEXT_ORDER}"] = power_laws(exact, names, NEXT_ORDER)
    write_json(directory / FINITE_SIZE_FILE, content)
    return True


def parts_of(compared: Compared) -> dict[str, Any]:
    """Theories, sampled value and MCSE of what is compared, as far as they are known."""
    parts = {
        "theory": compared.theory, "next_order": compared.next_order, "own": compared.own,
        "sampled": compared.sampled.value, "mcse": compared.sampled.mcse,
    }  # fmt: skip
    return {name: value for name, value in parts.items() if value is not None}


def at_next_order(theory: xr.Dataset) -> np.ndarray:
    """U_1 to next order, NaN where it is not known."""
    known = theory.get(f"order_parameter{NEXT_ORDER}")
    return np.full(theory["order_parameter"].shape, np.nan) if known is None else known.values


def by_width(found: dict[int, dict]) -> dict:
    """U_1 of one space at every width: mean, MCSE, theory − sampled and next order − sampled.

    `trusted` says whether the samples of that width passed their diagnostics, `next_order_fine`
    whether the expansion in 1/N holds there. own: what theories of the user's own predict, by name.
    """
    widths = sorted(found)
    sampled = np.stack([np.array(found[w]["sampled"], dtype=float) for w in widths])

    def stacked(tables: Iterable[Mapping[str, Any]], key: str) -> np.ndarray:
        """What is stored under a key at every width, NaN where there is nothing."""
        nothing = np.full(sampled.shape[1:], np.nan)
        return np.stack([np.array(table.get(key, nothing), dtype=float) for table in tables])

    tables = [found[w] for w in widths]
    own = [table.get("own") or {} for table in tables]
    names = dict.fromkeys(name for of_width in own for name in of_width)
    return {
        "widths": widths,
        "trusted": [bool(table["trusted"]) for table in tables],
        "next_order_fine": [bool(table.get("fine")) for table in tables],
        "order_parameter": sampled,
        "mcse": stacked(tables, "mcse"),
        "difference": stacked(tables, "theory") - sampled,
        f"difference{NEXT_ORDER}": stacked(tables, "next_order") - sampled,
        **({"own": {name: stacked(own, name) for name in names}} if names else {}),
    }


def power_laws(exact: dict, names: list[str], order: str = "") -> list[dict]:
    """One power law for every diagonal element of U_1, of the points whose samples are trusted.

    order: `_next_order` for next order − sampled, of the points where the expansion holds, too.
    """
    used = np.array(exact["trusted"])
    if order:
        used &= np.array(exact["next_order_fine"])
    widths = np.array(exact["widths"])[used]
    difference, mcse = (exact[key][used] for key in (f"difference{order}", "mcse"))
    return [
        {"path": name} | asdict(fit_power_law(widths, difference[:, i, i], mcse[:, i, i]))
        for i, name in enumerate(names)
    ]


PATHS = ("path", "path_")


def write_sweep_dataset(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> None:
    """Write `sweep.nc` from `sweep.csv` and from the U_1 of every point.

    U_1 is there if all points have the same paths; what a point lacks is NaN.
    """
    dataset = sweep_dataset(directory, recipe, points)
    path = directory / SWEEP_DATASET_FILE
    write_atomically(path, lambda file: dataset.to_netcdf(file, engine="h5netcdf"))


def sweep_dataset(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> xr.Dataset:
    """The numeric columns of the table, the directories and the U_1, over the swept keys."""
    grid = {key: coordinate(values) for key, values in recipe.sweep.items()}
    shape = tuple(map(len, grid.values()))
    rows = read_rows(directory)
    columns = {
        name.replace("/", "_"): (tuple(grid), values.reshape(shape))
        for name, values in numeric_columns(rows).items()
    }
    columns["directory"] = (
        tuple(grid),
        np.array([row["directory"] for row in rows], dtype=object).reshape(shape),
    )
    paths, matrices = order_parameters([point.run for point in points])
    columns |= {
        name: ((*grid, *PATHS), values.reshape(*shape, *values.shape[1:]))
        for name, values in matrices.items()
    }
    coordinates = grid | (dict.fromkeys(PATHS, paths) if matrices else {})
    attributes = {"name": recipe.name, "schema_version": SCHEMA_VERSION}
    return xr.Dataset(columns, coords=coordinates, attrs=attributes)


def coordinate(values: Sequence[Any]) -> list[Any]:
    """Values along an axis: numbers or words as they are, lists and mixtures as TOML."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return list(values)
    return [value if isinstance(value, str) else toml_value(value) for value in values]


def numeric_columns(rows: Sequence[Mapping[str, str]]) -> dict[str, np.ndarray]:
    """The columns whose filled cells are all numbers, NaN where a cell is empty."""
    columns = {}
    for name in rows[0]:
        cells = [row[name] for row in rows]
        try:
            columns[name] = np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            continue
    return {n: v for n, v in columns.items() if n != "sampled_space"}


def order_parameters(runs: Sequence[RunResults]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Paths, and theory, next order, sampled value and MCSE of U_1, each [point, path, path_].

    Empty if no point is solved, or if the points differ in their paths. The next order is left out
    where no point has it.
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
            solved["next_order"] = at_next_order(run.theory)
        found[place] = ({} if compared is None else parts_of(compared)) | solved
    if len(names) != 1:
        return [], {}
    paths = list(names.pop())
    arrays = {}
    known = any("next_order" in tables for tables in found.values())
    for part in ("theory", *(["next_order"] if known else []), "sampled", "mcse"):
        values = np.full((len(runs), len(paths), len(paths)), np.nan)
        for place, tables in found.items():
            if part in tables:
                values[place] = np.array(tables[part], dtype=float)
        arrays[f"order_parameter_{part}"] = values
    return paths, arrays


# Columns that say where a point is, not what was found there.
PLACES = ("point", "directory", "width")


def write_seed_averages(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> None:
    """Write the table if the sweep goes over a seed: a row for each value of the other settings."""
    if not any(is_seed(key) for key in recipe.sweep):
        return
    found = numeric_columns(read_rows(directory))
    columns = {name: values for name, values in found.items() if name not in PLACES}
    settings = [point.settings for point in points]
    rows = seed_averages(settings, columns)
    write_table(directory / SEED_AVERAGES_FILE, list(rows[0]), rows)


def is_seed(key: str) -> bool:
    """Whether a swept key only draws other random numbers."""
    return key.rpartition(".")[2] in ("seed", "head_seed")


def seed_averages(
    settings: Sequence[Mapping[str, object]], columns: Mapping[str, np.ndarray]
) -> list[dict]:
    """Settings without seeds, the number of points, and mean and standard error of every column.

    Points that lack a number do not count for it; one number alone has no error.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, of_point in enumerate(settings):
        others = tuple(
            setting_text(key, value) for key, value in of_point.items() if not is_seed(key)
        )
        groups.setdefault(others, []).append(place)
    rows = []
    for others, places in groups.items():
        row: dict = {"settings": ",".join(others), "points": len(places)}
        for name, values in columns.items():
            kept = values[places][np.isfinite(values[places])]
            row[name] = cell(float(kept.mean()) if kept.size else math.nan)
            error = kept.std(ddof=1) / math.sqrt(kept.size) if kept.size > 1 else math.nan
            row[f"{name}_error"] = cell(float(error))
        rows.append(row)
    return rows
