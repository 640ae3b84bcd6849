"""Leave-one-out cross-validation of draws and of infinite width."""

import hashlib
import warnings
from functools import cache

import arviz_stats
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import sampler
import sampler.problem
from sampler.analysis import cross_validation
from sampler.analysis.cross_validation import (
    error_of_total,
    limit_of_k,
    pointwise_elpd,
    relative_efficiency,
)
from sampler.analysis.estimates import Averages
from sampler.network import network_outputs
from tests import FIXTURES
from tests.dense import dense_kernel
from theory import OrderParameters

TEMPERATURE = 0.3
# Two layers of two heads and three channels: twelve features.
FEW, MANY = 8, 30


@cache
def chosen(examples: int) -> sampler.Recipe:
    rng, arrays = np.random.default_rng(examples), {}
    for split, count in (("train", examples), ("test", 4)):
        arrays[f"inputs_{split}"] = rng.standard_normal((count, 3, 3))
        arrays[f"labels_{split}"] = rng.standard_normal((count, 2))
        arrays[f"attention_{split}"] = [rng.random((count, 2, 3, 3)) for _ in range(2)]
    return sampler.Recipe(
        task=sampler.Arrays(**arrays),
        network={"widths": 6},
        posterior={"temperature": TEMPERATURE},
        theory={"starts": 1},
    )


def problem_for(examples: int):
    return sampler.make_problem(chosen(examples))


@pytest.mark.slow
def test_log_likelihoods_are_those_of_the_stored_draws():
    """Given all weights by the network, of the examples that rows stand for."""
    few = {"chains": 2, "warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3}
    tree = sampler.sample(chosen(MANY), **few, space="weights", weight_draws=6, progress=False)
    problem, expected = problem_for(MANY), []
    ((attended, labels),) = problem.blocks()
    assert problem.learning.residual_examples > 0
    for chain, draw in np.ndindex(2, 6):
        weights = {
            name: jnp.asarray(tree["posterior_weights"][name].values[chain, draw])
            for name in problem.architecture.weight_shapes
        }
        outputs = network_outputs(weights, jnp.asarray(attended), problem.architecture)
        expected.append(norm.logpdf(labels, outputs, TEMPERATURE**0.5).sum(axis=1))
    received = tree["log_likelihood"]["y"]
    assert received.dtype == np.float32
    expected = np.reshape(expected, received.shape)
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(tree["observed_data"]["y"], labels)


def test_of_too_many_examples_nothing_is_said_of_single_ones(monkeypatch):
    for module in (sampler.problem, cross_validation):
        monkeypatch.setattr(module, "MOST_POINTWISE", MANY)
    assert problem_for(MANY).training_examples is None
    assert problem_for(FEW).training_examples is not None
    assert not {"elpd", "elpd_by_example"} & set(sampler.solve(chosen(MANY)))


def correlated(rng, examples: int = 7) -> np.ndarray:
    """Log likelihoods [chain, draw, example], some of them with heavy tails."""
    tails = np.linspace(0.05, 0.9, examples)
    return -rng.standard_exponential((2, 500, examples)) * tails - 1.0


def test_terms_are_those_of_arviz(rng):
    values = correlated(rng)
    found, _ = pointwise_elpd(values)
    axes = ("chain", "draw", "example")
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"u": (axes[:2], values[..., 0])}),
            "log_likelihood": xr.Dataset({"y": (axes, values)}),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large k are meant to be here
        loo = arviz_stats.loo(tree, pointwise=True, reff=relative_efficiency(values))
    np.testing.assert_allclose(found["elpd"], loo.elpd_i, rtol=1e-10)
    np.testing.assert_allclose(found["pareto_k"], loo.pareto_k, rtol=1e-10)
    assert limit_of_k(1000) == pytest.approx(loo.good_k, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("repetitions", [None, 8])
def test_the_error_of_the_sum_is_that_of_independent_repetitions(repetitions, rng):
    """Terms come from the same draws: θ of N(0, 0.3²), where ln p(y_i | θ) = −(y_i − θ)²/2."""
    labels = np.linspace(-1.0, 2.0, 12)
    averages = Averages(None if repetitions is None else np.full(repetitions, 1.0 / repetitions))
    sums, errors = [], []
    for _ in range(200):
        drawn = 0.3 * rng.standard_normal((repetitions or 2, 1600 // (repetitions or 2), 1))
        terms, moved = pointwise_elpd(-0.5 * (labels - drawn) ** 2, averages)
        sums.append(terms["elpd"].sum())
        errors.append(error_of_total(moved, averages))
    # A standard deviation of 200 values is known to 5 %.
    assert np.mean(np.square(errors)) ** 0.5 == pytest.approx(np.std(sums, ddof=1), rel=0.2)


def test_few_draws_give_numbers_for_every_example():
    """Of some samples this small the library makes weights that are not finite."""
    with xr.open_datatree(FIXTURES / "finished" / "draws.nc", engine="h5netcdf") as tree:
        values = tree["log_likelihood"]["y"].values
    found, _ = pointwise_elpd(values)
    assert np.isfinite(found["elpd"]).all()
    assert np.isfinite(found["mcse"]).all()


def test_repetitions_count_by_their_weights():
    """1/p(y_i | y_{−i}) is the weighted mean of 1/p(y_i | draw); so few draws have no tail."""
    values = np.random.default_rng(3).standard_normal((3, 6, 4))
    weights = np.array([0.2, 0.5, 0.3])
    found, _ = pointwise_elpd(values, Averages(weights))
    inverse = np.exp(-values).mean(axis=1)
    np.testing.assert_allclose(found["elpd"], -np.log(weights @ inverse), rtol=1e-12)
    # To first order what −ln of the mean changes by without each repetition, and with the mean to
    # second order in cumulants of the weights in its place, three times.
    apart = 1.0 - inverse / (weights @ inverse)
    without = weights[:, None] / (1.0 - weights[:, None]) * apart
    logs = np.log(weights)
    beyond = apart.mean(axis=0) + (logs - logs.mean()) @ apart / 2
    square = 2 / 3 * np.sum(without**2, axis=0) + 9.0 * beyond**2
    np.testing.assert_allclose(found["mcse"], np.sqrt(square), rtol=1e-12)
    alone, _ = pointwise_elpd(values, Averages(np.array([0.0, 1.0, 0.0])))
    np.testing.assert_allclose(alone["elpd"], -np.log(inverse[1]), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [FEW, MANY])
def test_infinite_width_is_left_out_exactly_and_labels_are_identified(examples):
    """ln p(y_i | y_{−i}) of the dense Gaussian of all labels, its inverse at i and i."""
    problem, theory = problem_for(examples), sampler.solve(chosen(examples))
    ((attended, labels),) = problem.blocks()
    overlap = OrderParameters.gp_limit(problem.architecture).matrices[0]
    kernel = dense_kernel(attended, attended, np.asarray(overlap), problem.architecture)
    inverse = np.linalg.inv(kernel + TEMPERATURE * np.eye(len(kernel)))
    # At infinite width outputs are independent of each other.
    variance = 1.0 / np.diagonal(inverse)
    gap = variance * (inverse @ np.ravel(labels))
    expected = norm.logpdf(gap, 0.0, np.sqrt(variance)).reshape(examples, -1).sum(axis=1)
    elpd = theory["elpd_by_example"]
    np.testing.assert_allclose(elpd.sel(predictor="infinite"), expected, rtol=1e-5)
    assert elpd.dims == ("predictor", "example")
    known = np.ascontiguousarray(labels, dtype=np.float64).tobytes()
    assert elpd.attrs["labels"] == hashlib.sha256(known).hexdigest()
