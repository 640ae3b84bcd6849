"""Results of earlier schemas: they are read, gone on with and reproduced, or refused with why."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sampler.analysis.results import RunResults
from sampler.errors import ExitCode
from sampler.recipes.recipe import load_recipe
from sampler.storage.checkpoint import read_sealed, write_sealed
from sampler.storage.manifest import read_manifest
from sampler.storage.results import read_draws
from sampler.tasks.make import make_task
from tests import FIXTURES
from tests.commands import in_process as command

READ = (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)


@pytest.fixture
def stored(request, tmp_path) -> Path:
    """A copy of stored results of an earlier schema, begun on this processor.

    They know their data by a checksum of all bits, and processors round differently.
    """
    directory = Path(shutil.copytree(FIXTURES / request.param, tmp_path / "run"))
    manifest = json.loads((directory / "manifest.json").read_text())
    if "fingerprint" in manifest:
        checksum = make_task(load_recipe(directory / "recipe.toml")).checksum
        manifest["fingerprint"]["data"] = checksum
        (directory / "manifest.json").write_text(json.dumps(manifest))
        for path in directory.glob("checkpoint/state-*.bin"):
            sealed = read_sealed(path)
            sealed.header["fingerprint"]["data"] = checksum
            write_sealed(path, sealed.header, sealed.arrays)
    return directory


@pytest.mark.parametrize("stored", ["schema_1", "schema_2/finished"], indirect=True)
def test_results_are_read(stored):
    run = RunResults(stored)
    assert run.theory["order_parameter"].shape == (2, 2)
    assert run.order_parameter_draws.dims == ("chain", "draw", "path", "path_")
    assert run.compared("order_parameter").theory.shape == (2, 2)
    assert run.path_names == [str(name) for name in run.theory["path"].values]
    assert run.manifest.seconds.keys() == {"solve", "sample"}
    for name in ("status", "diagnose", "compare"):
        assert command(name, stored) in READ, name


@pytest.mark.parametrize("stored", ["schema_1"], indirect=True)
@pytest.mark.parametrize("name", ["resume", "reproduce", "prune"])
def test_runs_of_schema_1_are_not_gone_on_with(stored, name, capsys):
    """Their manifest has neither the command nor the settings of the run."""
    assert command(name, stored) == ExitCode.BAD_INPUT
    message = capsys.readouterr().err
    assert "holds no manifest.json that says which command began it; use `run`" in message
    assert len(message.splitlines()) == 1
    assert command("status", stored) == ExitCode.OK
    assert "of an earlier version: it can be read, not gone on with" in capsys.readouterr().out


@pytest.mark.parametrize("stored", ["schema_2/finished"], indirect=True)
def test_a_finished_run_of_schema_2_is_recognized(stored, capsys):
    before = {path: path.stat().st_mtime_ns for path in stored.glob("*.nc")}
    assert command("resume", stored) == ExitCode.DIAGNOSTICS_FAILED
    assert "was finished before, with exit code 3" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in stored.glob("*.nc")} == before
    assert read_manifest(stored).begun == "2026-11-22T15:57:46Z"


@pytest.mark.parametrize("stored", ["schema_2/finished"], indirect=True)
def test_settings_of_schema_2_are_held_against_the_recipe(stored, capsys):
    path = stored / "recipe.toml"
    path.write_text(path.read_text().replace("chains = 2", "chains = 3"))
    assert command("resume", stored) == ExitCode.BAD_INPUT
    assert "was begun with other sampler.chains (2 → 3)" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["schema_2/finished"], indirect=True)
def test_a_run_of_schema_2_is_reproduced(stored, capsys):
    assert command("reproduce", stored) == ExitCode.OK
    assert "NOT REPRODUCED" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["schema_2/unfinished"], indirect=True)
def test_an_unfinished_run_of_schema_2_goes_on_where_it_stood(stored, capsys):
    assert command("status", stored) == ExitCode.OK
    assert "interrupted after draw 149 of 600" in capsys.readouterr().out
    assert command("resume", stored) in READ
    assert "going on after 149 of 600 steps" in (stored / "run.log").read_text()
    assert read_draws(stored)["posterior"].sizes["draw"] == 600
    assert np.isfinite(read_draws(stored)["posterior"]["order_parameter"]).all()


@pytest.mark.parametrize("stored", ["schema_2/finished"], indirect=True)
@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("[1, 2]", "it is no JSON object"),
        ('{"schema_version": 2, "finished": 3}', "finished: Input should be a valid dictionary"),
    ],
)
@pytest.mark.parametrize("name", ["status", "resume", "report"])
def test_a_manifest_of_something_else_is_named(stored, content, wrong, name, capsys):
    (stored / "manifest.json").write_text(content)
    assert command(name, stored) == ExitCode.BAD_INPUT
    message = capsys.readouterr().err
    assert message.startswith("attention-posterior: manifest.json = ")
    assert f"cannot be read ({wrong}); make it anew with `run`" in message


@pytest.mark.parametrize("stored", ["schema_2/finished"], indirect=True)
@pytest.mark.parametrize(
    ("name", "commands", "maker"),
    [
        ("theory.nc", ("compare", "figures", "report"), "solve"),
        ("draws.nc", ("compare", "diagnose", "figures", "report"), "sample"),
        ("comparison.json", ("figures", "report"), "compare"),
    ],
)
def test_a_damaged_file_has_one_message_whoever_reads_it(stored, name, commands, maker, capsys):
    (stored / name).write_bytes(b"damaged")
    messages = set()
    for each in commands:
        assert command(each, stored) == ExitCode.BAD_INPUT, each
        messages.add(capsys.readouterr().err)
    assert len(messages) == 1
    message = messages.pop()
    assert message.startswith(f"attention-posterior: {name} = ")
    assert f"make it anew with `{maker}`" in message


@pytest.mark.parametrize("stored", ["schema_2/finished"], indirect=True)
def test_the_manifest_is_stored_as_it_was_read(stored):
    content = json.loads((stored / "manifest.json").read_text())
    assert read_manifest(stored).as_json() == content
    assert list(read_manifest(stored).as_json()) == list(content)
