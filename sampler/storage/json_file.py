"""Stored files: written whole or not at all, read back with a clear error; strict JSON."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sampler.errors import InputError
from sampler.storage.run_directory import fill_whole


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step.

    Raises InputError naming the file when the directory cannot be written or the disk is full.
    """
    try:
        fill_whole(path, write)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        remedy = f"{reason}; free space or make the directory writable, then use `resume`"
        raise InputError(path.name, str(path.parent), remedy) from None


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


def read_json(path: Path) -> dict:
    """Read a JSON file of a run directory."""
    return read_stored(path, "run", lambda p: json.loads(p.read_text(encoding="utf-8")))


def read_stored(path: Path, command: str, load: Callable[[Path], Any]) -> Any:
    """Load a result file; InputError, naming the command that makes it, if that fails."""
    if not path.is_file():
        raise InputError("DIR", str(path.parent), f"holds no {path.name}; first use `{command}`")
    try:
        return load(path)
    except (OSError, ValueError, KeyError) as problem:
        raise InputError(
            path.name, str(path), f"cannot be read ({problem}); make it anew with `{command}`"
        ) from None
