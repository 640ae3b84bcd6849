"""Attention of a PyTorch model on given inputs, and the tokens that its layers attend to.

Modules of attention are watched in a forward pass: `torch.nn.MultiheadAttention`, and those of
Hugging Face models, which compute their matrices meanwhile. A model of any other kind needs a
function that returns its attention.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sampler.attention.padding import padded_together, refuse_infinite, within, without_padding
from sampler.errors import InputError, Verbatim
from sampler.torch_models.model_inputs import (
    Forward,
    as_numpy,
    as_tensors,
    batch_of,
    batches,
    call,
    check_batch_size,
    eager,
    evaluating,
    torch_module,
)

# attention(model, batch): tokens [example, token, channel], and of each layer weights
# [example, head, query, key]
Attention = Callable[[Any, Any], tuple[Any, Sequence[Any]]]
# Numbers that masks add to logits are −10³ and less; logits of models are tens.
HIDING = -900.0
IN_ANOTHER_WAY = (
    "; give attention=lambda model, batch: (tokens, [weights of each layer]), tokens [example, "
    "token, channel], weights [example, head, query, key]"
)


def is_multihead(module: Any) -> bool:
    """Whether a module is a `torch.nn.MultiheadAttention`."""
    return isinstance(module, torch_module().nn.MultiheadAttention)


@dataclass
class SeenAttention:
    """Attention that a forward pass computed, layer by layer in the order of computation.

    tokens   [example, token, channel] that each layer attends to
    weights  [example, head, query, key]
    modules  names of the modules in the model
    real     [example, token], false for padding; None where no mask says so
    """

    tokens: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    real: Any = None


@contextmanager
def watching(model: Any) -> Iterator[SeenAttention]:
    """See the attention of every module that returns its weights, of nested ones the innermost.

    Modules of `torch.nn.MultiheadAttention` are made to compute the weights of each head; their
    callers receive what they asked for.
    """
    seen, running, handles = SeenAttention(), [], []

    def before(name: str, module: Any, positional: tuple, named: dict) -> Any:
        if not is_multihead(module):
            running.append((first_tokens((*positional, *named.values())), len(seen.weights), None))
            return None
        settings = settings_of_call(module, positional, named)
        values = settings.arguments["value"]
        tokens = values if module.batch_first else values.transpose(0, 1)
        asked = dict(settings.arguments)
        running.append((tokens, len(seen.weights), asked))
        settings.arguments.update(need_weights=True, average_attn_weights=False)
        if asked["key_padding_mask"] is not None and seen.real is None:
            seen.real = ~hides(asked["key_padding_mask"])
        return settings.args, settings.kwargs

    def after(name: str, module: Any, positional: tuple, named: dict, returned: Any) -> Any:
        tokens, count, asked = running.pop()
        weights = returned[1] if is_multihead(module) else returned_weights(returned)
        if weights is None or len(seen.weights) > count:
            return None
        seen.tokens.append(tokens)
        seen.weights.append(weights.detach())
        seen.modules.append(name)
        return None if asked is None else as_asked(asked, *returned)

    try:
        for name, module in model.named_modules():
            if is_multihead(module) or "Attention" in type(module).__name__:
                handles += [
                    module.register_forward_pre_hook(
                        lambda *given, name=name: before(name, *given), with_kwargs=True
                    ),
                    module.register_forward_hook(
                        lambda *given, name=name: after(name, *given), with_kwargs=True
                    ),
                ]
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def settings_of_call(module: Any, positional: tuple, named: dict) -> inspect.BoundArguments:
    """Arguments of a call of `torch.nn.MultiheadAttention`; InputError for unusual ones."""
    bound = inspect.signature(module.forward).bind(*positional, **named)
    bound.apply_defaults()
    query, key = bound.arguments["query"], bound.arguments["key"]
    if query.ndim != 3:
        remedy = "must be a batch of sequences with three axes; give the batch axis"
        raise InputError("query of MultiheadAttention", tuple(query.shape), remedy)
    if key is not query and not (key.shape == query.shape and bool((key == query).all())):
        remedy = (
            "queries and keys must be those of the same tokens; the theory has self-attention "
            "only, so of an encoder with a decoder take the encoder"
        )
        raise InputError("key of MultiheadAttention", tuple(key.shape), remedy)
    return bound


def as_asked(asked: Mapping[str, Any], attended: Any, weights: Any) -> tuple[Any, Any]:
    """What a call of `torch.nn.MultiheadAttention` returns to its caller."""
    if not asked["need_weights"]:
        return attended, None
    return attended, weights.mean(dim=1) if asked["average_attn_weights"] else weights


def hides(mask: Any) -> Any:
    """True where a mask hides: where it is True, or a number that lowers logits out of sight."""
    return mask if mask.dtype == torch_module().bool else mask <= HIDING


def first_tokens(given: Sequence[Any]) -> Any:
    """The first tensor [example, token, channel] among arguments; None where there is none."""
    tensors = (one for one in given if getattr(one, "ndim", 0) == 3 and one.is_floating_point())
    return next(tensors, None)


def returned_weights(returned: Any) -> Any:
    """Weights [example, head, query, key] among what a module returns; None without any."""
    tensors = [
        one
        for one in (returned if isinstance(returned, tuple) else ())
        if getattr(one, "ndim", 0) == 4 and one.shape[-1] == one.shape[-2]
    ]
    shares = [one for one in tensors if not bool(((one < -1e-3) | (one > 1.001)).any())]
    return shares[-1] if shares else None


def see_attention(
    model: Any, batch: Any, forward: Forward | None, attention: Attention | None
) -> SeenAttention:
    """The attention of a model on one batch, by the function that gives it or by its modules.

    Raises InputError for a model that shows none, or whose layers attend to other tokens.
    """
    torch = torch_module()
    with evaluating(model), torch.no_grad():
        if attention is not None:
            tokens, weights = attention(model, batch)
            weights = [torch.as_tensor(one) for one in weights]
            seen = SeenAttention([torch.as_tensor(tokens)], weights, [""] * len(weights))
        else:
            refuse_models_of_two_parts(model)
            with eager(model), watching(model) as seen:
                (forward or call)(model, batch)
    if not seen.weights:
        remedy = "none of its modules of attention returned weights of queries and keys"
        raise InputError(
            "attention of the model", Verbatim(f"({type(model).__name__})"),
            remedy + IN_ANOTHER_WAY,
        )  # fmt: skip
    mask = batch.get("attention_mask") if isinstance(batch, dict) else None
    if getattr(mask, "ndim", 0) == 2:
        seen.real = mask.bool()
    refuse_other_tokens(seen, len(next(iter(batch.values())) if isinstance(batch, dict) else batch))
    return seen


def refuse_models_of_two_parts(model: Any) -> None:
    """Raise InputError for an encoder with a decoder, and for a compiled model."""
    name = Verbatim(type(model).__name__)
    if hasattr(model, "_orig_mod"):
        remedy = "is compiled by torch.compile: give the model that was compiled, model._orig_mod"
        raise InputError("model", name, remedy)
    inner = getattr(model, "base_model", model)
    joined = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if joined and hasattr(inner, "encoder") and hasattr(inner, "decoder"):
        remedy = (
            "is an encoder with a decoder, whose layers attend to other tokens than their own; "
            "take the encoder, model.get_encoder()"
        )
        raise InputError("model", name, remedy)


def refuse_other_tokens(seen: SeenAttention, examples: int) -> None:
    """Raise InputError unless all layers have weights of every token with every one."""
    shape = tuple(seen.tokens[0].shape) if seen.tokens[0] is not None else ()
    if len(shape) != 3 or shape[0] != examples or 0 in shape:
        remedy = f"the first layer must be given the tokens [{examples}, token, channel]"
        raise InputError("tokens of the model", shape, remedy + IN_ANOTHER_WAY)
    tokens = shape[1]
    for layer, weights in enumerate(seen.weights, start=1):
        received = tuple(weights.shape)
        if len(received) != 4 or (received[0], *received[2:]) != (examples, tokens, tokens):
            remedy = (
                f"must be ({examples}, heads, {tokens}, {tokens}), [example, head, query, key]: "
                "windows, bands and pooled tokens have no matrix of all tokens"
            )
            raise InputError(f"attention of layer {layer}", received, remedy + IN_ANOTHER_WAY)
    if seen.real is not None and tuple(seen.real.shape) != (examples, tokens):
        remedy = f"must be ({examples}, {tokens}): one entry for each token that attention sees"
        raise InputError("mask of padding", tuple(seen.real.shape), remedy)


# --- layers and heads that are chosen


def chosen_heads(
    counts: Sequence[int],
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
) -> dict[int, list[int]]:
    """Heads, from 0, by the number of their layer, from 1, of a window of layers.

    counts  heads of every layer of the model
    layers  the first and the last layer; None for all
    heads   to keep in some layers; of the others all are kept

    Raises InputError for layers and heads that the model has not.
    """
    first, last = check_window(layers) or (1, len(counts))
    if last > len(counts):
        raise InputError("layers", layers, f"the layers of the model are 1 to {len(counts)}")
    heads = {} if heads is None else heads
    if not isinstance(heads, Mapping):
        remedy = "give heads by the number of their layer, from 1: {1: [0, 2], 3: [1]}"
        raise InputError("heads", heads, remedy)
    outside = [number for number in heads if number not in range(first, last + 1)]
    if outside:
        remedy = f"heads are kept in layers {first} to {last}, which count from 1"
        raise InputError("heads", outside, remedy)
    chosen = {}
    for number in range(first, last + 1):
        count = counts[number - 1]
        given = list(heads.get(number, range(count)))
        if not given or len(set(given)) < len(given) or not set(given) <= set(range(count)):
            remedy = f"layer {number} has heads 0 to {count - 1}; name one at least, none twice"
            raise InputError(f"heads[{number}]", given, remedy)
        chosen[number] = sorted(map(int, given))
    return chosen


def check_window(layers: Any) -> tuple[int, int] | None:
    """The first and the last layer; InputError for what is no window."""
    if layers is None:
        return None
    window = tuple(layers) if isinstance(layers, tuple | list) else ()
    if len(window) != 2 or not all(type(one) is int for one in window):
        raise InputError("layers", layers, "give the first and the last layer: (3, 5)")
    if not 1 <= window[0] <= window[1]:
        raise InputError("layers", layers, "must rise, and begin at 1 or later")
    return window


# --- the whole


@dataclass(frozen=True)
class RecordedAttention:
    """The attention of a model on some examples: float64 of one in double precision, else float32.

    inputs     x_0 [example, token, channel], the tokens that the first layer attends to
    attention  Ω^l [example, head, key, query] for every layer l, in the order of computation
    chosen     heads, from 0, by the number of their layer in the model, from 1
    modules    of the layers, by their names in the model
    lengths    tokens of each sequence, [example], where they are not all as long: tokens and
               matrices behind them, of padding, are 0

    Raises InputError, naming layer and entry, unless everything is finite.
    """

    inputs: np.ndarray
    attention: tuple[np.ndarray, ...]
    chosen: Mapping[int, Sequence[int]]
    modules: tuple[str, ...]
    lengths: np.ndarray | None = None

    def __post_init__(self) -> None:
        refuse_infinite("inputs", self.inputs)
        for layer, matrices in zip(self.chosen, self.attention, strict=True):
            refuse_infinite(f"attention of layer {layer}", matrices)

    @property
    def heads(self) -> tuple[int, ...]:
        """H_1 … H_L."""
        return tuple(matrices.shape[1] for matrices in self.attention)

    def with_identity_heads(self) -> "RecordedAttention":
        """Add one more head to each layer, number H_l, whose Ω is the identity."""
        examples, tokens, _ = self.inputs.shape
        real = np.ones((examples, tokens), bool)
        if self.lengths is not None:
            real = within(self.lengths, tokens)
        identity = (np.eye(tokens, dtype=self.inputs.dtype) * real[:, None, :])[:, None]
        attention = tuple(np.concatenate([one, identity], axis=1) for one in self.attention)
        return replace(self, attention=attention)


def record_attention(
    model: Any,
    inputs: Any,
    *,
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
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

    Mode, hooks and settings of the model are afterwards as before, after an error too. Raises
    InputError for a model of none of these kinds, and for tokens that attend to padding.
    """
    tensors = as_tensors(inputs)
    check_batch_size(batch_size)
    order: list[int] = []
    parts: list[list[np.ndarray]] = []
    counts: list[np.ndarray] = []
    chosen, modules = {}, ()
    for examples in batches(tensors, batch_size):
        seen = see_attention(model, batch_of(tensors, examples, model), forward, attention)
        chosen = chosen_heads([one.shape[1] for one in seen.weights], layers, heads)
        part, lengths = arrays_of(seen, chosen)
        refuse_change(part, parts[0] if parts else part)
        modules = tuple(seen.modules[number - 1] for number in chosen)
        order += examples
        parts.append(part)
        counts.append(lengths)
    back = np.argsort(order)
    arrays = [padded_together(one)[back] for one in zip(*parts, strict=True)]
    lengths = np.concatenate(counts)[back]
    equal = (lengths == arrays[0].shape[1]).all()
    return RecordedAttention(
        arrays[0], tuple(arrays[1:]), chosen, modules, None if equal else lengths
    )


def arrays_of(
    seen: SeenAttention, chosen: Mapping[int, Sequence[int]]
) -> tuple[list[np.ndarray], np.ndarray]:
    """x_0 and Ω of the chosen heads without padding, and the number of tokens of each example."""
    first = min(chosen)
    if len(seen.tokens) < first or seen.tokens[first - 1] is None:
        remedy = "the tokens before this layer are not seen: export all of its layers"
        raise InputError("layers", [min(chosen), max(chosen)], remedy)
    inputs = as_numpy(seen.tokens[first - 1])
    weights = [as_numpy(seen.weights[number - 1][:, heads]) for number, heads in chosen.items()]
    if seen.real is None:
        real = np.ones(inputs.shape[:2], bool)
        refuse_unseen(weights)
    else:
        real = seen.real.cpu().numpy()
    if not real.any(axis=1).all():
        place = int(np.argmin(real.any(axis=1)))
        remedy = "every sequence needs one token at least; leave this example out"
        raise InputError(f"tokens of example {place}", 0, remedy)
    return without_padding(inputs, [one.swapaxes(-1, -2) for one in weights], real)


def refuse_unseen(weights: Sequence[np.ndarray]) -> None:
    """Raise InputError for a token that no token of any layer sees: likely padding, unsaid."""
    largest = np.max([one.max(axis=(1, 2)) for one in weights], axis=0)
    unseen = np.argwhere(largest == 0.0)  # not where it is no number
    if len(unseen):
        example, token = map(int, unseen[0])
        remedy = (
            "no token gives it weight; say what is padding by `attention_mask` [example, token] "
            "among the named inputs, 1 for a token and 0 for padding, or give a list of sequences"
        )
        raise InputError(f"attention to token {token} of example {example}", 0.0, remedy)


def refuse_change(part: list[np.ndarray], first: list[np.ndarray]) -> None:
    """Raise InputError if channels, layers or heads are not those of the first examples."""

    def sizes(arrays: list[np.ndarray]) -> list[tuple[int, ...]]:
        return [arrays[0].shape[2:], *(array.shape[1:2] for array in arrays[1:])]

    if sizes(part) != sizes(first):
        remedy = (
            f"was {sizes(first)} for the first examples; layers and heads must not depend on them"
        )
        raise InputError("channels, and heads of each layer", Verbatim(sizes(part)), remedy)
