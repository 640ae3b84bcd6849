"""The command line, `attention-posterior` or `python -m sampler`."""

import argparse
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from sampler import __version__
from sampler.errors import ExitCode, InputError, RequeueError, one_line
from sampler.numerics import silence_compiled_cache, use_float64, use_one_blas_thread
from sampler.sweep_command import add_sweep_arguments, sweep

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
    silence_compiled_cache()
    try:
        arguments = make_parser().parse_args(
            separate_settings(sys.argv[1:] if argv is None else argv)
        )
    except SystemExit as leave:
        return int(leave.code or 0)
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


def fail(arguments: argparse.Namespace, text: str, code: ExitCode) -> int:
    if arguments.debug:
        traceback.print_exc()
    print(f"{PROGRAM}: {text}", file=sys.stderr)
    return int(code)


def check(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.check import describe
    from sampler.jobs.start import refuse_too_many_coordinates
    from sampler.recipes.training_recipe import TrainingRecipe, load_any_recipe
    from sampler.tasks.make import make_task

    recipe = load_any_recipe(arguments.recipe, arguments.overrides)
    if isinstance(recipe, TrainingRecipe):
        from sampler.jobs.check import describe_training
        from sampler.jobs.start import read_splits

        print(describe_training(recipe, read_splits(recipe)))
    else:
        task = make_task(recipe)
        refuse_too_many_coordinates(recipe, task)
        print(describe(recipe, task))
    return ExitCode.OK


def train(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.interruption import listening
    from sampler.jobs.start import start_training
    from sampler.recipes.training_recipe import load_training_recipe
    from sampler.storage.run_directory import default_directory

    with listening() as interruption:
        recipe = load_training_recipe(arguments.recipe, arguments.overrides)
        return start_training(recipe, arguments.out or default_directory(recipe), interruption)


def run(arguments: argparse.Namespace) -> ExitCode:
    return start("run", arguments)


def solve(arguments: argparse.Namespace) -> ExitCode:
    return start("solve", arguments)


def sample(arguments: argparse.Namespace) -> ExitCode:
    return start("sample", arguments)


def compare(arguments: argparse.Namespace) -> ExitCode:
    return continue_with("compare", arguments)


def diagnose(arguments: argparse.Namespace) -> ExitCode:
    return continue_with("diagnose", arguments)


def figures(arguments: argparse.Namespace) -> ExitCode:
    return continue_with("figures", arguments)


def report(arguments: argparse.Namespace) -> ExitCode:
    return continue_with("report", arguments)


def start(command: str, arguments: argparse.Namespace) -> ExitCode:
    """Validate recipe, data and output directory; only then import JAX and do the command."""
    from sampler.jobs.interruption import listening
    from sampler.jobs.start import start_run
    from sampler.recipes.recipe import load_recipe
    from sampler.storage.run_directory import default_directory

    with listening() as interruption:
        recipe = load_recipe(arguments.recipe, arguments.overrides)
        return start_run(command, recipe, arguments.out or default_directory(recipe), interruption)


def resume(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.interruption import listening
    from sampler.jobs.start import begun_in, extended, recipe_in
    from sampler.recipes.training_recipe import TrainingRecipe
    from sampler.storage.lock import locked

    directory = arguments.directory
    with listening() as interruption:
        _, recipe = recipe_in(directory)
        if isinstance(recipe, TrainingRecipe):
            if arguments.more:
                raise InputError("--more", arguments.more, "a training has no draws to append")
            from sampler.jobs.start import start_training

            return start_training(recipe, directory, interruption)
        command, recipe, task = begun_in(directory)
        with locked(directory):
            if arguments.more:
                recipe = extended(directory, recipe, arguments.more)
            use_float64()
            from sampler.jobs import run as jobs

            return jobs.work(command, recipe, task, directory, interruption)


def reproduce(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.interruption import listening
    from sampler.jobs.start import begun_in

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


def continue_with(stage: str, arguments: argparse.Namespace) -> ExitCode:
    """Do one stage from the stored results of an earlier run."""
    from sampler.storage.run_directory import find_directory

    directory = find_directory(arguments.directory)
    use_float64()
    from sampler.jobs import run as jobs

    return getattr(jobs, stage)(directory)


def prune(arguments: argparse.Namespace) -> ExitCode:
    from sampler.jobs.start import begun_in
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
        check,
        "validate recipe and data; print sizes, settings, memory and cost",
        "check runs/quickstart.toml",
        writes=False,
    )
    add_recipe_command(
        commands,
        run,
        "do everything: theory, sampling, diagnostics, comparison, figures",
        "run runs/quickstart.toml --set network.widths=20",
    )
    add_recipe_command(
        commands,
        train,
        "train a transformer on one-shot episodes, for `run` to take its attention",
        "train runs/one_shot_train.toml --out runs/results/one_shot_train",
    )
    command = add_recipe_command(
        commands,
        sweep,
        "run a grid of points, here, on Dask workers or as a Slurm job array",
        "sweep runs/finite_size.toml --over network.widths=10,30,100 sampler.seed=0:3 --workers 4",
    )
    add_sweep_arguments(command)
    add_recipe_command(
        commands,
        solve,
        "theory only: saddle point, predictor, GP limit",
        "solve runs/markov_four_paths.toml --out theory_only",
    )
    add_recipe_command(
        commands, sample, "sampling only", "sample runs/quickstart.toml --set sampler.seed=1"
    )
    continuing = add_stage_command(
        commands, resume, "go on with an interrupted run; append draws to a finished one"
    )
    continuing.add_argument(
        "--more",
        type=positive_count,
        metavar="DRAWS",
        help="append so many draws per chain to a finished run, without new warm-up",
    )
    add_stage_command(commands, status, "say where a run or a sweep stands")
    add_stage_command(commands, reproduce, "redo a run and compare it with the stored one")
    add_stage_command(commands, compare, "compare stored theory and stored draws")
    add_stage_command(commands, diagnose, "diagnose stored draws")
    add_stage_command(commands, figures, "draw the figures from stored results")
    add_stage_command(commands, report, "write everything on one page, report.html")
    pruning = add_stage_command(
        commands, prune, "remove heads of a trained network, by score and otherwise"
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


def add_recipe_command(commands, handler: Callable, summary: str, example: str, writes=True):
    command = add_command(commands, handler, summary, example)
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


def add_stage_command(commands, handler: Callable, summary: str):
    example = f"{handler.__name__} runs/results/quickstart-1a2b3c4d"
    command = add_command(commands, handler, summary, example)
    command.add_argument("directory", type=Path, metavar="DIR", help="directory of an earlier run")
    return command


def positive_count(text: str) -> int:
    """A whole number above zero, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def add_command(commands, handler: Callable, summary: str, example: str):
    command = commands.add_parser(
        handler.__name__,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"Example: {PROGRAM} {example}",
    )
    command.set_defaults(handler=handler)
    # Without a default of its own this does not undo --debug in front of the command.
    command.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    return command
