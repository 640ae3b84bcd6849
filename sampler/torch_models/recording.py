"""Attention of a PyTorch model on given inputs, and the tokens that its layers attend to.

While a model runs, what each of its modules of attention is given and the weights that it returns
are kept: of `torch.nn.MultiheadAttention`, and of Hugging Face models, which compute their weights
meanwhile. A model of any other kind needs a function that returns its attention.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sampler.attention.padding import padded_together, refuse_infinite, without_padding
from sampler.errors import InputError, Verbatim
from sampler.torch_models.model_inputs import (
    Forward,
    around_forward,
    as_numpy,
    as_tensors,
    batch_of,
    batches,
    call,
    call_arguments,
    count_of,
    evaluating,
    is_multihead,
    real_tokens,
    torch_module,
)

# attention(model, batch): tokens [example, token, channel], and of each layer weights
# [example, head, query, key]
Attention = Callable[[Any, Any], tuple[Any, Sequence[Any]]]
IN_ANOTHER_WAY = (
    "; give attention=lambda model, batch: (tokens, [weights of each layer]), tokens [example, "
    "token, channel], weights [example, head, query, key]"
)


@dataclass(frozen=True)
class SeenLayer:
    """What one run of a module of attention shows.

    module   its name in the model
    tokens   [example, token, channel] that it is given; None where there are none
    weights  [example, head, query, key]
    real     [example, token], false for padding; None where no mask says so
    """

    module: str
    tokens: Any
    weights: Any
    real: Any = None


@contextmanager
def watching(model: Any) -> Iterator[list[SeenLayer]]:
    """See the attention of every module that returns its weights, of nested ones the innermost."""
    seen: list[SeenLayer] = []
    with ExitStack() as stack:
        for name, module in model.named_modules():
            inner = list(module.modules())[1:]
            if is_multihead(module):
                watch = partial(watch_multihead, seen, name, module)
            elif is_attention(module) and not any(map(is_attention, inner)):
                watch = partial(watch_returned, seen, name)
            else:
                continue
            stack.enter_context(around_forward(module, watch))
        for module in model.modules():
            stack.enter_context(computing_weights(module))
        yield seen


def is_attention(module: Any) -> bool:
    """Whether a module is attention, by the name of its class."""
    return "Attention" in type(module).__name__


@contextmanager
def computing_weights(module: Any) -> Iterator[None]:
    """Make a Hugging Face model compute its weights; as before on leaving."""
    before = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if before in (None, "eager") or not hasattr(module, "set_attn_implementation"):
        yield
        return
    module.set_attn_implementation("eager")
    try:
        yield
    finally:
        module.set_attn_implementation(before)


def watch_returned(
    seen: list[SeenLayer], name: str, forward: Callable, *positional: Any, **named: Any
) -> Any:
    """See weights [example, head, query, key] among what a module returns, if there are any."""
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


def watch_multihead(
    seen: list[SeenLayer],
    name: str,
    module: Any,
    forward: Callable,
    *positional: Any,
    **named: Any,
) -> Any:
    """Have the weights of each head computed, and see them; the caller gets what it asked for."""
    asked = call_arguments(module, positional, named)
    refuse_other_keys(asked["query"], asked["key"])
    of_heads = {"need_weights": True, "average_attn_weights": False}
    attended, weights = forward(**asked | of_heads)
    tokens = asked["value"] if module.batch_first else asked["value"].transpose(0, 1)
    real = real_tokens(asked["key_padding_mask"])
    seen.append(SeenLayer(name, tokens, weights.detach(), real))
    if not asked["need_weights"]:
        return attended, None
    return attended, weights.mean(dim=1) if asked["average_attn_weights"] else weights


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


def see_layers(
    model: Any, batch: Any, forward: Forward | None, attention: Attention | None
) -> list[SeenLayer]:
    """The attention of a model on one batch, by the function that gives it or by its modules.

    Raises InputError for a model that shows none, or whose layers attend to other tokens.
    """
    torch = torch_module()
    with evaluating(model), torch.no_grad():
        if attention is not None:
            tokens, weights = attention(model, batch)
            layers = [torch.as_tensor(tokens), *[None] * (len(weights) - 1)]
            seen = [
                SeenLayer("", before, torch.as_tensor(of_layer))
                for before, of_layer in zip(layers, weights, strict=True)
            ]
        else:
            refuse_decoders(model)
            with watching(model) as seen:
                (forward or call)(model, batch)
    if not seen:
        remedy = "none of its modules of attention returned weights of queries and keys"
        name = Verbatim(f"({type(model).__name__})")
        raise InputError("attention of the model", name, remedy + IN_ANOTHER_WAY)
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


def refuse_other_tokens(seen: Sequence[SeenLayer], examples: int) -> None:
    """Raise InputError unless all layers have weights of every token with every one."""
    shape = () if seen[0].tokens is None else tuple(seen[0].tokens.shape)
    if len(shape) != 3 or shape[0] != examples or 0 in shape:
        remedy = f"the first layer must be given the tokens [{examples}, token, channel]"
        raise InputError("tokens of the model", shape, remedy + IN_ANOTHER_WAY)
    tokens = shape[1]
    for layer, of_layer in enumerate(seen, start=1):
        received = tuple(of_layer.weights.shape)
        if len(received) != 4 or (received[0], *received[2:]) != (examples, tokens, tokens):
            remedy = (
                f"must be ({examples}, heads, {tokens}, {tokens}), [example, head, query, key]: "
                "windows, bands and pooled tokens have no matrix of all tokens"
            )
            raise InputError(f"attention of layer {layer}", received, remedy + IN_ANOTHER_WAY)


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
    those = as_tensors(inputs)
    return record_batches(model, [those], layers, heads, forward, attention, batch_size)


def record_batches(
    model: Any,
    batches_of_inputs: Iterable[Any],
    layers: tuple[int, int] | None,
    heads: Mapping[int, Sequence[int]] | None,
    forward: Forward | None,
    attention: Attention | None,
    batch_size: int,
) -> RecordedAttention:
    """The same of all examples of several inputs, one behind the other, as `as_tensors` has them.

    Examples are numbered over all of them.
    """
    order: list[int] = []
    parts: list[list[np.ndarray]] = []
    first = 0
    for tensors in batches_of_inputs:
        for examples in batches(tensors, batch_size):
            batch = batch_of(tensors, examples, model)
            seen = see_layers(model, batch, forward, attention)
            chosen = chosen_heads([of.weights.shape[1] for of in seen], layers, heads)
            numbers = [first + example for example in examples]
            parts.append(arrays_of(seen, chosen, mask_of(batch), numbers))
            refuse_change(parts[-1], parts[0])
            order += numbers
        first += count_of(tensors)
    back = np.argsort(order)
    tokens, *matrices, lengths = (
        padded_together(pieces)[back] for pieces in zip(*parts, strict=True)
    )
    modules = tuple(seen[number - 1].module for number in chosen)
    equal = (lengths == tokens.shape[1]).all()
    return RecordedAttention(tokens, tuple(matrices), chosen, modules, None if equal else lengths)


def mask_of(batch: Any) -> Any:
    """`attention_mask` [example, token] among named inputs, true for a token; or None."""
    mask = batch.get("attention_mask") if isinstance(batch, dict) else None
    return mask.bool() if getattr(mask, "ndim", 0) == 2 else None


def arrays_of(
    seen: Sequence[SeenLayer],
    chosen: Mapping[int, Sequence[int]],
    mask: Any,
    numbers: Sequence[int],
) -> list[np.ndarray]:
    """x_0, Ω of the chosen heads of each layer, and the number of tokens; without padding.

    mask     [example, token], or None
    numbers  of the examples
    """
    first = seen[min(chosen) - 1]
    if first.tokens is None:
        remedy = "the tokens before this layer are not seen: export all of its layers"
        raise InputError("layers", [min(chosen), max(chosen)], remedy)
    inputs = as_numpy(first.tokens)
    weights = [as_numpy(seen[number - 1].weights[:, heads]) for number, heads in chosen.items()]
    said = next((one for one in (mask, *(of.real for of in seen)) if one is not None), None)
    if said is None:
        real = np.ones(inputs.shape[:2], bool)
        refuse_unseen(weights, numbers)
    else:
        real = said.cpu().numpy()
    if real.shape != inputs.shape[:2]:
        remedy = f"must be {inputs.shape[:2]}: one entry for each token that attention sees"
        raise InputError("mask of padding", real.shape, remedy)
    for number in np.array(numbers)[~real.any(axis=1)]:
        remedy = "every sequence needs one token at least; leave this example out"
        raise InputError(f"tokens of example {number}", 0, remedy)
    matrices = [one.swapaxes(-1, -2) for one in weights]
    arrays, lengths = without_padding(inputs, matrices, real, numbers[0])
    return [*arrays, lengths]


def refuse_unseen(weights: Sequence[np.ndarray], numbers: Sequence[int]) -> None:
    """Raise InputError for a token that no token of any layer sees: likely padding, unsaid."""
    largest = np.max([matrices.max(axis=(1, 2)) for matrices in weights], axis=0)
    for example, token in np.argwhere(largest == 0.0):  # not where it is no number
        remedy = (
            "no token gives it weight; say what is padding by `attention_mask` [example, token] "
            "among the named inputs, 1 for a token and 0 for padding, or give a list of sequences"
        )
        where = f"attention to token {token} of example {numbers[example]}"
        raise InputError(where, 0.0, remedy)


def refuse_change(arrays: list[np.ndarray], first: list[np.ndarray]) -> None:
    """Raise InputError if channels, layers or heads are not those of the first examples."""
    sizes, expected = (
        [tokens.shape[2:], *(array.shape[1] for array in matrices)]
        for tokens, *matrices, _ in (arrays, first)
    )
    if sizes != expected:
        remedy = f"was {expected} for the first examples; layers and heads must not depend on them"
        raise InputError("channels, and heads of each layer", Verbatim(sizes), remedy)
