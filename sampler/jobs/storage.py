"""Result files: written whole or not at all, read back with a clear error."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.errors import InputError
from sampler.jobs.run_directory import fill_whole

THEORY_FILE, DRAWS_FILE, COMPARISON_FILE = "theory.nc", "draws.nc", "comparison.json"


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step.

    Raises InputError naming the file when the directory cannot be written or the disk is full.
    """
    try:
        fill_whole(path, write)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        remedy = f"{reason}; free space or choose another --out"
        raise InputError(path.name, str(path.parent), remedy) from None


def write_theory(directory: Path, table: xr.Dataset) -> None:
    """Write `theory.nc`."""
    write_atomically(directory / THEORY_FILE, lambda path: table.to_netcdf(path, engine="h5netcdf"))


def write_draws(directory: Path, draws: xr.DataTree) -> None:
    """Write `draws.nc`; it opens with ArviZ and with `xarray.open_datatree`."""
    write_atomically(directory / DRAWS_FILE, lambda path: draws.to_netcdf(path, engine="h5netcdf"))


def write_json(path: Path, content: dict) -> None:
    """Write strict JSON: numbers that are not finite become null."""
    text = json.dumps(plain(content), indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def plain(value: Any) -> Any:
    """Arrays, NumPy numbers, tuples and NaN as what JSON has for them."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_theory(directory: Path) -> xr.Dataset:
    """Read `theory.nc` into memory."""
    return _read(directory / THEORY_FILE, "solve", lambda path: xr.load_dataset(path))


def read_draws(directory: Path) -> xr.DataTree:
    """Read `draws.nc` into memory."""

    def load(path: Path) -> xr.DataTree:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            return tree.load()

    return _read(directory / DRAWS_FILE, "sample", load)


def read_json(path: Path) -> dict:
    """Read a JSON file of a run directory."""
    return _read(path, "run", lambda p: json.loads(p.read_text(encoding="utf-8")))


def _read(path: Path, command: str, load: Callable[[Path], Any]) -> Any:
    if not path.is_file():
        raise InputError("DIR", str(path.parent), f"holds no {path.name}; first use `{command}`")
    try:
        return load(path)
    except (OSError, ValueError, KeyError) as problem:
        raise InputError(
            path.name, str(path), f"cannot be read ({problem}); make it anew with `{command}`"
        ) from None
