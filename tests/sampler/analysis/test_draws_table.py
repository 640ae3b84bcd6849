"""`draws.nc`: names, axes and coordinates that other tools rely on."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.cross_validation import leave_one_out_table
from sampler.analysis.draws import Draws
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.names import element_name, numbers_in_model
from sampler.analysis.results import RunResults
from sampler.analysis.validation import validation_predictors
from sampler.jobs.stages import diagnose_stage
from sampler.mcmc.collected_draws import POINTWISE, PREDICTORS, ThinnedDraws
from sampler.storage.directory import DRAWS_FILE
from sampler.storage.result_files import read_draws, write_result
from tests.problems import (
    CHAINS,
    DRAWS,
    PATH_NAMES,
    collect,
    healthy_statistics,
    random_observables,
    random_pointwise,
    signs,
    small_problem,
    within,
)

SAMPLED = ("chain", "draw")
ORDER_PARAMETERS = {
    "order_parameter": ("path", "path_"),
    "order_parameter_layer_2": ("path_layer_2", "path_layer_2_"),
    "readout_order_parameter": ("output", "output_"),
}
WEIGHTS = {
    "V_0": ("unit_1", "channel"),
    "V_1": ("head_1", "unit_2", "unit_1"),
    "V_2": ("head_2", "unit_a", "unit_2"),
    "a": ("output", "unit_a"),
}


def written(rng, directory, outputs: int, **settings):
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
    problem, collected = written(rng, tmp_path, outputs)
    of_output = () if outputs == 1 else ("output",)
    of_example = ("example", *of_output)
    expected = {f"posterior/{name}": (*SAMPLED, *axes)
                for name, axes in (ORDER_PARAMETERS | WEIGHTS).items()}  # fmt: skip
    expected |= {
        "predictions/predictor": (*SAMPLED, "test_example", *of_output),
        "log_likelihood/y": (*SAMPLED, "example"),
        "posterior_predictive/y": (*SAMPLED, *of_example),
        "leave_one_out_predictive/y": (*SAMPLED, *of_example),
    }
    with xr.open_datatree(tmp_path / DRAWS_FILE, engine="h5netcdf") as tree:
        for place, axes in expected.items():
            group, variable = place.split("/")
            name = group if variable == "y" else variable
            assert tree[place].dims == axes, place
            values = tree[place].values.reshape(collected.draws[name].shape)
            np.testing.assert_array_equal(values, collected.draws[name], place)
        of_prior = {name: (*SAMPLED, *axes) for name, axes in ORDER_PARAMETERS.items()}
        assert {str(n): v.dims for n, v in tree["prior"].data_vars.items()} == of_prior
        assert tree["prior_predictive"]["y"].dims == (*SAMPLED, *of_example)
        assert tree["posterior_predictive"]["y"].dtype == np.float32
        assert (tree["sample_stats"]["tree_depth"] == 3).all()  # 7 = 2³ − 1 steps
        # The output is the fastest part of a row.
        named = [name for name in PATH_NAMES for _ in range(outputs)]
        for name, path in zip(named, tree["posterior"]["path"].values, strict=True):
            assert path.startswith(name)
        labels = tree["observed_data"]["y"]
        assert labels.dims == of_example
        np.testing.assert_array_equal(np.ravel(labels), np.ravel(problem.learning.labels))
        assert float(tree["constant_data"]["temperature"]) == problem.learning.temperature
        of_test = tree["predictions_constant_data"]["labels_test"]
        np.testing.assert_array_equal(of_test, problem.labels_test)
        for group in tree.children.values():
            for axis, size in group.sizes.items():
                assert axis in group.coords, f"{group.name}: {axis} has no coordinate"
                assert len(np.unique(group.coords[axis])) == size
    assert not set(WEIGHTS) & set(Draws(read_draws(tmp_path)).judged)


@pytest.mark.slow
def test_every_kth_draw_of_what_is_large_is_stored_with_its_number(rng, tmp_path):
    names = (*PREDICTORS, *POINTWISE)
    _, collected = written(rng, tmp_path, 2, limits=within(0, names=names))
    tree = read_draws(tmp_path)
    for group in ("predictions", *POINTWISE):
        name, variable = ("predictor",) * 2 if group == "predictions" else (group, "y")
        kept, table = collected.thinned[name], tree[group].to_dataset()
        assert kept.draws.tolist() == list(range(0, DRAWS, table.attrs["thinned"]))
        assert len(kept.draws) < DRAWS
        np.testing.assert_array_equal(table["draw"], kept.draws)
        values = table[variable].values.reshape(kept.values.shape)
        np.testing.assert_array_equal(values, kept.values)
    assert Draws(tree).judged["predictor"].shape[1] == len(kept.draws)


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


def test_chains_with_exchangeable_heads_are_judged_by_eigenvalues(rng):
    """What the problem fixes is known by the names of quantities."""
    problem, shape = small_problem(rng), (CHAINS, DRAWS)
    drawn = random_observables(problem, rng)
    drawn["overlap_eigenvalues_1"] = rng.standard_normal((*shape, 3))
    fixed = {"overlap_eigenvalues_1": np.array([True, False, True]), "predictor": np.zeros(5, bool)}
    for exchangeable in (0, 1):
        attributes = {"algorithm": "nuts", "max_tree_depth": 10}
        attributes["exchangeable_heads"] = exchangeable
        collected = collect(drawn, healthy_statistics(rng))
        draws = Draws(draws_tree(problem, collected, attributes, fixed=fixed))
        overlaps = set() if exchangeable else set(ORDER_PARAMETERS)
        assert set(draws.judged) == {"overlap_eigenvalues_1", "predictor"} | overlaps
    assert {name: of.tolist() for name, of in draws.fixed.items()} == {
        "overlap_eigenvalues_1": [True, False, True]
    }


def test_labels_vary_by_the_temperatures_of_the_draws_whose_predictors_were_kept(rng):
    temperature, predictor = rng.uniform(0.1, 2.0, (2, 40)), rng.standard_normal((2, 10, 5))
    every = slice(None, None, 4)
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"temperature": (SAMPLED, temperature)}, {"draw": range(40)}),
            "predictions": xr.Dataset(
                {"predictor": ((*SAMPLED, "test_example"), predictor)}, {"draw": range(0, 40, 4)}
            ),
            "constant_data": xr.Dataset({"temperature": 0.5}),
            "predictions_constant_data": xr.Dataset(
                {"labels_test": (("test_example", "output"), np.ones((5, 1)))}
            ),
        }
    )
    noise = temperature[:, every].mean()
    _, variance = Draws(tree).test_moments.posterior
    expected = predictor.reshape(20, 5).var(axis=0, ddof=1) + noise
    np.testing.assert_allclose(variance[:, 0], expected, rtol=1e-10)
    received = RunResults.held(None, draws=tree).label_noise("sampled")
    assert received == pytest.approx(noise, rel=1e-12)


@pytest.mark.parametrize("is_sampled", [False, True])
def test_of_weights_the_predictor_is_known_on_the_validation_split(is_sampled, rng):
    """In some of the draws that were kept, each at its own temperature where that is sampled."""
    problem = small_problem(rng)
    labels = rng.standard_normal((5, 1))
    problem = replace(problem, attended_validation=problem.attended_test, labels_validation=labels)
    numbers = np.arange(0, 900, 3)
    kept = ThinnedDraws(rng.standard_normal((2, 300, 5, 1)), numbers)
    drawn = {"temperature": rng.uniform(0.1, 0.5, (2, 900))} if is_sampled else {}
    table = validation_predictors(problem, kept, drawn)
    assert table.sizes["draw"] == 100
    chosen = np.searchsorted(numbers, table["draw"])
    np.testing.assert_array_equal(numbers[chosen], table["draw"])
    np.testing.assert_array_equal(table["predictor_mean"], kept.values[:, chosen])
    assert (table["predictor_variance"] == 0.0).all()
    noise = drawn["temperature"][:, table["draw"]] if is_sampled else 0.2
    assert (table["temperature"] == noise).all()
    np.testing.assert_array_equal(table["labels"], labels)


def test_heads_of_a_window_have_their_numbers_in_the_model():
    """Whatever heads were chosen of it; others have their places."""
    heads = np.array([["5.0", "5.3", "5.7", "residual"], ["6.1", "6.4", "residual", ""]], object)
    assert numbers_in_model(list(heads[0])) == [0, 3, 7, "residual"]
    assert numbers_in_model(["0", "1", "residual"]) == [0, 1, 2]
    assert numbers_in_model(["good", "uniform"]) == [0, 1]
    names = [element_name("head_score", (0, place), (), heads, (5, 6)) for place in range(4)]
    assert names[:3] == [f"layer 5, head {head}" for head in (0, 3, 7)]
    assert len(set(names)) == 4
    good = np.array([["good", "uniform"]], dtype=object)
    assert element_name("head_score", (0, 1), (), good) == "layer 1, head 1 (uniform)"
