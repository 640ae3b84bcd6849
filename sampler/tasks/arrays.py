"""Arrays brought by the user in an .npz file: with tokens and attention, or attended inputs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.recipes.sections import Text
from sampler.recipes.task_section import TaskSection
from sampler.storage.run_directory import open_npz, read_array
from sampler.tasks import splits
from sampler.tasks.splits import AttendedSplit, Split, check_split
from sampler.tasks.task import Task, name_paths

ATTENTION_KEY = re.compile(r"attention_(train|test|validation)_([1-9][0-9]*)")
HDF5_SUFFIXES = (".h5", ".hdf5")
REQUIRED_KEYS = ("inputs_train", "labels_train", "inputs_test")
LENGTHS = ("lengths_train", "lengths_test", "lengths_validation")
OPTIONAL_KEYS = ("labels_test", "inputs_validation", "labels_validation", *LENGTHS)
REQUIRED_ATTENDED = ("attended_train", "labels_train", "heads", "attended_test")
OPTIONAL_ATTENDED = ("labels_test", "attended_validation", "labels_validation")
HEAD_NAMES_KEY = re.compile(r"head_names_([1-9][0-9]*)")
NPZ_REMEDY = "name an .npz or .h5 file, or write one (docs/howto/own_arrays.md)"
NUMBERS_REMEDY = "store a plain float32 or float64 array"
HEADS_REMEDY = "store integers, the number of heads of each layer, as in [2, 2]"
LENGTHS_REMEDY = "store integers, the number of tokens of each sequence"
NAMES_REMEDY = "store text, as in np.array(['induction', 'residual'])"
REMEDIES = {"heads": HEADS_REMEDY, "lengths": LENGTHS_REMEDY, "head": NAMES_REMEDY}


class ArraysSection(TaskSection):
    """Arrays brought by the user in an .npz or HDF5 file, at a path relative to the recipe."""

    data_paths: ClassVar = ("path",)

    path: Text

    def make(self, attention: None) -> Task:
        """Read the file."""
        return read_arrays(self.path)


def read_arrays(path: str | Path) -> Task:
    """Read a task from an .npz file of float32 or float64 arrays, or from HDF5 datasets like them.

    inputs_train       [example, token, channel]
    labels_train       [example] or [example, output]
    attention_train_l  [example, head, key, query], for every layer l = 1..L
    and the same with _test, where the labels are optional, and with _validation, where all of it
    is optional together. Of sequences of unequal length
    lengths_train      [example], integers: the tokens of each; those behind them are padding
    and again _test and _validation. The other layout, without tokens, has

    attended_train     [example, path, channel], ξ^π of every path in flat order, h_1 slowest
    labels_train       [example] or [example, output]
    heads              [layer], integers: heads of each layer, whose product is the number of paths
    and `attended_` and `labels_` with _test and _validation as above. In both
    head_names_l       [head], text, for every layer, where heads have names beside their numbers.

    Files may be larger than memory: they are read in blocks. Raises InputError, naming the array,
    for a file or an array that cannot be used.
    """
    path = Path(path)
    large = splits.HELD_BYTES // 2  # in single precision
    if path.suffix in HDF5_SUFFIXES or npz_bytes(path) > large:
        from sampler.tasks.array_files import read_in_blocks  # only here: h5py takes a moment

        return read_in_blocks(path)
    return arrays_task(read_npz(path))


def arrays_task(arrays: Mapping[str, np.ndarray]) -> Task:
    """A task from arrays under the names that they have in an .npz file.

    Raises InputError, naming the array, for one that cannot be used.
    """
    check_keys(list(arrays))
    if "heads" in arrays:
        return attended_task(arrays)
    layers = sum(key.startswith("attention_train_") for key in arrays)
    heads = [head_count(arrays[f"attention_train_{layer}"]) for layer in range(1, layers + 1)]
    names = names_of_heads(arrays, heads)
    arrays = {key: as_numbers(key, array) for key, array in arrays.items() if is_number(key)}
    return Task(
        make_split(arrays, "train", layers),
        make_split(arrays, "test", layers),
        names,
        name_paths(names),
        make_split(arrays, "validation", layers) if "inputs_validation" in arrays else None,
    )


def attended_task(arrays: Mapping[str, np.ndarray]) -> Task:
    """A task from attended inputs, labels and the number of heads of each layer."""
    heads = read_heads(arrays["heads"])
    numbers = {key: as_numbers(key, array) for key, array in arrays.items() if is_number(key)}
    train, test, validation = (
        AttendedSplit(numbers[f"attended_{name}"], numbers.get(f"labels_{name}"), heads)
        if f"attended_{name}" in numbers
        else None
        for name in ("train", "test", "validation")
    )
    check_split(train, "train")  # before heads are named: their number may be absurd
    names = names_of_heads(arrays, heads)
    return Task(train, test, names, name_paths(names), validation)


def names_of_heads(arrays: Mapping[str, Any], heads: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """The names of the heads of each layer that are stored, or else their numbers."""
    given = sorted(key for key in arrays if HEAD_NAMES_KEY.fullmatch(key))
    if not given:
        return tuple(tuple(map(str, range(of_layer))) for of_layer in heads)
    names = []
    for layer, count in enumerate(heads, start=1):
        key = f"head_names_{layer}"
        require([key], list(arrays))
        of_layer = [
            name.decode() if isinstance(name, bytes) else str(name)
            for name in np.ravel(arrays[key][:]).tolist()
        ]
        if len(of_layer) != count or len(set(of_layer)) != count or "" in of_layer:
            raise InputError(key, of_layer, f"give {count} different names, one for each head")
        names.append(tuple(of_layer))
    if len(given) > len(names):
        raise InputError(given[-1], ABSENT, f"there are {len(names)} layers; remove this array")
    return tuple(names)


def is_number(key: str) -> bool:
    """Whether an array holds numbers with an example axis."""
    return key != "heads" and not HEAD_NAMES_KEY.fullmatch(key)


def read_heads(heads: np.ndarray) -> tuple[int, ...]:
    """The number of heads of each layer."""
    if heads.dtype.kind not in "iu":
        raise InputError("heads", str(heads.dtype), HEADS_REMEDY)
    if heads.ndim != 1:
        raise InputError("heads", heads.tolist(), HEADS_REMEDY)
    return tuple(map(int, heads))


def npz_bytes(path: Path) -> int:
    """The size of the arrays of an .npz file once they are unpacked."""
    with open_npz(path, "task.path", NPZ_REMEDY) as stored:
        return sum(member.file_size for member in stored.zip.infolist())


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by their keys."""
    with open_npz(path, "task.path", NPZ_REMEDY) as stored:
        check_keys(stored.files)
        return {
            key: read_array(stored, key, REMEDIES.get(key.split("_")[0], NUMBERS_REMEDY))
            for key in stored.files
        }


def check_type(key: str, dtype: np.dtype) -> None:
    """Raise InputError unless numbers of this type are used."""
    if key.startswith("lengths_"):
        if dtype.kind not in "iu":
            raise InputError(key, str(dtype), LENGTHS_REMEDY)
    elif dtype not in (np.float32, np.float64):
        raise InputError(key, str(dtype), "store this array as float32 or float64")


def as_numbers(key: str, array: np.ndarray) -> np.ndarray:
    """The array in float64, lengths in int64; labels of one output get an output axis."""
    check_type(key, array.dtype)
    if key.startswith("lengths_"):
        return np.ascontiguousarray(array, dtype=np.int64)
    if key.startswith("labels_") and array.ndim == 1:
        array = array[:, None]
    return np.ascontiguousarray(array, dtype=np.float64)


def is_array_name(key: str) -> bool:
    """Whether an array, and no setting, has a name like this."""
    of_tokens = ("inputs_", "labels_", "attention_", "lengths_", "head_names_")
    return key.startswith(of_tokens) or is_of_attended(key)


def is_of_attended(key: str) -> bool:
    """Whether only the layout without tokens has an array of such a name."""
    return key == "heads" or key.startswith("attended_")


def check_keys(keys: list[str]) -> None:
    """Raise InputError for an unknown key, a missing one, a gap in the layers, or two layouts."""
    attended = [key for key in keys if is_of_attended(key)]
    tokens = [key for key in keys if key.startswith(("inputs_", "attention_", "lengths_"))]
    if attended and tokens:
        raise InputError(
            attended[0],
            Verbatim(f"(beside {tokens[0]})"),
            "give attended inputs and heads, or inputs and attention matrices, not both",
        )
    if attended:
        check_keys_of_attended(keys)
    else:
        check_keys_with_tokens(keys)


def check_keys_of_attended(keys: list[str]) -> None:
    """Raise InputError for an unknown key or a missing one."""
    required = list(REQUIRED_ATTENDED)
    if any(key.endswith("_validation") for key in keys):
        required += ["attended_validation", "labels_validation"]
    for key in keys:
        known = REQUIRED_ATTENDED + OPTIONAL_ATTENDED
        if key not in known and not HEAD_NAMES_KEY.fullmatch(key):
            refuse_key(key, (*REQUIRED_ATTENDED, *OPTIONAL_ATTENDED))
    require(required, keys)


def check_keys_with_tokens(keys: list[str]) -> None:
    """Raise InputError for an unknown key, a missing one, or a gap in the layers."""
    layers, splits = {1}, ["train", "test"]
    required = list(REQUIRED_KEYS)
    if any("_validation" in key for key in keys):
        splits.append("validation")
        required += ["inputs_validation", "labels_validation"]
    for key in keys:
        match = ATTENTION_KEY.fullmatch(key)
        if match:
            layers.add(int(match[2]))
        elif key not in REQUIRED_KEYS + OPTIONAL_KEYS and not HEAD_NAMES_KEY.fullmatch(key):
            attention = ("attention_train_1", "attention_test_1", "…")
            refuse_key(key, (*REQUIRED_KEYS, *OPTIONAL_KEYS, *attention))
    for layer in range(1, max(layers) + 1):
        required += [f"attention_{split}_{layer}" for split in splits]
    require(required, keys)


def refuse_key(key: str, known: tuple[str, ...]) -> NoReturn:
    remedy = f"remove it or rename it; known: {', '.join(known)}"
    raise InputError(key, Verbatim("(unknown array)"), remedy)


def require(required: list[str], keys: list[str]) -> None:
    for key in required:
        if key not in keys:
            raise InputError(key, ABSENT, "this array is required; add it to the .npz file")


def head_count(attention: np.ndarray) -> int:
    # An array without a head axis is refused, with its name, when the task is made.
    return attention.shape[1] if attention.ndim == 4 else 0


def make_split(arrays: Mapping[str, np.ndarray], name: str, layers: int) -> Split:
    return Split(
        arrays[f"inputs_{name}"],
        arrays.get(f"labels_{name}"),
        tuple(arrays[f"attention_{name}_{layer}"] for layer in range(1, layers + 1)),
        arrays.get(f"lengths_{name}"),
    )
