"""Attention seen in a forward pass of a PyTorch model, in whichever way it shows it.

Layers of `torch.nn.MultiheadAttention`, calls of `scaled_dot_product_attention`, attention that the
model returns on request, as Hugging Face models do, or softmax of logits, step by step.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from sampler.attention.masks import HIDING, WEAKENING, HiddenKeys
from sampler.errors import ABSENT, InputError, Verbatim
from sampler.transformer.refusals import (
    refuse_bands,
    refuse_compiled,
    refuse_decoder,
    refuse_others,
    refuse_windows,
)
from sampler.transformer.softmaxes import (
    SeenLayer,
    SeenSoftmax,
    are_layers,
    are_logits,
    computed_by,
    hidden_by,
    is_square,
    softmax_functions,
)
from sampler.transformer.value_products import Products, shares

# Runs a model on a batch: forward(model, batch)
Forward = Callable[[Any, Any], Any]


def torch_module() -> Any:
    """PyTorch; InputError, with the way to install it, where it is absent."""
    try:
        return import_module("torch")
    except ImportError:
        remedy = "PyTorch is an extra: pip install 'attention-posterior[torch]'"
        raise InputError("torch", ABSENT, remedy) from None


def as_numpy(tensor: Any) -> np.ndarray:
    """A tensor of any device as an array of its own: float64 in double precision, else float32."""
    torch = torch_module()
    precision = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", precision, copy=True).numpy()


@dataclass
class SeenAttention:
    """Attention that a forward pass computed, layer by layer in the order of computation.

    inputs   x_0 [example, token, channel], the tokens of the first layer
    weights  [example, head, query, key] of every layer
    hidden   keys that masks hide, layer by layer; nothing where no mask can be seen
    layers   where each was computed; None where that cannot be seen
    """

    inputs: np.ndarray | None = None
    weights: list[np.ndarray] = field(default_factory=list)
    hidden: list[HiddenKeys] = field(default_factory=list)
    layers: list[SeenLayer] | None = field(default_factory=list)


def run_batch(
    model: Any, batch: Any, forward: Forward | None, returns: Callable[[Any], None] = id
) -> SeenAttention:
    """Run a model on a batch and see its attention, by whichever of the ways it shows it.

    `returns` is given what the model returns.
    """
    refuse_compiled(model)
    if forward is None:
        refuse_decoder(model)
    refuse_bands(model)
    modules = attention_layers(model)
    if modules and implementation_of(model) is None:
        return run_hooked(model, modules, batch, forward, returns)
    fixed = implementation_of(model) not in (None, "eager")
    # A model that keeps to fused attention may have another one, unmasked, for those who ask.
    asked = dict.fromkeys(FLAGS[1:] if fixed else FLAGS, True) if takes_flags(model) else {}
    with watched(model) as (seen, softmaxes):
        returned = (forward or partial(call, **asked))(model, batch)
    returns(returned)
    if not returned_attention(returned):
        refuse_decoder(model)
    if seen.weights and (fixed or not returned_attention(returned)):
        return seen
    if not fixed and not returned_attention(returned) and are_layers(softmaxes):
        return read_softmaxes(softmaxes)
    if fixed:
        remedy = 'cannot be switched; load the model with attn_implementation="eager"'
        raise InputError("attention of the model", implementation_of(model), remedy)
    if modules and not returned_attention(returned):
        return run_hooked(model, modules, batch, forward, returns)
    if forward is None and not asked:
        remedy = (
            "has no torch.nn.MultiheadAttention layer, calls neither "
            "scaled_dot_product_attention nor softmax of [example, head, query, key], and does not "
            "take output_attentions and output_hidden_states; give it one of them"
        )
        raise InputError("model", Verbatim(type(model).__name__), remedy)
    return read_returned(returned, softmaxes)


def run_hooked(
    model: Any,
    modules: list[Any],
    batch: Any,
    forward: Forward | None,
    returns: Callable[[Any], None],
) -> SeenAttention:
    """Run a model on a batch, and see its `torch.nn.MultiheadAttention` modules."""
    with hooked(model, modules) as seen:
        returns((forward or call)(model, batch))
    if seen.inputs is None:
        remedy = "its attention layers are not used in this forward pass; check `forward`"
        raise InputError("model", Verbatim(type(model).__name__), remedy)
    return seen


def call(model: Any, batch: Any, **flags: bool) -> Any:
    """The model called on a batch: a tensor as its argument, or tensors by name."""
    return model(**batch, **flags) if isinstance(batch, dict) else model(batch, **flags)


def device_of(model: Any) -> Any:
    """The device of a model's parameters; the processor's for a model without any."""
    return next((one.device for one in model.parameters()), torch_module().device("cpu"))


@contextmanager
def hooks(
    modules: Iterable[Any], before: Callable, after: Callable, *, always: bool = False
) -> Iterator[None]:
    """Hooks before and behind the calls of modules, which are gone on leaving.

    Both are given module, arguments by place and by name, and `after` what came back. With `always`
    that hook is called where a call failed, too.
    """
    handles = []
    try:
        for module in modules:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handle = module.register_forward_hook(after, with_kwargs=True, always_call=always)
            handles.append(handle)
        yield
    finally:
        for handle in handles:
            handle.remove()


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


IMPLEMENTATION = "_attn_implementation"


def implementation_of(model: Any) -> str | None:
    """Name the way in which a Hugging Face model computes attention now; None for any other."""
    return getattr(getattr(model, "config", None), IMPLEMENTATION, None)


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """Make a Hugging Face model compute its attention matrices; on leaving, it does as before.

    In double precision fused attention is left as it is and watched: the softmax of eager attention
    is often in single precision, where masks of double precision are infinite.
    """
    config = getattr(model, "config", None)
    before = implementation_of(model)
    switch = getattr(model, "set_attn_implementation", None)
    if switch is None or before is None:
        yield
        return
    parts = {
        name: getattr(getattr(config, name), IMPLEMENTATION, None)
        for name in getattr(config, "sub_configs", ())
        if getattr(config, name, None) is not None
    }
    precision = next((one.dtype for one in model.parameters()), None)
    fused_in_double = before == "sdpa" and precision == torch_module().float64
    if fused_in_double or {before, *parts.values()} <= {"eager", None}:
        yield
        return
    try:
        switch("eager")
        yield
    finally:
        switch({"": before, **{name: one for name, one in parts.items() if one is not None}})


FLAGS = ("output_attentions", "output_hidden_states")


def takes_flags(model: Any) -> bool:
    """Whether a model can be asked for attention and hidden states."""
    parameters = inspect.signature(model.forward).parameters
    return all(flag in parameters for flag in FLAGS) or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def read_returned(returned: Any, softmaxes: list[SeenSoftmax]) -> SeenAttention:
    """Read what a model returns on request.

    x_0 is what the values of the first layer multiply, or the first of the hidden states where that
    cannot be seen.
    """
    found = returned_attention(returned)
    if not found:
        remedy = (
            "no attention came back, and no fused attention was called: the model has none (as "
            "state-space models such as Mamba, and FNet), or keeps it; a Hugging Face model must "
            'be loaded with attn_implementation="eager", and of an encoder with decoder take the '
            "encoder"
        )
        absent = not getattr(returned, "attentions", None)
        raise InputError("attentions", Verbatim("(absent)" if absent else "(None)"), remedy)
    hidden = getattr(returned, "hidden_states", None)
    if not hidden:
        remedy = "return them too: the first of them are the tokens of the first layer"
        raise InputError("hidden_states", Verbatim("(absent)"), remedy)
    refuse_windows(len(hidden[0]), found)
    layers = computed_by(found, softmaxes)
    if layers is None and are_logits(found, softmaxes):
        found = tuple(one.weights for one in softmaxes)
        layers = computed_by(found, softmaxes)
    weights = list(map(as_numpy, found))
    entering = layers[0].entering if layers else None
    inputs = as_numpy(hidden[0] if entering is None else entering)
    return SeenAttention(inputs, weights, hidden_by(found, softmaxes, layers), layers)


def read_softmaxes(softmaxes: list[SeenSoftmax]) -> SeenAttention:
    """Read attention that a model computes step by step, as it leaves each softmax."""
    layers = [
        SeenLayer(number, one.module, one.entering) for number, one in enumerate(softmaxes, start=1)
    ]
    found = tuple(one.weights for one in softmaxes)
    hidden = hidden_by(found, softmaxes, layers)
    return SeenAttention(as_numpy(layers[0].entering), list(map(as_numpy, found)), hidden, layers)


def returned_attention(returned: Any) -> tuple[Any, ...]:
    """Return the `attentions` of a model; nothing where they lack a layer."""
    found = getattr(returned, "attentions", None) or ()
    return () if any(matrices is None for matrices in found) else tuple(found)


def attention_layers(model: Any) -> list[Any]:
    """All torch.nn.MultiheadAttention modules of a model, at any depth."""
    kind = torch_module().nn.MultiheadAttention
    return [module for module in model.modules() if isinstance(module, kind)]


@contextmanager
def hooked(model: Any, modules: list[Any]) -> Iterator[SeenAttention]:
    """Watch these `torch.nn.MultiheadAttention` modules in a forward pass.

    The tokens of the first layer are the values of the first call. The modules are made to compute
    the weights of each head; their caller receives what it asked for. On leaving, the hooks are
    gone.
    """
    seen, names = SeenAttention(), {one: name for name, one in model.named_modules()}
    asked: list[tuple[bool, bool]] = []

    def before(module: Any, positional: tuple, named: dict) -> tuple[tuple, dict]:
        bound = inspect.signature(module.forward).bind(*positional, **named)
        bound.apply_defaults()
        settings = bound.arguments
        refuse_unusual(settings)
        values = settings["value"]
        values = values if module.batch_first else values.transpose(0, 1)
        seen.hidden.append(hidden_in_module(settings, *values.shape[:2]))
        seen.layers.append(SeenLayer(len(seen.layers) + 1, names[module], values))
        if seen.inputs is None:
            seen.inputs = as_numpy(values)
        asked.append((settings["need_weights"], settings["average_attn_weights"]))
        settings.update(need_weights=True, average_attn_weights=False)
        return bound.args, bound.kwargs

    def after(module: Any, positional: tuple, named: dict, returned: tuple) -> tuple:
        attended, weights = returned
        seen.weights.append(as_numpy(weights))
        need_weights, average = asked.pop()
        if not need_weights:
            return attended, None
        return attended, weights.mean(dim=1) if average else weights

    with hooks(modules, before, after):
        yield seen


def hidden_in_module(settings: dict[str, Any], examples: int, tokens: int) -> HiddenKeys:
    """Read the masks given to a `torch.nn.MultiheadAttention`, True or numbers where they hide."""
    hidden, shared = torch_module().zeros(examples, tokens, tokens, dtype=bool), None
    of_keys, of_pairs = settings["key_padding_mask"], settings["attn_mask"]
    doubted = weakens(of_keys) or weakens(of_pairs)
    if of_keys is not None:
        hidden = hidden | hiding(of_keys)[:, None]
    if of_pairs is not None and of_pairs.ndim == 2:
        shared = hiding(of_pairs).numpy()
    elif of_pairs is not None:
        hidden = hidden | hiding(of_pairs).unflatten(0, (examples, -1)).all(dim=1)
    return HiddenKeys.of(hidden.numpy(), shared, doubted)


def weakens(mask: Any) -> bool:
    """Whether a mask has numbers that may put keys out of sight, and are no common mask."""
    if mask is None or not mask.is_floating_point():
        return False
    return bool(((mask < WEAKENING) & (mask > HIDING)).any())


def hiding(mask: Any) -> Any:
    """True where a mask hides: where it is True, or a number that lowers logits out of sight."""
    return (mask if mask.dtype == torch_module().bool else mask <= HIDING).cpu()


def refuse_unusual(settings: dict[str, Any]) -> None:
    """Raise InputError for what is not attention within batches of sequences."""
    query, key = settings["query"], settings["key"]
    if query.ndim != 3:
        remedy = "must be a batch of sequences with three axes; give the batch axis"
        raise InputError("query of MultiheadAttention", tuple(query.shape), remedy)
    if key is not query and not (key.shape == query.shape and bool((key == query).all())):
        remedy = (
            "queries and keys must be those of the same tokens; the theory has self-attention "
            "only, so of an encoder with a decoder take the encoder"
        )
        raise InputError("key of MultiheadAttention", tuple(key.shape), remedy)


@contextmanager
def watched(model: Any) -> Iterator[tuple[SeenAttention, list[SeenSoftmax]]]:
    """Watch `torch.nn.functional.scaled_dot_product_attention`, and softmax, in a forward pass.

    The tokens of a layer are those given to the innermost module that makes the call. Each call
    returns what it would return anyhow. On leaving, the hooks are gone.
    """
    torch = torch_module()
    seen, softmaxes, running, products = SeenAttention(), [], [], Products()
    softmax = softmax_functions()
    matmul = {torch.matmul, torch.bmm, torch.Tensor.matmul, torch.Tensor.__matmul__}
    names = {one: name for name, one in model.named_modules()}

    class Watching(import_module("torch.overrides").TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.nn.functional.scaled_dot_product_attention:
                add_call(seen, running, products, *args, **(kwargs or {}))
            returned = function(*args, **(kwargs or {}))
            if function in softmax and is_square(returned):
                module, tokens = tokens_around(running, returned.shape[-1])
                logits = [*args, *(kwargs or {}).values()][0]
                hidden = logits <= HIDING
                softmaxes.append(
                    SeenSoftmax(returned, module, tokens, hidden if hidden.any() else None)
                )
            if softmaxes and function in matmul and shares(args[0], softmaxes[-1].weights):
                softmaxes[-1] = softmaxes[-1].with_values(args[1], products)
            products.note(function, args, returned)
            return returned

    def enter(module: Any, positional: tuple, named: dict) -> None:
        running.append((names[module], [*positional, *named.values()]))

    def leave(module: Any, positional: tuple, named: dict, returned: Any) -> None:
        running.pop()

    with hooks(model.modules(), enter, leave), Watching():
        yield seen, softmaxes


def add_call(
    seen: SeenAttention,
    running: list[tuple[str, list[Any]]],
    products: Products,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """Add softmax(q·k/√d + mask), computed step by step, and the padding that the mask hides."""
    torch = torch_module()
    if query.ndim not in (3, 4) or key.ndim != query.ndim or query.shape[-2] != key.shape[-2]:
        remedy = (
            "queries and keys must be [example, head, token, channel] of the same tokens; the "
            "theory has self-attention only"
        )
        shapes = (tuple(query.shape), tuple(key.shape))
        raise InputError("query and key of scaled_dot_product_attention", shapes, remedy)
    refuse_others(products.multiplied(query), products.multiplied(key))
    if enable_gqa:  # several heads share their keys
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.dtype in (torch.float16, torch.bfloat16):  # kernels add up in single precision
        query, key = query.float(), key.float()
    logits = scale * query @ key.transpose(-2, -1)
    own, shared = (
        torch.zeros_like(logits, dtype=torch.bool),
        torch.zeros_like(logits[0], dtype=bool),
    )
    if is_causal:
        shared = ~torch.ones_like(shared).tril()
    if attn_mask is not None:
        is_boolean = attn_mask.dtype == torch.bool
        hidden = ~attn_mask if is_boolean else attn_mask <= HIDING
        if not is_boolean:
            logits = logits + attn_mask
        if hidden.ndim < query.ndim or len(hidden) < len(query):
            shared = shared | hidden.reshape(hidden.shape[-query.ndim + 1 :])
        else:
            own = own | hidden
    hidden = own | shared
    weights = torch.softmax(logits.masked_fill(hidden, -math.inf), dim=-1)
    weights = weights.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)  # as the kernels do
    if query.ndim == 3:  # one head, which has no axis
        weights, own, shared = weights.unsqueeze(1), own.unsqueeze(1), shared.unsqueeze(0)
    own, shared = own.all(dim=1).cpu().numpy(), shared.all(dim=0).cpu().numpy()
    seen.hidden.append(HiddenKeys.of(own, shared, weakens(attn_mask)))
    seen.weights.append(as_numpy(weights))
    module, tokens = tokens_around(running, weights.shape[-1], weights.shape[0])
    tokens = products.entering(value, weights.shape[0], weights.shape[-1], tokens)
    if tokens is None:
        remedy = (
            f"the module that calls it must be given the tokens [{weights.shape[0]}, "
            f"{weights.shape[-1]}, channel], examples first, which are x_0 of its layer"
        )
        raise InputError("scaled_dot_product_attention", "(no tokens)", remedy)
    seen.layers.append(SeenLayer(len(seen.layers) + 1, module, tokens))
    if seen.inputs is None:
        seen.inputs = as_numpy(tokens)


def tokens_around(
    running: list[tuple[str, list[Any]]], tokens: int, examples: int | None = None
) -> tuple[str, Any]:
    """Find the innermost module given [example, token, channel]: its name, and that tensor or None.

    Only tensors of so many tokens count, and of so many examples where that is known.
    """

    def is_wanted(one: Any) -> bool:
        return (
            getattr(one, "ndim", 0) == 3
            and one.shape[1] == tokens
            and examples in (None, one.shape[0])
            and one.is_floating_point()
        )

    for name, given in reversed(running):
        for one in filter(is_wanted, given):
            return name, one
    return "", None
