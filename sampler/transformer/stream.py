"""The residual stream of a PyTorch model: who writes into it, and which normalisations it passes.

One example goes through the model with every product of matrices cut off from what it was computed
of. What still depends on a product's result, through additions and normalisations alone, is the
stream that it writes into. So neither names of modules nor the order of norms need to be known.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Bool

from sampler.errors import InputError, Verbatim
from sampler.transformer.forward_pass import (
    Forward,
    SeenAttention,
    eager,
    evaluating,
    hooks,
    run_batch,
    torch_module,
)
from sampler.transformer.softmaxes import is_square, softmax_functions
from sampler.transformer.stream_steps import refuse_functions

# Functions of torch whose results are cut off, by the module they are in. A product of two
# activations, as softmax times values, is one, too: no stream runs through it.
PRODUCTS = {
    "": ("addmm", "matmul", "mm", "bmm", "baddbmm", "einsum", "tensordot", "conv1d", "conv2d"),
    "Tensor": ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm"),
    "nn.functional": (
        "linear", "bilinear", "embedding", "conv1d", "conv2d", "scaled_dot_product_attention",
        "multi_head_attention_forward",
    ),
}  # fmt: skip
Call = tuple[str, int]  # name of a module, and how often it had been called before


@dataclass(frozen=True)
class Normalisation:
    """A normalisation of the channels of a token, (x − mean)/σ or x/σ, weights aside.

    centred  whether the mean is subtracted
    epsilon  what is added to the variance
    """

    centred: bool
    epsilon: float

    def inverse_spread(self, tokens: Any) -> Any:
        """1/σ of every token of [… token, channel]."""
        tokens = tokens.detach()
        if tokens.dtype.itemsize < 4:
            tokens = tokens.float()
        if self.centred:
            tokens = tokens - tokens.mean(dim=-1, keepdim=True)
        return (tokens.square().mean(dim=-1) + self.epsilon).rsqrt()


@dataclass(frozen=True)
class Stream:
    """Calls of modules along the residual stream of a model.

    norms      the normalisations that the stream passes, in their order, by their calls
    embedding  [norm], those that it passes behind the first layer's beginning
    heads      [layer, norm], those passed by what the heads of each layer write
    mlps       [layer, norm], by what its MLP writes; None where a layer writes anything but these
    start      the call of a normalisation whose input is the embedding; None where what enters the
               first layer is itself the embedding
    writers    call of the module that writes for the MLP of each layer; None as `mlps`
    """

    norms: dict[Call, Normalisation]
    embedding: Bool[np.ndarray, " norm"]
    heads: Bool[np.ndarray, "layer norm"]
    mlps: Bool[np.ndarray, "layer norm"] | None
    start: Call | None
    writers: tuple[Call, ...] | None


@dataclass
class Written:
    """The result of a product, and how many layers of attention were computed before it."""

    result: Any
    layers: int
    module: Call


@dataclass
class Normalised:
    """A call of what may be a normalisation, with what went in and came out.

    again    the module on other tokens; None where it was a function
    kind     None until it is recognised, and of a function
    tokens   what went in, as it was then
    epsilon  what the module adds to the variance, by its name
    """

    module: Call
    given: Any
    returned: Any
    again: Callable[[Any], Any] | None = None
    kind: Normalisation | None = None
    tokens: Any = None
    epsilon: float = 0.0


@dataclass
class Traced:
    """Steps of a forward pass with cut products, in their order."""

    written: list[Written] = field(default_factory=list)
    normalised: list[Normalised] = field(default_factory=list)
    # What products of matrices take from behind the last layer of attention, or the model returns.
    ends: list[Any] = field(default_factory=list)
    layers: int = 0


def find_stream(model: Any, example: Any, forward: Forward | None) -> tuple[Stream, SeenAttention]:
    """Find the stream from one example, a batch of its own.

    Raises InputError where it cannot be followed, as where `forward` switches gradients off.
    """
    torch = torch_module()
    with evaluating(model), eager(model), torch.enable_grad(), traced(model) as trace:
        seen = run_batch(model, followed(example), forward, trace.ends.append)
    with evaluating(model), torch.no_grad():  # modules run once more, and nobody watches
        normalised = recognised(trace.normalised)
    if seen.layers is None or any(one.entering is None for one in seen.layers):
        remedy = (
            "the forward pass that computed the attention cannot be followed; let the model, or "
            "`forward`, call it itself"
        )
        raise InputError("layers of the model", Verbatim("(not seen)"), remedy)
    # The end of the stream depends on more of what was written than anything else.
    results = [one.result for one in trace.written]
    ends = [tensor for one in trace.ends for tensor in tensors_in(one)]
    ends += [one.returned for one in normalised]  # behind which a model may apply functions
    depends = [depending(end, results) for end in ends]
    counts = [int(one.sum()) for one in depends]
    if not counts or max(counts) == 0:
        remedy = "must not switch gradients off: the residual stream is found by them"
        raise InputError("forward pass of the model", Verbatim("(no gradients)"), remedy)
    refusal = None
    for place in np.flatnonzero(np.array(counts) == max(counts)):
        reaches, end = depends[place], ends[place]
        try:
            norms, start, entering = steps_of(end, seen, trace, normalised)
        except InputError as problem:
            refusal = refusal or problem
        else:
            break
    else:
        raise refusal
    passes = np.array([depending(one.given, results) for one in norms], bool)
    passes = passes.reshape(len(norms), len(results)).T
    numbers = [one.number for one in seen.layers]
    writers = [writers_of(trace.written, reaches, number) for number in numbers]
    for layer, of_layer in zip(seen.layers, writers, strict=True):
        if not of_layer:
            remedy = (
                "does not reach the end of the model by additions and normalisations alone; "
                'paths = "single" needs a residual stream: export a window of layers'
            )
            raise InputError(f"what layer {layer.number} writes", layer.module, remedy)
    both = all(len(of_layer) == 2 for of_layer in writers)
    found = Stream(
        {one.module: one.kind for one in norms},
        np.array([depending(one.given, [entering])[0] for one in norms], bool),
        np.stack([passes[of_layer[0]] for of_layer in writers]),
        np.stack([passes[of_layer[1]] for of_layer in writers]) if both else None,
        start,
        tuple(trace.written[of_layer[1]].module for of_layer in writers) if both else None,
    )
    return found, seen


def steps_of(
    end: Any, seen: SeenAttention, trace: Traced, normalised: list[Normalised]
) -> tuple[list[Normalised], Call | None, Any]:
    """Normalisations on the way to this end, and where the first layer begins.

    Raises InputError where the way is no sum.
    """
    passed = depending(end, [one.returned for one in normalised])
    norms = [one for one, is_on in zip(normalised, passed, strict=True) if is_on]
    for one in norms:
        if one.kind is None:
            remedy = "normalises by a function; make it a module, as torch.nn.LayerNorm"
            raise InputError("normalisation of the residual stream", one.module[0], remedy)
    start, entering = beginning(seen.layers[0].entering, end, normalised)
    refuse_functions(
        end,
        [(entering, ""), *((one.result, one.module[0]) for one in trace.written)],
        [(one.given, one.returned) for one in norms],
    )
    return norms, start, entering


def followed(batch: Any) -> Any:
    """Inputs of which real numbers can be followed: they may be the embedding themselves."""
    if isinstance(batch, dict):
        return {name: followed(tensor) for name, tensor in batch.items()}
    if not batch.is_floating_point():
        return batch
    return batch.detach().requires_grad_(True).clone()


def writers_of(written: list[Written], reaches: np.ndarray, number: int) -> list[int]:
    """Places of what was written into the stream between one layer of attention and the next."""
    return [place for place, one in enumerate(written) if reaches[place] and one.layers == number]


def beginning(entering: Any, end: Any, normalised: list[Normalised]) -> tuple[Call | None, Any]:
    """The stream where the first layer begins: what enters it, or what was normalised before."""
    if depending(end, [entering])[0]:
        return None, entering
    for one in normalised:
        same = one.returned.shape == entering.shape and bool((one.returned == entering).all())
        is_branch = same and not depending(end, [one.returned])[0]
        if is_branch and depending(end, [one.given])[0]:
            return one.module, one.given
    remedy = (
        "is neither the residual stream nor a normalisation of it, or the model takes the tokens "
        "first; export a window of layers"
    )
    raise InputError("what enters the first layer", tuple(entering.shape), remedy)


def depending(end: Any, tensors: list[Any]) -> Bool[np.ndarray, " tensor"]:
    """Whether a tensor depends on each of the others."""
    torch = torch_module()
    if not tensors or not getattr(end, "requires_grad", False):
        return np.zeros(len(tensors), bool)
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(end.shape, generator=generator).to(end)
    wanted = [one for one in tensors if one.requires_grad]
    slopes = iter(
        torch.autograd.grad(end, wanted, along, retain_graph=True, allow_unused=True)
        if wanted
        else ()
    )
    found = [next(slopes) if one.requires_grad else None for one in tensors]
    return np.array([one is not None and bool(one.any()) for one in found], bool)


def tensors_in(returned: Any) -> Iterator[Any]:
    if hasattr(returned, "is_floating_point"):
        if returned.is_floating_point():
            yield returned
        return
    parts = returned.values() if hasattr(returned, "values") else returned
    if isinstance(returned, list | tuple) or hasattr(returned, "values"):
        for part in parts:
            yield from tensors_in(part)


@contextmanager
def traced(model: Any) -> Iterator[Traced]:
    """Cut every product of matrices off, and note products and normalisations, while it is open."""
    torch, trace = torch_module(), Traced()
    products = {
        getattr(place, name)
        for path, names in PRODUCTS.items()
        for place in [torch if not path else import_path(torch, path)]
        for name in names
    }
    softmax = softmax_functions()
    attends = torch.nn.functional.multi_head_attention_forward
    normalise = {torch.nn.functional.layer_norm, torch.nn.functional.rms_norm, torch.layer_norm}

    class Cutting(import_module("torch.overrides").TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            returned = function(*args, **(kwargs or {}))
            if function in normalise and not calls.is_leaf:
                trace.normalised.append(Normalised(calls.innermost, args[0], returned))
            if function is attends or (function in softmax and is_square(returned)):
                trace.layers += 1
                trace.ends.clear()
            if function not in products:
                return returned
            if trace.layers:
                trace.ends += [one for one in args if getattr(one, "requires_grad", False)]
            if isinstance(returned, tuple):
                return (cut(returned[0]), *returned[1:])
            return cut(returned)

    def cut(result: Any) -> Any:
        if not result.is_floating_point():
            return result
        result = result.detach().requires_grad_(True)
        trace.written.append(Written(result, trace.layers, calls.innermost))
        return result.clone()  # what is written may be added to in place

    def after(module: Any, positional: tuple, named: dict, returned: Any) -> None:
        given = first_given(positional, named)
        shape = getattr(given, "shape", None)
        is_same = shape is not None and getattr(returned, "shape", None) == shape
        if not is_same or len(shape) != 3 or not calls.is_leaf or not given.is_floating_point():
            return
        epsilon = next((getattr(module, name) for name in EPSILONS if hasattr(module, name)), 0.0)
        again = partial(run_again, module, positional, named)
        tokens = given.detach().clone()  # which may be added to in place
        trace.normalised.append(
            Normalised(
                calls.innermost, given, returned, again, tokens=tokens, epsilon=float(epsilon or 0)
            )
        )

    with counted(model, after) as calls, Cutting():
        yield trace


def import_path(place: Any, path: str) -> Any:
    for name in path.split("."):
        place = getattr(place, name)
    return place


@dataclass
class Calls:
    """Calls of modules that run now, innermost last, and how many there were."""

    running: list[Call] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)
    leaves: set[str] = field(default_factory=set)

    @property
    def innermost(self) -> Call:
        return self.running[-1] if self.running else ("", 0)  # `forward` itself

    @property
    def is_leaf(self) -> bool:
        """Whether the innermost module has no modules of its own."""
        return self.innermost[0] in self.leaves


@contextmanager
def counted(model: Any, after: Any) -> Iterator[Calls]:
    """Note which modules run, and call `after(module, positional, named, returned)` behind each.

    Calls are counted from the last `counts.clear()`.
    """
    calls = Calls(leaves={name for name, one in model.named_modules() if not [*one.children()]})
    names = {one: name for name, one in model.named_modules()}

    def enter(module: Any, positional: tuple, named: dict) -> None:
        name = names[module]
        calls.running.append((name, calls.counts[name]))
        calls.counts[name] += 1

    def leave(module: Any, positional: tuple, named: dict, returned: Any) -> None:
        after(module, positional, named, returned)
        calls.running.pop()

    with hooks(names, enter, leave):
        yield calls


# Names that modules have for what is added to the variance.
EPSILONS = ("eps", "variance_epsilon", "epsilon", "layer_norm_epsilon")


def first_given(positional: tuple, named: dict) -> Any:
    """Find the first argument of a module, by its place or by a name; None where there is none."""
    return next(iter([*positional, *named.values()]), None)


def run_again(module: Any, positional: tuple, named: dict, tokens: Any) -> Any:
    """Run a module with other tokens in the place of what it was given first."""
    if positional:
        return module.forward(tokens, *positional[1:], **named)
    return module.forward(**{**named, next(iter(named)): tokens})


def recognised(calls: list[Normalised]) -> list[Normalised]:
    """Those calls that are normalisations, with their kinds; functions are."""
    for one in calls:
        one.kind = one.again and kind_of(one)
    return [one for one in calls if one.kind is not None or one.again is None]


def kind_of(call: Normalised) -> Normalisation | None:
    """Recognise a normalisation of channels by what it does; None of any other module.

    Tokens of other sizes, each its own, give the same; and, if a mean is subtracted, shifted ones.
    """
    torch, given = import_module("torch"), call.tokens
    size = given.double().square().mean(dim=-1, keepdim=True).sqrt()
    # So large that what is added to the variance does not matter.
    large = 16.0 * given.double() / size.clamp_min(1e-30)
    factors = 2.0 ** (1 + torch.arange(given.shape[0] * given.shape[1]) % 3)
    factors = factors.to(large).reshape(*given.shape[:2], 1)
    plain, other, shifted = (
        call.again(one.to(given.dtype)).double() for one in (large, factors * large, large + 16.0)
    )
    scale = float(plain.abs().max())

    def is_same(one: Any, tolerance: float) -> bool:
        return float((one - plain).abs().max()) <= tolerance * scale

    if scale == 0.0 or not is_same(other, 1e-3):
        return None
    return Normalisation(is_same(shifted, 3e-2), call.epsilon)
