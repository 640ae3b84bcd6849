"""A mistake on the command line, and errors of the system: one line, and an exit code."""

import errno
import shlex
from pathlib import Path

import pytest

from sampler.cli import main
from sampler.command_line import make_parser, separate_settings
from sampler.errors import DiskError, ExitCode, InputError, RequeueError
from tests.commands import SMALLEST


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(SMALLEST)
    return path


def command(capsys, *arguments):
    """Exit code, and the one line on standard error."""
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert len(lines) <= 1, f"more than one line: {output.err}"
    return code, lines[0] if lines else ""


def test_settings_follow_their_option_up_to_what_is_none():
    words = shlex.split("sweep --set a.b=1 c=2 recipe.toml --over d=3 --over e=4 f=5 --out g=h")
    found = make_parser().parse_args(separate_settings(words))
    assert (found.overrides, found.over) == (["a.b=1", "c=2"], ["d=3", "e=4", "f=5"])
    assert (found.recipe, found.out) == (Path("recipe.toml"), Path("g=h"))


@pytest.mark.parametrize("words", ["", "walk", "check a b", "compare ."])
def test_a_bad_command_line_is_one_line(capsys, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, line = command(capsys, *words.split())
    assert code == ExitCode.BAD_INPUT
    assert line


def test_what_is_raised_decides_the_exit_code(capsys, recipe, monkeypatch):
    def raising(problem):
        def make_plan(*_, **__):
            raise problem

        return make_plan

    unread = OSError(errno.EIO, "Input/output error", "some/file")
    for problem, expected in (
        (unread, 74),
        (PermissionError(errno.EACCES, "Permission denied", "/data/a.npz"), 2),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), 2),
        (OSError("no temporary directory"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 74),
        (DiskError("draws.nc = 'run': No space left on device; free space"), 74),
        (RequeueError("SIGTERM received: draws 3 of 9 is saved"), 75),
        (KeyboardInterrupt(), 130),
        (RuntimeError("two\nlines"), 1),
        (InputError("field", "value", "remedy"), 2),
    ):
        monkeypatch.setattr("sampler.jobs.check.make_plan", raising(problem))
        code, line = command(capsys, "check", recipe)
        assert code == expected
        assert line
        again = f"to do it again: attention-posterior check {recipe}"
        assert line.endswith(again) == (expected in (75, 130)), line
        named = getattr(problem, "filename", None)
        assert named is None or named in line
        assert ("some/file" in line) == (problem is unread)
    assert main(["--debug", "check", str(recipe)]) == ExitCode.BAD_INPUT
    assert "Traceback" in capsys.readouterr().err
