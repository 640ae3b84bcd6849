"""The attention of a PyTorch model in a file that `task.kind = "arrays"` reads."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sampler.attention.padding import within
from sampler.data.array_files import HDF5_SUFFIXES
from sampler.data.checks import check_agreement, named_arrays
from sampler.data.examples import Examples
from sampler.errors import InputError, Verbatim
from sampler.storage.files import write_atomically
from sampler.torch_models.model_inputs import (
    Batch,
    Forward,
    as_numpy,
    check_batch_size,
    count_of,
    read_inputs,
    torch_module,
)
from sampler.torch_models.recording import Attention, RecordedAttention, record_attention

# Inputs, and labels or None.
InputsAndLabels = tuple[Any, Any]
Arrays = dict[str, Any]
RESIDUAL = "residual"


def export_attention(
    path: str | Path,
    model: Any,
    *,
    train: InputsAndLabels | Iterable[InputsAndLabels],
    test: InputsAndLabels | Iterable[InputsAndLabels],
    validation: InputsAndLabels | Iterable[InputsAndLabels] | None = None,
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    residual: bool = False,
    forward: Forward | None = None,
    attention: Attention | None = None,
    batch_size: int = 64,
) -> Path:
    """Record the attention of a model and store it with inputs and labels; returns the path.

    path      ends in .npz, or in .h5
    train, test, validation
              a pair of inputs, as `record_attention` takes them, and labels [example] or
              [example, output]: ±1 for two classes, a column for each of several, or real numbers;
              or batches of such pairs. Test labels may be None
    layers    a window, its first and its last layer, which count from 1: inputs are the tokens that
              its first layer attends to
    heads     heads to keep, from 0, by the number of their layer: {1: [0, 2]}; of other layers all.
              Heads are called by their numbers, and as "3.0", head 0 of layer 3, where these are
              not all layers and heads of the model
    residual  every layer gets one more head, its last, whose attention is the identity: the path
              past a layer that a residual connection opens; it is called "residual"
    forward, attention, batch_size
              as for `record_attention`

    Raises InputError, naming the array, for unusable input; nothing is written then.
    """
    path = Path(path)
    if path.suffix not in (".npz", *HDF5_SUFFIXES):
        raise InputError("path", path, "must end in .npz, or in .h5")
    check_batch_size(batch_size)
    arrays: Arrays = {}
    first = None
    for name, examples in {"train": train, "test": test, "validation": validation}.items():
        if examples is None:
            continue
        inputs, labels = read_examples(name, examples)
        recorded = record_attention(
            model,
            inputs,
            layers=layers,
            heads=heads,
            forward=forward,
            attention=attention,
            batch_size=batch_size,
        )
        split = replace(recorded, labels=labels)
        first = first or split
        check_agreement(first, split, name)
        split = with_identity_heads(split) if residual else split
        arrays |= {key: values for key, values, _ in named_arrays(split, name)}
    arrays |= arrays_of_heads(recorded, bool(layers or heads), residual)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: write(file, arrays))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("path", path, f"{reason}; name a file to write") from None
    return path


def read_examples(
    name: str, examples: InputsAndLabels | Iterable[InputsAndLabels]
) -> tuple[list[Batch], np.ndarray | None]:
    """Inputs and labels of all examples."""
    inputs: list[Batch] = []
    labels: list[np.ndarray | None] = []
    for pair in [examples] if isinstance(examples, tuple) else examples:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            remedy = "give a pair of inputs and labels, or batches that are such pairs"
            raise InputError(name, Verbatim(f"({type(pair).__name__})"), remedy)
        found = read_inputs(pair[0], first=count_of(inputs))
        inputs += found
        labels.append(read_labels(f"labels_{name}", pair[1], count_of(found)))
    if not inputs:
        remedy = "no batch came; make an exhausted loader again"
        raise InputError(name, Verbatim("(no examples)"), remedy)
    known = [of_batch for of_batch in labels if of_batch is not None]
    if len(known) not in (0, len(labels)):
        raise InputError(f"labels_{name}", None, "give labels with all batches, or with none")
    return inputs, np.concatenate(known) if known else None


def with_identity_heads(split: Examples) -> Examples:
    """The split with one more head in each layer, its last, whose Ω is the identity."""
    lengths = np.full(split.examples, split.tokens) if split.lengths is None else split.lengths
    real = within(lengths, split.tokens)
    identity = (np.eye(split.tokens, dtype=split.inputs.dtype) * real[:, None, :])[:, None]
    attention = tuple(np.concatenate([one, identity], axis=1) for one in split.attention)
    return replace(split, attention=attention)


def arrays_of_heads(recorded: RecordedAttention, is_part: bool, residual: bool) -> Arrays:
    """Arrays without an example axis: names of the heads, and where they come from.

    is_part  whether some layers or heads of the model are left out
    """
    modules = zip(recorded.chosen, recorded.modules, strict=True)
    origin = [f"layer {number}: {module}" for number, module in modules if module]
    found: Arrays = {"origin": origin} if origin else {}
    if is_part:
        found["layer_numbers"] = np.array(list(recorded.chosen))
    if is_part or residual:
        for place, (number, heads) in enumerate(recorded.chosen.items(), start=1):
            names = [f"{number}.{head}" if is_part else str(head) for head in heads]
            found[f"head_names_{place}"] = names + [RESIDUAL] * residual
    return found


def write(path: Path, arrays: Arrays) -> None:
    """Write a file, of HDF5 from memory: its library does not bear a full disk."""
    if path.suffix not in HDF5_SUFFIXES:
        return np.savez(path, **arrays)
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for key, values in arrays.items():
            file[key] = values
    path.write_bytes(content.getbuffer())


def read_labels(
    field: str, labels: Any, examples: int, outputs: int | None = None
) -> np.ndarray | None:
    """Labels [example, output] as floats; InputError for missing or unfitting labels.

    outputs  of the model, if known: class numbers then become a column for each class
    """
    if labels is None:
        if field == "labels_test":
            return None
        raise InputError(field, None, "this split needs labels [example] or [example, output]")
    tensor = torch_module().as_tensor(labels)
    array = as_numpy(tensor)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != examples or array.shape[1] == 0:
        remedy = f"the shape must be ({examples},) or ({examples}, outputs), a label per example"
        raise InputError(field, tuple(tensor.shape), remedy)
    if not np.isfinite(array).all():
        raise InputError(field, float(array[~np.isfinite(array)][0]), "every label must be finite")
    if tensor.is_floating_point() or array.shape[1] > 1:
        return array
    numbers, is_one = array[:, 0].astype(int), outputs in (None, 1)
    if not np.isin(numbers, [-1, 1] if is_one else list(range(outputs))).all():
        remedy = "are class numbers; give ±1 for two classes, or a column of 0 and 1 for each class"
        if not is_one:
            remedy = (
                f"are class numbers, and must be from 0 to {outputs - 1}, as the model has outputs"
            )
        raise InputError(field, np.unique(numbers).tolist(), remedy)
    return array if is_one else np.eye(outputs, dtype=array.dtype)[numbers]
