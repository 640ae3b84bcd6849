"""Files that are there whole or not at all, and strict JSON."""

import errno
import io
import json
import math
import os
import secrets
import shutil
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from sampler.errors import DiskError, InputError, one_line, shortened

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 7
# Files in the making; a killed process leaves them behind.
UNFINISHED = ".part-"
# What a file system answers that does not have a request.
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY)
# What helps against an error of the system; against any other: mend that.
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free space"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make the directory writable"),
}


def check_schema(version: object, file: str, current: int = SCHEMA_VERSION) -> None:
    """Raise InputError unless a file has the version that this program writes."""
    if str(version) == str(current):
        return
    remedy = "made by a version before the first release; run it again from its recipe"
    if str(version).isdecimal() and int(version) > current:
        remedy = f"this program reads version {current}; install a newer version of this program"
    raise InputError(file, f"schema_version {version}", remedy)


# --- written whole


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a temporary file or folder beside `path`, then put it in place in one step.

    Raises DiskError, with a remedy, where that fails; the file is then as it was.
    """
    temporary = unfinished(path)
    try:
        write(temporary)
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)  # or the new name might not survive a power failure
    except OSError as problem:
        raise disk_error(path, problem) from None
    finally:
        remove(temporary)


def disk_error(path: Path, problem: OSError) -> DiskError:
    """The error of a file that the system could not write."""
    remedy = f"{REMEDIES.get(problem.errno, 'mend that')}, then give the same command again"
    reason = one_line(problem.strerror or str(problem))
    return DiskError(f"{path.name} = {shortened(path.parent)}: {reason}; {remedy}, or `resume`")


def write_whole(path: Path, text: str) -> None:
    """Write a text, unless the file has it already; DiskError where that fails."""
    content = text.encode()
    if not (path.is_file() and path.read_bytes() == content):
        write_atomically(path, lambda temporary: temporary.write_bytes(content))


def unfinished(path: Path) -> Path:
    """A name beside `path` for what is not complete yet, another one at every call."""
    return path.with_name(f"{UNFINISHED}{path.stem}-{secrets.token_hex(4)}{path.suffix}")


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def synchronise(path: Path) -> None:
    """Wait until a file or a directory is on the disk, where its file system can say so."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def written_by_hdf5(path: Path) -> Iterator["ForHdf5"]:
    """A file that HDF5 writes, closed inside. Raises OSError where it could not be written.

    HDF5 never closes a file that it cannot write: it ends the process. It also locks a file that it
    opens itself, but files of a run are whole under their names, and their directory has a lock.
    """
    with ForHdf5(path, "w+b") as file:
        try:
            yield file
        finally:
            if file.problem is not None:
                raise file.problem


class ForHdf5(io.FileIO):
    """A file to which every write of HDF5 seems to succeed.

    problem  the first that did not
    held     what was not written from then on, with its place: HDF5 reads it back before it closes,
             and ends the process where it finds something else
    """

    problem: OSError | None = None

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self.held: list[tuple[int, bytes]] = []

    def write(self, data) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while self.problem is None and rest:
                rest = rest[super().write(rest) :]
        except OSError as problem:
            self.problem = problem
        if rest:
            self.held.append((self.tell(), bytes(rest)))
        return size

    def readinto(self, buffer) -> int:
        asked, start = memoryview(buffer).cast("B"), self.tell()
        size = super().readinto(asked)
        asked[size:] = bytes(len(asked) - size)
        for place, data in self.held:
            first, last = max(start, place), min(start + len(asked), place + len(data))
            if first < last:
                asked[first - start : last - start] = data[first - place : last - place]
                size = max(size, last - start)
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as problem:
            self.problem = self.problem or problem
            return size or 0


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
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        remedy = f"cannot be read ({problem}); make it anew with `{command}`"
        raise InputError(path.name, path, remedy) from None


# --- JSON


def write_json(path: Path, content: Mapping) -> None:
    """Write strict JSON: numbers that are not finite become null."""
    write_whole(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


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
    """The inverse of `to_json` for a type: null is NaN, None or what is empty.

    Fields that are not there count as null. Raises ValueError, TypeError or AttributeError for
    content of another shape.
    """
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        return None if content is None else from_json(arguments[0], content)
    if content is None:
        empty = {Mapping: dict, Any: types.NoneType}.get(origin, origin)
        return math.nan if kind is float else empty()
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{f.name: from_json(hints[f.name], content.get(f.name)) for f in fields(kind)})
    if origin is tuple and arguments:
        return tuple(from_json(arguments[0], item) for item in content)
    if origin in (Mapping, dict) and arguments:
        return {key: from_json(arguments[1], item) for key, item in content.items()}
    return float(content) if kind is float else content
