"""Theories of the user's own: read, checked, and stored beside the theory of this program.

An own theory is a set of predictions under the names that they have in `theory.nc`, any of

    order_parameter [path, path_]      U_1, and order_parameter_layer_2 …, readout_order_parameter
    predictor_mean [test_example]      [test_example, output] where there are several outputs
    predictor_variance                 of the same shape
    log_evidence []                    ln p(y)

given as arrays, in an .npz or a NetCDF file, or made by a function of the problem, named as
FILE.py:FUNCTION. `own_theories.nc` stacks all of them along an axis `own_theory`, NaN for what a
theory does not predict.
"""

import ast
import re
import runpy
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.numerics import refuse_masked
from sampler.storage.run_directory import OWN_THEORIES_FILE
from theory.architecture import Architecture

if TYPE_CHECKING:
    import xarray as xr

Arrays = Mapping[str, np.ndarray]
# Name of a prediction → its axes and their sizes.
Axes = Mapping[str, Mapping[str, int]]
# A file, FILE.py:FUNCTION, a mapping of arrays, or a Dataset.
Source = str | Path | Mapping[str, Any]
AXIS = "own_theory"
ARRAY_FILES = (".npz", ".nc")
# Of a symmetric matrix in double precision, relative to its largest element.
ASYMMETRY = 1e-8
PREDICTED = re.compile(
    r"order_parameter(_layer_\d+)?|readout_order_parameter|predictor_(mean|variance)|log_evidence"
)


def axes_of_network(architecture: Architecture, tests: int) -> Axes:
    """Return the arrays, with axes, that an own theory of this network may predict."""
    *_, outputs = sizes = architecture.order_parameter_sizes
    axes = {"order_parameter": {"path": sizes[0], "path_": sizes[0]}}
    for layer, rows in enumerate(sizes[1:-1], start=2):
        axis = f"path_layer_{layer}"
        axes[f"order_parameter_layer_{layer}"] = {axis: rows, f"{axis}_": rows}
    axes["readout_order_parameter"] = {"output": outputs, "output_": outputs}
    per_test = {"test_example": tests} | ({"output": outputs} if outputs > 1 else {})
    return axes | {"predictor_mean": per_test, "predictor_variance": per_test, "log_evidence": {}}


def axes_of_table(theory: "xr.Dataset") -> Axes:
    """Return the arrays, with axes, that an own theory may predict beside a table."""
    return {
        str(name): {str(axis): size for axis, size in values.sizes.items() if axis != AXIS}
        for name, values in theory.items()
        if PREDICTED.fullmatch(str(name))
    }


def is_function(source: Source) -> bool:
    """Whether a source names a function, as FILE.py:FUNCTION does."""
    return isinstance(source, str) and ".py:" in source


def read_own(name: str, source: Source, axes: Axes) -> Arrays:
    """The arrays of an own theory, from a file or as they are given, checked."""
    if not name or ":" in name:
        raise InputError("own theory", name, "give it a name without a colon")
    if not isinstance(source, str | Path):
        return checked(name, source, axes)
    path = Path(source)
    if path.suffix not in ARRAY_FILES:
        remedy = "name an .npz or .nc file of arrays, or FILE.py:FUNCTION"
        raise refusal(name, str(source), remedy)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
        else:
            import xarray as xr  # only here: it takes as long to import as all else

            arrays = xr.load_dataset(
                path, engine="h5netcdf", driver_kwds={"locking": "best-effort"}
            )
    except (OSError, ValueError, zipfile.BadZipFile) as problem:
        raise refusal(name, str(source), f"cannot be read ({problem}); name a file") from None
    return checked(name, arrays, axes)


def check_source(name: str, source: Source, axes: Axes) -> None:
    """Raise InputError for a source that cannot be used; the file of a function is not run yet."""
    if not is_function(source):
        read_own(name, source, axes)
        return
    file, _, function = str(source).rpartition(":")
    if not Path(file).is_file():
        raise refusal(name, source, "there is no such file; name FILE.py:FUNCTION")
    try:
        module = ast.parse(Path(file).read_bytes(), file)
    except (SyntaxError, ValueError) as problem:
        raise refusal(name, source, f"the file stops with {described(problem)}") from None
    # What the file defines, imports or assigns at its top level or in a branch there.
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    if function not in found:
        raise refusal(name, source, f"the file has no function {function}")


def predictions_of(name: str, source: Source, problem: Callable[[], Any], axes: Axes) -> Arrays:
    """The arrays of an own theory; a function is given the problem, which is made for it."""
    if not is_function(source):
        return read_own(name, source, axes)
    file, _, function = str(source).rpartition(":")
    with modules_beside(Path(file)):
        try:
            found = runpy.run_path(file).get(function)
        except Exception as failure:
            raise refusal(name, source, f"the file stops with {described(failure)}") from failure
        if not callable(found):
            raise refusal(name, source, f"the file has no function {function}")
        given = problem()
        try:
            made = found(given)
        except Exception as failure:
            stops = f"the function stops with {described(failure)}"
            raise refusal(name, source, stops) from failure
    return checked(name, made, axes)


@contextmanager
def modules_beside(file: Path) -> Iterator[None]:
    """Inside, modules beside a file are found, as if Python had been started with it.

    They are forgotten on leaving: the next file may have others of the same names.
    """
    folder, before = file.resolve().parent, set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin and Path(origin).resolve().is_relative_to(folder):
                del sys.modules[name]


def checked(name: str, given: object, axes: Axes) -> Arrays:
    """Finite numbers of the right shapes; InputError names the theory, the array and the shape."""
    if not isinstance(given, Mapping) or not given:
        raise refusal(name, given, "give a dict of arrays, as in {'order_parameter': U_1}")
    found = {}
    for key, values in given.items():
        if key not in axes:
            raise refusal(f"{name}: {key}", Verbatim("(array)"), f"use one of {', '.join(axes)}")
        refuse_masked(f'own theory "{name}: {key}"', values)
        array = np.asarray(values)
        sizes = tuple(axes[key].values())
        if array.dtype.kind not in "iuf" or array.shape != sizes:
            wanted = f"[{', '.join(axes[key])}] of shape {sizes}" if sizes else "one number"
            received = Verbatim(f"{array.dtype} of shape {array.shape}")
            raise refusal(f"{name}: {key}", received, f"give real numbers, {wanted}")
        if not np.isfinite(array).all():
            bad = int((~np.isfinite(array)).sum())
            received = Verbatim(f"{bad} undefined of {array.size}")
            raise refusal(f"{name}: {key}", received, "give finite numbers")
        if "order_parameter" in key:
            gap = np.max(np.abs(array - array.T), initial=0.0)
            if gap > ASYMMETRY * np.max(np.abs(array), initial=0.0):
                remedy = "the matrix and its transpose differ by so much; give a symmetric one"
                raise refusal(f"{name}: {key}", float(gap), remedy)
        if key == "predictor_variance" and (array < 0.0).any():
            raise refusal(f"{name}: {key}", float(array.min()), "a variance is not negative")
        found[key] = array.astype(np.float64)
    return found


def refusal(name: str, value: object, remedy: str) -> InputError:
    return InputError(f'own theory "{name}"', value, remedy)


def described(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def stacked(own: Mapping[str, Arrays], axes: Axes) -> "xr.Dataset":
    """All own theories in one table, NaN for what a theory does not predict."""
    columns = {
        key: (
            (AXIS, *sizes),
            np.stack(
                [one.get(key, np.full(tuple(sizes.values()), np.nan)) for one in own.values()]
            ),
        )
        for key, sizes in axes.items()
        if any(key in one for one in own.values())
    }
    import xarray as xr

    return xr.Dataset(columns, coords={AXIS: list(own)})


def is_stacked(table: "xr.Dataset | None") -> bool:
    """Whether a table has several theories, each of which is a column by itself."""
    return table is not None and AXIS in table.dims


def own_arrays(table: "xr.Dataset | None") -> dict[str, dict[str, np.ndarray]]:
    """Name of each own theory of a stacked table → what it predicts."""
    if table is None:
        return {}
    return {
        str(name): {
            str(key): values.values
            for key, values in table.sel({AXIS: name}).items()
            if np.isfinite(values).all()
        }
        for name in table[AXIS].values
    }


def store_own(directory: Path, own: Mapping[str, Arrays], axes: Axes) -> None:
    """Add own theories to those stored in a directory; one of the same name is replaced."""
    from sampler.storage.results import read_table, write_result

    there = (directory / OWN_THEORIES_FILE).is_file()
    stored = read_table(directory, OWN_THEORIES_FILE) if there else None
    table = stacked({**own_arrays(stored), **own}, axes)
    write_result(directory, OWN_THEORIES_FILE, table)
