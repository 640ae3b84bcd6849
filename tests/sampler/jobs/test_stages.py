"""Stages: cost, verdicts, comparisons of several runs."""

import json
import shutil

import h5py
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.analysis.draws_table import draws_tree
from sampler.errors import InputError
from sampler.jobs import run as jobs
from sampler.jobs.done import numbers_of
from sampler.jobs.reproduce import relative_difference
from sampler.jobs.stages import cost, diagnose_stage
from sampler.jobs.stored import compare_runs
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import DRAWS_FILE
from sampler.storage.fingerprint import FINGERPRINT
from sampler.storage.result_files import read_draws, write_result
from tests import FIXTURES
from tests.commands import in_process
from tests.failures import stored
from tests.small import collect, healthy_statistics, random_observables, small_problem


def tree_of(rng, draws, **attributes):
    """Draws of a pretended sampler as `draws.nc` has them."""
    problem = small_problem(rng)
    statistics = healthy_statistics(rng, (2, draws))
    collected = collect(random_observables(problem, rng, draws), statistics)
    settings = {"algorithm": "nuts", "target_acceptance": 0.8, "max_tree_depth": 10}
    return draws_tree(problem, collected, settings | attributes)


def test_effective_draws_are_the_fewest_of_bulk_and_tail(rng):
    times = {"seconds": 8.0, "seconds_warmup": 2.0, "seconds_draws": 3.0, "gradients": 70}
    tree = tree_of(rng, 400, **times)
    diagnostics = diagnose_stage(tree)
    judged = diagnostics.quantities["order_parameter"]
    found = cost(tree, diagnostics)
    assert judged.ess_tail < judged.ess_bulk
    assert found["effective_draws"] == judged.ess_tail
    assert found["effective_draws_per_second"] == judged.ess_tail / 8.0
    assert {name: found[name] for name in times} == times


def test_where_the_clock_stood_still_no_speed_is_known(rng):
    times = dict.fromkeys(("seconds", "seconds_warmup", "seconds_draws", "gradients"), 0)
    tree = tree_of(rng, 40, **times)
    assert np.isnan(cost(tree, diagnose_stage(tree))["effective_draws_per_second"])


def test_more_draws_are_counted_from_those_that_were_made(run_of_six_draws, recipe_file, tmp_path):
    """Not from those of the recipe, of chains that ended when they could be trusted."""
    copy = tmp_path / "copy"
    shutil.copytree(run_of_six_draws, copy)
    recipe, draws = load_recipe(recipe_file), read_draws(copy)
    assert recipe.sampler.until == "trusted"
    stamped = json.loads(draws.attrs[FINGERPRINT]) | {"numbers": numbers_of(recipe)}
    draws.attrs[FINGERPRINT] = json.dumps(stamped)
    write_result(copy, DRAWS_FILE, draws)
    assert jobs.with_more_draws(copy, recipe, 5).sampler.draws == 11


def test_a_number_that_one_of_two_theories_lacks_is_no_agreement():
    stored = np.array([2.0, -4.0, np.nan])
    assert relative_difference(stored, stored) == 0.0
    assert relative_difference(stored, np.array([2.2, -4.0, np.nan])) == (2.2 - 2.0) / 4.0
    for other in ([2.0, -4.0, 1.0], [np.nan, -4.0, np.nan]):
        assert relative_difference(stored, np.array(other)) == np.inf


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


# --- `compare A B …`


@pytest.fixture
def two(tmp_path):
    """One finished run, twice."""
    return [shutil.copytree(FIXTURES / "finished", tmp_path / name) for name in ("one", "other")]


@pytest.mark.slow
def test_models_of_several_runs_end_the_comparison(two, undrawn):
    in_process("compare", *two)
    assert (two[0] / "figures" / "models.png").is_file()
    found = sampler.compare_models({"one": two[0], "other": two[1]})
    # Theory, and infinite width at both of its temperatures, are those of both runs: they appear
    # once.
    assert len(found.to_dataframe()) == 2 + 3
    assert "<table" in found._repr_html_()
    assert found.plot().axes


@pytest.mark.slow
def test_other_labels_are_a_reason_not_to_compare(two, undrawn):
    with h5py.File(two[1] / "draws.nc", "r+") as file:
        file["leave_one_out"].attrs["labels"] = "of others"
    compare_runs(two)
    with pytest.raises(InputError):
        sampler.compare_models(two)


def test_terms_of_a_stored_run_add_up(two):
    table = sampler.compare_models({"one": two[0]}).to_dataframe()
    run = sampler.open_results(two[0])
    expected = run.draws["leave_one_out"]["elpd"].values.sum(dtype=float)
    assert table.loc["one, exact posterior (diagnostics failed)", "elpd"] == pytest.approx(
        expected, rel=1e-6
    )
    assert np.isclose(table["weight"].sum(), 1.0, atol=1e-6)
