"""Arrays brought by the user, in memory or in a file: tokens with attention, or attended inputs.

HDF5 files may be larger than memory. Sizes are known from headers; of splits that would not fit
only labels are held, and the rest is read in blocks whenever it is asked for.
"""

import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np
from pydantic import PrivateAttr

from sampler.data import examples as limits
from sampler.data.array_files import (
    HDF5_SUFFIXES,
    REQUIRED_ARRAY,
    ArrayFile,
    NamedArrays,
    open_hdf5,
    open_npz,
    read_array,
)
from sampler.data.checks import check_examples
from sampler.data.examples import (
    AnyExamples,
    Examples,
    StreamedExamples,
    block_size,
    checksum_of,
)
from sampler.data.heads_of_task import with_chosen_heads
from sampler.data.task import HeadNames, Task
from sampler.errors import ABSENT, InputError, Verbatim
from sampler.runtime import refuse_masked
from sampler.settings.section import LIKE
from sampler.settings.task_sections import SPLITS, Attention, TaskSettings
from sampler.settings.types import FilePath
from sampler.storage.files import write_atomically

# Arrays of a file that arguments have as a list by layer.
BY_LAYER = re.compile(r"^(attention_[a-z]+|head_names)_(\d+)")
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
    "name an .npz or .h5 file; what it holds is said by help(sampler.Arrays), and by "
    '"Bring your own arrays" in the documentation'
)


@dataclass(frozen=True)
class HeldArrays:
    """Arrays in memory, under the names that they have in a file, and the name of such a file."""

    file: str
    arrays: NamedArrays = field(repr=False, compare=False)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "HeldArrays":
        """Copies of arrays, whose file is named by their checksum."""
        arrays = {key: as_array(key, value) for key, value in sorted(given.items())}
        text = repr([(key, array.dtype.str, array.shape) for key, array in arrays.items()])
        file = f"data-{checksum_of(text, *arrays.values())[:16]}.npz"
        return HELD.setdefault(file, cls(file, arrays))


# Those that are in use, by the name of the file: a recipe that is changed names it alone.
HELD: MutableMapping[str, HeldArrays] = WeakValueDictionary()


class Arrays(TaskSettings):
    """Data of one's own: a file, or in Python the arrays themselves, in one of two layouts.

    With tokens and attention,

    inputs      x₀ [example, token, channel]
    attention   a list with Ω [example, head, key, query] of each layer
    lengths     tokens of each sequence, [example], where they are not all as long; the tokens
                behind them are padding, which no other token may attend to

    or with the inputs at the end of every attention path, in flat order, the head of layer 1
    slowest,

    attended    [example, path, channel]
    heads       the number of heads of each layer, whose product is that of paths

    and with either of them

    labels      ±1 or real numbers, [example] or [example, output]; "teacher" for labels that are
                drawn from the network itself, beside `labels_train` then, which tell how many
    head_names  a list of names for each layer; without it heads are called by their numbers

    Those of the test set end in `_test`, where labels may be left out, and those of a validation
    set, all of it or nothing, in `_validation`. In a file those of training end in `_train`, and of
    lists there is an array for each layer: `attention_train_1`, `head_names_1`. A directory of
    results keeps arrays in memory as such a file.
    """

    brings_heads: ClassVar = True

    kind: Literal["arrays"] = "arrays"
    path: FilePath
    """An .npz or HDF5 file."""
    _held: HeldArrays | None = PrivateAttr(None)

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        inputs: Any = None,
        attention: Sequence[Any] | None = None,
        labels: Any = "task",
        lengths: Any = None,
        attended: Any = None,
        heads: Sequence[int] | None = None,
        head_names: Sequence[Sequence[str]] | None = None,
        **others: Any,
    ) -> None:
        given = {
            "inputs": inputs, "attention": attention, "lengths": lengths, "attended": attended,
            "heads": heads, "head_names": head_names, **others,
        }  # fmt: skip
        arrays = named_as_in_a_file(given)
        settings = {key: value for key, value in others.items() if not is_array_name(key)}
        if isinstance(labels, str):
            settings["labels"] = labels
        else:
            arrays["labels_train"] = labels
        refuse_misspelt(settings, type(self).model_fields, given.keys() - others.keys())
        held = HeldArrays.of(arrays) if arrays else None
        if held is not None and path is not None:
            raise InputError("task.path", path, "give the path or the arrays, not both")
        if path is not None:
            settings["path"] = path
        elif held is None:
            remedy = (
                "name a file, or give arrays: inputs, attention and labels, or attended and heads"
            )
            raise InputError("task.path", ABSENT, remedy)
        super().__init__(**settings, **({"path": held.file} if held else {}))
        self._held = held or HELD.get(Path(self.path).name)

    def kept_in(self, directory: Path) -> "Arrays":
        """The same data; arrays in memory are then a file in the directory of the results."""
        if not self.unwritten:
            return self
        return self.model_copy(update={"path": str(directory / self._held.file)})

    @property
    def unwritten(self) -> str | None:
        """Path of the file of arrays in memory, where no directory keeps it yet."""
        return self.path if self._held is not None and not Path(self.path).is_file() else None

    def keep(self, directory: Path) -> None:
        """Write that file, if it belongs into this directory and is not there yet."""
        path = Path(self.path)
        if self._held is None or path.parent != directory.resolve() or path.is_file():
            return
        arrays = self._held.arrays

        def write(unfinished: Path) -> None:
            with unfinished.open("wb") as file:
                np.savez(file, **arrays)

        write_atomically(path, write)

    def make(self, attention: Attention | None = None) -> Task:
        """Read the arrays; the heads are those of the recipe, if it has any."""
        chosen = attention is not None
        if self._held is None:
            task = read_arrays(self.path, heads_are_chosen=chosen)
        else:
            try:
                task = task_of_arrays(self._held.arrays, heads_are_chosen=chosen)
            except InputError as problem:
                raise problem.about(as_argument(problem.field)) from None
        return with_chosen_heads(task, attention)


def named_as_in_a_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that are arrays, under the names that they have in a file."""
    arrays = {}
    for argument, value in given.items():
        is_train = argument in ("inputs", "attention", "lengths", "attended")
        name = f"{argument}_train" if is_train else argument
        if value is None or not (is_array_name(name) or name == "head_names"):
            continue
        if name == "head_names" or name in (f"attention_{split}" for split in SPLITS):
            if len(getattr(value, "shape", ())) == 4:  # an array of one layer
                shape = Verbatim(f"(an array {tuple(value.shape)})")
                raise InputError(argument, shape, "give a list with an array for each layer")
            arrays |= {f"{name}_{layer}": array for layer, array in enumerate(value, start=1)}
        else:
            arrays[name] = value
    return arrays


def refuse_misspelt(
    given: Mapping[str, Any], settings: Collection[str], arrays: Collection[str]
) -> None:
    """Raise InputError for a name that is none of a setting or an array, but like one."""
    for name in [name for name in given if name not in settings]:
        for known, kind, prefix in ((settings, "key", "task."), (arrays, "array", "")):
            if close := get_close_matches(name, known, n=1, cutoff=LIKE):
                remedy = f"this {kind} is unknown; did you mean {prefix}{close[0]}?"
                raise InputError(f"{prefix}{name}", given[name], remedy)


def as_argument(name: str) -> str:
    """The name of an array in a file as that of the argument, with the place in its list."""
    by_layer = BY_LAYER.sub(lambda found: f"{found[1]}[{int(found[2]) - 1}]", name)
    return by_layer if by_layer.startswith("labels") else by_layer.replace("_train", "", 1)


def as_array(key: str, value: Any) -> np.ndarray:
    """A copy as an array; InputError for other objects and masked arrays."""
    argument = as_argument(key)
    refuse_masked(argument, value)
    try:
        array = np.array(value)
    except ValueError:  # lists of different lengths
        remedy = "give an array: lists in a list have one length"
        raise InputError(argument, value, remedy) from None
    array.flags.writeable = False
    return array


def read_arrays(path: str | Path, heads_are_chosen: bool = False) -> Task:
    """Read a task from the arrays of an .npz file, or the datasets of an HDF5 file.

    Real numbers of every type and layout become float64. Names and axes are those of the arguments
    of `sampler.Arrays`, of training with `_train`; what is a list by layer there are arrays
    `attention_train_1`, `head_names_1` … here. A file may also have `layer_numbers` [layer], where
    layers are not numbered 1..L, and `origin` [line], text for `check` that tells where the arrays
    come from.

    Where heads are chosen, tokens need no attention matrices. Raises InputError, naming the array,
    for a file or an array that cannot be used.
    """
    path = Path(path)
    if path.suffix not in HDF5_SUFFIXES:
        remedy = "store a plain array again"
        with open_npz(path, "task.path", NPZ_REMEDY) as stored:
            arrays = {key: read_array(stored, key, remedy) for key in stored.files}
            return task_of_arrays(arrays, heads_are_chosen)
    with open_hdf5(path) as arrays:
        return task_of_arrays(arrays, heads_are_chosen, ArrayFile(path))


def task_of_arrays(
    arrays: NamedArrays, heads_are_chosen: bool = False, file: "ArrayFile | None" = None
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


def split_of(arrays: NamedArrays, name: str, file: "ArrayFile | None") -> AnyExamples | None:
    """One split of the arrays; streamed from a file where it would not fit into memory."""
    keys = [key for key in arrays if key.split("_")[1:2] == [name]]
    if not keys:
        return None
    numbers = sum(math.prod(arrays[key].shape) for key in keys)
    if file is None or 8 * numbers <= limits.HELD_BYTES:
        return read_split(arrays, name)
    first = read_split(arrays, name, slice(0, 1))
    check_examples(first, name)
    examples = len(arrays[f"inputs_{name}" if first.tokens else f"attended_{name}"])
    for key in keys:
        if len(arrays[key]) != examples:
            raise InputError(key, arrays[key].shape, f"must have {examples} examples, as others")
    labels = None if first.labels is None else read_numbers(arrays, f"labels_{name}")
    return examples_of_file(file, name, labels, examples, numbers // examples)


def read_split(arrays: NamedArrays, name: str, part: slice = slice(None)) -> Examples:
    """Read some examples of a split, in double precision."""
    keys = (f"{what}_{name}" for what in ("inputs", "labels", "lengths", "attended"))
    inputs, labels, lengths, attended = (
        read_numbers(arrays, key, part) if key in arrays else None for key in keys
    )
    if "heads" in arrays:
        heads = tuple(np.ravel(read_part(arrays, "heads")).tolist())
        return Examples(attended, labels, path_heads=heads)
    layers = sum(key.startswith(f"attention_{name}_") for key in arrays)
    attention = tuple(
        read_numbers(arrays, f"attention_{name}_{layer}", part) for layer in range(1, layers + 1)
    )
    return Examples(inputs, labels, attention, lengths)


def read_numbers(arrays: NamedArrays, key: str, part: slice = slice(None)) -> np.ndarray:
    """Read an array as float64, or lengths as int64; labels of one output get an output axis."""
    array = read_part(arrays, key, part)
    if key.startswith("labels_") and array.ndim == 1:
        array = array[:, None]
    return np.ascontiguousarray(array, np.int64 if key.startswith(WHOLE) else np.float64)


def read_part(arrays: NamedArrays, key: str, part: slice = slice(None)) -> np.ndarray:
    """Read one array, or some of its examples; InputError if that fails."""
    try:
        return arrays[key][part]
    except InputError:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise InputError(key, Verbatim("(unreadable)"), f"{problem}; store it again") from None


def read_text(arrays: NamedArrays, key: str) -> tuple[str, ...]:
    """Read the lines of an array; InputError for bytes that are no UTF-8."""
    lines = np.ravel(read_part(arrays, key)).tolist()
    try:
        return tuple(line.decode() if isinstance(line, bytes) else str(line) for line in lines)
    except UnicodeDecodeError:
        raise InputError(key, lines, "must be UTF-8; store text, no bytes") from None


def stored_head_names(arrays: NamedArrays, heads: Sequence[int]) -> HeadNames | None:
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
            remedy = REQUIRED_ARRAY
            if key in ("inputs_test", "attended_test"):
                remedy += "; without a test set give some of the training inputs, and no labels"
            raise InputError(key, ABSENT, remedy)


def check_type(key: str, array: Any) -> None:
    """Raise InputError unless this is an array, with an axis, of the type of its name.

    HDF5 files may also have groups, and datasets without a value.
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


def examples_of_file(
    file: ArrayFile, name: str, labels: np.ndarray | None, examples: int, numbers: int
) -> StreamedExamples:
    """The examples of one split of a file, read and checked in blocks."""

    def blocks(first: int, size: int | None) -> Iterator[Examples]:
        size = size or block_size(numbers, most=None)
        with open_hdf5(file.path) as arrays:
            for start in range(first, examples, size):
                block = read_split(arrays, name, slice(start, start + size))
                check_examples(block, name, start)
                yield block

    return StreamedExamples(blocks, labels, examples, lambda: (f"{name} {file.digest}",))
