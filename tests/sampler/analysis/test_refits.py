"""Slow: PSIS against posteriors sampled without each example, in every space."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import norm

import sampler
from sampler.analysis.estimates import batch_means
from tests.assertions import assert_within_mcse
from tests.problems import all_but

pytestmark = pytest.mark.slow

EXAMPLES, TEMPERATURE = 12, 0.5
SPACES = ("order_parameters", "hidden_weights", "weights")
CHAINS = {"chains": 4, "draws": 1000, "progress": False}


@cache
def data():
    """Inputs [example, token, channel], attention, and labels that one path predicts in part."""
    rng = np.random.default_rng(7)
    inputs, attention = rng.standard_normal((EXAMPLES, 3, 4)), rng.random((EXAMPLES, 2, 3, 3))
    seen = np.einsum("xkc,xk->xc", inputs, attention[:, 0, :, -1])
    return inputs, attention, seen[:, 0] + 0.5 * rng.standard_normal(EXAMPLES)


def sampled(train: np.ndarray, test: np.ndarray, space: str):
    inputs, attention, labels = data()
    given = {
        f"{name}_{split}": array[chosen]
        for split, chosen in (("train", train), ("test", test))
        for name, array in (("inputs", inputs), ("labels", labels))
    }
    given |= {"attention_train": [attention[train]], "attention_test": [attention[test]]}
    recipe = sampler.Recipe(
        task=sampler.Arrays(**given),
        network={"widths": 4},
        posterior={"temperature": TEMPERATURE},
    )
    return sampler.sample(recipe, space=space, **CHAINS)


@cache
def refitted() -> tuple[np.ndarray, np.ndarray]:
    """ln p(y_i | y_{−i}) of each example by chains that never saw it, and its MCSE."""
    found = []
    for example in range(EXAMPLES):
        out = np.arange(EXAMPLES) == example
        predictions = sampled(np.flatnonzero(~out), np.flatnonzero(out), "order_parameters")
        mean, variance = (
            predictions["predictions"][f"predictor_{name}"].values.astype(float)
            for name in ("mean", "variance")
        )
        density = norm.pdf(data()[2][example], mean, np.sqrt(variance + TEMPERATURE))
        batches = batch_means(density[..., 0])
        error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
        found.append((np.log(density.mean()), error / density.mean()))
    value, error = np.array(found).T
    return value, error


@pytest.mark.parametrize("space", all_but(SPACES, ["order_parameters"], pytest.mark.long))
def test_leaving_out_is_sampling_without(space):
    everything = np.arange(EXAMPLES)
    table = sampled(everything, everything[:1], space)["leave_one_out"]
    reliable = table["pareto_k"].values < 0.7
    assert reliable.sum() >= EXAMPLES - 2
    value, error = refitted()
    both = np.hypot(error, table["mcse"].values)
    assert_within_mcse(table["elpd"].values[reliable], value[reliable], both[reliable])
