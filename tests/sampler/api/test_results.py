"""The package from Python: the same numbers, the same refusals as the command line."""

import json
import warnings

import arviz_base
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.api.model import recipe_and_data
from sampler.errors import ExitCode, InputError
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
    return sampler.markov_chain_task(**TASK), sampler.make_network(**NETWORK)


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


@pytest.mark.heavy
def test_numbers_are_those_of_the_command_line(results, tmp_path, undrawn):
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
        assert set(tree.children) == set(draws.children)
        for group in draws.children:
            expected, received = tree[group].to_dataset(), draws[group].to_dataset()
            xr.testing.assert_identical(received.drop_attrs(), expected.drop_attrs())
    comparison.save(tmp_path / "comparison.json")
    expected, received = (
        json.loads((folder / "comparison.json").read_text()) for folder in (directory, tmp_path)
    )
    # times are of this process, not of the other one
    assert expected.pop("cost").keys() == received.pop("cost").keys()
    assert received == expected


@pytest.mark.heavy
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
    assert again.table().equals(results[2].table())
    assert "order_parameter" in arviz_base.convert_to_datatree(stored)["posterior"]


def test_a_comparison_has_every_number_with_its_error(results):
    _, _, comparison = results
    assert not comparison.diagnostics.passed  # six draws
    table = comparison.table()
    elements = comparison.elements("order_parameter").sel(path="good", path_="uniform·uniform")
    assert np.isfinite([elements["sampled"], elements["error"], *elements["predicted"]]).all()
    for name in ("accuracy", "log_predictive_density", "expected_calibration_error"):
        scores = table.loc[name]
        assert np.isfinite(scores.loc[["leading", "infinite", "sampled"], "value"]).all()
        assert np.isfinite(scores.loc["sampled", ["error", "test_error"]].astype(float)).all()


def test_arrays_in_memory_are_those_of_a_file(rng, tmp_path):
    arrays = small_arrays(rng)
    np.savez(tmp_path / "mine.npz", **arrays)
    from_file = sampler.arrays_task(tmp_path / "mine.npz")
    layers = {key: array for key, array in arrays.items() if key.startswith("attention")}
    by_layer = {
        f"attention_{split}": [layers[f"attention_{split}_{layer}"] for layer in (1, 2)]
        for split in ("train", "test")
    }
    others = {key: array for key, array in arrays.items() if key not in layers}
    for in_memory in (
        sampler.arrays_task(**others, **by_layer), sampler.make_task("arrays", **arrays)
    ):  # fmt: skip
        for one, other in zip(from_file.data.splits, in_memory.data.splits, strict=True):
            np.testing.assert_array_equal(one.inputs, other.inputs)
            np.testing.assert_array_equal(one.labels, other.labels)
            for left, right in zip(one.attention, other.attention, strict=True):
                np.testing.assert_array_equal(left, right)
        assert from_file.data.path_names == in_memory.data.path_names


def test_rows_of_many_examples_are_those_of_the_network_that_is_asked_for():
    """They stand for the examples; other networks of the same task have others."""
    chosen = {**TASK, "examples_train": 40}
    task = sampler.markov_chain_task(**chosen)
    for other in ({}, {"readout": "mean"}, {"heads": [[1], [0]]}):
        network = sampler.make_network(**(NETWORK | other))
        received = sampler.make_problem(task, network).learning
        expected = sampler.make_problem(sampler.markov_chain_task(**chosen), network).learning
        assert received.attended.shape[0] < 40
        np.testing.assert_array_equal(received.attended, expected.attended)
        np.testing.assert_array_equal(received.labels, expected.labels)


def refusal(function, *arguments, **keywords) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments, **keywords)
    return str(caught.value)


def test_heads_are_chosen_for_every_task_that_leaves_them_open(without_annotation_checks):
    series = {"examples_train": 4, "examples_test": 4, "tokens": 12, "channels": 2}
    heads = [["lag"], ["uniform"]]
    chosen = sampler.time_series_task(**series, lag=3, heads=heads, head_lag=2)
    assert chosen.data.head_names == (("lag",), ("uniform",))
    assert chosen.settings["task"]["lag"] == 3
    assert chosen.settings["attention"] == {"lag": 2, "heads": heads}
    by_kind = sampler.make_task("time_series", **series, lag=3, heads=heads, attention={"lag": 2})
    assert by_kind.settings == chosen.settings
    assert by_kind.data.checksum == chosen.data.checksum


def test_what_is_not_given_is_left_to_the_recipe():
    drawings = {"classes": [0, 1], "examples_train": 4, "examples_test": 4, "patch": 4}
    task = sampler.digits_task(**drawings, form=None)
    assert task.settings == {"task": {"kind": "digits", **drawings}}
    for readout, expected in ((None, "mean"), ("last", "last")):
        network = sampler.make_network(np.array([2, 2]), readout=readout)
        assert network.settings["network"]["widths"] == [2, 2]
        assert recipe_and_data(task, network)[0].network.readout == expected


TOKENS = {"inputs": np.ones((2, 3, 1)), "labels": np.ones(2)}
MATRICES = [np.ones((2, 1, 3, 3)), np.ones((2, 3, 3))]
SPLITS = {
    f"{key}_{split}": value
    for key, value in (TOKENS | {"attention": MATRICES}).items()
    for split in ("train", "test")
}
TOKENS_TRAIN = {f"{key}_train": value for key, value in TOKENS.items()}
# A function with keywords that it refuses, and what the refusal begins with: the setting.
REFUSED = [
    (sampler.markov_chain_task, {**TASK, "tokns": 4}, "tokns = 4"),
    (sampler.markov_chain_task, {**TASK, "heads": [["best"]]}, "heads[0][0] = 'best'"),
    (sampler.markov_chain_task, {**TASK, "widths": 4}, "widths = 4"),
    (sampler.make_task, {"kind": "riddle"}, "kind = 'riddle'"),
    (sampler.make_network, {"width": 10}, "width = 10"),
    (sampler.arrays_task, SPLITS, "attention_train[1] = (2, 3, 3)"),
    (sampler.make_task, {"kind": "arrays", "path": "a.npz", **TOKENS_TRAIN}, "path = 'a.npz'"),
]


@pytest.mark.parametrize(("function", "keywords", "expected"), REFUSED)
def test_a_keyword_is_refused_by_its_name(function, keywords, expected, without_annotation_checks):
    assert refusal(function, **keywords).startswith(f"{expected}: ")


MISFITS = [
    (sampler.sample, {}, {"draws": 1}, "draws = 1"),
    (sampler.sample, {}, {"draws": 9, "until": "trusted"}, "draws = 9"),
    (sampler.solve, {}, {"start": 1}, "start = 1"),
    (sampler.solve, {"norm": "after"}, {}, "norm = 'after'"),
]


@pytest.mark.parametrize(("function", "network", "keywords", "expected"), MISFITS)
def test_a_misfit_is_refused_by_its_key(function, network, keywords, expected, chosen):
    network = sampler.make_network(**{**NETWORK, **network})
    assert refusal(function, chosen[0], network, **keywords).startswith(expected)


def warned(call) -> tuple:
    """What a call returns, and its warnings on results."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    of_results = [one for one in caught if issubclass(one.category, sampler.ReliabilityWarning)]
    return result, [str(one.message) for one in of_results]


@pytest.mark.heavy
def test_draws_and_theories_that_fail_are_warned_of(chosen):
    draws, found = warned(lambda: sampler.sample(*chosen, **CHAINS, progress=False))
    assert sampler.compare(None, draws).reliability.tone == "bad"
    (text,) = found
    assert " 6 draws" in text
    theory, found = warned(lambda: sampler.solve(*chosen, starts=1, max_steps=1))
    assert not theory.attrs["converged"]
    assert len(found) == 1


@pytest.mark.heavy
def test_of_results_that_pass_nothing_is_said(chosen):
    theory, found = warned(lambda: sampler.solve(*chosen, starts=1))
    assert theory.attrs["converged"]
    assert not found
    draws, found = warned(lambda: sampler.sample(*chosen, progress=False))
    assert sampler.compare(theory, draws).reliability.tone == "good"
    assert not found


def test_only_what_belongs_together_is_compared(results, without_annotation_checks):
    theory, draws, _ = results
    assert refusal(sampler.compare, draws, theory).startswith("draws = 'Dataset': ")
    assert refusal(sampler.compare, theory, theory).startswith("draws = 'Dataset': ")
    other = theory.assign_coords(path=["a", "b"])
    assert refusal(sampler.compare, other, draws).startswith("draws = ['good', ")
    warmer = theory.assign_attrs(temperature=2.0)
    assert refusal(sampler.compare, warmer, draws).startswith("draws.temperature = 1.0: ")


@pytest.mark.heavy
def test_theories_of_nonlinear_values_are_compared_as_theories_of_ones_own_are(chosen):
    """Of all quantities that they predict, beside a prediction of the user's."""
    task, network = chosen[0], sampler.make_network(**NETWORK, values="erf")
    theories = sampler.solve(task, network)
    draws = sampler.sample(task, network, **CHAINS, progress=False)
    mine = {"predictor_mean": np.zeros(10)}
    found = sampler.compare(theories, draws, own={"mine": mine})
    assert list(found.user_verdicts) == ["mine"]
    predicted = found.elements("predictor_mean")["predicted"]
    assert set(predicted["predictor"].values) == {"infinite", "mine"}
    expected = theories["predictor_mean"].sel(predictor="infinite")
    np.testing.assert_array_equal(predicted.sel(predictor="infinite"), expected)
    # A centred Gaussian regression: the variance is at most that of the prior.
    assert (theories["predictor_variance"] > 0).all()
    assert refusal(sampler.head_importance, theories).startswith("theory = ")


def test_importing_the_package_leaves_jax_alone():
    printed = printed_without_jax(
        "import sampler\n"
        "task = sampler.markov_chain_task(examples_train=2, examples_test=2)\n"
        "network = sampler.make_network(widths=2)\n"
        "try:\n    sampler.solve(task, network, starts=0)\n"
        "except sampler.InputError as problem:\n    print(problem)\n"
        "assert {'solve', 'compare'} <= set(dir(sampler))\n"
    )
    assert printed.startswith("starts = 0: ")
