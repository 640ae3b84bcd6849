"""Theories of the user's own: checked, and joined with the package's theory.

An own theory is a set of predictions under the names that they have in `theory.nc`, any of

    order_parameter [path, path_]      U_1, and order_parameter_layer_2 …, readout_order_parameter
    predictor_mean [test_example]      [test_example, output] where there are several outputs
    predictor_variance                 of the same shape
    log_evidence []                    ln p(y)

In a comparison each joins the axis `predictor` under its name.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sampler.analysis.predictors import AXIS, NAMES
from sampler.errors import InputError, Verbatim
from sampler.runtime import refuse_masked

if TYPE_CHECKING:
    import xarray as xr

Arrays = Mapping[str, np.ndarray]
# Name of a prediction → its axes and their sizes.
Axes = Mapping[str, Mapping[str, int]]
# Axes that no prediction has.
COMMON = ("chain", "draw", AXIS)
# Of a symmetric matrix in double precision, relative to its largest element.
ASYMMETRY = 1e-8
PREDICTED = re.compile(
    r"order_parameter(_layer_\d+)?|readout_order_parameter|predictor_(mean|variance)|log_evidence"
)


def axes_of(draws: "xr.DataTree", theory: "xr.Dataset | None") -> Axes:
    """Return the arrays, with axes, that an own theory may predict besides these."""
    tables = [draws[group] for group in ("posterior", "predictions") if group in draws.children]
    tables += [] if theory is None else [theory]
    axes: dict[str, Mapping[str, int]] = {"log_evidence": {}}
    for table in tables:
        for name, values in table.items():
            sizes = {str(axis): n for axis, n in values.sizes.items() if axis not in COMMON}
            if name == "predictor":
                axes |= {"predictor_mean": sizes, "predictor_variance": sizes}
            elif PREDICTED.fullmatch(str(name)):
                axes[str(name)] = sizes
    return axes


def checked(name: str, given: object, axes: Axes) -> Arrays:
    """Finite numbers of the right shapes; InputError names the theory, the array and the shape."""
    if not name or name in NAMES:
        remedy = f"give it a name, but none of {', '.join(NAMES)}"
        raise InputError("own theory", name, remedy)
    if not isinstance(given, Mapping) or not given:
        raise refusal(
            name, given, "give a Dataset or a dict of arrays, as in {'order_parameter': U_1}"
        )
    checked_arrays = {}
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
        checked_arrays[key] = array.astype(np.float64)
    return checked_arrays


def refusal(name: str, value: object, remedy: str) -> InputError:
    return InputError(f'own theory "{name}"', value, remedy)
