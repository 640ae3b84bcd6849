"""Layers of attention: the variant of every head, their matrices, and the weights they serve.

Everywhere matrices are Ω [example, head, key, query].
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from pydantic import ValidationError

from sampler.attention.variants import VARIANTS, Array, AttentionVariant
from sampler.errors import input_error_in

# A variant, or a tuple with an entry for each layer: a variant, or a tuple of them, one per head.
Variants = AttentionVariant | tuple[AttentionVariant | tuple[AttentionVariant, ...], ...]
# The same with an entry for every head.
LayerVariants = tuple[tuple[AttentionVariant, ...], ...]


# --- the variant of every head


def read_variants(value: Any, *, place: str = "", depth: int = 0) -> Any:
    """Variants from a recipe's tables and lists; ValueError with the place and the remedy."""
    if isinstance(value, AttentionVariant) or (value is None and not place):
        return value
    if isinstance(value, Mapping):
        return read_variant(value, place)
    if isinstance(value, Sequence) and not isinstance(value, str) and value and depth < 2:
        return tuple(
            read_variants(entry, place=f"{place}[{number}]", depth=depth + 1)
            for number, entry in enumerate(value)
        )
    raise ValueError(
        f'{place or "form"}: use a table with a kind, as in {{ kind = "softmax" }}, or a list with '
        "an entry for each layer: a table, or a list of one table per head"
    )


def read_variant(table: Mapping, place: str) -> AttentionVariant:
    """A variant from its table; ValueError with the place and the remedy."""
    kind = table.get("kind")
    if kind not in tuple(VARIANTS):
        names = ", ".join(f"'{name}'" for name in VARIANTS)
        raise ValueError(f"{place or 'form'}.kind: {kind!r} is unknown; use {names}")
    try:
        return VARIANTS[kind].model_validate(dict(table))
    except ValidationError as problem:
        original = input_error_in(problem)
        if original is not None:
            raise original from None
        error = problem.errors()[0]
        text = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            keys = ", ".join(sorted(VARIANTS[kind].model_fields))
            text = f"this key is unknown; known here: {keys}"
        where = ".".join([place or "form", *map(str, error["loc"])])
        raise ValueError(f"{where}: {text}") from None


def variants_by_head(variants: Variants, heads: Sequence[int]) -> LayerVariants:
    """The variant of every head, layer by layer; ValueError if lists do not fit the heads."""
    if isinstance(variants, AttentionVariant):
        variants = (variants,) * len(heads)
    if len(variants) != len(heads):
        raise ValueError(f"gives {len(variants)} layers, the network has {len(heads)}")
    by_layer = []
    for layer, (of_layer, count) in enumerate(zip(variants, heads, strict=True), start=1):
        if isinstance(of_layer, AttentionVariant):
            of_layer = (of_layer,) * count
        if len(of_layer) != count:
            raise ValueError(f"gives {len(of_layer)} heads in layer {layer}, which has {count}")
        by_layer.append(of_layer)
    return tuple(by_layer)


# --- the matrices of a layer


def layer_matrices(
    variants: tuple[AttentionVariant, ...], queries: Array, keys: Array
) -> Float[Array, "example head key query"]:
    """Ω of all heads of a layer; heads of equal variants are computed together.

    queries, keys: [example, head, token, key channel], one variant for each head.
    """
    xp = queries.__array_namespace__()
    heads, matrices = [], []
    for variant in dict.fromkeys(variants):
        alike = [head for head, other in enumerate(variants) if other == variant]
        matrices.append(variant.matrices(take_heads(queries, alike), take_heads(keys, alike)))
        heads.extend(alike)
    order = [heads.index(head) for head in range(len(heads))]
    return take_heads(xp.concat(matrices, axis=1), order)


def take_heads(values: Array, heads: Sequence[int]) -> Array:
    """The values [example, head, …] of some heads."""
    if list(heads) == list(range(values.shape[1])):
        return values
    # Slices, not a list of indices: their derivatives are cheap.
    xp = values.__array_namespace__()
    return xp.concat([values[:, head : head + 1] for head in heads], axis=1)


# --- the layers of weights that layers of attention serve


@runtime_checkable
class MlpLike(Protocol):
    """W_2 ψ(W_1 z/√N)/√M for each token: M and the name of ψ."""

    width: Any
    activation: Any


def paired(of_attention: tuple, hypernetworks: tuple[bool, ...]) -> tuple:
    """One entry per layer of attention as one per layer of weights: two for a hypernetwork."""
    return tuple(
        entry
        for entry, is_pair in zip(of_attention, hypernetworks, strict=True)
        for _ in range(1 + is_pair)
    )


def lowest_layers(hypernetworks: Sequence[bool]) -> tuple[int, ...]:
    """For each attention the first layer l of weights that it serves, from 1."""
    return tuple(1 + place + sum(hypernetworks[:place]) for place in range(len(hypernetworks)))


def mlp_shapes(
    mlp: MlpLike | None, widths: Sequence[int], hypernetworks: Sequence[bool]
) -> dict[str, tuple[int, ...]]:
    """Shapes of `mlp_in_l` [M, N] and `mlp_out_l` [N, M], the weights of the MLP above layer l.

    widths         N_1 … N_L, N_a
    hypernetworks  whether each attention serves two layers of weights
    """
    shapes: dict[str, tuple[int, ...]] = {}
    layers = zip(lowest_layers(hypernetworks), hypernetworks, strict=True)
    for layer, is_pair in layers if mlp is not None else ():
        above = layer + is_pair
        shapes[f"mlp_in_{above}"] = (mlp.width, widths[above])
        shapes[f"mlp_out_{above}"] = (widths[above], mlp.width)
    return shapes
