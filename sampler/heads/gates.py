"""Heads with gates: the outputs of a trained model some of whose heads are replaced.

The models are networks of the command `train`, and PyTorch modules, by hooks.
"""

import hashlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.tasks.splits import Split
from sampler.transformer.forward_pass import (
    Forward,
    as_numpy,
    attention_layers,
    call,
    eager,
    evaluating,
    refuse_unusual,
    torch_module,
)
from sampler.transformer.model import FrozenNetwork
from sampler.transformer.recording import as_tensors, count_of, taken
from theory.programs import program

Head = tuple[int, int]  # layer and head, counted from 0
# What a closed gate lets through: nothing, or the mean over examples, token by token.
Replacement = Literal["zero", "mean"]


@runtime_checkable
class GatedModel(Protocol):
    """A trained model with its examples, each of whose heads has a gate g.

    In the place of its output o a head sends g o + (1 − g) r, where r is 0 or the mean of o over
    all examples at the same token. Heads are counted through all layers, lowest layer first.
    """

    @property
    def heads(self) -> tuple[int, ...]:
        """H_1 … H_L."""
        ...

    def outputs(
        self, gates: Float[np.ndarray, " head"], replacement: Replacement
    ) -> Float[np.ndarray, "example output"]:
        """f(x) of every example with these gates, the same for all examples."""
        ...

    def slopes(
        self, along: Float[np.ndarray, "example output"], replacement: Replacement
    ) -> Float[np.ndarray, "example head"]:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h of every example and gate, where all gates are 1."""
        ...

    def magnitudes(self) -> Float[np.ndarray, " head"]:
        """The Frobenius norm of the weights by which a head acts, as the implementation says."""
        ...


def all_heads(counts: Sequence[int]) -> list[Head]:
    """Heads of layers with so many, lowest layer first."""
    return [(layer, head) for layer, count in enumerate(counts) for head in range(count)]


def closed_gates(counts: Sequence[int], removed: Collection[Head]) -> Float[np.ndarray, " head"]:
    """Gates of layers with so many heads, 0 for the heads removed and 1 for all others."""
    return np.array([head not in removed for head in all_heads(counts)], float)


@dataclass(frozen=True)
class GatedNetwork:
    """A network of the command `train` on some examples; magnitudes are ‖V_l^h‖.

    inputs     [example, token, channel]
    attention  [example, head, key, query] of each layer
    """

    network: FrozenNetwork
    inputs: np.ndarray
    attention: tuple[np.ndarray, ...]

    @classmethod
    def of_blocks(cls, network: FrozenNetwork, blocks: Iterable[Split]) -> "GatedNetwork":
        """On the examples of all blocks, which are held at once: a mean is over all of them."""
        parts = list(blocks)
        layers = zip(*(part.attention for part in parts), strict=True)
        inputs = np.concatenate([part.inputs for part in parts])
        return cls(network, inputs, tuple(np.concatenate(of_layer) for of_layer in layers))

    def __post_init__(self) -> None:
        heads = tuple(matrices.shape[1] for matrices in self.attention)
        if heads != self.heads:
            remedy = f"the trained network has heads {self.heads}; use `random_heads = 0`"
            raise InputError("heads of the task", heads, remedy)

    @property
    def heads(self) -> tuple[int, ...]:
        return self.network.architecture.heads

    def outputs(self, gates, replacement):
        everyone = np.broadcast_to(gates, (len(self.inputs), sum(self.heads)))
        return np.asarray(self._forward(replacement)(jnp.asarray(everyone)))

    def slopes(self, along, replacement):
        open_gates = jnp.ones((len(self.inputs), sum(self.heads)))
        _, pull_back = jax.vjp(self._forward(replacement), open_gates)
        return np.asarray(pull_back(jnp.asarray(along))[0])

    def magnitudes(self):
        return self.network.magnitudes()

    def _forward(self, replacement: Replacement):
        weights = {name: jnp.asarray(values) for name, values in self.network.weights.items()}
        attention = tuple(map(jnp.asarray, self.attention))
        return partial(gated_forward, weights, jnp.asarray(self.inputs), attention,
                       replacement == "mean")  # fmt: skip


@program.of(static_argnames="use_mean")
def gated_forward(
    weights: dict[str, Array],
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head key query"], ...],
    use_mean: bool,
    gates: Float[Array, "example all_heads"],
) -> Float[Array, "example output"]:
    """f(x) token by token, the mean over tokens read out.

    z^{l+1} = Σ_h (g_h o_h + (1 − g_h) r_h)/√H_l with o_h = V_l^h z^l Ω^{l,h}/√N_l. Means are those
    of the whole network, every gate open.
    """
    hidden = inputs @ weights["V_0"].T / inputs.shape[-1] ** 0.5
    plain, first = hidden, 0
    for layer, matrices in enumerate(attention, start=1):
        values = weights[f"V_{layer}"] / weights[f"V_{layer}"].shape[2] ** 0.5

        def of_heads(tokens, matrices=matrices, values=values):
            return jnp.einsum("xhst,xsi,hji->xhtj", matrices, tokens, values, optimize=True)

        count = matrices.shape[1]
        gate = gates[:, first : first + count, None, None]
        sent = gate * of_heads(hidden)
        if use_mean:
            undisturbed = of_heads(plain)
            sent = sent + (1.0 - gate) * undisturbed.mean(axis=0)
            plain = undisturbed.sum(axis=1) / count**0.5
        hidden = sent.sum(axis=1) / count**0.5
        first += count
    readout = weights["a"] / weights["a"].shape[1] ** 0.5
    return hidden.mean(axis=1) @ readout.T


# --- PyTorch

# Modules of Hugging Face models that join the heads of a layer: their input is all heads, side by
# side.
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
    # What heads send on average, by the weights with which they did.
    _kept: dict[str, list[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        torch, means = torch_module(), self._means(replacement)
        with torch.no_grad():
            parts = [
                as_numpy(self._part(batch, torch.as_tensor(gates)[None], means))
                for batch in self._batches()
            ]
        return np.concatenate(parts).astype(np.float64)

    def slopes(self, along, replacement):
        torch, means = torch_module(), self._means(replacement)
        found = []
        for batch in self._batches():
            rows = torch.as_tensor(along[batch])
            gates = torch.ones(len(rows), sum(self.heads), requires_grad=True)
            outputs = self._part(batch, gates, means)
            summed = (outputs * rows.to(outputs)).sum()
            found.append(as_numpy(torch.autograd.grad(summed, gates)[0]))
        return np.concatenate(found).astype(np.float64)

    def magnitudes(self):
        return np.concatenate([norms_by_head(*site) for site in sites(self.model)])

    def _batches(self) -> Iterator[slice]:
        for start in range(0, count_of(self.inputs), self.batch_size):
            yield slice(start, start + self.batch_size)

    def _part(self, batch: slice, gates: Any, means: list[Any] | None) -> Any:
        """f [example, output] of some examples, with gates [example or 1, head]."""
        starts = np.cumsum([0, *self.heads])

        def change(layer: int, sent: Any) -> Any:
            gate = gates[:, starts[layer] : starts[layer + 1]].to(sent)[:, None, :, None]
            return gate * sent + (0.0 if means is None else (1.0 - gate) * means[layer])

        return self._run(batch, change)

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
        """The mean output [token, head, channel] of every layer."""
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
        return [sums[layer] / count_of(self.inputs) for layer in range(len(self.heads))]

    def _run(self, batch: slice, change: Change) -> Any:
        device = next((p.device for p in self.model.parameters()), torch_module().device("cpu"))
        with evaluating(self.model), eager(self.model), changed(self.model, change):
            returned = (self.forward or call)(self.model, taken(self.inputs, batch, device))
        outputs = getattr(returned, "logits", returned)
        if getattr(outputs, "ndim", 0) not in (1, 2):
            remedy = "must be [example] or [example, output]; give forward=lambda model, batch: …"
            raise InputError("outputs of the model", shape_of(outputs), remedy)
        return outputs[:, None] if outputs.ndim == 1 else outputs


def checksum_of(model: Any) -> str:
    """SHA-256 of every parameter and buffer."""
    checksum, torch = hashlib.sha256(), torch_module()
    for tensor in (*model.parameters(), *model.buffers()):
        checksum.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return checksum.hexdigest()


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
