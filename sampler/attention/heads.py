"""The matrices of all heads of a layer, and how a recipe chooses the variant of each.

Everywhere matrices are Ω [example, head, key, query].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import ValidationError

from sampler.attention.variants import VARIANTS, Array, AttentionVariant, softmax, transposed

# A variant, or a tuple with an entry for each layer: a variant, or a tuple of them, one per head.
Variants = AttentionVariant | tuple[AttentionVariant | tuple[AttentionVariant, ...], ...]


def read_variants(value: Any) -> Any:
    """Variants from a recipe's tables and lists; ValueError with the place and the remedy."""
    return None if value is None else _read(value, "", depth=0)


def _read(value: Any, place: str, depth: int) -> Any:
    if isinstance(value, AttentionVariant):
        return value
    if isinstance(value, Mapping):
        kind = value.get("kind")
        if kind not in tuple(VARIANTS):
            known = ", ".join(f"'{name}'" for name in VARIANTS)
            raise ValueError(f"{place or 'form'}.kind: {kind!r} is unknown; use {known}")
        try:
            return VARIANTS[kind].model_validate(dict(value))
        except ValidationError as problem:
            error = problem.errors()[0]
            inner = ".".join(map(str, error["loc"]))
            text = error["msg"].removeprefix("Value error, ")
            if error["type"] == "extra_forbidden":
                keys = ", ".join(sorted(VARIANTS[kind].model_fields))
                text = f"this key is unknown; known here: {keys}"
            raise ValueError(f"{place or 'form'}{'.' * bool(inner)}{inner}: {text}") from None
    if isinstance(value, Sequence) and not isinstance(value, str) and value and depth < 2:
        return tuple(_read(one, f"{place}[{i}]", depth + 1) for i, one in enumerate(value))
    raise ValueError(
        f'{place or "form"}: use a table with a kind, as in {{ kind = "softmax" }}, or a list with '
        "an entry for each layer: a table, or a list of one table per head"
    )


def variants_by_head(
    variants: Variants, heads: Sequence[int]
) -> tuple[tuple[AttentionVariant, ...], ...]:
    """The variant of every head, layer by layer; ValueError if lists do not fit the heads."""
    if isinstance(variants, AttentionVariant):
        return tuple((variants,) * count for count in heads)
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


@dataclass(frozen=True)
class HeadGroup:
    """The heads of a layer that share a variant, and the factors of their matrices Ω = Pᵀ S.

    heads    their numbers
    variant  the variant
    weights  S [example, head, pooled, query]
    pooling  P [pooled, key], None where keys are not pooled
    """

    heads: tuple[int, ...]
    variant: AttentionVariant
    weights: Array
    pooling: Array | None

    def unpooled(self, rows: Array) -> Array:
        """Rows [*axes, row, key] from rows [*axes, row, pooled] of Sᵀ, or combinations of them."""
        return rows if self.pooling is None else rows @ self.pooling


def head_groups(
    variants: tuple[AttentionVariant, ...], queries: Array, keys: Array
) -> tuple[HeadGroup, ...]:
    """The groups of a layer; heads of equal variants are computed together.

    queries, keys: [example, head, token, key channel], one variant for each head.
    """
    xp = queries.__array_namespace__()
    groups = []
    for variant in dict.fromkeys(variants):
        heads = tuple(head for head, other in enumerate(variants) if other == variant)
        # Slices, not a list of indices: their derivatives are cheap.
        chosen = (
            xp.concat([values[:, head : head + 1] for head in heads], axis=1)
            for values in (queries, keys)
        )
        groups.append(HeadGroup(heads, variant, *variant.factors(*chosen)))
    return tuple(groups)


def by_head(groups: tuple[HeadGroup, ...], found: Sequence[Array]) -> Array:
    """Arrays [example, head of the group, …], one for each group, as [example, head, …]."""
    xp = found[0].__array_namespace__()
    heads = [head for group in groups for head in group.heads]
    together = xp.concat(list(found), axis=1)
    if heads == sorted(heads):
        return together
    places = [heads.index(head) for head in range(len(heads))]
    return xp.concat([together[:, place : place + 1] for place in places], axis=1)


def layer_matrices(
    variants: tuple[AttentionVariant, ...], queries: Array, keys: Array
) -> Float[Array, "example head key query"]:
    """Ω of all heads of a layer; arguments as of `head_groups`."""
    groups = head_groups(variants, queries, keys)
    rows = [group.unpooled(transposed(group.weights)) for group in groups]
    return transposed(by_head(groups, rows))


def factored_attention(
    inputs: Float[np.ndarray, "example token channel"],
    query_weights: Float[np.ndarray, "head key_channel channel"],
    key_weights: Float[np.ndarray, "head key_channel channel"],
    variants: tuple[AttentionVariant, ...],
) -> Float[np.ndarray, "example head key query"]:
    """Matrices of heads with weights W_Q and W_K, one variant for each.

    Queries W_Q^h x_t and keys W_K^h x_s, so that k_s·q_t/√G is the logit.
    """
    queries, keys = (
        inputs[:, None] @ np.swapaxes(weights, 1, 2) for weights in (query_weights, key_weights)
    )
    return np.ascontiguousarray(layer_matrices(variants, queries, keys))


def softmax_attention(
    inputs: Float[np.ndarray, "example token channel"],
    query_weights: Float[np.ndarray, "head key_channel channel"],
    key_weights: Float[np.ndarray, "head key_channel channel"],
) -> Float[np.ndarray, "example head key query"]:
    """Compute the matrices of softmax heads, in little memory; columns, over keys, sum to 1.

    Ω^h_{st} = exp(k_s·q_t/√G) / Σ_{s'} exp(k_{s'}·q_t/√G),   k = W_K^h x,   q = W_Q^h x
    """
    scale = np.sqrt(query_weights.shape[1])
    matrices = np.empty((len(inputs), len(query_weights), *(2 * inputs.shape[1:2])))
    # Head by head: the matrices of all examples at once are the largest arrays of a task.
    for head, (query, key) in enumerate(zip(query_weights, key_weights, strict=True)):
        queries = inputs @ (query.T / scale)
        matrices[:, head] = softmax((inputs @ key.T) @ np.swapaxes(queries, 1, 2))
    return matrices


def bilinear_attention(
    inputs: Float[np.ndarray, "example token channel"],
    logit_weights: Float[np.ndarray, "head channel channel"],
    variants: tuple[AttentionVariant, ...] = (),
) -> Float[np.ndarray, "example head key query"]:
    """Matrices of heads with bilinear logits x_sᵀ W^h x_t, one variant for each or softmax in all.

        Ω^h_{st} = exp(x_sᵀ W^h x_t) / Σ_{s'} exp(x_{s'}ᵀ W^h x_t)

    A variant sees keys k_s = x_s and queries q_t = √D W^h x_t, so that k_s·q_t/√D is the logit.
    """
    if not variants:
        return np.stack([softmax_of_one(inputs, weights) for weights in logit_weights], 1)
    queries = np.einsum("hij,xtj->xhti", logit_weights, inputs) * np.sqrt(inputs.shape[-1])
    keys = np.broadcast_to(inputs[:, None], queries.shape)
    return np.ascontiguousarray(layer_matrices(variants, queries, keys))


def softmax_of_one(
    inputs: Float[np.ndarray, "example token channel"],
    weights: Float[np.ndarray, "channel channel"],
) -> Float[np.ndarray, "example key query"]:
    """Matrices of one softmax head; one whose weights are zero attends to all tokens alike."""
    tokens = inputs.shape[1]
    if not weights.any():
        return np.full((len(inputs), tokens, tokens), 1.0 / tokens)
    return softmax((inputs @ weights) @ np.swapaxes(inputs, 1, 2))
