"""A Slurm job array for the points of a sweep: a task for each of them.

A task is queued again when its command leaves with exit code 75, "everything is saved", and then
goes on where the directory of its point says it stands.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sampler.errors import ExitCode
from sampler.jobs.interruption import WARNINGS
from sampler.jobs.plan import NO_FIGURES, Plan
from sampler.jobs.run import open_run_directory
from sampler.storage.directory import RECIPE_FILE
from sampler.storage.files import write_whole

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


def write_slurm_array(plan: Plan, options: Sequence[str]) -> None:
    """Store the recipe and the batch script of a sweep, and print what to do with them.

    options  KEY=VALUE of sbatch, KEY alone for a switch; they replace the defaults

    Slurm runs the points when this process is gone.
    """
    directory = plan.directory
    # This Python, without the modules of a working directory, and the stored recipe: nothing
    # depends on the command line.
    arguments = ["sweep", str(directory / RECIPE_FILE), "--out", str(directory)]
    arguments += [] if plan.figures else [NO_FIGURES]
    command, script = [sys.executable, "-P", "-m", "sampler", *arguments], directory / SCRIPT_FILE
    with open_run_directory(plan):
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
