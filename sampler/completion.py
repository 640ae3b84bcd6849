"""Completion of commands, options and files by the shell, on request."""

import argparse
import sys

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
