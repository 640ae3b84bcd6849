"""The commands and their arguments, for the program, its help and the completion of shells.

Nothing is imported that computes or reads data: --help is instant.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from sampler import __version__
from sampler.errors import ExitCode

PROGRAM = "attention-posterior"
SHELLS = ("bash", "zsh", "tcsh")
# In the place of a run directory, the newest run in the directory of results.
LATEST = "latest"
# A key of a recipe, which is no option, then a value.
SETTING = re.compile(r"\w[\w-]*(\.[\w-]+)*=")
# In examples.
EARLIER = "runs/results/quickstart-1a2b3c4d"
TAKE_SEVERAL = ("--set", "--over", "--slurm-option")


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad command line as one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


class PrintCompletion(argparse.Action):
    """Print the script with which a shell completes this program, and leave.

    What is needed for that is imported only then: --help stays instant.
    """

    def __call__(self, parser, namespace, shell, option_string=None) -> None:
        import shtab

        from sampler.settings.gallery import names_of_shipped
        from sampler.settings.training import every_key

        kinds = {"RECIPE": shtab.FILE, "FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
        keys = [f"{key}=" for key in every_key()]
        commands = next(one for one in parser._actions if one.dest == "command")
        for command in commands.choices.values():
            for action in command._actions:
                if action.dest in ("overrides", "over"):
                    action.choices = keys
                elif action.dest == "name":
                    action.choices = names_of_shipped()
                elif action.metavar in kinds:
                    action.complete = kinds[action.metavar]
        sys.stdout.write(shtab.complete(parser, shell))
        parser.exit(0)


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


def positive_count(text: str) -> int:
    """Return a whole number above zero, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def named_path(text: str) -> Path:
    """Return a path, for argparse; an empty one, as of a variable that is not set, is none."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file or a directory")
    return Path(text)


# What each command does, and what may follow its name.
COMMANDS = {
    "new": ("write a recipe to begin with, one of those that ship", "quickstart --out mine.toml"),
    "check": (
        "validate recipe and data; print sizes, settings, memory and cost",
        "quickstart.toml",
    ),
    "run": (
        "do everything: theory, sampling, diagnostics, comparison, figures",
        "quickstart.toml --set network.widths=20",
    ),
    "train": (
        "train a transformer on one-shot episodes, for `run` to take its attention",
        "one_shot_train.toml --out runs/results/one_shot_train",
    ),
    "sweep": (
        "run a grid of points, here, on Dask workers or as a Slurm job array",
        "finite_size.toml --over network.widths=10,30,100 sampler.seed=0:3 --workers 4",
    ),
    "solve": (
        "theory only: saddle point, predictor, infinite width",
        "markov_four_paths.toml --out theory_only",
    ),
    "sample": ("sampling only", "quickstart.toml --set sampler.seed=1"),
    "resume": ("go on with an interrupted run; append draws to a finished one", EARLIER),
    "status": ("say where runs or sweeps stand", EARLIER),
    "list": ("list runs, the newest first, with state and verdict", "runs/results"),
    "reproduce": ("redo a run and compare it with the stored one", EARLIER),
    "compare": ("compare stored theory and stored draws", EARLIER),
    "diagnose": ("diagnose stored draws", EARLIER),
    "figures": ("draw the figures from stored results", EARLIER),
    "report": ("write everything on one page, report.html", EARLIER),
    "prune": ("remove heads of a trained network, by score and otherwise", EARLIER),
}
OF_RECIPES = ("check", "run", "train", "sweep", "solve", "sample")
OF_ONE_RUN = ("resume", "reproduce", "prune")


def option(flag: str, **settings: Any) -> tuple[str, dict[str, Any]]:
    """Return an option as `add_argument` takes it."""
    return flag, settings


WITHOUT_FIGURES = option(
    "--no-figures",
    dest="figures",
    action="store_false",
    help="leave out the figures; `figures DIR` draws them later, `report DIR` shows them as well",
)
# Options of single commands.
OPTIONS = {
    "new": [
        option(
            "name",
            metavar="NAME",
            nargs="?",
            help="a recipe that ships; default: quickstart",
        ),
        option(
            "--out",
            type=named_path,
            metavar="FILE",
            help="where to write; default: NAME.toml; no file is replaced",
        ),
        option(
            "--list",
            action="store_true",
            help="write nothing; say what ships, what each asks, needs and takes",
        ),
    ],
    "run": [WITHOUT_FIGURES],
    "solve": [WITHOUT_FIGURES],
    "figures": [
        option("--svg", action="store_true", help="as SVG too, beside the PNG"),
        option("--all", action="store_true", help="those too that a run leaves out"),
    ],
    "resume": [
        WITHOUT_FIGURES,
        option(
            "--more",
            type=positive_count,
            metavar="DRAWS",
            help="append so many draws per chain to a finished run, without new warm-up",
        ),
    ],
    "prune": [
        option(
            "--orders",
            type=positive_count,
            default=20,
            metavar="COUNT",
            help="random orders to compare with (default: 20, at least 2)",
        ),
        option(
            "--seed", type=int, default=0, metavar="SEED", help="of the random orders (default: 0)"
        ),
        option(
            "--keep-order-parameter",
            action="store_true",
            help="use the order parameter of the whole network: to solve the theory again without "
            "each head takes hours with many paths",
        ),
    ],
    "sweep": [
        WITHOUT_FIGURES,
        option(
            "--over",
            metavar="KEY=V1,V2",
            action="append",
            default=[],
            help="vary a setting: a dotted key and TOML values, or A:B for A, A+1, …, B−1; several "
            "may follow and make a grid",
        ),
        option(
            "--slurm-option",
            dest="slurm_options",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="an option of sbatch, as in time=2:00:00; several may follow",
        ),
    ],
}
# Options of `sweep` of which only one can be given.
WHERE_TO_SWEEP = (
    option("--workers", type=int, metavar="N", help="run on N processes of this machine (Dask)"),
    option("--scheduler", metavar="ADDRESS", help="run on a Dask cluster, as in tcp://host:8786"),
    option("--slurm", action="store_true", help="write DIR/sweep.sbatch, a Slurm job array"),
    option(
        "--point", type=int, metavar="INDEX", help="run one point of the grid, the first being 0"
    ),
)


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=PROGRAM,
        description="Theory and sampling of Bayesian deep multi-head attention networks.",
        epilog="Exit codes: 0 fine; 1 internal error; 2 bad recipe, data or command line; "
        "3 sampled, but diagnostics fail; 4 saddle point not converged; 5 not reproduced; "
        "75 stopped by a signal with everything saved, start it again; 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    flag, debug = option("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument(flag, **debug)
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help='complete commands, files and keys: eval "$(attention-posterior --print-completion '
        'bash)"',
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, dest="command"
    )
    for name, (summary, example) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"Example: {PROGRAM} {name} {example}",
        )
        # Without a default of its own this does not undo --debug in front of the command.
        command.add_argument("--debug", **debug, default=argparse.SUPPRESS)
        if name in OF_RECIPES:
            add_recipe(command, writes=name != "check")
        elif name != "new":
            add_directories(command, name)
        for flag, settings in OPTIONS.get(name, ()):
            command.add_argument(flag, **settings)
        if name == "sweep":
            where = command.add_mutually_exclusive_group()
            for flag, settings in WHERE_TO_SWEEP:
                where.add_argument(flag, **settings)
    return parser


def add_recipe(command: argparse.ArgumentParser, *, writes: bool) -> None:
    command.add_argument("recipe", type=named_path, metavar="RECIPE", help="a recipe, a TOML file")
    if writes:
        command.add_argument(
            "--out",
            type=named_path,
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


def add_directories(command: argparse.ArgumentParser, name: str) -> None:
    """Add the directory, or the directories, that a command starts from."""
    where = f"directory of an earlier run; `{LATEST}`: of the newest in runs/results"
    if name in OF_ONE_RUN:
        command.add_argument("directory", type=named_path, metavar="DIR", help=where)
        return
    if name == "list":
        where = "runs, or directories that hold runs; default: runs/results"
    nargs = "*" if name == "list" else "+"
    command.add_argument("directories", type=named_path, nargs=nargs, metavar="DIR", help=where)
