"""`draws.nc`: names, axes and coordinates that other tools rely on."""

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.cross_validation import leave_one_out_table
from sampler.analysis.draws import Draws
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.names import element_name, numbers_in_model
from sampler.jobs.stages import diagnose_stage
from sampler.mcmc.collected_draws import POINTWISE, PREDICTORS
from sampler.storage.directory import DRAWS_FILE
from sampler.storage.result_files import read_draws, write_result
from tests.small import (
    CHAINS,
    DRAWS,
    TRAIN,
    collect,
    healthy_statistics,
    random_observables,
    random_pointwise,
    signs,
    small_problem,
    within,
)

SAMPLED = ("chain", "draw")
NOTHING_WHOLE = within(0, names=(*PREDICTORS, *POINTWISE))


def written(rng, directory, *, outputs=1, **settings):
    """A problem, what was collected, and `draws.nc` in the directory."""
    problem = small_problem(rng, outputs=outputs, labels_test=signs(rng, outputs))
    observables = random_observables(problem, rng) | random_pointwise(problem, rng)
    collected = collect(observables, healthy_statistics(rng), **settings)
    attributes = {"space": "weights", "algorithm": "nuts", "max_tree_depth": 10, "seconds": 1.5}
    left_out = leave_one_out_table(problem, collected, "weights")
    prior = problem.prior_draws(7, 0, "order_parameters")
    tree = draws_tree(problem, collected, attributes, prior=prior, left_out=left_out)
    write_result(directory, "draws.nc", tree)
    return problem, collected


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 2])
def test_what_was_collected_is_stored_with_coordinates(outputs, rng, tmp_path):
    problem, collected = written(rng, tmp_path, outputs=outputs)
    with xr.open_datatree(tmp_path / DRAWS_FILE, engine="h5netcdf") as tree:
        posterior = tree["posterior"].to_dataset()
        predictor_axes = ("test_example",) if outputs == 1 else ("test_example", "output")
        expected = {
            "order_parameter": (*SAMPLED, "path", "path_"),
            "order_parameter_layer_2": (*SAMPLED, "path_layer_2", "path_layer_2_"),
            "readout_order_parameter": (*SAMPLED, "output", "output_"),
        }
        order_parameters = dict(expected)
        expected |= {
            "V_0": (*SAMPLED, "unit_1", "channel"),
            "V_1": (*SAMPLED, "head_1", "unit_2", "unit_1"),
            "V_2": (*SAMPLED, "head_2", "unit_a", "unit_2"),
            "a": (*SAMPLED, "output", "unit_a"),
        }
        assert {name: v.dims for name, v in posterior.items()} == expected
        assert tree["predictions"]["predictor"].dims == (*SAMPLED, *predictor_axes)
        drawn = {**posterior, "predictor": tree["predictions"]["predictor"]}
        drawn |= {name: tree[name]["y"] for name in POINTWISE}
        for name, values in drawn.items():
            received = values.values.reshape(collected.draws[name].shape)
            np.testing.assert_array_equal(received, collected.draws[name])
        statistics = tree["sample_stats"].to_dataset()
        assert (statistics["tree_depth"] == 3).all()  # 7 = 2³ − 1 steps
        axes = ("example",) if outputs == 1 else ("example", "output")
        labels = tree["observed_data"]["y"]
        assert labels.dims == axes
        np.testing.assert_array_equal(
            labels.values.reshape(TRAIN, outputs), np.asarray(problem.learning.labels)
        )
        for group in ("posterior_predictive", "prior_predictive"):
            assert tree[group]["y"].dims == (*SAMPLED, *axes)
            assert tree[group]["y"].dtype == np.float32
        assert tree["log_likelihood"]["y"].dims == (*SAMPLED, "example")
        assert {name: v.dims[2:] for name, v in tree["prior"].data_vars.items()} == {
            name: axes[2:] for name, axes in order_parameters.items()
        }
        constants = tree["constant_data"].to_dataset()
        assert float(constants["temperature"]) == problem.learning.temperature
        labels_test = tree["predictions_constant_data"]["labels_test"]
        np.testing.assert_array_equal(labels_test, problem.labels_test)
        for group in tree.children.values():
            for axis, size in group.sizes.items():
                assert axis in group.coords, f"{group.name}: {axis} has no coordinate"
                assert len(np.unique(group.coords[axis])) == size
    assert not set(problem.architecture.weight_shapes) & set(Draws(read_draws(tmp_path)).judged)


@pytest.mark.slow
def test_every_kth_draw_of_a_large_predictor_is_stored_with_its_number(rng, tmp_path):
    _, collected = written(rng, tmp_path, outputs=2, limits=NOTHING_WHOLE)
    tree = read_draws(tmp_path)
    table = tree["predictions"].to_dataset()
    assert table["predictor"].dims == (*SAMPLED, "test_example", "output")
    assert set(table.sizes) <= set(table.coords)
    expected = collected.thinned["predictor"]
    assert expected.draws.tolist() == list(range(0, DRAWS, table.attrs["thinned"]))
    np.testing.assert_array_equal(table["draw"], expected.draws)
    received = Draws(tree)["predictor"].values.reshape(expected.values.shape)
    np.testing.assert_array_equal(received, expected.values)
    assert Draws(tree).judged["predictor"].shape[1] == len(expected.draws)
    for name in POINTWISE:
        kept = collected.thinned[name]
        np.testing.assert_array_equal(tree[name]["draw"], kept.draws)
        values = tree[name]["y"].values.reshape(kept.values.shape)
        np.testing.assert_array_equal(values, kept.values)
        assert tree[name].attrs["thinned"] == kept.draws[1]


def test_draws_that_alone_were_kept_are_judged_when_they_are_read_back(rng):
    """Of a predictor that is too large for all its draws; one chain stands apart."""
    problem, shape = small_problem(rng), (CHAINS, 1500)
    observables = random_observables(problem, rng, draws=shape[1])
    drawn = {name: observables[name] for name in ("order_parameter", "predictor")}
    for apart in (0.0, 3.0):
        drawn["predictor"][1] += apart
        limits = within(drawn["predictor"].nbytes // 4)
        collected = collect(drawn, healthy_statistics(rng, shape), limits=limits)
        attributes = {"algorithm": "nuts", "target_acceptance": 0.8, "max_tree_depth": 10}
        found = diagnose_stage(draws_tree(problem, collected, attributes))
        assert "predictor" in found.quantities
        assert found.passed is (apart == 0.0)


# --- heads in words: those of a window have their numbers in the model, whatever was chosen


HEADS = np.array([["5.0", "5.3", "5.7", "residual"], ["6.1", "6.4", "residual", ""]], dtype=object)


def test_heads_of_a_window_have_their_numbers_in_the_model():
    assert numbers_in_model(list(HEADS[0])) == [0, 3, 7, "residual"]
    assert numbers_in_model(["0", "1", "residual"]) == [0, 1, 2]
    assert numbers_in_model(["good", "uniform"]) == [0, 1]
    names = [element_name("head_score", (0, place), (), HEADS, (5, 6)) for place in range(4)]
    assert names[:3] == [f"layer 5, head {head}" for head in (0, 3, 7)]
    assert len(set(names)) == 4
    assert element_name("head_score", (1, 1), (), HEADS, (5, 6)) == "layer 6, head 4"
    good = np.array([["good", "uniform"]], dtype=object)
    assert element_name("head_score", (0, 1), (), good) == "layer 1, head 1 (uniform)"
