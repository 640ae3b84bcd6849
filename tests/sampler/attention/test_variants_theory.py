"""Every attention variant that fits the theory is described by it, up to finite width."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.data.make import build_task
from sampler.posterior.importance_sampling import importance_draws
from sampler.problem import build_problem
from sampler.settings.recipe import Recipe
from tests.problems import (
    space_of,
    weighted_mean_and_error,
)
from theory import LearningProblem, solve_saddle_point

TWO_LAYERS = [["good", "random"], ["uniform", "random"]]
# attention.form, the heads, and whether they make a hypernetwork: four paths each
KINDS = {
    "softmax": ({"kind": "softmax"}, TWO_LAYERS, False),
    "linear": ({"kind": "linear"}, TWO_LAYERS, False),
    "hypernetwork": ({"kind": "head_normalised"}, [["good", "random"]], True),
    "softmax hypernetwork": ({"kind": "softmax"}, [["good", "random"]], True),
}
WIDTHS = (30, 100, 300)
DRAWS = 40_000


@cache
def problem_of(kind: str, width: int) -> LearningProblem:
    """Twenty sequences of the hidden Markov task, seen through one attention variant.

    Fewer than channels: labels that could not be fitted would make U_1 large, and 1/N begin late.
    """
    form, heads, is_pair = KINDS[kind]
    sizes = {"examples_train": 20, "examples_test": 2, "tokens": 6, "features": 20}
    recipe = Recipe(
        name="forms",
        task={"kind": "markov_chain", **sizes},
        attention={"heads": heads, "form": form, "inverse_temperature": 3.0},
        network={"widths": width, "hypernetwork": is_pair},
        posterior={"temperature": 0.01},
    )
    return build_problem(recipe, build_task(recipe)).learning


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["linear", pytest.param("hypernetwork", marks=pytest.mark.nightly)]
)
def test_the_difference_falls_with_the_width(kind):
    """‖E[U_1] − U_1 of the theory‖ is resolved at N = 30 and falls at least as fast as 1/N."""
    found = {width: difference(kind, width) for width in WIDTHS}
    scaled = {width: width * size for width, (size, _) in found.items()}
    errors = {width: width * error for width, (_, error) in found.items()}
    first = WIDTHS[0]
    assert scaled[first] > 4 * errors[first], "too few draws to see a difference"
    for width in WIDTHS[1:]:
        assert scaled[width] <= scaled[first] + 4 * np.hypot(errors[width], errors[first])


@pytest.mark.slow
@pytest.mark.nightly
def test_the_difference_does_not_fall_for_another_attention():
    """The theory of two products is not that of a hypernetwork's Hadamard products."""
    (size, error), first = (
        difference("softmax hypernetwork", WIDTHS[-1], theory_of="softmax"),
        difference("softmax hypernetwork", WIDTHS[0]),
    )
    bound = WIDTHS[0] * first[0] + 4 * np.hypot(WIDTHS[-1] * error, WIDTHS[0] * first[1])
    assert WIDTHS[-1] * size > bound


@cache
def difference(kind: str, width: int, theory_of: str | None = None) -> tuple[float, float]:
    """Frobenius norm of sampled minus theoretical U_1, and that of the Monte Carlo errors."""
    saddle = solve_saddle_point(problem_of(theory_of or kind, width))
    assert saddle.converged, saddle.explain()
    mean, error = sampled_overlap(kind, width)
    apart = mean - np.asarray(saddle.order_parameters.matrices[0])
    return float(np.linalg.norm(apart)), float(np.linalg.norm(error))


@cache
def sampled_overlap(kind: str, width: int) -> tuple[np.ndarray, np.ndarray]:
    """E[U_1] and its errors, from independent draws of the exact posterior."""
    space = space_of(problem_of(kind, width))
    draws = importance_draws(space, DRAWS, seed=width)
    assert draws.trusted, draws.explain()
    assert draws.effective_sample_size > DRAWS / 10

    def overlap(point):
        factor = space.factors(space.unflatten(point))[0]
        return factor @ factor.T

    overlaps = jax.jit(jax.vmap(overlap))(jnp.asarray(draws.points))
    return weighted_mean_and_error(draws.weights, np.asarray(overlaps))
