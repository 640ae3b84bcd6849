"""A second request to stop, where Python has not come to hear the first: it ends the program.

Python runs its signal handlers between two of its own steps, and a compilation is one step of many
seconds. What the system tells of a signal at once, in a pipe, another thread reads meanwhile.
"""

import os
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sampler.errors import ExitCode

MESSAGE = "{name} received for the second time: what was saved is kept; use `resume`\n"


@contextmanager
def second_signal_ends(signals: Collection[signal.Signals]) -> Iterator[None]:
    """Inside, a second one of the signals ends the process; to be used in the main thread.

    Every file is complete under its name at any moment, so that nothing but the chunk in work is
    lost. The exit code is that of a first signal that was heard.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=end_at_second, args=(reader, signals), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()


def end_at_second(reader: int, signals: Collection[signal.Signals]) -> None:
    """Read the numbers of signals until the pipe is closed, or until the second that counts."""
    heard = 0
    with os.fdopen(reader, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            heard += number[0] in signals
            if heard == 2:
                try:
                    os.write(2, MESSAGE.format(name=signal.Signals(number[0]).name).encode())
                finally:  # even where nobody reads stderr any more
                    os._exit(ExitCode.REQUEUE)
