"""The command line, `attention-posterior` or `python -m sampler`."""

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from sampler import __version__
from sampler.errors import ExitCode, InputError, RequeueError, one_line
from sampler.numerics import (
    divide_processor,
    silence_compiler,
    use_float64,
    use_one_blas_thread,
)

SHELLS = ("bash", "zsh", "tcsh")


class PrintCompletion(argparse.Action):
    """Print the script with which a shell completes this program, and leave.

    The library that writes it is imported only then: --help stays instant.
    """

    def __call__(self, parser, namespace, shell, option_string=None) -> None:
        import shtab

        mark_files(parser)
        sys.stdout.write(shtab.complete(parser, shell))
        parser.exit(0)


def mark_files(parser: argparse.ArgumentParser) -> None:
    """Say which arguments are files and which are directories, by their names in the usage."""
    import shtab

    kinds = {"RECIPE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                mark_files(inner)
        elif isinstance(action.metavar, str) and action.metavar in kinds:
            action.complete = kinds[action.metavar]


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help='complete commands and files: eval "$(attention-posterior --print-completion bash)"',
    )


# Modules that read data or compute are imported by the command that needs them: --help is
# instant, and a bad recipe is reported before JAX is there.

PROGRAM = "attention-posterior"
SETTING = re.compile(r"[\w-]+(\.[\w-]+)*=")
TAKE_SEVERAL = ("--set", "--over", "--slurm-option")


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad command line as one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    use_one_blas_thread()
    silence_compiler()
    try:
        arguments = make_parser().parse_args(
            separate_settings(sys.argv[1:] if argv is None else argv)
        )
    except SystemExit as leave:
        return int(leave.code or 0)
    if has_the_machine(arguments):
        divide_processor()
    try:
        return int(arguments.handler(arguments))
    except KeyboardInterrupt:
        text = "interrupted: `status` says where it stands, `resume` goes on"
        return fail(arguments, text, ExitCode.INTERRUPTED)
    except (InputError, RequeueError) as problem:
        return fail(arguments, one_line(str(problem)), problem.exit_code)
    except OSError as problem:  # a full disk behind stdout, say: nothing of a run writes elsewhere
        reason = f"{problem.strerror or problem} ({problem.filename or 'standard output'})"
        return fail(arguments, f"cannot write: {one_line(reason)}", ExitCode.BAD_INPUT)
    except Exception as problem:
        text = f"internal error: {type(problem).__name__}: {one_line(str(problem))}"
        return fail(arguments, f"{text} (rerun with --debug)", ExitCode.INTERNAL_ERROR)


def has_the_machine(arguments: argparse.Namespace) -> bool:
    """Whether this process samples by itself, not beside workers of the same sweep."""
    if arguments.command == "sweep":
        return arguments.workers is None and arguments.scheduler is None
    return arguments.command in ("run", "sample", "resume", "reproduce")


def fail(arguments: argparse.Namespace, text: str, code: ExitCode) -> int:
    if arguments.debug:
        traceback.print_exc()
    print(f"{PROGRAM}: {text}", file=sys.stderr)
    return int(code)


def check(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.check import check_recipe
    from sampler.recipes.training_recipe import load_any_recipe

    print(check_recipe(load_any_recipe(arguments.recipe, arguments.overrides)))
    return ExitCode.OK


def start(arguments: argparse.Namespace) -> ExitCode:
    """`run`, `solve` or `sample` of a recipe, of all its points where it has a grid."""
    from sampler.jobs import sweep
    from sampler.jobs.interruption import listening
    from sampler.recipes.recipe import load_recipe
    from sampler.storage.run_directory import default_directory

    with listening() as interruption:
        recipe = load_recipe(arguments.recipe, arguments.overrides)
        directory = arguments.out or default_directory(recipe)
        return sweep.start(arguments.command, recipe, directory, interruption)


def sweep(arguments: argparse.Namespace) -> ExitCode:
    """Run a grid of points, or write what runs it."""
    from sampler.jobs import engines
    from sampler.jobs.sweep import run_one, run_sweep
    from sampler.recipes.recipe import load_recipe
    from sampler.recipes.settings import sweep_override
    from sampler.storage.run_directory import default_directory

    over = [sweep_override(text) for text in arguments.over]
    recipe = load_recipe(arguments.recipe, [*arguments.overrides, *over])
    # Other processes, on other machines, have other working directories.
    directory = Path(arguments.out or default_directory(recipe)).resolve()
    if arguments.slurm_options and not arguments.slurm:
        raise InputError("--slurm-option", arguments.slurm_options[0], "needs --slurm")
    alone = arguments.slurm or arguments.point is not None
    if alone and recipe.sampler.points == "selected":
        remedy = "a job array runs every point once: sweep without --slurm and --point, or set all"
        raise InputError("sampler.points", "selected", remedy)
    if arguments.slurm:
        engines.write_slurm_array(recipe, directory, arguments.slurm_options)
        return ExitCode.OK
    if arguments.point is not None:
        # Slurm starts a task again only when the node it was on is done with it, or lost.
        again = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
        return run_one(recipe, directory, arguments.point, alone=again)
    given = {name: getattr(arguments, name) for name in ("workers", "scheduler")}
    chosen = next((name for name, value in given.items() if value is not None), "")
    engine = engines.ENGINES[chosen](given.get(chosen))
    use_float64()
    return run_sweep(recipe, directory, engine)


def train(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.interruption import listening
    from sampler.jobs.train import start_training
    from sampler.recipes.training_recipe import load_training_recipe
    from sampler.storage.run_directory import default_directory

    with listening() as interruption:
        recipe = load_training_recipe(arguments.recipe, arguments.overrides)
        return start_training(recipe, arguments.out or default_directory(recipe), interruption)


def resume(arguments: argparse.Namespace) -> ExitCode:
    """Go on with the command that began a directory, to its end."""
    from sampler.jobs.interruption import listening
    from sampler.jobs.run import Job, Point, begun_in, extended, recipe_in, work
    from sampler.recipes.training_recipe import TrainingRecipe
    from sampler.storage.lock import locked

    directory = arguments.directory
    with listening() as interruption:
        _, recipe = recipe_in(directory)
        if isinstance(recipe, TrainingRecipe):
            if arguments.more:
                raise InputError("--more", arguments.more, "a training has no draws to append")
            from sampler.jobs.train import start_training

            return start_training(recipe, directory, interruption)
        command, recipe, task = begun_in(directory)
        with locked(directory):
            if arguments.more:
                recipe = extended(directory, recipe, arguments.more)
            use_float64()
            if recipe.sweep:
                from sampler.jobs.sweep import work_on_sweep

                return work_on_sweep(command, recipe, task, directory, interruption)
            return work(command, Job(Point(recipe, directory), task, interruption))


def reproduce(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.interruption import listening
    from sampler.jobs.run import begun_in

    with listening() as interruption:
        command, recipe, task = begun_in(arguments.directory)
        use_float64()
        from sampler.jobs.reproduce import reproduce_run

        return reproduce_run(command, recipe, task, arguments.directory, interruption)


def status(arguments: argparse.Namespace) -> ExitCode:
    from sampler.storage.run_directory import find_directory
    from sampler.storage.status import status_text

    print(status_text(find_directory(arguments.directory)))
    return ExitCode.OK


def compare(arguments: argparse.Namespace) -> ExitCode:
    """Hold stored theory and draws against each other, and theories of the user's own."""
    from sampler.jobs.interruption import listening
    from sampler.jobs.run import add_own

    own = dict(text.split("=", 1) for text in arguments.own)
    if own:
        with listening() as interruption:
            add_own(arguments.directory, own, interruption)
    return stage(arguments)


def stage(arguments: argparse.Namespace) -> ExitCode:
    """`compare`, `diagnose`, `figures` or `report`: one stage from stored results."""
    from sampler.jobs import run
    from sampler.storage.run_directory import find_directory

    directory = find_directory(arguments.directory)
    use_float64()
    return getattr(run, arguments.command)(directory)


def prune(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.run import begun_in
    from sampler.recipes.validation import refuse_without_theory
    from sampler.storage.lock import locked

    _, recipe, task = begun_in(arguments.directory)
    if recipe.sweep:
        remedy = "is a sweep; name the directory of one of its points"
        raise InputError("DIR", str(arguments.directory), remedy)
    refuse_without_theory(recipe.network, "prune the run of a linear network")
    use_float64()
    with locked(arguments.directory):
        from sampler.jobs import prune as jobs

        return jobs.prune(arguments.directory, recipe, task, arguments.orders, arguments.seed)


def separate_settings(argv: Sequence[str]) -> list[str]:
    """Put --set in front of every setting of `--set A=1 B=2`, so that a recipe may follow them.

    The same for the other options that take several KEY=VALUE.
    """
    separated, option = [], ""
    for argument in argv:
        follows = bool(option) and SETTING.match(argument) is not None
        if follows and separated[-1] != option:
            separated.append(option)
        separated.append(argument)
        if argument in TAKE_SEVERAL:
            option = argument
        elif not follows:
            option = ""
    return separated


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = OneLineParser(
        prog=PROGRAM,
        description="Theory and sampling of Bayesian deep multi-head attention networks.",
        epilog="Exit codes: 0 fine; 1 internal error; 2 bad recipe, data or command line; "
        "3 sampled, but diagnostics fail; 4 saddle point not converged; 5 not reproduced; "
        "75 stopped by a signal with everything saved, start it again; 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    add_completion(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    add_recipe_command(
        commands,
        "check",
        check,
        "validate recipe and data; print sizes, settings, memory and cost",
        "check runs/quickstart.toml",
        writes=False,
    )
    add_recipe_command(
        commands,
        "run",
        start,
        "do everything: theory, sampling, diagnostics, comparison, figures",
        "run runs/quickstart.toml --set network.widths=20",
    )
    add_recipe_command(
        commands,
        "train",
        train,
        "train a transformer on one-shot episodes, for `run` to take its attention",
        "train runs/one_shot_train.toml --out runs/results/one_shot_train",
    )
    sweeping = add_recipe_command(
        commands,
        "sweep",
        sweep,
        "run a grid of points, here, on Dask workers or as a Slurm job array",
        "sweep runs/finite_size.toml --over network.widths=10,30,100 sampler.seed=0:3 --workers 4",
    )
    add_sweep_arguments(sweeping)
    add_recipe_command(
        commands,
        "solve",
        start,
        "theory only: saddle point, predictor, GP limit",
        "solve runs/markov_four_paths.toml --out theory_only",
    )
    add_recipe_command(
        commands,
        "sample",
        start,
        "sampling only",
        "sample runs/quickstart.toml --set sampler.seed=1",
    )
    continuing = add_stage_command(
        commands, "resume", resume, "go on with an interrupted run; append draws to a finished one"
    )
    continuing.add_argument(
        "--more",
        type=positive_count,
        metavar="DRAWS",
        help="append so many draws per chain to a finished run, without new warm-up",
    )
    add_stage_command(commands, "status", status, "say where a run or a sweep stands")
    add_stage_command(
        commands, "reproduce", reproduce, "redo a run and compare it with the stored one"
    )
    comparing = add_stage_command(
        commands, "compare", compare, "compare stored theory and stored draws"
    )
    comparing.add_argument(
        "--own",
        type=named_source,
        metavar="NAME=SOURCE",
        action="append",
        default=[],
        help="a theory of your own: an .npz or .nc file of arrays, or FILE.py:FUNCTION",
    )
    add_stage_command(commands, "diagnose", stage, "diagnose stored draws")
    add_stage_command(commands, "figures", stage, "draw the figures from stored results")
    add_stage_command(commands, "report", stage, "write everything on one page, report.html")
    pruning = add_stage_command(
        commands, "prune", prune, "remove heads of a trained network, by score and otherwise"
    )
    pruning.add_argument(
        "--orders",
        type=positive_count,
        default=20,
        metavar="COUNT",
        help="random orders to compare with (default: 20, at least 2)",
    )
    pruning.add_argument(
        "--seed", type=int, default=0, metavar="SEED", help="of the random orders (default: 0)"
    )
    return parser


def add_recipe_command(
    commands, name: str, handler: Callable, summary: str, example: str, writes=True
):
    command = add_command(commands, name, handler, summary, example)
    command.add_argument("recipe", type=Path, metavar="RECIPE", help="a recipe, a TOML file")
    if writes:
        command.add_argument(
            "--out",
            type=Path,
            metavar="DIR",
            help="where to write; default: runs/results/<name>-<hash of the recipe>",
        )
    command.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change a setting: a dotted key of the recipe and a TOML value; several may follow",
    )
    return command


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


def add_stage_command(commands, name: str, handler: Callable, summary: str):
    example = f"{name} runs/results/quickstart-1a2b3c4d"
    command = add_command(commands, name, handler, summary, example)
    command.add_argument("directory", type=Path, metavar="DIR", help="directory of an earlier run")
    return command


def positive_count(text: str) -> int:
    """A whole number above zero, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def named_source(text: str) -> str:
    """NAME=SOURCE, for argparse."""
    if not all(text.partition("=")):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SOURCE")
    return text


def add_command(commands, name: str, handler: Callable, summary: str, example: str):
    command = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"Example: {PROGRAM} {example}",
    )
    command.set_defaults(handler=handler, command=name)
    # Without a default of its own this does not undo --debug in front of the command.
    command.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    return command
