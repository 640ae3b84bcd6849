"""Softmax over all keys, or over those that a mask leaves."""

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from sampler.attention.forms.form import Array, Form, Whole, logits, softmax


class Softmax(Form):
    """A_ij = exp(q_i·k_j/√G)/Σ_{j'} exp(q_i·k_j'/√G) over the keys j' that query i may see.

    mask    causal j ≤ i, window |i − j| ≤ w, one_sided_window 0 ≤ i − j ≤ w; none without it
    window  w of the windows, at least 1
    """

    kind: Literal["softmax"] = "softmax"
    mask: Literal["none", "causal", "window", "one_sided_window"] = "none"
    window: Whole | None = Field(default=None)

    @model_validator(mode="after")
    def has_its_window(self) -> "Softmax":
        windowed = self.mask.endswith("window")
        if windowed and self.window is None:
            raise ValueError(f'mask = "{self.mask}" needs a window, a whole number from 1')
        if not windowed and self.window is not None:
            raise ValueError('a window needs mask = "window" or "one_sided_window"')
        return self

    def visible(self, tokens: int) -> np.ndarray:
        """[query, key]: which keys each query sees; every query sees itself."""
        if self.mask == "none":
            return np.ones((tokens, tokens), dtype=bool)
        # Here, because recipes are read before JAX is there, which comes with the theory.
        from theory.masks import Mask, mask_matrix

        return mask_matrix(Mask(self.mask), tokens, self.window)

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = queries.__array_namespace__()
        values = logits(queries, keys)
        if self.mask != "none":
            values = xp.where(xp.asarray(self.visible(keys.shape[-2])), values, -np.inf)
        return softmax(values)
