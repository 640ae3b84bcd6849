"""The failures a user can meet, and the exit code of each."""

import re
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path, PurePath


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    INTERNAL_ERROR = 1
    BAD_INPUT = 2
    DIAGNOSTICS_FAILED = 3
    NOT_CONVERGED = 4
    NOT_REPRODUCED = 5
    # EX_TEMPFAIL of sysexits.h: everything is saved, start the same command again.
    REQUEUE = 75
    INTERRUPTED = 130


class InputError(Exception):
    """A recipe, a data file or a command-line argument that cannot be used.

    Its text is one line, `field = value: remedy`.
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{one_line(field)} = {shortened(value)}: {one_line(remedy)}")

    def __reduce__(self):
        # Exception would otherwise be rebuilt from its one-line text alone.
        return type(self), (self.field, self.value, self.remedy)


class DataWarning(UserWarning):
    """Data that can be used, and look as if they meant something else."""


class RequeueError(Exception):
    """A signal asked the program to stop and everything is saved: it can be started again."""

    exit_code = ExitCode.REQUEUE


class OutOfTimeError(Exception):
    """The minutes that a run may take are over before it has any draws; everything is saved."""

    exit_code = ExitCode.DIAGNOSTICS_FAILED


class Verbatim(str):
    """Text that an error shows without quotation marks, in the place of a value."""

    def __repr__(self) -> str:
        return str(self)


ABSENT = Verbatim("(absent)")


def refuse_another_theory() -> None:
    """Raise InputError where `import theory` finds something else than the package beside this one.

    Python looks first beside a script, or in the working directory: there people who validate a
    theory of their own have a file of that name.
    """
    found = find_spec("theory")
    if found is None or found.origin is None:
        return
    origin = Path(found.origin)
    if origin.resolve().parent != Path(__file__).resolve().parent.parent / "theory":
        remedy = "hides a package of this program that has the same name; give it another one"
        raise InputError("import theory", origin, remedy)


def with_keys(text: str, section: str) -> str:
    """A message with the keys of a section of the recipe in the place of `arguments`."""
    return re.sub(r"`([a-z_]+)`", rf"{section}.\1", text)


def one_line(text: str) -> str:
    """The text with every run of white space, line breaks included, made one space."""
    return " ".join(str(text).split())


def shortened(value: object, limit: int = 80) -> str:
    """The value as Python writes it, on one line and cut to `limit` characters.

    Of a path the end is kept, which tells files apart.
    """
    is_path = isinstance(value, PurePath)
    text = one_line(repr(str(value) if is_path else value))
    if is_path and len(text) > limit:
        return "'…" + text[2 - limit :]
    return text if len(text) <= limit else text[: limit - 1] + "…"
