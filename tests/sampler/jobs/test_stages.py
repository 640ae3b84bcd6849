"""Stages: cost, verdicts, progress, comparisons of several runs, and what comes after the draws."""

import errno
import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import h5py
import matplotlib
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.results import open_run
from sampler.errors import ExitCode, InputError
from sampler.jobs import progress as progress_module
from sampler.jobs.progress import Progress, SamplingProgress
from sampler.jobs.stages import cost, diagnose_stage
from sampler.jobs.stored import compare_runs
from sampler.mcmc.algorithm import Chunk
from sampler.presentation.figures.catalogue import FIGURES, draw_figure
from sampler.presentation.style import FigureEntry, figure_style, save_figure
from sampler.storage.manifest import read_manifest
from tests import FIXTURES
from tests.commands import in_process
from tests.problems import HMC, collect, healthy_statistics, random_observables, small_problem
from tests.told.failures import stored

FAILED = ExitCode.DIAGNOSTICS_FAILED


@pytest.mark.parametrize("seconds", [8.0, 0.0])
def test_effective_draws_are_the_fewest_of_bulk_and_tail(seconds, rng):
    """Where the clock stood still no speed is known."""
    times = {"seconds": seconds, "seconds_warmup": 2.0, "seconds_draws": 3.0, "gradients": 70}
    problem, statistics = small_problem(rng), healthy_statistics(rng, (2, 400))
    collected = collect(random_observables(problem, rng, 400), statistics)
    settings = {"algorithm": "nuts", "target_acceptance": 0.8, "max_tree_depth": 10}
    tree = draws_tree(problem, collected, settings | times)
    diagnostics = diagnose_stage(tree)
    judged, found = diagnostics.quantities["order_parameter"], cost(tree, diagnostics)
    assert judged.ess_tail < judged.ess_bulk
    assert found["effective_draws"] == judged.ess_tail
    speed = judged.ess_tail / seconds if seconds else np.nan
    np.testing.assert_equal(found["effective_draws_per_second"], speed)
    assert {name: found[name] for name in times} == times


@pytest.mark.parametrize("judged", [True, False])
def test_stored_draws_of_a_large_predictor_are_judged_unless_others_tell_them(judged, rng):
    """Every second draw is stored, and one chain stands apart."""
    tree = stored().draws
    assert diagnose_stage(tree).passed
    some = tree["predictions"].to_dataset().isel(draw=slice(None, None, 2))
    some = some[["predictor"]].map(lambda drawn: rng.standard_normal(drawn.shape) + 0.0 * drawn)
    some["predictor"][0, :, 1] += 5.0
    tree["predictions"] = xr.DataTree(some.assign_attrs(thinned=2, judged=int(judged)))
    received = diagnose_stage(tree)
    assert received.passed is not judged
    assert any("predictor" in reason for reason in received.reasons) is judged


@pytest.mark.slow
def test_the_verdict_names_a_search_that_failed():
    """Of labels of a million."""
    rng = np.random.default_rng(1)
    attended, labels = rng.standard_normal((60, 4, 3)), 1e6 * rng.standard_normal(60)
    recipe = sampler.Recipe(
        task=sampler.Arrays(
            attended=attended, labels=labels, heads=[2, 2],
            attended_test=attended[:5], labels_test=labels[:5],
        ),
        network={"widths": 2},
        posterior={"temperature": 1e-6},
        sampler={
            "space": "order_parameters", "algorithm": "split_hmc", "draws": 10, "warmup": 10,
        },
    )  # fmt: skip
    drawn = sampler.sample(recipe, progress=False)
    remarks = diagnose_stage(drawn).remarks
    assert any("mode search" in remark for remark in remarks)
    assert not drawn["sample_stats"].attrs["mode_converged"]


@pytest.mark.parametrize(
    ("phase", "done", "left"), [("warmup", 20, 2.0 * (80 + 600)), ("draws", 40, 2.0 * 60)]
)
def test_the_time_left_is_that_until_the_last_draw(phase, done, left, monkeypatch):
    """Ten steps in twenty seconds, of 100; 200 draws of three steps each follow the warm-up."""
    clock, lines = SimpleNamespace(now=100.0), []
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(progress_module, "print_stderr", lines.append)
    monkeypatch.setattr(progress_module, "in_terminal", lambda: False)
    names = ("lp", "step_size", "acceptance_rate", "diverging", "n_steps")
    statistics = {name: np.ones((2, 10)) for name in names}
    with Progress() as progress:
        listener = SamplingProgress(progress, HMC, steps=600)
        listener(Chunk(phase, done - 10, 100, statistics, seconds=500.0, compiled=True))
        clock.now += 20.0
        listener(Chunk(phase, done, 100, statistics, seconds=20.0))
    assert "500 s" in lines[0]
    assert lines[1].startswith(f"{phase} {done}/100, {left:.0f} s left, ")


# --- `compare A B …`


@pytest.mark.slow
def test_models_of_several_runs_are_compared_unless_their_labels_differ(tmp_path, undrawn):
    two = [shutil.copytree(FIXTURES / "finished", tmp_path / name) for name in ("one", "other")]
    in_process("compare", *two)
    assert (two[0] / "figures" / "models.png").is_file()
    table = sampler.compare_models({"one": two[0], "other": two[1]}).to_dataframe()
    # Theory, and infinite width at both of its temperatures, are those of both runs: once each.
    assert len(table) == 2 + 3
    expected = sampler.open_results(two[0]).draws["leave_one_out"]["elpd"].values.sum(dtype=float)
    name = "one, exact posterior (diagnostics failed)"
    assert table.loc[name, "elpd"] == pytest.approx(expected, rel=1e-6)
    assert np.isclose(table["weight"].sum(), 1.0, atol=1e-6)
    with h5py.File(two[1] / "draws.nc", "r+") as file:
        file["leave_one_out"].attrs["labels"] = "of others"
    compare_runs(two)
    with pytest.raises(InputError):
        sampler.compare_models(two)


def test_of_several_runs_the_exit_code_is_that_of_the_worst(tmp_path):
    failing = Path(shutil.copytree(FIXTURES / "finished", tmp_path / "failing"))
    passing = stored().write(tmp_path / "passing")
    shutil.copy(failing / "recipe.toml", passing)
    assert in_process("diagnose", passing) == ExitCode.OK
    for pair in ((passing, failing), (failing, passing)):
        assert in_process("diagnose", *pair) == FAILED


# --- nothing that comes after the draws costs a run its exit code, or another part of its results


@pytest.fixture
def uncompared(tmp_path) -> Path:
    """A run with its draws that has yet to be compared, and to end."""
    directory = Path(shutil.copytree(FIXTURES / "finished", tmp_path / "run"))
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**manifest, "outcome": None}))
    (directory / "comparison.nc").unlink()
    return directory


def test_of_what_was_interrupted_the_command_that_goes_on_is_told(uncompared, monkeypatch, capsys):
    """`resume` of the directory, as figures were asked for; any other command as it was given."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for module in ("plan", "run"):
        monkeypatch.setattr(f"sampler.jobs.{module}.make_plan", interrupted)
    directory = str(uncompared)
    resume = ["resume", directory]
    run = ["run", f"{directory}/recipe.toml", "--out", directory]
    without = ["--no-figures"]
    for words, again in (
        (resume, resume), (run, resume), (run + without, resume + without),
        (["reproduce", directory], ["reproduce", directory]),
    ):  # fmt: skip
        assert in_process(*words) == ExitCode.INTERRUPTED
        told = capsys.readouterr().err.splitlines()[-1].partition("to go on: ")[2]
        assert shlex.split(told) == ["attention-posterior", *again]


# Of a style for slides, of a journal, and of nobody.
ODD = {
    "text.usetex": True, "axes.facecolor": "black", "savefig.facecolor": "black",
    "lines.linewidth": 20.0, "image.origin": "lower", "axes.formatter.use_locale": True,
    "figure.dpi": 300.0,
}  # fmt: skip


def test_a_figure_is_the_same_whatever_the_user_has_set(uncompared, tmp_path):
    content = []
    for settings in ({}, ODD):
        with matplotlib.rc_context(settings):
            figure = draw_figure(open_run(uncompared), "kernel_alignment")
            shown = figure._repr_png_()
            with figure_style():
                (path,) = save_figure(figure, tmp_path / "figures", "kernel_alignment")
        content.append((shown, path.read_bytes()))
    assert content[0] == content[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("sampler.jobs.pages.write_report", OSError(errno.ENOSPC, "No space left on device")),
        ("sampler.jobs.stages.comparison_text", RuntimeError("no LaTeX")),
    ],
)
def test_what_fails_after_the_draws_fails_alone(where, problem, uncompared, monkeypatch):
    def fail(*_, **__):
        raise problem

    monkeypatch.setattr(where, fail)
    assert in_process("resume", uncompared, "--no-figures") == FAILED
    assert read_manifest(uncompared).outcome.code == int(FAILED)
    assert "Traceback" in (uncompared / "run.log").read_text()
    assert (uncompared / "report.html").is_file() == ("report" not in where)


def test_a_figure_fails_alone_and_is_an_error_where_figures_are_asked_for(
    uncompared, monkeypatch, undrawn
):
    def fail(_results):
        raise ZeroDivisionError("nothing to divide by")

    entry = FigureEntry(fail, "a caption", "a text")
    kept = {"failing": entry, "kernel_alignment": FIGURES["kernel_alignment"]}
    monkeypatch.setattr(FIGURES, "_entries", kept)
    page, drawn = uncompared / "report.html", uncompared / "figures"
    assert in_process("resume", uncompared) == FAILED
    for command in ("figures", "report"):
        assert [path.name for path in drawn.iterdir()] == ["kernel_alignment.png"]
        assert page.read_text().count("<img") == 1
        shutil.rmtree(drawn)
        assert in_process(command, uncompared) == ExitCode.INTERNAL_ERROR
    assert (drawn / "kernel_alignment.png").is_file()
