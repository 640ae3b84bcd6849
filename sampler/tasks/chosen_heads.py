"""The heads that a recipe chooses: their names, their forms, and their weights."""

from collections.abc import Callable
from itertools import count

import numpy as np

from sampler.attention.forms.choice import forms_by_head
from sampler.attention.forms.form import Form
from sampler.attention.forms.softmax import Softmax
from sampler.errors import InputError
from sampler.random_streams import stream
from sampler.recipes.sections import AttentionSection


def chosen_forms(attention: AttentionSection) -> tuple[tuple[Form, ...], ...]:
    """The form of every head, layer by layer; softmax where the recipe names none."""
    return forms_by_head(attention.form or Softmax(), tuple(map(len, attention.heads)))


def draw_layers(
    attention: AttentionSection,
    weights_of: Callable[[str, np.random.Generator], tuple[np.ndarray, np.ndarray]],
    seed: int,
    stream_key: int,
) -> tuple[tuple[np.ndarray, ...], ...]:
    """W_Q and W_K, [head, key channel, channel] each, of every layer.

    `weights_of` makes those of one head from its kind and a random generator of its own.
    """
    layers = []
    for layer, kinds in enumerate(attention.heads):
        of_heads = [
            weights_of(kind, stream(seed, stream_key, layer, head))
            for head, kind in enumerate(kinds)
        ]
        layers.append(tuple(np.stack(matrices) for matrices in zip(*of_heads, strict=True)))
    return tuple(layers)


def refuse_unfit_forms(attention: AttentionSection, tokens: int) -> None:
    """Raise InputError if a form cannot take sequences of this length."""
    for of_layer in chosen_forms(attention):
        for form in of_layer:
            try:
                form.refuse_tokens(tokens)
            except ValueError as problem:
                raise InputError("attention.form", form.model_dump(), str(problem)) from None


def name_heads(attention: AttentionSection) -> tuple[tuple[str, ...], ...]:
    """Names of the heads of every layer: their kinds, numbered where a kind occurs again."""
    return tuple(numbered(kinds) for kinds in attention.heads)


def numbered(kinds: tuple[str, ...]) -> tuple[str, ...]:
    numbers = {kind: count(1) for kind in kinds}
    return tuple(
        kind if kinds.count(kind) == 1 else f"{kind} {next(numbers[kind])}" for kind in kinds
    )
