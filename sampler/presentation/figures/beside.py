"""A second process that draws figures beside this one.

It is started before there is anything to draw, so that its imports are done by then. It is a plain
process, not one of `multiprocessing`: that would run the caller's script anew, or fork after JAX
has started threads. Without it, and whatever becomes of it, this process draws everything.
"""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

from sampler.numerics import usable_cores

# It does not live so long that garbage need be searched for.
CODE = "import gc; gc.disable(); from sampler.presentation.figures.draw import serve; serve({})"
# So long it may take over its last figure, when all others are drawn.
SECONDS_FOR_LAST = 20.0


@dataclass(frozen=True)
class SecondProcess:
    """The process, and the connection to it: figures are asked for, paths of files come back."""

    process: subprocess.Popen
    connection: Connection

    def share(
        self, names: Iterable[str], draw: Callable[[str], list[Path]], *about: Any
    ) -> dict[str, list[Path]]:
        """Draw figures in both processes, and return their files by name.

        draw   draws one of them here
        about  what the other process is told, beside the name of each

        A figure that the other process does not draw is drawn here.
        """
        left, made = deque(names), {}

        def ask() -> None:
            with suppress(EOFError, OSError, IndexError):
                self.connection.recv()  # its imports are done
                while True:
                    name = left.popleft()
                    made[name] = None
                    self.connection.send((name, *about))
                    made[name] = self.connection.recv()

        asking = Thread(target=ask, daemon=True)
        asking.start()
        # From the other end: the last ones are made of draws, which are in memory here.
        with suppress(IndexError):
            while True:
                name = left.pop()
                made[name] = draw(name)
        if None in made.values():
            asking.join(SECONDS_FOR_LAST)
        self.end()
        return {name: draw(name) if made.get(name) is None else made[name] for name in names}

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def second_process() -> Iterator[SecondProcess | None]:
    """Start a second process and end it on leaving; None where there is no core for it.

    It ends by itself when this one does. Signals of the terminal do not reach it.
    """
    if usable_cores() < 2:
        yield None
        return
    here, there = Pipe()
    # Where this process finds its modules, that one does too. Figures need no accelerator.
    environment = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    environment |= {"JAX_PLATFORMS": "cpu"}
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", CODE.format(there.fileno())],
            env=os.environ | environment,
            pass_fds=[there.fileno()],
            start_new_session=True,
            **quiet,
        )
    except OSError:
        yield None
        return
    finally:
        there.close()
    second = SecondProcess(process, here)
    try:
        yield second
    finally:
        second.end()
        here.close()
