"""Theories of the user's own: checked, and put beside the theory of this program.

An own theory is a set of predictions under the names that they have in `theory.nc`, any of

    order_parameter [path, path_]      U_1, and order_parameter_layer_2 …, readout_order_parameter
    predictor_mean [test_example]      [test_example, output] where there are several outputs
    predictor_variance                 of the same shape
    log_evidence []                    ln p(y)

`stacked` has several of them along an axis `own_theory`, NaN for what a theory does not predict.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.runtime import refuse_masked
from theory.architecture import Architecture

if TYPE_CHECKING:
    import xarray as xr

Arrays = Mapping[str, np.ndarray]
# Name of a prediction → its axes and their sizes.
Axes = Mapping[str, Mapping[str, int]]
AXIS = "own_theory"
DRAWN = ("chain", "draw")
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


def axes_of_draws(draws: "xr.DataTree") -> Axes:
    """Return the arrays, with axes, that an own theory may predict beside draws alone."""
    found: dict[str, Mapping[str, int]] = {"log_evidence": {}}
    for group in draws.children.keys() & {"posterior", "predictions"}:
        for name, values in draws[group].items():
            sizes = {str(axis): n for axis, n in values.sizes.items() if axis not in DRAWN}
            if name == "predictor":
                found |= {"predictor_mean": sizes, "predictor_variance": sizes}
            elif PREDICTED.fullmatch(str(name)):
                found[str(name)] = sizes
    return found


def checked(name: str, given: object, axes: Axes) -> Arrays:
    """Finite numbers of the right shapes; InputError names the theory, the array and the shape."""
    if not name or ":" in name:
        raise InputError("own theory", name, "give it a name without a colon")
    if not isinstance(given, Mapping) or not given:
        raise refusal(
            name, given, "give a Dataset or a dict of arrays, as in {'order_parameter': U_1}"
        )
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
