"""The posteriors that are timed against each other: a table of named spaces.

A row is a function of a width and a precision that returns a model of NumPyro and its arguments. A
new space joins every benchmark by one more row.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import jax.numpy as jnp

from sampler.posterior.space import chain_model
from sampler.problem import build_problem
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.tasks.make import build_task
from sampler.tasks.task import Task
from tests import ROOT
from tests.benchmarks.token_by_token import token_by_token_model
from tests.problems import space_of
from tests.reference_data import load_reference, reference_problem
from theory import LearningProblem

RECIPE = ROOT / "runs" / "markov_four_paths.toml"
# Too few for their cost to matter: only gradients and order parameters are timed.
TEST_EXAMPLES = 2
# A model of NumPyro and its arguments.
Competitor = tuple[Callable, tuple]


def published_problem(width: int) -> LearningProblem:
    """The published problem: 100 examples, four paths, 231 channels."""
    return reference_problem(load_reference(), width)


@cache
def markov_task() -> Task:
    """The task of the shipped recipe: the sizes of the published problem, with its tokens."""
    return build_task(markov_recipe(10))


def markov_recipe(width: int, overrides: Sequence[str] = ()) -> Recipe:
    """The shipped recipe at one width."""
    own = [f"network.widths={width}", "sweep={}", f"task.examples_test={TEST_EXAMPLES}"]
    return load_recipe(RECIPE, [*own, *overrides])


def markov_problem(width: int) -> LearningProblem:
    """The learning problem of the shipped recipe."""
    return build_problem(markov_recipe(width), markov_task()).learning


def path_contracted(
    problem_at: Callable[[int], LearningProblem], width: int, precision: str
) -> Competitor:
    """This project's space of all weights."""
    return chain_model, (space_of(problem_at(width), "weights", precision=precision),)


def token_by_token(width: int, precision: str) -> Competitor:
    """The recipe's posterior of all weights with a forward pass over tokens."""
    problem, train = markov_problem(width), markov_task().train
    arguments = (
        jnp.asarray(train.inputs, precision),
        tuple(jnp.asarray(matrices, precision) for matrices in train.attention),
        jnp.asarray(train.labels, precision),
        jnp.asarray(problem.temperature, precision),
    )
    return partial(token_by_token_model, architecture=problem.architecture), arguments


# The baseline of all ratios is the last row.
COMPETITORS: dict[str, Callable[[int, str], Competitor]] = {
    "path-contracted, published data": partial(path_contracted, published_problem),
    "path-contracted, recipe's data": partial(path_contracted, markov_problem),
    "token by token, recipe's data": token_by_token,
}
BASELINE = "token by token, recipe's data"
