"""What a theory says of heads: U₁ by loops, its predictor by plain algebra, smaller networks."""

import numpy as np
import pytest

import sampler
from runs.studies.which_heads.mathematics import numbers_of_theory, rank_correlation
from sampler.data.make import build_task

HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]
PATHS = [(one, two) for one in range(2) for two in range(2)]
TEMPERATURE = 0.2


@pytest.fixture(scope="module")
def found():
    """A recipe, its theory, and the numbers of its heads."""
    recipe = sampler.Recipe(
        task=sampler.MarkovChain(
            seed=3, examples_train=20, examples_validation=15, examples_test=5, tokens=8,
            features=12,
        ),
        attention={"heads": [["good", "uniform"], ["good", "random"]]},
        network={"widths": 6},
        posterior={"temperature": TEMPERATURE},
        theory={"next_order": False},
    )  # fmt: skip
    return recipe, sampler.solve(recipe), numbers_of_theory(recipe, HEADS)


def gained(recipe, theory, head, learned_again: bool) -> float:
    """The squared loss gained where a head's rows of U₁ are zero, before learning or after."""
    problem, data = sampler.make_problem(recipe), build_task(recipe)
    seen, unseen = (
        np.asarray(one, np.float64)
        for one in (problem.learning.attended, problem.attended_validation)
    )
    overlap = theory["order_parameter"].sel(predictor="leading").values
    without = np.array([path[head[0]] != head[1] for path in PATHS], float)

    def kernel(one, other, overlap):
        return np.einsum("xpi,pq,yqi->xy", one, overlap, other) / (len(PATHS) * one.shape[2])

    def loss(learned, used):
        noise = TEMPERATURE * np.eye(len(seen))
        alpha = np.linalg.solve(kernel(seen, seen, learned) + noise, data.train.labels)
        residuals = kernel(unseen, seen, used) @ alpha - data.validation.labels
        return (residuals**2).sum(axis=1).mean()

    cut = without[:, None] * overlap
    fewer = cut * without
    after = loss(fewer, fewer) if learned_again else loss(overlap, cut)
    return after - loss(overlap, overlap)


@pytest.mark.parametrize(("key", "learned_again"), [("removed", False), ("zeroed", True)])
def test_losses_without_a_head_are_those_of_plain_algebra(found, key, learned_again):
    *chosen, numbers = found
    expected = [gained(*chosen, head, learned_again) for head in HEADS]
    np.testing.assert_allclose(numbers[key], expected, rtol=1e-8, atol=1e-10)


def test_scores_are_shares_of_the_entries_of_paths_through_a_head(found):
    _, theory, numbers = found
    overlap = np.abs(theory["order_parameter"].sel(predictor="leading").values)
    shares = []
    for layer, head in HEADS:
        rows = [at for at, path in enumerate(PATHS) if path[layer] == head]
        shares.append(sum(overlap[a, b] for a in range(4) for b in range(4) if {a, b} & {*rows}))
    np.testing.assert_allclose(numbers["score"], np.array(shares) / max(shares), rtol=1e-12)


def test_a_network_solved_again_is_the_one_of_the_other_heads(found):
    recipe, theory, numbers = found
    smaller = sampler.solve(recipe.changed({"network.heads": [[1], [0, 1]]}))
    losses = [
        float(one["validation_squared_error"].sel(predictor="leading")) for one in (smaller, theory)
    ]
    received = numbers["solved_again"][HEADS.index((0, 0))]
    assert received == pytest.approx(losses[0] - losses[1], rel=1e-5)


def test_a_rank_correlation_has_an_interval_around_it(rng):
    """Of pairs with a correlation ρ the interval of 200 is as wide as 4 (1 − ρ²)/√200, nearly."""
    one = rng.standard_normal(200)
    found = rank_correlation(one, one + rng.standard_normal(200), resampled=300)
    assert found["low"] < found["rho"] < found["high"]
    assert 0.5 < (found["high"] - found["low"]) / (4 * (1 - found["rho"] ** 2) / 200**0.5) < 2.0
    same = rank_correlation(np.arange(8.0), np.arange(8.0), resampled=50)
    assert list(same.values()) == pytest.approx([1.0, 1.0, 1.0])
