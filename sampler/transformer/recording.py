"""Attention matrices and inputs recorded from a PyTorch module."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from sampler.errors import ABSENT, InputError, Verbatim


def torch_module() -> Any:
    """PyTorch; InputError, with the way to install it, where it is absent."""
    try:
        return import_module("torch")
    except ImportError:
        remedy = "PyTorch is an extra: pip install -c constraints.txt -e '.[torch]'"
        raise InputError("torch", ABSENT, remedy) from None


def as_numpy(tensor: Any) -> np.ndarray:
    """A tensor of any device and precision as a float32 array of its own."""
    return tensor.detach().to("cpu", torch_module().float32, copy=True).numpy()


ONE_LENGTH = "all sequences must be of one length, without padding; choose examples of one length"


def as_tensors(inputs: Any) -> Any:
    """One tensor, or tensors by the name of their argument, with the examples on the first axis.

    Raises InputError for sequences of different lengths, padding, or no examples at all.
    """
    torch = torch_module()
    if isinstance(inputs, Mapping):
        tensors = {name: torch.as_tensor(values) for name, values in inputs.items()}
        if "attention_mask" in tensors and not bool(tensors["attention_mask"].all()):
            raise InputError("attention_mask", Verbatim("(hides tokens)"), ONE_LENGTH)
    elif isinstance(inputs, list | tuple):
        examples = [torch.as_tensor(example) for example in inputs]
        shapes = sorted({tuple(example.shape) for example in examples})
        if len(shapes) > 1:
            raise InputError("inputs", Verbatim(f"(examples of shape {shapes[:4]})"), ONE_LENGTH)
        tensors = torch.stack(examples) if examples else torch.empty(0)
    else:
        tensors = torch.as_tensor(inputs)
    counts = sorted({len(tensor) if tensor.ndim else 0 for tensor in values_of(tensors)})
    if len(counts) != 1 or counts[0] == 0:
        remedy = "the first axis must be the examples, as many in every tensor and at least one"
        raise InputError("inputs", Verbatim(f"({counts} examples)"), remedy)
    return tensors


def check_batch_size(batch_size: Any) -> None:
    """Raise InputError unless it is a number of examples."""
    if type(batch_size) is not int or batch_size < 1:
        raise InputError("batch_size", batch_size, "must be a whole number from 1")


def values_of(tensors: Any) -> list[Any]:
    return list(tensors.values()) if isinstance(tensors, dict) else [tensors]


def slices(examples: int, batch_size: int) -> Iterator[slice]:
    """The first example alone, which shows whether a model takes the tokens first; then batches."""
    yield slice(0, 1)
    for start in range(1, examples, batch_size):
        yield slice(start, min(start + batch_size, examples))


def taken(tensors: Any, batch: slice, device: Any) -> Any:
    """The examples of one batch, on the device of the model."""
    if isinstance(tensors, dict):
        return {name: taken(tensor, batch, device) for name, tensor in tensors.items()}
    return tensors[batch].to(device)


FLAGS = ("output_attentions", "output_hidden_states")


def takes_flags(model: Any) -> bool:
    """Whether a model can be asked for attention and hidden states."""
    parameters = inspect.signature(model.forward).parameters
    return all(flag in parameters for flag in FLAGS) or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def read_returned(returned: Any) -> list[np.ndarray]:
    """x_0 [example, token, channel], and then Ω [example, head, query, key] of every layer.

    x_0 is the first of the hidden states, before any LayerNorm of the first layer.
    """
    found = getattr(returned, "attentions", None)
    if not found or any(matrices is None for matrices in found):
        remedy = (
            "no attention came back; a Hugging Face model must be loaded with "
            'attn_implementation="eager", and of an encoder with decoder take the encoder'
        )
        raise InputError("attentions", Verbatim("(absent)" if not found else "(None)"), remedy)
    hidden = getattr(returned, "hidden_states", None)
    if not hidden:
        remedy = "return them too: the first of them are the tokens of the first layer"
        raise InputError("hidden_states", Verbatim("(absent)"), remedy)
    return [as_numpy(hidden[0]), *(as_numpy(matrices) for matrices in found)]


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


@dataclass(frozen=True)
class RecordedAttention:
    """The attention of a model on some examples, as float32.

    inputs     x_0 [example, token, channel], the tokens that the first attention layer sees
    attention  Ω^l [example, head, key, query] for every layer l, in the order of computation

    Raises InputError, naming layer and entry, unless everything is finite and fits together.
    """

    inputs: np.ndarray
    attention: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        if self.inputs.ndim != 3 or self.inputs.size == 0:
            remedy = "the first layer must see [example, token, channel], none of length 0"
            raise InputError("inputs", self.inputs.shape, remedy)
        refuse_infinite("inputs", self.inputs)
        examples, tokens, _ = self.inputs.shape
        for layer, matrices in enumerate(self.attention, start=1):
            field = f"attention of layer {layer}"
            expected = (examples, tokens, tokens)
            if matrices.ndim != 4 or (len(matrices), *matrices.shape[2:]) != expected:
                remedy = (
                    f"the shape must be ({examples}, heads, {tokens}, {tokens}), [example, head, "
                    "key, query]: every token attends to every token of the same sequence"
                )
                raise InputError(field, matrices.shape, remedy)
            refuse_infinite(field, matrices)

    @property
    def heads(self) -> tuple[int, ...]:
        """H_1 … H_L."""
        return tuple(matrices.shape[1] for matrices in self.attention)

    def with_identity_heads(self) -> "RecordedAttention":
        """The same with one more head in each layer, number H_l, whose Ω is the identity."""
        examples, tokens, _ = self.inputs.shape
        identity = np.broadcast_to(np.eye(tokens, dtype=np.float32), (examples, 1, tokens, tokens))
        attention = tuple(np.concatenate([m, identity], axis=1) for m in self.attention)
        return RecordedAttention(self.inputs, attention)


def refuse_infinite(field: str, array: np.ndarray) -> None:
    """Raise InputError, with the first place, if an entry is infinite or not a number."""
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(index) for index in np.argwhere(~finite)[0])
        remedy = "every entry must be finite; a query whose keys are all masked has no attention"
        raise InputError(f"{field}{list(place)}", float(array[place]), remedy)


# Runs a model on a batch: forward(model, batch)
Forward = Callable[[Any, Any], Any]


def record_attention(
    model: Any, inputs: Any, *, forward: Forward | None = None, batch_size: int = 64
) -> RecordedAttention:
    """Ω of every layer and head, and x_0, of a PyTorch model in evaluation mode.

    The model has `torch.nn.MultiheadAttention` layers, at any depth, batch-first or not; or it
    takes `output_attentions` and `output_hidden_states` and returns `attentions`, [example, head,
    query, key] of each layer, and `hidden_states`, as Hugging Face models do.

    inputs      a tensor [example, …], or tensors by the name of their argument
    forward     runs the model on a batch, `forward(model, batch)`; by default `model(batch)`
    batch_size  examples in the model at a time

    Mode, hooks and weights of the model are afterwards as before, after an error too. Raises
    InputError for a model without such layers, padding or sequences of different lengths,
    attention that is not finite, and layers or heads that change from batch to batch.
    """
    torch = torch_module()
    check_batch_size(batch_size)
    tensors = as_tensors(inputs)
    examples = len(values_of(tensors)[0])
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    kept: list[np.ndarray] = []
    # Not inference mode: what the model caches meanwhile must stay usable in training.
    with evaluating(model), torch.no_grad():
        for batch in slices(examples, batch_size):
            found = run_batch(model, taken(tensors, batch, device), forward)
            refuse_other_examples(found, batch.stop - batch.start)
            if not kept:
                kept = [np.empty((examples, *array.shape[1:]), np.float32) for array in found]
            refuse_change(found, kept)
            for array, new in zip(kept, found, strict=True):
                array[batch] = new
    return RecordedAttention(kept[0], tuple(kept[1:]))


def run_batch(model: Any, batch: Any, forward: Forward | None) -> list[np.ndarray]:
    """x_0 [example, token, channel] and then Ω [example, head, key, query] of every layer."""
    modules = attention_layers(model)
    if modules:
        with hooked(modules) as found:
            (forward or call)(model, batch)
        if not found:
            remedy = "its attention layers are not used in this forward pass; check `forward`"
            raise InputError("model", Verbatim(type(model).__name__), remedy)
        inputs, *matrices = found
    else:
        if forward is None and not takes_flags(model):
            remedy = (
                "has no torch.nn.MultiheadAttention layer and does not take output_attentions "
                "and output_hidden_states; give it one of the two"
            )
            raise InputError("model", Verbatim(type(model).__name__), remedy)
        asking = partial(call, **dict.fromkeys(FLAGS, True))
        inputs, *matrices = read_returned((forward or asking)(model, batch))
    return [inputs, *(weights.swapaxes(-1, -2) for weights in matrices)]


def call(model: Any, batch: Any, **flags: bool) -> Any:
    """The model called on a batch: a tensor as its argument, or tensors by name."""
    return model(**batch, **flags) if isinstance(batch, dict) else model(batch, **flags)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Dropout off, and no shortcut past the attention matrices; as before on leaving."""
    shortcuts = torch_module().backends.mha
    modes = [(module, module.training) for module in model.modules()]
    enabled = shortcuts.get_fastpath_enabled()
    try:
        model.eval()
        shortcuts.set_fastpath_enabled(False)
        yield
    finally:
        shortcuts.set_fastpath_enabled(enabled)
        for module, training in modes:
            module.training = training


def refuse_other_examples(found: list[np.ndarray], examples: int) -> None:
    """Raise InputError unless tokens and attention are of as many examples as went in."""
    for array in found:
        if len(array) != examples:
            remedy = (
                f"{examples} went in; if the model wants tokens on the first axis, give "
                "forward=lambda model, batch: model(batch.transpose(0, 1))"
            )
            raise InputError("examples seen by the attention", len(array), remedy)


def refuse_change(found: list[np.ndarray], kept: list[np.ndarray]) -> None:
    """Raise InputError if tokens, layers or heads are not those of the first example."""
    expected = [array.shape[1:] for array in kept]
    received = [array.shape[1:] for array in found]
    if received != expected:
        remedy = f"was {expected} for the first example; layers and heads must not depend on it"
        raise InputError("[token, channel] and [head, key, query]", Verbatim(received), remedy)
