"""Inputs of a PyTorch model batch by batch, and the model while it runs on them."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Batch:
    """Examples that can go through a model together.

    numbers  of the examples, from 0
    given    to the model: a tensor [example, …], or tensors by the name of their argument
    """

    numbers: np.ndarray
    given: Any

    def part(self, examples: slice, device: Any) -> "Batch":
        """Some of the examples, on a device."""
        if isinstance(self.given, dict):
            given = {name: values[examples].to(device) for name, values in self.given.items()}
        else:
            given = self.given[examples].to(device)
        return Batch(self.numbers[examples], given)

    @property
    def mask(self) -> Any:
        """`attention_mask` [example, token] among named inputs, true for a token; or None."""
        mask = self.given.get("attention_mask") if isinstance(self.given, dict) else None
        return mask.bool() if getattr(mask, "ndim", 0) == 2 else None

    def run(self, model: Any, forward: Forward | None) -> Any:
        """Output of a model, which by default is called, on named inputs by their names."""
        if forward is not None:
            return forward(model, self.given)
        return model(**self.given) if isinstance(self.given, dict) else model(self.given)


def read_inputs(inputs: Any, first: int = 0) -> list[Batch]:
    """All examples, numbered from `first`, in as many batches as there are shapes of examples.

    inputs  one tensor [example, …], tensors by the name of their argument, a list of examples, or
            earlier inputs

    Raises InputError for no examples at all, and where tensors have not as many.
    """
    torch = torch_module()
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], Batch):
        return inputs
    if isinstance(inputs, list | tuple) and len(inputs):
        alike: dict[tuple[int, ...], dict[int, Any]] = {}
        for number, example in enumerate(map(torch.as_tensor, inputs), start=first):
            alike.setdefault(tuple(example.shape), {})[number] = example
        if len({shape[1:] for shape in alike}) > 1 or (() in alike and len(alike) > 1):
            remedy = "examples may differ in the number of tokens, their first axis, only"
            shapes = Verbatim(f"(examples of shape {sorted(alike)[:4]})")
            raise InputError("inputs", shapes, remedy)
        return [
            Batch(np.array(list(those)), torch.stack(list(those.values())))
            for those in alike.values()
        ]
    tensors = {}
    for name, values in (inputs if isinstance(inputs, Mapping) else {"inputs": inputs}).items():
        try:
            tensors[name] = torch.as_tensor(values)
        except ValueError as problem:
            remedy = "must be one tensor; pad the sequences and say in `attention_mask` where"
            raise InputError(name, Verbatim(f"({problem})"), remedy) from None
    counts = sorted({len(tensor) if tensor.ndim else 0 for tensor in tensors.values()})
    if len(counts) != 1 or counts[0] == 0:
        remedy = "the first axis must be the examples, as many in every tensor and at least one"
        raise InputError("inputs", Verbatim(f"({counts} examples)"), remedy)
    given = tensors if isinstance(inputs, Mapping) else tensors["inputs"]
    return [Batch(first + np.arange(counts[0]), given)]


def count_of(inputs: Sequence[Batch]) -> int:
    """The number of examples."""
    return sum(len(batch.numbers) for batch in inputs)


def check_batch_size(batch_size: Any) -> None:
    """Raise InputError unless it is a number of examples."""
    if type(batch_size) is not int or batch_size < 1:
        raise InputError("batch_size", batch_size, "must be a whole number from 1")


def batches(inputs: Sequence[Batch], batch_size: int, model: Any) -> Iterator[Batch]:
    """All examples, in batches, on the device of the model."""
    parameter = next(model.parameters(), None)
    device = "cpu" if parameter is None else parameter.device
    for batch in inputs:
        for start in range(0, len(batch.numbers), batch_size):
            yield batch.part(slice(start, start + batch_size), device)


def as_numpy(tensor: Any) -> np.ndarray:
    """A tensor of any device as an array of its own: float64 in double precision, else float32."""
    torch = torch_module()
    precision = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", precision, copy=True).numpy()


# --- the model meanwhile


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

    Within its hooks, so that other hooks get their usual arguments.
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
