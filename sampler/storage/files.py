"""Files that are there whole or not at all, strict JSON, and .npz files that are brought."""

import errno
import io
import json
import math
import os
import secrets
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from sampler.errors import InputError, Part, Verbatim, Words

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.lib.npyio import NpzFile

SCHEMA_VERSION = 6
EARLIER = "made by a version before the first release; run it again from its recipe"
# Files in the making; a killed process leaves them behind.
UNFINISHED = ".part-"
# What a file system says of a request that it does not know.
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What to do when a file can be written again, whichever command could not.
AGAIN = "then give the same command again, or `resume`"


def check_schema(version: object, file: str, current: int = SCHEMA_VERSION) -> None:
    """Raise InputError unless a file has the version that this program writes."""
    stored = "none" if version is None else str(version)
    if stored == str(current):
        return
    later = f"this program reads version {current}; install a newer version of this program"
    is_later = stored.isdecimal() and int(stored) > current
    raise InputError(file, f"schema_version {stored}", later if is_later else EARLIER)


# --- written whole


def write_whole(path: Path, text: str) -> None:
    """Write a text so that its file is there completely or not at all. Raises OSError."""
    fill_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_changed(path: Path, text: str) -> None:
    """Write a text, unless its file is there already; InputError where that fails."""
    if not (path.is_file() and path.read_text(encoding="utf-8") == text):
        write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """As `fill_whole`; InputError, with a remedy, where the file cannot be written."""
    try:
        fill_whole(path, write)
    except OSError as problem:
        raise InputError(path.name, path.parent, unwritable(problem)) from None


def fill_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    temporary = new_file(path)
    try:
        write(temporary)
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)  # or the new name might not survive a power failure
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def new_file(path: Path) -> Path:
    """Make an empty file beside `path`, readable for those whom the user's umask admits."""
    while True:
        with suppress(FileExistsError):
            (made := unfinished(path)).touch(exist_ok=False)
            return made


def unfinished(path: Path) -> Path:
    """A name beside `path` for what is not complete yet, another one at every call."""
    return path.with_name(f"{UNFINISHED}{path.stem}-{secrets.token_hex(4)}{path.suffix}")


def synchronise(path: Path) -> None:
    """Wait until a file or a directory is on the disk, where its file system can say so."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # a directory that may be written and not be read
        return
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def unwritable(problem: OSError) -> str:
    """Return why a file could not be written, and what helps against it."""
    reason = problem.strerror or str(problem)
    if problem.errno in FULL:
        return f"{reason}; free space, {AGAIN}"
    if isinstance(problem, PermissionError) or problem.errno == errno.EROFS:
        return f"{reason}; make the directory writable, {AGAIN}"
    return f"{reason}; mend that, {AGAIN}"


@contextmanager
def written_by_hdf5(path: Path) -> Iterator["ForHdf5"]:
    """A file that HDF5 writes, closed inside. Raises OSError where it could not be written.

    HDF5 never closes a file that it cannot write: it ends the process. It also locks a file that it
    opens itself, but files of a run are whole under their names, and their directory has a lock.
    """
    with path.open("w+b", buffering=0) as file:
        written = ForHdf5(file)
        try:
            yield written
        finally:
            if written.problem is not None:
                raise written.problem


class ForHdf5(io.RawIOBase):
    """A file to which every write of HDF5 seems to succeed.

    problem  the first that did not; what came after it was not written
    """

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self.problem: OSError | None = None

    def write(self, data) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while self.problem is None and left:
                left = left[self._file.write(left) :]
        except OSError as problem:
            self.problem = problem
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return self._file.truncate(size)
        except OSError as problem:
            self.problem = self.problem or problem
            return size or 0

    def readinto(self, buffer) -> int:
        return self._file.readinto(buffer)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


# --- tables


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as CSV, empty where a number does not exist."""
    finite = table.replace([math.inf, -math.inf], math.nan)
    write_atomically(path, lambda file: finite.to_csv(file, index=False, lineterminator="\n"))


# --- read back


def read_stored(path: Path, command: str, load: Callable[[Path], Any]) -> Any:
    """Load a result file; InputError, naming the command that makes it, if that fails."""
    if not path.is_file():
        raise InputError("DIR", path.parent, f"holds no {path.name}; first use `{command}`")
    try:
        return load(path)
    except (OSError, ValueError, KeyError) as problem:
        raise damaged(path, problem, command) from None


def damaged(path: Path, problem: object, command: str) -> InputError:
    """The error for a file that cannot be used: what is wrong, and the command that makes it."""
    remedy = f"cannot be read ({problem}); make it anew with `{command}`"
    return InputError(path.name, path, remedy)


# --- JSON


def write_json(path: Path, content: Mapping) -> None:
    """Write strict JSON: numbers that are not finite become null."""
    text = json_text(content)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def json_text(content: Mapping) -> str:
    """The text of a file of strict JSON."""
    return json.dumps(plain(content), indent=2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Arrays, NumPy numbers, tuples and NaN as what JSON has for them."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path, command: str = "run") -> dict:
    """Read a JSON file of a run directory, which `command` makes. Raises InputError."""

    def load(file: Path) -> dict:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        return content

    return read_stored(path, command, load)


NOTHING = {tuple: (), Mapping: {}, dict: {}, float: float("nan"), int: 0, str: "", bool: False}


def to_json(value: Any) -> Any:
    """A dataclass as a dict of its fields; one that is None by default is left out while it is.

    A class with a `to_json` of its own decides for itself. Arrays and numbers stay as they are.
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {
            field.name: to_json(getattr(value, field.name))
            for field in fields(value)
            if not (field.default is None and getattr(value, field.name) is None)
        }
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, list | tuple) else value


def from_json(kind: Any, content: Any) -> Any:
    """The inverse for a type: null is NaN, 0 or what is empty.

    Keys that are not there count as null. Raises ValueError, TypeError or
    AttributeError for content of another shape.
    """
    if hasattr(kind, "from_json"):
        return kind.from_json(content)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return None if content is None else from_json(inner, content)
    if content is None:
        return NOTHING.get(origin)
    if is_dataclass(kind):
        return kind(**{n: from_json(hint, content.get(n)) for n, hint in hints_of(kind).items()})
    if origin is tuple and arguments:
        return tuple(from_json(arguments[0], item) for item in content)
    if origin in (Mapping, dict) and arguments:
        return {key: from_json(arguments[1], item) for key, item in content.items()}
    if getattr(kind, "__name__", "") == "ndarray":
        import numpy as np  # only here: where runs stand is said without it

        return np.asarray(content, dtype=np.float64)
    return float(content) if kind is float else content


@cache
def hints_of(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


# --- .npz files that are brought


REQUIRED_ARRAY = Words("this array is required; add it to the .npz file", "this array is required")


@contextmanager
def open_npz(path: Path, field: Part, remedy: str = "name an .npz file") -> "Iterator[NpzFile]":
    """Open an .npz file that the recipe names under `field`; InputError if it is none."""
    import numpy as np

    try:
        # Opened here: NumPy leaves a file open when it turns out not to be an archive.
        with path.open("rb") as file:
            # Without the first bytes of an archive NumPy takes anything for one array or a pickle.
            beginning = file.read(6)
            if beginning[:2] != b"PK":
                kind = "not one array" if beginning == b"\x93NUMPY" else "as numpy.savez writes it"
                raise InputError(field, path, f"must be an .npz file, {kind}")
            file.seek(0)
            stored = np.load(file, allow_pickle=False)
            yield stored
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError(field, path, f"{reason}; {remedy}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise InputError(
            field, path, f"is not a readable .npz file ({problem}); store it again"
        ) from None


def read_array(stored: "NpzFile", key: str, remedy: str) -> "np.ndarray":
    """One array of the file; InputError with this remedy if it cannot be read."""
    try:
        array = stored[key]
        # A member that does not begin as an array does comes as bytes.
        reason = None if hasattr(array, "dtype") else "is no array"
    except ValueError:
        reason = "is damaged, or holds Python objects"
    except (EOFError, OSError, zipfile.BadZipFile, zipfile.zlib.error) as problem:
        reason = str(problem)
    if reason:
        raise InputError(key, Verbatim("(unreadable)"), f"{reason}; {remedy}")
    return array
