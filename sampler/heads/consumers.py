"""Modules that take the heads of a layer, all side by side: found in a forward pass, or by name.

A forward pass of some examples is followed. Attention is a product whose first factor is what was
recorded of a layer, or a call of `scaled_dot_product_attention` with the same result; whatever
module is then given its heads side by side joins them. Where none is, as where the matrix that
joins them is a mere parameter, gates are put where the product is computed.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from sampler.errors import InputError, Verbatim
from sampler.transformer.forward_pass import (
    Forward,
    SeenAttention,
    attention_layers,
    call,
    eager,
    evaluating,
    hooks,
    implementation_of,
    run_batch,
    torch_module,
)

PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "einsum")
FUSED = "scaled_dot_product_attention"
# Products that a module may be given the result of: heads reach it before the next layer.
KEPT = 16
# Recorded weights went through single precision, and a fused call adds in another order.
RELATIVE, ABSOLUTE = 1e-3, 1e-5


@dataclass(frozen=True, eq=False)
class Joint:
    """A module that is given the heads of a layer side by side.

    call          which of its calls in a forward pass, from 0
    argument      which of its arguments, by place or name
    tokens_first  whether that is [token, example, …], not [example, token, …]
    """

    module: Any
    call: int
    argument: int | str = 0
    tokens_first: bool = False


@dataclass(frozen=True)
class Source:
    """A product that heads are sent by, where it is computed.

    place  among all products of a forward pass that may be attention, from 0
    axes   of examples, tokens and heads in what is sent; None: [example and head, token, channel]
    """

    place: int
    axes: tuple[int, int, int] | None

    def changed(self, sent: Any, heads: int, change: Callable[[Any], Any]) -> Any:
        """Change what is sent, read as [example, token, head, channel]."""
        if self.axes is None:
            by_head = sent.reshape(-1, heads, *sent.shape[1:]).transpose(1, 2)
            return change(by_head).transpose(1, 2).reshape(sent.shape)
        order = (*self.axes, 3)
        back = sorted(range(4), key=order.__getitem__)
        return change(sent.permute(order)).permute(back)


@dataclass(frozen=True, eq=False)
class GatedLayer:
    """The heads of an attention layer, as often as it runs, with the modules that join them.

    number  among all layers that the model has computed, from 1
    source  where no module joins them
    """

    number: int
    heads: int
    joints: tuple[Joint, ...]
    source: Source | None = None


@dataclass(eq=False)
class SeenProduct:
    """A product in a forward pass that may be that of attention with values.

    first     [… query, key], or None in a fused call, whose values are then known
    equation  that of an einsum
    joints    modules that were given what was sent
    """

    sent: Any
    first: Any = None
    values: Any = None
    equation: str = ""
    joints: list[Joint] = field(default_factory=list)

    def is_of(self, weights: Any) -> bool:
        """Whether attention [example, head, query, key] was multiplied here."""
        torch = torch_module()
        near = {"rtol": RELATIVE, "atol": ABSOLUTE, "equal_nan": True}
        if self.first is not None:
            if self.first.numel() != weights.numel() or self.first.shape[-2:] != weights.shape[-2:]:
                return False
            first = self.first.detach().to(weights).reshape(weights.shape)
            return torch.allclose(first, weights, **near)
        values, sent = (one.detach().to(weights) for one in (self.values, self.sent))
        if values.ndim == 3:  # one head, which has no axis
            values, sent = values.unsqueeze(1), sent.unsqueeze(1)
        if sent.shape[:3] != weights.shape[:3]:
            return False
        shared = weights.shape[1] // values.shape[1]  # by several heads
        expected = weights @ values.repeat_interleave(shared, 1)
        known = ~expected.isnan()  # a query that sees nothing has no attention
        scale = float(values.abs().max())
        near["atol"] = RELATIVE * scale
        return torch.allclose(expected[known], sent[known], **near)

    def axes(self, shape: Sequence[int]) -> tuple[int, int, int] | None:
        """Axes of examples, tokens and heads, for weights of a shape [example, head, query, key].

        Raises ValueError where they are not seen.
        """
        examples, heads, tokens, _ = shape
        if self.equation:
            factors, sent = self.equation.replace(" ", "").split("->")
            example, head, query, _ = factors.split(",")[-2]
            return sent.index(example), sent.index(query), sent.index(head)
        if self.sent.shape[:-1] == (examples * heads, tokens):
            return None
        if self.sent.shape[:-1] != (examples, heads, tokens):
            raise ValueError("sizes of another product")
        return 0, 2, 1


def gated_layers(
    model: Any, batch: Any, forward: Forward | None, projection: str | None = None
) -> tuple[GatedLayer, ...]:
    """The layers whose attention `record_attention` sees in this forward pass, in its order.

    batch       some examples; of two the axis of examples is known from that of tokens
    projection  end of the names of the modules that join heads; None: they are found

    Raises InputError where heads meet in no module as they are.
    """
    with evaluating(model), eager(model), torch_module().no_grad(), following(model) as trail:
        seen = run_batch(model, batch, forward)
    places = seen.layers or ()
    numbers = [one.number for one in places] or range(1, len(seen.weights) + 1)
    if trail.attention and implementation_of(model) is None:  # they show their heads by hooks
        if projection is not None:
            remedy = "heads of torch.nn.MultiheadAttention are joined within it; leave this out"
            raise InputError("projection", projection, remedy)
        shown = zip(numbers, trail.attention, strict=True)
        return tuple(GatedLayer(number, one.module.num_heads, (one,)) for number, one in shown)
    if projection is not None:
        return named_layers(model, seen, numbers, trail, projection)
    products = list(products_of(seen, trail.products))
    if all(product is not None and product.joints for product in products):
        return tuple(
            GatedLayer(number, weights.shape[1], tuple(product.joints))
            for number, weights, product in zip(numbers, seen.weights, products, strict=True)
        )
    return layers_at_sources(model, batch, forward, seen, numbers)


def layers_at_sources(
    model: Any, batch: Any, forward: Forward | None, seen: SeenAttention, numbers: Sequence[int]
) -> tuple[GatedLayer, ...]:
    """Layers with gates where their products are computed, in a forward pass of nothing else."""
    with evaluating(model), eager(model), torch_module().no_grad(), following(model) as trail:
        (forward or call)(model, batch)
    found = []
    products = products_of(seen, trail.products)
    for number, weights, product in zip(numbers, seen.weights, products, strict=True):
        heads = weights.shape[1]
        try:
            axes = product.axes(weights.shape)
        except (AttributeError, ValueError):
            remedy = (
                "it is not seen where this layer multiplies attention with values; name the "
                "modules that are given all of its heads side by side by the end of their names, "
                'as in projection="attention.dense"'
            )
            raise InputError(f"heads of layer {number}", Verbatim(f"({heads})"), remedy) from None
        place = trail.products.index(product)
        found.append(GatedLayer(number, heads, (), Source(place, axes)))
    return tuple(found)


def named_layers(
    model: Any, seen: SeenAttention, numbers: Sequence[int], trail: "Trail", projection: str
) -> tuple[GatedLayer, ...]:
    """Layers of the modules with this end of a name, as often as they ran."""
    names = {id(module): name for name, module in model.named_modules()}
    ran = [one for one in trail.calls if names.get(id(one.module), "").endswith(projection)]
    heads = [weights.shape[1] for weights in seen.weights]
    if len(ran) != len(heads):
        linear = sorted({name.split(".")[-1] for name in names.values() if name})
        remedy = (
            f"names modules that ran {len(ran)} times in a forward pass, and attention was "
            f"recorded of {len(heads)} layers; name those that are given the heads, once for each "
            f"layer (ends of names here: {', '.join(linear[:12])})"
        )
        raise InputError("projection", projection, remedy)
    layers = zip(numbers, heads, ran, strict=True)
    return tuple(GatedLayer(number, count, (one,)) for number, count, one in layers)


def products_of(
    seen: SeenAttention, products: Sequence[SeenProduct]
) -> Iterator[SeenProduct | None]:
    """The product of every recorded layer, each behind that of the layer before."""
    rest = iter(products)
    for recorded in seen.weights:
        weights = torch_module().from_numpy(recorded)
        yield next((one for one in rest if one.is_of(weights)), None)


@dataclass(eq=False)
class Trail:
    """A forward pass that was followed.

    products   in their order
    attention  calls of torch.nn.MultiheadAttention
    calls      of all modules, the one that was called first before those that it calls
    """

    products: list[SeenProduct] = field(default_factory=list)
    attention: list[Joint] = field(default_factory=list)
    calls: list[Joint] = field(default_factory=list)


@contextmanager
def following(model: Any) -> Iterator[Trail]:
    """Follow a forward pass: its products, and which modules are given their results."""
    trail, running = Trail(), []
    counts: Counter[int] = Counter()
    attention = set(map(id, attention_layers(model)))

    class Following(import_module("torch.overrides").TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            sent = function(*args, **(kwargs or {}))
            product = product_of(function, args, kwargs or {}, sent)
            if product is not None:
                trail.products.append(product)
            return sent

    def enter(module: Any, positional: tuple, named: dict) -> None:
        this = Joint(module, counts[id(module)])
        counts[id(module)] += 1
        trail.calls.append(this)
        if id(module) in attention:
            trail.attention.append(this)
        given = (*enumerate(positional), *named.items())
        for argument, one in given:
            if getattr(one, "ndim", 0) >= 2 and one.is_floating_point():
                add_joint(trail.products[-KEPT:], running, this, argument, one)
        running.append(module)

    def leave(module: Any, positional: tuple, named: dict, returned: Any) -> None:
        running.pop()

    with hooks(model.modules(), enter, leave, always=True), Following():
        yield trail
    for product in trail.products:
        product.joints = joints_with_weights(product.joints)


def product_of(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], sent: Any
) -> SeenProduct | None:
    """A product that may be that of attention with values; None for any other call."""
    name = getattr(function, "__name__", "")
    if name == FUSED:
        given = dict(zip(("query", "key", "value"), args, strict=False)) | dict(kwargs)
        return SeenProduct(sent, values=given["value"])
    if name not in PRODUCTS or getattr(sent, "ndim", 0) < 3:
        return None
    given = [*args, *kwargs.values()]
    given = [one for some in given for one in (some if isinstance(some, list | tuple) else [some])]
    factors = [one for one in given if getattr(one, "ndim", 0) >= 3]
    if len(factors) < 2:
        return None
    equation = str(next((one for one in given if isinstance(one, str)), ""))
    return SeenProduct(sent, first=factors[-2], equation=equation)


def add_joint(
    products: Sequence[SeenProduct], running: Sequence[Any], this: Joint, argument: Any, given: Any
) -> None:
    """Note with a product that a module is given its heads side by side.

    A module inside another one with weights that is given them, too, is a part of that.
    """
    for product in products:
        around = [one.module for one in product.joints if has_matrix(one.module)]
        if any(one is module for one in running for module in around):
            continue
        for tokens_first in (False, True):
            if is_side_by_side(given, product.sent, tokens_first):
                product.joints.append(Joint(this.module, this.call, argument, tokens_first))
                break


def is_side_by_side(given: Any, sent: Any, tokens_first: bool) -> bool:
    """Whether the last axis of what a module is given is all heads of what attention sent."""
    channels = sent.shape[-1]
    if sent.ndim not in (3, 4) or given.numel() != sent.numel() or given.shape[-1] % channels:
        return False
    heads, torch = given.shape[-1] // channels, torch_module()
    rows = given.detach().to(sent.dtype).reshape(-1, heads, channels)
    for by_token in by_tokens(sent.detach(), heads):
        ordered = by_token.transpose(0, 1) if tokens_first else by_token
        if torch.equal(ordered.reshape(-1, heads, channels).nan_to_num(), rows.nan_to_num()):
            return True
    return False


def by_tokens(sent: Any, heads: int) -> Iterator[Any]:
    """Readings [example, token, head, channel] of what attention sent to so many heads."""
    if sent.ndim == 3 and sent.shape[0] % heads == 0:  # [example and head, token, channel]
        sent = sent.reshape(-1, heads, *sent.shape[1:])
    if sent.ndim == 4 and sent.shape[1] == heads:
        yield sent.transpose(1, 2)
    if sent.ndim == 4 and sent.shape[2] == heads:
        yield sent


def has_matrix(module: Any) -> bool:
    """Whether a module multiplies with a matrix, as Linear and Conv1D do."""
    return getattr(getattr(module, "weight", None), "ndim", 0) == 2


def joints_with_weights(joints: Sequence[Joint]) -> list[Joint]:
    """Those that multiply heads with a matrix; without any, the first, as of a normalisation."""
    return [one for one in joints if has_matrix(one.module)] or list(joints[:1])


def norms_by_head(layer: GatedLayer) -> Any:
    """‖W_O^h‖ of every head of a layer; NaN where no matrix is known."""
    import numpy as np

    joining = layer.joints[0].module if layer.joints else None
    joining = getattr(joining, "out_proj", joining)
    if not has_matrix(joining):
        return np.full(layer.heads, math.nan)
    weight = joining.weight.detach().to("cpu", torch_module().float32).numpy()
    # GPT-2 keeps its matrices with the input first.
    weight = weight if hasattr(joining, "nf") else weight.T
    return np.linalg.norm(weight.reshape(layer.heads, -1), axis=1)
