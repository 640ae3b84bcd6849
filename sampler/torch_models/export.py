"""The attention of a PyTorch model in a file that `task.kind = "arrays"` reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sampler.data.array_files import HDF5_SUFFIXES
from sampler.data.checks import check_agreement
from sampler.data.split import AttendedSplit, Split, attended_by_numpy
from sampler.data.task import refuse_too_many_paths
from sampler.errors import InputError, Verbatim
from sampler.storage.files import write_atomically
from sampler.torch_models.export_files import write_hdf5, write_npz
from sampler.torch_models.model_inputs import (
    Forward,
    as_numpy,
    as_tensors,
    batch_of,
    check_batch_size,
    count_of,
    torch_module,
)
from sampler.torch_models.recording import Attention, RecordedAttention, record_attention
from theory.attended import Readout

# Inputs, and labels or None.
Examples = tuple[Any, Any]
RESIDUAL = "residual"


def export_attention(
    path: str | Path,
    model: Any,
    *,
    train: Examples | Iterable[Examples],
    test: Examples | Iterable[Examples],
    validation: Examples | Iterable[Examples] | None = None,
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    residual: bool = False,
    head_names: Sequence[Sequence[str]] | None = None,
    attended: Readout | None = None,
    forward: Forward | None = None,
    attention: Attention | None = None,
    batch_size: int = 64,
) -> Path:
    """Record the attention of a model and store it with inputs and labels; returns the path.

    path      ends in .npz, or in .h5 for a file of any size, which is written piece by piece
    train, test, validation
              a pair of inputs, as `record_attention` takes them, and labels [example] or
              [example, output]: ±1 for two classes, a column for each of several, or real numbers;
              or batches of such pairs, as a data loader yields them. Test labels may be None
    layers    a window, its first and its last layer, which count from 1: inputs are the tokens that
              its first layer attends to
    heads     heads to keep, from 0, by the number of their layer: {1: [0, 2]}; of other layers all
    residual  every layer gets one more head, its last, whose attention is the identity: the path
              past a layer that a residual connection opens; it is called "residual"
    head_names
              a list of names for the heads of each layer, without that of the residual connection;
              without it heads are called by their numbers, and as "3.0", head 0 of layer 3, where
              these are not all layers and heads of the model
    attended  "last", "first" or "mean": store the inputs at the end of every attention path, read
              out so, in the place of tokens and attention matrices. Networks inside the theory need
              no more, and of long sequences it is a small part
    forward, attention, batch_size
              as for `record_attention`

    Raises InputError, naming the array, for what cannot be used; nothing is written then.
    """
    path = Path(path)
    if path.suffix not in (".npz", *HDF5_SUFFIXES):
        raise InputError("path", path, "must end in .npz, or in .h5")
    if attended not in (None, *get_args(Readout)):
        raise InputError("attended", attended, 'must be "last", "first" or "mean"')
    check_batch_size(batch_size)
    settings = {
        "layers": layers, "heads": heads, "forward": forward, "attention": attention,
        "batch_size": batch_size,
    }  # fmt: skip
    recorder = Recorder(model, settings, residual, head_names, attended)
    given = {"train": train, "test": test, "validation": validation}
    splits = {
        name: (recorder.split(*piece) for piece in pieces(name, examples, batch_size))
        for name, examples in given.items()
        if examples is not None
    }
    write = write_hdf5 if path.suffix in HDF5_SUFFIXES else write_npz
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: write(file, agreeing(splits), recorder.arrays_of_heads))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("path", path, f"{reason}; name a file to write") from None
    return path


def pieces(
    name: str, examples: Examples | Iterable[Examples], size: int
) -> Iterator[tuple[Any, np.ndarray | None]]:
    """Inputs and labels, so many examples at a time: their matrices are in memory."""
    if not isinstance(examples, tuple):
        for batch in examples:
            if not isinstance(batch, tuple | list):
                received = Verbatim(f"({type(batch).__name__})")
                raise InputError(name, received, "every batch must be a pair of inputs and labels")
            yield from pieces(name, tuple(batch), size)
        return
    if len(examples) != 2:
        remedy = "give a pair of inputs and labels"
        raise InputError(name, Verbatim(f"({len(examples)} values)"), remedy)
    tensors = as_tensors(examples[0])
    count = count_of(tensors)
    labels = read_labels(f"labels_{name}", examples[1], count)
    for start in range(0, count, size):
        part = slice(start, start + size)
        inputs = tensors[part] if isinstance(tensors, list) else batch_of(tensors, part)
        yield inputs, None if labels is None else labels[part]


@dataclass
class Recorder:
    """Records splits piece by piece; the first piece shows what layers and heads there are.

    settings  of `record_attention`
    """

    model: Any
    settings: Mapping[str, Any]
    residual: bool
    head_names: Sequence[Sequence[str]] | None
    readout: Readout | None
    recorded: RecordedAttention | None = field(default=None, init=False)

    def split(self, inputs: Any, labels: np.ndarray | None) -> Split | AttendedSplit:
        """A piece of a split: its attention, or what that leads to at the end of every path."""
        recorded = record_attention(self.model, inputs, **self.settings)
        counts = recorded.heads
        if self.head_names is not None and list(map(len, self.head_names)) != list(counts):
            remedy = f"name the heads of each layer of the model, {counts} in all"
            raise InputError("head_names", [list(names) for names in self.head_names], remedy)
        self.recorded = recorded
        if self.residual:
            recorded = recorded.with_identity_heads()
        split = Split(recorded.inputs, labels, recorded.attention, recorded.lengths)
        if self.readout is None:
            return split
        refuse_too_many_paths(recorded.heads, "heads")
        pairs = (False,) * len(recorded.heads)
        reached = attended_by_numpy(split, self.readout, pairs).astype(recorded.inputs.dtype)
        return AttendedSplit(reached, labels, recorded.heads)

    def arrays_of_heads(self) -> dict[str, Any]:
        """Arrays without an example axis: names of the heads, and where they come from.

        Heads are called by their numbers in the model; without names by their numbers in the file,
        which are the same unless some layers or heads are left out.
        """
        recorded, is_part = self.recorded, bool(self.settings["layers"] or self.settings["heads"])
        modules = zip(recorded.chosen, recorded.modules, strict=True)
        origin = [f"layer {number}: {module}" for number, module in modules if module]
        arrays: dict[str, Any] = {}
        if self.readout:
            origin.append(f"token read: {self.readout}")
            arrays["heads"] = np.array([count + self.residual for count in recorded.heads])
        if origin:
            arrays["origin"] = origin
        if is_part:
            arrays["layer_numbers"] = np.array(list(recorded.chosen))
        if is_part or self.residual or self.head_names is not None:
            for place, (number, heads) in enumerate(recorded.chosen.items()):
                names = [f"{number}.{head}" if is_part else str(head) for head in heads]
                if self.head_names is not None:
                    names = list(map(str, self.head_names[place]))
                arrays[f"head_names_{place + 1}"] = names + [RESIDUAL] * self.residual
        return arrays


def agreeing(
    splits: Mapping[str, Iterator[Split | AttendedSplit]],
) -> Iterator[tuple[str, Split | AttendedSplit]]:
    """Every piece with the name of its split; InputError where one differs from the first."""
    first = None
    for name, of_name in splits.items():
        of_split = None
        for piece in of_name:
            first, of_split = first or piece, of_split or piece
            check_agreement(first, piece, name)
            if (piece.labels is None) != (of_split.labels is None):
                remedy = "give labels with all batches, or with none"
                raise InputError(f"labels_{name}", None, remedy)
            yield name, piece
        if of_split is None:
            remedy = "no batch came; make a loader that has run out anew"
            raise InputError(name, Verbatim("(no examples)"), remedy)


def read_labels(
    field: str, labels: Any, examples: int, outputs: int | None = None
) -> np.ndarray | None:
    """Labels [example, output] as floats; InputError for what is missing or does not fit.

    outputs  of the model, where they are known: class numbers then become a column for each class
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
    numbers = array[:, 0].astype(int)
    if outputs in (None, 1):
        if (np.abs(numbers) == 1).all():
            return array
        remedy = "are class numbers; give ±1 for two classes, or a column of 0 and 1 for each class"
        raise InputError(field, np.unique(numbers).tolist(), remedy)
    if ((numbers < 0) | (numbers >= outputs)).any():
        remedy = f"are class numbers, and must be from 0 to {outputs - 1}, as the model has outputs"
        raise InputError(field, np.unique(numbers).tolist(), remedy)
    return np.eye(outputs, dtype=array.dtype)[numbers]
