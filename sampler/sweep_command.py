"""The command `sweep`: its arguments, and which engine they ask for."""

import argparse
import os
import shlex
from pathlib import Path

from sampler.errors import ExitCode, InputError
from sampler.numerics import use_float64

# As in the command line itself, what computes is imported when the arguments are known to be good.


def add_sweep_arguments(command: argparse.ArgumentParser) -> None:
    """What `sweep` takes besides a recipe, --out and --set."""
    command.add_argument(
        "--over",
        metavar="KEY=V1,V2",
        action="append",
        default=[],
        help="vary a setting: a dotted key and TOML values, or A:B for A, A+1, …, B−1; several "
        "may follow and make a grid",
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--workers", type=int, metavar="N", help="run on N processes of this machine (Dask)"
    )
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="run on a Dask cluster, as in tcp://host:8786"
    )
    where.add_argument(
        "--slurm", action="store_true", help="write DIR/sweep.sbatch, a Slurm job array"
    )
    where.add_argument(
        "--point", type=int, metavar="INDEX", help="run one point of the grid, the first being 0"
    )
    command.add_argument(
        "--slurm-option",
        dest="slurm_options",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of sbatch, as in time=2:00:00; several may follow",
    )


def sweep(arguments: argparse.Namespace) -> ExitCode:
    """Validate the grid, then run it, or write what runs it."""
    from sampler.recipes.recipe import load_recipe
    from sampler.recipes.settings import sweep_override
    from sampler.storage.run_directory import default_directory

    over = [sweep_override(text) for text in arguments.over]
    recipe = load_recipe(arguments.recipe, [*arguments.overrides, *over])
    # Other processes, on other machines, have other working directories.
    directory = Path(arguments.out or default_directory(recipe)).resolve()
    if arguments.slurm_options and not arguments.slurm:
        raise InputError("--slurm-option", arguments.slurm_options[0], "needs --slurm")
    if recipe.sampler.points == "selected":
        remedy = "use `run`, which solves all points before it samples those chosen, or set all"
        raise InputError("sampler.points", "selected", remedy)
    if arguments.slurm:
        return write_slurm_array(recipe, directory, arguments.slurm_options)
    engine = chosen_engine(arguments)
    if arguments.point is not None:
        return run_one(recipe, directory, arguments.point)
    from sampler.jobs.sweep import run_sweep

    use_float64()
    return run_sweep(recipe, directory, engine)


def run_one(recipe, directory: Path, index: int) -> ExitCode:
    """Run one point of the grid, as a task of a job array does."""
    from sampler.jobs.sweep import is_opened, open_sweep, run_point, sweep_points

    points = sweep_points(recipe, directory)
    if not 0 <= index < len(points):
        raise InputError("--point", index, f"use 0 to {len(points) - 1}")
    if not is_opened(recipe, directory):
        open_sweep(recipe, directory)
    # Slurm starts a task again only when the node it was on is done with it, or lost.
    alone = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
    return run_point(points[index].recipe, points[index].directory, alone)


def chosen_engine(arguments: argparse.Namespace):
    """The engine that the command line asks for; InputError if it cannot be had."""
    if arguments.workers is not None and arguments.workers < 1:
        raise InputError("--workers", arguments.workers, "must be at least 1")
    if arguments.workers is None and arguments.scheduler is None:
        from sampler.jobs.sweep import run_in_process

        return run_in_process
    from sampler.jobs.engines import dask_engine

    return dask_engine(arguments.workers, arguments.scheduler)


def write_slurm_array(recipe, directory: Path, options: list[str]) -> ExitCode:
    """Store the recipe and the batch script, and say what to do with them."""
    from sampler.jobs.engines import how_to_submit, parse_option, write_batch_script
    from sampler.jobs.sweep import open_sweep, sweep_points
    from sampler.storage.run_directory import RECIPE_FILE

    for option in options:
        parse_option(option)  # before anything is written
    points = sweep_points(recipe, directory)
    open_sweep(recipe, directory)
    script = write_batch_script(directory, recipe.name, len(points), options)
    stored = shlex.quote(str(directory / RECIPE_FILE))
    gather = f"attention-posterior sweep {stored} --out {shlex.quote(str(directory))}"
    print(how_to_submit(script, gather))
    return ExitCode.OK
