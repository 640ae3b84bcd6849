"""Attention of a PyTorch model on given inputs, and the tokens that its layers attend to.

Modules of attention are watched in a forward pass: `torch.nn.MultiheadAttention`, and those of
Hugging Face models, which compute their matrices meanwhile. A model of any other kind needs a
function that returns its attention.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
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
    count_of,
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


def call_arguments(module: Any, positional: tuple, named: dict) -> dict[str, Any]:
    """Arguments of a call of `torch.nn.MultiheadAttention`, by their names."""
    bound = inspect.signature(module.forward).bind(*positional, **named)
    bound.apply_defaults()
    return bound.arguments


def hides(mask: Any) -> Any:
    """True where a mask hides: where it is True, or a number that lowers logits out of sight."""
    return mask if mask.dtype == torch_module().bool else mask <= HIDING


# --- what a forward pass shows


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

    def add(self, tokens: Any, weights: Any, module: str) -> None:
        """Add one more layer."""
        self.tokens.append(tokens)
        self.weights.append(weights.detach())
        self.modules.append(module)


@contextmanager
def watching(model: Any) -> Iterator[SeenAttention]:
    """See the attention of every module that returns its weights, of nested ones the innermost."""
    seen = SeenAttention()
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if is_multihead(module):
                hooks.enter_context(watching_multihead(module, name, seen))
            elif is_attention(module) and not any(map(is_attention, inner_modules(module))):
                see = partial(see_returned, seen, name)
                hooks.enter_context(module.register_forward_hook(see, with_kwargs=True))
        yield seen


def is_attention(module: Any) -> bool:
    """Whether a module is attention, by the name of its class."""
    return "Attention" in type(module).__name__


def inner_modules(module: Any) -> list[Any]:
    """The modules within a module."""
    return list(module.modules())[1:]


def see_returned(
    seen: SeenAttention, name: str, module: Any, positional: tuple, named: dict, returned: Any
) -> None:
    """See weights [example, head, query, key] among what a module returns, if there are any."""
    weights = [
        tensor
        for tensor in (returned if isinstance(returned, tuple) else ())
        if getattr(tensor, "ndim", 0) == 4
        and tensor.shape[-1] == tensor.shape[-2]
        and not bool(((tensor < -1e-3) | (tensor > 1.001)).any())
    ]
    if weights:
        given = (*positional, *named.values())
        tokens = (
            tensor
            for tensor in given
            if getattr(tensor, "ndim", 0) == 3 and tensor.is_floating_point()
        )
        seen.add(next(tokens, None), weights[-1], name)


@contextmanager
def watching_multihead(module: Any, name: str, seen: SeenAttention) -> Iterator[None]:
    """Make a `torch.nn.MultiheadAttention` compute the weights of each head, and see them.

    Its callers receive what they asked for.
    """
    asked: list[dict[str, Any]] = []

    def before(_: Any, positional: tuple, named: dict) -> tuple[tuple, dict]:
        arguments = call_arguments(module, positional, named)
        refuse_other_keys(arguments["query"], arguments["key"])
        asked.append(dict(arguments))
        return (), {**arguments, "need_weights": True, "average_attn_weights": False}

    def after(_: Any, positional: tuple, named: dict, returned: tuple) -> tuple:
        arguments, (attended, weights) = asked.pop(), returned
        tokens, padding = arguments["value"], arguments["key_padding_mask"]
        seen.add(tokens if module.batch_first else tokens.transpose(0, 1), weights, name)
        if padding is not None and seen.real is None:
            seen.real = ~hides(padding)
        if not arguments["need_weights"]:
            return attended, None
        return attended, weights.mean(dim=1) if arguments["average_attn_weights"] else weights

    with (
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ):
        yield


def refuse_other_keys(query: Any, key: Any) -> None:
    """Raise InputError unless queries and keys are a batch of the same tokens."""
    if query.ndim != 3:
        remedy = "must be a batch of sequences with three axes; give the batch axis"
        raise InputError("query of MultiheadAttention", tuple(query.shape), remedy)
    if key is not query and not (key.shape == query.shape and bool((key == query).all())):
        remedy = (
            "queries and keys must be those of the same tokens; the theory has self-attention "
            "only, so of an encoder with a decoder take the encoder"
        )
        raise InputError("key of MultiheadAttention", tuple(key.shape), remedy)


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
            weights = [torch.as_tensor(matrices) for matrices in weights]
            seen = SeenAttention([torch.as_tensor(tokens)], weights, [""] * len(weights))
        else:
            refuse_decoders(model)
            with eager(model), watching(model) as seen:
                (forward or call)(model, batch)
    if not seen.weights:
        remedy = "none of its modules of attention returned weights of queries and keys"
        name = Verbatim(f"({type(model).__name__})")
        raise InputError("attention of the model", name, remedy + IN_ANOTHER_WAY)
    mask = batch.get("attention_mask") if isinstance(batch, dict) else None
    if getattr(mask, "ndim", 0) == 2:
        seen.real = mask.bool()
    refuse_other_tokens(seen, count_of(batch))
    return seen


def refuse_decoders(model: Any) -> None:
    """Raise InputError for an encoder with a decoder."""
    inner = getattr(model, "base_model", model)
    joined = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if joined and hasattr(inner, "encoder") and hasattr(inner, "decoder"):
        remedy = (
            "is an encoder with a decoder, whose layers attend to other tokens than their own; "
            "take the encoder, model.get_encoder()"
        )
        raise InputError("model", Verbatim(type(model).__name__), remedy)


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
    window = (1, len(counts)) if layers is None else tuple(layers)
    if [type(number) for number in window] != [int, int] or not (
        1 <= window[0] <= window[1] <= len(counts)
    ):
        remedy = f"give the first and the last layer, of layers 1 to {len(counts)}: (3, 5)"
        raise InputError("layers", layers, remedy)
    numbers = range(window[0], window[1] + 1)
    heads = {} if heads is None else heads
    if not isinstance(heads, Mapping):
        remedy = "give heads by the number of their layer, from 1: {1: [0, 2], 3: [1]}"
        raise InputError("heads", heads, remedy)
    outside = [number for number in heads if number not in numbers]
    if outside:
        remedy = f"heads are kept in layers {window[0]} to {window[1]}, which count from 1"
        raise InputError("heads", outside, remedy)
    chosen = {}
    for number in numbers:
        count = counts[number - 1]
        given = list(heads.get(number, range(count)))
        if not given or len(set(given)) < len(given) or not set(given) <= set(range(count)):
            remedy = f"layer {number} has heads 0 to {count - 1}; name one at least, none twice"
            raise InputError(f"heads[{number}]", given, remedy)
        chosen[number] = sorted(map(int, given))
    return chosen


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
        lengths = np.full(examples, tokens) if self.lengths is None else self.lengths
        real = within(lengths, tokens)
        identity = (np.eye(tokens, dtype=self.inputs.dtype) * real[:, None, :])[:, None]
        attention = tuple(
            np.concatenate([matrices, identity], axis=1) for matrices in self.attention
        )
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
    order: list[int] = []
    parts: list[list[np.ndarray]] = []
    for examples in batches(tensors, batch_size):
        seen = see_attention(model, batch_of(tensors, examples, model), forward, attention)
        chosen = chosen_heads([matrices.shape[1] for matrices in seen.weights], layers, heads)
        order += examples
        parts.append(arrays_of(seen, chosen))
        refuse_change(parts[-1], parts[0])
    back = np.argsort(order)
    tokens, *matrices, lengths = (
        padded_together(pieces)[back] for pieces in zip(*parts, strict=True)
    )
    modules = tuple(seen.modules[number - 1] for number in chosen)
    equal = (lengths == tokens.shape[1]).all()
    return RecordedAttention(tokens, tuple(matrices), chosen, modules, None if equal else lengths)


def arrays_of(seen: SeenAttention, chosen: Mapping[int, Sequence[int]]) -> list[np.ndarray]:
    """x_0, Ω of the chosen heads of each layer, and the number of tokens; without padding."""
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
    arrays, lengths = without_padding(
        inputs, [matrices.swapaxes(-1, -2) for matrices in weights], real
    )
    return [*arrays, lengths]


def refuse_unseen(weights: Sequence[np.ndarray]) -> None:
    """Raise InputError for a token that no token of any layer sees: likely padding, unsaid."""
    largest = np.max([matrices.max(axis=(1, 2)) for matrices in weights], axis=0)
    unseen = np.argwhere(largest == 0.0)  # not where it is no number
    if len(unseen):
        example, token = map(int, unseen[0])
        remedy = (
            "no token gives it weight; say what is padding by `attention_mask` [example, token] "
            "among the named inputs, 1 for a token and 0 for padding, or give a list of sequences"
        )
        raise InputError(f"attention to token {token} of example {example}", 0.0, remedy)


def refuse_change(arrays: list[np.ndarray], first: list[np.ndarray]) -> None:
    """Raise InputError if channels, layers or heads are not those of the first examples."""
    sizes, expected = (
        [tokens.shape[2:], *(array.shape[1] for array in matrices)]
        for tokens, *matrices, _ in (arrays, first)
    )
    if sizes != expected:
        remedy = f"was {expected} for the first examples; layers and heads must not depend on them"
        raise InputError("channels, and heads of each layer", Verbatim(sizes), remedy)
