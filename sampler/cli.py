"""The command line, `attention-posterior` or `python -m sampler`.

A command parses, calls one function and prints. Modules that read data or compute are imported by
the command that needs them: --help is instant, and a bad recipe is reported before JAX is there.
"""

import math
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.command_line import LATEST, NO_FIGURES, PROGRAM, make_parser, separate_settings
from sampler.errors import (
    DiskError,
    ExitCode,
    InputError,
    OutOfTimeError,
    RequeueError,
    exit_code_of,
    one_line,
    reason_of,
    refuse_another_theory,
)
from sampler.jobs.interruption import listening
from sampler.runtime import (
    jax_settings,
    prepare_process,
)

if TYPE_CHECKING:
    from sampler.settings.recipe import Recipe, TrainingRecipe


def main(argv: Sequence[str] | None = None) -> int:
    """Do a command, and return its exit code; an error is one line on stderr."""
    prepare_process()
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = Namespace(words=words, command="", directory=None, debug=False)
    try:
        make_parser().parse_args(separate_settings(words), arguments)
        refuse_another_theory()
        find_latest(arguments)
        if arguments.command in SAVING + COMPILING:
            from sampler.compiled import cache_programs

            cache_programs()
        with listening() if arguments.command in SAVING else nullcontext() as interruption:
            arguments.interruption = interruption
            code = HANDLERS[arguments.command](arguments)
        if arguments.command in PRINTING:
            sys.stdout.flush()
        return int(code)
    except SystemExit as leave:
        return int(leave.code or 0)
    except (Exception, KeyboardInterrupt) as problem:
        if isinstance(problem, BrokenPipeError) and arguments.command in PRINTING:
            # Print no more to a reader that has read enough, as `head` has: Python still writes at
            # its end the rest.
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return int(ExitCode.OK)
        text, code = explain(problem, arguments)
        with suppress(OSError):  # nobody may read it
            if arguments.debug:
                import traceback

                traceback.print_exception(problem)
            print(f"{PROGRAM}: {one_line(text)}", file=sys.stderr, flush=True)
        return int(code)


def find_latest(arguments: Namespace) -> None:
    """Put the newest run instead of the word `latest`. InputError where there is none."""

    def found(directory: Path) -> Path:
        if str(directory) != LATEST or directory.exists():
            return directory
        from sampler.storage.status import newest_run

        return newest_run()

    if arguments.directory is not None:
        arguments.directory = found(arguments.directory)
    arguments.directories = list(map(found, getattr(arguments, "directories", ())))


def explain(problem: BaseException, arguments: Namespace) -> tuple[str, ExitCode]:
    """Return the message of an error and the exit code."""
    match problem:
        case KeyboardInterrupt():
            return f"interrupted; {hint_of(arguments)}", ExitCode.INTERRUPTED
        case RequeueError():
            return f"{problem}; {hint_of(arguments)}", problem.exit_code
        case InputError() | OutOfTimeError() | DiskError():
            return str(problem), problem.exit_code
        case OSError():
            code = exit_code_of(problem)
            is_disk = code == ExitCode.DISK_ERROR
            return reason_of(problem), code if is_disk else ExitCode.BAD_INPUT
    text = f"internal error: {type(problem).__name__}: {problem} (rerun with --debug)"
    return text, ExitCode.INTERNAL_ERROR


def announce(
    arguments: Namespace, command: str, recipe: "Recipe | TrainingRecipe", directory: Path
) -> None:
    """Print the command and the directory of its results, and remember the latter."""
    from sampler.presentation.terminal import print_line

    arguments.directory, swept = directory, getattr(recipe, "sweep", {})
    points = f" at {math.prod(map(len, swept.values()))} points" if swept else ""
    print_line(f"{command} {recipe.name}{points}\nresults go to {directory}")


def hint_of(arguments: Namespace) -> str:
    """The place of the results of an interrupted command, and the command that continues it."""
    from sampler.storage.directory import MANIFEST_FILE

    words, directory = [PROGRAM, *arguments.words], arguments.directory
    if directory is None:
        return f"to do it again: {shlex.join(words)}"
    if not (directory / MANIFEST_FILE).is_file():
        return f"nothing was begun; to do it again: {shlex.join(words)}"
    if arguments.command in RESUMABLE:
        left_out = [word for word in words if word == NO_FIGURES[0]]
        words = [PROGRAM, "resume", str(directory), *left_out]
    return f"what is done is in {directory}; to go on: {shlex.join(words)}"


# --- commands that print


def new(arguments: Namespace) -> ExitCode:
    """Write a recipe that ships, or list them."""
    from sampler.analysis.text import wrapped
    from sampler.settings import gallery

    if arguments.list:
        for recipe in map(gallery.shipped_recipe, gallery.names_of_shipped()):
            print(wrapped(f"{recipe.name}: {recipe.title} Needs {recipe.needs}.", further="    "))
        print(wrapped("\nTimes are those of two cores. `attention-posterior new NAME` writes one."))
        return ExitCode.OK
    recipe = gallery.shipped_recipe(arguments.name or gallery.FIRST)
    path = arguments.out or Path(recipe.name + gallery.SUFFIX)
    written = gallery.write_shipped(recipe, path)
    print(f"written: {', '.join(map(str, written))}")
    print(wrapped(f"{recipe.title} Needs {recipe.needs}."))
    print(f"next: {recipe.command_at(path)}")
    return ExitCode.OK


def check(arguments: Namespace) -> ExitCode:
    """Print the plan of a recipe."""
    from sampler.jobs.check import check_recipe
    from sampler.settings.recipe import AnyRecipe, load_recipe

    print(check_recipe(load_recipe(arguments.recipe, arguments.overrides, kind=AnyRecipe)))
    return ExitCode.OK


def status(arguments: Namespace) -> ExitCode:
    """Print the progress of runs."""
    from sampler.presentation.status_text import status_text
    from sampler.storage.directory import find_directory

    print("\n".join(map(status_text, map(find_directory, arguments.directories))))
    return ExitCode.OK


def list_runs(arguments: Namespace) -> ExitCode:
    """Print which runs there are."""
    from sampler.presentation.status_text import listing_text

    print(listing_text(arguments.directories))
    return ExitCode.OK


# --- commands that begin or continue work


def start(arguments: Namespace) -> ExitCode:
    """Do `run`, `solve`, `sample` or `train` of a recipe."""
    from sampler.settings.recipe import Recipe, TrainingRecipe, load_recipe
    from sampler.settings.training import TRAIN
    from sampler.storage.directory import default_directory

    kind = TrainingRecipe if arguments.command == TRAIN else Recipe
    recipe = load_recipe(arguments.recipe, arguments.overrides, kind=kind)
    return work(arguments, arguments.command, recipe, arguments.out or default_directory(recipe))


def resume(arguments: Namespace) -> ExitCode:
    """Go on with the command that began a directory, to its end."""
    from sampler.jobs.run import recipe_in

    command, recipe = recipe_in(arguments.directory)
    return work(arguments, command, recipe, arguments.directory)


def work(
    arguments: Namespace, command: str, recipe: "Recipe | TrainingRecipe", directory: Path
) -> ExitCode:
    """Do a command with a recipe, at all points of its grid, or the rest of it."""
    from sampler.settings.training import TRAIN

    figures, more = getattr(arguments, "figures", True), getattr(arguments, "more", None)
    announce(arguments, command, recipe, directory)
    if command == TRAIN:
        if more:
            raise InputError("--more", more, "a training has no draws to append")
        from sampler.jobs.train import start_training

        return start_training(recipe, directory, arguments.interruption)
    from sampler.jobs.plan import make_plan
    from sampler.jobs.run import start_run, with_more_draws

    if more:
        recipe = with_more_draws(directory, recipe, more)
    plan = make_plan(command, recipe, directory, figures)
    if plan.points:
        from sampler.jobs.sweep import start_sweep

        return start_sweep(plan, arguments.interruption)
    return start_run(plan, arguments.interruption, extended=bool(more))


def sweep(arguments: Namespace) -> ExitCode:
    """Run a grid of points, or write the batch script for it."""
    from sampler.jobs.plan import make_plan
    from sampler.jobs.slurm import write_slurm_array
    from sampler.jobs.sweep import refuse_without_grid, run_one, start_sweep
    from sampler.settings.recipe import load_recipe
    from sampler.storage.directory import default_directory

    recipe = load_recipe(arguments.recipe, arguments.overrides, arguments.over)
    refuse_without_grid(recipe)
    # Other processes, on other machines, have other working directories.
    directory = Path(arguments.out or default_directory(recipe)).resolve()
    if arguments.worker:
        from sampler.jobs.workers import work as work_at_points

        return work_at_points(directory, arguments.interruption)
    if arguments.slurm_options and not arguments.slurm:
        raise InputError("--slurm-option", arguments.slurm_options[0], "needs --slurm")
    if (arguments.slurm or arguments.point is not None) and recipe.sampler.points == "selected":
        remedy = "a job array runs every point once: sweep without --slurm and --point, or set all"
        raise InputError("sampler.points", "selected", remedy)
    figures, interruption = arguments.figures, arguments.interruption
    if arguments.point is not None:
        return run_one(recipe, directory, arguments.point, figures, interruption)
    if arguments.slurm:
        write_slurm_array(make_plan("run", recipe, directory, figures), arguments.slurm_options)
        return ExitCode.OK
    announce(arguments, "run", recipe, directory)
    plan = make_plan("run", recipe, directory, figures)
    return start_sweep(plan, interruption, arguments.workers, arguments.scheduler)


def reproduce(arguments: Namespace) -> ExitCode:
    """Redo a run, and compare."""
    from sampler.jobs.run import plan_in

    plan = plan_in(arguments.directory)
    from sampler.jobs.reproduce import reproduce_run  # with the numerical libraries

    return reproduce_run(plan, arguments.interruption)


# --- commands on stored results


def stage(arguments: Namespace) -> ExitCode:
    """Do `compare`, `diagnose`, `figures` or `report`: one stage from stored results."""
    from sampler.jobs.stored import STAGES, compare_runs
    from sampler.storage.directory import find_directory

    directories = list(map(find_directory, arguments.directories))
    options = {"svg": arguments.svg} if arguments.command == "figures" else {}
    codes = []
    with jax_settings():
        for directory in directories:
            if len(directories) > 1:
                print(f"\n{directory}", flush=True)
            codes.append(STAGES[arguments.command](directory, **options))
    if arguments.command == "compare" and len(directories) > 1:
        compare_runs(directories)
    return max(codes)


def prune(arguments: Namespace) -> ExitCode:
    """Remove heads of a trained network."""
    from sampler.jobs.run import plan_in

    plan = plan_in(arguments.directory)
    with jax_settings():
        from sampler.jobs.prune import prune as prune_heads

        return prune_heads(plan, arguments.orders, arguments.seed)


# The commands that save on a signal, and all others that
# compile programs.
SAVING = ("run", "solve", "sample", "train", "sweep", "resume", "reproduce")
COMPILING = ("compare", "diagnose", "figures", "report", "prune")
# What `resume` continues; every other command is given once more.
RESUMABLE = ("run", "solve", "sample", "train", "resume")
# Those whose whole result is their output.
PRINTING = ("new", "check", "status", "list", "compare", "diagnose")
HANDLERS: dict[str, Callable[[Namespace], ExitCode]] = {
    "new": new,
    "check": check,
    "status": status,
    "list": list_runs,
    **dict.fromkeys(("run", "solve", "sample", "train"), start),
    "sweep": sweep,
    "resume": resume,
    "reproduce": reproduce,
    **dict.fromkeys(("compare", "diagnose", "figures", "report"), stage),
    "prune": prune,
}
