"""Arrays brought by the user, in memory or in a file: tokens with attention, or attended inputs.

HDF5 files may be larger than memory. Sizes are known from headers; of splits that would not fit
only labels are held, and the rest is read in blocks whenever it is asked for.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sampler.data import split as splits
from sampler.data.array_files import (
    HDF5_SUFFIXES,
    REQUIRED_ARRAY,
    ArrayFile,
    Arrays,
    open_hdf5,
    open_npz,
    read_array,
)
from sampler.data.checks import check_split
from sampler.data.heads_of_task import with_chosen_heads
from sampler.data.split import AnySplit, AttendedSplit, Split, StreamedSplit, block_size
from sampler.data.task import HeadNames, Task
from sampler.errors import ABSENT, InputError, Setting, Verbatim
from sampler.settings.task_sections import SPLITS, AttentionSection, TaskSection
from sampler.settings.types import FilePath

ATTENTION_KEY = re.compile(r"attention_(train|test|validation)_([1-9][0-9]*)")
HEAD_NAMES_KEY = re.compile(r"head_names_([1-9][0-9]*)")
# Arrays beside attention matrices and names of heads: of the layout with tokens, of that without
# them, and of both.
OF_TOKENS = tuple(f"{what}_{name}" for name in SPLITS for what in ("inputs", "lengths"))
OF_PATHS = (*(f"attended_{name}" for name in SPLITS), "heads")
OF_BOTH = (*(f"labels_{name}" for name in SPLITS), "layer_numbers", "origin")
TEXT = ("head_names_", "origin")
WHOLE = ("lengths_", "heads", "layer_numbers")
NPZ_REMEDY = (
    "name an .npz or .h5 file; what it holds is said by help(sampler.arrays_task), and by "
    '"Bring your own arrays" in the documentation'
)


class ArraysSection(TaskSection):
    """Arrays brought by the user in a file."""

    brings_heads: ClassVar = True

    path: FilePath
    """An .npz or HDF5 file."""

    def make(self, attention: AttentionSection | None) -> Task:
        """Read the file; the heads are those of the recipe, if it has any."""
        task = read_arrays(self.path, heads_are_chosen=attention is not None)
        return with_chosen_heads(task, attention)


def read_arrays(path: str | Path, heads_are_chosen: bool = False) -> Task:
    """Read a task from the arrays of an .npz file, or the datasets of an HDF5 file.

    Real numbers of every type and layout become float64. Names and axes are those of the arguments
    of `sampler.arrays_task`; what is a list by layer there are arrays `attention_train_1`,
    `head_names_1` … here. A file may also have `layer_numbers` [layer], where layers are not
    numbered 1..L, and `origin` [line], text for `check` that tells where the arrays come from.

    Where heads are chosen, tokens need no attention matrices. Raises InputError, naming the array,
    for a file or an array that cannot be used.
    """
    path = Path(path)
    if path.suffix not in HDF5_SUFFIXES:
        remedy = "store a plain array again"
        with open_npz(path, Setting("task", "path"), NPZ_REMEDY) as stored:
            arrays = {key: read_array(stored, key, remedy) for key in stored.files}
            return task_of_arrays(arrays, heads_are_chosen)
    with open_hdf5(path) as arrays:
        return task_of_arrays(arrays, heads_are_chosen, ArrayFile(path))


def task_of_arrays(
    arrays: Arrays, heads_are_chosen: bool = False, file: "ArrayFile | None" = None
) -> Task:
    """Make a task from arrays under the names that they have in a `file`, which may be large.

    Where heads are chosen there need be no attention matrices. Raises InputError, naming the array,
    for one that cannot be used.
    """
    check_names(list(arrays), heads_are_chosen)
    for key in arrays:
        check_type(key, arrays[key])
    task = Task.of(*(split_of(arrays, name, file) for name in SPLITS))
    names = stored_head_names(arrays, task.heads)
    numbers = None
    if "layer_numbers" in arrays:
        numbers = tuple(np.ravel(read_part(arrays, "layer_numbers")).tolist())
        if len(numbers) != task.layers:
            remedy = f"number each of the {task.layers} layers"
            raise InputError("layer_numbers", list(numbers), remedy)
    origin = read_text(arrays, "origin") if "origin" in arrays else ()
    return replace(
        task, attention_names=names or task.attention_names, layer_numbers=numbers, origin=origin
    )


def split_of(arrays: Arrays, name: str, file: "ArrayFile | None") -> AnySplit | None:
    """One split of the arrays; streamed from a file where it would not fit into memory."""
    keys = [key for key in arrays if key.split("_")[1:2] == [name]]
    if not keys:
        return None
    numbers = sum(math.prod(arrays[key].shape) for key in keys)
    if file is None or 8 * numbers <= splits.HELD_BYTES:
        return read_split(arrays, name)
    first = read_split(arrays, name, slice(0, 1))
    check_split(first, name)
    examples = len(arrays[f"inputs_{name}" if first.tokens else f"attended_{name}"])
    for key in keys:
        if len(arrays[key]) != examples:
            raise InputError(key, arrays[key].shape, f"must have {examples} examples, as others")
    labels = None if first.labels is None else read_numbers(arrays, f"labels_{name}")
    source = FileSource(file, name, examples, numbers // examples)
    return StreamedSplit(source, labels, examples, first.heads, first.channels, first.tokens)


def read_split(arrays: Arrays, name: str, part: slice = slice(None)) -> Split | AttendedSplit:
    """Read some examples of a split, in double precision."""
    keys = (f"{what}_{name}" for what in ("inputs", "labels", "lengths", "attended"))
    inputs, labels, lengths, attended = (
        read_numbers(arrays, key, part) if key in arrays else None for key in keys
    )
    if "heads" in arrays:
        return AttendedSplit(attended, labels, tuple(np.ravel(read_part(arrays, "heads")).tolist()))
    layers = sum(key.startswith(f"attention_{name}_") for key in arrays)
    attention = tuple(
        read_numbers(arrays, f"attention_{name}_{layer}", part) for layer in range(1, layers + 1)
    )
    return Split(inputs, labels, attention, lengths)


def read_numbers(arrays: Arrays, key: str, part: slice = slice(None)) -> np.ndarray:
    """Read an array as float64, or lengths as int64; labels of one output get an output axis."""
    array = read_part(arrays, key, part)
    if key.startswith("labels_") and array.ndim == 1:
        array = array[:, None]
    return np.ascontiguousarray(array, np.int64 if key.startswith(WHOLE) else np.float64)


def read_part(arrays: Arrays, key: str, part: slice = slice(None)) -> np.ndarray:
    """Read one array, or some of its examples; InputError if that fails."""
    try:
        return arrays[key][part]
    except InputError:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise InputError(key, Verbatim("(unreadable)"), f"{problem}; store it again") from None


def read_text(arrays: Arrays, key: str) -> tuple[str, ...]:
    """Read the lines of an array; InputError for bytes that are no UTF-8."""
    lines = np.ravel(read_part(arrays, key)).tolist()
    try:
        return tuple(line.decode() if isinstance(line, bytes) else str(line) for line in lines)
    except UnicodeDecodeError:
        raise InputError(key, lines, "must be UTF-8; store text, no bytes") from None


def stored_head_names(arrays: Arrays, heads: Sequence[int]) -> HeadNames | None:
    """Names of the heads of each layer that are stored; None for none."""
    stored = {key for key in arrays if HEAD_NAMES_KEY.fullmatch(key)}
    if not stored:
        return None
    names = {f"head_names_{layer}": count for layer, count in enumerate(heads, start=1)}
    require(names, stored)
    for key in sorted(stored):
        of_layer = read_text(arrays, key)
        different = {name for name in of_layer if name and "·" not in name}
        if not len(different) == len(of_layer) == names.get(key):
            remedy = f"give {names.get(key, 0)} different names without ·, one for each head"
            raise InputError(key, list(of_layer), remedy)
    return tuple(read_text(arrays, key) for key in names)


# --- which arrays there are, and of which types


def is_array_name(key: str) -> bool:
    """Tell whether an array, and no setting, has a name like this."""
    prefixes = ("inputs_", "labels_", "attention_", "lengths_", "head_names_", "attended_")
    return key.startswith(prefixes) or key in ("heads", "layer_numbers", "origin")


def check_names(keys: Sequence[str], heads_are_chosen: bool) -> None:
    """Raise InputError for an unknown key, a missing one, a gap in the layers, or two layouts."""
    of_paths = [key for key in keys if key == "heads" or key.startswith("attended_")]
    of_tokens = [key for key in keys if key in OF_TOKENS or ATTENTION_KEY.fullmatch(key)]
    if of_paths and of_tokens:
        remedy = "give attended inputs and heads, or inputs and attention matrices, not both"
        raise InputError(of_paths[0], Verbatim(f"(beside {of_tokens[0]})"), remedy)
    allowed = (*(OF_PATHS if of_paths else OF_TOKENS), *OF_BOTH)
    for key in keys:
        is_of_layer = HEAD_NAMES_KEY.fullmatch(key) or ATTENTION_KEY.fullmatch(key)
        if key not in allowed and not is_of_layer:
            of_layers = () if of_paths else ("attention_train_1", "attention_test_1", "…")
            remedy = f"remove it or rename it; there are {', '.join((*allowed, *of_layers))}"
            raise InputError(key, Verbatim("(unknown array)"), remedy)
    names = [name for name in SPLITS if name != "validation" or any(name in key for key in keys)]
    inputs = "attended" if of_paths else "inputs"
    pairs = [(f"{inputs}_{name}", f"labels_{name}") for name in names]
    required = [key for pair in pairs for key in pair if key != "labels_test"]
    if of_paths:
        required.append("heads")
    else:
        layers = [int(match[2]) for match in map(ATTENTION_KEY.fullmatch, keys) if match]
        count = max(layers, default=0 if heads_are_chosen else 1)
        of_layers = range(1, count + 1)
        required += [f"attention_{name}_{layer}" for layer in of_layers for name in names]
    require(required, keys)


def require(required: Iterable[str], keys: Collection[str]) -> None:
    """Raise InputError for the first array that is missing."""
    for key in required:
        if key not in keys:
            raise InputError(key, ABSENT, "{}", REQUIRED_ARRAY)


def check_type(key: str, array: Any) -> None:
    """Raise InputError unless this is an array, with an axis, of the type of its name.

    A file may have what is none: a group of HDF5, or a dataset without a value.
    """
    kinds, wanted = "biuf", "real numbers"
    if key.startswith(TEXT):
        kinds, wanted = "SUOiu", "text"
    elif key.startswith(WHOLE):
        kinds, wanted = "iu", "integers"
    dtype = getattr(array, "dtype", None)
    if dtype is None or dtype.kind not in kinds or not array.shape:
        received = Verbatim("(no array)") if dtype is None else str(dtype)
        raise InputError(key, received, f"store a plain array of {wanted}")


# --- files of HDF5


@dataclass(frozen=True)
class FileSource:
    """The examples of one split of a file, each of so many numbers."""

    file: ArrayFile
    name: str
    examples: int
    numbers: int

    def identity(self) -> str:
        """Return the name of the split and the checksum of the file."""
        return f"{self.name} {self.file.digest}"

    def blocks(self, first: int, size: int | None = None) -> Iterator[Split | AttendedSplit]:
        """Read and check the examples from this one on, so many at a time, or as many as fit."""
        size = size or block_size(self.numbers, most=None)
        with open_hdf5(self.file.path) as arrays:
            for start in range(first, self.examples, size):
                block = read_split(arrays, self.name, slice(start, start + size))
                check_split(block, self.name, start)
                yield block
