"""Commands from end to end, on a network of a few weights: files, contents, exit codes."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe
from tests.commands import FEW_DRAWS, SMALLEST, made_once, settings
from tests.commands import in_process as command

TINY = f"""{SMALLEST}
[theory]
subnetworks = [[[0], [0]]]
[sampler]
space = "weights"
chains = 4
warmup = 400
draws = 500
target_acceptance = 0.97
max_tree_depth = 7
weight_draws = 50
"""
# Of a run whose draws say nothing.
FEW = (*FEW_DRAWS, "sampler.weight_draws=0")
FIGURES = {"order_parameter", "theory_against_draws", "kernel_alignment"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    """A run of everything; its exit code and directory."""

    def make(folder: Path) -> int:
        return command("run", recipe, "--out", folder / "run")

    folder, code = made_once(tmp_path_factory, "trusted_run", make)
    return code, folder / "run"


def strict_json(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_run_does_everything_and_trusts_its_samples(finished, recipe):
    code, directory = finished
    comparison = strict_json(directory / "comparison.json")
    assert code == ExitCode.OK, comparison["diagnostics"]["reasons"]
    assert comparison["diagnostics"]["verdict"] == "pass"
    assert load_recipe(directory / "recipe.toml") == load_recipe(recipe)
    figures = {path.stem for path in (directory / "figures").glob("*.png")}
    assert figures >= FIGURES
    manifest = strict_json(directory / "manifest.json")
    assert manifest["recipe_hash"] == load_recipe(recipe).hash8
    assert set(manifest["stages"]) == {"solve", "sample"}


def test_the_table_of_the_theory_has_coordinates_of_its_axes(finished):
    _, directory = finished
    with xr.open_dataset(directory / "theory.nc") as theory:
        assert theory["order_parameter"].dims == ("predictor", "path", "path_")
        assert list(theory["predictor"].values) == ["leading", "next", "infinite", "infinite_tuned"]
        assert list(theory["path"].values) == ["good", "uniform·uniform"]
        # the second layer has one head, the first two
        scores = theory["head_score"].sel(layer=2, predictor="leading")
        assert np.isnan(scores).values.tolist() == [False, True]
        assert set(theory.sizes) <= set(theory.coords)


def test_comparison_has_the_sections_of_the_contract(finished):
    _, directory = finished
    comparison = strict_json(directory / "comparison.json")
    assert set(comparison) == {"summary", "headline", "diagnostics", "cost"}
    assert (directory / "comparison.json").stat().st_size < 30_000
    with xr.open_datatree(directory / "comparison.nc", engine="h5netcdf") as tree:
        theory = xr.load_dataset(directory / "theory.nc", engine="h5netcdf")
        for name in ("order_parameter", "predictor_mean", "predictor_variance"):
            table = tree["elements"][name]
            for predictor in table["predictor"].values:
                np.testing.assert_array_equal(
                    table["predicted"].sel(predictor=predictor),
                    theory[name].sel(predictor=predictor),
                )
            cell = comparison["summary"][name]["leading"]
            assert cell["low"] <= cell["difference"] <= cell["high"]
    numbers = comparison["summary"]["accuracy"]
    assert set(numbers) == {"leading", "next", "infinite", "infinite_tuned", "sampled"}
    cost = comparison["cost"]
    assert cost["gradients"] > 4 * 900  # more than one leapfrog step a draw
    expected = cost["effective_draws"] / cost["seconds"]
    assert cost["effective_draws_per_second"] == expected > 0


def test_stored_weights_reproduce_stored_overlaps(finished):
    """U_1 and U_2 of ten times fewer draws from their own weights, written out."""
    _, directory = finished
    with xr.open_datatree(directory / "draws.nc", engine="h5netcdf") as tree:
        weights = tree["posterior_weights"].to_dataset()
        # Every eighth draw is kept of 500, so that they are no fewer than 50 and no more than 100.
        assert set(np.diff(weights["draw"])) <= {8, 16}
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


@pytest.mark.slow
def test_stages_again_from_stored_results(finished):
    _, directory = finished
    comparison = (directory / "comparison.json").read_bytes()
    for path in (directory / "figures").iterdir():
        path.unlink()
    assert command("compare", directory) == ExitCode.OK
    assert (directory / "comparison.json").read_bytes() == comparison
    (directory / "report.html").unlink()
    assert command("report", directory) == ExitCode.OK
    assert (directory / "report.html").is_file()
    assert {path.stem for path in (directory / "figures").glob("*.png")} >= FIGURES


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_solve_and_sample_apart_join_in_one_directory(recipe, tmp_path):
    directory = tmp_path / "apart"
    few = settings(*FEW)
    assert command("solve", recipe, "--out", directory, *few) == ExitCode.OK
    assert not (directory / "draws.nc").exists()
    assert command("sample", recipe, "--out", directory, *few) == ExitCode.DIAGNOSTICS_FAILED
    comparison = strict_json(directory / "comparison.json")
    assert comparison["diagnostics"]["verdict"] == "fail"
    assert comparison["diagnostics"]["reasons"]
    assert {"leading", "sampled"} <= set(comparison["summary"]["order_parameter"])
    assert set(strict_json(directory / "manifest.json")["stages"]) == {"solve", "sample"}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_run_goes_on_to_samples_when_the_theory_does_not_converge(recipe, tmp_path):
    """Which has no predictions then but those of infinite width, which need no solution."""
    directory = tmp_path / "unconverged"
    override = settings("theory.max_steps=1", "theory.starts=1", "posterior.temperature=0.01", *FEW)
    assert command("run", recipe, "--out", directory, *override) == ExitCode.NOT_CONVERGED
    comparison = strict_json(directory / "comparison.json")
    accuracy = comparison["summary"]["accuracy"]
    assert "leading" not in accuracy
    assert accuracy["sampled"]["value"] >= 0
    assert comparison["summary"]["order_parameter"]["sampled"]["value"] > 0
    with xr.open_dataset(directory / "theory.nc") as theory:
        assert theory.attrs["converged"] == 0
        leading, infinite = (theory.sel(predictor=name) for name in ("leading", "infinite"))
        for name in ("order_parameter", "predictor_mean", "accuracy", "head_score"):
            assert np.isnan(leading[name]).all(), name
        assert np.isfinite(infinite["predictor_mean"]).all()
