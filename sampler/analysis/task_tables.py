"""Tables of a task (`task.nc`), and of the teacher that labels were drawn from (`teacher.nc`)."""

import numpy as np
import xarray as xr

from sampler.analysis.names import (
    label,
    label_dimensions,
    order_parameter_dimensions,
    predictor_dimensions,
    squeeze_output,
)
from sampler.attention.layers import paired
from sampler.data.split import AttendedSplit, Split, StreamedSplit
from sampler.data.task import Task, Teacher
from sampler.problem import AnyProblem

# What is kept at most of the attention to an example.
MOST_TOKENS, MOST_LAYERS, MOST_HEADS = 64, 4, 6


def task_table(task: Task) -> xr.Dataset:
    """The content of `task.nc`.

    head_names_1 …   [head], of all heads of every layer
    attention_1 …    [head, key, query] of the first training example in the first layers and heads,
                     in single precision; none of layers with learned heads, nor without tokens

    Attribute `paths` says how many there are.
    """
    train = task.train
    block = next(iter(train.blocks())) if isinstance(train, StreamedSplit) else train
    columns: dict = {
        f"head_names_{layer}": (f"head_{layer}", list(names))
        for layer, names in enumerate(task.head_names, start=1)
    }
    if not isinstance(block, AttendedSplit):
        columns |= attention_columns(block.part(np.array([0])), task)
    return xr.Dataset(columns, attrs={"paths": len(task.path_names)})


def attention_columns(example: Split, task: Task) -> dict:
    """Attention of the first layers of weights and their first heads to one example."""
    layers = paired(example.attention, task.pairs)[:MOST_LAYERS]
    learned = (
        [()] * len(layers) if task.learned is None else paired(task.learned.learned, task.pairs)
    )
    tokens = example.tokens if example.lengths is None else int(example.lengths[0])
    seen = slice(min(tokens, MOST_TOKENS))
    return {
        f"attention_{layer}": (
            (f"shown_head_{layer}", "key", "query"),
            matrices[0, :MOST_HEADS, seen, seen].astype(np.float32),
        )
        for layer, (matrices, are_learned) in enumerate(zip(layers, learned, strict=False), start=1)
        if not any(are_learned)
    }


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
        axes = ("measured_example", f"head_{layer}", "key", "query")
        columns[f"attention_{layer}"] = (axes, matrices.astype(np.float32))
        coordinates[f"head_{layer}"] = list(problem.names_of_attention[layer - 1])
        coordinates["measured_example"] = problem.measured
    attributes = {"temperature": teacher.temperature, "variances": list(teacher.variances)}
    table = label(xr.Dataset(columns), problem).assign_coords(coordinates)
    return table.assign_attrs(attributes)
