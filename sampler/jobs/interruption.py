"""Signals that ask a command to stop.

The first one sets a flag, which is read after every chunk of work: the state is saved, and the
command leaves. A scheduler that stops a job signals every process of it, and the script of the job
passes the signal on as well: repeats within a moment of the first signal are ignored. A later one
ends the process; files are complete under their names at any moment, so that only the chunk in work
is lost.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sampler.errors import ExitCode, RequeueError

MOMENT = 2.0  # seconds
# A little time is left. SIGTERM means besides that a batch system shall not queue the job again.
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = (signal.SIGTERM, *WARNINGS)


class Interruption:
    """Whether a signal has asked the program to stop: its handler, or a question asked elsewhere.

    is_asked  the request where this process receives no signals itself, as a worker of Dask
    """

    def __init__(self, is_asked: Callable[[], bool] = lambda: False) -> None:
        self.is_asked, self.moment_over = is_asked, 0.0
        self._signal: signal.Signals | None = None

    @property
    def received(self) -> signal.Signals | None:
        """The signal that asked; None where there was none."""
        if self._signal is None and self.is_asked():
            self._signal = signal.SIGTERM
        return self._signal

    def __call__(self, number: int, _frame) -> None:
        if self._signal is None:
            self.ask(number)
        elif time.monotonic() > self.moment_over:
            os._exit(ExitCode.REQUEUE)

    def ask(self, number: int) -> None:
        """Ask the program to stop."""
        self.moment_over = time.monotonic() + MOMENT
        self._signal = signal.Signals(number)

    def leave_if_asked(self, where: str, save: Callable[[], object] = lambda: None) -> None:
        """Raise RequeueError if there was a signal, after `save` has saved to `where`."""
        if self.received is not None:
            save()
            raise RequeueError(f"{self.received.name} received: {where} is saved")


@contextmanager
def listening() -> Iterator[Interruption]:
    """Catch the signals that ask to stop while inside.

    A signal that is ignored remains so, as SIGHUP under `nohup`. Python lets none but the main
    thread handle signals: another one hears of none.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {each: signal.getsignal(each) for each in SIGNALS}
    before = {
        each: handler for each, handler in before.items() if handler not in (signal.SIG_IGN, None)
    }
    for each in before:
        signal.signal(each, interruption)
    try:
        yield interruption
    finally:
        # The same signal may arrive once more until then.
        time.sleep(max(0.0, interruption.moment_over - time.monotonic()))
        for each, handler in before.items():
            signal.signal(each, handler)
