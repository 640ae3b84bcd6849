"""A Slurm job array for the points of a sweep: a task for each, or for several of very many.

A task is queued again when its command leaves with exit code 75, "everything is saved", and then
continues from the checkpoint of its point.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sampler.errors import ExitCode
from sampler.jobs.interruption import WARNINGS
from sampler.jobs.plan import Plan
from sampler.jobs.run import open_directory
from sampler.storage.directory import RECIPE_FILE
from sampler.storage.files import write_whole

SCRIPT_FILE = "sweep.sbatch"
LOG_FOLDER = "slurm"
# From the warning that Slurm is asked for to its time limit.
WARNING_SECONDS = 120
SECONDS_TO_ANSWER = 10
# Tasks of an array where Slurm is not there to say how many it takes: its default.
MOST_TASKS = 1001
TEMPLATE = """\
#!/bin/bash
{directives}

# Of the {count} points of this sweep, which the recipe beside this file lists, task T of the array
# does T, T + {tasks}, T + 2 * {tasks}, and so on. Slurm warns this shell alone before the time
# limit, and the shell passes the warning on. The command then saves its state and leaves with exit
# code {requeue}, and the task is queued again; so it is where a warning came before the command
# could hear it, {unheard}. Points that are finished are left as they are.
# Whatever the warning, it is passed on as USR1: bash starts commands beside it with QUIT ignored.

child= stopped= cancelled= worst=0 code=0
forward() {{
    signalled=yes stopped=$1
    if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; fi
}}
trap 'forward USR1' {warnings}
trap 'cancelled=yes; forward TERM' TERM

for ((point = SLURM_ARRAY_TASK_ID; point < {count}; point += {tasks})); do
    code={requeue}
    [ -z "$stopped" ] || break

    {command} --point "$point" &
    child=$!
    [ -z "$stopped" ] || kill -s "$stopped" "$child" 2>/dev/null

    # A signal ends `wait` before the child has ended: wait again for its exit code.
    while true; do
        signalled=
        wait "$child"
        code=$?
        [ -n "$signalled" ] || break
    done
    child=

    [[ " {requeue} {unheard} " != *" $code "* ]] || break
    ((code <= worst)) || worst=$code
    code=$worst
done

# A cancelled task stays cancelled. The id names this task alone: for one task of every array
# SLURM_JOB_ID is the id of the whole array.
if [[ -z $cancelled && " {requeue} {unheard} " == *" $code "* ]]; then
    echo "queued again: everything is saved"
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && exit 0
fi
exit "$code"
"""


def write_slurm_array(plan: Plan, options: Sequence[str]) -> None:
    """Store the recipe and the batch script of a sweep, and print how to submit them.

    options  KEY=VALUE of sbatch, KEY alone for a switch; they replace the defaults

    Slurm runs the points when this process is gone.
    """
    directory = plan.directory
    # This Python, without the modules of a working directory, and the stored recipe: nothing
    # depends on the command line.
    arguments = ["sweep", str(directory / RECIPE_FILE), "--out", str(directory)]
    arguments += [] if plan.figures else ["--no-figures"]
    command, script = [sys.executable, "-P", "-m", "sampler", *arguments], directory / SCRIPT_FILE
    with open_directory(plan):
        (directory / LOG_FOLDER).mkdir(exist_ok=True)
        text = batch_script(directory, plan.recipe.name, len(plan.points), options, command)
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
    given = {key: value for key, _, value in (option.partition("=") for option in options)}
    # Whoever names the tasks means the points of these numbers.
    tasks = count if "array" in given else min(count, most_tasks())
    settings = {
        "job-name": name,
        "array": f"0-{tasks - 1}",
        # A per cent sign of the name itself is doubled.
        "output": f"{str(directory / LOG_FOLDER).replace('%', '%%')}/%a.log",
        "open-mode": "append",
        "requeue": "",
        "signal": f"B:USR1@{WARNING_SECONDS}",
    } | given
    directives = [
        f"#SBATCH --{key}={shlex.quote(value)}" if value else f"#SBATCH --{key}"
        for key, value in settings.items()
    ]
    return TEMPLATE.format(
        directives="\n".join(directives),
        count=count,
        tasks=tasks,
        requeue=int(ExitCode.REQUEUE),
        unheard=" ".join(str(128 + each) for each in WARNINGS),
        warnings=" ".join(each.name.removeprefix("SIG") for each in WARNINGS),
        command=shlex.join(command),
    )


def most_tasks() -> int:
    """How many tasks an array may have on this cluster; Slurm's default if unknown."""
    words = ["scontrol", "show", "config"]
    try:
        shown = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_TO_ANSWER)
    except (OSError, subprocess.TimeoutExpired):
        return MOST_TASKS
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", shown.stdout, re.MULTILINE)
    return max(1, int(found[1])) if found else MOST_TASKS
