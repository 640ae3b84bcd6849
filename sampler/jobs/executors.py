"""Where the points of a sweep are done: in this process, in worker processes, or by Dask.

Every worker sees the directory of the sweep under the same path. Plans with their data reach it by
a file there, and another file asks it to stop. A point whose worker is lost goes to another one,
which takes it up where its directory says it stands.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sampler.compiled import cache_programs
from sampler.errors import DiskError, ExitCode, InputError, exit_code_of, one_line
from sampler.jobs.interruption import SIGNALS, Interruption
from sampler.jobs.plan import Plan, with_own_data
from sampler.jobs.run import start_run
from sampler.presentation.terminal import print_line
from sampler.runtime import draw_into_files, silence_compiler, use_one_blas_thread
from sampler.storage.directory import LOG, LOG_FILE, RECIPE_FILE, log_to
from sampler.storage.files import UNFINISHED, unfinished, write_whole

OUTPUT_ENDING = ".output.txt"
STOP_FILE = f"{UNFINISHED}stop"
CONNECT_SECONDS = 20
SECONDS_BETWEEN_LOOKS = 0.5
# Workers that a point may lose before it is given up.
MOST_LOST = 3
LOST = f"its worker was killed {MOST_LOST} times; the same command goes on from here"
NOT_BEGUN = "not begun"
# A Dask worker may have several threads, but NumPyro's handlers, the standard output and JAX's
# settings are those of the whole process: one point at a time.
ONE_POINT = threading.Lock()


@dataclass(frozen=True)
class PointOutcome:
    """The exit code of a point and, where it was not run to its end, the reason in one line."""

    code: ExitCode
    problem: str = ""


# Does points, and gives every one with its outcome in the order in which they end. Where a signal
# asks to stop, no other point is begun, and those in work are saved.
Engine = Callable[[Sequence[Plan]], Iterator[tuple[Plan, PointOutcome]]]


@contextmanager
def chosen_engine(
    plan: Plan,
    interruption: Interruption,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[Engine]:
    """So many worker processes, the cluster behind a Dask scheduler, or this process."""
    if workers is None and scheduler is None:
        yield partial(one_by_one, plan.recipe.name, interruption)
        return
    executors = worker_processes(workers) if scheduler is None else dask_executors(scheduler)
    size = len(plan.points) if workers is None else workers
    with stored_plans(plan) as file, executors as make:
        yield partial(by_workers, make, size, file, interruption)


def one_by_one(
    name: str, interruption: Interruption, points: Sequence[Plan]
) -> Iterator[tuple[Plan, PointOutcome]]:
    """Do points one after the other in this process."""
    for point in points:
        if interruption.received is not None:
            return
        print_line(f"\n{name}, {point.label}")
        yield point, attempt_point(point, interruption)


def by_workers(
    make: Callable[[], futures.Executor],
    size: int,
    file: Path,
    interruption: Interruption,
    points: Sequence[Plan],
) -> Iterator[tuple[Plan, PointOutcome]]:
    """Do points in other processes, so many at a time, with an executor that `make` makes.

    It is made anew where a worker was killed.
    """
    executor, waiting, lost = make(), deque(points), Counter[str]()
    at_work: dict[futures.Future, Plan] = {}
    while waiting or at_work:
        if interruption.received is not None:
            write_whole(file.with_name(STOP_FILE), interruption.received.name)
            waiting.clear()
        while waiting and len(at_work) < size:
            words = do_point, file, waiting[0].label, waiting[0].sampling
            try:
                future = executor.submit(*words)
            except futures.BrokenExecutor:
                executor = make()
                future = executor.submit(*words)
            at_work[future] = waiting.popleft()
        ended, _ = futures.wait(at_work, SECONDS_BETWEEN_LOOKS, futures.FIRST_COMPLETED)
        for future in ended:
            point, outcome = at_work.pop(future), outcome_of(future)
            lost[point.label] += outcome is None
            if outcome is None and lost[point.label] < MOST_LOST:
                waiting.append(point)
            elif outcome is None:
                yield point, PointOutcome(ExitCode.INTERNAL_ERROR, LOST)
            elif outcome.problem != NOT_BEGUN:
                yield point, outcome


def outcome_of(future: futures.Future) -> PointOutcome | None:
    """The outcome of a point; None where its worker was killed."""
    try:
        return future.result()
    except (futures.BrokenExecutor, futures.CancelledError):
        return None
    except Exception as problem:  # of Dask: a worker given up, an environment without this package
        text = f"Dask gave it up ({type(problem).__name__}); the same command goes on from here"
        return PointOutcome(ExitCode.INTERNAL_ERROR, text)


class OwnProcesses(ForkServerContext):
    """Begins processes that share nothing with this one, and remembers which they are.

    They are copies of a server that has imported the numerical libraries, once for all of them.
    """

    def __init__(self) -> None:
        self.begun: list[BaseProcess] = []
        self.set_forkserver_preload(["sampler.jobs.worker_server"])

    def Process(self, *arguments: Any, **keywords: Any) -> BaseProcess:
        """Return a new process, as the context does."""
        self.begun.append(super().Process(*arguments, **keywords))
        return self.begun[-1]


@contextmanager
def worker_processes(count: int) -> Iterator[Callable[[], futures.Executor]]:
    """A function that makes an executor of so many processes, again where one was killed.

    It raises InputError where the system has no semaphores for them.
    """
    context, made = OwnProcesses(), []

    def make() -> futures.Executor:
        for earlier in made:
            earlier.shutdown()
        try:
            made.append(futures.ProcessPoolExecutor(count, context, begin_worker))
        except OSError as problem:
            remedy = f"needs room in /dev/shm ({problem.strerror}); make some, or leave it out"
            raise InputError("--workers", count, remedy) from None
        return made[-1]

    try:
        yield make
    except BaseException:  # Ctrl-C waits for no chunk
        for process in context.begun:
            with suppress(ValueError):  # closed, after its end
                if process.is_alive():
                    process.kill()
        raise
    finally:
        for executor in made:
            executor.shutdown(cancel_futures=True)


@contextmanager
def dask_executors(scheduler: str) -> Iterator[Callable[[], futures.Executor]]:
    """A function that makes an executor of the cluster at this address.

    Raises InputError where there is none.
    """
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
        # Not pure: the result is in the files, so no earlier one may stand in for it.
        yield partial(client.get_executor, pure=False)


@contextmanager
def stored_plans(plan: Plan) -> Iterator[Path]:
    """The plans of all points in a file, each array once, for as long as there are workers."""
    file = unfinished(plan.directory / "plans.pickle")
    stop_file = file.with_name(STOP_FILE)
    stop_file.unlink(missing_ok=True)
    try:
        with file.open("wb") as stream:
            pickle.dump({point.label: point for point in plan.points}, stream, protocol=5)
        yield file
    finally:
        for path in (file, stop_file):
            path.unlink(missing_ok=True)


# --- in a worker


def begin_worker() -> None:
    """Leave signals to the process that began this one, and end with it.

    A terminal and a scheduler signal every process of a command: a worker must not end by it before
    its chunk is saved.
    """
    for number in (signal.SIGINT, *SIGNALS):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Leave at once when the parent is gone; files are complete under their names at any moment."""
    multiprocessing.parent_process().join()
    os._exit(ExitCode.REQUEUE)


def do_point(file: Path, label: str, sampling: bool) -> PointOutcome:
    """Do a point in a worker; everything it prints goes beside the point's directory."""
    prepare_process()
    with ONE_POINT:
        return do_point_alone(file, label, sampling)


def do_point_alone(file: Path, label: str, sampling: bool) -> PointOutcome:
    """Do a point while this process does no other."""
    point = replace(plans_in(file)[label], sampling=sampling)
    interruption = Interruption(file.with_name(STOP_FILE))
    if interruption.received is not None:
        return PointOutcome(ExitCode.REQUEUE, NOT_BEGUN)
    # A pool that has lost a worker terminates the others: they save before they leave. Under Dask
    # this is not the main thread, which alone handles signals.
    with suppress(ValueError):
        signal.signal(signal.SIGTERM, interruption)
    output_path = point.directory.with_name(f"{point.directory.name}{OUTPUT_ENDING}")
    with (
        output_path.open("a", encoding="utf-8") as output,
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        return attempt_point(point, interruption)


@cache
def prepare_process() -> None:
    """Set a worker up as a command does, once; one of Dask's has another environment."""
    use_one_blas_thread()
    draw_into_files()
    cache_programs()
    silence_compiler()


@cache
def plans_in(file: Path) -> dict[str, Plan]:
    """The plans of all points, by label."""
    return pickle.loads(file.read_bytes())


def attempt_point(point: Plan, interruption: Interruption) -> PointOutcome:
    """Bring a point to its end, from wherever its directory says it stands.

    An error becomes an outcome, so that it does not stop the other points.
    """
    try:
        plan = with_own_data(point) if point.own_data else point
        return PointOutcome(start_run(plan, interruption))
    except Exception as problem:
        code = exit_code_of(problem)
        if code != ExitCode.INTERNAL_ERROR:
            return PointOutcome(code, one_line(str(problem)))
        text = f"{type(problem).__name__}: {one_line(str(problem))}"
        if (point.directory / RECIPE_FILE).is_file():
            with suppress(InputError, DiskError), log_to(point.directory):
                LOG.info("internal error", exc_info=True)
            text += f" (traceback in {point.directory / LOG_FILE})"
        return PointOutcome(code, text)
