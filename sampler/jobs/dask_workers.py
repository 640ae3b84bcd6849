"""Points of a sweep done by the workers of a Dask cluster: a task for each point.

Every worker sees the directory of the sweep under the same path. The point of a worker that is lost
goes to another one, which takes it up from the checkpoint in its directory.
"""

import secrets
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from sampler.compiled import cache_programs
from sampler.errors import ExitCode, InputError
from sampler.jobs.interruption import Interruption
from sampler.jobs.workers import Assignment, PointOutcome, PointPlans
from sampler.presentation.terminal import print_line
from sampler.runtime import prepare_process

CONNECT_SECONDS = 20
SECONDS_BETWEEN_LOOKS = 0.5
# A worker may have several threads, but NumPyro's handlers, the standard output and JAX's settings
# are those of the whole process: one point at a time.
ONE_POINT = threading.Lock()


@contextmanager
def dask_client(scheduler: str) -> Iterator[Any]:
    """A client of the scheduler at this address. Raises InputError where there is none."""
    try:
        distributed = import_module("distributed")
    except ImportError:
        remedy = "needs Dask: pip install 'attention-posterior[dask]', or use --workers"
        raise InputError("--scheduler", scheduler, remedy) from None
    try:
        client = distributed.Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as problem:
        remedy = f"no Dask scheduler answers ({problem}); start one with `dask scheduler`"
        raise InputError("--scheduler", scheduler, remedy) from None
    with client:
        count = len(client.nthreads())
        print_line(f"Dask at {scheduler}: {count} workers" + ("" if count else ", waiting"))
        yield client


def by_dask(
    client: Any, directory: Path, interruption: Interruption, assignment: Assignment
) -> Iterator[tuple[int, PointOutcome]]:
    """Let the workers of a cluster do points → every one with its outcome.

    Where a signal asks to stop, an event notifies the workers, and no point is begun.
    """
    event = import_module("distributed").Event(f"stop-{secrets.token_hex(8)}", client)
    # Not pure: the result is in the files, so no earlier one may replace it.
    executor, alike = client.get_executor(pure=False), replace(assignment, points=())
    at_work = {
        executor.submit(do_point, directory, event.name, alike, point): point
        for point in assignment.points
    }
    while at_work:
        if interruption.received is not None and not event.is_set():
            event.set()
        if interruption.received is not None and not client.nthreads():
            return  # nobody is at work
        ended, _ = futures.wait(at_work, SECONDS_BETWEEN_LOOKS, futures.FIRST_COMPLETED)
        for future in ended:
            yield at_work.pop(future), outcome_of(future)


def outcome_of(future: futures.Future) -> PointOutcome:
    """The outcome of a point, or that Dask gave it up: a lost worker, one without this package."""
    try:
        return future.result()
    except Exception as problem:
        text = f"Dask gave it up ({type(problem).__name__}); the same command continues from here"
        return PointOutcome(ExitCode.INTERNAL_ERROR, text)


# --- in a worker


def do_point(directory: Path, event: str, assignment: Assignment, point: int) -> PointOutcome:
    """Do a point while this process does no other, and until the event asks to stop."""

    def is_asked() -> bool:
        with suppress(OSError, RuntimeError):  # the scheduler is gone
            return import_module("distributed").Event(event).is_set()
        return False

    prepare_worker()
    with ONE_POINT:
        interruption = Interruption(is_asked)
        if interruption.received is not None:
            return PointOutcome(ExitCode.REQUEUE)
        return plans_of(directory, event, assignment).do(interruption, point)


@lru_cache(maxsize=1)
def plans_of(directory: Path, _event: str, assignment: Assignment) -> PointPlans:
    """The points of a sweep and the data that the last of them had; of each command its own."""
    return PointPlans(directory, assignment)


@cache
def prepare_worker() -> None:
    """Set a worker up as a command does, once."""
    prepare_process()
    cache_programs()
