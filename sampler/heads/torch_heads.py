"""Heads of a PyTorch model, each with a gate before the projection of its layer.

The projection joins the heads of a layer, side by side on its last axis; it is known by its name.
`torch.nn.MultiheadAttention` uses the weights of its projection without calling it: there the
identity takes its place, so that the output is the heads.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.heads.path_sum import Head, Replacement, by_layer
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

# Ends of the names of modules that join heads, in models of common libraries.
PROJECTIONS = (
    "attention.output.dense", "attention.dense", "attention.o_proj", "attention.out_proj",
    "attention.out_lin", "attn.c_proj", "attn.o_proj", "attn.out_proj", "attn.proj",
    "SelfAttention.o",
)  # fmt: skip
COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
KEY_VALUE_COUNTS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
# The projection, or its end of a name with the number of heads
Projection = str | Mapping[str, int]
# (layer from 0, output of its heads [example, token, head, channel], real tokens) → changed output
Change = Callable[[int, Any, Any], Any]


@dataclass(frozen=True)
class HeadProjection:
    """The projection of a layer.

    name             of the module in the model
    heads            side by side in its input
    key_value_heads  heads of keys and values, of which each serves as many heads, in their order
    """

    name: str
    heads: int
    key_value_heads: int

    def unread(self, removed: Sequence[int]) -> list[int]:
        """The heads of keys and values that serve none of the other heads."""
        kept = set(range(self.heads)).difference(removed)
        read = {head * self.key_value_heads // self.heads for head in kept}
        return [head for head in range(self.key_value_heads) if head not in read]

    def weight(self, model: Any) -> Any:
        """Its matrix [channel of heads, output], a view."""
        module = model.get_submodule(self.name)
        module = module.out_proj if is_multihead(module) else module
        # Conv1D of Hugging Face keeps its matrices with the input first.
        return module.weight if hasattr(module, "nf") else module.weight.T

    def norms(self, model: Any) -> np.ndarray:
        """‖W_O^h‖ of every head."""
        weight = as_numpy(self.weight(model))
        return np.linalg.norm(weight.reshape(self.heads, -1), axis=1)

    def zero(self, model: Any, heads: Sequence[int]) -> None:
        """Zero the outputs of these heads, in place."""
        with torch_module().no_grad():
            weight = self.weight(model)
            size = len(weight) // self.heads
            for head in heads:
                weight[head * size : (head + 1) * size] = 0.0


@dataclass(frozen=True)
class TorchHeads:
    """The heads of a PyTorch model on some examples; magnitudes are ‖W_O^h‖.

    inputs      as `record_attention` takes them
    forward     `forward(model, batch)` gives outputs [example] or [example, output], or an object
                that has them as `logits`; by default the model is called
    projection  end of the names of the modules that are given all heads of a layer side by side,
                where it is none of `PROJECTIONS`; with the number of heads where no attribute of
                the model says it
    batch_size  examples in the model at a time

    Weights must not change meanwhile. A mean over examples is that of a token's place in the arrays
    that the model receives, over those examples that have no padding there. Mode, hooks and weights
    of the model are afterwards as before.
    """

    model: Any
    inputs: Any
    forward: Forward | None = None
    projection: Projection | None = None
    batch_size: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", read_inputs(self.inputs))

    @cached_property
    def projections(self) -> tuple[HeadProjection, ...]:
        """The projections of all layers, in the order in which they run on the first examples."""
        return find_projections(self, next(batches(self.inputs, 2, self.model)))

    @property
    def heads(self) -> tuple[int, ...]:
        return tuple(layer.heads for layer in self.projections)

    @cached_property
    def outputs(self) -> int:
        """The number of outputs."""
        with torch_module().no_grad():
            return self._run(next(batches(self.inputs, 1, self.model))).shape[1]

    @cached_property
    def magnitudes(self) -> np.ndarray:
        return np.concatenate([layer.norms(self.model) for layer in self.projections])

    def without(self, removed: Sequence[Head], replacement: Replacement = "zero") -> np.ndarray:
        """f of all examples without some heads."""
        means = self._means if replacement == "mean" and removed else None
        heads = by_layer(removed)

        def change(layer: int, sent: Any, real: Any) -> Any:
            if layer not in heads:
                return sent
            changed, places = sent.clone(), heads[layer]
            changed[:, :, places] = (
                0.0 if means is None else means[layer][: sent.shape[1], places].to(sent)
            )
            return changed

        with torch_module().no_grad():
            return self._over_batches(lambda batch: self._run(batch, change if removed else None))

    def slopes(self, along: np.ndarray) -> np.ndarray:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h [example, head] of gates g_h that multiply the outputs of heads.

        NaN where the model gives no gradients.
        """
        torch, starts = torch_module(), np.cumsum([0, *self.heads])

        def of_batch(batch: Batch) -> Any:
            gates = torch.ones(len(batch.numbers), sum(self.heads), requires_grad=True)

            def change(layer: int, sent: Any, real: Any) -> Any:
                gate = gates[:, starts[layer] : starts[layer + 1]].to(sent)
                return gate[:, None, :, None] * sent

            outputs = self._run(batch, change)
            summed = (outputs * torch.as_tensor(along[batch.numbers]).to(outputs)).sum()
            if not summed.requires_grad:
                return torch.full_like(gates, torch.nan)
            return torch.autograd.grad(summed, gates)[0]

        return self._over_batches(of_batch)

    # --- forward passes

    def _over_batches(self, of_batch: Callable[[Batch], Any]) -> np.ndarray:
        """Rows of all examples, in their order, computed batch by batch."""
        numbers, rows = [], []
        for batch in batches(self.inputs, self.batch_size, self.model):
            numbers.append(batch.numbers)
            rows.append(as_numpy(of_batch(batch)))
        order = np.argsort(np.concatenate(numbers))
        return np.concatenate(rows)[order].astype(np.float64)

    @cached_property
    def _means(self) -> list[Any]:
        """The mean output [token, head, channel] of every layer, over examples that have a token.

        0 at places where no example has one.
        """
        torch = torch_module()
        sums: list[list[Any]] = [[] for _ in self.heads]

        def add(layer: int, sent: Any, real: Any) -> Any:
            # Behind the channels a 1, which counts examples.
            counted = torch.nn.functional.pad(sent.double(), (0, 1), value=1.0)
            if real is not None:  # what padding sends may be no number
                counted = torch.where(real.bool()[:, :, None, None], counted, 0.0)
            sums[layer].append(counted.sum(dim=0))
            return sent

        with torch.no_grad():
            for batch in batches(self.inputs, self.batch_size, self.model):
                self._run(batch, add)
        # Batches may have other numbers of tokens.
        pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
        totals = [pad(of_layer).sum(dim=0) for of_layer in sums]
        return [total[..., :-1] / total[..., -1:].clamp(min=1.0) for total in totals]

    def _run(self, batch: Batch, change: Change | None = None) -> Any:
        """f [example, output] of some examples, the outputs of heads changed."""
        examples = len(batch.numbers)
        hooks = nullcontext()
        if change is not None:
            hooks = changed(self.model, self.projections, change, examples, batch.mask)
        with evaluating(self.model), hooks:
            returned = batch.run(self.model, self.forward)
        outputs = getattr(returned, "logits", returned)
        if getattr(outputs, "ndim", 0) not in (1, 2) or len(outputs) != examples:
            remedy = (
                f"must be [example] or [example, output] of {examples} examples; give "
                "forward=lambda model, batch: …"
            )
            shape = getattr(outputs, "shape", None)
            received = Verbatim(type(outputs).__name__) if shape is None else tuple(shape)
            raise InputError("outputs of the model", received, remedy)
        return outputs[:, None] if outputs.ndim == 1 else outputs


def zero_heads(
    model: Any, projections: Sequence[HeadProjection], heads: Mapping[int, Sequence[int]]
) -> None:
    """Zero heads in the projections of a model, by layer from 0, in place.

    Raises InputError for a projection that several layers share.
    """
    names = Counter(projection.name for projection in projections)
    for layer, of_layer in heads.items():
        name = projections[layer].name
        if names[name] > 1:
            remedy = "several layers share this module: to zero a head there removes it from all"
            raise InputError("projection", name, remedy)
        projections[layer].zero(model, of_layer)


# --- where heads are joined


def find_projections(heads: TorchHeads, batch: Batch) -> tuple[HeadProjection, ...]:
    """The projections that run on some examples; InputError where there are none."""
    model, named = heads.model, heads.projection
    ends = PROJECTIONS if named is None else tuple([named] if isinstance(named, str) else named)
    modules = dict(model.named_modules())
    multihead = {name for name, module in modules.items() if is_multihead(module)}
    names = {name for name in modules if name.endswith(ends)}
    names -= {f"{name}.out_proj" for name in multihead}
    order: list[str] = []

    def note(name: str, joined: Any, real: Any) -> Any:
        order.append(name)
        return joined

    watched = names if named is not None else names | multihead
    with torch_module().no_grad(), changing(model, watched, note):
        heads._run(batch)
    if not order:
        last = sorted({name.split(".")[-1] for name in modules if name})
        remedy = (
            "no module that joins the heads of a layer ran; name them by the end of their names, "
            f'with the number of heads: projection={{"c_proj": 4}} (ends here: '
            f"{', '.join(last[:12])})"
        )
        raise InputError("projection", named, remedy)
    return tuple(projection_of(model, name, named) for name in order)


def projection_of(model: Any, name: str, projection: Projection | None) -> HeadProjection:
    """The projection of this name, with the number of heads in its input.

    It is as stated, or an attribute of the module or of one around it, or of its configuration.
    """
    stated = projection if isinstance(projection, Mapping) else {}
    counts = [count for end, count in stated.items() if name.endswith(end)]
    count = counts[0] if counts else nearest(model, name, COUNTS)
    remedy = 'give the number of heads: projection={"' + name.split(".")[-1] + '": 4}'
    if type(count) is not int or count < 1:
        raise InputError(f"heads of {name}", count, remedy)
    shared = nearest(model, name, KEY_VALUE_COUNTS)
    grouped = type(shared) is int and 0 < shared < count and count % shared == 0
    found = HeadProjection(name, count, shared if grouped else count)
    channels = len(found.weight(model))
    if channels % count:
        raise InputError(f"heads of {name}", count, f"are of {channels} channels; {remedy}")
    return found


def nearest(model: Any, name: str, keys: Sequence[str]) -> Any:
    """An attribute of a module, of its configuration, or of the next one around it that has it."""
    while True:
        module = model.get_submodule(name)
        for owner in (module, getattr(module, "config", None)):
            for key in keys:
                if (value := getattr(owner, key, None)) is not None:
                    return value
        if not name:
            return None
        name = name.rpartition(".")[0]


# --- heads that are changed


@contextmanager
def changed(
    model: Any, layers: Sequence[HeadProjection], change: Change, examples: int, mask: Any
) -> Iterator[None]:
    """The model with the outputs of its heads changed, layer by layer, in one forward pass.

    mask  [example, token], 0 for padding; None: what layers of `nn.MultiheadAttention` are given

    Raises InputError unless the layers run in it that ran with the first examples.
    """
    runs: list[str] = []

    def change_joined(name: str, joined: Any, real: Any) -> Any:
        """Input of a projection, its heads changed."""
        layer = len(runs)
        runs.append(name)
        if runs != names[: layer + 1]:
            return joined
        heads = layers[layer].heads
        if joined.numel() % (examples * heads) or joined.shape[-1] % heads:
            remedy = f"must be [{examples}, token, channel] with {heads} heads side by side"
            raise InputError(f"heads of layer {layer + 1}", tuple(joined.shape), remedy)
        by_head = joined.reshape(examples, -1, heads, joined.shape[-1] // heads)
        real = mask if real is None else real
        real = real if real is not None and real.shape == by_head.shape[:2] else None
        return change(layer, by_head, real).reshape(joined.shape)

    names = [layer.name for layer in layers]
    with changing(model, set(names), change_joined):
        yield
    if runs != names:
        remedy = (
            f"ran, but {names} with the first examples; give a `forward` that runs the same "
            "layers for all"
        )
        raise InputError("layers of attention", runs, remedy)


@contextmanager
def changing(
    model: Any, names: Iterable[str], change: Callable[[str, Any, Any], Any]
) -> Iterator[None]:
    """The model with other inputs of projections: change(name, heads side by side, real tokens)."""
    with ExitStack() as stack:
        for name in names:
            module, of_module = model.get_submodule(name), partial(change, name)
            if is_multihead(module):
                around = partial(behind_heads, module, of_module)
            else:
                around = partial(before_projection, of_module)
            stack.enter_context(around_forward(module, around))
        yield


def before_projection(
    change: Callable[[Any, Any], Any], forward: Callable, joined: Any, *more: Any, **named: Any
) -> Any:
    """Output of a projection for changed heads."""
    return forward(change(joined, None), *more, **named)


def behind_heads(
    module: Any,
    change: Callable[[Any, Any], Any],
    forward: Callable,
    *positional: Any,
    **named: Any,
) -> tuple[Any, Any]:
    """Output of `torch.nn.MultiheadAttention` with heads changed before its projection."""
    torch, projection = torch_module(), module.out_proj
    like = {"device": projection.weight.device, "dtype": projection.weight.dtype}
    size = module.embed_dim
    identity = torch.nn.utils.skip_init(torch.nn.Linear, size, size, bias=False, **like)
    torch.nn.init.eye_(identity.weight)
    module.out_proj = identity
    try:
        joined, weights = forward(*positional, **named)
    finally:
        module.out_proj = projection
    real = real_tokens(call_arguments(module, positional, named)["key_padding_mask"])
    if not module.batch_first:
        joined = joined.transpose(0, 1)
    sent = projection(change(joined, real))
    return sent if module.batch_first else sent.transpose(0, 1), weights
