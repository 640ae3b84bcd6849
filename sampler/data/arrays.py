"""Arrays brought by the user, in memory or in a file: tokens with attention, or attended inputs.

HDF5 files may be larger than memory. Sizes are known from headers; of splits that would not fit
only labels are held, and the rest is read in blocks whenever it is asked for.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from sampler.data import split as splits
from sampler.data.checks import check_arrays, check_split
from sampler.data.heads_of_task import number_heads, uniform_attention, with_chosen_heads
from sampler.data.split import AttendedSplit, Split, StreamedSplit, block_size
from sampler.data.task import Task, name_paths
from sampler.errors import ABSENT, InputError, Setting, Verbatim
from sampler.settings.task import SPLITS, AttentionSection, TaskSection
from sampler.settings.types import FilePath
from sampler.storage.files import REQUIRED_ARRAY, open_npz, read_array

HDF5_SUFFIXES = (".h5", ".hdf5")
ATTENTION_KEY = re.compile(r"attention_(train|test|validation)_([1-9][0-9]*)")
HEAD_NAMES_KEY = re.compile(r"head_names_([1-9][0-9]*)")
# Required and optional arrays of both layouts, beside attention matrices and names of heads.
WITH_TOKENS = (
    ("inputs_train", "labels_train", "inputs_test"),
    ("labels_test", "inputs_validation", "labels_validation",
     "lengths_train", "lengths_test", "lengths_validation", "origin", "layer_numbers"),
)  # fmt: skip
ATTENDED = (
    ("attended_train", "labels_train", "heads", "attended_test"),
    ("labels_test", "attended_validation", "labels_validation", "origin", "layer_numbers"),
)


class ArrayKind(NamedTuple):
    """What an array must be: its axes, its types as NumPy abbreviates their kinds, and a remedy."""

    axes: str
    types: str
    remedy: str


NUMBERS, INTEGERS, TEXT = "biuf", "iu", "SUOiu"
PLAIN = "store a plain array of real numbers"
# A kind is what stands before the first "_" of a name.
KINDS = {
    "inputs": ArrayKind("[example, token, channel]", NUMBERS, PLAIN),
    "attended": ArrayKind("[example, path, channel]", NUMBERS, PLAIN),
    "labels": ArrayKind("[example] or [example, output]", NUMBERS, PLAIN),
    "attention": ArrayKind("[example, head, key, query]", NUMBERS, PLAIN),
    "lengths": ArrayKind(
        "[example]", INTEGERS, "store integers, the number of tokens of each sequence"
    ),
    "heads": ArrayKind(
        "[layer]", INTEGERS, "store integers, the number of heads of each layer, as in [2, 2]"
    ),
    "layer": ArrayKind(
        "[layer]", INTEGERS, "store integers, the number of each layer in its model, from 1"
    ),
    "head": ArrayKind("[head]", TEXT, "store text, as in np.array(['induction', 'residual'])"),
    "origin": ArrayKind("[line]", TEXT, "store text, a line each"),
}
NPZ_REMEDY = (
    "name an .npz or .h5 file; what it holds is said by help(sampler.arrays_task), and by "
    '"Bring your own arrays" in the documentation'
)
# What HDF5 says of a file that is open in this process as to its lock in another way than here.
OPENED_OTHERWISE = "locking flag"
# Arrays by name, of NumPy or of HDF5.
Arrays = Mapping[str, Any]


class ArraysSection(TaskSection):
    """Arrays brought by the user in a file."""

    brings_heads: ClassVar = True

    path: FilePath
    """An .npz or HDF5 file."""

    def make(self, attention: AttentionSection | None) -> Task:
        """Read the file; the heads are those of the recipe, if it has any."""
        layers = 0 if attention is None else len(attention.heads)
        return with_chosen_heads(read_arrays(self.path, layers), attention)


def read_arrays(path: str | Path, layers: int = 0) -> Task:
    """Read a task from the arrays of an .npz file, or the datasets of an HDF5 file.

    Real numbers of every type and layout become float64.

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
    head_names_l       [head], text, for every layer, where heads have names beside their numbers
    layer_numbers      [layer], integers, where layers are not numbered 1..L
    origin             [line], text: where the arrays come from, for `check`.

    Where heads are chosen for these `layers`, tokens need no attention matrices.
    Raises InputError, naming the array, for a file or an array that cannot be used.
    """
    path = Path(path)
    file = ArrayFile(path) if path.suffix in HDF5_SUFFIXES else None
    with opened(path, layers > 0) as arrays:
        return task_of_arrays(arrays, file, layers)


def task_of_arrays(arrays: Arrays, file: "ArrayFile | None" = None, layers: int = 0) -> Task:
    """Make a task from arrays under the names that they have in a `file`, which may be large.

    Without attention matrices there is one uniform head in each of so many `layers`. Raises
    InputError, naming the array, for one that cannot be used.
    """
    check_keys(list(arrays), layers > 0)
    for key, array in arrays.items():
        check_header(key, array)
    layers = 0 if any(map(ATTENTION_KEY.fullmatch, arrays)) else layers

    def made(name: str) -> Split | AttendedSplit | StreamedSplit | None:
        keys = [key for key in arrays if key.split("_")[1:2] == [name]]
        size = 8 * sum(math.prod(arrays[key].shape) for key in keys)
        if file is not None and size > splits.HELD_BYTES:
            return streamed(file, arrays, name, keys)
        split = read_split(arrays, name) if keys else None
        return with_uniform_heads(split, name, layers) if isinstance(split, Split) else split

    train, test, validation = map(made, SPLITS)
    check_split(train, "train")  # before heads are named: their number may be absurd
    names = stored_head_names(arrays, train.heads)
    numbers = None
    if "layer_numbers" in arrays:
        numbers = tuple(map(int, np.ravel(read_part(arrays, "layer_numbers"))))
    origin = np.ravel(read_part(arrays, "origin")).tolist() if "origin" in arrays else []
    return Task(
        train,
        test,
        names,
        name_paths(names),
        validation,
        layer_numbers=numbers,
        origin=tuple(text_of("origin", line) for line in origin),
    )


def with_uniform_heads(split: Split, name: str, layers: int) -> Split:
    """The split with a uniform head in each of so many layers."""
    if not layers:
        return split
    check_arrays(split, name)  # what lengths say is used here
    return replace(split, attention=(uniform_attention(split)[:, None],) * layers)


def read_split(arrays: Arrays, name: str, examples: slice = slice(None)) -> Split | AttendedSplit:
    """Read some examples of a split, in double precision."""

    def numbers(key: str) -> np.ndarray | None:
        return as_numbers(key, read_part(arrays, key, examples)) if key in arrays else None

    labels = numbers(f"labels_{name}")
    if "heads" in arrays:
        heads = tuple(map(int, read_part(arrays, "heads")))
        return AttendedSplit(numbers(f"attended_{name}"), labels, heads)
    layers = sum(key.startswith(f"attention_{name}_") for key in arrays)
    attention = tuple(numbers(f"attention_{name}_{layer}") for layer in range(1, layers + 1))
    return Split(numbers(f"inputs_{name}"), labels, attention, numbers(f"lengths_{name}"))


def read_part(arrays: Arrays, key: str, part: slice = slice(None)) -> Shaped[np.ndarray, "..."]:
    """Read one array, or some of its examples; InputError if that fails."""
    try:
        return arrays[key][part]
    except (OSError, ValueError, KeyError) as problem:
        remedy = f"{problem}; {kind_of(key).remedy}"
        raise InputError(key, Verbatim("(unreadable)"), remedy) from None


def as_numbers(
    key: str, array: Shaped[np.ndarray, "..."]
) -> Float[np.ndarray, "..."] | Int[np.ndarray, "..."]:
    """Convert to float64, lengths to int64; labels of one output get an output axis."""
    if key.startswith("labels_") and array.ndim == 1:
        array = array[:, None]
    kind = np.int64 if key.startswith("lengths_") else np.float64
    return np.ascontiguousarray(array, dtype=kind)


def stored_head_names(arrays: Arrays, heads: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Names of the heads of each layer that are stored, or else their numbers."""
    given = sorted(key for key in arrays if HEAD_NAMES_KEY.fullmatch(key))
    if not given:
        return number_heads(heads)
    names = []
    for layer, count in enumerate(heads, start=1):
        key = f"head_names_{layer}"
        require([key], list(arrays))
        of_layer = [text_of(key, name) for name in np.ravel(read_part(arrays, key)).tolist()]
        if len(of_layer) != count or len(set(of_layer)) != count or "" in of_layer:
            raise InputError(key, of_layer, f"give {count} different names, one for each head")
        names.append(tuple(of_layer))
    if len(given) > len(names):
        raise InputError(given[-1], ABSENT, f"there are {len(names)} layers; remove this array")
    return tuple(names)


def text_of(key: str, name: object) -> str:
    """Return a name as text; InputError for bytes that are no UTF-8."""
    try:
        return name.decode() if isinstance(name, bytes) else str(name)
    except UnicodeDecodeError:
        raise InputError(key, name, "must be UTF-8; store text, no bytes") from None


def is_array_name(key: str) -> bool:
    """Tell whether an array, and no setting, has a name like this."""
    of_tokens = ("inputs_", "labels_", "attention_", "lengths_", "head_names_", "layer_numbers")
    return key.startswith(of_tokens) or is_of_attended(key) or key == "origin"


def is_of_attended(key: str) -> bool:
    """Tell whether only the layout without tokens has an array of such a name."""
    return key == "heads" or key.startswith("attended_")


def check_keys(keys: list[str], heads_are_chosen: bool = False) -> None:
    """Raise InputError for an unknown key, a missing one, a gap in the layers, or two layouts."""
    attended = [key for key in keys if is_of_attended(key)]
    tokens = [key for key in keys if key.startswith(("inputs_", "attention_", "lengths_"))]
    if attended and tokens:
        remedy = "give attended inputs and heads, or inputs and attention matrices, not both"
        raise InputError(attended[0], Verbatim(f"(beside {tokens[0]})"), remedy)
    required, optional = ATTENDED if attended else WITH_TOKENS
    layers = [int(match[2]) for match in map(ATTENTION_KEY.fullmatch, keys) if match]
    for key in keys:
        is_known = key in required + optional or HEAD_NAMES_KEY.fullmatch(key)
        if not is_known and not ATTENTION_KEY.fullmatch(key):
            attention = () if attended else ("attention_train_1", "attention_test_1", "…")
            known = ", ".join((*required, *optional, *attention))
            remedy = f"remove it or rename it; known: {known}"
            raise InputError(key, Verbatim("(unknown array)"), remedy)
    names = SPLITS if any("_validation" in key for key in keys) else SPLITS[:2]
    if "validation" in names:
        required += (f"{'attended' if attended else 'inputs'}_validation", "labels_validation")
    if not attended:
        every = range(1, max(layers, default=0 if heads_are_chosen else 1) + 1)
        required += tuple(f"attention_{name}_{layer}" for layer in every for name in names)
    require(required, keys)


def require(required: Sequence[str], keys: list[str]) -> None:
    """Raise InputError for the first array that is missing."""
    for key in required:
        if key not in keys:
            raise InputError(key, ABSENT, "{}", REQUIRED_ARRAY)


def kind_of(key: str) -> ArrayKind:
    """Return what an array of this name must be."""
    return KINDS[key.split("_")[0]]


def check_header(key: str, array: Any) -> None:
    """Raise InputError unless this is an array of the type and the axes of its name."""
    kind = kind_of(key)
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None or dtype is None:  # a group of HDF5, or a dataset without a value
        raise InputError(key, Verbatim("(no array)"), kind.remedy)
    if dtype.kind not in kind.types:
        raise InputError(key, str(dtype), kind.remedy)
    axes = [form.count(",") + 1 for form in kind.axes.split(" or ")]
    if len(shape) not in axes or 0 in shape:
        remedy = f"the shape must be {kind.axes}, with no axis of length 0"
        raise InputError(key, tuple(shape), remedy)


@contextmanager
def opened(path: Path, heads_are_chosen: bool = False) -> Iterator[Arrays]:
    """Open a file that the recipe names: its arrays, those of an .npz file in memory.

    Where heads are chosen it need have no attention matrices. Raises InputError if it is no such
    file, or not whole.
    """
    if path.suffix in HDF5_SUFFIXES:
        with opened_hdf5(path) as file:
            check_keys(list(file), heads_are_chosen)
            yield {name: file[name] for name in file}
        return
    with open_npz(path, Setting("task", "path"), NPZ_REMEDY) as stored:
        check_keys(stored.files, heads_are_chosen)
        yield {key: read_array(stored, key, kind_of(key).remedy) for key in stored.files}


@contextmanager
def opened_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file, open elsewhere in this process or not; InputError if it is none."""
    import h5py  # only here: it takes a moment

    with ExitStack() as stack:
        try:
            path.stat()  # of what is not there HDF5 writes a paragraph
            file = h5py.File(path, "r", locking="best-effort")
        except FileNotFoundError as problem:
            remedy = f"{problem.strerror}; name an .npz or .h5 file"
            raise InputError(Setting("task", "path"), path, remedy) from None
        except OSError as problem:
            if OPENED_OTHERWISE not in str(problem):
                remedy = f"is not a readable HDF5 file ({problem}); name an .npz or .h5 file"
                raise InputError(Setting("task", "path"), path, remedy) from None
            # Read by Python it is another file to HDF5, which is slower.
            file = h5py.File(stack.enter_context(path.open("rb")), "r")
        yield stack.enter_context(file)


# --- splits that are read in blocks


@dataclass(frozen=True)
class ArrayFile:
    """A file, read once for the checksum of all its splits."""

    path: Path

    @cached_property
    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def streamed(file: ArrayFile, arrays: Arrays, name: str, keys: list[str]) -> StreamedSplit:
    """Make a split that is read in blocks; headers and first example are checked here."""
    key = examples_key(arrays, name)
    examples, first = len(arrays[key]), read_split(arrays, name, slice(0, 1))
    check_split(first, name)
    for other in keys:
        if len(arrays[other]) != examples:
            remedy = f"must have {examples} examples, as {key} has"
            raise InputError(other, arrays[other].shape, remedy)
    labels = None
    if f"labels_{name}" in arrays:
        labels = as_numbers(f"labels_{name}", read_part(arrays, f"labels_{name}"))
    numbers = sum(math.prod(arrays[key].shape) for key in keys) // examples
    source = FileSource(file, name, numbers)
    return StreamedSplit(source, labels, examples, first.heads, first.channels, first.tokens)


def examples_key(arrays: Arrays, name: str) -> str:
    return f"attended_{name}" if "heads" in arrays else f"inputs_{name}"


@dataclass(frozen=True)
class FileSource:
    """The examples of one split of a file, each of so many numbers."""

    file: ArrayFile
    name: str
    numbers: int

    def identity(self) -> str:
        """Return the name of the split and the checksum of the file."""
        return f"{self.name} {self.file.digest}"

    def blocks(self, first: int) -> Iterator[Split | AttendedSplit]:
        """Read the examples from this one on, block by block."""
        size = block_size(self.numbers, most=None)
        with opened(self.file.path) as arrays:
            for start in range(first, len(arrays[examples_key(arrays, self.name)]), size):
                block = read_split(arrays, self.name, slice(start, start + size))
                check_split(block, self.name, start)
                yield block
