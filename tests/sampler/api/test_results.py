"""The package from Python: the same numbers, the same refusals as the command line."""

import json
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.api.recipes import KNOWN, MOST_KNOWN, data_of
from sampler.errors import ExitCode, InputError
from tests import ROOT
from tests.commands import FEW_DRAWS, SMALLEST, environment, in_process, settings

# SMALLEST and FEW_DRAWS, in Python.
RECIPE = sampler.Recipe(
    name="tiny",
    task=sampler.MarkovChain(examples_train=6, examples_test=10, tokens=4, features=6),
    attention={"heads": [["good", "uniform"], ["uniform"]]},
    network={"widths": 3},
    posterior={"temperature": 1.0},
    theory={"starts": 1},
)
CHAINS = {"warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3}


@pytest.fixture(scope="module")
def results():
    """Theory, draws and comparison."""
    theory = sampler.solve(RECIPE)
    draws = sampler.sample(RECIPE, **CHAINS, progress=False)
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
def test_numbers_are_those_of_the_command_line(results, tmp_path, undrawn):
    theory, draws, comparison = results
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SMALLEST)
    directory = tmp_path / "run"
    code = in_process("run", recipe, "--out", directory, *settings(*FEW_DRAWS, "theory.starts=1"))
    assert code == ExitCode.DIAGNOSTICS_FAILED  # six draws
    stored = xr.load_dataset(directory / "theory.nc", engine="h5netcdf")
    xr.testing.assert_identical(theory.drop_attrs(), stored.drop_attrs())
    assert theory.attrs.keys() == stored.attrs.keys() - {"fingerprint"}
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


@pytest.mark.slow
def test_stored_draws_are_the_same_and_go_on_where_they_were(results, tmp_path):
    stored = sampler.sample(RECIPE, **CHAINS, out=tmp_path / "kept", progress=False)
    assert stored["posterior"].equals(results[1]["posterior"])
    written = (tmp_path / "kept" / "draws.nc").stat().st_mtime_ns
    again = sampler.sample(RECIPE, **CHAINS, out=tmp_path / "kept", progress=False)
    assert again["posterior"].equals(stored["posterior"])
    assert (tmp_path / "kept" / "draws.nc").stat().st_mtime_ns == written
    with pytest.raises(InputError) as refused:
        sampler.sample(RECIPE, **CHAINS, seed=1, out=tmp_path / "kept", progress=False)
    assert refused.value.field == "out"


def test_rows_of_many_examples_are_those_of_the_network_that_is_asked_for():
    """They stand for the examples; other networks of the same task have others."""
    recipe = RECIPE.changed({"task.examples_train": 40})
    for other in ({}, {"network.readout": "mean"}, {"network.heads": [[1], [0]]}):
        asked = recipe.changed(other)
        received = sampler.make_problem(asked).learning
        KNOWN.clear()
        expected = sampler.make_problem(asked).learning
        assert received.attended.shape[0] < 40
        np.testing.assert_array_equal(received.attended, expected.attended)
        np.testing.assert_array_equal(received.labels, expected.labels)


def test_data_are_made_once_and_again_where_a_file_changes(tmp_path, rng):
    path = tmp_path / "mine.npz"
    recipe = sampler.Recipe(task=sampler.Arrays(path), network={"widths": 3})
    for labels in (rng.choice([-1.0, 1.0], 5), rng.choice([-2.0, 2.0], 5)):
        np.savez(path, **small_arrays(rng) | {"labels_train": labels})
        first, other = data_of(recipe), data_of(recipe.changed({"network.widths": 4}))
        assert first is other
        np.testing.assert_array_equal(first.data.train.labels[:, 0], labels)
    for seed in range(2 * MOST_KNOWN):
        data_of(RECIPE.changed({"task.seed": seed}))
    assert len(KNOWN) == MOST_KNOWN


def warned(call) -> tuple:
    """What a call returns, and its warnings on results."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    of_results = [one for one in caught if issubclass(one.category, sampler.ReliabilityWarning)]
    return result, [str(one.message) for one in of_results]


@pytest.mark.slow
def test_draws_and_theories_that_fail_are_warned_of():
    draws, found = warned(lambda: sampler.sample(RECIPE, **CHAINS, progress=False))
    assert sampler.compare(None, draws).reliability.tone == "bad"
    (text,) = found
    assert " 6 draws" in text
    theory, found = warned(lambda: sampler.solve(RECIPE.changed({"theory.max_steps": 1})))
    assert not theory.attrs["converged"]
    assert len(found) == 1


UNSOLVED = """
import sampler
task = sampler.MarkovChain(examples_train=6, examples_test=10, tokens=4, features=6)
recipe = sampler.Recipe(task=task, network={"widths": 3}, theory={"max_steps": 1})
sampler.solve(recipe)
"""


@pytest.mark.slow
def test_what_calls_is_the_line_that_is_warned_of():
    """In a process of its own, where no annotation is checked in between."""
    done = subprocess.run(
        [sys.executable, "-c", UNSOLVED], cwd=ROOT, env=environment(None), check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert re.findall(r"^(.*): ReliabilityWarning", done.stderr, re.MULTILINE) == ["<string>:5"]


@pytest.mark.slow
def test_of_results_that_pass_nothing_is_said():
    theory, found = warned(lambda: sampler.solve(RECIPE))
    assert theory.attrs["converged"]
    assert not found
    draws, found = warned(lambda: sampler.sample(RECIPE, progress=False))
    assert sampler.compare(theory, draws).reliability.tone == "good"
    assert not found


@pytest.mark.slow
def test_theories_of_nonlinear_values_are_compared_as_theories_of_ones_own_are():
    """Of all quantities that they predict, beside a prediction of the user's."""
    recipe = RECIPE.changed({"network.values": "erf"})
    theories = sampler.solve(recipe)
    draws = sampler.sample(recipe, **CHAINS, progress=False)
    mine = {"predictor_mean": np.zeros(10)}
    found = sampler.compare(theories, draws, own={"mine": mine})
    assert list(found.user_verdicts) == ["mine"]
    predicted = found.elements("predictor_mean")["predicted"]
    assert set(predicted["predictor"].values) == {"infinite", "mine"}
    expected = theories["predictor_mean"].sel(predictor="infinite")
    np.testing.assert_array_equal(predicted.sel(predictor="infinite"), expected)
    # A centred Gaussian regression: the variance is at most that of the prior.
    assert (theories["predictor_variance"] > 0).all()
    with pytest.raises(InputError, match=r"^theory = "):
        sampler.head_importance(theories)
