"""Networks outside the theory: what is refused, what a run of one leaves, and its posterior."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler import compare, open_results
from sampler.data.make import build_task
from sampler.errors import ExitCode
from sampler.jobs.draw import draw_posterior
from sampler.jobs.sizes import Sizes
from sampler.problem import build_problem
from tests.assertions import assert_equal_in_float32
from tests.commands import FEW_DRAWS, SMALLEST, made_once, settings, without_drawing
from tests.commands import in_process as command
from tests.learned import learned_recipe
from tests.problems import NetworkData
from tests.token_networks import Learned, loops

pytestmark = pytest.mark.slow

RELU = f"""{SMALLEST}
[sampler]
"""
OUTSIDE = ("network.values=relu", "task.examples_validation=4")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "relu.toml"
    path.write_text(RELU)
    return path


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    """A run of a few steps; its directory."""

    def make(folder: Path) -> int:
        with without_drawing():
            words = settings(*OUTSIDE, *FEW_DRAWS)
            return command("run", recipe, "--out", folder / "run", *words)

    folder, code = made_once(tmp_path_factory, "run_outside_the_theory", make)
    assert code == ExitCode.DIAGNOSTICS_FAILED  # six draws prove nothing
    return folder / "run"


SHAPES = {
    "predictions/predictor": (4, 6, 10), "log_likelihood/y": (4, 6, 6),
    "posterior_predictive/y": (4, 6, 6), "prior_predictive/y": (1, 1000, 6),
    "validation/predictor_mean": (4, 6, 4, 1), "observed_data/y": (6,),
}  # fmt: skip


def test_a_normalised_hypernetwork_may_be_narrow_inside(recipe):
    """Only what is normalised needs two units: the inner layer of a hypernetwork is not."""
    overrides = ("network.norm=after", "network.hypernetwork=true")
    widths = settings(*overrides, "network.widths=[1, 1, 2, 1, 2]")
    assert command("check", recipe, *widths) == ExitCode.OK


def test_a_run_samples_and_leaves_what_there_is(finished):
    figures = {path.stem for path in (finished / "figures").glob("*.png")}
    # No theory of this network predicts anything: the samples stand beside infinite width alone.
    assert {"predictor_sampled", "theory_against_draws"} <= figures
    assert not figures & {"order_parameter", "kernel_alignment"}
    with xr.open_datatree(finished / "draws.nc", engine="h5netcdf") as tree:
        names = {"predictor", "predictor_mean", "predictor_variance"}
        assert set(tree["predictions"].data_vars) == names
        assert tree["posterior"].attrs["space"] == "hidden_weights"
        assert "hidden weights), the readout integrated" in str(tree["leave_one_out"].attrs)
        for name, shape in SHAPES.items():
            assert tree[name].shape == shape, name
        np.testing.assert_array_equal(tree["validation"]["predictor_variance"], 0.0)


def test_its_comparison_has_infinite_width_beside_its_samples(finished):
    summary = json.loads((finished / "comparison.json").read_text(encoding="utf-8"))["summary"]
    with xr.open_datatree(finished / "draws.nc", engine="h5netcdf") as tree:
        draws = tree["predictions"]["predictor_mean"].values
        labels = tree["predictions_constant_data"]["labels_test"].values[:, 0]
    accuracy = summary["accuracy"]
    assert set(accuracy) == {"infinite", "sampled"}
    assert accuracy["sampled"]["value"] == np.mean(np.sign(draws.mean(axis=(0, 1))) == labels)
    assert set(summary["validation_accuracy"]) == {"sampled"}
    assert "order_parameter" not in summary
    with (
        xr.open_dataset(finished / "theory.nc", engine="h5netcdf") as theory,
        xr.open_datatree(finished / "comparison.nc", engine="h5netcdf") as tree,
    ):
        assert list(theory["predictor"].values) == ["infinite"]
        for quantity in ("predictor_mean", "predictor_variance"):
            np.testing.assert_array_equal(tree["elements"][quantity]["predicted"], theory[quantity])
            assert tree["elements"][quantity]["sampled"].shape == (10,)
        # A theory of one's own stands there as well.
        own = {"zero": {"predictor_mean": np.zeros(10)}}
        draws = open_results(finished).draws
        found = compare(None, draws, own=own).elements("predictor_mean")
        np.testing.assert_array_equal(found["predicted"].sel(predictor="zero"), np.zeros(10))
        evidence = summary["log_evidence"]["infinite"]["value"]
        assert evidence == pytest.approx(float(theory["log_evidence"][0]))


def test_stored_weights_of_a_block_make_its_stored_predictor():
    """A block that reads its stream: predictors are those of the loops at stored weights."""
    recipe = learned_recipe(
        heads=(("learned", "good"),),
        network={"norm": "before", "residual": True, "mlp": {"width": 2, "activation": "erf"}},
        attention={"reads": "stream"},
        sampler={
            "chains": 2, "warmup": 4, "draws": 4, "algorithm": "hmc", "leapfrog_steps": 2,
            "space": "weights", "weight_draws": 4,
        },
    )  # fmt: skip
    task = build_task(recipe)
    problem = build_problem(recipe, task)
    network = problem.network
    tree = draw_posterior(problem, recipe.sampler, show=False)
    posterior = tree["posterior"].to_dataset().merge(tree["posterior_weights"].to_dataset())
    assert posterior["mlp_in_1"].dims[2:] == ("unit_mlp", "unit_a")
    assert posterior["logits_1"].dims[-1] == "unit_below_1"
    weights = {name: posterior[name].values[1, 2] for name in network.weight_shapes}
    learned = Learned("low_rank", task.learned.learned, True, (1.0, 1.0), rank=task.channels)
    data = NetworkData(task.test.inputs, task.test.attention, "last")
    expected = loops(network, data, weights, learned)[:, 0]
    stored = tree["predictions"]["predictor"].values[1, 2]
    assert_equal_in_float32(stored, expected)
    assert Sizes.of(recipe, task).weight_count + Sizes.of(recipe, task).logits == sum(
        np.prod(shape) for shape in network.weight_shapes.values()
    )
