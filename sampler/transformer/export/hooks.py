"""Attention of torch.nn.MultiheadAttention, which its callers average or throw away."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.transformer.export.batches import ONE_LENGTH
from sampler.transformer.export.pytorch import as_numpy, torch_module


def attention_layers(model: Any) -> list[Any]:
    """All torch.nn.MultiheadAttention modules of a model, at any depth."""
    kind = torch_module().nn.MultiheadAttention
    return [module for module in model.modules() if isinstance(module, kind)]


@contextmanager
def hooked(modules: list[Any]) -> Iterator[list[np.ndarray]]:
    """A list that gets the values of the first call of these modules, [example, token, channel],
    and then the attention [example, head, query, key] of every call, in the order of computation.

    The modules are made to compute the weights of each head; their caller receives what it asked
    for. On leaving, the hooks are gone.
    """
    found: list[np.ndarray] = []
    asked: list[tuple[bool, bool]] = []

    def before(module: Any, positional: tuple, named: dict) -> tuple[tuple, dict]:
        bound = inspect.signature(module.forward).bind(*positional, **named)
        bound.apply_defaults()
        settings = bound.arguments
        refuse_unusual(settings)
        if not found:
            values = settings["value"]
            found.append(as_numpy(values if module.batch_first else values.transpose(0, 1)))
        asked.append((settings["need_weights"], settings["average_attn_weights"]))
        settings.update(need_weights=True, average_attn_weights=False)
        return bound.args, bound.kwargs

    def after(module: Any, positional: tuple, named: dict, returned: tuple) -> tuple:
        attended, weights = returned
        found.append(as_numpy(weights))
        need_weights, average = asked.pop()
        if not need_weights:
            return attended, None
        return attended, weights.mean(dim=1) if average else weights

    handles = []
    try:
        for module in modules:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        yield found
    finally:
        for handle in handles:
            handle.remove()


def refuse_unusual(settings: dict[str, Any]) -> None:
    """Raise InputError for padding and for what is not attention within batches of sequences."""
    query, key = settings["query"], settings["key"]
    if query.ndim != 3:
        remedy = "must be a batch of sequences with three axes; give the batch axis"
        raise InputError("query of MultiheadAttention", tuple(query.shape), remedy)
    padding = settings["key_padding_mask"]
    if padding is not None and bool(padding.any()):
        raise InputError("key_padding_mask", Verbatim("(hides tokens)"), ONE_LENGTH)
    if key is not query and not (key.shape == query.shape and bool((key == query).all())):
        remedy = (
            "queries and keys must be those of the same tokens; the theory has self-attention only"
        )
        raise InputError("key of MultiheadAttention", tuple(key.shape), remedy)
