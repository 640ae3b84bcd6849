"""Attention that a model returns when it is asked for it, as Hugging Face models do."""

import inspect
from typing import Any

import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.transformer.export.pytorch import as_numpy

FLAGS = ("output_attentions", "output_hidden_states")


def takes_flags(model: Any) -> bool:
    """Whether a model can be asked for attention and hidden states."""
    parameters = inspect.signature(model.forward).parameters
    return all(flag in parameters for flag in FLAGS) or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def read_returned(returned: Any) -> list[np.ndarray]:
    """x_0 [example, token, channel], and then Ω [example, head, query, key] of every layer.

    x_0 is the first of the hidden states, before any LayerNorm of the first layer.
    """
    found = getattr(returned, "attentions", None)
    if not found or any(matrices is None for matrices in found):
        remedy = (
            "no attention came back; a Hugging Face model must be loaded with "
            'attn_implementation="eager", and of an encoder with decoder take the encoder'
        )
        raise InputError("attentions", Verbatim("(absent)" if not found else "(None)"), remedy)
    hidden = getattr(returned, "hidden_states", None)
    if not hidden:
        remedy = "return them too: the first of them are the tokens of the first layer"
        raise InputError("hidden_states", Verbatim("(absent)"), remedy)
    return [as_numpy(hidden[0]), *(as_numpy(matrices) for matrices in found)]
