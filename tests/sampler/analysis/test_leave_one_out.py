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
    leave_one_out_table,
    limit_of_k,
    pointwise_elpd,
    relative_efficiency,
)
from sampler.analysis.estimates import Averages
from sampler.mcmc.collected_draws import LIMITS
from sampler.network import network_outputs
from tests import FIXTURES
from tests.dense import dense_kernel
from tests.problems import TRAIN, autoregressive, collect, small_problem, within
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
def test_errors_are_those_of_independent_repetitions(repetitions, rng):
    """Of terms and their sum, which come from the same draws, autocorrelated in chains.

    θ of N(0, 0.3²), where ln p(y_i | θ) = −(y_i − θ)²/2.
    """
    labels = np.linspace(-1.0, 2.0, 12)
    averages = Averages(None if repetitions is None else np.full(repetitions, 1.0 / repetitions))
    shape, correlation = (repetitions or 2, 1600 // (repetitions or 2)), 0.0 if repetitions else 0.7
    found, errors = [], []
    for _ in range(200):
        drawn = 0.3 * autoregressive(rng, correlation, shape)[..., None]
        terms, moved = pointwise_elpd(-0.5 * (labels - drawn) ** 2, averages)
        found.append([*terms["elpd"], terms["elpd"].sum()])
        errors.append([*terms["mcse"], error_of_total(moved, averages)])
    # A standard deviation of 200 values is known to 5 %; how many draws those of a chain are worth
    # is not the same for all terms, of which one number is known.
    ratio = np.mean(np.square(errors), axis=0) ** 0.5 / np.std(found, axis=0, ddof=1)
    assert ratio[-1] == pytest.approx(1.0, rel=0.2)
    np.testing.assert_allclose(ratio[:-1], 1.0, rtol=0.35)


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


@pytest.mark.parametrize("thinned", [False, True])
def test_the_table_of_a_run_has_the_terms_of_its_weighted_draws(thinned, rng):
    """Of those that were kept; with the labels, by which runs are known to have the same."""
    problem, values = small_problem(rng), rng.standard_normal((2, 8, TRAIN))
    weights = np.array([0.25, 0.75])
    statistics = {
        "lp": np.zeros((2, 8)),
        "ancestor": np.ones((2, 8)),
        "log_evidence": np.log(weights)[:, None] * np.ones((2, 8)),
    }
    limits = within(values.nbytes // 8, names=("log_likelihood",)) if thinned else LIMITS
    collected = collect({"log_likelihood": values}, statistics, limits=limits)
    kept = collected.thinned["log_likelihood"].values if thinned else values
    assert (kept.shape[1] < 8) == thinned
    table = leave_one_out_table(problem, collected, "weights")
    inverse = np.exp(-np.asarray(kept, float)).mean(axis=1)
    np.testing.assert_allclose(table["elpd"], -np.log(weights @ inverse), rtol=1e-5)
    assert table.attrs["draws"] == 2 * kept.shape[1]
    labels = np.asarray(problem.labels, dtype=np.float64)
    np.testing.assert_array_equal(table["y"], labels)
    assert table.attrs["labels"] == hashlib.sha256(labels.tobytes()).hexdigest()
    # What each draw moves the sum by, to first order: the error of their weighted mean.
    apart = (1.0 - inverse / (weights @ inverse)).sum(axis=1)
    error = Averages(weights).mean(np.broadcast_to(apart[:, None], (2, 8))).mcse
    assert table.attrs["mcse_of_sum"] == pytest.approx(float(error), rel=1e-5)


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
