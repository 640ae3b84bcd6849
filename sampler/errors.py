"""The failures a user can meet, and the exit code of each."""

import errno
from enum import IntEnum
from pathlib import Path, PurePath
from typing import Any


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    INTERNAL_ERROR = 1
    BAD_INPUT = 2
    DIAGNOSTICS_FAILED = 3
    NOT_CONVERGED = 4
    NOT_REPRODUCED = 5
    # EX_IOERR of sysexits.h: a disk is full or fails; earlier files are whole.
    DISK_ERROR = 74
    # EX_TEMPFAIL of sysexits.h: everything is saved, start the same command again.
    REQUEUE = 75
    INTERRUPTED = 130


# Of what came to its end, in the words of terminal and page.
ENDINGS = {
    ExitCode.OK: "fine",
    ExitCode.DIAGNOSTICS_FAILED: "MCMC diagnostics failed",
    ExitCode.NOT_CONVERGED: "the saddle point did not converge",
    ExitCode.REQUEUE: "stopped, saved",
}


class InputError(ValueError):
    """A recipe, a data file or an argument that cannot be used.

    Its text is one line, `field = value: remedy`.

    field   the name of an unusable value: a setting, as `network.widths`; an array; an option of a
            command, as `--out`; an argument of a function
    value   the value received
    remedy  for the user
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = field, value, remedy
        super().__init__(f"{one_line(field)} = {shortened(value)}: {one_line(remedy)}")

    def about(self, field: str) -> "InputError":
        """Return the same error under the caller's name of the value."""
        return InputError(field, self.value, self.remedy)

    def __reduce__(self):
        # Exception would otherwise be rebuilt from its one-line text alone.
        return InputError, (self.field, self.value, self.remedy)


def input_error_in(problem: Any) -> InputError | None:
    """The InputError that pydantic has taken for a report of its own; None where there is none.

    problem  its ValidationError
    """
    causes = (error.get("ctx", {}).get("error") for error in problem.errors())
    return next((cause for cause in causes if isinstance(cause, InputError)), None)


class DataWarning(UserWarning):
    """Suspicious data, which are used."""


class ReliabilityWarning(UserWarning):
    """Results not to be relied on: draws that fail their diagnostics, or no saddle point."""


class RequeueError(Exception):
    """A signal asked the program to stop and everything is saved: it can be started again."""

    exit_code = ExitCode.REQUEUE


class OutOfTimeError(Exception):
    """The minutes that a run may take are over before it has any draws; everything is saved."""

    exit_code = ExitCode.DIAGNOSTICS_FAILED


class DiskError(Exception):
    """Something cannot be written; everything under its name is whole, and can be continued."""

    exit_code = ExitCode.DISK_ERROR


class Verbatim(str):
    """Text that an error shows without quotation marks, instead of a value."""

    def __repr__(self) -> str:
        return str(self)


ABSENT = Verbatim("(absent)")


def refuse_another_theory() -> None:
    """Raise InputError where `import theory` does not find the package next to this one.

    Python looks first next to a script, or in the working directory: there people who validate a
    theory of their own have a file of that name.
    """
    from importlib.util import find_spec

    package = find_spec("theory")
    if package is None or package.origin is None:
        return
    origin = Path(package.origin)
    if origin.resolve().parent != Path(__file__).resolve().parent.parent / "theory":
        remedy = "hides a package of this program that has the same name; give it another one"
        raise InputError("import theory", origin, remedy)


# Errors of the system for a full or failing disk.
DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def exit_code_of(problem: BaseException) -> ExitCode:
    """Return the exit code of an error: its own, that of a disk, or that of an internal error."""
    if isinstance(problem, OSError) and problem.errno in DISK_FAILURES:
        return ExitCode.DISK_ERROR
    return getattr(problem, "exit_code", ExitCode.INTERNAL_ERROR)


# Errors of the system for a stream that cannot be written.
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.EIO, errno.EBADF)


def reason_of(problem: OSError) -> str:
    """Return the operation that the system refused, and its file; else the standard output."""
    reason = problem.strerror or f"{type(problem).__name__}: {problem}"
    if problem.filename is not None:
        return f"{reason}: {problem.filename}"
    unwritten = problem.errno in UNWRITTEN
    return f"cannot write to the standard output: {reason}" if unwritten else reason


def one_line(text: str) -> str:
    """The text with every run of white space, line breaks included, made one space."""
    return " ".join(str(text).split())


def shortened(value: object, limit: int = 80) -> str:
    """The value as Python writes it, on one line and cut to `limit` characters.

    Paths keep their end, which distinguishes files.
    """
    is_path = isinstance(value, PurePath)
    text = one_line(repr(str(value) if is_path else value))
    if is_path and len(text) > limit:
        return "'…" + text[2 - limit :]
    return text if len(text) <= limit else text[: limit - 1] + "…"
