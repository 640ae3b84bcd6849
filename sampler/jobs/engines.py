"""Where the points of a sweep are done: on Dask workers, or as a Slurm array.

Dask gives the point of a lost worker to another one, which takes it up where its directory says it
stands. Every worker must see the directory under the same path.

Each array task runs one point. It is queued again when its command leaves with exit code 75,
"everything is saved", and then goes on where the directory of the point says it stands.
"""

import math
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from sampler.errors import ExitCode, InputError
from sampler.jobs.run import Point
from sampler.jobs.sweep import (
    Engine,
    PointOutcome,
    attempt_point,
    open_sweep,
    run_in_process,
    sweep_points,
)
from sampler.recipes.recipe import Recipe
from sampler.registry import Registry
from sampler.storage.run_directory import RECIPE_FILE, write_whole

OUTPUT_ENDING = ".output.txt"
CONNECT_SECONDS = 20
Outcomes = Iterator[tuple[Point, PointOutcome]]


def dask_engine(workers: int | None, scheduler: str | None) -> Engine:
    """The engine of so many local worker processes, or of the cluster behind a scheduler.

    Raises InputError, before anything is started, if Dask is not installed.
    """
    if workers is not None and workers < 1:
        raise InputError("--workers", workers, "must be at least 1")
    try:
        distributed = import_module("distributed")
    except ImportError:
        option, value = ("--scheduler", scheduler) if scheduler else ("--workers", workers)
        remedy = "needs Dask: pip install 'attention-posterior[dask]', or leave this option out"
        raise InputError(option, value, remedy) from None

    def run_on_workers(command: str, points: Sequence[Point]) -> Outcomes:
        """Yield every point as it ends, in whatever order."""
        with connected(distributed, workers, scheduler) as client:
            # Not pure: the result is in the files, so no earlier one may stand in for it.
            futures = {client.submit(work, command, point, pure=False): point for point in points}
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


def work(command: str, point: Point) -> PointOutcome:
    """What a worker does: the point, with everything it prints beside the point's directory."""
    output_path = point.directory.with_name(f"{point.directory.name}{OUTPUT_ENDING}")
    with (
        output_path.open("a", encoding="utf-8") as output,
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        # The scheduler gives a point to another worker only when the first one is lost.
        return attempt_point(command, point, alone=True)


def outcome_of(future: Any) -> PointOutcome:
    """What the worker returned, or that Dask gave the point up."""
    try:
        return future.result()
    except Exception as problem:  # KilledWorker, a lost scheduler, an environment without sampler
        text = f"Dask gave it up ({type(problem).__name__}); the same command goes on from here"
        return PointOutcome(ExitCode.INTERNAL_ERROR, text)


# Option of `sweep` → what makes an engine of its value. "": no option given.
ENGINES: Registry[Callable[[Any], Engine]] = Registry(
    "engine",
    {
        "": lambda _: run_in_process,
        "workers": lambda count: dask_engine(count, None),
        "scheduler": lambda address: dask_engine(None, address),
    },
)


SCRIPT_FILE = "sweep.sbatch"
LOG_FOLDER = "slurm"
WARNING_SECONDS = 120
# Slurm may warn a minute too early, and there must be time to go on in before.
LEAST_SECONDS = 2 * WARNING_SECONDS + 60
FIXED = ("requeue", "no-requeue", "signal", "wrap")
TEMPLATE = """\
#!/bin/bash
{directives}

# One array task for each of the {count} points of this sweep; the recipe beside this file lists
# them. Slurm warns this shell alone, {seconds} s before the time limit, and the shell passes the
# warning on. The command then saves its state and leaves with exit code {requeue}, and the task
# is queued again; so it is where the warning came before the command could hear it, {unheard}.

child= signalled= cancelled=
forward() {{
    signalled=yes
    if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; fi
}}
trap 'forward USR1' USR1
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
if [[ -z $cancelled && ($code -eq {requeue} || $code -eq {unheard}) ]]; then
    echo "queued again: everything is saved"
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && exit 0
fi
exit "$code"
"""


def write_slurm_array(recipe: Recipe, directory: Path, options: Sequence[str]) -> None:
    """Store the recipe and the batch script of a sweep, and print what to do with them.

    No engine: Slurm runs the points when this process is gone. Raises InputError.
    """
    for option in options:
        parse_option(option)  # before anything is written
    points = sweep_points(recipe, directory)
    open_sweep(recipe, directory)
    script = write_batch_script(directory, recipe.name, len(points), options)
    gather = ["attention-posterior", *point_command(directory)[3:]]
    print(f"submit:  {shlex.join(['sbatch', str(script)])}")
    print(f"gather, when every task has ended:  {shlex.join(gather)}")


def write_batch_script(directory: Path, name: str, count: int, options: Sequence[str]) -> Path:
    """Write DIR/sweep.sbatch for the recipe in DIR; options are KEY=VALUE of sbatch."""
    directives = sbatch_directives(directory, name, count, options)
    (directory / LOG_FOLDER).mkdir(exist_ok=True)
    write_whole(directory / SCRIPT_FILE, batch_script(directives, count, point_command(directory)))
    return directory / SCRIPT_FILE


def batch_script(directives: Sequence[str], count: int, command: Sequence[str]) -> str:
    """The script; `command` is what runs one point when `--point INDEX` is put behind it."""
    return TEMPLATE.format(
        directives="\n".join(f"#SBATCH {directive}" for directive in directives),
        count=count,
        seconds=WARNING_SECONDS,
        requeue=int(ExitCode.REQUEUE),
        unheard=128 + signal.SIGUSR1,
        command=shlex.join(command),
    )


def point_command(directory: Path) -> list[str]:
    """This Python and the recipe stored in the directory: nothing depends on the command line."""
    recipe = str(directory / RECIPE_FILE)
    return [sys.executable, "-m", "sampler", "sweep", recipe, "--out", str(directory)]


def sbatch_directives(
    directory: Path, name: str, count: int, options: Sequence[str]
) -> tuple[str, ...]:
    """What stands behind #SBATCH; the options given replace the defaults of the same name."""
    settings: dict[str, str | None] = {
        "job-name": name,
        "array": f"0-{count - 1}",
        "output": str(directory / LOG_FOLDER / "%a.log"),
        "open-mode": "append",
    }
    settings |= dict(map(parse_option, options))
    settings |= {"requeue": None, "signal": f"B:USR1@{WARNING_SECONDS}"}
    return tuple(
        f"--{key}" if value is None else f"--{key}={shlex.quote(value)}"
        for key, value in settings.items()
    )


def parse_option(option: str) -> tuple[str, str | None]:
    """Key and value of an option of sbatch; KEY alone is a switch."""
    key, equals, value = option.partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", key) or not value.isprintable():
        raise InputError(
            "--slurm-option",
            option,
            "use KEY=VALUE with a long option of sbatch, as in time=2:00:00",
        )
    if key in FIXED:
        remedy = "leave it out: the script sets how a task is warned and queued again"
        raise InputError("--slurm-option", option, remedy)
    if key == "time" and limit_seconds(value) < LEAST_SECONDS:
        remedy = (
            f"a task is warned {WARNING_SECONDS} s before and up to a minute earlier; give it at "
            f"least {LEAST_SECONDS // 60} minutes"
        )
        raise InputError("--slurm-option", option, remedy)
    return key, value if equals else None


def limit_seconds(text: str) -> float:
    """Seconds of a time limit as Slurm takes it, infinite where it is no limit.

    [DAYS-]HOURS:MINUTES:SECONDS; without days one number is minutes, two are minutes and seconds.
    """
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3 or not all(part.isdecimal() for part in [*parts, *([days] if dash else [])]):
        return math.inf
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    seconds = sum(float(part) * unit for part, unit in zip(parts, units, strict=False))
    return 86400.0 * int(days or 0) + seconds or math.inf
