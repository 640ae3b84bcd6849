"""Models whose attention is no matrix of all tokens of an example, refused by the cause."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sampler.errors import InputError, Verbatim


def refuse_decoder(model: Any) -> None:
    """Raise InputError for an encoder with a decoder, whose queries see keys of another text."""
    inner = getattr(model, "base_model", model)
    joined = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if joined and hasattr(inner, "encoder") and hasattr(inner, "decoder"):
        remedy = (
            "is an encoder with a decoder, whose layers attend to other tokens than their own; "
            "the theory has self-attention only: take the encoder, model.get_encoder()"
        )
        raise InputError("model", Verbatim(type(model).__name__), remedy)


def refuse_compiled(model: Any) -> None:
    """Raise InputError for a compiled model, in which nobody sees layers."""
    if hasattr(model, "_orig_mod"):
        remedy = "is compiled by torch.compile: give the model that was compiled, model._orig_mod"
        raise InputError("model", Verbatim(type(model).__name__), remedy)


def refuse_bands(model: Any) -> None:
    """Raise InputError for a model that returns bands, which may look like matrices of all keys."""
    band = getattr(getattr(model, "config", None), "attention_window", None)
    if band is not None:
        remedy = (
            "is attention in a band around each token (as in Longformer): there is no matrix of "
            "all queries and keys; take a model of the kind whose layers attend to all tokens"
        )
        raise InputError("attention_window of the model", band, remedy)


def refuse_others(queries: Any, keys: Any) -> None:
    """Raise InputError for queries and keys made of other tokens, where it is known of which."""
    if queries is None or keys is None or queries is keys:
        return
    if queries.shape != keys.shape or not bool((queries == keys).all()):
        remedy = (
            "queries and keys must be made of the same tokens; the theory has self-attention only, "
            "so of an encoder with a decoder take the encoder"
        )
        shapes = (tuple(queries.shape), tuple(keys.shape))
        raise InputError("tokens of scaled_dot_product_attention", shapes, remedy)


def refuse_windows(examples: int, found: Sequence[Any]) -> None:
    """Raise InputError for weights of several windows in the place of each example."""
    for matrices in found:
        windows = len(matrices) // examples
        if windows > 1 and len(matrices) == windows * examples:
            remedy = (
                f"{examples} went in: attention is within {windows} windows of an example (as in "
                "Swin), and no head joins all of its tokens; choose a window as large as the "
                "example, or a model without windows"
            )
            raise InputError("windows seen by the attention", len(matrices), remedy)


def refuse_other_examples(found: list[np.ndarray], examples: int) -> None:
    """Raise InputError unless tokens and attention are of as many examples as went in."""
    for array in found:
        if len(array) != examples:
            remedy = (
                f"{examples} went in; if the model wants tokens on the first axis, give "
                "forward=lambda model, batch: model(batch.transpose(0, 1))"
            )
            raise InputError("examples seen by the attention", len(array), remedy)


def refuse_partial(inputs: np.ndarray, weights: Sequence[np.ndarray]) -> None:
    """Raise InputError unless every layer has weights of each token with each of its example."""
    if inputs.ndim != 3 or inputs.size == 0:
        remedy = "the first layer must see [example, token, channel], none of length 0"
        raise InputError("inputs", inputs.shape, remedy)
    for layer, matrices in enumerate(weights, start=1):
        refuse_other_shape(f"attention of layer {layer}", matrices.shape, *inputs.shape[:2])


def refuse_other_shape(field: str, shape: tuple[int, ...], examples: int, tokens: int) -> None:
    """Raise InputError unless this is the shape of a matrix of all tokens for every head."""
    if len(shape) == 4 and (shape[0], *shape[2:]) == (examples, tokens, tokens):
        return
    if len(shape) != 4:
        remedy = (
            "what came back are no weights of queries and keys, [example, head, query, key]: the "
            "model has none (as RWKV), or keeps them; give forward=lambda model, batch: … with "
            "`attentions` and `hidden_states`"
        )
        raise InputError(field, shape, remedy)
    remedy = (
        f"the shape must be ({examples}, heads, {tokens}, {tokens}), [example, head, key, query]: "
        "every token attends to every token of the same sequence. Attention in bands (Longformer) "
        "or among fewer tokens (Funnel, Canine) gives no such matrix; take a model of the kind "
        "whose layers attend to all tokens"
    )
    raise InputError(field, shape, remedy)
