"""Checkpoints that are whole and of other chains, as of another version of a library."""

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.jobs.plan import make_plan
from sampler.jobs.run import start_run
from sampler.settings.recipe import load_recipe
from sampler.storage.archives import read_archive, write_archive
from sampler.storage.checkpoints import SLOTS
from tests.commands import TINY_SAMPLED, AfterChunks, in_process

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("undrawn")]


def without_last(header: dict, arrays: dict) -> None:
    """One array of the state is not there."""
    del arrays[max(name for name in arrays if name.startswith("state/"))]


def wider(header: dict, arrays: dict) -> None:
    """One array of the state has another shape."""
    name = max(name for name in arrays if name.startswith("state/"))
    arrays[name] = np.concatenate([arrays[name]] * 2)


def other_kinds(header: dict, arrays: dict) -> None:
    """Draws of a kind that is not known."""
    arrays["gathered/unknown/x"] = np.zeros(3)


def without_phase(header: dict, arrays: dict) -> None:
    del header["done"]


@pytest.mark.parametrize("change", [without_last, wider, other_kinds, without_phase])
def test_a_checkpoint_of_other_chains_is_named_and_can_be_removed(change, tmp_path, capsys):
    file, run = tmp_path / "tiny.toml", tmp_path / "run"
    file.write_text(TINY_SAMPLED)
    with pytest.raises(Exception, match="saved"):
        start_run(make_plan("sample", load_recipe(file), run), AfterChunks(2))
    for path in (run / "checkpoint" / name for name in SLOTS):
        if path.is_file():
            stored = read_archive(path)
            header, arrays = dict(stored.header), dict(stored.arrays)
            change(header, arrays)
            write_archive(path, header, arrays)
    capsys.readouterr()
    assert in_process("resume", run) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"attention-posterior: DIR = '{run}'"), line
    for path in (run / "checkpoint").iterdir():  # as it says
        path.unlink()
    (run / "checkpoint").rmdir()
    assert in_process("resume", run) == ExitCode.DIAGNOSTICS_FAILED
    assert (run / "draws.nc").is_file()
