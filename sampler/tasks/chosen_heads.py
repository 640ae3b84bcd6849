"""Heads that a recipe chooses for data that come with heads of their own."""

from dataclasses import replace

import numpy as np

from sampler.errors import InputError, Setting, Verbatim
from sampler.runtime import stream
from sampler.settings.task import LEARNED, UNIFORM, AttentionSection
from sampler.tasks.head_choice import learned_heads
from sampler.tasks.known_heads import measured_examples
from sampler.tasks.paths import name_paths
from sampler.tasks.splits import Split
from sampler.tasks.task import HEAD_STREAM, Task, name_heads, refuse_unfit_length


def with_chosen_heads(task: Task, attention: AttentionSection | None) -> Task:
    """The task with these heads in the place of those that its data came with.

    Kinds are "learned", "uniform", and name or number of a head of the same layer. Raises
    InputError for other kinds, and for data without tokens or too large to be held.
    """
    if attention is None:
        return task
    refuse_unfit_kinds(task, attention)
    for name, split in task.named_splits.items():
        if not isinstance(split, Split):
            words = "attended inputs" if split.tokens is None else f"{split.examples:,} examples"
            remedy = "heads are chosen for tokens that are held; use fewer examples, or give inputs"
            raise InputError(Setting("attention", f"heads ({name} split)"), Verbatim(words), remedy)
    refuse_unfit_length(attention, task.train.tokens)
    names = name_heads(attention)
    chosen = {
        name: with_heads(split, attention, task.head_names)
        for name, split in task.named_splits.items()
    }
    measured = measured_examples(task.train.examples)
    brought = tuple(
        {name: matrices[measured, head] for head, name in enumerate(of_layer)}
        for of_layer, matrices in zip(task.head_names, task.train.attention, strict=True)
    )
    return replace(
        task,
        **chosen,
        head_names=names,
        path_names=name_paths(names),
        trained=None,
        learned=learned_heads(attention, task.channels),
        brought=brought,
        layer_numbers=task.layer_numbers if len(names) == task.layers else None,
    )


def with_prior_draw(task: Task, attention: AttentionSection, brought: bool, seed: int) -> Task:
    """The task with a draw of their prior in the place of its learned heads' matrices.

    A task that has random heads, and no other form, has made one itself; heads that read the stream
    have none before its weights are known.

    brought  whether its data came with heads
    """
    named = attention.learned is not None and attention.learned.form is not None
    if task.learned is None or task.learned.stream or not (brought or named):
        return task

    def with_draw(split: Split) -> Split:
        layers = []
        for layer, (matrices, learned) in enumerate(
            zip(split.attention, task.learned.learned, strict=True)
        ):
            chosen = [head for head, is_learned in enumerate(learned) if is_learned]
            if chosen:
                generators = [stream(seed, HEAD_STREAM, layer, head) for head in chosen]
                matrices = matrices.copy()
                drawn = task.learned.drawn_matrices(split.inputs, layer, generators)
                matrices[:, chosen] = drawn
            layers.append(matrices)
        return replace(split, attention=tuple(layers))

    return replace(task, **{name: with_draw(one) for name, one in task.named_splits.items()})


def refuse_unfit_kinds(task: Task, attention: AttentionSection) -> None:
    """Raise InputError for a kind that is no head of the data in that layer."""
    for layer, kinds in enumerate(attention.heads):
        known = task.head_names[layer] if layer < len(task.head_names) else ()
        for head, kind in enumerate(kinds):
            if kind not in (LEARNED, UNIFORM, *known, *map(str, range(len(known)))):
                there = ", ".join(f"'{name}'" for name in (LEARNED, UNIFORM, *known))
                remedy = f"layer {layer + 1} of these data has {there}"
                raise InputError(Setting("attention", f"heads[{layer}][{head}]"), kind, remedy)


def with_heads(
    split: Split, attention: AttentionSection, head_names: tuple[tuple[str, ...], ...]
) -> Split:
    """The split with the matrices of these heads; learned ones are uniform until they are drawn."""
    shape = (split.examples, split.tokens, split.tokens)
    uniform = np.broadcast_to(1.0 / split.tokens, shape)
    layers = []
    for layer, kinds in enumerate(attention.heads):
        found = []
        for kind in kinds:
            if kind in (LEARNED, UNIFORM):
                found.append(uniform)
                continue
            names = head_names[layer]
            head = names.index(kind) if kind in names else int(kind)
            found.append(split.attention[layer][:, head])
        layers.append(np.stack(found, axis=1))
    return replace(split, attention=tuple(layers))
