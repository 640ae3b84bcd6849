"""Points of a sweep on Dask workers, of this machine or of a cluster.

Dask gives the point of a lost worker to another one, which takes it up where its directory says it
stands. Every worker must see the directory under the same path.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any

from sampler.errors import ExitCode, InputError
from sampler.jobs.point import PointOutcome, SweepPoint, attempt_point

OUTPUT_ENDING = ".output.txt"
CONNECT_SECONDS = 20
Outcomes = Iterator[tuple[SweepPoint, PointOutcome]]


def dask_engine(workers: int | None, scheduler: str | None) -> Callable[..., Outcomes]:
    """The engine of so many local worker processes, or of the cluster behind a scheduler.

    Raises InputError, before anything is started, if Dask is not installed.
    """
    try:
        distributed = import_module("distributed")
    except ImportError:
        option, value = ("--scheduler", scheduler) if scheduler else ("--workers", workers)
        remedy = "needs Dask: pip install 'attention-posterior[dask]', or leave this option out"
        raise InputError(option, value, remedy) from None

    def run_on_workers(points: Sequence[SweepPoint]) -> Outcomes:
        """Yield every point as it ends, in whatever order."""
        with connected(distributed, workers, scheduler) as client:
            # Not pure: the result is in the files, so no earlier one may stand in for it.
            futures = {client.submit(work, point, pure=False): point for point in points}
            for future in distributed.as_completed(futures):
                yield futures[future], outcome_of(future)

    return run_on_workers


@contextmanager
def connected(distributed: Any, workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A client of the cluster at this address, or else of one made for the purpose."""
    if scheduler:
        try:
            client = distributed.Client(scheduler, timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as problem:
            remedy = f"no Dask scheduler answers ({problem}); start one with `dask scheduler`"
            raise InputError("--scheduler", scheduler, remedy) from None
        with client:
            known = len(client.nthreads())
            print(f"Dask at {scheduler}: {known} workers" + (", waiting" if not known else ""))
            yield client
        return
    # A worker near Dask's limit of memory would be stopped in the middle of a point.
    local = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "memory_limit": 0}
    with (
        distributed.LocalCluster(**local, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def work(point: SweepPoint) -> PointOutcome:
    """What a worker does: the point, with everything it prints beside the point's directory."""
    output_path = point.directory.with_name(f"{point.directory.name}{OUTPUT_ENDING}")
    with (
        output_path.open("a", encoding="utf-8") as output,
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        # The scheduler gives a point to another worker only when the first one is lost.
        return attempt_point(point, alone=True)


def outcome_of(future: Any) -> PointOutcome:
    """What the worker returned, or that Dask gave the point up."""
    try:
        return future.result()
    except Exception as problem:  # KilledWorker, a lost scheduler, an environment without sampler
        text = f"Dask gave it up ({type(problem).__name__}); the same command goes on from here"
        return PointOutcome(ExitCode.INTERNAL_ERROR, text)
