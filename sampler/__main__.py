"""`python -m sampler`: the same as the console script `attention-posterior`."""

import os
import sys
from io import TextIOWrapper

from sampler.cli import main
from sampler.errors import ExitCode


def open_streams() -> None:
    """Give standard streams that are closed, as of a daemon, a place where nothing goes.

    Otherwise the next files would have their numbers, and output of libraries would go there.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def console() -> None:
    """Run the command of this process, and leave with its exit code."""
    open_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # of encodings without Greek letters
    code = main()
    if code == ExitCode.INTERRUPTED:
        # Threads of a computation that was cut short would abort the program on its way out.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    console()
