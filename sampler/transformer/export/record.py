"""Runs a PyTorch model on examples and records the attention of all its layers and heads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.transformer.export.batches import as_tensors, example_count, slices, taken
from sampler.transformer.export.hooks import attention_layers, hooked
from sampler.transformer.export.pytorch import torch_module
from sampler.transformer.export.recorded import RecordedAttention
from sampler.transformer.export.returned import FLAGS, read_returned, takes_flags

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
    if type(batch_size) is not int or batch_size < 1:
        raise InputError("batch_size", batch_size, "must be a whole number from 1")
    tensors = as_tensors(inputs)
    examples = example_count(tensors)
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
            (forward or plainly)(model, batch)
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
        inputs, *matrices = read_returned((forward or asking)(model, batch))
    return [inputs, *(weights.swapaxes(-1, -2) for weights in matrices)]


def plainly(model: Any, batch: Any, **flags: bool) -> Any:
    """The model called on a batch: a tensor as its argument, or tensors by name."""
    return model(**batch, **flags) if isinstance(batch, dict) else model(batch, **flags)


def asking(model: Any, batch: Any) -> Any:
    """The same, asking for attention and hidden states."""
    return plainly(model, batch, **dict.fromkeys(FLAGS, True))


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
