"""`max_minutes`: looked at after every chunk; what has no draws when it is over can be resumed."""

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.storage.result_files import read_draws
from tests.commands import TINY, settings
from tests.commands import in_process as command

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("undrawn")]

RECIPE = f"{TINY}algorithm = 'hmc'\nleapfrog_steps = 2\nchains = 2\n"
NO_TIME = settings("sampler.max_minutes=1e-9")


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


def test_in_warm_up_nothing_is_lost_and_there_are_no_draws(recipe, tmp_path, capsys):
    """Every start makes a chunk of warm-up more, which the next one finds."""
    run = tmp_path / "run"
    code = command("sample", recipe, "--out", run, *settings("sampler.warmup=2"), *NO_TIME)
    assert code == ExitCode.DIAGNOSTICS_FAILED
    assert "sampler.max_minutes = 1e-09: over at warmup 1 of 2" in capsys.readouterr().err
    assert not (run / "draws.nc").exists()
    codes = []
    while not (run / "draws.nc").exists() and len(codes) < 8:
        codes.append(command("resume", run))
    assert len(codes) <= 2  # one for each step of warm-up, and one for the first draw
    drawn = read_draws(run)
    assert drawn["sample_stats"].attrs["ended_by"] == "max_minutes"


def test_minutes_and_draws_that_are_raised_go_on_where_the_run_stands(recipe, tmp_path, capsys):
    """As the messages advise; against the first draws of the same chains, bit for bit."""
    run, whole, stopped = tmp_path / "run", tmp_path / "whole", tmp_path / "stopped"
    chains, few = settings("sampler.warmup=2"), settings("sampler.max_draws=8")
    asked = ("sample", recipe, "--out", run, *chains)
    assert command(*asked, *few, *NO_TIME) == ExitCode.DIAGNOSTICS_FAILED
    assert not (run / "draws.nc").exists()
    assert command(*asked, *few) == ExitCode.DIAGNOSTICS_FAILED
    assert read_draws(run)["sample_stats"].attrs["ended_by"] == "max_draws"
    stored = (run / "draws.nc").stat().st_mtime_ns
    assert command(*asked, *few) == ExitCode.DIAGNOSTICS_FAILED  # nothing is raised
    assert (run / "draws.nc").stat().st_mtime_ns == stored
    assert command(*asked, *settings("sampler.max_draws=20")) == ExitCode.DIAGNOSTICS_FAILED
    words = ("sample", recipe, "--out", whole, *chains, *settings("sampler.draws=20"))
    command(*words)
    expected = read_draws(whole)["posterior"]["order_parameter"].values
    assert expected.shape[1] == 20
    np.testing.assert_array_equal(read_draws(run)["posterior"]["order_parameter"], expected)
    # Draws that minutes ended, which were recorded as finished.
    asked = ("sample", recipe, "--out", stopped, *settings("sampler.warmup=0"))
    assert command(*asked, *few, *NO_TIME) == ExitCode.DIAGNOSTICS_FAILED
    assert read_draws(stopped)["sample_stats"].attrs["ended_by"] == "max_minutes"
    assert command(*asked, *few) == ExitCode.DIAGNOSTICS_FAILED
    assert read_draws(stopped)["posterior"].sizes["draw"] == 8


def test_among_draws_those_so_far_stand_with_their_verdict(recipe, tmp_path):
    """Against the first draws of the same chains without a limit, bit for bit."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    cut = settings("sampler.warmup=0")
    assert command("sample", recipe, "--out", run, *cut, *NO_TIME) == ExitCode.DIAGNOSTICS_FAILED
    received = read_draws(run)["posterior"]["order_parameter"].values
    command("sample", recipe, "--out", whole, *cut, *settings("sampler.draws=20"))
    expected = read_draws(whole)["posterior"]["order_parameter"].values
    assert 0 < received.shape[1] < 20
    np.testing.assert_array_equal(received, expected[:, : received.shape[1]])


@pytest.mark.parametrize("space", ["order_parameters", "weights"])
def test_of_fewer_draws_than_asked_for_all_weights_are_kept(space, recipe, tmp_path):
    """And there is no evidence, which a few draws say nothing of."""
    run, asked = tmp_path / "run", [f"sampler.space={space}", "sampler.weight_draws=9"]
    asked += ["sampler.evidence=true"] * (space == "order_parameters")
    cut = settings("sampler.warmup=0", *asked)
    assert command("sample", recipe, "--out", run, *cut, *NO_TIME) == ExitCode.DIAGNOSTICS_FAILED
    drawn = read_draws(run)
    made = drawn["posterior"].sizes["draw"]
    assert drawn["posterior_weights"]["draw"].values.tolist() == list(range(made))
    assert "log_evidence" not in drawn["sample_stats"].attrs
    # A recipe asks for four draws at least: fewer in all would never be read again.
    assert command("resume", run, "--more", 3 - made) == ExitCode.BAD_INPUT
    assert command("status", run) == ExitCode.OK
