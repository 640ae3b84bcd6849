"""Heads that sampled attention is held against: named heads of the task, and who made the labels.

A task that leaves its heads to the recipe makes those of every kind that is not random; data that
come with heads have these. Labels are made by the heads of a teacher, by attention that the task
knows (the token that is copied), or by what the task calls its good head.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.learned import exchange_groups
from sampler.attention.variants import AttentionVariant
from sampler.errors import InputError
from sampler.mcmc.kept import evenly_spaced
from sampler.settings.recipe import Recipe
from sampler.settings.task import LEARNED, UNIFORM, DrawnSection
from sampler.tasks.task import Task

# Training examples that attention is measured on; heads of one layer of data that it is held
# against.
MEASURED_EXAMPLES, MOST_KNOWN = 16, 8
# Kinds that differ from one seed to the next.
RANDOM = ("random", LEARNED)


@dataclass(frozen=True)
class KnownHeads:
    """Heads of one layer of attention that need not be part of the network.

    matrices    of the training examples that attention is measured on
    generating  which of them made the labels
    """

    names: tuple[str, ...]
    matrices: Float[np.ndarray, "example head key query"]
    generating: tuple[bool, ...]


def measured_examples(count: int) -> Int[np.ndarray, " measured"]:
    return evenly_spaced(count, MEASURED_EXAMPLES)


def known_heads(recipe: Recipe, task: Task) -> tuple[KnownHeads, ...]:
    """Heads to hold the learned ones against, for each layer of attention; none of other layers."""
    learned = task.learned
    measured = measured_examples(task.train.examples)
    exact = {}
    if task.teacher is None:
        exact = recipe.task.generating_heads(len(measured), task.train.tokens)
    made: dict[AttentionVariant, Mapping[str, np.ndarray]] = {}
    layers = []
    groups = exchange_groups(learned.learned, learned.variants)
    for layer, (of_layer, variants) in enumerate(zip(groups, learned.variants, strict=True)):
        heads = [head for group in of_layer for head in group]
        names: dict[str, np.ndarray] = {}
        generating: set[str] = set()
        if heads and recipe.task.head_kinds:
            variant = variants[heads[0]]
            if variant not in made:
                made[variant] = heads_of_kinds(recipe, variant, measured)
            names |= made[variant]
            generating = set(recipe.task.generating_kinds)
        elif heads:
            brought = task.brought[layer] if layer < len(task.brought) else {}
            share = 1.0 / task.train.tokens
            shape = (len(measured), task.train.tokens, task.train.tokens)
            # Data without attention have such heads as well.
            others = {name: m for name, m in brought.items() if not np.allclose(m, share)}
            names |= dict(list(others.items())[:MOST_KNOWN]) | {UNIFORM: np.full(shape, share)}
        if heads:
            names |= exact
            generating |= set(exact)
        if heads and task.teacher is not None:
            matrices = task.teacher.attention[layer]
            of_teacher = {f"teacher {head}": matrices[:, head] for head in sorted(heads)}
            names, generating = of_teacher | names, set(of_teacher)
        layers.append(
            KnownHeads(
                tuple(names),
                np.stack(list(names.values()), axis=1) if names else np.zeros((0, 0, 0, 0)),
                tuple(name in generating for name in names),
            )
        )
    return tuple(layers)


def heads_of_kinds(
    recipe: Recipe, variant: AttentionVariant, measured: Int[np.ndarray, " measured"]
) -> dict[str, Float[np.ndarray, "example key query"]]:
    """Heads of all kinds that are not random, with this attention variant, of some examples.

    Where sequences are too short for one of them, uniform attention alone.
    """
    section = recipe.task
    if isinstance(section, DrawnSection):  # of which no other split is needed
        section = section.model_copy(update={"examples_test": 2, "examples_validation": 0})
    kinds = tuple(kind for kind in section.head_kinds if kind not in RANDOM)

    def made(chosen: tuple[str, ...]) -> dict[str, np.ndarray]:
        changes = {"heads": (chosen,), "form": variant, "learned": None}
        attention = recipe.attention.model_copy(update=changes)
        matrices = section.make(attention).train.attention[0][measured]
        return {kind: matrices[:, head] for head, kind in enumerate(chosen)}

    if not kinds:
        return {}
    try:
        return made(kinds)
    except InputError:
        return made((UNIFORM,)) if UNIFORM in kinds else {}
