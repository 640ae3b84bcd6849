"""Attention of a PyTorch model on given inputs, and the tokens that its layers attend to.

Each module of attention is watched within its forward: of `torch.nn.MultiheadAttention`, and of
Hugging Face models, which compute their weights meanwhile. A model of any other kind needs a
function that returns its attention.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from sampler.attention.padding import padded_together, refuse_infinite, without_padding
from sampler.data.examples import Examples
from sampler.errors import InputError, Verbatim
from sampler.torch_models.model_inputs import (
    Batch,
    Forward,
    around_forward,
    as_numpy,
    batches,
    call_arguments,
    evaluating,
    is_multihead,
    read_inputs,
    real_tokens,
    torch_module,
)

# attention(model, batch): tokens [example, token, channel], and of each layer weights
# [example, head, query, key]
Attention = Callable[[Any, Any], tuple[Any, Sequence[Any]]]
Heads = Mapping[int, Sequence[int]]
IN_ANOTHER_WAY = (
    "; give attention=lambda model, batch: (tokens, [weights of each layer]), tokens [example, "
    "token, channel], weights [example, head, query, key]"
)
# Of the output of `torch.nn.MultiheadAttention`.
EVERY_HEAD = {"need_weights": True, "average_attn_weights": False}


@dataclass(frozen=True)
class RecordedAttention(Examples):
    """The attention of a model on some examples: float64 of one in double precision, else float32.

    Inputs are the tokens before the first layer that is chosen; padding is 0.

    chosen   heads, from 0, by the number of their layer in the model, from 1
    modules  of the layers, by their names in the model
    """

    chosen: Heads = field(default_factory=dict)
    modules: tuple[str, ...] = ()


def record_attention(
    model: Any,
    inputs: Any,
    *,
    layers: tuple[int, int] | None = None,
    heads: Heads | None = None,
    forward: Forward | None = None,
    attention: Attention | None = None,
    batch_size: int = 64,
) -> RecordedAttention:
    """Ω of every layer and head, and x_0, of a PyTorch model in evaluation mode.

    The model has modules of `torch.nn.MultiheadAttention`, at any depth; or is a Hugging Face
    model, or has one within it.

    inputs      a tensor [example, …]; tensors by the name of their argument; or a list of examples,
                which may differ in the number of tokens and then go through the model by length
    layers      a window, its first and its last layer, from 1; x_0 are the tokens before the first
    heads       heads to keep, from 0, by the number of their layer
    forward     runs the model on a batch, `forward(model, batch)`; by default `model(batch)`
    attention   of any other model: `attention(model, batch)` returns the tokens [example, token,
                channel] and the weights [example, head, query, key] of each layer
    batch_size  examples in the model at a time

    Padding is where `attention_mask` [example, token] among the named inputs is 0, or what layers
    of `torch.nn.MultiheadAttention` are given as `key_padding_mask`. Tokens are moved before it, in
    their order, and the numbers of them are `lengths`.

    Mode, hooks and settings of the model are afterwards as before, even after an error. Raises
    InputError for a model of none of these kinds, for tokens that attend to padding, and for
    numbers that are not finite.
    """
    numbers: list[int] = []
    parts: list[list[np.ndarray]] = []
    for batch in batches(read_inputs(inputs), batch_size, model):
        seen = see_layers(model, batch, forward, attention)
        chosen = chosen_heads([layer.weights.shape[1] for layer in seen], layers, heads)
        numbers += batch.numbers.tolist()
        parts.append(arrays_of(seen, chosen, batch))
        refuse_change(parts[-1], parts[0])
    order = np.argsort(numbers)
    tokens, *matrices, lengths = (
        padded_together(pieces)[order] for pieces in zip(*parts, strict=True)
    )
    refuse_infinite("inputs", tokens)
    for layer, of_layer in zip(chosen, matrices, strict=True):
        refuse_infinite(f"attention of layer {layer}", of_layer)
    modules = tuple(seen[number - 1].module for number in chosen)
    unequal = lengths if (lengths < tokens.shape[1]).any() else None
    return RecordedAttention(tokens, None, tuple(matrices), unequal, chosen=chosen, modules=modules)


# --- one batch


@dataclass(frozen=True)
class SeenLayer:
    """Tokens and weights of one run of a module of attention.

    module   its name in the model
    tokens   [example, token, channel] that it is given; None where there are none
    weights  [example, head, query, key]
    real     [example, token], false for padding; None where no mask says so
    """

    module: str
    tokens: Any
    weights: Any
    real: Any = None


def see_layers(
    model: Any, batch: Batch, forward: Forward | None, attention: Attention | None
) -> list[SeenLayer]:
    """The attention of a model on one batch, by the function that gives it or by its modules.

    Raises InputError unless every layer has weights of every token with every one.
    """
    torch = torch_module()
    with evaluating(model), torch.no_grad():
        if attention is None:
            with watching(model) as seen:
                batch.run(model, forward)
        else:
            tokens, weights = attention(model, batch.given)
            seen = [SeenLayer("", None, torch.as_tensor(of_layer)) for of_layer in weights]
            seen[:1] = [SeenLayer("", torch.as_tensor(tokens), one.weights) for one in seen[:1]]
    if not seen:
        remedy = "none of its modules of attention returned weights of queries and keys"
        name = Verbatim(f"({type(model).__name__})")
        raise InputError("attention of the model", name, remedy + IN_ANOTHER_WAY)
    examples, shape = len(batch.numbers), tuple(getattr(seen[0].tokens, "shape", ()))
    if len(shape) != 3 or shape[0] != examples or 0 in shape:
        remedy = f"the first layer must be given the tokens [{examples}, token, channel]"
        raise InputError("tokens of the model", shape, remedy + IN_ANOTHER_WAY)
    tokens = shape[1]
    for number, layer in enumerate(seen, start=1):
        received = tuple(layer.weights.shape)
        if len(received) != 4 or (received[0], *received[2:]) != (examples, tokens, tokens):
            remedy = (
                f"must be ({examples}, heads, {tokens}, {tokens}), [example, head, query, key]: "
                "windows, bands and pooled tokens have no matrix of all tokens"
            )
            raise InputError(f"attention of layer {number}", received, remedy + IN_ANOTHER_WAY)
    return seen


def arrays_of(seen: Sequence[SeenLayer], chosen: Heads, batch: Batch) -> list[np.ndarray]:
    """x_0, Ω of the chosen heads of each layer, and the number of tokens; without padding."""
    first = seen[min(chosen) - 1]
    if first.tokens is None:
        remedy = "the tokens before this layer are not seen: export all of its layers"
        raise InputError("layers", [min(chosen), max(chosen)], remedy)
    inputs = as_numpy(first.tokens)
    attention = [
        as_numpy(seen[number - 1].weights[:, heads].transpose(2, 3))
        for number, heads in chosen.items()
    ]
    masks = [mask for mask in (batch.mask, *(layer.real for layer in seen)) if mask is not None]
    if masks:
        real = masks[0].cpu().numpy()
    else:
        real = np.ones(inputs.shape[:2], bool)
        refuse_unseen(attention, batch.numbers)
    if real.shape != inputs.shape[:2]:
        remedy = f"must be {inputs.shape[:2]}: one entry for each token that attention sees"
        raise InputError("mask of padding", real.shape, remedy)
    for number in batch.numbers[~real.any(axis=1)]:
        remedy = "every sequence needs one token at least; leave this example out"
        raise InputError(f"tokens of example {number}", 0, remedy)
    arrays, lengths = without_padding(inputs, attention, real, int(batch.numbers[0]))
    return [*arrays, lengths]


def refuse_unseen(attention: Sequence[np.ndarray], numbers: np.ndarray) -> None:
    """Raise InputError for a token that no token of any layer sees: likely padding, unsaid."""
    largest = np.max([matrices.max(axis=(1, 3)) for matrices in attention], axis=0)
    for example, token in np.argwhere(largest == 0.0):  # not where it is no number
        remedy = (
            "no token gives it weight; mark padding by `attention_mask` [example, token] "
            "among the named inputs, 1 for a token and 0 for padding, or give a list of sequences"
        )
        where = f"attention to token {token} of example {numbers[example]}"
        raise InputError(where, 0.0, remedy)


def refuse_change(arrays: list[np.ndarray], first: list[np.ndarray]) -> None:
    """Raise InputError if channels, layers or heads are not those of the first examples."""
    sizes, expected = (
        [tokens.shape[2], *(matrices.shape[1] for matrices in attention)]
        for tokens, *attention, _ in (arrays, first)
    )
    if sizes != expected:
        remedy = f"was {expected} for the first examples; layers and heads must not depend on them"
        raise InputError("channels, and heads of each layer", Verbatim(sizes), remedy)


def chosen_heads(
    counts: Sequence[int], layers: tuple[int, int] | None = None, heads: Heads | None = None
) -> dict[int, list[int]]:
    """Heads, from 0, by the number of their layer, from 1, of a window of layers.

    counts  heads of every layer of the model
    layers  the first and the last layer; None for all
    heads   to keep in some layers; of the others all are kept

    Raises InputError for layers and heads that the model has not.
    """
    window = (1, len(counts)) if layers is None else tuple(layers)
    whole = [type(number) for number in window] == [int, int]
    if not whole or not 1 <= window[0] <= window[1] <= len(counts):
        remedy = f"give the first and the last layer, of layers 1 to {len(counts)}: (3, 5)"
        raise InputError("layers", layers, remedy)
    numbers = range(window[0], window[1] + 1)
    named = {} if heads is None else heads
    if not isinstance(named, Mapping) or not set(named) <= set(numbers):
        remedy = (
            f"give heads by the number of their layer, {numbers[0]} to {numbers[-1]}: "
            f"{{{numbers[0]}: [0, 2]}}"
        )
        raise InputError("heads", heads, remedy)
    chosen = {}
    for number in numbers:
        every = range(counts[number - 1])
        given = list(named.get(number, every))
        if not given or len(set(given)) < len(given) or not set(given) <= set(every):
            remedy = (
                f"layer {number} has heads 0 to {len(every) - 1}; name one at least, none twice"
            )
            raise InputError(f"heads[{number}]", given, remedy)
        chosen[number] = sorted(map(int, given))
    return chosen


# --- modules of attention


@contextmanager
def watching(model: Any) -> Iterator[list[SeenLayer]]:
    """Record the attention of every module that returns its weights; of nested modules the
    innermost.

    Models of Hugging Face compute their weights meanwhile. Raises InputError for those of an
    encoder with a decoder.
    """
    joined = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if joined and hasattr(getattr(model, "base_model", model), "decoder"):
        remedy = (
            "is an encoder with a decoder, whose layers attend to other tokens than their own; "
            "take the encoder, model.get_encoder()"
        )
        raise InputError("model", Verbatim(type(model).__name__), remedy)
    seen: list[SeenLayer] = []
    with ExitStack() as stack:
        for name, module in model.named_modules():
            watch = see_multihead if is_multihead(module) else see_returned
            inner = [] if is_multihead(module) else list(module.modules())[1:]
            if is_attention(module) and not any(map(is_attention, inner)):
                around = around_forward(module, partial(watch, seen, name, module))
                stack.enter_context(around)
            before = getattr(getattr(module, "config", None), "_attn_implementation", None)
            if before not in (None, "eager") and hasattr(module, "set_attn_implementation"):
                stack.callback(module.set_attn_implementation, before)
                module.set_attn_implementation("eager")
        yield seen


def is_attention(module: Any) -> bool:
    """Whether a module is attention, by the name of its class."""
    return is_multihead(module) or "Attention" in type(module).__name__


def see_multihead(
    seen: list[SeenLayer],
    name: str,
    module: Any,
    forward: Callable,
    *positional: Any,
    **named: Any,
) -> Any:
    """Have the weights of each head computed, and record them; the caller gets its usual output."""
    asked = call_arguments(module, positional, named)
    query, key, tokens = asked["query"], asked["key"], asked["value"]
    if key is not query and not (key.shape == query.shape and bool((key == query).all())):
        remedy = (
            "queries and keys must be those of the same tokens; the theory has self-attention "
            "only, so of an encoder with a decoder take the encoder"
        )
        raise InputError("key of MultiheadAttention", tuple(key.shape), remedy)
    attended, weights = forward(**asked | EVERY_HEAD)
    tokens = tokens if module.batch_first else tokens.transpose(0, 1)
    seen.append(SeenLayer(name, tokens, weights.detach(), real_tokens(asked["key_padding_mask"])))
    if not asked["need_weights"]:
        return attended, None
    return attended, weights.mean(dim=1) if asked["average_attn_weights"] else weights


def see_returned(
    seen: list[SeenLayer], name: str, _: Any, forward: Callable, *positional: Any, **named: Any
) -> Any:
    """Find weights [example, head, query, key] in the output of a module, if any."""
    returned = forward(*positional, **named)
    weights = [
        tensor
        for tensor in (returned if isinstance(returned, tuple) else ())
        if getattr(tensor, "ndim", 0) == 4
        and tensor.shape[-1] == tensor.shape[-2]
        and not bool(((tensor < -1e-3) | (tensor > 1.001)).any())
    ]
    tokens = (
        tensor
        for tensor in (*positional, *named.values())
        if getattr(tensor, "ndim", 0) == 3 and tensor.is_floating_point()
    )
    if weights:
        seen.append(SeenLayer(name, next(tokens, None), weights[-1].detach()))
    return returned
