"""Signals that ask a command to stop.

Python runs its signal handlers between two of its own steps, and a compilation is one step of many
seconds. What the system tells of a signal at once, in a pipe, another thread reads meanwhile.

Ctrl-C does not wait for the chunk. Python raises it wherever it is, and where that is inside a
callback or a library that clears errors, it is lost: it is then raised again, at once or after the
chunk.

A scheduler that stops a job signals every process of it, and the script of the job passes the
signal on as well: what arrives within a moment of the first signal is that same signal.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from sampler.errors import ExitCode, RequeueError

FIRST = "{name} received: finishing {work}; if it is killed before, only that is lost\n"
MESSAGE = "{name} received for the second time: ended at once; {going_on}\n"
MOMENT = 2.0  # seconds
# From the warning that Slurm is asked for to its time limit.
WARNING_SECONDS = 120


@contextmanager
def second_signal_ends(
    signals: Collection[signal.Signals], in_work: Callable[[], str], going_on: Callable[[], str]
) -> Iterator[None]:
    """Inside, a second one of the signals ends the process, unless it comes within a moment.

    To be used in the main thread. `in_work` says, in a few words, what is finished after the first,
    `going_on` after the second where results are and what goes on with them.

    Every file is complete under its name at any moment, so that nothing but the chunk in work is
    lost. The exit code is that of a first signal that was heard.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    arguments = (reader, signals, in_work, going_on)
    watcher = threading.Thread(target=end_at_second, args=arguments, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()


def end_at_second(
    reader: int,
    signals: Collection[signal.Signals],
    in_work: Callable[[], str],
    going_on: Callable[[], str],
) -> None:
    """Read the numbers of signals until the pipe is closed, or until the second that counts."""
    first = None
    with os.fdopen(reader, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] not in signals:
                continue
            name = signal.Signals(number[0]).name
            if first is None:
                first = time.monotonic()
                say(FIRST.format(name=name, work=in_work()))
            elif time.monotonic() - first > MOMENT:
                say(MESSAGE.format(name=name, going_on=going_on()))
                os._exit(ExitCode.REQUEUE)


def say(text: str) -> None:
    """Write to stderr, if anybody reads it."""
    with suppress(OSError):
        os.write(2, text.encode())


def step_in_work() -> str:
    """Return the work that is finished first where nothing else was said."""
    return "the step in work"


def same_again() -> str:
    """Return the command that goes on where nothing else was said."""
    return "what was saved is kept, and the same command goes on"


# A little time is left. SIGTERM means besides that a batch system shall not queue the job again.
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = (signal.SIGTERM, *WARNINGS)
# By then a callback that lost an interrupt has come to its end.
SECONDS_TO_LEAVE = 0.02


class Interruption:
    """Whether a signal has asked the program to stop, and whether Ctrl-C has.

    in_work  says what a program that is asked to stop finishes first
    """

    def __init__(self) -> None:
        self.in_work: Callable[[], str] = step_in_work
        self.received: signal.Signals | None = None
        self.moment_over = 0.0
        self.interrupted = False

    def __call__(self, number: int, _frame) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            self.moment_over = time.monotonic() + MOMENT

    def interrupt(self, _number: int, _frame) -> None:
        """Ctrl-C: remembered, and raised here and now."""
        self.interrupted = True
        raise KeyboardInterrupt

    @property
    def asked(self) -> bool:
        return self.interrupted or self.received is not None

    def leave_if_asked(self, where: str, save: Callable[[], object] = lambda: None) -> None:
        """Raise RequeueError if there was a signal, after `save` has saved what `where` names.

        Without `save` that is saved already. Raises KeyboardInterrupt if that was lost.
        """
        if not self.asked:
            return
        # Not before: a signal may come between a save and this.
        save()
        if self.interrupted:
            raise KeyboardInterrupt
        raise RequeueError(f"{self.received.name} received: {where} is saved")


def one_that_listens() -> Interruption | None:
    """The interruption that handles signals now, if any does."""
    for each in (*SIGNALS, signal.SIGINT):
        handler = signal.getsignal(each)
        found = getattr(handler, "__self__", handler)  # of a method
        if isinstance(found, Interruption):
            return found
    return None


def interrupt_main_thread() -> None:
    """Ctrl-C once more."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@contextmanager
def listening(going_on: Callable[[], str] = same_again) -> Iterator[Interruption]:
    """Catch the signals that ask to stop, and SIGINT, while inside.

    A second signal ends the process with what `going_on` says. A task inside a longer one that
    listens already is told of the same signals, also in another thread. Where none does, a thread
    hears of no signal: Python lets none but the main one handle them.
    """
    around = one_that_listens()
    if around is not None:
        yield around
        return
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    handlers = dict.fromkeys(SIGNALS, interruption) | {signal.SIGINT: interruption.interrupt}
    # A signal that is ignored remains so: SIGHUP under `nohup`, SIGINT and SIGQUIT in programs that
    # a shell started in the background. One that is handled outside Python does too: its handler
    # could not be put back.
    before = {each: signal.getsignal(each) for each in handlers}
    before = {each: one for each, one in before.items() if one not in (signal.SIG_IGN, None)}
    for each in before:
        signal.signal(each, handlers[each])
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
        heard = [each for each in SIGNALS if each in before]
        with second_signal_ends(heard, lambda: interruption.in_work(), going_on):
            try:
                yield interruption
            finally:
                # The same signal may arrive once more until then.
                time.sleep(max(0.0, interruption.moment_over - time.monotonic()))
    finally:
        sys.unraisablehook = hook
        for timer in timers:
            timer.cancel()
        for each, handler in before.items():
            signal.signal(each, handler)
