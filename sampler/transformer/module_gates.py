"""Gates on the heads of a PyTorch module, by hooks."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.transformer.fused import eager
from sampler.transformer.gates import Replacement
from sampler.transformer.recording import (
    Forward,
    as_numpy,
    as_tensors,
    attention_layers,
    call,
    count_of,
    evaluating,
    refuse_unusual,
    taken,
    torch_module,
)

# Where Hugging Face models join the heads of a layer: their input is the heads side by side.
PROJECTIONS = ("attention.output.dense", "attn.c_proj", "attention.o_proj", "attn.o_proj")
# (layer, output of its heads [example, token, head, channel]) → what they send instead
Change = Callable[[int, Any], Any]


@dataclass(frozen=True)
class GatedModule:
    """A PyTorch module with examples; magnitudes are ‖W_O^h‖, by which a head enters its layer.

    model    `torch.nn.MultiheadAttention` layers, or a Hugging Face model with `config`
    inputs   a tensor, or tensors by name, as `record_attention` takes them; of equal lengths
    forward  `forward(model, batch)` gives outputs [example] or [example, output], or an object
             that has them as `logits`; by default the model is called

    Mode, hooks, settings and weights of the model are afterwards as before.
    """

    model: Any
    inputs: Any
    forward: Forward | None = None
    batch_size: int = 250
    _means: list[Any] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        inputs = as_tensors(self.inputs)
        mask = inputs.get("attention_mask") if isinstance(inputs, dict) else None
        if isinstance(inputs, list) or (mask is not None and not bool((mask != 0).all())):
            remedy = "means over examples need sequences of one length; give those of equal length"
            raise InputError("inputs", Verbatim("(sequences of unequal length)"), remedy)
        object.__setattr__(self, "inputs", inputs)
        if not sites(self.model):
            remedy = (
                "has no torch.nn.MultiheadAttention layer and no module named "
                f"{' or '.join(PROJECTIONS)}: its heads cannot be replaced one by one"
            )
            raise InputError("model", Verbatim(type(self.model).__name__), remedy)

    @property
    def heads(self) -> tuple[int, ...]:
        return tuple(heads for _, heads in sites(self.model))

    def outputs(self, gates, replacement):
        torch = torch_module()
        with torch.no_grad():
            parts = [
                as_numpy(self._part(batch, torch.as_tensor(gates)[None], replacement))
                for batch in self._batches()
            ]
        return np.concatenate(parts).astype(np.float64)

    def slopes(self, along, replacement):
        torch = torch_module()
        found = []
        for batch in self._batches():
            rows = torch.as_tensor(along[batch])
            gates = torch.ones(len(rows), sum(self.heads), requires_grad=True)
            outputs = self._part(batch, gates, replacement)
            summed = (outputs * rows.to(outputs)).sum()
            found.append(as_numpy(torch.autograd.grad(summed, gates)[0]))
        return np.concatenate(found).astype(np.float64)

    def magnitudes(self):
        return np.concatenate([norms_by_head(*site) for site in sites(self.model)])

    def _batches(self) -> Iterator[slice]:
        for start in range(0, count_of(self.inputs), self.batch_size):
            yield slice(start, start + self.batch_size)

    def _part(self, batch: slice, gates: Any, replacement: Replacement) -> Any:
        """f [example, output] of some examples, with gates [example or 1, head]."""
        means = self._mean_outputs() if replacement == "mean" else None
        starts = np.cumsum([0, *self.heads])

        def change(layer: int, sent: Any) -> Any:
            gate = gates[:, starts[layer] : starts[layer + 1]].to(sent)[:, None, :, None]
            return gate * sent + (0.0 if means is None else (1.0 - gate) * means[layer])

        return self._run(batch, change)

    def _mean_outputs(self) -> list[Any]:
        """The mean output [token, head, channel] of every layer, computed once."""
        if not self._means:
            sums: dict[int, Any] = {}

            def add(layer: int, sent: Any) -> Any:
                sums[layer] = sums.get(layer, 0.0) + sent.sum(dim=0)
                return sent

            with torch_module().no_grad():
                for batch in self._batches():
                    self._run(batch, add)
            missing = [layer + 1 for layer in range(len(self.heads)) if layer not in sums]
            if missing:
                remedy = "layers of attention are not used in this forward pass; check `forward`"
                raise InputError("layers", missing, remedy)
            count = count_of(self.inputs)
            self._means.extend(sums[layer] / count for layer in range(len(self.heads)))
        return self._means

    def _run(self, batch: slice, change: Change) -> Any:
        device = next((p.device for p in self.model.parameters()), torch_module().device("cpu"))
        with evaluating(self.model), eager(self.model), changed(self.model, change):
            returned = (self.forward or call)(self.model, taken(self.inputs, batch, device))
        outputs = getattr(returned, "logits", returned)
        if getattr(outputs, "ndim", 0) not in (1, 2):
            remedy = "must be [example] or [example, output]; give forward=lambda model, batch: …"
            raise InputError("outputs of the model", shape_of(outputs), remedy)
        return outputs[:, None] if outputs.ndim == 1 else outputs


def shape_of(outputs: Any) -> Any:
    return tuple(outputs.shape) if hasattr(outputs, "shape") else Verbatim(type(outputs).__name__)


def sites(model: Any) -> list[tuple[Any, int]]:
    """The module of every layer where its heads meet, with their number, in the model's order."""
    layers = attention_layers(model)
    if layers:
        return [(module, module.num_heads) for module in layers]
    config = getattr(model, "config", None)
    heads = getattr(config, "num_attention_heads", None)
    found = [module for name, module in model.named_modules() if name.endswith(PROJECTIONS)]
    if found and heads is None:
        remedy = "say in `model.config` how many heads a layer has"
        raise InputError("num_attention_heads", ABSENT, remedy)
    return [(module, heads) for module in found]


def norms_by_head(module: Any, heads: int) -> Any:
    """‖W_O^h‖ of every head of a layer."""
    joining = getattr(module, "out_proj", module)
    # GPT-2 keeps its matrices with the input first.
    weight = as_numpy(joining.weight if hasattr(joining, "nf") else joining.weight.T)
    return np.linalg.norm(weight.reshape(heads, -1), axis=1)


@contextmanager
def changed(model: Any, change: Change) -> Iterator[None]:
    """The model with the outputs of its heads changed, layer by layer."""
    handles = []
    try:
        for layer, (module, heads) in enumerate(sites(model)):
            hook = change_attention if hasattr(module, "out_proj") else change_joined
            handles += hook(module, layer, heads, change)
        yield
    finally:
        for handle in handles:
            handle.remove()


def change_joined(module: Any, layer: int, heads: int, change: Change) -> list[Any]:
    """Hooks on a projection whose input [example, token, channel] is all heads side by side."""

    def before(_: Any, positional: tuple) -> tuple:
        joined = positional[0]
        by_head = joined.reshape(*joined.shape[:2], heads, -1)
        return (change(layer, by_head).reshape(joined.shape), *positional[1:])

    return [module.register_forward_pre_hook(before)]


def change_attention(module: Any, layer: int, heads: int, change: Change) -> list[Any]:
    """Hooks on `torch.nn.MultiheadAttention`, which never shows its heads.

    They are computed once more, from the weights that it returns: o_h = Ω^h (x W_V^h + b_V^h).
    """
    functional = torch_module().nn.functional
    if module.bias_k is not None or module.add_zero_attn:
        remedy = "keys beyond those of the tokens cannot be followed; build the layer without them"
        raise InputError("add_bias_kv or add_zero_attn", True, remedy)
    given: list[dict] = []

    def before(_: Any, positional: tuple, named: dict) -> tuple[tuple, dict]:
        bound = inspect.signature(module.forward).bind(*positional, **named)
        bound.apply_defaults()
        refuse_unusual(bound.arguments)
        given.append(dict(bound.arguments))
        bound.arguments.update(need_weights=True, average_attn_weights=False)
        return bound.args, bound.kwargs

    def after(_: Any, positional: tuple, named: dict, returned: tuple) -> tuple:
        settings, weights = given.pop(), returned[1]
        tokens = settings["value"] if module.batch_first else settings["value"].transpose(0, 1)
        size = module.embed_dim
        split = module.in_proj_weight is not None
        matrix = module.in_proj_weight[2 * size :] if split else module.v_proj_weight
        bias = None if module.in_proj_bias is None else module.in_proj_bias[2 * size :]
        values = functional.linear(tokens, matrix, bias)
        by_head = values.reshape(*values.shape[:2], heads, -1).transpose(1, 2)
        sent = change(layer, (weights @ by_head).transpose(1, 2))
        joined = module.out_proj(sent.reshape(*sent.shape[:2], size))
        joined = joined if module.batch_first else joined.transpose(0, 1)
        if not settings["need_weights"]:
            return joined, None
        return joined, weights.mean(dim=1) if settings["average_attn_weights"] else weights

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]
