"""Inputs of a PyTorch model batch by batch, and the model while it runs on them."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from sampler.errors import ABSENT, InputError, Verbatim

# Runs a model on a batch: forward(model, batch)
Forward = Callable[[Any, Any], Any]
# Numbers that masks add to logits are −10³ and less; logits of models are tens.
HIDING = -900.0


def torch_module() -> Any:
    """PyTorch; InputError, with the way to install it, where it is absent."""
    try:
        return import_module("torch")
    except ImportError:
        remedy = "PyTorch is an extra: pip install 'attention-posterior[torch]'"
        raise InputError("torch", ABSENT, remedy) from None


def as_tensors(inputs: Any) -> Any:
    """One tensor, or tensors by the name of their argument; of unequal examples their list.

    The examples are on the first axis. Raises InputError for no examples at all, and where the
    tensors have not as many.
    """
    torch = torch_module()
    if isinstance(inputs, list | tuple):
        inputs = [torch.as_tensor(example) for example in inputs]
        shapes = sorted({tuple(example.shape) for example in inputs})
        if len({shape[1:] for shape in shapes}) > 1 or () in shapes[1:]:
            remedy = "examples may differ in the number of tokens, their first axis, only"
            raise InputError("inputs", Verbatim(f"(examples of shape {shapes[:4]})"), remedy)
        if len(shapes) > 1:
            return inputs
        inputs = torch.stack(inputs) if inputs else torch.empty(0)
    named = inputs if isinstance(inputs, Mapping) else {"inputs": inputs}
    tensors = {}
    for name, values in named.items():
        try:
            tensors[name] = torch.as_tensor(values)
        except ValueError as problem:
            remedy = "must be one tensor; pad the sequences and say in `attention_mask` where"
            raise InputError(name, Verbatim(f"({problem})"), remedy) from None
    counts = sorted({len(tensor) if tensor.ndim else 0 for tensor in tensors.values()})
    if len(counts) != 1 or counts[0] == 0:
        remedy = "the first axis must be the examples, as many in every tensor and at least one"
        raise InputError("inputs", Verbatim(f"({counts} examples)"), remedy)
    return tensors if isinstance(inputs, Mapping) else tensors["inputs"]


def count_of(tensors: Any) -> int:
    """The number of examples."""
    return len(next(iter(tensors.values()))) if isinstance(tensors, dict) else len(tensors)


def check_batch_size(batch_size: Any) -> None:
    """Raise InputError unless it is a number of examples."""
    if type(batch_size) is not int or batch_size < 1:
        raise InputError("batch_size", batch_size, "must be a whole number from 1")


def batches(tensors: Any, batch_size: int) -> Iterator[list[int]]:
    """Examples of each batch, in which all have the same shape."""
    alike: dict[Any, list[int]] = {}
    for example in range(count_of(tensors)):
        shape = tensors[example].shape if isinstance(tensors, list) else None
        alike.setdefault(shape, []).append(example)
    for examples in alike.values():
        for start in range(0, len(examples), batch_size):
            yield examples[start : start + batch_size]


def batch_of(tensors: Any, examples: list[int], model: Any) -> Any:
    """Some examples, on the device of the model."""
    torch = torch_module()
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    if isinstance(tensors, dict):
        return {name: tensor[examples].to(device) for name, tensor in tensors.items()}
    if isinstance(tensors, list):
        return torch.stack([tensors[example] for example in examples]).to(device)
    return tensors[examples].to(device)


def as_numpy(tensor: Any) -> np.ndarray:
    """A tensor of any device as an array of its own: float64 in double precision, else float32."""
    torch = torch_module()
    precision = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", precision, copy=True).numpy()


# --- the model meanwhile


def call(model: Any, batch: Any) -> Any:
    """Call a model on a batch, named inputs by their names."""
    return model(**batch) if isinstance(batch, dict) else model(batch)


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


@contextmanager
def around_forward(module: Any, around: Callable[..., Any]) -> Iterator[None]:
    """A module that computes around(forward, *positional, **named), until the end.

    Within its hooks, so that those of others are given what they are always given.
    """
    own = vars(module).get("forward")  # of another library
    module.forward = partial(around, module.forward)
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


# --- modules of `torch.nn.MultiheadAttention`


def is_multihead(module: Any) -> bool:
    """Whether a module is a `torch.nn.MultiheadAttention`."""
    return isinstance(module, torch_module().nn.MultiheadAttention)


def call_arguments(module: Any, positional: tuple, named: dict) -> dict[str, Any]:
    """Arguments of a call of `torch.nn.MultiheadAttention`, by their names."""
    bound = inspect.signature(type(module).forward).bind(module, *positional, **named)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name != "self"}


def real_tokens(padding: Any) -> Any:
    """True where a mask of padding hides nothing: where it is False, or adds little to logits."""
    if padding is None:
        return None
    return ~padding if padding.dtype == torch_module().bool else padding > HIDING
