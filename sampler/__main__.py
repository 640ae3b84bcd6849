"""`python -m sampler`: the same as the console script `attention-posterior`."""

import gc
import os
import sys

from sampler.cli import main
from sampler.errors import ExitCode

# Libraries alone are 250,000 objects: a search of all of them for garbage takes 0.1 to 0.2 s.
OBJECTS_BETWEEN_SEARCHES = 20_000


def console() -> None:
    """Run the command of this process, and leave with its exit code."""
    gc.set_threshold(OBJECTS_BETWEEN_SEARCHES)
    settle_streams()
    code = main()
    # What cannot be written is dropped: Python would change the exit code for it.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if code == ExitCode.INTERRUPTED:
        # Threads of a computation that was cut short would abort the program on its way out.
        os._exit(code)
    # Python searches everything once more on its way out, which takes half a second.
    gc.freeze()
    sys.exit(code)


def settle_streams() -> None:
    """Open streams that this process was started without, and let stdout take any character."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # Or a file of results would have this number, and messages of libraries go there.
            opened = os.open(os.devnull, os.O_RDWR)
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8", closefd=False))
    sys.stdout.reconfigure(errors="replace")


if __name__ == "__main__":
    console()
