"""The task of a recipe, with the heads that its network keeps."""

from dataclasses import replace

import numpy as np

from sampler.data.examples import Examples, KeptHeads, held, measured_examples
from sampler.data.heads_of_task import with_prior_draw
from sampler.data.task import Task, refuse_too_many_paths
from sampler.errors import InputError, Verbatim
from sampler.settings.network_sections import Network
from sampler.settings.recipe import Recipe
from sampler.settings.refusals import refuse_layers
from sampler.settings.section import dump_setting

# Settings of a network that attended inputs do not determine, and their values without it.
OF_TOKENS = {
    "readout": "last",
    "hypernetwork": False,
    "values": "linear",
    "norm": "none",
    "residual": False,
    "mlp": None,
}
# Training examples that tell whether attention depends on its logits.
COMPARED = 4


def build_task(recipe: Recipe) -> Task:
    """The task of a recipe, with the heads that its network keeps.

    Raises InputError where the data cannot be used, or where the recipe names heads or layers
    that the task does not have.
    """
    return fit_task(make_data(recipe), recipe)


def make_data(recipe: Recipe) -> Task:
    """The data of a recipe. Raises InputError where they cannot be used, or exceed the memory."""
    try:
        return recipe.task.make(recipe.attention)
    except MemoryError as problem:
        remedy = "use fewer examples, tokens or features"
        raise InputError("memory", Verbatim(f"({problem})"), remedy) from None


def fit_task(task: Task, recipe: Recipe) -> Task:
    """The task with the heads that the recipe's network keeps; InputError where they do not fit."""
    network = recipe.network
    if network.heads is not None:
        check_heads("network.heads", network.heads, task)
        task = keep_heads(task, network.heads)
    check_network_fits(network, task)
    pairs = network.hypernetworks(len(task.train.heads))
    if any(pairs):  # of a network that was trained with one layer of values nothing is left
        task = replace(task, hypernetworks=pairs, trained=None)
    if recipe.fits_theory:
        refuse_too_many_paths(task.heads)
    if task.learned is not None:
        check_learned_fits(task)
        check_logits_matter(task, recipe.network.readout)
        seed = getattr(recipe.task, "head_seed", recipe.task.teacher_seed)
        task = with_prior_draw(task, recipe.attention, recipe.task.brings_heads, seed)
    for kept in recipe.theory.subnetworks:
        check_heads("theory.subnetworks", kept, task)
    return task


def check_network_fits(network: Network, task: Task) -> None:
    """Raise InputError unless a network fits tokens and layers of attention of a task."""
    if network.is_infinite and task.learned is None:
        remedy = "nothing is left to be sampled where attention is fixed: theories have infinite "
        remedy += 'width as a column of their own; use a number, or heads of the kind "learned"'
        raise InputError("network.widths", network.widths, remedy)
    for key, without in OF_TOKENS.items() if task.train.tokens is None else ():
        value = getattr(network, key)
        if value != without:
            remedy = "attended inputs come read out, with their paths, and have no tokens; remove "
            remedy += "it, or give inputs and attention matrices"
            raise InputError(f"network.{key}", dump_setting(value), remedy)
    refuse_layers(network, len(task.train.heads))


def check_learned_fits(task: Task) -> None:
    """Raise InputError unless all examples have tokens that are held, as many in each."""
    for name, split in task.named_splits.items():
        if not isinstance(split, Examples) or not split.holds_tokens or split.lengths is not None:
            remedy = "learned heads attend to all tokens of all examples in every gradient; use "
            remedy += "fewer examples, and sequences of one length without padding"
            size = Verbatim(f"{split.examples:,} examples")
            raise InputError(f"attention.heads ({name} split)", size, remedy)


def check_logits_matter(task: Task, readout: str) -> None:
    """Raise InputError for a learned head whose output does not depend on its logits."""
    learned = task.learned
    if not np.any(learned.scale):
        remedy = "makes all logits of learned heads 0, whatever is sampled; raise it"
        raise InputError("attention.inverse_temperature", 0.0, remedy)
    some = held(task.train).inputs[measured_examples(task.train.examples)[:COMPARED]]
    for layer, head in learned.without_effect(some, readout):
        field = f"attention.form (layer {layer + 1}, head {head})"
        kind = learned.variants[layer][head].kind
        remedy = "what is read of its matrix is the same for all logits of the form "
        remedy += f'"{learned.form}", so that their posterior is their prior; use another variant, '
        remedy += "or another attention.learned.form"
        raise InputError(field, kind, remedy)


def check_heads(field: str, kept: KeptHeads, task: Task) -> None:
    """Raise InputError unless every layer of the task is listed, with heads that it has."""
    listed = [list(heads) for heads in kept]
    if len(kept) != task.layers:
        raise InputError(field, listed, f"list the heads of all {task.layers} layers")
    for layer, (heads, count) in enumerate(zip(kept, task.heads, strict=True), start=1):
        if max(heads) >= count:
            remedy = f"layer {layer} has no head {max(heads)}; its heads are 0 to {count - 1}"
            raise InputError(field, listed, remedy)


def keep_heads(task: Task, kept: KeptHeads) -> Task:
    """The task of the sub-network with these heads, in the order given."""
    names = tuple(
        tuple(of_layer[head] for head in heads)
        for of_layer, heads in zip(task.attention_names, kept, strict=True)
    )
    parts = {"trained": task.trained, "learned": task.learned, **task.named_splits}
    smaller = {name: part.keeping(kept) for name, part in parts.items() if part is not None}
    return replace(task, **smaller, attention_names=names)
