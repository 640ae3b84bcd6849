"""The command line, `attention-posterior` or `python -m sampler`."""

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.command_line import LATEST, PROGRAM, make_parser, separate_settings
from sampler.compiled import cache_programs
from sampler.environment import draw_into_files
from sampler.errors import (
    ExitCode,
    InputError,
    OutOfTimeError,
    RequeueError,
    Setting,
    one_line,
    reason_of,
    refuse_another_theory,
)
from sampler.runtime import jax_settings, silence_compiler, use_one_blas_thread

if TYPE_CHECKING:
    from sampler.jobs.interruption import Interruption
    from sampler.jobs.plan import Plan

# Modules that read data or compute are imported by the command that needs them: --help is
# instant, and a bad recipe is reported before JAX is there.


def main(argv: Sequence[str] | None = None) -> int:
    use_one_blas_thread()
    draw_into_files()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = make_parser().parse_args(separate_settings(words))
    except SystemExit as leave:
        return int(leave.code or 0)
    arguments.words = words
    if arguments.command in COMPILING:
        cache_programs()
    silence_compiler()
    try:
        refuse_another_theory()
        settle_directories(arguments)
        code = HANDLERS[arguments.command](arguments)
        if arguments.command in PRINTING:
            sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return fail(arguments, f"interrupted; {hint_of(arguments)}", ExitCode.INTERRUPTED)
    except RequeueError as problem:
        text = f"{one_line(str(problem))}; {hint_of(arguments)}"
        return fail(arguments, text, problem.exit_code)
    except (InputError, OutOfTimeError) as problem:
        return fail(arguments, one_line(str(problem)), problem.exit_code)
    except OSError as problem:
        return fail(arguments, one_line(reason_of(problem)), ExitCode.BAD_INPUT)
    except Exception as problem:
        text = f"internal error: {type(problem).__name__}: {one_line(str(problem))}"
        return fail(arguments, f"{text} (rerun with --debug)", ExitCode.INTERNAL_ERROR)


def announce(arguments: argparse.Namespace, what: str, directory: Path) -> None:
    """Say at once what is done and where its results go, and remember that directory."""
    arguments.directory = directory
    print(f"{what}\nresults go to {directory}", flush=True)


def hint_of(arguments: argparse.Namespace) -> str:
    """Return the place of the results of an interrupted command, and the command that goes on."""
    from sampler.jobs.plan import resume_hint

    directory = getattr(arguments, "directory", None)
    return resume_hint(arguments.command, [PROGRAM, *arguments.words], directory)


def settle_directories(arguments: argparse.Namespace) -> None:
    """Put the directory of the newest run in the place of the word `latest`."""

    def settled(directory: Path) -> Path:
        if directory != Path(LATEST) or directory.exists():
            return directory
        from sampler.storage.status import newest_run

        return newest_run()

    if "directory" in arguments:
        arguments.directory = settled(arguments.directory)
    if "directories" in arguments:
        arguments.directories = [settled(directory) for directory in arguments.directories]


def fail(arguments: argparse.Namespace, text: str, code: ExitCode) -> int:
    with suppress(OSError):  # nobody may read it
        if arguments.debug:
            traceback.print_exc()
        print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
    return int(code)


def new(arguments: argparse.Namespace) -> ExitCode:
    """Write a recipe that ships, or say which there are."""
    from sampler.analysis.text import wrapped
    from sampler.settings import gallery

    if arguments.list:
        for name in gallery.names_of_shipped():
            one = gallery.shipped_recipe(name)
            print(wrapped(f"{name}: {one.title} Needs {one.needs}.", further="    "))
        print(wrapped("\nTimes are those of two cores. `attention-posterior new NAME` writes one."))
        return ExitCode.OK
    recipe = gallery.shipped_recipe(arguments.name or gallery.FIRST)
    path = arguments.out or Path(recipe.name + gallery.SUFFIX)
    written = gallery.write_shipped(recipe, path)
    print(f"written: {', '.join(map(str, written))}")
    print(wrapped(f"{recipe.title} Needs {recipe.needs}."))
    print(f"next: {recipe.command_at(path)}")
    return ExitCode.OK


def check(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.check import check_recipe
    from sampler.settings.training import load_any_recipe

    recipe = load_any_recipe(arguments.recipe, arguments.overrides)
    print(check_recipe(recipe))
    return ExitCode.OK


def start(arguments: argparse.Namespace) -> ExitCode:
    """`run`, `solve` or `sample` of a recipe, of all its points where it has a grid."""
    from sampler.jobs.interruption import listening
    from sampler.jobs.plan import first_line, make_plan
    from sampler.settings.recipe import load_recipe
    from sampler.storage.directory import default_directory

    with listening() as interruption:
        recipe = load_recipe(arguments.recipe, arguments.overrides)
        directory = arguments.out or default_directory(recipe)
        figures = "figures" not in arguments or arguments.figures
        announce(arguments, first_line(arguments.command, recipe, figures), directory)
        plan = make_plan(arguments.command, recipe, directory, figures)
        return begin(plan, interruption)


def begin(plan: "Plan", interruption: "Interruption", extended: bool = False) -> ExitCode:
    """Do what is left of a plan: of one run, or of all points of a sweep in this process."""
    from sampler.jobs.run import start_run
    from sampler.jobs.sweep import start_sweep

    if plan.points:
        return start_sweep(plan, interruption)
    return start_run(plan, interruption, extended)


def sweep(arguments: argparse.Namespace) -> ExitCode:
    """Run a grid of points, or write what runs it."""
    from sampler.jobs.interruption import listening
    from sampler.jobs.plan import first_line, make_plan
    from sampler.jobs.slurm import write_slurm_array
    from sampler.jobs.sweep import refuse_without_grid, run_one, start_sweep
    from sampler.settings.recipe import load_recipe
    from sampler.storage.directory import default_directory

    recipe = load_recipe(arguments.recipe, arguments.overrides, arguments.over)
    refuse_without_grid(recipe)
    # Other processes, on other machines, have other working directories.
    directory = Path(arguments.out or default_directory(recipe)).resolve()
    if arguments.slurm_options and not arguments.slurm:
        raise InputError("--slurm-option", arguments.slurm_options[0], "needs --slurm")
    if (arguments.slurm or arguments.point is not None) and recipe.sampler.points == "selected":
        remedy = "a job array runs every point once: sweep without --slurm and --point, or set all"
        raise InputError(Setting("sampler", "points"), "selected", remedy)
    figures = arguments.figures
    if arguments.slurm:
        plan = make_plan("run", recipe, directory, figures)
        write_slurm_array(plan, arguments.slurm_options)
        return ExitCode.OK
    with listening() as interruption:
        if arguments.point is not None:
            return run_one(recipe, directory, arguments.point, figures, interruption)
        announce(arguments, first_line("run", recipe, figures), directory)
        plan = make_plan("run", recipe, directory, figures)
        return start_sweep(plan, interruption, arguments.workers, arguments.scheduler)


def train(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.interruption import listening
    from sampler.jobs.plan import first_line
    from sampler.settings.training import load_training_recipe
    from sampler.storage.directory import default_directory

    with listening() as interruption:
        recipe = load_training_recipe(arguments.recipe, arguments.overrides)
        directory = arguments.out or default_directory(recipe)
        announce(arguments, first_line("train", recipe), directory)
        from sampler.jobs.train import start_training

        return start_training(recipe, directory, interruption)


def resume(arguments: argparse.Namespace) -> ExitCode:
    """Go on with the command that began a directory, to its end."""
    from sampler.jobs.interruption import listening
    from sampler.jobs.plan import first_line, make_plan
    from sampler.jobs.run import recipe_in, with_more_draws
    from sampler.settings.training import TrainingRecipe

    directory = arguments.directory
    with listening() as interruption:
        command, recipe = recipe_in(directory)
        begun = first_line(command, recipe, arguments.figures)
        announce(arguments, f"going on: {begun}", directory)
        if isinstance(recipe, TrainingRecipe):
            if arguments.more:
                raise InputError("--more", arguments.more, "a training has no draws to append")
            from sampler.jobs.train import start_training

            return start_training(recipe, directory, interruption)
        if arguments.more:
            recipe = with_more_draws(directory, recipe, arguments.more)
        plan = make_plan(command, recipe, directory, arguments.figures)
        return begin(plan, interruption, extended=bool(arguments.more))


def reproduce(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.interruption import listening
    from sampler.jobs.plan import first_line
    from sampler.jobs.run import plan_in

    with listening() as interruption:
        plan = plan_in(arguments.directory)
        begun = first_line(plan.command, plan.asked, figures=False)
        print(f"once more, to compare: {begun}", flush=True)
        from sampler.jobs.reproduce import reproduce_run

        return reproduce_run(plan, interruption)


def status(arguments: argparse.Namespace) -> ExitCode:
    from sampler.presentation.status import status_text
    from sampler.storage.directory import find_directory

    directories = [find_directory(directory) for directory in arguments.directories]
    print("\n".join(map(status_text, directories)))
    return ExitCode.OK


def list_runs(arguments: argparse.Namespace) -> ExitCode:
    from sampler.presentation.status import listing_text

    print(listing_text(arguments.directories))
    return ExitCode.OK


def compare(arguments: argparse.Namespace) -> ExitCode:
    """Hold stored theory and draws against each other."""
    code = stage(arguments)
    if len(arguments.directories) > 1:
        from sampler.jobs.stored import compare_runs
        from sampler.storage.directory import find_directory

        compare_runs([find_directory(directory) for directory in arguments.directories])
    return code


def stage(arguments: argparse.Namespace) -> ExitCode:
    """`compare`, `diagnose`, `figures` or `report`: one stage from stored results."""
    from sampler.jobs import stored
    from sampler.storage.directory import find_directory

    directories = [find_directory(directory) for directory in arguments.directories]
    options = {}
    if "svg" in arguments:
        options = {"svg": arguments.svg, "every": arguments.all}
    codes = []
    with jax_settings():
        for directory in directories:
            if len(directories) > 1:
                print(f"\n{directory}", flush=True)
            codes.append(stored.STAGES[arguments.command](directory, **options))
    return max(codes)


def prune(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.run import plan_in
    from sampler.settings.refusals import refuse_without_theory
    from sampler.storage.directory import locked

    plan = plan_in(arguments.directory)
    one, remedy = plan.recipe, "prune the run of a linear network with fixed attention"
    refuse_without_theory(one.outside_theory, one.learns_attention, remedy)
    with locked(arguments.directory), jax_settings():
        from sampler.heads import prune as heads

        return heads.prune(
            arguments.directory,
            plan.recipe,
            plan.task,
            arguments.orders,
            arguments.seed,
            solve_again=not arguments.keep_order_parameter,
        )


# The commands that compile programs.
COMPILING = (
    "run", "solve", "sample", "train", "sweep", "resume", "reproduce", "compare", "diagnose",
    "figures", "report", "prune",
)  # fmt: skip
# Those whose whole result is what they print.
PRINTING = ("new", "check", "status", "list", "compare", "diagnose")
HANDLERS: dict[str, Callable[[argparse.Namespace], ExitCode]] = {
    "new": new,
    "check": check,
    "run": start,
    "solve": start,
    "sample": start,
    "train": train,
    "sweep": sweep,
    "resume": resume,
    "reproduce": reproduce,
    "status": status,
    "list": list_runs,
    "compare": compare,
    "diagnose": stage,
    "figures": stage,
    "report": stage,
    "prune": prune,
}
