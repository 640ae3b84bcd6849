"""`python -m sampler`: the same as the console script `attention-posterior`."""

import os
import sys

from sampler.cli import main
from sampler.errors import ExitCode


def console() -> None:
    """Run the command of this process, and leave with its exit code."""
    sys.stdout.reconfigure(errors="replace")  # of encodings without Greek letters
    code = main()
    if code == ExitCode.INTERRUPTED:
        # Threads of a computation that was cut short would abort the program on its way out.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    console()
