"""Being asked to stop: the chunk in work is finished and saved, then the program leaves.

Ctrl-C does not wait for the chunk. Python raises it wherever it is, and where that is inside a
callback or a library that clears errors, it is lost: it is then raised again, at once or after the
chunk.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sampler.errors import RequeueError
from sampler.jobs.second_signal import second_signal_ends

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
# By then a callback that lost an interrupt has come to its end.
SECONDS_TO_LEAVE = 0.02


class Interruption:
    """Whether a signal has asked the program to stop, and whether Ctrl-C has."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.interrupted = False

    def __call__(self, number: int, _frame) -> None:
        self.received = signal.Signals(number)
        # The next one ends the program at once, whatever it does then.
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def interrupt(self, _number: int, _frame) -> None:
        """Ctrl-C: remembered, and raised here and now."""
        self.interrupted = True
        raise KeyboardInterrupt

    def leave_if_asked(self, where: str) -> None:
        """Raise RequeueError if there was a signal; to be called when everything is saved.

        Raises KeyboardInterrupt if that was lost.
        """
        if self.interrupted:
            raise KeyboardInterrupt
        if self.received is not None:
            raise RequeueError(f"{self.received.name} received: {where} is saved; use `resume`")


def interrupt_main_thread() -> None:
    """Ctrl-C once more."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@contextmanager
def listening() -> Iterator[Interruption]:
    """Catch SIGTERM, SIGUSR1 and SIGINT while inside; to be used in the main thread.

    What a task inside a longer one received while it finished, the longer one hears of afterwards.
    """
    interruption = Interruption()
    before = {each: signal.signal(each, interruption) for each in SIGNALS}
    # A shell starts programs in the background with SIGINT ignored: that remains so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interruption.interrupt)
    hook, timers = sys.unraisablehook, []

    def again(lost) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            # By another thread: raised here it would be lost again.
            timers.append(threading.Timer(SECONDS_TO_LEAVE, interrupt_main_thread))
            timers[-1].start()
        else:
            hook(lost)

    sys.unraisablehook = again
    try:
        with second_signal_ends(SIGNALS):
            yield interruption
    finally:
        sys.unraisablehook = hook
        for timer in timers:
            timer.cancel()
        for each, handler in before.items():
            signal.signal(each, handler)
        around = before[signal.SIGTERM]
        if isinstance(around, Interruption):
            around.interrupted |= interruption.interrupted
            if interruption.received is not None:
                around(interruption.received, None)
