"""The task of a recipe, with the heads that its network keeps."""

from dataclasses import replace
from itertools import product

from sampler.attention.layers import paired
from sampler.data.heads_of_task import with_prior_draw
from sampler.data.split import KeptHeads, Split, kept_paths
from sampler.data.task import Task, name_paths, refuse_too_many_paths
from sampler.errors import InputError, Setting, Verbatim
from sampler.settings.network import NetworkSection
from sampler.settings.recipe import Recipe
from sampler.settings.refusals import FALSE, dump_setting, refuse_layers


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
    if recipe.network.heads is not None:
        check_heads(Setting("network", "heads"), recipe.network.heads, task)
        task = keep_heads(task, recipe.network.heads)
    check_network_fits(recipe.network, task)
    task = with_hypernetworks(task, recipe.network.hypernetworks(len(task.train.heads)))
    if recipe.fits_theory:
        refuse_too_many_paths(task.heads)
    if task.learned is not None:
        for name, split in task.named_splits.items():
            if not isinstance(split, Split):
                size = Verbatim(f"{split.examples:,} examples")
                remedy = (
                    "learned heads attend to all of them in every gradient, which needs tokens "
                    "that are held; use fewer examples, or attended inputs of fixed heads"
                )
                raise InputError(Setting("attention", f"heads ({name} split)"), size, remedy)
            if split.lengths is not None:
                size = Verbatim(f"({split.lengths.min()} to {split.lengths.max()} tokens)")
                remedy = (
                    "learned heads attend to all tokens, so sequences must be of one length; cut "
                    "them"
                )
                raise InputError(f"lengths_{name}", size, remedy)
        seed = getattr(recipe.task, "head_seed", recipe.task.teacher_seed)
        task = with_prior_draw(task, recipe.attention, recipe.task.brings_heads, seed)
    for kept in recipe.theory.subnetworks:
        check_heads(Setting("theory", "subnetworks"), kept, task)
    return task


def check_network_fits(network: NetworkSection, task: Task) -> None:
    """Raise InputError unless a network fits tokens and layers of attention of a task."""
    attention_layers = len(task.train.heads)
    if network.is_infinite and task.learned is None:
        remedy = "nothing is left to be sampled where attention is fixed: theories have infinite "
        remedy += 'width as a column of their own; use a number, or heads of the kind "learned"'
        raise InputError(Setting("network", "widths"), network.widths, remedy)
    if task.train.tokens is None:
        refuse_without_tokens(network, attention_layers)
    refuse_layers(network, attention_layers)


def refuse_without_tokens(network: NetworkSection, layers: int) -> None:
    """Raise InputError, naming the setting, for a network that attended inputs do not determine."""
    paired_layers = any(network.hypernetworks(layers))
    asked = (
        ("readout", network.readout != "last", "attended inputs were read out already; remove it"),
        ("hypernetwork", paired_layers, "attended inputs come with their paths; use {}"),
        ("values", network.values != "linear", 'needs tokens, not attended inputs; use "linear"'),
        ("norm", network.norm != "none", 'needs tokens, not attended inputs; use "none"'),
        ("residual", network.residual, "needs tokens, not attended inputs; use {}"),
        ("mlp", network.mlp is not None, "needs tokens, not attended inputs; remove it"),
    )
    for key, is_asked, remedy in asked:
        if is_asked:
            remedy = f"{remedy}, or give inputs and attention matrices"
            value = dump_setting(getattr(network, key))
            raise InputError(Setting("network", key), value, remedy, FALSE)


def check_heads(field: Setting, kept: KeptHeads, task: Task) -> None:
    """Raise InputError unless every layer of the task is listed, with heads that it has."""
    if len(kept) != task.layers:
        raise InputError(
            field, [list(heads) for heads in kept], f"list the heads of all {task.layers} layers"
        )
    for layer, (heads, names) in enumerate(zip(kept, task.head_names, strict=True)):
        for head in heads:
            if head >= len(names):
                raise InputError(
                    field,
                    [list(heads) for heads in kept],
                    f"layer {layer + 1} has no head {head}; its heads are 0 to {len(names) - 1}",
                )


def keep_heads(task: Task, kept: KeptHeads) -> Task:
    """The task of the sub-network with these heads, in the order given."""
    names = tuple(
        tuple(of_layer[head] for head in heads)
        for of_layer, heads in zip(task.head_names, kept, strict=True)
    )
    path_names = name_paths(names)
    if task.path_names:
        path_names = tuple(task.path_names[path] for path in kept_paths(task.heads, kept))
    parts = {"trained": task.trained, "learned": task.learned, **task.named_splits}
    smaller = {name: part.keeping(kept) for name, part in parts.items() if part is not None}
    return replace(task, **smaller, head_names=names, path_names=path_names)


def with_hypernetworks(task: Task, hypernetworks: tuple[bool, ...]) -> Task:
    """The task with a hypernetwork in each layer of attention where this is true.

        out_t = Σ_s Σ_{h,h'} Ω_{h,st} Ω_{h',st} W_out^h W_val^{h'} z_s

    are the layers V_l = W_val and V_{l+1} = W_out with the same heads, whose path (h', h) attends
    with Ω_{h'} ∘ Ω_h. A network that was trained with one layer of values has no place there.
    Source: Schug et al., arXiv 2406.05816, with linear values.
    """
    if not any(hypernetworks):
        return task
    return replace(
        task,
        head_names=paired(task.head_names, hypernetworks),
        path_names=name_paths(
            [
                [f"{value}∘{output}" for value, output in product(names, names)]
                if is_pair
                else names
                for names, is_pair in zip(task.head_names, hypernetworks, strict=True)
            ]
        ),
        trained=None,
        hypernetworks=hypernetworks,
    )
