"""Attention that a model computes without its matrices: Hugging Face models, and fused kernels."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from sampler.errors import InputError

IMPLEMENTATION = "_attn_implementation"


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """Make a Hugging Face model compute its attention matrices; on leaving, it does as before."""
    config = getattr(model, "config", None)
    before = getattr(config, IMPLEMENTATION, None)
    switch = getattr(model, "set_attn_implementation", None)
    if switch is None or before is None:
        yield
        return
    parts = {
        name: getattr(getattr(config, name), IMPLEMENTATION, None)
        for name in getattr(config, "sub_configs", ())
        if getattr(config, name, None) is not None
    }
    if {before, *parts.values()} <= {"eager", None}:
        yield
        return
    try:
        switch("eager")
        yield
    finally:
        switch({"": before, **{name: one for name, one in parts.items() if one is not None}})


@dataclass
class FusedCalls:
    """Calls of `scaled_dot_product_attention` in a forward pass, one after the other.

    inputs   x_0 [example, token, channel]: input of the innermost module that makes the first call
    weights  [example, head, query, key] of every call
    tokens   [example, token], false for what the mask of the call hides from every query; or None
    """

    inputs: Any = None
    weights: list[Any] = field(default_factory=list)
    tokens: list[np.ndarray | None] = field(default_factory=list)


@contextmanager
def watched(model: Any) -> Iterator[FusedCalls]:
    """The calls of `torch.nn.functional.scaled_dot_product_attention` in a forward pass.

    Each returns what it would return anyhow. On leaving, the hooks are gone.
    """
    torch = import_module("torch")
    calls, running = FusedCalls(), []

    class Watching(import_module("torch.overrides").TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.nn.functional.scaled_dot_product_attention:
                add_call(calls, running, *args, **(kwargs or {}))
            return function(*args, **(kwargs or {}))

    def enter(module: Any, positional: tuple, named: dict) -> None:
        running.append([*positional, *named.values()])

    def leave(module: Any, positional: tuple, returned: Any) -> None:
        running.pop()

    handles = []
    try:
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
        with Watching():
            yield calls
    finally:
        for handle in handles:
            handle.remove()


def add_call(
    calls: FusedCalls,
    running: list[list[Any]],
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """Add softmax(q·k/√d + mask), computed step by step, and the padding that the mask hides."""
    torch = import_module("torch")
    if query.ndim not in (3, 4) or key.ndim != query.ndim or query.shape[-2] != key.shape[-2]:
        remedy = (
            "queries and keys must be [example, head, token, channel] of the same tokens; the "
            "theory has self-attention only"
        )
        shapes = (tuple(query.shape), tuple(key.shape))
        raise InputError("query and key of scaled_dot_product_attention", shapes, remedy)
    if enable_gqa:  # several heads share their keys
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    logits = scale * query @ key.transpose(-2, -1)
    allowed = torch.ones_like(logits, dtype=torch.bool)
    if is_causal:
        allowed = allowed.tril()
    if attn_mask is not None:
        is_boolean = attn_mask.dtype == torch.bool
        if not is_boolean:
            logits = logits + attn_mask
        # Half of the most negative number is what several masks add up to at the least.
        below = 0 if is_boolean else torch.finfo(attn_mask.dtype).min / 2
        allowed = allowed & (attn_mask if is_boolean else attn_mask > below)
    weights = torch.softmax(logits.masked_fill(~allowed, -math.inf), dim=-1)
    if query.ndim == 3:  # one head, which has no axis
        weights, allowed = weights.unsqueeze(1), allowed.unsqueeze(1)
    tokens = allowed.any(dim=2).any(dim=1).cpu().numpy()
    calls.tokens.append(None if tokens.all() else tokens)
    calls.weights.append(weights)
    if calls.inputs is None:
        calls.inputs = tokens_around(running, weights.shape[0], weights.shape[-1])


def tokens_around(running: list[list[Any]], examples: int, tokens: int) -> Any:
    """The input [example, token, channel] of the innermost of the modules being run."""
    for given in reversed(running):
        for one in given:
            if getattr(one, "ndim", 0) == 3 and tuple(one.shape[:2]) == (examples, tokens):
                return one
    remedy = (
        f"the module that calls it must be given the tokens [{examples}, {tokens}, channel], "
        "examples first, which are x_0 of its layer"
    )
    raise InputError("scaled_dot_product_attention", "(no tokens)", remedy)
