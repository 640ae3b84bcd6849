"""Stored results of runs and sweeps, written and read."""

import csv
import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

import h5netcdf
import numpy as np
import xarray as xr

from sampler.errors import InputError
from sampler.storage.run_directory import (
    SCHEMA_VERSION,
    check_schema,
    read_stored,
    write_atomically,
)

# What a variable takes beside its numbers, on the safe side.
BYTES_PER_VARIABLE = 2048
THEORY_FILE, DRAWS_FILE, COMPARISON_FILE = "theory.nc", "draws.nc", "comparison.json"


def write_netcdf(path: Path, content: xr.Dataset | xr.DataTree) -> None:
    """Write a NetCDF file; OSError before anything is written if there is no room for it.

    The library does not survive a disk that is full halfway: the room is asked for in advance.
    """
    tables = content.subtree if isinstance(content, xr.DataTree) else [content]
    variables = sum(len(table.variables) for table in tables)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, content.nbytes + BYTES_PER_VARIABLE * variables)
    content.to_netcdf(path, engine="h5netcdf")


def write_theory(directory: Path, table: xr.Dataset) -> None:
    """Write `theory.nc`."""
    table = table.assign_attrs(schema_version=SCHEMA_VERSION)
    write_atomically(directory / THEORY_FILE, lambda path: write_netcdf(path, table))


def write_draws(directory: Path, draws: xr.DataTree) -> None:
    """Write `draws.nc`; it opens with ArviZ and with `xarray.open_datatree`."""
    draws = draws.copy()
    draws.attrs["schema_version"] = SCHEMA_VERSION
    write_atomically(directory / DRAWS_FILE, lambda path: write_netcdf(path, draws))


def read_theory(directory: Path) -> xr.Dataset:
    """Read `theory.nc` into memory."""

    def load(path: Path) -> xr.Dataset:
        table = xr.load_dataset(path, engine="h5netcdf")
        check_schema(table.attrs.get("schema_version"), str(path))
        return table

    return read_stored(directory / THEORY_FILE, "solve", load)


def read_draws(directory: Path) -> xr.DataTree:
    """Read `draws.nc` into memory."""

    def load(path: Path) -> xr.DataTree:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            check_schema(tree.attrs.get("schema_version"), str(path))
            return tree.load()

    return read_stored(directory / DRAWS_FILE, "sample", load)


@dataclass(frozen=True)
class StoredRun:
    """What one run directory holds; a table that was never written is None.

    theory: the data set of `theory.nc`.
    comparison: the content of `comparison.json`.
    draws: the draws of U_1, [chain, draw, path, path_], from `draws.nc`.
    predictor: without those, the draws of f, [chain, draw, test_example, …].
    labels: of the test set, [test_example, output].
    widths, temperature, space: from the resolved recipe; no temperature where it was sampled.
    """

    theory: xr.Dataset | None
    comparison: dict | None
    draws: xr.DataArray | None
    widths: tuple[int, ...] | None
    temperature: float | None
    space: str | None
    predictor: xr.DataArray | None = None
    labels: np.ndarray | None = None

    @property
    def setting(self) -> str:
        """Width and temperature for a title, such as `N = 10, T = 0.01`; empty if not stored."""
        parts = []
        if self.widths:
            same = len(set(self.widths)) == 1
            shown = str(self.widths[0]) if same else str(self.widths)
            parts.append(f"$N$ = {shown}")
        if self.temperature is not None:
            parts.append(rf"$\mathcal{{T}}$ = {self.temperature:g}")
        return ", ".join(parts)

    @property
    def sampled_label(self) -> str:
        """How the samples are named in a figure: their space, and a warning if they are unsound."""
        label = "sampled" if self.space is None else f"sampled {self.space.replace('_', ' ')}"
        return label if self.diagnostics_passed else f"{label} (diagnostics failed)"

    @property
    def diagnostics_passed(self) -> bool:
        """False only if the stored verdict says that sampling failed its diagnostics."""
        diagnostics = (self.comparison or {}).get("diagnostics") or {}
        return diagnostics.get("verdict") != "fail"

    def theory_values(self, name: str) -> np.ndarray | None:
        """Return a variable of `theory.nc`, or None if it is absent or has no finite entry."""
        if self.theory is None or name not in self.theory:
            return None
        values = np.asarray(self.theory[name].values, dtype=np.float64)
        return values if np.isfinite(values).any() else None

    def compared(self, name: str) -> dict[str, np.ndarray] | None:
        """Return `theory`, `sampled` and `mcse` of one compared quantity; None if not sampled."""
        table = (self.comparison or {}).get(name)
        keys = ("theory", "sampled", "mcse")
        if not table or any(table.get(key) is None for key in keys):
            return None
        # JSON null (an undefined number) becomes NaN here.
        return {key: np.asarray(table[key], dtype=np.float64) for key in keys}

    @property
    def path_names(self) -> list[str]:
        """The names along the `path` axis of U_1; none where U_1 is neither solved nor sampled."""
        source = self.theory["order_parameter"] if self.theory is not None else self.draws
        return [] if source is None else [str(name) for name in source["path"].values]


def has_results(directory: Path) -> bool:
    """Whether there is something to draw."""
    return any((directory / name).is_file() for name in ("theory.nc", "draws.nc"))


def read_stored_run(directory: Path) -> StoredRun:
    """Read the tables of a run directory.

    Raises InputError if there is neither `theory.nc` nor `draws.nc`, or a file cannot be read.
    """
    theory_file, draws_file = directory / "theory.nc", directory / "draws.nc"
    if not has_results(directory):
        remedy = "holds neither theory.nc nor draws.nc; name the directory of a finished run"
        raise InputError("directory", str(directory), remedy)
    widths, temperature, space = _read_setting(directory / "recipe.toml")
    draws = _read_draws(draws_file)
    return StoredRun(
        theory=_read_theory(theory_file),
        comparison=_read_comparison(directory / "comparison.json"),
        draws=draws,
        predictor=None
        if draws is not None
        else _read_variable(draws_file, "posterior", "predictor"),
        labels=_read_labels(draws_file),
        widths=widths,
        temperature=temperature,
        space=space,
    )


def _read_theory(file: Path) -> xr.Dataset | None:
    if not file.is_file():
        return None
    try:
        theory = xr.load_dataset(file, engine="h5netcdf")
    except (OSError, ValueError) as error:
        raise InputError(
            "theory.nc", str(file), f"cannot be read ({error}); solve again"
        ) from error
    if "order_parameter" not in theory:
        raise InputError("theory.nc", str(file), "has no variable order_parameter; solve again")
    return theory


def _read_comparison(file: Path) -> dict | None:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        remedy = f"is not valid JSON ({error}); compare again"
        raise InputError("comparison.json", str(file), remedy) from error


def _read_labels(file: Path) -> np.ndarray | None:
    constants = _read_variable(file, "constant_data", "labels_test")
    return None if constants is None else constants.values


def _read_draws(file: Path) -> xr.DataArray | None:
    draws = _read_variable(file, "posterior", "order_parameter")
    return None if draws is None else draws.transpose("chain", "draw", "path", "path_")


def _read_variable(file: Path, group: str, name: str) -> xr.DataArray | None:
    """A variable of `draws.nc`, None where there is none: large runs keep only moments."""
    if not file.is_file():
        return None
    try:
        with h5netcdf.File(file) as stored:
            if group not in stored.groups:
                return None
        with xr.open_dataset(file, group=group, engine="h5netcdf") as table:
            return table[name].load() if name in table else None
    except (OSError, ValueError, KeyError) as error:
        remedy = f"cannot be read ({error}); sample again"
        raise InputError("draws.nc", str(file), remedy) from error


def _read_setting(file: Path) -> tuple[tuple[int, ...] | None, float | None, str | None]:
    if not file.is_file():
        return None, None, None
    try:
        recipe = tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError("recipe.toml", str(file), f"is not valid TOML ({error})") from error
    widths, posterior = recipe.get("network", {}).get("widths"), recipe.get("posterior", {})
    if isinstance(widths, int):
        widths = [widths]
    return (
        tuple(widths) if widths else None,
        None if posterior.get("temperature_spread") else posterior.get("temperature"),
        recipe.get("sampler", {}).get("space"),
    )


_REQUIRED = ("point", "directory", "width")
_GAUSSIAN_PROCESS_PREFIX = "gp:"


@dataclass(frozen=True)
class StoredSweep:
    """The rows of `sweep.csv`, sorted by width when width is what distinguishes them.

    points: label of each row.  directories: run directory of each row.
    columns: each remaining column by name, [row] of strings, empty where undefined.
    """

    points: tuple[str, ...]
    directories: tuple[Path, ...]
    columns: dict[str, tuple[str, ...]]

    def values(self, name: str) -> np.ndarray:
        """Return one numeric column, [row], NaN where it is empty or absent."""
        cells = self.columns.get(name, ("",) * len(self.points))
        try:
            return np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError as error:
            raise InputError(f"sweep.csv: {name}", str(error), "must be numbers") from error

    @property
    def widths(self) -> np.ndarray | None:
        """The width of each row, or None if the rows are not told apart by their width."""
        widths = self.values("width")
        distinct = np.isfinite(widths).all() and len(set(widths)) == len(widths)
        return widths if distinct else None

    @property
    def subnetworks(self) -> list[str]:
        """Labels of the sub-networks whose Gaussian process limit was tabulated."""
        size = len(_GAUSSIAN_PROCESS_PREFIX)
        return [name[size:] for name in self.columns if name.startswith(_GAUSSIAN_PROCESS_PREFIX)]

    def subnetwork_accuracy(self, label: str) -> np.ndarray:
        """Return the Gaussian process accuracy of one sub-network, [row]."""
        return self.values(_GAUSSIAN_PROCESS_PREFIX + label)


def read_stored_sweep(directory: Path) -> StoredSweep:
    """Read `sweep.csv` of a sweep directory; InputError if it is absent, empty or incomplete."""
    file = directory / "sweep.csv"
    if not file.is_file():
        remedy = "does not exist; name the directory of a finished sweep"
        raise InputError("sweep.csv", str(file), remedy)
    with file.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        rows = list(reader)
        names = reader.fieldnames or []
    missing = [name for name in _REQUIRED if name not in names]
    if missing or not rows:
        problem = f"lacks the column {missing[0]!r}" if missing else "has no rows"
        raise InputError("sweep.csv", str(file), f"{problem}; run the sweep again")
    sweep = _from_rows(directory, names, rows)
    if sweep.widths is None:
        return sweep
    return _from_rows(directory, names, [rows[row] for row in np.argsort(sweep.widths)])


def _from_rows(directory: Path, names: list[str], rows: list[dict[str, str]]) -> StoredSweep:
    return StoredSweep(
        points=tuple(row["point"] for row in rows),
        directories=tuple(directory / row["directory"] for row in rows),
        columns={name: tuple(row[name] or "" for row in rows) for name in names},
    )
