"""The commands and their arguments, for the program, its help and the completion of shells.

Nothing is imported that computes or reads data: --help is instant.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sampler import __version__
from sampler.errors import ExitCode

PROGRAM = "attention-posterior"
SHELLS = ("bash", "zsh", "tcsh")
# In the place of a run directory, the newest run in the directory of results.
LATEST = "latest"
# A key of a recipe, which is no option, then a value.
SETTING = re.compile(r"\w[\w-]*(\.[\w-]+)*=")
TAKE_SEVERAL = ("--set", "--over", "--slurm-option")


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad command line as one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


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
        "validate recipe and data; print sizes, settings, memory and cost",
        "check runs/quickstart.toml",
        writes=False,
    )
    add_recipe_command(
        commands,
        "run",
        "do everything: theory, sampling, diagnostics, comparison, figures",
        "run runs/quickstart.toml --set network.widths=20",
    )
    add_recipe_command(
        commands,
        "train",
        "train a transformer on one-shot episodes, for `run` to take its attention",
        "train runs/one_shot_train.toml --out runs/results/one_shot_train",
    )
    sweeping = add_recipe_command(
        commands,
        "sweep",
        "run a grid of points, here, on Dask workers or as a Slurm job array",
        "sweep runs/finite_size.toml --over network.widths=10,30,100 sampler.seed=0:3 --workers 4",
    )
    add_sweep_arguments(sweeping)
    add_recipe_command(
        commands,
        "solve",
        "theory only: saddle point, predictor, infinite width",
        "solve runs/markov_four_paths.toml --out theory_only",
    )
    add_recipe_command(
        commands,
        "sample",
        "sampling only",
        "sample runs/quickstart.toml --set sampler.seed=1",
    )
    continuing = add_stage_command(
        commands, "resume", "go on with an interrupted run; append draws to a finished one"
    )
    continuing.add_argument(
        "--more",
        type=positive_count,
        metavar="DRAWS",
        help="append so many draws per chain to a finished run, without new warm-up",
    )
    add_stage_command(commands, "status", "say where runs or sweeps stand", several=True)
    listing = add_command(
        commands, "list", "list runs, the newest first, with state and verdict", "list runs/results"
    )
    listing.add_argument(
        "directories",
        type=Path,
        nargs="*",
        metavar="DIR",
        help="runs, or directories that hold runs; default: runs/results",
    )
    add_stage_command(commands, "reproduce", "redo a run and compare it with the stored one")
    comparing = add_stage_command(
        commands, "compare", "compare stored theory and stored draws", several=True
    )
    comparing.add_argument(
        "--own",
        type=named_source,
        metavar="NAME=SOURCE",
        action="append",
        default=[],
        help="a theory of your own: an .npz or .nc file of arrays, or FILE.py:FUNCTION",
    )
    for name, summary in (
        ("diagnose", "diagnose stored draws"),
        ("figures", "draw the figures from stored results"),
        ("report", "write everything on one page, report.html"),
    ):
        add_stage_command(commands, name, summary, several=True)
    pruning = add_stage_command(
        commands, "prune", "remove heads of a trained network, by score and otherwise"
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
    pruning.add_argument(
        "--not-again",
        action="store_true",
        help="do not solve the theory again without each head: hours with many paths",
    )
    return parser


def add_recipe_command(commands, name: str, summary: str, example: str, writes=True):
    command = add_command(commands, name, summary, example)
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


def add_stage_command(commands, name: str, summary: str, several=False):
    example = f"{name} runs/results/quickstart-1a2b3c4d"
    command = add_command(commands, name, summary, example)
    where = f"directory of an earlier run; `{LATEST}`: of the newest in runs/results"
    if several:
        command.add_argument("directories", type=Path, nargs="+", metavar="DIR", help=where)
    else:
        command.add_argument("directory", type=Path, metavar="DIR", help=where)
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


def add_command(commands, name: str, summary: str, example: str):
    command = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"Example: {PROGRAM} {example}",
    )
    command.set_defaults(command=name)
    # Without a default of its own this does not undo --debug in front of the command.
    command.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    return command
