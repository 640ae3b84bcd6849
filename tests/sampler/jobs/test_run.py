"""Commands from end to end on a network of a few weights: what they leave, and doing it again."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe
from sampler.storage.files import read_json
from sampler.storage.fingerprint import read_stamp
from sampler.storage.manifest import read_manifest
from sampler.storage.result_files import read_draws
from tests.commands import FEW_DRAWS, SMALLEST, assert_same_bits, made_once, settings
from tests.commands import in_process as command

TRUSTED = f"""{SMALLEST}
[sampler]
space = "weights"
warmup = 400
target_acceptance = 0.97
max_tree_depth = 7
weight_draws = 50
"""
FIGURES = {"order_parameter", "theory_against_draws", "kernel_alignment"}
FAILED = ExitCode.DIAGNOSTICS_FAILED


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(TRUSTED)
    return path


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory) -> Path:
    """The directory of a run of everything, which its own draws ended."""

    def make(folder: Path) -> int:
        return command("run", recipe, "--out", folder / "run")

    folder, code = made_once(tmp_path_factory, "trusted_run", make)
    assert code == ExitCode.OK
    return folder / "run"


@pytest.fixture
def short(run_of_six_draws, tmp_path) -> Path:
    """A copy of a finished run whose draws say nothing."""
    return Path(shutil.copytree(run_of_six_draws, tmp_path / "short"))


def times_of(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.glob("*.nc")}


@pytest.mark.slow
def test_a_run_does_everything_and_ends_at_a_look_that_trusts_its_draws(finished, recipe):
    assert load_recipe(finished / "recipe.toml") == load_recipe(recipe)
    assert {path.stem for path in (finished / "figures").glob("*.png")} >= FIGURES
    assert read_manifest(finished).stages.keys() == {"solve", "sample"}
    tree = read_draws(finished)
    made, attributes = tree["posterior"].sizes["draw"], tree["sample_stats"].attrs
    looks = 400 * 1.3 ** np.arange(1, 15)
    assert np.abs(looks - made).min() < 2.0
    assert (attributes["draws_per_chain"], attributes["ended_by"]) == (made, "trusted")
    assert read_stamp(finished / "draws.nc")["made"] == made
    judged = read_json(finished / "comparison.json")["diagnostics"]
    assert judged["verdict"] == "pass"
    assert min(one["ess_bulk"] for one in judged["quantities"].values()) >= 400


@pytest.mark.slow
def test_stored_weights_reproduce_stored_overlaps(finished):
    """U_1 and U_2 of ten times fewer draws from their own weights, written out."""
    with xr.open_datatree(finished / "draws.nc", engine="h5netcdf") as tree:
        weights = tree["posterior_weights"].to_dataset()
        overlaps = tree["posterior"].to_dataset().sel(draw=weights["draw"])
        draws = {name: v.values for table in (weights, overlaps) for name, v in table.items()}
    assert draws["a"].shape[:2] == (4, 50)
    width = draws["a"].shape[-1]
    upper = np.einsum("sdci,sdhij->sdhcj", draws["a"], draws["V_2"])[:, :, 0] / np.sqrt(width)
    lower = np.einsum("sdci,sdhij->sdhj", upper, draws["V_1"]) / np.sqrt(width)
    expected = np.einsum("sdri,sdqi->sdrq", lower, lower) / width
    np.testing.assert_allclose(draws["order_parameter"], expected, rtol=1e-12, atol=1e-12)
    expected = np.einsum("sdri,sdqi->sdrq", upper, upper) / width
    np.testing.assert_allclose(draws["order_parameter_layer_2"], expected, rtol=1e-12)


@pytest.mark.usefixtures("undrawn")
def test_a_finished_run_is_left_alone_even_without_its_manifest(short, recipe_file):
    """As where it was killed before that was written: the recipe is written first."""
    before, code = times_of(short), read_manifest(short).outcome.code
    again = ["run", recipe_file, "--out", short, *settings(*FEW_DRAWS)]
    for words in (again, ["resume", short]):
        assert command(*words) == code
    (short / "manifest.json").unlink()
    assert command(*again) == code == FAILED
    assert times_of(short) == before


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_what_computes_nothing_leaves_who_computed_it(short, recipe_file, monkeypatch):
    """Whatever the environment is by now; stages again leave the same."""
    manifest, comparison = ((short / f"{n}.json").read_bytes() for n in ("manifest", "comparison"))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr("sampler.storage.run_directory.git_commit", lambda: "another")
    (short / "report.html").unlink()
    shutil.rmtree(short / "figures")
    again = ["run", recipe_file, "--out", short, *settings(*FEW_DRAWS)]
    for words in (again, ["resume", short], ["compare", short], ["report", short]):
        command(*words)
        assert (short / "manifest.json").read_bytes() == manifest
    assert (short / "comparison.json").read_bytes() == comparison
    assert (short / "report.html").is_file()
    assert {path.stem for path in (short / "figures").glob("*.png")} >= FIGURES


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_solve_and_sample_apart_join_in_one_directory(recipe_file, tmp_path):
    few = ["--out", tmp_path / "apart", *settings(*FEW_DRAWS)]
    assert command("solve", recipe_file, *few) == ExitCode.OK
    assert not (tmp_path / "apart" / "draws.nc").exists()
    assert command("sample", recipe_file, *few) == FAILED
    summary = read_json(tmp_path / "apart" / "comparison.json")["summary"]
    assert {"leading", "sampled"} <= set(summary["order_parameter"])
    assert read_manifest(tmp_path / "apart").stages.keys() == {"solve", "sample"}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_goes_on_to_samples_when_the_theory_does_not_converge(recipe_file, tmp_path):
    """Which has no predictions then but those of infinite width, which need no solution."""
    directory = tmp_path / "unconverged"
    unsolved = settings("theory.max_steps=1", "posterior.temperature=0.01", *FEW_DRAWS)
    assert command("run", recipe_file, "--out", directory, *unsolved) == ExitCode.NOT_CONVERGED
    accuracy = read_json(directory / "comparison.json")["summary"]["accuracy"]
    assert "leading" not in accuracy
    assert accuracy["sampled"]["value"] >= 0
    with xr.open_dataset(directory / "theory.nc") as theory:
        assert theory.attrs["converged"] == 0
        leading, infinite = (theory.sel(predictor=name) for name in ("leading", "infinite"))
        for name in ("order_parameter", "predictor_mean", "accuracy", "head_score"):
            assert np.isnan(leading[name]).all(), name
        assert np.isfinite(infinite["predictor_mean"]).all()


# --- limits of draws and of minutes, and reproduction

CUT = ("sampler.algorithm=hmc", "sampler.leapfrog_steps=2", "sampler.chains=2", "sampler.warmup=2")
NO_TIME = "sampler.max_minutes=1e-9"


def drawn_in(directory: Path) -> np.ndarray:
    return read_draws(directory)["posterior"]["order_parameter"].values


def ended_by(directory: Path) -> str:
    return read_draws(directory)["sample_stats"].attrs["ended_by"]


@pytest.fixture(scope="module")
def limited(recipe_file, tmp_path_factory) -> Path:
    """Draws that limits ended again and again, beside those of a run of as many."""
    folder = tmp_path_factory.mktemp("limited")

    def sample(directory: Path, *further: str) -> ExitCode:
        return command("sample", recipe_file, "--out", directory, *settings(*CUT, *further))

    run = folder / "run"
    # Minutes are looked at after every chunk: that of warm-up is over, and there are no draws.
    assert sample(run, "sampler.max_draws=8", NO_TIME) == FAILED
    assert not (run / "draws.nc").exists()
    for _ in range(2):  # a step of warm-up, and the first draw
        command("resume", run)
    assert ended_by(run) == "max_minutes"
    few = drawn_in(run)
    for limit in (8, 8, 20):
        stored, before = times_of(run), drawn_in(run).shape[1]
        assert sample(run, f"sampler.max_draws={limit}") == FAILED
        assert (times_of(run) != stored) == (before < limit)
        assert ended_by(run) == "max_draws"
    sample(folder / "whole", "sampler.draws=20")
    assert 0 < few.shape[1] < 20
    np.testing.assert_array_equal(few, drawn_in(run)[:, : few.shape[1]])
    return folder


@pytest.mark.slow
def test_draws_that_a_limit_ended_go_on_where_it_is_raised(limited):
    np.testing.assert_array_equal(drawn_in(limited / "run"), drawn_in(limited / "whole"))


@pytest.mark.slow
def test_a_reproduction_has_as_many_draws_and_is_compared_again_without_being_redone(limited):
    """The same bits first; then what is stored has changed."""
    run = limited / "run"
    assert command("reproduce", run) == ExitCode.OK
    redone = load_recipe(run / "reproduction" / "recipe.toml").sampler
    assert (redone.until, redone.draws) == ("draws", 20)
    assert_same_bits(run / "reproduction", run)
    before = times_of(run / "reproduction")
    with h5py.File(run / "draws.nc", "r+") as file:
        file["predictions/predictor"][0, 1, 2] += 1.0
    assert command("reproduce", run) == ExitCode.NOT_REPRODUCED
    assert times_of(run / "reproduction") == before
    (found,) = json.loads((run / "reproduction.json").read_text()).values()
    assert (found["array"], found["agrees"]) == ("predictor", False)


def test_an_accelerator_that_is_not_there_is_named(recipe_file, tmp_path, monkeypatch, capsys):
    def absent():
        raise RuntimeError("Unable to initialize backend")

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr("jax.devices", absent)
    assert command("run", recipe_file, "--out", tmp_path / "out") == ExitCode.BAD_INPUT
    assert "JAX_PLATFORMS = " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
