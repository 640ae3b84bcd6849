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
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from sampler.compiled import cache_programs
from sampler.environment import draw_into_files
from sampler.errors import ExitCode, InputError, Option, one_line
from sampler.jobs.interruption import SIGNALS, Interruption
from sampler.jobs.plan import Plan, with_own_data
from sampler.jobs.run import start_run
from sampler.presentation.terminal import print_line
from sampler.runtime import silence_compiler, use_one_blas_thread
from sampler.storage.directory import LOG, LOG_FILE, RECIPE_FILE, log_to
from sampler.storage.files import UNFINISHED, unfinished, write_whole

OUTPUT_ENDING = ".output.txt"
STOP_FILE = f"{UNFINISHED}stop"
CONNECT_SECONDS = 20
NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class PointOutcome:
    """The exit code of a point and, where it was not run to its end, the reason in one line."""

    code: ExitCode
    problem: str = ""


class InThisProcess(Executor):
    """Does what is submitted at once."""

    def submit(self, function, /, *arguments) -> Future:
        future: Future = Future()
        future.set_result(function(*arguments))
        return future


@dataclass
class Workers:
    """Does points, `size` of them at a time.

    make      makes the executor, anew where a worker was killed
    submit_to hands a point to an executor
    ask       asks those who are at work to stop
    """

    make: Callable[[], Executor]
    submit_to: Callable[[Executor, Plan], Future]
    size: int
    ask: Callable[[signal.Signals], None] = lambda number: None

    def __post_init__(self) -> None:
        self.executor = self.make()

    def submit(self, point: Plan) -> Future:
        """Begin a point; its result is a PointOutcome."""
        try:
            return self.submit_to(self.executor, point)
        except BrokenExecutor:
            self.executor = self.make()
            return self.submit_to(self.executor, point)


@contextmanager
def chosen_workers(
    plan: Plan,
    interruption: Interruption,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[Workers]:
    """So many worker processes, the cluster behind a Dask scheduler, or this process."""
    if workers is None and scheduler is None:

        def submit(executor: Executor, point: Plan) -> Future:
            print_line(f"\n{plan.recipe.name}, {point.label}")
            return executor.submit(attempt_point, point, interruption)

        yield Workers(InThisProcess, submit, size=1)
        return
    stop_file = plan.directory / STOP_FILE
    stop_file.unlink(missing_ok=True)

    def ask(number: signal.Signals) -> None:
        write_whole(stop_file, number.name)

    is_local = scheduler is None
    executors = worker_processes(workers) if is_local else dask_executors(scheduler)
    try:
        with stored_plans(plan) as file, executors as make:

            def submit(executor: Executor, point: Plan) -> Future:
                return executor.submit(do_point, file, point.label, point.sampling)

            yield Workers(make, submit, workers if is_local else len(plan.points), ask)
    finally:
        stop_file.unlink(missing_ok=True)


@contextmanager
def worker_processes(count: int) -> Iterator[Callable[[], Executor]]:
    """A function that makes an executor of so many processes, again where one was killed.

    It raises InputError where the system has no semaphores for them.
    """
    context, made = multiprocessing.get_context("spawn"), []

    def make() -> Executor:
        for earlier in made:
            earlier.shutdown()
        try:
            made.append(ProcessPoolExecutor(count, context, begin_worker))
        except OSError as problem:
            remedy = f"needs room in /dev/shm ({problem.strerror}); make some, or leave it out"
            raise InputError(Option("workers"), count, remedy) from None
        return made[-1]

    try:
        yield make
    except BaseException:  # Ctrl-C waits for no chunk
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        for executor in made:
            executor.shutdown(cancel_futures=True)


@contextmanager
def stored_plans(plan: Plan) -> Iterator[Path]:
    """The plans of all points in a file, each array once, for as long as there are workers."""
    file = unfinished(plan.directory / "plans.pickle")
    try:
        with file.open("wb") as stream:
            pickle.dump({point.label: point for point in plan.points}, stream, protocol=5)
        yield file
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def dask_executors(scheduler: str) -> Iterator[Callable[[], Executor]]:
    """A function that makes an executor of the cluster at this address.

    Raises InputError where there is none.
    """
    try:
        distributed = import_module("distributed")
    except ImportError:
        remedy = "needs Dask: pip install 'attention-posterior[dask]', or use --workers"
        raise InputError(Option("scheduler"), scheduler, remedy) from None
    try:
        client = distributed.Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as problem:
        remedy = f"no Dask scheduler answers ({problem}); start one with `dask scheduler`"
        raise InputError(Option("scheduler"), scheduler, remedy) from None
    with client:
        count = len(client.nthreads())
        print_line(f"Dask at {scheduler}: {count} workers" + ("" if count else ", waiting"))
        # Not pure: the result is in the files, so no earlier one may stand in for it.
        yield partial(client.get_executor, pure=False)


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
    point = replace(plans_in(file)[label], sampling=sampling)
    interruption = Interruption(file.with_name(STOP_FILE))
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
def plans_in(file: Path) -> dict[str, Plan]:
    """The plans of all points, by label."""
    return pickle.loads(file.read_bytes())


def attempt_point(point: Plan, interruption: Interruption) -> PointOutcome:
    """Bring a point to its end, from wherever its directory says it stands.

    An error becomes an outcome, so that it does not stop the other points.
    """
    if interruption.received is not None:
        return PointOutcome(ExitCode.REQUEUE, NOT_BEGUN)
    try:
        return PointOutcome(run_point(point, interruption))
    except Exception as problem:
        code = getattr(problem, "exit_code", ExitCode.INTERNAL_ERROR)
        if code != ExitCode.INTERNAL_ERROR:
            return PointOutcome(code, one_line(str(problem)))
        text = f"{type(problem).__name__}: {one_line(str(problem))}"
        if (point.directory / RECIPE_FILE).is_file():
            with suppress(InputError), log_to(point.directory):
                LOG.info("internal error", exc_info=True)
            text += f" (traceback in {point.directory / LOG_FILE})"
        return PointOutcome(code, text)


def run_point(point: Plan, interruption: Interruption) -> ExitCode:
    """Run a point of a sweep. Raises RequeueError when the interruption asks to stop."""
    prepare_process()
    return start_run(with_own_data(point) if point.own_data else point, interruption)


@cache
def prepare_process() -> None:
    """Set this process up for points, once; the cache of programs is tidied meanwhile."""
    use_one_blas_thread()
    draw_into_files()
    cache_programs()
    silence_compiler()
