"""Leave-one-out cross-validation of draws, of theories, and of models side by side."""

import hashlib
import warnings
from functools import cache

import arviz_stats
import jax
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
from sampler.problem import square_roots
from tests import FIXTURES
from theory import Combinations, OrderParameters, left_out_log_density

TEMPERATURE = 0.3
# Two layers of two heads and three channels: twelve features.
FEW, MANY = 8, 30
CHAINS = {"chains": 2, "warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3}


def arrays(examples: int, outputs: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(examples)
    found = {}
    for split, count in (("train", examples), ("test", 4)):
        found[f"inputs_{split}"] = rng.standard_normal((count, 3, 3))
        labels = rng.standard_normal((count, outputs))
        found[f"labels_{split}"] = labels[:, 0] if outputs == 1 else labels
        found[f"attention_{split}"] = [rng.random((count, 2, 3, 3)) for _ in range(2)]
    return found


@cache
def chosen(examples: int, outputs: int = 1) -> sampler.Recipe:
    return sampler.Recipe(
        task=sampler.Arrays(**arrays(examples, outputs)),
        network={"widths": 6},
        posterior={"temperature": TEMPERATURE},
        theory={"starts": 1},
    )


def drawn(space: str, examples: int, outputs: int = 1, **settings) -> xr.DataTree:
    given = {**CHAINS, **settings, "space": space, "weight_draws": 6}
    return sampler.sample(chosen(examples, outputs), **given, progress=False)


def problem_for(examples: int, outputs: int = 1):
    return sampler.make_problem(chosen(examples, outputs))


def examples_of(problem, attended, labels):
    if not problem.learning.residual_examples:
        return None
    return Combinations.of(problem.learning, attended, labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "examples", "outputs"),
    [("order_parameters", FEW, 1), ("order_parameters", MANY, 2), ("weights", MANY, 2)],
)
def test_log_likelihoods_are_those_of_the_stored_draws(space, examples, outputs):
    """Given all weights by the network, given U_1 by the kernel machine without the example."""
    tree, problem = drawn(space, examples, outputs), problem_for(examples, outputs)
    (attended, labels), *more = problem.blocks()
    assert not more
    assert (problem.learning.residual_examples > 0) is (examples == MANY)
    posterior, expected = tree["posterior"].to_dataset(), []
    for chain, draw in np.ndindex(2, 6):
        if space == "weights":
            names = problem.architecture.weight_shapes
            weights = {
                n: jnp.asarray(tree["posterior_weights"][n].values[chain, draw]) for n in names
            }
            outputs_there = network_outputs(weights, jnp.asarray(attended), problem.architecture)
            density = norm.logpdf(labels, outputs_there, TEMPERATURE**0.5)
            expected.append(density.sum(axis=1))
        else:
            factor = jnp.asarray(square_roots(posterior["order_parameter"].values[chain, draw]))
            asked = examples_of(problem, attended, labels)
            expected.append(left_out_log_density(problem.learning, factor, asked))
    received = tree["log_likelihood"]["y"]
    assert received.dtype == np.float32
    np.testing.assert_allclose(
        received.values.reshape(12, -1), np.array(expected), rtol=1e-5, atol=1e-5
    )
    known = tree["observed_data"]["y"].values.reshape(np.shape(labels))
    np.testing.assert_array_equal(known, labels)


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
    problem = problem_for(examples)
    theory = sampler.solve(chosen(examples))
    limit = OrderParameters.gp_limit(problem.architecture).factors[0]
    with jax.enable_x64(True):
        (attended, labels), *_ = problem.blocks()
        asked = examples_of(problem, attended, labels)
        expected = left_out_log_density(problem.learning, limit, asked)
    elpd = theory["elpd_by_example"]
    np.testing.assert_allclose(elpd.sel(predictor="infinite"), expected, rtol=1e-6)
    assert elpd.dims == ("predictor", "example")
    known = np.ascontiguousarray(labels, dtype=np.float64).tobytes()
    assert elpd.attrs["labels"] == hashlib.sha256(known).hexdigest()
