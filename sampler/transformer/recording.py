"""Attention matrices and inputs recorded from a PyTorch module, batch by batch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sampler.attention.masks import tokens_of
from sampler.attention.padding import (
    padded_together,
    refuse_infinite,
    within,
    without_padding,
)
from sampler.errors import InputError, Verbatim
from sampler.transformer.chosen_layers import EVERY_LAYER, ChosenLayers
from sampler.transformer.forward_pass import (
    Forward,
    SeenAttention,
    as_numpy,
    device_of,
    eager,
    evaluating,
    run_batch,
    torch_module,
)
from sampler.transformer.refusals import (
    refuse_other_examples,
    refuse_partial,
)


def as_tensors(inputs: Any) -> Any:
    """One tensor, or tensors by the name of their argument, with the examples on the first axis;
    of examples with different numbers of tokens the list of their tensors.

    Raises InputError for no examples at all, and where the tensors have not as many.
    """
    torch = torch_module()
    if isinstance(inputs, Mapping):
        tensors = {name: as_tensor(name, values) for name, values in inputs.items()}
    elif isinstance(inputs, list | tuple):
        examples = [torch.as_tensor(example) for example in inputs]
        shapes = sorted({tuple(example.shape) for example in examples})
        if len({shape[1:] for shape in shapes}) > 1 or () in shapes[1:]:
            remedy = "examples may differ in the number of tokens, their first axis, only"
            raise InputError("inputs", Verbatim(f"(examples of shape {shapes[:4]})"), remedy)
        if len(shapes) > 1:
            return examples
        tensors = torch.stack(examples) if examples else torch.empty(0)
    else:
        tensors = torch.as_tensor(inputs)
    counts = sorted({len(tensor) if tensor.ndim else 0 for tensor in values_of(tensors)})
    if len(counts) != 1 or counts[0] == 0:
        remedy = "the first axis must be the examples, as many in every tensor and at least one"
        raise InputError("inputs", Verbatim(f"({counts} examples)"), remedy)
    return tensors


def as_tensor(name: str, values: Any) -> Any:
    """A tensor; InputError for lists of different lengths."""
    try:
        return torch_module().as_tensor(values)
    except ValueError as problem:
        remedy = "must be one tensor; pad the sequences and say in `attention_mask` where"
        raise InputError(name, Verbatim(f"({problem})"), remedy) from None


def check_batch_size(batch_size: Any) -> None:
    """Raise InputError unless it is a number of examples."""
    if type(batch_size) is not int or batch_size < 1:
        raise InputError("batch_size", batch_size, "must be a whole number from 1")


def values_of(tensors: Any) -> list[Any]:
    """List the tensors: one, or those of all names."""
    return list(tensors.values()) if isinstance(tensors, dict) else [tensors]


def count_of(tensors: Any) -> int:
    return len(values_of(tensors)[0])


def batches(tensors: Any, batch_size: int) -> Iterator[list[int]]:
    """Examples of a batch, in which all have the same shape. The first comes alone, which shows
    whether a model takes the tokens first."""
    yield [0]
    rest = range(1, count_of(tensors))
    alike: dict[Any, list[int]] = {}
    for example in rest:
        shape = tensors[example].shape if isinstance(tensors, list) else None
        alike.setdefault(shape, []).append(example)
    for examples in alike.values():
        for start in range(0, len(examples), batch_size):
            yield examples[start : start + batch_size]


def taken(tensors: Any, batch: Any, device: Any) -> Any:
    """The examples of one batch, on the device of the model."""
    if isinstance(tensors, dict):
        return {name: taken(tensor, batch, device) for name, tensor in tensors.items()}
    if isinstance(tensors, list):
        return torch_module().stack([tensors[example] for example in batch]).to(device)
    return tensors[batch].to(device)


@dataclass(frozen=True)
class RecordedAttention:
    """The attention of a model on some examples: float64 of one in double precision, else float32.

    inputs     x_0 [example, token, channel], the tokens that the first attention layer sees
    attention  Ω^l [example, head, key, query] for every layer l, in the order of computation
    lengths    tokens of each sequence, [example], where they are not all as long: tokens and
               matrices behind them, of padding, are 0
    numbers    of the layers in the model, from 1
    modules    of the layers by their names in the model, where these are known
    real       [example, token] as the model had them, false for padding; None where there is none

    Raises InputError, naming layer and entry, unless everything is finite.
    """

    inputs: np.ndarray
    attention: tuple[np.ndarray, ...]
    lengths: np.ndarray | None = None
    numbers: tuple[int, ...] = ()
    modules: tuple[str, ...] = ()
    real: np.ndarray | None = None

    def __post_init__(self) -> None:
        refuse_infinite("inputs", self.inputs)
        for layer, matrices in enumerate(self.attention, start=1):
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
        attention = tuple(np.concatenate([m, identity], axis=1) for m in self.attention)
        return replace(self, attention=attention)


def record_attention(
    model: Any,
    inputs: Any,
    *,
    chosen: ChosenLayers = EVERY_LAYER,
    forward: Forward | None = None,
    batch_size: int = 64,
) -> RecordedAttention:
    """Ω of every layer and head, and x_0, of a PyTorch model in evaluation mode.

    The model has `torch.nn.MultiheadAttention` layers, at any depth, batch-first or not; or it
    takes `output_attentions` and `output_hidden_states` and returns `attentions`, [example, head,
    query, key] of each layer, and `hidden_states`, as Hugging Face models do, which compute their
    matrices meanwhile, however they were loaded; or it calls `scaled_dot_product_attention`, or
    softmax of logits [example, head, query, key].

    inputs      a tensor [example, …]; tensors by the name of their argument; or a list of examples,
                which may differ in the number of tokens and then go through the model by length
    chosen      layers and heads to record; x_0 are the tokens that the first of them sees
    forward     runs the model on a batch, `forward(model, batch)`; by default `model(batch)`
    batch_size  examples in the model at a time

    Padding is what masks hide from every query that sees a key, in all layers, and what masks among
    the named inputs say where no token sees it, of any name and form. Tokens are moved before it,
    in their order, and the numbers of them are `lengths`.

    Mode, hooks, settings and weights of the model are afterwards as before, after an error too.
    Raises InputError for a model without such layers, tokens that attend to padding, attention that
    is not finite, and layers or heads that change from batch to batch.
    """
    tensors = as_tensors(inputs)
    order: list[int] = []
    kept: list[list[np.ndarray]] = []
    counts: list[np.ndarray] = []
    real: list[np.ndarray] = []
    for examples, seen, tokens in recorded_batches(model, tensors, forward, batch_size):
        layers = chosen_of(seen, chosen)
        found, lengths = without_padding(layers.inputs, keys_first(layers), tokens)
        refuse_change(found, kept[0] if kept else found)
        order += examples
        kept.append(found)
        counts.append(lengths)
        real.append(tokens)
    back = np.argsort(order)
    in_place = np.array_equal(back, order)
    arrays = map(padded_together, zip(*kept, strict=True))
    inputs, *attention = (one if in_place else one[back] for one in arrays)
    lengths = np.concatenate(counts)[back]
    equal = (lengths == inputs.shape[1]).all()
    places = layers.layers or ()
    return RecordedAttention(
        inputs,
        tuple(attention),
        None if equal else lengths,
        tuple(one.number for one in places) or tuple(range(1, len(attention) + 1)),
        tuple(one.module for one in places),
        None if equal and all(one.all() for one in real) else padded_together(real)[back],
    )


def chosen_of(seen: SeenAttention, chosen: ChosenLayers) -> SeenAttention:
    """Some layers and heads of what was seen, with what enters the first of them.

    Raises InputError where the layers of the model are not those that were chosen.
    """
    if chosen.are_all:
        return seen
    if seen.layers is None or any(one.entering is None for one in seen.layers):
        remedy = "what enters a layer cannot be seen in this model: export all of its layers"
        raise InputError("layers", chosen.window or dict(chosen.heads), remedy)
    numbers = [one.number for one in seen.layers]
    places = chosen.places(numbers)
    kept = [chosen.kept(numbers[place], seen.weights[place].shape[1]) for place in places]
    weights = [seen.weights[at][:, heads] for at, heads in zip(places, kept, strict=True)]
    layers = [seen.layers[place] for place in places]
    return SeenAttention(as_numpy(layers[0].entering), weights, seen.hidden, layers)


def recorded_batches(
    model: Any, tensors: Any, forward: Forward | None, batch_size: int
) -> Iterator[tuple[list[int], SeenAttention, np.ndarray]]:
    """Run a model batch by batch: the numbers of the examples, what was seen, and which tokens are
    no padding [example, token], where they lie."""
    torch = torch_module()
    check_batch_size(batch_size)
    device = device_of(model)
    # Not inference mode: what the model caches meanwhile must stay usable in training.
    with evaluating(model), eager(model), torch.no_grad():
        for examples in batches(tensors, batch_size):
            batch = taken(tensors, examples, device)
            seen = run_batch(model, batch, forward)
            refuse_other_examples([seen.inputs, *seen.weights], len(examples))
            refuse_partial(seen.inputs, seen.weights)
            named = batch if isinstance(batch, dict) else {}
            read = {name: named_numbers(tensor) for name, tensor in named.items()}
            yield examples, seen, tokens_of(seen.weights, seen.hidden, read)


def named_numbers(tensor: Any) -> np.ndarray:
    """A named input as an array; half precision, which NumPy has not, as float32."""
    return as_numpy(tensor) if tensor.is_floating_point() else tensor.cpu().numpy()


def keys_first(seen: SeenAttention) -> list[np.ndarray]:
    """Ω [example, head, key, query] of every layer."""
    return [weights.swapaxes(-1, -2) for weights in seen.weights]


def real_tokens(
    model: Any, inputs: Any, *, forward: Forward | None = None, batch_size: int = 64
) -> np.ndarray | None:
    """The tokens [example, token] that are no padding, where they lie; None where all are tokens.

    Settings are those of `record_attention`, and so is what is refused. Of examples given in a list
    tokens end where their example ends.
    """
    tensors = as_tensors(inputs)
    order: list[int] = []
    kept: list[np.ndarray] = []
    for examples, seen, tokens in recorded_batches(model, tensors, forward, batch_size):
        without_padding(seen.inputs, keys_first(seen), tokens)  # refuses what is attended to
        order += examples
        kept.append(tokens)
    found = padded_together(kept)[np.argsort(order)]
    return None if found.all() else found


def refuse_change(found: list[np.ndarray], kept: list[np.ndarray]) -> None:
    """Raise InputError if channels, layers or heads are not those of the first example."""

    def sizes(arrays: list[np.ndarray]) -> list[tuple[int, ...]]:
        inputs, *attention = (array.shape for array in arrays)
        return [inputs[2:], *(shape[1:2] for shape in attention)]

    received, expected = sizes(found), sizes(kept)
    if received != expected:
        remedy = f"was {expected} for the first example; layers and heads must not depend on it"
        raise InputError("channels, and heads of each layer", Verbatim(received), remedy)
