"""The teacher that labels were drawn from (`teacher.nc`)."""

import numpy as np
import xarray as xr

from sampler.analysis.names import (
    label,
    label_dimensions,
    order_parameter_dimensions,
    predictor_dimensions,
    squeeze_output,
)
from sampler.data.task import Teacher
from sampler.problem import AnyProblem
from sampler.token_problem import LearnedProblem


def teacher_table(teacher: Teacher, problem: AnyProblem) -> xr.Dataset:
    """The content of `teacher.nc`: order parameters, and f(x) of all splits without noise.

    `predictor_test` has the axes of predictors elsewhere; attributes have the temperature, and the
    prior variances. Where heads are learned, `attention_l` [measured_example, head_l, key, query]
    is the attention of all heads of layer l to some training examples.
    """
    arch, columns, coordinates = problem.architecture, {}, {}
    if teacher.order_parameters:
        named = order_parameter_dimensions(arch.layers)
        for (name, axes), overlap in zip(named, teacher.order_parameters, strict=True):
            columns[name] = (axes, overlap)
    axes_of = {"train": label_dimensions(arch.outputs), "test": predictor_dimensions(arch.outputs)}
    axes_of["validation"] = ("validation_example", *axes_of["test"][1:])
    for name, values in teacher.outputs.items():
        columns[f"predictor_{name}"] = (axes_of[name], squeeze_output(values))
    for layer, matrices in enumerate(teacher.attention, start=1):
        assert isinstance(problem, LearnedProblem)
        axes = ("measured_example", f"head_{layer}", "key", "query")
        columns[f"attention_{layer}"] = (axes, matrices.astype(np.float32))
        coordinates[f"head_{layer}"] = list(problem.names_of_attention[layer - 1])
        coordinates["measured_example"] = problem.measured
    attributes = {"temperature": teacher.temperature, "variances": list(teacher.variances)}
    table = label(xr.Dataset(columns), problem).assign_coords(coordinates)
    return table.assign_attrs(attributes)
