"""Data of figures of a task and its network: two training examples, the attention of one."""

import numpy as np
import xarray as xr

from sampler.recipes.sections import paired
from sampler.tasks.splits import AttendedSplit, Split, StreamedSplit
from sampler.tasks.task import Task

# What is kept at most of an example, and of the attention to it.
MOST_TOKENS, MOST_CHANNELS, MOST_PATHS, MOST_LAYERS, MOST_HEADS = 64, 256, 64, 4, 6


def task_table(task: Task) -> xr.Dataset:
    """The content of `task.nc`; arrays in single precision.

    example          numbers of the first training example and of the first with another label; of
                     examples that are not held, in their first block
    labels           [example, output]
    inputs           [example, token, channel], of the first tokens and channels; without tokens
                     `attended` [example, path, channel]
    attention_1 …    [head, key, query] of the first example in the first layers and heads
    head_names_1 …   [head], of all heads of every layer
    pictures         [example, picture, row, column], where the task has any, with their names

    Attributes `tokens`, `channels` and `paths` say how many there are in all.
    """
    block = first_block(task)
    chosen = two_labels(block.labels)
    columns: dict = {"labels": (("example", "output"), block.labels[chosen])}
    sizes = {"channels": task.channels, "paths": len(task.path_names)}
    for layer, names in enumerate(task.head_names, start=1):
        columns[f"head_names_{layer}"] = (f"head_{layer}", list(names))
    part = block.part(chosen)
    if isinstance(part, AttendedSplit):
        kept = part.attended[:, :MOST_PATHS, :MOST_CHANNELS]
        columns["attended"] = (("example", "path", "channel"), kept.astype(np.float32))
    else:
        tokens = part.tokens if part.lengths is None else int(part.lengths.max())
        sizes["tokens"] = tokens
        kept = part.inputs[:, : min(tokens, MOST_TOKENS), :MOST_CHANNELS]
        columns["inputs"] = (("example", "token", "channel"), kept.astype(np.float32))
        columns |= attention_columns(part, task)
    if task.pictures is not None:
        shown = task.pictures.of[chosen]
        axes = ("example", "picture", "row", "column")
        columns["pictures"] = (axes, task.pictures.images[shown].astype(np.float32))
        names = [[task.pictures.names[kind] for kind in row] for row in task.pictures.kinds[chosen]]
        columns["picture_names"] = (axes[:2], names)
    return xr.Dataset(columns, {"example": chosen}, sizes)


def first_block(task: Task) -> Split | AttendedSplit:
    """The training examples, or as many as are made at once."""
    train = task.train
    return next(iter(train.blocks())) if isinstance(train, StreamedSplit) else train


def two_labels(labels: np.ndarray) -> np.ndarray:
    """The first example and the first one with another label, where there is one."""
    others = np.flatnonzero((labels != labels[0]).any(axis=1))
    return np.array([0, *others[:1]])


def attention_columns(part: Split, task: Task) -> dict:
    """Attention of the first layers of weights and their first heads to the first example."""
    of_layers = paired(part.attention, task.pairs)[:MOST_LAYERS]
    tokens = part.tokens if part.lengths is None else int(part.lengths[0])
    seen = slice(min(tokens, MOST_TOKENS))
    return {
        f"attention_{layer}": (
            (f"shown_head_{layer}", "key", "query"),
            matrices[0, :MOST_HEADS, seen, seen].astype(np.float32),
        )
        for layer, matrices in enumerate(of_layers, start=1)
    }
