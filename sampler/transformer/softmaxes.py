"""Softmax of keys seen in a forward pass: where it was computed, and what masks hid there."""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from sampler.attention.masks import HiddenKeys
from sampler.errors import InputError
from sampler.transformer.value_products import Products


@dataclass(frozen=True)
class SeenLayer:
    """A layer of attention where it was computed.

    number   among all layers that the model has computed, from 1
    module   its name in the model, as in "h.0.attn"
    entering [example, token, channel], the tensor that its values are made of
    """

    number: int
    module: str
    entering: Any


@dataclass(frozen=True)
class SeenSoftmax:
    """A softmax of keys: its result [… query, key], and where it was computed.

    hidden  true for logits that a mask has lowered; None where there are none
    """

    weights: Any
    module: str
    entering: Any
    hidden: Any = None

    def with_values(self, value: Any, products: Products) -> "SeenSoftmax":
        """With the tokens that the values were made of which these weights multiply."""
        tokens = self.weights.shape[-1]
        examples = value.shape[0] if value.ndim == 4 else 0
        return replace(self, entering=products.entering(value, examples, tokens, self.entering))


def softmax_functions() -> set[Any]:
    """The functions of torch by which a model may compute a softmax."""
    torch = import_module("torch")
    return {torch.softmax, torch.nn.functional.softmax, torch.Tensor.softmax}


def is_square(weights: Any) -> bool:
    """Whether these may be weights of every query and key, of some heads."""
    return weights.ndim in (3, 4) and weights.shape[-1] == weights.shape[-2]


def computed_by(found: tuple[Any, ...], softmaxes: list[SeenSoftmax]) -> list[SeenLayer] | None:
    """Find where the matrices that a model returned were computed; None where that was not seen.

    Layers that ran and were not returned are counted.
    """
    layers, number = [], 0
    for matrices in found:
        while number < len(softmaxes):
            one = softmaxes[number]
            number += 1
            if are_same(one.weights, matrices):
                layers.append(SeenLayer(number, one.module, one.entering))
                break
    return layers if len(layers) == len(found) else None


def are_same(weights: Any, matrices: Any) -> bool:
    """Whether weights of any shape are these matrices, NaN where those are."""
    if weights.numel() != matrices.numel():
        return False
    weights = weights.reshape(matrices.shape).to(matrices)
    return bool(((weights == matrices) | (weights.isnan() & matrices.isnan())).all())


def hidden_by(
    found: tuple[Any, ...], softmaxes: list[SeenSoftmax], layers: list[SeenLayer] | None
) -> list[HiddenKeys]:
    """Read the masks in those softmaxes whose weights came back, or might have."""
    if layers is not None:
        softmaxes = [softmaxes[layer.number - 1] for layer in layers]
    shapes = {matrices.shape for matrices in found}
    if len(shapes) > 1 or found[0].ndim != 4:
        return []
    (shape,) = shapes
    nothing = np.zeros((shape[0], *shape[2:]), bool)
    return [
        HiddenKeys.of(
            nothing if one.hidden is None else one.hidden.reshape(shape).all(dim=1).cpu().numpy()
        )
        for one in softmaxes
        if one.weights.numel() == found[0].numel()
    ]


def are_logits(found: tuple[Any, ...], softmaxes: list[SeenSoftmax]) -> bool:
    """Whether a model returned what enters its softmax in the place of what leaves it.

    Raises InputError where that is likely, and the softmax of each layer was not seen.
    """
    shapes = [one.weights.shape for one in softmaxes]
    if shapes == [one.shape for one in found] and all(
        one.weights.double().allclose(given.double().softmax(dim=-1), atol=1e-2, equal_nan=True)
        for one, given in zip(softmaxes, found, strict=True)
    ):
        return True
    sizes = {one.weights.numel() for one in softmaxes}
    beyond = [one[(one < -1e-3) | (one > 1 + 1e-3)] for one in found if one.numel() in sizes]
    beyond = [one for one in beyond if one.numel()]
    if not beyond:
        return False
    remedy = (
        "is no weight from 0 to 1: if the model returns what enters its softmax, return what "
        "leaves it, by forward=lambda model, batch: …"
    )
    raise InputError("attentions", float(beyond[0][0]), remedy)


def are_layers(softmaxes: list[SeenSoftmax]) -> bool:
    """Whether every softmax is of [example, head, query, key] of tokens that entered its module."""
    return bool(softmaxes) and all(
        one.entering is not None
        and one.weights.ndim == 4
        and tuple(one.entering.shape[:2]) == (one.weights.shape[0], one.weights.shape[-1])
        for one in softmaxes
    )
