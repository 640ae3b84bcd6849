"""Arrays brought by the user in an .npz or HDF5 file, which may be larger than memory.

The names and axes are those of `sampler.tasks.arrays`. Sizes are known from headers. Of splits that
would not fit only labels are held, and the rest is read in blocks whenever it is asked for.
"""

import hashlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO

import h5py
import numpy as np
from numpy.lib import format as npy

from sampler.errors import InputError, Verbatim
from sampler.storage.run_directory import open_npz
from sampler.tasks import splits
from sampler.tasks.arrays import (
    HDF5_SUFFIXES,
    NPZ_REMEDY,
    NUMBERS_REMEDY,
    arrays_task,
    as_numbers,
    check_keys,
    check_type,
    is_number,
    names_of_heads,
    read_heads,
)
from sampler.tasks.splits import AttendedSplit, Split, StreamedSplit, block_size, check_split
from sampler.tasks.task import Task, name_paths

AXES = {
    "inputs": "[example, token, channel]",
    "attended": "[example, path, channel]",
    "labels": "[example] or [example, output]",
    "attention": "[example, head, key, query]",
    "heads": "[layer]",
    "lengths": "[example]",
    "head": "[head]",
}


HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass
class NpzMember:
    """One array of an .npz file, which may be compressed and is read from its beginning on."""

    archive: zipfile.ZipFile
    key: str
    stream: IO[bytes] = field(init=False)
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype = field(init=False)
    position: int = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """To the first example."""
        self.stream, self.position = self.archive.open(f"{self.key}.npy"), 0
        self.shape, by_columns, self.dtype = HEADERS[npy.read_magic(self.stream)](self.stream)
        if by_columns and len(self.shape) > 1:
            raise ValueError("its numbers are in Fortran order, which cannot be read in blocks")
        if self.dtype.hasobject:
            raise ValueError("it holds Python objects")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> np.ndarray:
        first, last, _ = part.indices(self.shape[0])
        if first < self.position:
            self.begin()
        each = self.dtype.itemsize * math.prod(self.shape[1:])
        self.stream.seek((first - self.position) * each, 1)
        wanted = max(0, last - first)
        content = self.stream.read(wanted * each)
        self.position = first + wanted
        if len(content) < wanted * each:
            raise EOFError("it ends early")
        return np.frombuffer(content, self.dtype).reshape(wanted, *self.shape[1:])


StoredArray = NpzMember | h5py.Dataset
Arrays = Mapping[str, StoredArray]
# What reading a damaged file may raise.
UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zipfile.zlib.error)


@contextmanager
def opened(path: Path) -> Iterator[Arrays]:
    """The arrays of a file that the recipe names; InputError if it is none, or not whole."""
    if path.suffix in HDF5_SUFFIXES:
        with opened_hdf5(path) as file:
            check_keys(list(file))
            for key, dataset in file.items():
                if not isinstance(dataset, h5py.Dataset):
                    wanted = f"must be an array {AXES[key.split('_')[0]]}"
                    raise InputError(key, Verbatim("(a group)"), wanted)
            yield file
        return
    with open_npz(path, "task.path", NPZ_REMEDY) as stored:
        check_keys(stored.files)
        members = {}
        for key in stored.files:
            try:
                members[key] = NpzMember(stored.zip, key)
            except UNREADABLE as problem:
                raise unreadable(key, problem) from None
        yield members


@contextmanager
def opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """An HDF5 file; InputError if it is none, or not whole."""
    try:
        file = h5py.File(path, "r")
    except OSError as problem:
        reason = str(problem)
        if not path.is_file():
            remedy = "there is no such file; name an .npz or .h5 file"
        elif "truncated" in reason:
            remedy = "the file is not whole (truncated); copy or write it again"
        else:
            remedy = "is not a readable HDF5 file; write it again"
        raise InputError("task.path", path, remedy) from None
    with file:
        yield file


def unreadable(key: str, problem: Exception) -> InputError:
    """An array that the file does not give."""
    return InputError(key, Verbatim("(unreadable)"), f"{problem}; {NUMBERS_REMEDY}")


def read_in_blocks(path: Path) -> Task:
    """The task of a file. Raises InputError, naming the array, for one that cannot be used."""
    with opened(path) as file:
        for key in file:
            check_header(key, file[key])
        sizes = {key: 8 * math.prod(file[key].shape) for key in file}
        keys_of = {
            name: [key for key in file if key.split("_")[1:2] == [name]]
            for name in ("train", "test", "validation")
        }
        large = {
            name
            for name, keys in keys_of.items()
            if sum(sizes[key] for key in keys) > splits.HELD_BYTES
        }
        if not large:
            return arrays_task({key: read_part(file, key) for key in file})
        whole = ArrayFile(path)
        made = {
            name: streamed(whole, file, name, keys) if name in large else held(file, name)
            for name, keys in keys_of.items()
            if keys
        }
        names = names_of_heads(file, made["train"].heads)
    return Task(made["train"], made["test"], names, name_paths(names), made.get("validation"))


def check_header(key: str, array: StoredArray) -> None:
    """Raise InputError unless this is an array of numbers with the axes of its name."""
    kind, shape = key.split("_")[0], array.shape
    if is_number(key):
        check_type(key, array.dtype)
    of_kind = {"labels": (1, 2), "heads": (1,), "lengths": (1,), "head": (1,), "attention": (4,)}
    axes = of_kind.get(kind, (3,))
    if len(shape) not in axes or 0 in shape:
        raise InputError(key, shape, f"the shape must be {AXES[kind]}, with no axis of length 0")


def read_part(file: Arrays, key: str, part: slice = slice(None)) -> np.ndarray:
    """One array, or some of its examples; InputError if it cannot be read."""
    try:
        return file[key][part]
    except UNREADABLE as problem:
        raise unreadable(key, problem) from None


def held(file: Arrays, name: str) -> Split | AttendedSplit:
    """A split that fits into memory."""
    split = block_of(file, name, slice(None))
    check_split(split, name)
    return split


def block_of(file: Arrays, name: str, examples: slice) -> Split | AttendedSplit:
    """Some examples of a split."""

    def numbers(key: str) -> np.ndarray:
        return as_numbers(key, read_part(file, key, examples))

    labels = numbers(f"labels_{name}") if f"labels_{name}" in file else None
    if "heads" in file:
        return AttendedSplit(numbers(f"attended_{name}"), labels, read_heads(file["heads"][:]))
    attention = tuple(map(numbers, attention_keys(file, name)))
    lengths = numbers(f"lengths_{name}") if f"lengths_{name}" in file else None
    return Split(numbers(f"inputs_{name}"), labels, attention, lengths)


def attention_keys(file: Arrays, name: str) -> list[str]:
    """The names of the attention matrices of a split, layer by layer."""
    layers = sum(key.startswith(f"attention_{name}_") for key in file)
    return [f"attention_{name}_{layer}" for layer in range(1, layers + 1)]


def examples_key(file: Arrays, name: str) -> str:
    """The array that says how many examples a split has."""
    return f"attended_{name}" if "heads" in file else f"inputs_{name}"


@dataclass(frozen=True)
class ArrayFile:
    """A file, read once for the checksum of all its splits."""

    path: Path

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole file."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def streamed(whole: ArrayFile, file: Arrays, name: str, keys: list[str]) -> StreamedSplit:
    """A split that is read in blocks; its headers and its first example are checked here."""
    key = examples_key(file, name)
    examples, first = len(file[key]), block_of(file, name, slice(0, 1))
    check_split(first, name)
    for other in keys:
        if len(file[other]) != examples:
            raise InputError(
                other, file[other].shape, f"must have {examples} examples, as {key} has"
            )
    labels = None
    if f"labels_{name}" in file:
        labels = as_numbers(f"labels_{name}", read_part(file, f"labels_{name}"))
    source = FileSource(whole, name, sum(math.prod(file[key].shape) for key in keys) // examples)
    return StreamedSplit(source, labels, examples, first.heads, first.channels, first.tokens)


@dataclass(frozen=True)
class FileSource:
    """The examples of one split of a file.

    numbers  of one example
    """

    file: ArrayFile
    name: str
    numbers: int

    def identity(self) -> str:
        """The numbers of the file, and the name of the split."""
        return f"{self.name} {self.file.digest}"

    def blocks(self, first: int) -> Iterator[Split | AttendedSplit]:
        """The examples from this one on."""
        size = block_size(self.numbers, most=None)
        with opened(self.file.path) as file:
            for start in range(first, len(file[examples_key(file, self.name)]), size):
                block = block_of(file, self.name, slice(start, start + size))
                check_split(block, self.name, start)
                yield block
