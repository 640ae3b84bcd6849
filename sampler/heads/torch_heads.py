"""Heads of a PyTorch model, each with a gate on what it hands to the projection of its layer.

The projection joins the heads of a layer, side by side on its last axis; it is known by its name.
Heads of `torch.nn.MultiheadAttention` are computed once more from the weights of the module.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.heads.path_sum import Head, Replacement
from sampler.torch_models.model_inputs import (
    Forward,
    as_numpy,
    as_tensors,
    batch_of,
    batches,
    call,
    evaluating,
    torch_module,
)
from sampler.torch_models.recording import as_asked, hides, is_multihead, settings_of_call

# Ends of the names of modules that join heads, in models of common libraries.
PROJECTIONS = (
    "attention.output.dense", "attention.dense", "attention.o_proj", "attention.out_proj",
    "attention.out_lin", "attn.c_proj", "attn.o_proj", "attn.out_proj", "attn.proj",
    "SelfAttention.o",
)  # fmt: skip
COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
# The projection, or its end of a name with the number of heads
Projection = str | Mapping[str, int]
# (layer from 0, output of its heads [example, token, head, channel], real tokens) → what they send
Change = Callable[[int, Any, Any], Any]


@dataclass(frozen=True)
class HeadProjection:
    """The projection of a layer.

    name   of the module in the model
    heads  side by side in what it is given
    run    which of its calls in a forward pass, from 0
    """

    name: str
    heads: int
    run: int = 0

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
        """Zero what comes from these heads, in place."""
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
        object.__setattr__(self, "inputs", as_tensors(self.inputs))

    @cached_property
    def projections(self) -> tuple[HeadProjection, ...]:
        """The projections of all layers, in the order in which they run on the first examples."""
        return find_projections(self, next(batches(self.inputs, 2)))

    @property
    def heads(self) -> tuple[int, ...]:
        return tuple(layer.heads for layer in self.projections)

    @cached_property
    def outputs(self) -> int:
        """The number of outputs."""
        with torch_module().no_grad():
            return self._run([0], None).shape[1]

    @cached_property
    def magnitudes(self) -> np.ndarray:
        return np.concatenate([layer.norms(self.model) for layer in self.projections])

    def without(self, removed: Sequence[Head], replacement: Replacement = "zero") -> np.ndarray:
        """f of all examples without some heads."""
        means = self._means if replacement == "mean" and removed else None
        by_layer: dict[int, list[int]] = {}
        for layer, head in removed:
            by_layer.setdefault(layer, []).append(head)

        def change(layer: int, sent: Any, real: Any) -> Any:
            heads = by_layer.get(layer)
            if heads is None:
                return sent
            changed = sent.clone()
            mean = 0.0 if means is None else means[layer][: sent.shape[1], heads].to(sent)
            changed[:, :, heads] = mean
            return changed

        with torch_module().no_grad():
            return self._over_batches(lambda batch: self._run(batch, change if removed else None))

    def slopes(self, along: np.ndarray) -> np.ndarray:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h [example, head] of gates g_h that multiply what heads send.

        NaN where the model gives no gradients.
        """
        torch, starts = torch_module(), np.cumsum([0, *self.heads])

        def of_batch(batch: list[int]) -> Any:
            rows = torch.as_tensor(along[batch])
            gates = torch.ones(len(batch), sum(self.heads), requires_grad=True)

            def change(layer: int, sent: Any, real: Any) -> Any:
                gate = gates[:, starts[layer] : starts[layer + 1]].to(sent)
                return gate[:, None, :, None] * sent

            outputs = self._run(batch, change)
            summed = (outputs * rows.to(outputs)).sum()
            if not summed.requires_grad:
                return torch.full_like(gates, torch.nan)
            return torch.autograd.grad(summed, gates)[0]

        return self._over_batches(of_batch)

    # --- forward passes

    def _over_batches(self, of_batch: Callable[[list[int]], Any]) -> np.ndarray:
        """Rows of all examples, in their order, computed batch by batch."""
        order, rows = [], []
        for batch in batches(self.inputs, self.batch_size):
            order += batch
            rows.append(as_numpy(of_batch(batch)))
        return np.concatenate(rows)[np.argsort(order)].astype(np.float64)

    @cached_property
    def _means(self) -> list[Any]:
        """The mean output [token, head, channel] of every layer, over examples that have a token.

        0 at places where no example has one.
        """
        torch = torch_module()
        sums: dict[int, Any] = {}
        counts: dict[int, Any] = {}

        def add(layer: int, sent: Any, real: Any) -> Any:
            ones = torch.ones(sent.shape[:2], device=sent.device)
            here = ones if real is None else real.to(ones)
            # What padding sends may be no number.
            kept = torch.where(here[:, :, None, None] > 0, sent.double(), 0.0).sum(dim=0)
            sums[layer] = added(sums.get(layer), kept)
            counts[layer] = added(counts.get(layer), here.double().sum(dim=0))
            return sent

        with torch.no_grad():
            for batch in batches(self.inputs, self.batch_size):
                self._run(batch, add)
        return [
            sums[layer] / counts[layer].clamp(min=1.0)[:, None, None]
            for layer in range(len(self.heads))
        ]

    def _run(self, examples: list[int], change: Change | None) -> Any:
        """f [example, output] of some examples, the outputs of heads changed."""
        batch = batch_of(self.inputs, examples, self.model)
        layers = self.projections if change else ()
        mask = batch.get("attention_mask") if isinstance(batch, dict) else None
        with evaluating(self.model), changed(self.model, layers, change, len(examples), mask):
            returned = (self.forward or call)(self.model, batch)
        outputs = getattr(returned, "logits", returned)
        if getattr(outputs, "ndim", 0) not in (1, 2) or len(outputs) != len(examples):
            remedy = (
                f"must be [example] or [example, output] of {len(examples)} examples; give "
                "forward=lambda model, batch: …"
            )
            shape = getattr(outputs, "shape", None)
            received = Verbatim(type(outputs).__name__) if shape is None else tuple(shape)
            raise InputError("outputs of the model", received, remedy)
        return outputs[:, None] if outputs.ndim == 1 else outputs


def added(total: Any, more: Any) -> Any:
    """The sum of arrays of which one may have fewer tokens, its first axis."""
    if total is None:
        return more
    longer, shorter = (total, more) if len(total) > len(more) else (more, total)
    total = longer.clone()
    total[: len(shorter)] += shorter
    return total


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


def find_projections(heads: TorchHeads, examples: list[int]) -> tuple[HeadProjection, ...]:
    """The projections that run on some examples; InputError where there are none."""
    model, named = heads.model, heads.projection
    ends = PROJECTIONS if named is None else tuple([named] if isinstance(named, str) else named)
    modules = dict(model.named_modules())
    inner = {f"{name}.out_proj" for name, module in modules.items() if is_multihead(module)}
    known = {
        name: module
        for name, module in modules.items()
        if (is_multihead(module) and named is None) or (name.endswith(ends) and name not in inner)
    }
    runs: Counter[str] = Counter()
    order: list[HeadProjection] = []

    def note(name: str) -> None:
        order.append(HeadProjection(name, count_heads(model, name, named), runs[name]))
        runs[name] += 1

    handles = [
        module.register_forward_pre_hook(lambda *_, name=name: note(name))
        for name, module in known.items()
    ]
    try:
        with torch_module().no_grad():
            heads._run(examples, None)
    finally:
        for handle in handles:
            handle.remove()
    if not order:
        last = sorted({name.split(".")[-1] for name in modules if name})
        remedy = (
            "no module that joins the heads of a layer ran; name them by the end of their names, "
            f'with the number of heads: projection={{"c_proj": 4}} (ends here: '
            f"{', '.join(last[:12])})"
        )
        raise InputError("projection", named, remedy)
    return tuple(order)


def count_heads(model: Any, name: str, projection: Projection | None) -> int:
    """The number of heads in what a projection is given.

    It is as stated, or an attribute of a module around it, or of the configuration of one.
    """
    module = model.get_submodule(name)
    if is_multihead(module):
        return module.num_heads
    stated = projection if isinstance(projection, Mapping) else {}
    found = next((count for end, count in stated.items() if name.endswith(end)), None)
    around = name
    while found is None and around:
        around = around.rpartition(".")[0]
        module = model.get_submodule(around)
        for owner in (module, getattr(module, "config", None)):
            found = next((getattr(owner, one) for one in COUNTS if hasattr(owner, one)), found)
    remedy = 'give the number of heads: projection={"' + name.split(".")[-1] + '": 4}'
    if type(found) is not int or found < 1:
        raise InputError(f"heads of {name}", found, remedy)
    channels = len(HeadProjection(name, found).weight(model))
    if channels % found:
        raise InputError(f"heads of {name}", found, f"are of {channels} channels; {remedy}")
    return found


@contextmanager
def changed(
    model: Any,
    layers: Sequence[HeadProjection],
    change: Change | None,
    examples: int,
    mask: Any,
) -> Iterator[None]:
    """The model with the outputs of its heads changed, layer by layer, in one forward pass.

    mask  [example, token], 0 for padding; None: what layers of `nn.MultiheadAttention` are given

    Raises InputError where a layer did not run in it.
    """
    places: dict[str, dict[int, int]] = {}
    for number, layer in enumerate(layers):
        places.setdefault(layer.name, {})[layer.run] = number
    handles: list[Any] = []
    reached: set[int] = set()

    def change_here(layer: int, sent: Any, real: Any) -> Any:
        reached.add(layer)
        return change(layer, sent, real)

    try:
        for name, runs in places.items():
            module = model.get_submodule(name)
            heads = layers[next(iter(runs.values()))].heads
            if is_multihead(module):
                handles += gate_multihead(module, runs, change_here)
            else:
                handles.append(gate_projection(module, heads, runs, change_here, examples, mask))
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


def gate_projection(
    module: Any, heads: int, runs: Mapping[int, int], change: Change, examples: int, mask: Any
) -> Any:
    """A hook on a module that is given all heads side by side, on the last axis."""
    counts: Counter[str] = Counter()

    def before(_: Any, positional: tuple) -> tuple | None:
        counts["calls"] += 1
        layer = runs.get(counts["calls"] - 1)
        if layer is None:
            return None
        joined = positional[0]
        if joined.numel() % (examples * heads) or joined.shape[-1] % heads:
            remedy = f"must be [{examples}, token, channel] with {heads} heads side by side"
            raise InputError(f"heads of layer {layer + 1}", tuple(joined.shape), remedy)
        by_head = joined.reshape(examples, -1, heads, joined.shape[-1] // heads)
        real = mask if mask is not None and mask.shape == by_head.shape[:2] else None
        return change(layer, by_head, real).reshape(joined.shape), *positional[1:]

    return module.register_forward_pre_hook(before)


def gate_multihead(module: Any, runs: Mapping[int, int], change: Change) -> list[Any]:
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
        bound = settings_of_call(module, positional, named)
        given.append(dict(bound.arguments))
        bound.arguments.update(need_weights=True, average_attn_weights=False)
        return bound.args, bound.kwargs

    def after(_: Any, positional: tuple, named: dict, returned: tuple) -> tuple:
        settings, (attended, weights) = given.pop(), returned
        counts["calls"] += 1
        layer = runs.get(counts["calls"] - 1)
        if layer is not None:
            tokens = settings["value"] if module.batch_first else settings["value"].transpose(0, 1)
            size = module.embed_dim
            whole = module.in_proj_weight is not None
            matrix = module.in_proj_weight[2 * size :] if whole else module.v_proj_weight
            bias = None if module.in_proj_bias is None else module.in_proj_bias[2 * size :]
            values = functional.linear(tokens, matrix, bias)
            by_head = values.reshape(*values.shape[:2], heads, -1).transpose(1, 2)
            mask = settings["key_padding_mask"]
            real = None if mask is None else ~hides(mask)
            sent = change(layer, (weights @ by_head).transpose(1, 2), real)
            joined = module.out_proj(sent.reshape(*sent.shape[:2], size))
            attended = joined if module.batch_first else joined.transpose(0, 1)
        return as_asked(settings, attended, weights)

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]
