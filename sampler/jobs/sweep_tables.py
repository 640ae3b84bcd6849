"""The results of a sweep as one Dataset over its grid, and the files derived from it."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
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
    COLUMN,
    COLUMNS,
    FINITE_SIZE_FILE,
    SEED_AVERAGES_FILE,
    SWEEP_DATASET_FILE,
    SWEEP_FILE,
    SweptPoint,
    cell_text,
    columns_of_sweep,
    rows_of_sweep,
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
# Of the theory, beside what every table of it has.
NUMBERS = (
    *REDUNDANCY, "log_evidence", "log_evidence_gp", f"log_evidence{NEXT_ORDER}",
    f"accuracy{NEXT_ORDER}",
)  # fmt: skip
VALIDATED = ("theory", "next_order", "gp")
# Columns that say where a point is, not what was found there; and those that hold text.
PLACES, TEXTS = COLUMNS[:3], ("point", "directory", "sampled_space", "next_order_status")
WIDTHS, SPACE = "network.widths", "sampler.space"
# Before the name of a theory of the user's own.
OWN = "own: "
PATHS = ("path", "path_")


def write_sweep_tables(directory: Path, recipe: Recipe) -> xr.Dataset:
    """Write everything that a sweep stores beside its points, from whatever points there are."""
    points = swept_points(directory, recipe)
    dataset = sweep_dataset(directory, recipe, points)
    write_table(directory / SWEEP_FILE, rows_of_sweep(dataset))
    if any(map(is_seed, recipe.sweep)):
        settings = [point.settings for point in points]
        write_table(directory / SEED_AVERAGES_FILE, seed_averages(settings, dataset))
    found = finite_size(dataset)
    if found is not None:
        write_json(directory / FINITE_SIZE_FILE, found)
    write_selection(directory, recipe, points)
    path = directory / SWEEP_DATASET_FILE
    write_atomically(path, lambda file: dataset.to_netcdf(file, engine="h5netcdf"))
    return dataset


def write_table(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Write rows of text under the names of the first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write_text(text.getvalue()))


# --- the Dataset


def sweep_dataset(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> xr.Dataset:
    """Gather what is known of every point over the swept keys: a table's columns, and U_1.

    U_1 is there if all points have the same paths; what a point lacks is NaN, or an empty text.
    """
    grid = {key: coordinate(values) for key, values in recipe.sweep.items()}
    shape = tuple(map(len, grid.values()))
    passed = [p.run.comparison is not None and p.run.diagnostics_passed for p in points]
    found = columns_of_rows([point_row(directory, point) for point in points])
    found["diagnostics_passed"] = ((), np.array(passed), {})
    paths, matrices = order_parameters([point.run for point in points])
    found |= {name: (PATHS, values, {}) for name, values in matrices.items()}
    columns = {
        name: ((*grid, *axes), values.reshape(*shape, *values.shape[1:]), attributes)
        for name, (axes, values, attributes) in found.items()
    }
    coordinates = grid | (dict.fromkeys(PATHS, paths) if matrices else {})
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


def coordinate(values: Sequence[Any]) -> list[Any]:
    """Return values along an axis: numbers or words as they are, lists and mixtures as TOML."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return list(values)
    return [value if isinstance(value, str) else toml_value(value) for value in values]


def point_row(sweep: Path, point: SweptPoint) -> dict:
    """Return one row: where the point is, its width, accuracies, and scores on validation data."""
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


# --- what is derived from it


def finite_size(dataset: xr.Dataset) -> dict | None:
    """Return U_1 by width from theory and from every sampled space, with power laws in N.

    The theory to leading and to next order, which is NaN where it is not known. None unless the
    points differ by width (and space) alone, layers have one width, and some point is solved.
    """
    swept = set(dataset["point"].dims)
    if not {WIDTHS} <= swept <= {WIDTHS, SPACE} or dataset[WIDTHS].dtype.kind not in "iu":
        return None
    prefix, shape = "order_parameter_", dataset["point"].shape
    parts = {
        str(name).removeprefix(prefix): one.values.reshape(-1, *one.shape[len(shape) :])
        for name, one in dataset.items()
        if str(name).startswith(prefix)
    }
    theory, next_order, sampled = {}, {}, {}
    columns, passed = columns_of_sweep(dataset), dataset["diagnostics_passed"].values.ravel()
    status = columns.get("next_order_status", [""] * len(passed))
    for place, width in enumerate(map(int, columns["width"])):
        known = {part: v[place] for part, v in parts.items() if np.isfinite(v[place]).any()}
        if "theory" in known:
            theory[width] = known["theory"]
            next_order[width] = known.get("next_order", np.full_like(known["theory"], np.nan))
        if "sampled" in known:
            of_space = sampled.setdefault(str(columns["sampled_space"][place]), {})
            fine = status[place] == "fine"
            of_space[width] = known | {"trusted": bool(passed[place]), "fine": fine}
    if not theory:
        return None
    widths, names = sorted(theory), [str(name) for name in dataset["path"].values]
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
    return content


def by_width(found: Mapping[int, Mapping[str, Any]]) -> dict:
    """Return U_1 of one space at every width: mean, MCSE, theory − sampled, next order − sampled.

    `trusted` says whether the samples of that width passed their diagnostics, `next_order_fine`
    whether the expansion in 1/N holds there. own: what theories of the user's own predict, by name.
    """
    widths = sorted(found)
    tables = [found[w] for w in widths]
    sampled = np.stack([np.array(table["sampled"], dtype=float) for table in tables])

    def stacked(key: str) -> np.ndarray:
        """Stack what is stored under a key at every width, NaN where there is nothing."""
        nothing = np.full(sampled.shape[1:], np.nan)
        return np.stack([np.array(table.get(key, nothing), dtype=float) for table in tables])

    own = dict.fromkeys(key for table in tables for key in table if key.startswith(OWN))
    return {
        "widths": widths,
        "trusted": [bool(table["trusted"]) for table in tables],
        "next_order_fine": [bool(table.get("fine")) for table in tables],
        "order_parameter": sampled,
        "mcse": stacked("mcse"),
        "difference": stacked("theory") - sampled,
        f"difference{NEXT_ORDER}": stacked("next_order") - sampled,
        **({"own": {key.removeprefix(OWN): stacked(key) for key in own}} if own else {}),
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


def is_seed(key: str) -> bool:
    """Whether a swept key only draws other random numbers."""
    return key.rpartition(".")[2] in ("seed", "head_seed")


def seed_averages(
    settings: Sequence[Mapping[str, object]], dataset: xr.Dataset
) -> list[dict[str, str]]:
    """Return settings without seeds, the number of points, and every column's mean and error.

    Points that lack a number do not count for it; one number alone has no error.
    """
    groups: dict[str, list[int]] = {}
    for place, of_point in enumerate(settings):
        others = (setting_text(key, value) for key, value in of_point.items() if not is_seed(key))
        groups.setdefault(",".join(others), []).append(place)
    rows = []
    for others, places in groups.items():
        row = {"settings": others, "points": str(len(places))}
        for name, values in columns_of_sweep(dataset).items():
            if name not in (*PLACES, *TEXTS):
                kept = values[places][np.isfinite(values[places])]
                error = kept.std(ddof=1) / math.sqrt(kept.size) if kept.size > 1 else math.nan
                row[name] = cell_text(kept.mean() if kept.size else math.nan)
                row[f"{name}_error"] = cell_text(error)
        rows.append(row)
    return rows
