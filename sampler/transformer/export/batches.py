"""The examples a model is run on, a few at a time."""

from collections.abc import Iterator, Mapping
from typing import Any

from sampler.errors import InputError, Verbatim
from sampler.transformer.export.pytorch import torch_module

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


def values_of(tensors: Any) -> list[Any]:
    return list(tensors.values()) if isinstance(tensors, dict) else [tensors]


def example_count(tensors: Any) -> int:
    return len(values_of(tensors)[0])


def slices(examples: int, batch_size: int) -> Iterator[slice]:
    """The first example alone, then batches.

    With one example alone a model that wants the tokens on the first axis gives itself away.
    """
    yield slice(0, 1)
    for start in range(1, examples, batch_size):
        yield slice(start, min(start + batch_size, examples))


def taken(tensors: Any, batch: slice, device: Any) -> Any:
    """The examples of one batch, on the device of the model."""
    if isinstance(tensors, dict):
        return {name: tensor[batch].to(device) for name, tensor in tensors.items()}
    return tensors[batch].to(device)
