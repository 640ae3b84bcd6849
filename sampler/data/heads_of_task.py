"""Heads that a recipe chooses for a task.

A recipe names a kind for each head of each layer, and an attention variant. Heads whose kind is
"learned" are sampled: their matrices are one draw of their prior, and uniform before it is made.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import variants_by_head
from sampler.attention.learned import LearnedHeads
from sampler.attention.padding import within
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.data.examples import Examples
from sampler.data.task import HeadNames, Task
from sampler.errors import InputError, Verbatim
from sampler.settings.task_sections import (
    LEARNED,
    STREAM,
    UNIFORM,
    Attention,
    LearnedAttention,
)
from sampler.streams import Stream, stream

# The variant of every head, layer by layer.
HeadVariants = tuple[tuple[AttentionVariant, ...], ...]


# --- what the recipe says of heads


def chosen_variants(attention: Attention, tokens: int) -> HeadVariants:
    """Look up the variant of every head, layer by layer; softmax where the recipe names none.

    Raises InputError if a variant cannot take sequences of this length.
    """
    variants = variants_by_head(attention.form or Softmax(), tuple(map(len, attention.heads)))
    for variant in chain.from_iterable(variants):
        try:
            variant.refuse_tokens(tokens)
        except InputError:
            raise
        except ValueError as problem:
            form = "attention.form"
            raise InputError(form, variant.model_dump(), str(problem)) from None
    return variants


def name_heads(attention: Attention) -> HeadNames:
    """Name the heads of every layer: by their kinds, with the head's number where one repeats.

    ("random", "good", "random") are "random 0", "good" and "random 2".
    """
    return tuple(
        tuple(
            kind if kinds.count(kind) == 1 else f"{kind} {head}" for head, kind in enumerate(kinds)
        )
        for kinds in attention.heads
    )


def learned_heads(
    attention: Attention,
    variants: HeadVariants,
    channels: int,
    random: LearnedHeads | None = None,
) -> LearnedHeads | None:
    """The learned heads of a recipe; None where it has none.

    random  form and scale of the random heads of the task, for a recipe that names no form; None
            where it has no such heads
    """
    if not attention.has_learned:
        return None
    section = attention.learned or LearnedAttention()
    learned = tuple(tuple(kind == LEARNED for kind in kinds) for kinds in attention.heads)
    refuse_without_derivatives(learned, variants)
    reads_stream = attention.reads == STREAM
    if section.form is None and random is not None and not reads_stream:
        if "variance" in section.model_fields_set:
            remedy = "needs a form; without one the scale is attention.inverse_temperature"
            raise InputError("attention.learned.variance", section.variance, remedy)
        return replace(random, learned=learned, variants=variants)
    form = section.form or ("low_rank" if reads_stream else "full")
    if reads_stream and form == "positions":
        remedy = 'logits of positions read nothing; use "low_rank" or "full", or attention.reads = '
        raise InputError("attention.learned.form", form, f'{remedy}"inputs"')
    # No task knows the scale of the hidden vectors z/√N.
    per_channel = section.variance if reads_stream else section.variance / channels
    scale = {
        "full": np.full(1 if reads_stream else channels, np.sqrt(per_channel)),
        "low_rank": np.full(2, np.sqrt(per_channel)),
        "positions": np.full(1, np.sqrt(section.variance)),
    }[form]
    rank = (section.rank or channels) if form == "low_rank" else 0
    return LearnedHeads(form, scale, learned, variants, rank, stream=reads_stream)


def refuse_without_derivatives(
    learned: tuple[tuple[bool, ...], ...], variants: HeadVariants
) -> None:
    """Raise InputError if a learned head has a variant that no gradient passes through.

    Or one that joins it with heads that are fixed.
    """
    for layer, (of_layer, those) in enumerate(zip(learned, variants, strict=True)):
        fixed = [v for v, is_learned in zip(those, of_layer, strict=True) if not is_learned]
        for head, (is_learned, variant) in enumerate(zip(of_layer, those, strict=True)):
            problem = variant.untrainable
            if variant.joins_heads and variant in fixed:
                problem = "joins all heads of a layer, and some of this one are fixed"
            if is_learned and problem is not None:
                field = f"attention.form (layer {layer + 1}, head {head})"
                raise InputError(field, variant.kind, f"{problem}; use another variant")


# --- heads chosen for data that come with heads


def with_chosen_heads(task: Task, attention: Attention | None) -> Task:
    """The task with these heads instead of those of its data.

    Kinds are "learned", "uniform", and name or number of a head of the same layer. Raises
    InputError for other kinds, and for data without tokens or too large to be held.
    """
    if attention is None:
        return task
    heads = head_numbers(task, attention)
    for name, split in task.named_splits.items():
        if not split.holds_tokens:
            remedy = "heads are chosen for tokens that are held; use fewer examples, or tokens in "
            remedy += "the place of attended inputs"
            size = Verbatim(f"{split.examples:,} examples")
            raise InputError(f"attention.heads ({name} split)", size, remedy)
    variants, names = chosen_variants(attention, task.train.tokens), name_heads(attention)
    return replace(
        task,
        **{name: with_heads(split, heads) for name, split in task.named_splits.items()},
        attention_names=names,
        trained=None,
        learned=learned_heads(attention, variants, task.channels),
        layer_numbers=task.layer_numbers if len(names) == task.layers else None,
    )


def head_numbers(task: Task, attention: Attention) -> tuple[tuple[int | None, ...], ...]:
    """Numbers of the data's heads that a recipe names; None for a learned or a uniform one.

    Raises InputError for a kind that the data do not have in that layer.
    """
    layers = []
    for layer, kinds in enumerate(attention.heads):
        names = task.attention_names[layer] if layer < len(task.attention_names) else ()
        places: dict[str, int | None] = {str(head): head for head in range(len(names))}
        places |= {name: head for head, name in enumerate(names)} | {LEARNED: None, UNIFORM: None}
        for head, kind in enumerate(kinds):
            if kind not in places:
                allowed = ", ".join(f"'{name}'" for name in (LEARNED, UNIFORM, *names))
                remedy = f"layer {layer + 1} of these data has {allowed}"
                raise InputError(f"attention.heads[{layer}][{head}]", kind, remedy)
        layers.append(tuple(places[kind] for kind in kinds))
    return tuple(layers)


def with_heads(split: Examples, heads: Sequence[Sequence[int | None]]) -> Examples:
    """The split with the matrices of these heads of its own; None is a uniform one."""
    uniform = uniform_attention(split)
    layers = []
    for layer, chosen in enumerate(heads):
        matrices = [uniform if head is None else split.attention[layer][:, head] for head in chosen]
        layers.append(np.stack(matrices, axis=1))
    return replace(split, attention=tuple(layers))


def uniform_attention(split: Examples) -> Float[np.ndarray, "example key query"]:
    """Equal weights of all tokens of a sequence, and none of its padding."""
    examples, tokens, _ = split.inputs.shape
    lengths = np.full(examples, tokens) if split.lengths is None else split.lengths
    weights = within(lengths, tokens) / lengths[:, None]
    return np.broadcast_to(weights[:, :, None], (examples, tokens, tokens))


def with_prior_draw(task: Task, attention: Attention, brought: bool, seed: int) -> Task:
    """The task with matrices of its learned heads drawn from their prior.

    A task that has random heads, and no other form, has made one itself; heads that read the stream
    have none before its weights are known.

    brought  whether its data came with heads
    """
    learned = task.learned
    has_form = attention.learned is not None and attention.learned.form is not None
    if learned is None or learned.stream or not (brought or has_form):
        return task

    def with_draw(split: Examples) -> Examples:
        layers = []
        for layer, of_layer in enumerate(learned.learned):
            matrices = split.attention[layer]
            chosen = np.flatnonzero(of_layer)
            if chosen.size:
                generators = [stream(seed, Stream.HEADS, layer, head) for head in chosen.tolist()]
                matrices = matrices.copy()
                matrices[:, chosen] = learned.drawn_matrices(split.inputs, layer, generators)
            layers.append(matrices)
        return replace(split, attention=tuple(layers))

    return replace(task, **{name: with_draw(split) for name, split in task.named_splits.items()})
