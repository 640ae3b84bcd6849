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


# Name and settings of an argument, as `add_argument` takes them.
Argument = tuple[str, dict[str, Any]]


def argument(name: str, metavar: str | None, text: str, **settings: Any) -> Argument:
    """Return an argument with its help; without `metavar` an option that has no value."""
    shown = {"action": "store_true"} if metavar is None else {"metavar": metavar}
    return name, {"help": text, **shown, **settings}


# fmt: off
RECIPE = argument("recipe", "RECIPE", "a recipe, a TOML file", type=named_path)
SEVERAL = {"action": "append", "default": []}
SET = argument("--set", "KEY=VALUE", dest="overrides", **SEVERAL,
    text="change a setting: a dotted key of the recipe and a TOML value; several may follow")
FROM_RECIPE = (
    RECIPE,
    argument("--out", "DIR", type=named_path,
        text="where to write; default: runs/results/<name>-<hash of the recipe>"),
    SET,
)
A_RUN = f"directory of an earlier run; `{LATEST}`: of the newest in runs/results"
DIRECTORY = argument("directory", "DIR", A_RUN, type=named_path)
DIRECTORIES = argument("directories", "DIR", A_RUN, type=named_path, nargs="+")
RUNS = argument("directories", "DIR", type=named_path, nargs="*",
    text="runs, or directories that hold runs; default: runs/results")
NO_FIGURES = argument("--no-figures", None, action="store_false", dest="figures",
    text="leave out the figures; `figures DIR` draws them later, `report DIR` shows them as well")
NEW = (
    argument("name", "NAME", "a recipe that ships; default: quickstart", nargs="?"),
    argument("--out", "FILE", type=named_path,
        text="where to write; default: NAME.toml; no file is replaced"),
    argument("--list", None, "write nothing; say what ships, what each asks, needs and takes"),
)
SWEEP = (
    *FROM_RECIPE,
    NO_FIGURES,
    argument("--over", "KEY=V1,V2",
        "vary a setting: a dotted key and TOML values, or A:B for A, A+1, …, B−1, which "
        "make a grid; several may follow", **SEVERAL),
    argument("--slurm-option", "KEY=VALUE", dest="slurm_options", **SEVERAL,
        text="an option of sbatch, as in time=2:00:00; several may follow"),
)
# Options of `sweep` of which only one can be given.
WHERE_TO_SWEEP = (
    argument("--workers", "N", "run on N processes of this machine", type=int),
    argument("--scheduler", "ADDRESS", "run on a Dask cluster, as in tcp://host:8786"),
    argument("--slurm", None, "write DIR/sweep.sbatch, a Slurm job array"),
    argument("--point", "INDEX", "run one point of the grid, the first being 0", type=int),
    argument("--worker", None, argparse.SUPPRESS),  # of a command with --workers
)
MORE = argument("--more", "DRAWS", type=positive_count,
    text="append so many draws per chain to a finished run, without new warm-up")
FIGURES = (argument("--svg", None, "as SVG in addition to PNG"),)
PRUNE = (
    argument("--orders", "COUNT", type=positive_count, default=20,
        text="random orders to compare with (default: 20, at least 2)"),
    argument("--seed", "SEED", "of the random orders (default: 0)", type=int, default=0),
)
# Purpose, operands and arguments of each command.
COMMANDS: dict[str, tuple[str, str, Sequence[Argument]]] = {
    "new": ("write a recipe to begin with, one of those that ship",
        "quickstart --out mine.toml", NEW),
    "check": ("validate recipe and data; print sizes, settings and memory",
        "quickstart.toml", (RECIPE, SET)),
    "run": ("do everything: theory, sampling, diagnostics, comparison, figures",
        "quickstart.toml --set network.widths=20", (*FROM_RECIPE, NO_FIGURES)),
    "train": ("train a transformer, for `run` to take its attention",
        "one_shot_train.toml --out runs/results/one_shot_train", FROM_RECIPE),
    "sweep": ("run a grid of points, here, on Dask workers or as a Slurm job array",
        "finite_size.toml --over network.widths=10,30,100 sampler.seed=0:3 --workers 4", SWEEP),
    "solve": ("theory only: saddle point, predictor, infinite width",
        "markov_four_paths.toml --out theory_only", (*FROM_RECIPE, NO_FIGURES)),
    "sample": ("sampling only", "quickstart.toml --set sampler.seed=1", FROM_RECIPE),
    "resume": ("go on with an interrupted run; append draws to a finished one",
        EARLIER, (DIRECTORY, NO_FIGURES, MORE)),
    "status": ("print the progress of runs or sweeps", EARLIER, (DIRECTORIES,)),
    "list": ("list runs, the newest first, with state and verdict", "runs/results", (RUNS,)),
    "reproduce": ("redo a run and compare it with the stored one", EARLIER, (DIRECTORY,)),
    "compare": ("compare stored theory and stored draws", EARLIER, (DIRECTORIES,)),
    "diagnose": ("diagnose stored draws", EARLIER, (DIRECTORIES,)),
    "figures": ("draw the figures from stored results", EARLIER, (DIRECTORIES, *FIGURES)),
    "report": ("write everything on one page, report.html", EARLIER, (DIRECTORIES,)),
    "prune": ("remove heads of a trained network, by score and otherwise",
        EARLIER, (DIRECTORY, *PRUNE)),
}
# fmt: on


# --- the parser


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad command line as one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


class PrintCompletion(argparse.Action):
    """Print the script with which a shell completes this program, and leave.

    Its modules are imported only then: --help stays instant.
    """

    def __call__(self, parser, namespace, shell, option_string=None) -> None:
        import shtab

        from sampler.settings.gallery import names_of_shipped

        kinds = {"RECIPE": shtab.FILE, "FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
        commands = next(each for each in parser._actions if each.dest == "command")
        for command in commands.choices.values():
            for action in command._actions:
                if action.dest == "name":
                    action.choices = names_of_shipped()
                elif action.metavar in kinds:
                    action.complete = kinds[action.metavar]
        sys.stdout.write(shtab.complete(parser, shell))
        parser.exit(0)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = OneLineParser(
        prog=PROGRAM,
        description="Theory and sampling of Bayesian deep multi-head attention networks.",
        epilog="Exit codes: 0 fine; 1 internal error; 2 bad recipe, data or command line; "
        "3 sampled, but MCMC diagnostics failed; 4 the saddle point did not converge; "
        "5 not reproduced; "
        "74 the disk is full or fails; 75 stopped by a signal with everything saved, start it "
        "again; 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    debug = {"action": "store_true", "help": "show the traceback of an error"}
    parser.add_argument("--debug", **debug)
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help='complete commands and files: eval "$(attention-posterior --print-completion bash)"',
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, dest="command"
    )
    for name, (summary, example, arguments) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"Example: {PROGRAM} {name} {example}",
        )
        # Without a default of its own this does not undo --debug in front of the command.
        command.add_argument("--debug", **debug, default=argparse.SUPPRESS)
        for flag, settings in arguments:
            command.add_argument(flag, **settings)
        if name == "sweep":
            where = command.add_mutually_exclusive_group()
            for flag, settings in WHERE_TO_SWEEP:
                where.add_argument(flag, **settings)
    return parser


def separate_settings(argv: Sequence[str]) -> list[str]:
    """Put --set in front of every setting of `--set A=1 B=2`, so that a recipe may follow them.

    The same for the other options that take several KEY=VALUE.
    """
    separated, option = [], ""
    for word in argv:
        follows = bool(option) and SETTING.match(word) is not None
        if follows and separated[-1] != option:
            separated.append(option)
        separated.append(word)
        if word in TAKE_SEVERAL:
            option = word
        elif not follows:
            option = ""
    return separated
