"""The attention of a model of one's own in a file that `task.kind = "arrays"` reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import jax.numpy as jnp
import numpy as np

from sampler.attention.padding import padded_together
from sampler.errors import InputError, Verbatim
from sampler.storage.run_directory import UNLOCKED, fill_whole
from sampler.tasks.hdf5 import HDF5_SUFFIXES
from sampler.tasks.splits import AttendedSplit, Split, check_agreement
from sampler.transformer.forward_pass import Forward, as_numpy, torch_module
from sampler.transformer.recording import (
    as_tensors,
    check_batch_size,
    count_of,
    record_attention,
    taken,
)
from theory.path_kernels import Readout, attended_inputs

Examples = tuple[Any, Any]  # inputs, and labels or None


def export_attention(
    path: str | Path,
    model: Any,
    *,
    train: Examples | Iterable[Examples],
    test: Examples | Iterable[Examples],
    validation: Examples | Iterable[Examples] | None = None,
    residual: bool = False,
    head_names: Sequence[Sequence[str]] | None = None,
    attended: Readout | None = None,
    forward: Forward | None = None,
    batch_size: int = 64,
) -> Path:
    """Record the attention of a model and store it with inputs and labels; returns the path.

    path      ends in .npz, or in .h5 for a file of any size, which is written piece by piece
    train, test, validation
              a pair of inputs, as `record_attention` takes them, and labels [example] or
              [example, output]: ±1 for two classes, a column for each of several, or real numbers;
              or batches of such pairs, as a data loader yields them. Test labels may be None
    residual  every layer gets one more head, its last, whose attention is the identity: the path
              past a layer that a residual connection opens; it is called "residual"
    head_names
              a list of names for the heads of each layer, without that of the residual connection;
              without it heads are called by their numbers
    attended  "last", "first" or "mean": store the inputs at the end of every attention path, read
              out so, in the place of tokens and attention matrices. Networks inside the theory need
              no more, and of long sequences it is a small part

    Raises InputError, naming the array, for what cannot be used; nothing is written then.
    """
    path = Path(path)
    if path.suffix not in (".npz", *HDF5_SUFFIXES):
        raise InputError("path", path, "must end in .npz, or in .h5")
    check_batch_size(batch_size)
    given = {"train": train, "test": test, "validation": validation}
    record = partial(recorded_split, model, residual, attended, forward, batch_size)
    splits = {
        name: (record(name, *piece) for piece in pieces(name, examples, batch_size))
        for name, examples in given.items()
        if examples is not None
    }
    writer = write_hdf5 if path.suffix in HDF5_SUFFIXES else write_npz
    write = partial(writer, of_heads=partial(arrays_of_heads, residual, head_names))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fill_whole(path, lambda temporary: write(temporary, agreeing(splits)))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("path", path, f"{reason}; name a file to write") from None
    return path


def pieces(name: str, examples: Examples | Iterable[Examples], size: int) -> Iterator[Examples]:
    """Inputs and labels of a split, so many examples at a time: their matrices are held."""
    if not isinstance(examples, tuple):
        for batch in examples:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                received = Verbatim(f"({type(batch).__name__})")
                raise InputError(name, received, "every batch must be a pair of inputs and labels")
            yield from pieces(name, tuple(batch), size)
        return
    inputs, labels = examples
    tensors = as_tensors(inputs)
    count = count_of(tensors)
    labels = read_labels(f"labels_{name}", labels, count)
    for start in range(0, count, size):
        part = slice(start, start + size)
        some = tensors[part] if isinstance(tensors, list) else taken(tensors, part, "cpu")
        yield some, None if labels is None else labels[part]


def recorded_split(
    model: Any,
    residual: bool,
    attended: Readout | None,
    forward: Forward | None,
    batch_size: int,
    name: str,
    inputs: Any,
    labels: np.ndarray | None,
) -> Split | AttendedSplit:
    """The attention of a piece, or what it leads to at the end of every path, in float32."""
    recorded = record_attention(model, inputs, forward=forward, batch_size=batch_size)
    if residual:
        recorded = recorded.with_identity_heads()
    if attended is None:
        return Split(recorded.inputs, labels, recorded.attention, recorded.lengths)
    attention = tuple(map(jnp.asarray, recorded.attention))
    lengths = None if recorded.lengths is None else jnp.asarray(recorded.lengths)
    at_the_end = attended_inputs(jnp.asarray(recorded.inputs), attention, attended, lengths)
    return AttendedSplit(np.asarray(at_the_end), labels, recorded.heads)


def agreeing(
    splits: Mapping[str, Iterator[Split | AttendedSplit]],
) -> Iterator[tuple[str, Split | AttendedSplit]]:
    """Every piece with the name of its split; InputError where one differs from the first."""
    first = None
    for name, found in splits.items():
        for piece in found:
            first = first or piece
            check_agreement(first, piece, name)
            yield name, piece


def arrays_by_key(name: str, split: Split | AttendedSplit) -> dict[str, np.ndarray]:
    """The arrays of a split that have an example axis, by their keys in the file."""
    if isinstance(split, AttendedSplit):
        arrays = {f"attended_{name}": split.attended}
    else:
        layers = enumerate(split.attention, start=1)
        arrays = {f"attention_{name}_{layer}": matrices for layer, matrices in layers}
        arrays[f"inputs_{name}"] = split.inputs
        every = np.full(split.examples, split.tokens)
        arrays[f"lengths_{name}"] = every if split.lengths is None else split.lengths
    return arrays if split.labels is None else {**arrays, f"labels_{name}": split.labels}


Pieces = Iterator[tuple[str, Split | AttendedSplit]]
# Heads of each layer and their names, which are the same in every piece.
OfHeads = Callable[[Split | AttendedSplit], dict[str, Any]]


def write_npz(path: Path, found: Pieces, of_heads: OfHeads) -> None:
    """Write all pieces put together."""
    parts: dict[str, list[np.ndarray]] = {}
    for name, split in found:
        for key, array in arrays_by_key(name, split).items():
            parts.setdefault(key, []).append(array)
    arrays = {key: padded_together(values) for key, values in parts.items()}
    drop_full_lengths(arrays)
    np.savez(path, **arrays, **of_heads(split))


def write_hdf5(path: Path, found: Pieces, of_heads: OfHeads) -> None:
    """Write piece by piece, each behind those before it; shorter sequences have 0 behind them."""
    with h5py.File(path, "w", **UNLOCKED) as file:
        for name, split in found:
            for key, array in arrays_by_key(name, split).items():
                if key not in file:
                    file.create_dataset(key, data=array, maxshape=(None,) * array.ndim)
                    continue
                before = file[key].shape
                sizes = np.maximum(before[1:], array.shape[1:]).astype(int)
                file[key].resize((before[0] + len(array), *sizes))
                file[key][(slice(before[0], None), *map(slice, array.shape[1:]))] = array
        drop_full_lengths(file)
        for key, array in of_heads(split).items():
            file[key] = array


def drop_full_lengths(arrays: MutableMapping[str, Any]) -> None:
    """Remove the lengths of splits whose sequences all have all tokens."""
    for key in [key for key in arrays if key.startswith("lengths_")]:
        if (arrays[key][:] == arrays[key.replace("lengths", "inputs")].shape[1]).all():
            del arrays[key]


def arrays_of_heads(
    residual: bool, names: Sequence[Sequence[str]] | None, split: Split | AttendedSplit
) -> dict[str, Any]:
    """Make the arrays `heads`, of attended inputs, and `head_names_l`, of heads that have names.

    Names are those given, or numbers; the last head of a layer may be that of its residual.
    """
    found: dict[str, Any] = {}
    if isinstance(split, AttendedSplit):
        found["heads"] = np.array(split.heads)
    if not residual and names is None:
        return found
    heads = [count - residual for count in split.heads]
    names = [list(map(str, range(count))) for count in heads] if names is None else names
    if [len(of_layer) for of_layer in names] != heads:
        remedy = f"name the heads of each layer of the model, {tuple(heads)} in all"
        raise InputError("head_names", [list(of_layer) for of_layer in names], remedy)
    for layer, of_layer in enumerate(names, start=1):
        found[f"head_names_{layer}"] = [*of_layer, *["residual"] * residual]
    return found


def read_labels(field: str, labels: Any, examples: int) -> np.ndarray | None:
    """Labels [example, output] as float32; InputError for class numbers and for what is missing."""
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
    if not tensor.is_floating_point() and array.shape[1] == 1 and (np.abs(array) != 1).any():
        remedy = "are class numbers; give ±1 for two classes, or a column of 0 and 1 for each class"
        raise InputError(field, np.unique(array).astype(int).tolist(), remedy)
    return array
