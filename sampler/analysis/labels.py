"""Names of axes and their coordinates in every stored table."""

import itertools
from collections.abc import Iterable

import numpy as np
import xarray as xr

from sampler.problem import AnyProblem


def order_parameter_dimensions(layers: int) -> list[tuple[str, tuple[str, str]]]:
    """Name and axes of U_1, U_2 … U_L and U_a."""
    named = [("order_parameter", ("path", "path_"))]
    for layer in range(2, layers + 1):
        axis = f"path_layer_{layer}"
        named.append((f"order_parameter_layer_{layer}", (axis, f"{axis}_")))
    return [*named, ("readout_order_parameter", ("output", "output_"))]


def predictor_dimensions(outputs: int) -> tuple[str, ...]:
    """[test_example] for one output, [test_example, output] for several."""
    return ("test_example",) if outputs == 1 else ("test_example", "output")


def squeeze_output(values: np.ndarray) -> np.ndarray:
    """Drop the output axis, the last one, where there is only one output."""
    return values[..., 0] if values.shape[-1] == 1 else values


def label(table: xr.Dataset, problem: AnyProblem) -> xr.Dataset:
    """Give every axis of a table a coordinate: names of paths, numbers for the rest.

    A trailing underscore marks the second axis of a square matrix, which has the same names.
    """
    layers = problem.architecture.layers
    named = {"path": indexed(problem.path_names, problem), "layer": range(1, layers + 1)}
    named["weights"] = list(problem.architecture.weight_shapes)
    for layer in range(2, layers + 1):
        names = ["·".join(p) for p in itertools.product(*problem.head_names[layer - 1 :])]
        named[f"path_layer_{layer}"] = indexed(names, problem)
    return table.assign_coords(
        {
            axis: list(named.get(axis.removesuffix("_"), range(size)))
            for axis, size in table.sizes.items()
        }
    )


def indexed(names: Iterable[str], problem: AnyProblem) -> list[str]:
    """Names of the rows of an order parameter: the output is added where there are several."""
    outputs = problem.architecture.outputs
    if outputs == 1:
        return list(names)
    return [f"{name}, output {c}" for name in names for c in range(outputs)]
