"""Heads of a task: drawn, of a trained transformer, or chosen among those that data come with.

A recipe names a kind for each head of each layer, and an attention variant. Heads whose kind is
"learned" are sampled: their matrices are one draw of their prior, and uniform before it is made.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import factored_attention, variants_by_head
from sampler.attention.learned import LearnedHeads
from sampler.attention.padding import within
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.data.split import HEAD_STREAM, AnySplit, Split, made_in_parts, measured_examples
from sampler.data.task import Task, name_paths
from sampler.errors import InputError, Setting, Verbatim
from sampler.runtime import stream
from sampler.settings.task import LEARNED, STREAM, UNIFORM, AttentionSection, LearnedSection
from sampler.settings.training import TrainedSection
from sampler.transformer.model import TrainedModel, frozen_attention, read_model, trained_network

# The variant of every head, layer by layer.
HeadVariants = tuple[tuple[AttentionVariant, ...], ...]
# Arrays of the heads of a layer, [head, …] each.
LayerWeights = tuple[np.ndarray, ...]


# --- what the recipe says of heads


def chosen_variants(attention: AttentionSection) -> HeadVariants:
    """Look up the variant of every head, layer by layer; softmax where the recipe names none."""
    return variants_by_head(attention.form or Softmax(), tuple(map(len, attention.heads)))


def refuse_unfit_length(attention: AttentionSection, tokens: int) -> None:
    """Raise InputError if a variant cannot take sequences of this length."""
    for of_layer in chosen_variants(attention):
        for variant in of_layer:
            try:
                variant.refuse_tokens(tokens)
            except ValueError as problem:
                form = Setting("attention", "form")
                raise InputError(form, variant.model_dump(), str(problem)) from None


def name_heads(attention: AttentionSection) -> tuple[tuple[str, ...], ...]:
    """Name the heads of every layer: by their kinds, with the head's number where one repeats.

    ("random", "good", "random") are "random 0", "good" and "random 2".
    """
    return tuple(
        tuple(
            kind if kinds.count(kind) == 1 else f"{kind} {head}" for head, kind in enumerate(kinds)
        )
        for kinds in attention.heads
    )


def number_heads(heads: Sequence[int], random_heads: int = 0) -> tuple[tuple[str, ...], ...]:
    """Number the heads of every layer; random ones after them are r0, r1, …."""
    added = [f"r{head}" for head in range(random_heads)]
    return tuple((*map(str, range(count)), *added) for count in heads)


def learned_heads(
    attention: AttentionSection, channels: int, random: LearnedHeads | None = None
) -> LearnedHeads | None:
    """The learned heads of a recipe; None where it has none.

    random  form and scale of the random heads of the task, for a recipe that names no form; None
            where it has no such heads
    """
    if not attention.has_learned:
        return None
    section = attention.learned or LearnedSection()
    learned = tuple(tuple(kind == LEARNED for kind in kinds) for kinds in attention.heads)
    variants = chosen_variants(attention)
    refuse_without_derivatives(learned, variants)
    reads_stream = attention.reads == STREAM
    if section.form is None and random is not None and not reads_stream:
        if "variance" in section.model_fields_set:
            remedy = "needs a form; without one {} is the scale of learned heads"
            variance, beta = (
                Setting("attention", key) for key in ("learned.variance", "inverse_temperature")
            )
            raise InputError(variance, section.variance, remedy, beta)
        return replace(random, learned=learned, variants=variants)
    form = section.form or ("low_rank" if reads_stream else "full")
    if reads_stream and form == "positions":
        remedy = 'logits of positions read nothing; use "low_rank" or "full", or {} = "inputs"'
        reads = Setting("attention", "reads")
        raise InputError(Setting("attention", "learned.form"), form, remedy, reads)
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
            remedy = None
            if is_learned and variant.untrainable is not None:
                remedy = f"{variant.untrainable}; give this learned head another variant"
            elif is_learned and variant.joins_heads and variant in fixed:
                remedy = (
                    "joins all heads of a layer, and some of this one are fixed; make all of them "
                    "learned, or give those another variant"
                )
            if remedy is not None:
                field = Setting("attention", f"form (layer {layer + 1}, head {head})")
                raise InputError(field, variant.kind, remedy)


# --- heads that are drawn


def draw_layers(
    attention: AttentionSection,
    weights_of: Callable[[str, np.random.Generator], LayerWeights],
    seed: int,
) -> tuple[LayerWeights, ...]:
    """Draw the weights of the heads of every layer, [head, …] each.

    `weights_of` makes those of one head from its kind and a random generator of its own.
    """
    layers = []
    for layer, kinds in enumerate(attention.heads):
        of_heads = [
            weights_of(kind, stream(seed, HEAD_STREAM, layer, head))
            for head, kind in enumerate(kinds)
        ]
        layers.append(tuple(np.stack(matrices) for matrices in zip(*of_heads, strict=True)))
    return tuple(layers)


def query_and_key_weights(
    kind: str,
    channels: int,
    inverse_temperature: float,
    generator: np.random.Generator,
    logit_weights: Mapping[str, Callable[[], np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Make W_Q and W_K of one head, [key channel, channel], for logits (W_K x_s)·(W_Q x_t)/√D.

    uniform  all logits are equal
    random   Gaussian entries of variance 1/D, W_Q multiplied by the inverse temperature β
    learned  as random: one draw of the prior
    others   logits are β x_sᵀ W x_t, with W [channel, channel] made by `logit_weights`

    Only a random head draws from the generator.
    """
    if kind in ("random", LEARNED):
        query, key = generator.standard_normal((2, channels, channels)) / np.sqrt(channels)
        return inverse_temperature * query, key
    weights = np.zeros((channels, channels)) if kind == UNIFORM else logit_weights[kind]()
    # Keys are the inputs themselves, as in `bilinear_attention`.
    return inverse_temperature * np.sqrt(channels) * weights, np.eye(channels)


@dataclass(frozen=True)
class RawExamples:
    """The examples of a split before any head attends to them.

    inputs_of  makes the inputs [example, token, channel] of some of them
    labels     [example, output]
    origin     arrays that all inputs follow from
    """

    inputs_of: Callable[[slice], np.ndarray]
    labels: np.ndarray
    origin: tuple[np.ndarray, ...]


def attended_split(
    examples: RawExamples | None,
    attend: Callable[[np.ndarray], tuple[np.ndarray, ...]],
    variants: HeadVariants,
    origin: tuple[np.ndarray, ...],
) -> AnySplit | None:
    """Make the split in which `attend` gives the matrices of every layer, from its origin."""
    if examples is None:
        return None

    def make(part: slice) -> Split:
        inputs = examples.inputs_of(part)
        return Split(inputs, examples.labels[part], attend(inputs))

    return made_in_parts(make, examples.labels, repr(variants), (*examples.origin, *origin))


def attended_task(
    splits: Sequence[RawExamples | None],
    attention: AttentionSection,
    head_seed: int,
    channels: int,
    logit_weights: Mapping[str, Callable[[], np.ndarray]],
) -> Task:
    """Make the task of training, test and validation examples, and of heads with W_Q and W_K.

    The latter are made by `query_and_key_weights`.
    """

    def weights_of(kind: str, generator: np.random.Generator) -> LayerWeights:
        beta = attention.inverse_temperature
        return query_and_key_weights(kind, channels, beta, generator, logit_weights)

    weights, variants = draw_layers(attention, weights_of, head_seed), chosen_variants(attention)
    origin = tuple(array for of_layer in weights for array in of_layer)

    def attend(inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(
            factored_attention(inputs, *of_layer, those)
            for of_layer, those in zip(weights, variants, strict=True)
        )

    train, test, validation = (attended_split(one, attend, variants, origin) for one in splits)
    names, root = name_heads(attention), 1.0 / np.sqrt(channels)
    scale = np.array([attention.inverse_temperature * root, root])
    learned = learned_heads(attention, channels, LearnedHeads("low_rank", scale, (), (), channels))
    return Task(train, test, names, name_paths(names), validation, learned=learned)


# --- heads of a trained transformer


def task_of_model(
    model: TrainedModel,
    splits: Sequence[RawExamples | None],
    attention: AttentionSection | None,
    random_heads: int = 0,
    nearest_neighbour: np.ndarray | None = None,
) -> Task:
    """Make the task of training, test and validation examples to which a trained model attends.

    attention     heads in the place of the model's
    random_heads  further ones of the model in each layer, which have no trained values
    """
    variants, parameters = model.recipe.training.variants, model.parameters
    origin = tuple(parameters.values())

    def attend(inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return frozen_attention(parameters, inputs, variants)

    train, test, validation = (attended_split(one, attend, variants, origin) for one in splits)
    names = number_heads(model.recipe.training.heads, random_heads)
    trained = None if random_heads else trained_network(model)
    paths = name_paths(names)
    task = Task(train, test, names, paths, validation, trained, nearest_neighbour)
    return with_chosen_heads(task, attention)


def read_model_of(directory: str, section: type[TrainedSection], kind: str) -> TrainedModel:
    """Read a model that was trained on such data; others are for tasks of another `kind`."""
    model = read_model(Path(directory))
    if not isinstance(model.recipe.task, section):
        remedy = f'was trained on {model.recipe.task.of_training}; use {{}} = "{kind}"'
        model_key, kind_key = Setting("task", "model"), Setting("task", "kind")
        raise InputError(model_key, Path(directory), remedy, kind_key)
    return model


def refuse_other_data(directory: str, model: TrainedModel, checksum: str) -> None:
    """Raise InputError unless the data are those that the model was trained on."""
    if checksum != model.data:
        remedy = (
            f"was trained on other {model.recipe.task.of_training} than those that its recipe "
            "names; restore them, or set {}"
        )
        model_key, folder_key = Setting("task", "model"), Setting("task", "folder")
        raise InputError(model_key, Path(directory), remedy, folder_key)


# --- heads chosen for data that come with heads


def with_chosen_heads(task: Task, attention: AttentionSection | None) -> Task:
    """The task with these heads in the place of those that its data came with.

    Kinds are "learned", "uniform", and name or number of a head of the same layer. Raises
    InputError for other kinds, and for data without tokens or too large to be held.
    """
    if attention is None:
        return task
    heads = head_numbers(task, attention)
    for name, split in task.named_splits.items():
        if not isinstance(split, Split):
            words = "attended inputs" if split.tokens is None else f"{split.examples:,} examples"
            remedy = "heads are chosen for tokens that are held; use fewer examples, or give inputs"
            raise InputError(Setting("attention", f"heads ({name} split)"), Verbatim(words), remedy)
    refuse_unfit_length(attention, task.train.tokens)
    names = name_heads(attention)
    measured = measured_examples(task.train.examples)
    return replace(
        task,
        **{name: with_heads(split, heads) for name, split in task.named_splits.items()},
        head_names=names,
        path_names=name_paths(names),
        trained=None,
        learned=learned_heads(attention, task.channels),
        brought=tuple(
            {name: matrices[measured, head] for head, name in enumerate(of_layer)}
            for of_layer, matrices in zip(task.head_names, task.train.attention, strict=True)
        ),
        layer_numbers=task.layer_numbers if len(names) == task.layers else None,
    )


def head_numbers(task: Task, attention: AttentionSection) -> tuple[tuple[int | None, ...], ...]:
    """Numbers of the data's heads that a recipe names; None for a learned or a uniform one.

    Raises InputError for a kind that is no head of the data in that layer.
    """
    layers = []
    for layer, kinds in enumerate(attention.heads):
        names = task.head_names[layer] if layer < len(task.head_names) else ()
        places: dict[str, int | None] = {str(head): head for head in range(len(names))}
        places |= {name: head for head, name in enumerate(names)} | {LEARNED: None, UNIFORM: None}
        for head, kind in enumerate(kinds):
            if kind not in places:
                known = ", ".join(f"'{name}'" for name in (LEARNED, UNIFORM, *names))
                remedy = f"layer {layer + 1} of these data has {known}"
                raise InputError(Setting("attention", f"heads[{layer}][{head}]"), kind, remedy)
        layers.append(tuple(places[kind] for kind in kinds))
    return tuple(layers)


def with_heads(split: Split, heads: Sequence[Sequence[int | None]]) -> Split:
    """The split with the matrices of these heads of its own; None is a uniform one."""
    uniform = uniform_attention(split)
    layers = []
    for layer, chosen in enumerate(heads):
        own = split.attention[layer] if layer < len(split.attention) else None
        matrices = [uniform if head is None else own[:, head] for head in chosen]
        layers.append(np.stack(matrices, axis=1))
    return replace(split, attention=tuple(layers))


def uniform_attention(split: Split) -> Float[np.ndarray, "example key query"]:
    """Equal weights of all tokens of a sequence, and none of its padding."""
    tokens = split.tokens
    if split.lengths is None:
        return np.broadcast_to(1.0 / tokens, (split.examples, tokens, tokens))
    real = within(split.lengths, tokens)
    weights = real / np.maximum(real.sum(axis=1, keepdims=True), 1)
    return np.broadcast_to(weights[:, :, None], (split.examples, tokens, tokens))


def with_prior_draw(task: Task, attention: AttentionSection, brought: bool, seed: int) -> Task:
    """The task with a draw of their prior in the place of its learned heads' matrices.

    A task that has random heads, and no other form, has made one itself; heads that read the stream
    have none before its weights are known.

    brought  whether its data came with heads
    """
    learned = task.learned
    has_form = attention.learned is not None and attention.learned.form is not None
    if learned is None or learned.stream or not (brought or has_form):
        return task

    def with_draw(split: Split) -> Split:
        layers = []
        for layer, (matrices, of_layer) in enumerate(
            zip(split.attention, learned.learned, strict=True)
        ):
            chosen = [head for head, is_learned in enumerate(of_layer) if is_learned]
            if chosen:
                generators = [stream(seed, HEAD_STREAM, layer, head) for head in chosen]
                matrices = matrices.copy()
                matrices[:, chosen] = learned.drawn_matrices(split.inputs, layer, generators)
            layers.append(matrices)
        return replace(split, attention=tuple(layers))

    return replace(task, **{name: with_draw(split) for name, split in task.named_splits.items()})
