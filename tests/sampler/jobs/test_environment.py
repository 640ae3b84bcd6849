"""Nothing that comes after the draws costs a run its exit code, or another part of its results."""

import errno
import json
import shutil
from pathlib import Path

import matplotlib
import pytest

from sampler.analysis.results import open_run
from sampler.errors import ExitCode
from sampler.presentation.figures.catalogue import FIGURES, draw_figure
from sampler.presentation.style import FigureEntry, figure_style, save_figure
from sampler.presentation.terminal import log_errors
from sampler.storage.manifest import read_manifest
from tests import FIXTURES
from tests.commands import in_process

# Of a style for slides, of a journal, and of nobody.
ODD = {
    "text.usetex": True,
    "axes.facecolor": "black",
    "figure.facecolor": "black",
    "savefig.facecolor": "black",
    "text.color": "white",
    "lines.linewidth": 20.0,
    "image.origin": "lower",
    "axes.formatter.use_locale": True,
    "figure.dpi": 300.0,
}


@pytest.fixture
def stored(tmp_path) -> Path:
    """A run with its draws that has yet to be compared, and to end."""
    directory = Path(shutil.copytree(FIXTURES / "finished", tmp_path / "run"))
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**manifest, "outcome": None}))
    (directory / "comparison.nc").unlink()
    return directory


# --- styles


def test_a_figure_is_the_same_whatever_the_user_has_set(stored, tmp_path):
    content = []
    for settings in ({}, ODD):
        with matplotlib.rc_context(settings):
            figure = draw_figure(open_run(stored), "kernel_alignment")
            shown = figure._repr_png_()
            with figure_style():
                (path,) = save_figure(figure, tmp_path / "figures", "kernel_alignment")
        content.append((shown, path.read_bytes()))
    assert content[0] == content[1]


# --- figures, report and printing fail by themselves

FULL = OSError(errno.ENOSPC, "No space left on device")
AFTER_THE_DRAWS = [
    ("sampler.jobs.pages.write_report", "the report", FULL),
    ("sampler.jobs.stages.comparison_text", "the summary", RuntimeError("no LaTeX")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "what", "problem"), AFTER_THE_DRAWS)
def test_nothing_after_the_draws_costs_a_run_its_exit_code(
    where, what, problem, stored, monkeypatch
):
    def fail(*_, **__):
        raise problem

    monkeypatch.setattr(where, fail)
    assert in_process("resume", stored, "--no-figures") == ExitCode.DIAGNOSTICS_FAILED
    assert read_manifest(stored).outcome.code == int(ExitCode.DIAGNOSTICS_FAILED)
    assert "Traceback" in (stored / "run.log").read_text()
    assert (stored / "report.html").is_file() == (what != "the report")


@pytest.fixture
def failing(monkeypatch):
    """A figure that cannot be drawn, among others that can."""

    def fail(_results):
        raise ZeroDivisionError("nothing to divide by")

    entry = FigureEntry(fail, "a caption", "a text")
    kept = {"failing": entry, "kernel_alignment": FIGURES["kernel_alignment"]}
    monkeypatch.setattr(FIGURES, "_entries", kept)


@pytest.mark.usefixtures("undrawn", "failing")
def test_a_figure_fails_alone(stored):
    assert in_process("resume", stored) == ExitCode.DIAGNOSTICS_FAILED
    assert [path.name for path in (stored / "figures").iterdir()] == ["kernel_alignment.png"]
    assert (stored / "report.html").read_text().count("<img") == 1


@pytest.mark.usefixtures("undrawn", "failing")
@pytest.mark.parametrize("command", ["figures", "report"])
def test_where_figures_are_all_that_is_asked_for_an_error_is_one(command, stored):
    """When the others are drawn, and the page is written."""
    shutil.copy(FIXTURES / "finished" / "manifest.json", stored)
    assert in_process(command, stored) == ExitCode.INTERNAL_ERROR
    assert (stored / "figures" / "kernel_alignment.png").is_file()
    assert (stored / "report.html").is_file() == (command == "report")


def test_only_errors_are_held_back():
    with pytest.raises(KeyboardInterrupt), log_errors("this"):
        raise KeyboardInterrupt


# --- accelerators


def test_an_accelerator_that_is_not_there_is_named(recipe_file, tmp_path, monkeypatch, capsys):
    def absent():
        raise RuntimeError("Unable to initialize backend")

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr("jax.devices", absent)
    out = tmp_path / "out"
    assert in_process("run", recipe_file, "--out", out) == ExitCode.BAD_INPUT
    assert "JAX_PLATFORMS = " in capsys.readouterr().err
    assert not out.exists()
