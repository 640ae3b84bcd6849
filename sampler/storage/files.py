"""Files that are there whole or not at all, and strict JSON."""

import errno
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.errors import DiskError, InputError, one_line, shortened

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 8
# Files in the making; a killed process leaves them behind.
UNFINISHED = ".part-"
# Errors of a file system that lacks an operation.
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
    """Let `write` make a temporary file or folder next to `path`, then put it in place in one step.

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
    """A name next to `path` for an incomplete file, another one at every call."""
    return path.with_name(f"{UNFINISHED}{path.stem}-{secrets.token_hex(4)}{path.suffix}")


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def synchronise(path: Path) -> None:
    """Wait until a file or a directory is on the disk, if its file system can tell."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


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
        remedy = f"cannot be read ({problem}); make it again with `{command}`"
        raise InputError(path.name, path, remedy) from None


# --- JSON


def write_json(path: Path, content: Mapping) -> None:
    """Write strict JSON: numbers that are not finite become null."""
    write_whole(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Arrays, NumPy numbers, tuples and NaN in JSON's types."""
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


def read_schema_json(path: Path) -> dict:
    """The same of a file with a schema; InputError also for another schema."""
    content = read_json(path)
    check_schema(content.get("schema_version"), str(path))
    return content
