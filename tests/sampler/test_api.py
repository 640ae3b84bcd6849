"""The package from Python: the same numbers, the same refusals as the command line."""

import json

import arviz_base
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.api import KEYS_OF_ATTENTION
from sampler.errors import ExitCode, InputError
from sampler.recipes.recipe import load_recipe
from sampler.recipes.task_section import AttentionSection
from sampler.tasks.time_series import TimeSeriesSection
from tests.commands import FEW_DRAWS, SMALLEST, in_process, printed_without_jax, settings

# SMALLEST and FEW_DRAWS, as keywords.
TASK = {
    "examples_train": 6, "examples_test": 10, "tokens": 4, "features": 6,
    "heads": [["good", "uniform"], ["uniform"]],
}  # fmt: skip
NETWORK = {"widths": 3, "temperature": 1.0}
CHAINS = {"warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3}


@pytest.fixture(scope="module")
def chosen():
    return sampler.make_task("markov_chain", **TASK), sampler.make_network(**NETWORK)


@pytest.fixture(scope="module")
def results(chosen):
    """Theory, draws and comparison."""
    theory = sampler.solve(*chosen, starts=1)
    draws = sampler.sample(*chosen, **CHAINS, progress=False)
    return theory, draws, sampler.compare(theory, draws)


def small_arrays(rng, *, layers=2, heads=2) -> dict[str, np.ndarray]:
    """Arrays as an .npz file has them."""
    arrays = {}
    for split, examples in (("train", 5), ("test", 4)):
        arrays[f"inputs_{split}"] = rng.standard_normal((examples, 3, 2))
        arrays[f"labels_{split}"] = rng.choice([-1.0, 1.0], examples)
        for layer in range(1, layers + 1):
            arrays[f"attention_{split}_{layer}"] = rng.random((examples, heads, 3, 3))
    return arrays


@pytest.mark.slow
def test_numbers_are_those_of_the_command_line(results, tmp_path):
    theory, draws, comparison = results
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SMALLEST)
    directory = tmp_path / "run"
    code = in_process("run", recipe, "--out", directory, *settings(*FEW_DRAWS, "theory.starts=1"))
    assert code == ExitCode.DIAGNOSTICS_FAILED  # six draws
    stored = xr.load_dataset(directory / "theory.nc", engine="h5netcdf")
    xr.testing.assert_identical(theory.drop_attrs(), stored.drop_attrs())
    assert theory.attrs.keys() == stored.attrs.keys()
    with xr.open_datatree(directory / "draws.nc", engine="h5netcdf") as tree:
        assert set(tree.children) == {*draws.children, "comparison"}
        for group in draws.children:
            expected, received = tree[group].to_dataset(), draws[group].to_dataset()
            xr.testing.assert_identical(received.drop_attrs(), expected.drop_attrs())
        expected = tree["comparison"].to_dataset().load()
    xr.testing.assert_identical(comparison.to_dataset().drop_attrs(), expected.drop_attrs())
    comparison.save(tmp_path / "comparison.json")
    expected, received = (
        json.loads((folder / "comparison.json").read_text()) for folder in (directory, tmp_path)
    )
    # times are of this process, not of the other one
    assert expected.pop("cost").keys() == received.pop("cost").keys()
    assert received == expected


def test_results_are_stored_and_read_back(results, tmp_path):
    theory, draws, _ = results
    theory.to_netcdf(tmp_path / "theory.nc", engine="h5netcdf")
    draws.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    xr.testing.assert_identical(
        xr.load_dataset(tmp_path / "theory.nc", engine="h5netcdf").drop_attrs(),
        theory.drop_attrs(),
    )
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as tree:
        stored = tree.load()
    again = sampler.compare(theory, stored)
    assert again.to_dataframe().equals(results[2].to_dataframe())
    assert "order_parameter" in arviz_base.convert_to_datatree(stored)["posterior"]


def test_a_comparison_prints_its_verdict_and_every_number_with_its_error(results):
    _, _, comparison = results
    assert not comparison.trusted  # six draws
    text = repr(comparison)
    for expected in ("FAILED", "U₁ good", "± MCSE", "accuracy", "log predictive density"):
        assert expected in text, expected
    table = comparison.to_dataframe()
    element = table.loc["U₁ good × uniform·uniform"]
    expected = comparison.to_dataset()["order_parameter_sampled"].values[0, 1]
    assert element["sampled"] == expected
    difference = (element["sampled"] - element["theory"]) / element["mcse"]
    assert element["difference_in_mcse"] == difference
    scores = table.loc[["accuracy", "log predictive density", "expected calibration error"]]
    assert np.isfinite(scores[["theory", "gp", "sampled", "mcse", "test_error"]]).all(axis=None)
    assert "<table" in comparison._repr_html_()


def test_tables_say_in_words_what_they_hold(results):
    theory, draws, _ = results
    assert theory["order_parameter"].attrs["long_name"].startswith("overlap U_1")
    assert theory["predictor_mean"].attrs["units"] == "scale of the labels"
    assert theory["path"].attrs["long_name"] == "attention path"
    for table in (theory, draws["posterior"].to_dataset()):
        named = [n for n in table.data_vars if table[n].attrs.get("long_name")]
        assert {"order_parameter", "predictor_mean", "predictor_variance"} <= set(named)
    assert "markov_chain: 6 training, 10 test" in repr(sampler.make_task("markov_chain", **TASK))
    assert "widths = 3" in repr(sampler.make_network(**NETWORK))


def test_arrays_in_memory_are_those_of_a_file(rng, tmp_path):
    arrays = small_arrays(rng)
    np.savez(tmp_path / "mine.npz", **arrays)
    from_file = sampler.make_task("arrays", path=tmp_path / "mine.npz")
    in_memory = sampler.make_task("arrays", **arrays)
    for one, other in zip(from_file.data.splits, in_memory.data.splits, strict=True):
        np.testing.assert_array_equal(one.inputs, other.inputs)
        np.testing.assert_array_equal(one.labels, other.labels)
        for left, right in zip(one.attention, other.attention, strict=True):
            np.testing.assert_array_equal(left, right)
    assert from_file.data.path_names == in_memory.data.path_names


def refusal(function, *arguments, **keywords) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments, **keywords)
    return str(caught.value)


def test_heads_are_chosen_for_every_task_that_leaves_them_open(without_annotation_checks):
    series = {"examples_train": 4, "examples_test": 4, "tokens": 12, "channels": 2}
    chosen = sampler.make_task(
        "time_series", **series, lag=3, heads=[["lag"], ["uniform"]], attention={"lag": 2}
    )
    assert chosen.data.head_names == (("lag",), ("uniform",))
    assert chosen.settings["task"]["lag"] == 3
    assert chosen.settings["attention"] == {"lag": 2, "heads": [["lag"], ["uniform"]]}
    assert refusal(sampler.make_task, "time_series", attention=3).startswith("attention = 3: ")
    # `lag` is the one key that a task has too.
    others = set(AttentionSection.model_fields) - set(KEYS_OF_ATTENTION)
    assert others == {"lag"} <= set(TimeSeriesSection.model_fields)


@pytest.mark.parametrize(
    ("keywords", "key"),
    [
        ({"tokens": 0}, "task.tokens=0"),
        ({"tokns": 4}, "task.tokns=4"),
        ({"heads": [["best"]]}, 'attention.heads=[["best"]]'),
    ],
)
def test_tasks_are_refused_as_on_the_command_line(keywords, key, tmp_path):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SMALLEST)
    with pytest.raises(InputError) as caught:
        load_recipe(recipe, [key])
    expected = str(caught.value)
    assert refusal(sampler.make_task, "markov_chain", **{**TASK, **keywords}) == expected


def test_networks_samplers_and_misfits_are_refused_by_key(chosen, rng, without_annotation_checks):
    task, network = chosen
    assert refusal(sampler.make_network, widths=0).startswith("network.widths = 0: ")
    assert refusal(sampler.make_network).startswith("network.widths = (absent): ")
    assert refusal(sampler.make_network, widths=1, temperature=-1.0).startswith(
        "posterior.temperature = -1.0: "
    )
    assert refusal(sampler.sample, task, network, draws=1).startswith("sampler.draws = 1: ")
    assert refusal(sampler.solve, task, network, start=1) == (
        "theory.start = 1: this key is unknown; did you mean theory.starts?"
    )
    narrow = sampler.make_network(widths=[3, 3])
    assert refusal(sampler.solve, task, narrow).startswith("network.widths = [3, 3]: ")
    outside = sampler.make_network(widths=3, values="relu")
    assert refusal(sampler.solve, task, outside).startswith("network.values = 'relu': ")
    exact = {"space": "order_parameters", "draws": 4}
    refused = refusal(sampler.sample, task, outside, **exact)
    assert refused.startswith("sampler.space = 'order_parameters': ")
    assert 'has no order parameters; use "weights"' in refused
    assert refusal(sampler.solve, "markov_chain", network).startswith("task = 'markov_chain': ")
    arrays = small_arrays(rng) | {"labels_train": np.array([1, -1, 1, 1, -1])}
    assert refusal(sampler.make_task, "arrays", **arrays).startswith("labels_train = 'int64': ")
    del arrays["inputs_test"]
    assert refusal(sampler.make_task, "arrays", **arrays).startswith("inputs_test = (absent): ")
    both = refusal(sampler.make_task, "arrays", path="a.npz", **arrays)
    assert both.startswith("task.path = 'a.npz': ")
    assert refusal(sampler.make_task, "riddle").startswith("task.kind = 'riddle': ")


def test_only_what_belongs_together_is_compared(results, without_annotation_checks):
    theory, draws, _ = results
    assert refusal(sampler.compare, draws, theory).startswith("theory = 'DataTree': ")
    assert refusal(sampler.compare, theory, theory).startswith("draws = 'Dataset': ")
    other = theory.assign_coords(path=["a", "b"])
    assert refusal(sampler.compare, other, draws).startswith("draws = ['good', ")
    warmer = theory.assign_attrs(temperature=2.0)
    assert refusal(sampler.compare, warmer, draws).startswith("draws.temperature = 1.0: ")


def test_importing_the_package_leaves_jax_alone():
    printed = printed_without_jax(
        "import sampler\n"
        "task = sampler.make_task('markov_chain', examples_train=2, examples_test=2)\n"
        "network = sampler.make_network(widths=2)\n"
        "try:\n    sampler.solve(task, network, starts=0)\n"
        "except sampler.InputError as problem:\n    print(problem)\n"
        "assert {'solve', 'compare'} <= set(dir(sampler))\n"
    )
    assert printed.startswith("theory.starts = 0: ")


def test_the_package_has_no_other_names():
    with pytest.raises(AttributeError, match="no attribute 'anneal'"):
        sampler.anneal  # noqa: B018
