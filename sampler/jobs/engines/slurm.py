"""Points of a sweep as a Slurm job array: the batch script, and how to submit it.

Each array task runs one point. It is queued again when its command leaves with exit code 75,
"everything is saved", and then goes on where the directory of the point says it stands.
"""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sampler.errors import ExitCode, InputError
from sampler.storage.run_directory import RECIPE_FILE, write_whole

SCRIPT_FILE = "sweep.sbatch"
LOG_FOLDER = "slurm"
WARNING_SECONDS = 120
FIXED = ("requeue", "no-requeue", "signal", "wrap")
TEMPLATE = """\
#!/bin/bash
{directives}

# One array task for each of the {count} points of this sweep; the recipe beside this file lists
# them. Slurm warns this shell alone, {seconds} s before the time limit, and the shell passes the
# warning on. The command then saves its state and leaves with exit code {requeue}, and the task
# is queued again.

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
if [ "$code" -eq {requeue} ] && [ -z "$cancelled" ]; then
    echo "queued again: everything is saved"
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && exit 0
fi
exit "$code"
"""


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
    return key, value if equals else None


def how_to_submit(script: Path, command: str) -> str:
    """What to type next; `command` is the one that gathers the results."""
    return (
        f"submit:  sbatch {shlex.quote(str(script))}\ngather, when every task has ended:  {command}"
    )
