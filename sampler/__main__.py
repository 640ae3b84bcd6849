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
    code = main()
    if code == ExitCode.INTERRUPTED:
        # Threads of a computation that was cut short would abort the program on its way out.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    # Python searches everything once more on its way out, which takes half a second.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    console()
