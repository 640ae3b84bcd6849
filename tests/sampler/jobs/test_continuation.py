"""Going on, extending, refusing and reproducing, in one process on a run of a few draws."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from sampler.errors import ExitCode, RequeueError
from sampler.jobs import draw
from sampler.jobs import run as jobs
from sampler.jobs.keeper import DrawKeeper
from sampler.jobs.plan import make_plan
from sampler.mcmc.collected_draws import POINTWISE, PREDICTORS, DrawCollector
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import load_recipe
from sampler.storage import result_files
from sampler.storage.directory import is_held, locked
from sampler.storage.fingerprint import determining, differences
from sampler.storage.result_files import read_draws, read_table
from tests import ROOT
from tests.commands import (
    FEW_DRAWS,
    AfterChunks,
    assert_same_bits,
    made_once,
    settings,
    without_drawing,
)
from tests.commands import in_process as command
from tests.small import within

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def copy(run_of_six_draws, tmp_path) -> Path:
    directory = tmp_path / "copy"
    shutil.copytree(run_of_six_draws, directory)
    return directory


@pytest.mark.heavy
def test_interrupted_chains_go_on_bit_for_bit(recipe_file, run_of_six_draws, tmp_path, monkeypatch):
    """And count the seconds before, here some more than there were."""
    go_on = DrawKeeper.go_on

    def later(keeper, *arguments, **named):
        found = go_on(keeper, *arguments, **named)
        keeper.seconds_before += 1e6
        return found

    recipe = load_recipe(recipe_file, FEW_DRAWS)
    directory = tmp_path / "run"
    with pytest.raises(RequeueError):
        jobs.start_run(make_plan("run", recipe, directory), AfterChunks(2))
    assert not (directory / "draws.nc").exists()
    monkeypatch.setattr(DrawKeeper, "go_on", later)
    code = command("resume", directory)
    assert code == command("resume", run_of_six_draws)
    assert read_draws(directory)["sample_stats"].attrs["seconds"] > 1e6
    assert_same_bits(directory, run_of_six_draws)


def status(directory, capsys) -> str:
    capsys.readouterr()
    assert command("status", directory) == ExitCode.OK
    return capsys.readouterr().out


def test_an_extension_that_was_killed_before_its_manifest_was_written_goes_on(copy, capsys):
    """The recipe asks for more draws already, the manifest says that the run is finished."""
    manifest = (copy / "manifest.json").read_bytes()
    recipe = jobs.with_more_draws(copy, load_recipe(copy / "recipe.toml"), 4)
    with pytest.raises(RequeueError):
        jobs.start_run(make_plan("run", recipe, copy), AfterChunks(1), extended=True)
    (copy / "manifest.json").write_bytes(manifest)
    assert "--more" in refusal(capsys, "resume", copy, "--more", 3)
    command("resume", copy)
    assert read_draws(copy)["posterior"].sizes["draw"] == 10


def test_finished_run_is_left_alone(copy, recipe_file):
    before = {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")}
    code = json.loads((copy / "manifest.json").read_text())["outcome"]["code"]
    for words in (["run", recipe_file, "--out", copy, *settings(*FEW_DRAWS)], ["resume", copy]):
        assert command(*words) == code
    assert {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")} == before


@pytest.mark.heavy
def test_draws_that_are_lost_come_back_from_their_checkpoint(copy, run_of_six_draws):
    (copy / "draws.nc").unlink()
    assert command("resume", copy) == ExitCode.DIAGNOSTICS_FAILED
    assert_same_bits(copy, run_of_six_draws)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "words",
    [["run"], ["resume"], ["reproduce"], ["compare"], ["diagnose"], ["report"], ["prune"]],
    ids=" ".join,
)
def test_what_computes_nothing_here_leaves_who_computed_it(words, copy, recipe_file, monkeypatch):
    """Whatever the environment is now: prune is refused, a reproduction has its own directory."""
    before = (copy / "manifest.json").read_bytes()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr("sampler.storage.run_directory.git_commit", lambda: "another")
    where = [copy] if words != ["run"] else [recipe_file, "--out", copy, *settings(*FEW_DRAWS)]
    command(*words, *where)
    assert (copy / "manifest.json").read_bytes() == before


def files_of_checkpoint(directory) -> set[str]:
    return {path.name for path in (directory / "checkpoint").iterdir()}


@pytest.mark.heavy
def test_more_draws_are_those_of_a_longer_run(recipe_file, tmp_path, monkeypatch):
    """Of predictors that are thinned."""
    limits = within(0, names=(*PREDICTORS, *POINTWISE))
    monkeypatch.setattr(draw, "DrawCollector", partial(DrawCollector, limits))
    extended, longer = tmp_path / "extended", tmp_path / "longer"
    command("sample", recipe_file, "--out", extended, *settings(*FEW_DRAWS))
    assert all(read_draws(extended)[name].attrs["thinned"] > 1 for name in POINTWISE)
    assert len(files_of_checkpoint(extended)) == 1
    command("resume", extended, "--more", 5)
    overrides = [*FEW_DRAWS, "sampler.draws=11"]
    command("sample", recipe_file, "--out", longer, *settings(*overrides))
    assert read_draws(extended)["posterior"].sizes["draw"] == 11
    assert_same_bits(extended, longer)
    assert load_recipe(extended / "recipe.toml") == load_recipe(recipe_file, overrides)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def longer(recipe_file, tmp_path_factory) -> Path:
    """A run of eleven draws that nothing disturbed."""

    def make(folder: Path) -> int:
        with without_drawing():
            words = settings(*FEW_DRAWS, "sampler.draws=11")
            return command("run", recipe_file, "--out", folder / "run", *words)

    return made_once(tmp_path_factory, "run_of_eleven_draws", make)[0] / "run"


@pytest.mark.heavy
@pytest.mark.parametrize("moment", ["second chunk", "with the draws"])
def test_an_extension_killed_at_any_moment_goes_on_bit_for_bit(
    moment, copy, longer, tmp_path, monkeypatch
):
    save, write = DrawKeeper.save, result_files.write_result

    def save_once(keeper):
        save(keeper)
        raise Killed

    def write_first(directory, file, tree):
        write(directory, file, tree)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(*{
            "second chunk": (DrawKeeper, "save", save_once),
            "with the draws": (result_files, "write_result", write_first),
        }[moment])  # fmt: skip
        with pytest.raises(Killed):
            command("resume", copy, "--more", 5)
    # Either the old file or the new one is there, complete.
    assert read_draws(copy)["posterior"].sizes["draw"] in (6, 11)
    command("resume", copy)
    assert_same_bits(copy, longer)
    assert len(files_of_checkpoint(copy)) == 1


def refusal(capsys, *words) -> str:
    capsys.readouterr()
    assert command(*words) == ExitCode.BAD_INPUT
    message = capsys.readouterr().err.splitlines()[-1]
    print(message)
    return message


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("sampler.chains", "chains = 4", "chains = 3"),
        ("task.seed", "seed = 0\nhead_seed", "seed = 1\nhead_seed"),
    ],
)
def test_another_recipe_is_refused_by_name(key, old, new, copy, capsys):
    text = (copy / "recipe.toml").read_text()
    assert text.count(old) == 1
    (copy / "recipe.toml").write_text(text.replace(old, new))
    message = refusal(capsys, "resume", copy)
    assert key in message


def test_other_data_are_refused(tmp_path, rng, capsys):
    """The recipe is the same, the file it reads is not."""
    arrays = {
        f"{name}_{split}": values
        for split, count in (("train", 6), ("test", 3))
        for name, values in (
            ("inputs", rng.standard_normal((count, 4, 5))),
            ("labels", rng.choice([-1.0, 1.0], count)),
        )
    }
    for split, count in (("train", 6), ("test", 3)):
        arrays[f"attention_{split}_1"] = np.full((count, 2, 4, 4), 0.25)
    np.savez(tmp_path / "data.npz", **arrays)
    recipe = tmp_path / "arrays.toml"
    recipe.write_text(
        'name = "mine"\n[task]\nkind = "arrays"\npath = "data.npz"\n[network]\nwidths = 3\n'
    )
    assert command("solve", recipe, "--out", tmp_path / "run") == ExitCode.OK
    arrays["inputs_test"][0, 0, 0] += 1e-9
    np.savez(tmp_path / "data.npz", **arrays)
    refusal(capsys, "resume", tmp_path / "run")


def test_what_cannot_be_extended(copy, recipe_file, capsys, monkeypatch):
    refusal(capsys, "resume", copy, "--more", "0")
    words = settings(*FEW_DRAWS, "sampler.draws=9")
    assert "--more" in refusal(capsys, "run", recipe_file, "--out", copy, *words)
    with monkeypatch.context() as patch:
        patch.setattr("sampler.storage.fingerprint.__version__", "7.0.0")
        refusal(capsys, "resume", copy)
    shutil.rmtree(copy / "checkpoint")
    refusal(capsys, "resume", copy, "--more", "3")


def test_running_directory_is_refused_and_named(copy, capsys):
    other = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib; from sampler.storage.directory import locked\n"
            "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); input()",
            copy,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with other:
        assert other.stdout.readline() == "held\n"
        assert "is in use" in refusal(capsys, "resume", copy)
        assert "running" in status(copy, capsys)
        other.kill()
    # what a killed process leaves behind is taken over
    assert not is_held(copy)
    with locked(copy):
        pass


@pytest.mark.heavy
def test_a_reproduction_has_the_same_bits_and_results_that_differ_are_named(copy, capsys):
    """The reproduction is there the second time: it is compared again, not computed again."""
    assert command("reproduce", copy) == ExitCode.OK
    assert_same_bits(copy / "reproduction", copy)
    assert differing(copy) == {"theory": None, "draws": None}
    with h5py.File(copy / "draws.nc", "r+") as file:
        file["predictions/predictor"][0, 1, 2] += 1.0
    assert command("reproduce", copy) == ExitCode.NOT_REPRODUCED
    assert differing(copy) == {"theory": None, "draws": "predictor"}
    table = read_table(copy, "theory.nc")
    table["predictor_mean"] = table["predictor_mean"] * (1 + 1e-4)
    result_files.write_result(copy, "theory.nc", table)
    capsys.readouterr()
    assert command("reproduce", copy) == ExitCode.NOT_REPRODUCED
    assert differing(copy) == {"theory": "predictor_mean", "draws": "predictor"}
    printed = capsys.readouterr().out.splitlines()[-2:]
    for line, (name, array) in zip(printed, differing(copy).items(), strict=True):
        assert name in line
        assert array in line


def differing(directory: Path) -> dict[str, str | None]:
    """The arrays that the reproduction of a run says to be farthest from those stored."""
    found = json.loads((directory / "reproduction.json").read_text())
    assert all(one["agrees"] is (one["array"] is None) for one in found.values())
    return {name: one["array"] for name, one in found.items()}


def test_a_reproduction_needs_all_that_it_is_compared_with(copy, capsys):
    for name in ("theory.nc", "draws.nc"):
        (copy / name).unlink()
        assert name in refusal(capsys, "reproduce", copy)
    assert not (copy / "reproduction").exists()


def test_results_of_another_schema_are_refused(copy, capsys):
    version = 99
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"schema_version": version}))
    for name in ("resume", "status", "reproduce"):
        assert f"schema_version {version}" in refusal(capsys, name, copy)
    table = read_table(copy, "theory.nc")
    table.attrs["schema_version"] = version
    table.to_netcdf(copy / "theory.nc", engine="h5netcdf")
    assert f"schema_version {version}" in refusal(capsys, "compare", copy)


def test_directory_killed_before_its_manifest_was_written(copy, recipe_file, capsys):
    """The recipe is written first: the command that was given goes on, whatever is stored."""
    before = {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")}
    (copy / "manifest.json").unlink()
    refusal(capsys, "resume", copy)
    code = command("run", recipe_file, "--out", copy, *settings(*FEW_DRAWS))
    assert code == ExitCode.DIAGNOSTICS_FAILED
    assert {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")} == before


def test_what_differs_is_named(copy):
    """Settings by their keys, then and now."""
    recipe = load_recipe(copy / "recipe.toml")
    now = determining(settings_that_fix_draws(recipe), "data")
    assert differences(now, now) == []
    before = {**now, "settings": {**now["settings"], "network.widths": 7}}
    assert differences(before, now) == ["network.widths (7 → 3)"]
    assert differences({**now, "data": "other"}, now) == ["the data"]
