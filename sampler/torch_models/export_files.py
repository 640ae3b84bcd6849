"""Exported splits in files: .npz at once, or HDF5 piece by piece."""

from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sampler.attention.padding import padded_together
from sampler.data.split import AttendedSplit, Split
from sampler.storage.files import written_by_hdf5

Pieces = Iterator[tuple[str, Split | AttendedSplit]]
# Arrays without an example axis, which are there once all pieces are.
Further = Callable[[], dict[str, Any]]


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


def write_npz(path: Path, pieces: Pieces, further: Further) -> None:
    parts: dict[str, list[np.ndarray]] = {}
    for name, split in pieces:
        for key, array in arrays_by_key(name, split).items():
            parts.setdefault(key, []).append(array)
    arrays = {key: padded_together(values) for key, values in parts.items()}
    drop_full_lengths(arrays)
    np.savez(path, **arrays, **further())


def write_hdf5(path: Path, pieces: Pieces, further: Further) -> None:
    """Write piece by piece, each behind those before it; shorter sequences have 0 behind them."""
    with written_by_hdf5(path) as stored, h5py.File(stored, "w") as file:
        for name, split in pieces:
            if stored.problem is not None:
                break
            for key, array in arrays_by_key(name, split).items():
                if key not in file:
                    file.create_dataset(key, data=array, maxshape=(None,) * array.ndim)
                    continue
                before = file[key].shape
                sizes = np.maximum(before[1:], array.shape[1:]).astype(int)
                file[key].resize((before[0] + len(array), *sizes))
                file[key][(slice(before[0], None), *map(slice, array.shape[1:]))] = array
        drop_full_lengths(file)
        for key, array in further().items():
            file[key] = array


def drop_full_lengths(arrays: MutableMapping[str, Any]) -> None:
    """Leave out lengths of splits whose sequences have all tokens."""
    for key in [key for key in arrays if key.startswith("lengths_")]:
        if (arrays[key][:] == arrays[key.replace("lengths", "inputs")].shape[1]).all():
            del arrays[key]
