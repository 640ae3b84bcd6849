"""Engines for the points of a sweep: Dask workers, or a Slurm array.

Dask gives the point of a lost worker to another one, which takes it up where its directory says it
stands. Every worker must see the directory under the same path.

Each array task runs one point. It is queued again when its command leaves with exit code 75,
"everything is saved", and then goes on where the directory of the point says it stands.
"""

import logging
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from pathlib import Path
from queue import Empty, SimpleQueue
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask
from typing import Any
from uuid import uuid4

from sampler.errors import ExitCode, InputError
from sampler.jobs.interruption import SIGNALS, WARNINGS, Interruption
from sampler.jobs.plan import NO_FIGURES, Point
from sampler.jobs.sweep import (
    Engine,
    PointOutcome,
    attempt_point,
    in_process,
    open_sweep,
)
from sampler.presentation.terminal import print_line
from sampler.storage.directory import RECIPE_FILE
from sampler.storage.files import write_whole

OUTPUT_ENDING = ".output.txt"
CONNECT_SECONDS = 20
SECONDS_BETWEEN_LOOKS = 0.5
Outcomes = Iterator[tuple[Point, PointOutcome]]


def chosen_engine(
    interruption: Interruption, workers: int | None = None, scheduler: str | None = None
) -> Engine:
    """The engine of so many local worker processes, or of the cluster behind a scheduler.

    Where neither is named, points one after the other in this process. Raises InputError, before
    anything is started, if Dask is not installed.
    """
    if workers is None and scheduler is None:
        return in_process(interruption)
    if workers is not None and workers < 1:
        raise InputError("--workers", workers, "must be at least 1")
    try:
        distributed = import_module("distributed")
    except ImportError:
        option, value = ("--workers", workers) if scheduler is None else ("--scheduler", scheduler)
        remedy = "needs Dask: pip install 'attention-posterior[dask]', or leave this option out"
        raise InputError(option, value, remedy) from None

    def run_on_workers(command: str, points: Sequence[Point]) -> Outcomes:
        """Yield every point as it ends, in whatever order, until a signal asks to stop."""
        with connected(distributed, workers, scheduler) as client:
            interruption.leave_if_asked("everything that was done before")
            sweep = uuid4().hex
            # Not pure: the result is in the files, so no earlier one may stand in for it.
            futures = {
                client.submit(do_point, command, point, sweep, pure=False): point
                for point in points
            }
            for future in ended(client, futures, sweep, interruption):
                outcome = outcome_of(future)
                if outcome.problem != NOT_BEGUN:
                    yield futures[future], outcome
            interruption.leave_if_asked("what the workers had in work")

    return run_on_workers


def ended(
    client: Any, futures: Mapping[Any, Point], sweep: str, interruption: Interruption
) -> Iterator[Any]:
    """Every future as it ends; a signal that was received is passed on to the workers."""
    done: SimpleQueue = SimpleQueue()
    for future in futures:
        future.add_done_callback(done.put)
    left = len(futures)
    while left:
        with suppress(Empty):
            future = done.get(timeout=SECONDS_BETWEEN_LOOKS)
            left -= 1
            yield future
        if interruption.received is not None:
            # At every look: a worker that was lost is replaced by one that was not asked.
            client.run(ask_to_stop, sweep, interruption.received, on_error="ignore")


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
            print_line(f"Dask at {scheduler}: {known} workers" + (", waiting" if not known else ""))
            yield client
        return
    # A worker near Dask's limit of memory would be stopped in the middle of a point.
    local = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "memory_limit": 0}
    # Workers that are ended in the middle of a point are nothing to warn of.
    local["silence_logs"] = logging.ERROR
    # No dashboard, on any free port: a second sweep on this machine is nothing to warn of either.
    address = {"dashboard": False, "dashboard_address": ":0"}
    with signals_held_back():
        cluster = distributed.LocalCluster(**local, scheduler_kwargs=address)
    with cluster, distributed.Client(cluster) as client:
        yield client


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Threads and processes begun inside, and all that those begin, leave signals to this process.

    A terminal and a scheduler signal every process of a command. The workers must not end by it
    before their chunks are saved, nor while they start.
    """
    resource_tracker.ensure_running()  # which would let signals through again when it starts
    before = pthread_sigmask(SIG_BLOCK, {SIGINT, *SIGNALS})
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, before)


# In a worker: the sweeps that were asked to stop, and who listens for that by sweep and point.
ASKED: set[str] = set()
LISTENING: dict[tuple[str, str], Interruption] = {}
NOT_BEGUN = "not begun"


def do_point(command: str, point: Point, sweep: str) -> PointOutcome:
    """Do a point on a worker; everything it prints goes beside the point's directory."""
    output_path = point.directory.with_name(f"{point.directory.name}{OUTPUT_ENDING}")
    interruption = LISTENING[sweep, point.label] = Interruption()
    try:
        if sweep in ASKED:
            return PointOutcome(ExitCode.REQUEUE, NOT_BEGUN)
        with (
            output_path.open("a", encoding="utf-8") as output,
            redirect_stdout(output),
            redirect_stderr(output),
        ):
            return attempt_point(command, point, interruption)
    finally:
        del LISTENING[sweep, point.label]


def ask_to_stop(sweep: str, number: int) -> None:
    """Pass a signal on to this worker, which begins no further point."""
    ASKED.add(sweep)
    for (of, _), interruption in list(LISTENING.items()):
        if of == sweep:
            interruption.ask(number)


def outcome_of(future: Any) -> PointOutcome:
    """Return the outcome of a worker, or that Dask gave the point up."""
    try:
        return future.result()
    except Exception as problem:  # KilledWorker, a lost scheduler, an environment without sampler
        text = f"Dask gave it up ({type(problem).__name__}); the same command goes on from here"
        return PointOutcome(ExitCode.INTERNAL_ERROR, text)


SCRIPT_FILE = "sweep.sbatch"
LOG_FOLDER = "slurm"
# From the warning that Slurm is asked for to its time limit.
WARNING_SECONDS = 120
TEMPLATE = """\
#!/bin/bash
{directives}

# One array task for each of the {count} points of this sweep; the recipe beside this file lists
# them. Slurm warns this shell alone before the time limit, and the shell passes the warning on.
# The command then saves its state and leaves with exit code {requeue}, and the task is queued
# again; so it is where a warning came before the command could hear it, {unheard}.
# Whatever the warning, it is passed on as USR1: bash starts commands beside it with QUIT ignored.

child= signalled= cancelled=
forward() {{
    signalled=yes
    if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; fi
}}
trap 'forward USR1' {warnings}
trap 'cancelled=yes; forward TERM' TERM

{command} --point "$SLURM_ARRAY_TASK_ID" &
child=$!

# A signal ends `wait` before the child has ended: wait again for its exit code.
code=0
while true; do
    signalled=
    wait "$child"
    code=$?
    [ -n "$signalled" ] || break
done

# A cancelled task stays cancelled. The id names this task alone: for one task of every array
# SLURM_JOB_ID is the id of the whole array.
if [[ -z $cancelled && " {requeue} {unheard} " == *" $code "* ]]; then
    echo "queued again: everything is saved"
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && exit 0
fi
exit "$code"
"""


def write_slurm_array(asked: Point, options: Sequence[str]) -> None:
    """Store the recipe and the batch script of a sweep, and print what to do with them.

    options  KEY=VALUE of sbatch, KEY alone for a switch; they replace the defaults

    No engine: Slurm runs the points when this process is gone.
    """
    plan, directory = open_sweep(asked), asked.directory
    (directory / LOG_FOLDER).mkdir(exist_ok=True)
    # This Python, without the modules of a working directory, and the stored recipe: nothing
    # depends on the command line.
    arguments = ["sweep", str(directory / RECIPE_FILE), "--out", str(directory)]
    arguments += [] if asked.figures else [NO_FIGURES]
    command, script = [sys.executable, "-P", "-m", "sampler", *arguments], directory / SCRIPT_FILE
    text = batch_script(directory, asked.recipe.name, len(plan.runs), options, command)
    write_whole(script, text)
    print(f"submit:  {shlex.join(['sbatch', str(script)])}")
    gather = shlex.join(["attention-posterior", *arguments])
    print(f"gather, when every task has ended:  {gather}")


def batch_script(
    directory: Path, name: str, count: int, options: Sequence[str], command: Sequence[str]
) -> str:
    """The text of a script for the recipe in a directory.

    command  what runs one point when `--point INDEX` is put behind it
    """
    settings = {
        "job-name": name,
        "array": f"0-{count - 1}",
        # A per cent sign of the name itself is doubled.
        "output": f"{str(directory / LOG_FOLDER).replace('%', '%%')}/%a.log",
        "open-mode": "append",
        "requeue": "",
        "signal": f"B:USR1@{WARNING_SECONDS}",
    } | {key: value for key, _, value in (option.partition("=") for option in options)}
    directives = [
        f"#SBATCH --{key}={shlex.quote(value)}" if value else f"#SBATCH --{key}"
        for key, value in settings.items()
    ]
    return TEMPLATE.format(
        directives="\n".join(directives),
        count=count,
        requeue=int(ExitCode.REQUEUE),
        unheard=" ".join(str(128 + each) for each in WARNINGS),
        warnings=" ".join(each.name.removeprefix("SIG") for each in WARNINGS),
        command=shlex.join(command),
    )
