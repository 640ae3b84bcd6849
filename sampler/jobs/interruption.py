"""Being asked to stop: the chunk in work is finished and saved, then the program leaves."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sampler.errors import RequeueError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Interruption:
    """Whether a signal has asked the program to stop."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __call__(self, number: int, _frame) -> None:
        self.received = signal.Signals(number)
        # The next one ends the program at once, even in the middle of a compilation.
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def leave_if_asked(self, where: str) -> None:
        """Raise RequeueError if there was a signal; to be called when everything is saved."""
        if self.received is not None:
            raise RequeueError(f"{self.received.name} received: {where} is saved; use `resume`")


@contextmanager
def listening() -> Iterator[Interruption]:
    """Catch SIGTERM and SIGUSR1 while inside; to be used in the main thread.

    What a task inside a longer one received while it finished, the longer one hears of afterwards.
    """
    interruption = Interruption()
    before = {each: signal.signal(each, interruption) for each in SIGNALS}
    try:
        yield interruption
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        around = before[signal.SIGTERM]
        if interruption.received is not None and isinstance(around, Interruption):
            around(interruption.received, None)
