"""Heads that sampled attention is compared with: named heads of the task, and who made the labels.

A task that leaves its heads to the recipe makes those of every kind that is not random; data that
come with heads have these. Labels are made by the heads of a teacher, by attention that the task
knows (the token that is copied), or by what the task calls its good head.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sampler.attention.variants import AttentionVariant
from sampler.data.split import measured_examples
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.settings.recipe import Recipe
from sampler.settings.task_sections import LEARNED, UNIFORM, DrawnSection

# Heads of one layer of data that sampled attention is compared with.
MOST_KNOWN = 8
# Kinds that differ from one seed to the next.
RANDOM = ("random", LEARNED)
# Attention by the name of the head.
ByName = dict[str, Float[np.ndarray, "example key query"]]


@dataclass(frozen=True)
class KnownHeads:
    """Heads of one layer of attention that need not be part of the network.

    matrices    of the training examples that attention is measured on
    generating  which of them made the labels
    """

    names: tuple[str, ...]
    matrices: Float[np.ndarray, "example head key query"]
    generating: tuple[bool, ...]


NONE = KnownHeads((), np.zeros((0, 0, 0, 0)), ())


def known_heads(recipe: Recipe, task: Task) -> tuple[KnownHeads, ...]:
    """Heads to compare the learned ones with, for each layer of attention; none of other layers."""
    made: dict[AttentionVariant, ByName] = {}
    layers = []
    pairs = zip(task.learned.learned, task.learned.variants, strict=True)
    for layer, (is_learned, variants) in enumerate(pairs):
        learned = [head for head, learns in enumerate(is_learned) if learns]
        if not learned:
            layers.append(NONE)
            continue
        if recipe.task.head_kinds:
            variant = variants[learned[0]]
            if variant not in made:
                made[variant] = heads_of_kinds(recipe, task, variant)
            matrices = dict(made[variant])
        else:
            matrices = heads_of_data(task, layer)
        if task.teacher is None:
            measured, tokens = len(measured_examples(task.train.examples)), task.train.tokens
            exact = recipe.task.generating_heads(measured, tokens)
            generating = {*exact, *recipe.task.generating_kinds}
            matrices |= exact
        else:
            attention = task.teacher.attention[layer]
            of_teacher = {f"teacher {head}": attention[:, head] for head in learned}
            generating = set(of_teacher)
            matrices = of_teacher | matrices
        together = np.stack(list(matrices.values()), axis=1) if matrices else NONE.matrices
        is_generating = tuple(name in generating for name in matrices)
        layers.append(KnownHeads(tuple(matrices), together, is_generating))
    return tuple(layers)


def heads_of_data(task: Task, layer: int) -> ByName:
    """The first heads that the data of a task came with in a layer, and a uniform one."""
    brought = task.brought[layer] if layer < len(task.brought) else {}
    tokens = task.train.tokens
    others = [name for name, matrices in brought.items() if not np.allclose(matrices, 1.0 / tokens)]
    uniform = np.full((len(measured_examples(task.train.examples)), tokens, tokens), 1.0 / tokens)
    return {name: brought[name] for name in others[:MOST_KNOWN]} | {UNIFORM: uniform}


def heads_of_kinds(recipe: Recipe, task: Task, variant: AttentionVariant) -> ByName:
    """Heads of all kinds that are not random, with this attention variant.

    Where sequences are too short for one of them, uniform attention alone.
    """
    section = recipe.task
    if isinstance(section, DrawnSection):  # of which no other split is needed
        section = section.model_copy(update={"examples_test": 2, "examples_validation": 0})
    kinds = tuple(kind for kind in section.head_kinds if kind not in RANDOM)

    def made(chosen: tuple[str, ...]) -> ByName:
        changes = {"heads": (chosen,), "form": variant, "learned": None}
        attention = recipe.attention.model_copy(update=changes)
        matrices = section.make(attention).train.attention[0]
        measured = measured_examples(task.train.examples)
        return {kind: matrices[measured, head] for head, kind in enumerate(chosen)}

    if not kinds:
        return {}
    try:
        return made(kinds)
    except InputError:
        return made((UNIFORM,)) if UNIFORM in kinds else {}
