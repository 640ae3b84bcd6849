"""PyTorch modules with a gate on every head, by hooks on the modules that join heads."""

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.heads.consumers import GatedLayer, Joint, gated_layers, norms_by_head, product_of
from sampler.heads.gates import Replacement
from sampler.transformer.forward_pass import (
    Forward,
    as_numpy,
    attention_layers,
    call,
    device_of,
    eager,
    evaluating,
    refuse_unusual,
    torch_module,
)
from sampler.transformer.recording import (
    as_tensors,
    batches,
    count_of,
    real_tokens,
    taken,
)

# (layer, output of its heads [example, token, head, channel]) → what they send instead
Change = Callable[[int, Any], Any]
EXAMPLES_FOLLOWED = 2


@dataclass(frozen=True)
class GatedModule:
    """A PyTorch module with examples; magnitudes are ‖W_O^h‖, by which a head enters its layer.

    model       of any kind whose attention `record_attention` sees
    inputs      as `record_attention` takes them
    forward     `forward(model, batch)` gives outputs [example] or [example, output], or an object
                that has them as `logits`; by default the model is called
    projection  end of the names of the modules that are given heads side by side; by default they
                are found in a forward pass
    batch_size  examples in the model at a time

    A mean over examples is that of a token's place in the arrays that the model receives, over
    those examples that have no padding there. Mode, hooks, settings and weights of the model are
    afterwards as before.
    """

    model: Any
    inputs: Any
    forward: Forward | None = None
    projection: str | None = None
    batch_size: int = 64
    # What heads send on average, by the weights with which they did.
    _kept: dict[str, list[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", as_tensors(self.inputs))

    @cached_property
    def layers(self) -> tuple[GatedLayer, ...]:
        """The layers of attention in the order in which they run, found with some examples."""
        batch = taken(self.inputs, self._some, device_of(self.model))
        return gated_layers(self.model, batch, self.forward, self.projection)

    @property
    def _some(self) -> list[int]:
        """Examples that can go through the model together."""
        alike = range(self.examples)
        if isinstance(self.inputs, list):
            shape = self.inputs[0].shape
            alike = [place for place, one in enumerate(self.inputs) if one.shape == shape]
        return list(alike[:EXAMPLES_FOLLOWED])

    @property
    def heads(self) -> tuple[int, ...]:
        return tuple(layer.heads for layer in self.layers)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(layer.number for layer in self.layers)

    @property
    def examples(self) -> int:
        return count_of(self.inputs)

    def outputs(self, gates, replacement):
        torch, means = torch_module(), self._means(replacement)
        with torch.no_grad():
            return self._over_batches(
                lambda batch: self._part(batch, torch.as_tensor(gates)[None], means)
            )

    def output_count(self):
        with torch_module().no_grad():
            return self._run([0], None).shape[1]

    def slopes(self, along, replacement, gates=None):
        torch, means = torch_module(), self._means(replacement)
        count = sum(self.heads)
        here = torch.as_tensor(np.ones(count) if gates is None else gates)

        def part(batch: list[int]) -> Any:
            rows = torch.as_tensor(along[batch])
            given = here.repeat(len(rows), 1).requires_grad_()
            outputs = self._part(batch, given, means)
            summed = (outputs * rows.to(outputs)).sum()
            if not summed.requires_grad:  # computed without gradients, by whatever `forward` does
                return torch.full_like(given, torch.nan)
            return torch.autograd.grad(summed, given)[0]

        return self._over_batches(part)

    def magnitudes(self):
        return np.concatenate(list(map(norms_by_head, self.layers)))

    def _over_batches(self, part: Callable[[list[int]], Any]) -> np.ndarray:
        """Rows of all examples, in their order, computed batch by batch."""
        order, found = [], []
        for batch in self._batches():
            order += batch
            found.append(as_numpy(part(batch)))
        return np.concatenate(found)[np.argsort(order)].astype(np.float64)

    def _batches(self) -> Iterator[list[int]]:
        if isinstance(self.inputs, list):
            yield from batches(self.inputs, self.batch_size)
            return
        for start in range(0, self.examples, self.batch_size):
            yield list(range(start, min(start + self.batch_size, self.examples)))

    def _part(self, batch: list[int], gates: Any, means: list[Any] | None) -> Any:
        """f [example, output] of some examples, with gates [example or 1, head]; None: as it is."""

        def change(layer: int, sent: Any) -> Any:
            gate = self._of_layer(gates, layer, sent)
            if means is None:
                return gate * sent
            return gate * sent + (1.0 - gate) * means[layer][: sent.shape[1]].to(sent)

        return self._run(batch, None if gates is None else change)

    def _of_layer(self, gates: Any, layer: int, sent: Any) -> Any:
        """Gates [example or 1, head] of one layer, shaped to multiply what its heads send."""
        first = sum(self.heads[:layer])
        return gates[:, first : first + self.heads[layer]].to(sent)[:, None, :, None]

    def _means(self, replacement: Replacement) -> list[Any] | None:
        """The mean outputs of every layer with the weights of now; None where 0 replaces heads."""
        if replacement == "zero":
            return None
        now = checksum_of(self.model)
        if now not in self._kept:
            self._kept.clear()
            self._kept[now] = self._mean_outputs()
        return self._kept[now]

    def _mean_outputs(self) -> list[Any]:
        """The mean output [token, head, channel] of every layer, over examples that have a token.

        0 at places where no example has one.
        """
        torch, real = torch_module(), self.real_tokens
        tokens = None if real is None else torch.from_numpy(real).to(device_of(self.model))
        sums: dict[int, Any] = {}
        counts: Any = 0.0
        with torch.no_grad():
            for batch in self._batches():

                def add(layer: int, sent: Any, batch: list[int] = batch) -> Any:
                    kept = sent.double()
                    if tokens is not None:  # what padding sends may be no number
                        here = tokens[batch, : sent.shape[1], None, None]
                        kept = torch.where(here, kept, 0.0)
                    kept = kept.sum(dim=0)
                    sums[layer] = added(sums[layer], kept) if layer in sums else kept
                    return sent

                self._run(batch, add)
                here = torch.ones(len(batch), 1) if tokens is None else tokens[batch]
                counts = counts + here.double().sum(dim=0)
        examples = counts.clamp(min=1.0)[:, None, None]
        return [sums[layer] / examples for layer in range(len(self.layers))]

    @cached_property
    def real_tokens(self) -> np.ndarray | None:
        """The tokens [example, token] that are no padding; None where all are tokens."""
        return real_tokens(
            self.model, self.inputs, forward=self.forward, batch_size=self.batch_size
        )

    def _run(self, batch: list[int], change: Change | None) -> Any:
        """f [example, output] of some examples, the outputs of heads changed."""
        inputs = taken(self.inputs, batch, device_of(self.model))
        layers = self.layers if change else ()
        at_sources = eager(self.model) if any(one.source for one in layers) else nullcontext()
        with evaluating(self.model), at_sources, changed(layers, change, len(batch)):
            returned = (self.forward or call)(self.model, inputs)
        outputs = getattr(returned, "logits", returned)
        if getattr(outputs, "ndim", 0) not in (1, 2) or len(outputs) != len(batch):
            remedy = (
                f"must be [example] or [example, output] of {len(batch)} examples; give "
                "forward=lambda model, batch: …"
            )
            raise InputError("outputs of the model", shape_of(outputs), remedy)
        return outputs[:, None] if outputs.ndim == 1 else outputs


def added(one: Any, other: Any) -> Any:
    """The sum of arrays of which one may have fewer tokens, its first axis."""
    if len(one) == len(other):
        return one + other
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    total = longer.clone()
    total[: len(shorter)] += shorter
    return total


def checksum_of(model: Any) -> str:
    """SHA-256 of every parameter and buffer."""
    checksum, torch = hashlib.sha256(), torch_module()
    for tensor in (*model.parameters(), *model.buffers()):
        checksum.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return checksum.hexdigest()


def shape_of(outputs: Any) -> Any:
    return tuple(outputs.shape) if hasattr(outputs, "shape") else Verbatim(type(outputs).__name__)


# --- hooks


@contextmanager
def changed(layers: tuple[GatedLayer, ...], change: Change | None, examples: int) -> Iterator[None]:
    """The model with the outputs of its heads changed, layer by layer, in one forward pass.

    Raises InputError where a layer did not run in it.
    """
    places: dict[Any, dict[int, tuple[int, GatedLayer, Joint]]] = {}
    for number, layer in enumerate(layers):
        for joint in layer.joints:
            places.setdefault(joint.module, {})[joint.call] = (number, layer, joint)
    handles: list[Any] = []
    reached: set[int] = set()

    def change_here(layer: int, sent: Any) -> Any:
        reached.add(layer)
        return change(layer, sent)

    try:
        for module, calls in places.items():
            if attention_layers(module):
                handles += change_attention(module, calls, change_here)
            else:
                handles += change_joined(module, calls, change_here, examples)
        with changed_sources(layers, change_here):
            yield
    finally:
        for handle in handles:
            handle.remove()
    missing = [number + 1 for number in range(len(layers)) if number not in reached]
    if missing:
        remedy = (
            "layers of attention that ran with the first examples did not with these; give a "
            "`forward` that runs the same ones for all"
        )
        raise InputError("layers", missing, remedy)


Places = dict[int, tuple[int, GatedLayer, Joint]]


@contextmanager
def changed_sources(layers: tuple[GatedLayer, ...], change: Change) -> Iterator[None]:
    """Layers that no module joins the heads of, changed where their products are computed."""
    places = {one.source.place: at for at, one in enumerate(layers) if one.source is not None}
    if not places:
        yield
        return
    counts: Counter[str] = Counter()

    class Changing(import_module("torch.overrides").TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            sent = function(*args, **(kwargs or {}))
            if product_of(function, args, kwargs or {}, sent) is None:
                return sent
            counts["products"] += 1
            at = places.get(counts["products"] - 1)
            if at is None:
                return sent
            return layers[at].source.changed(sent, layers[at].heads, partial(change, at))

    with Changing():
        yield


def change_joined(module: Any, calls: Places, change: Change, examples: int) -> list[Any]:
    """Hooks on a module that is given all heads side by side, on its last axis."""
    counts: Counter[str] = Counter()

    def before(_: Any, positional: tuple, named: dict) -> tuple[tuple, dict] | None:
        counts["calls"] += 1
        if counts["calls"] - 1 not in calls:
            return None
        number, layer, joint = calls[counts["calls"] - 1]
        arguments = dict(enumerate(positional)) | named
        joined = arguments[joint.argument]
        shape = (-1, examples) if joint.tokens_first else (examples, -1)
        by_head = joined.reshape(*shape, layer.heads, joined.shape[-1] // layer.heads)
        if joint.tokens_first:
            sent = change(number, by_head.transpose(0, 1)).transpose(0, 1)
        else:
            sent = change(number, by_head)
        arguments[joint.argument] = sent.reshape(joined.shape)
        return tuple(arguments[at] for at in range(len(positional))), {
            name: arguments[name] for name in named
        }

    return [module.register_forward_pre_hook(before, with_kwargs=True)]


def change_attention(module: Any, calls: Places, change: Change) -> list[Any]:
    """Hooks on `torch.nn.MultiheadAttention`, which never shows its heads.

    They are computed once more, from the weights that it returns: o_h = Ω^h (x W_V^h + b_V^h).
    """
    functional, heads = torch_module().nn.functional, module.num_heads
    if module.bias_k is not None or module.add_zero_attn:
        remedy = "keys beyond those of the tokens cannot be followed; build the layer without them"
        raise InputError("add_bias_kv or add_zero_attn", True, remedy)
    given: list[dict] = []
    counts: Counter[str] = Counter()

    def before(_: Any, positional: tuple, named: dict) -> tuple[tuple, dict]:
        bound = inspect.signature(module.forward).bind(*positional, **named)
        bound.apply_defaults()
        refuse_unusual(bound.arguments)
        given.append(dict(bound.arguments))
        bound.arguments.update(need_weights=True, average_attn_weights=False)
        return bound.args, bound.kwargs

    def after(_: Any, positional: tuple, named: dict, returned: tuple) -> tuple:
        settings, (attended, weights) = given.pop(), returned
        counts["calls"] += 1
        if counts["calls"] - 1 in calls:
            number, *_ = calls[counts["calls"] - 1]
            tokens = settings["value"] if module.batch_first else settings["value"].transpose(0, 1)
            size = module.embed_dim
            split = module.in_proj_weight is not None
            matrix = module.in_proj_weight[2 * size :] if split else module.v_proj_weight
            bias = None if module.in_proj_bias is None else module.in_proj_bias[2 * size :]
            values = functional.linear(tokens, matrix, bias)
            by_head = values.reshape(*values.shape[:2], heads, -1).transpose(1, 2)
            sent = change(number, (weights @ by_head).transpose(1, 2))
            joined = module.out_proj(sent.reshape(*sent.shape[:2], size))
            attended = joined if module.batch_first else joined.transpose(0, 1)
        if not settings["need_weights"]:
            return attended, None
        return attended, weights.mean(dim=1) if settings["average_attn_weights"] else weights

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]
