"""The package from Python: the same numbers as the command line, warnings, extreme data."""

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
from tests.commands import (
    FEW_DRAWS,
    TINY,
    TINY_IN_PYTHON,
    environment,
    in_process,
    settings,
)

RECIPE = sampler.Recipe(**TINY_IN_PYTHON)
# FEW_DRAWS, in Python.
CHAINS = {
    "warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3, "progress": False
}  # fmt: skip


@pytest.mark.slow
def test_numbers_are_those_of_the_command_line(tmp_path, undrawn):
    theory = sampler.solve(RECIPE)
    draws = sampler.sample(RECIPE, **CHAINS, out=tmp_path / "kept")
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ["run", tmp_path / "tiny.toml", "--out", tmp_path / "run", *settings(*FEW_DRAWS)]
    assert in_process(*words) == ExitCode.DIAGNOSTICS_FAILED  # six draws
    stored = xr.load_dataset(tmp_path / "run" / "theory.nc", engine="h5netcdf")
    xr.testing.assert_identical(theory.drop_attrs(), stored.drop_attrs())
    assert theory.attrs.keys() == stored.attrs.keys() - {"fingerprint"}
    with xr.open_datatree(tmp_path / "run" / "draws.nc", engine="h5netcdf") as tree:
        assert set(tree.children) == set(draws.children)
        for group in draws.children:
            expected, received = tree[group].to_dataset(), draws[group].to_dataset()
            xr.testing.assert_identical(received.drop_attrs(), expected.drop_attrs())
    sampler.compare(theory, draws).save(tmp_path / "comparison.json")
    expected, received = (
        json.loads((folder / "comparison.json").read_text())
        for folder in (tmp_path / "run", tmp_path)
    )
    # times are of this process, not of the other one
    assert expected.pop("cost").keys() == received.pop("cost").keys()
    assert received == expected
    # What was stored is opened, and other draws do not take its place.
    written = (tmp_path / "kept" / "draws.nc").stat().st_mtime_ns
    again = sampler.sample(RECIPE, **CHAINS, out=tmp_path / "kept")
    assert again["posterior"].equals(draws["posterior"])
    assert (tmp_path / "kept" / "draws.nc").stat().st_mtime_ns == written
    with pytest.raises(InputError) as refused:
        sampler.sample(RECIPE, **CHAINS, seed=1, out=tmp_path / "kept")
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
    arrays = {"heads": np.array([2])}
    arrays |= {f"attended_{split}": rng.standard_normal((5, 2, 3)) for split in ("train", "test")}
    for labels in (rng.choice([-1.0, 1.0], 5), rng.choice([-2.0, 2.0], 5)):
        np.savez(path, **arrays, labels_train=labels, labels_test=labels)
        first, other = data_of(recipe), data_of(recipe.changed({"network.widths": 4}))
        assert first is other
        np.testing.assert_array_equal(first.data.train.labels[:, 0], labels)
    for seed in range(2 * MOST_KNOWN):
        data_of(RECIPE.changed({"task.seed": seed}))
    assert len(KNOWN) == MOST_KNOWN


# --- warnings


def warned(call) -> tuple:
    """What a call returns, and how often it warns of results."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, sum(issubclass(one.category, sampler.ReliabilityWarning) for one in caught)


@pytest.mark.slow
def test_of_draws_and_theories_that_fail_and_of_no_others_is_warned():
    draws, count = warned(lambda: sampler.sample(RECIPE, **CHAINS))
    assert (sampler.compare(None, draws).reliability.tone, count) == ("bad", 1)
    theory, count = warned(lambda: sampler.solve(RECIPE.changed({"theory.max_steps": 1})))
    assert (theory.attrs["converged"], count) == (0, 1)
    theory, count = warned(lambda: sampler.solve(RECIPE))
    assert (theory.attrs["converged"], count) == (1, 0)
    draws, count = warned(lambda: sampler.sample(RECIPE, progress=False))
    assert (sampler.compare(theory, draws).reliability.tone, count) == ("good", 0)


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


# --- temperatures and data of extreme size: numbers that mean something, or one sentence


def extreme_recipe(temperature: float, *, inputs=1.0, labels=1.0) -> sampler.Recipe:
    rng = np.random.default_rng(1)
    attended = rng.standard_normal((20, 4, 3))
    signs = np.sign(attended[:, 0, 0])
    task = sampler.Arrays(
        attended=inputs * attended,
        labels=labels * signs,
        attended_test=inputs * (attended[:5] + 0.1),
        labels_test=labels * signs[:5],
        heads=[2, 2],
    )
    return sampler.Recipe(task=task, network={"widths": 5}, posterior={"temperature": temperature})


# The trace of K is 17: 𝒯 is lost below 4e-15. Of 1e150 squares are known, and sums of them.
@pytest.mark.parametrize(
    "extreme",
    [
        {"temperature": 1e-16},
        {"temperature": 0.2, "inputs": 1e150},
        {"temperature": 0.2, "labels": 1e150},
    ],
)
@pytest.mark.parametrize("function", [sampler.solve, sampler.sample])
def test_what_cannot_be_factorised_is_refused(extreme, function):
    few = {"draws": 30, "warmup": 30, "progress": False} if function is sampler.sample else {}
    with pytest.raises(InputError) as caught:
        function(extreme_recipe(**extreme), **few)
    assert caught.value.field == "posterior.temperature"
    assert caught.value.value == extreme["temperature"]


@pytest.mark.slow
def test_at_the_lowest_temperature_results_are_compared():
    """No variance is negative and no probability is NaN."""
    recipe = extreme_recipe(4e-15)
    theory = sampler.solve(recipe)
    for name in ("leading", "infinite", "infinite_tuned"):
        assert (theory["predictor_variance"].sel(predictor=name) >= 0.0).all()
    assert np.isfinite(theory["elpd_by_example"].sel(predictor="infinite")).all()
    few = {"chains": 2, "draws": 10, "warmup": 10, "space": "order_parameters", "progress": False}
    comparison = sampler.compare(theory, sampler.sample(recipe, **few))
    for score in ("log_predictive_density", "expected_calibration_error"):
        for predictor in ("leading", "infinite", "sampled"):
            assert np.isfinite(comparison.rows[score, predictor]["value"])
