"""Exported splits in files: .npz at once, or HDF5 piece by piece."""

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sampler.attention.padding import padded_together
from sampler.data.arrays import HDF5_SUFFIXES
from sampler.data.split import AttendedSplit, Split
from sampler.storage.files import written_by_hdf5

Pieces = Iterator[tuple[str, Split | AttendedSplit]]


@dataclass(frozen=True)
class Origin:
    """Heads of a file: their names, and where they come from.

    heads    of each layer, of attended inputs
    names    of the heads of each layer, where they have names
    numbers  of the layers in the model, from 1, where they are not all of it
    lines    further text: modules, the token read, channels that were kept
    """

    heads: tuple[int, ...] | None
    names: tuple[tuple[str, ...], ...] | None
    numbers: tuple[int, ...] | None
    lines: tuple[str, ...]

    @property
    def arrays(self) -> dict[str, Any]:
        """Arrays without an example axis, by their keys in the file."""
        found: dict[str, Any] = {"origin": list(self.lines)} if self.lines else {}
        if self.heads is not None:
            found["heads"] = np.array(self.heads)
        if self.numbers is not None:
            found["layer_numbers"] = np.array(self.numbers)
        for layer, of_layer in enumerate(self.names or (), start=1):
            found[f"head_names_{layer}"] = list(of_layer)
        return found


# Said of what was written, once it is.
OriginOf = Callable[[], Origin]


def write_pieces(path: Path, suffix: str, found: Pieces, origin: OriginOf) -> None:
    (write_hdf5 if suffix in HDF5_SUFFIXES else write_npz)(path, found, origin)


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


def write_npz(path: Path, found: Pieces, origin: OriginOf) -> None:
    parts: dict[str, list[np.ndarray]] = {}
    for name, split in found:
        for key, array in arrays_by_key(name, split).items():
            parts.setdefault(key, []).append(array)
    arrays = {key: padded_together(values) for key, values in parts.items()}
    drop_full_lengths(arrays)
    np.savez(path, **arrays, **origin().arrays)


def write_hdf5(path: Path, found: Pieces, origin: OriginOf) -> None:
    """Write piece by piece, each behind those before it; shorter sequences have 0 behind them."""
    with written_by_hdf5(path) as stored, h5py.File(stored, "w") as file:
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
        for key, array in origin().arrays.items():
            file[key] = array


def drop_full_lengths(arrays: MutableMapping[str, Any]) -> None:
    for key in [key for key in arrays if key.startswith("lengths_")]:
        if (arrays[key][:] == arrays[key.replace("lengths", "inputs")].shape[1]).all():
            del arrays[key]
