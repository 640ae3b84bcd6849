"""Heads that sampled attention is compared with: named heads of the task, and who made the labels.

A task that leaves its heads to the recipe makes those of every kind that is not random; data that
come with heads have these. Labels are made by the heads of a teacher, by attention that the task
knows (the token that is copied), or by what the task calls its good head.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.learned import exchange_groups
from sampler.attention.variants import AttentionVariant
from sampler.data.split import measured_examples
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.settings.recipe import Recipe
from sampler.settings.task import LEARNED, UNIFORM, DrawnSection

# Heads of one layer of data that sampled attention is compared with.
MOST_KNOWN = 8
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


def known_heads(recipe: Recipe, task: Task) -> tuple[KnownHeads, ...]:
    """Heads to compare the learned ones with, for each layer of attention; none of other layers."""
    learned = task.learned
    measured = measured_examples(task.train.examples)
    exact: dict[str, np.ndarray] = {}
    if task.teacher is None:
        exact = dict(recipe.task.generating_heads(len(measured), task.train.tokens))
    made: dict[AttentionVariant, dict[str, np.ndarray]] = {}
    layers = []
    groups = exchange_groups(learned.learned, learned.variants)
    for layer, (of_layer, variants) in enumerate(zip(groups, learned.variants, strict=True)):
        heads = [head for group in of_layer for head in group]
        if not heads:
            layers.append(KnownHeads((), np.zeros((0, 0, 0, 0)), ()))
            continue
        generating = set(exact)
        if recipe.task.head_kinds:
            variant = variants[heads[0]]
            if variant not in made:
                made[variant] = heads_of_kinds(recipe, variant, measured)
            matrices = made[variant] | exact
            generating.update(recipe.task.generating_kinds)
        else:
            matrices = heads_of_data(task, layer) | exact
        if task.teacher is not None:
            attention = task.teacher.attention[layer]
            of_teacher = {f"teacher {head}": attention[:, head] for head in sorted(heads)}
            matrices, generating = of_teacher | matrices, set(of_teacher)
        together = np.stack(list(matrices.values()), axis=1) if matrices else np.zeros((0, 0, 0, 0))
        is_generating = tuple(name in generating for name in matrices)
        layers.append(KnownHeads(tuple(matrices), together, is_generating))
    return tuple(layers)


def heads_of_data(task: Task, layer: int) -> dict[str, Float[np.ndarray, "example key query"]]:
    """The first heads that the data of a task came with in a layer, and a uniform one."""
    brought = task.brought[layer] if layer < len(task.brought) else {}
    tokens = task.train.tokens
    # Data without attention have uniform heads as well.
    others = [name for name, matrices in brought.items() if not np.allclose(matrices, 1.0 / tokens)]
    uniform = np.full((len(measured_examples(task.train.examples)), tokens, tokens), 1.0 / tokens)
    return {name: brought[name] for name in others[:MOST_KNOWN]} | {UNIFORM: uniform}


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
