"""Small recipes with learned heads, beside those of the random heads that are one draw of them."""

from typing import Any

import numpy as np

from sampler.data.make import build_task
from sampler.data.task import Task
from sampler.problem import Problem, build_problem
from sampler.settings.recipe import Recipe
from sampler.streams import Stream, stream
from sampler.token_problem import LearnedProblem

MARKOV = {
    "kind": "markov_chain",
    "tokens": 4,
    "features": 6,
    "examples_train": 7,
    "examples_test": 5,
    "examples_validation": 4,
}
SERIES = {
    "kind": "time_series",
    "tokens": 5,
    "channels": 4,
    "lag": 2,
    "period": 7,
    "examples_train": 6,
    "examples_test": 5,
}
DIGITS = {
    "kind": "digits",
    "patch": 4,
    "classes": [0, 1, 2],
    "examples_train": 5,
    "examples_test": 4,
}
BETA = 1.5
Heads = tuple[tuple[str, ...], ...]


def learned_recipe(
    task: dict[str, Any] = MARKOV,
    heads: Heads = (("learned", "good"), ("random", "learned")),
    widths: Any = 6,
    attention: dict[str, Any] | None = None,
    network: dict[str, Any] | None = None,
    posterior: dict[str, Any] | None = None,
    sampler: dict[str, Any] | None = None,
) -> Recipe:
    """A recipe of a few examples; by default two layers, each with one learned head."""
    of_heads = {"heads": [list(kinds) for kinds in heads], "inverse_temperature": BETA}
    settings: dict[str, Any] = {
        "name": "learned",
        "task": task,
        "attention": of_heads | (attention or {}),
        "network": {"widths": widths} | (network or {}),
        "posterior": {"temperature": 0.3} | (posterior or {}),
    }
    if sampler is not None:
        settings["sampler"] = sampler
    return Recipe(**settings)


def learned_problem(**changes: Any) -> LearnedProblem:
    """The problem of `learned_recipe`."""
    recipe = learned_recipe(**changes)
    return build_problem(recipe, build_task(recipe))


def problem_with_random_heads(**changes: Any) -> Problem:
    """The same problem with a random head in the place of every learned one."""
    heads = changes.pop("heads", (("learned", "good"), ("random", "learned")))
    fixed = tuple(
        tuple("random" if kind == "learned" else kind for kind in kinds) for kinds in heads
    )
    recipe = learned_recipe(heads=fixed, **changes)
    return build_problem(recipe, build_task(recipe))


def logits_of_random_heads(recipe: Recipe, task: Task) -> dict[str, np.ndarray]:
    """Standard normal logit weights of the learned heads that are random heads in the other."""
    found = {}
    for layer, kinds in enumerate(recipe.attention.heads):
        chosen = [head for head, kind in enumerate(kinds) if kind == "learned"]
        if not chosen:
            continue
        drawn = []
        for head in chosen:
            generator = stream(recipe.task.head_seed, Stream.HEADS, layer, head)
            channels = task.channels
            shape = (channels, channels)
            if recipe.task.kind != "markov_chain":
                shape = (2, *shape)
            drawn.append(generator.standard_normal(shape))
        found[f"logits_{layer + 1}"] = np.stack(drawn)
    return found
