"""Attention-SH: each head sees keys and values pooled at its own scale.

Source: arXiv 2406.13781; pooling as reconstructed from its algebra.
"""

from typing import Literal

from pydantic import model_validator

from sampler.attention.forms.batch_normalised import standardised
from sampler.attention.forms.form import Array, Finite, Form, Positive, Whole, logits, softmax
from sampler.attention.forms.pooling import Pooling, pool, pooling_matrix


class ScaledHeads(Form):
    """A = softmax(Q (P K)ᵀ/√G) P with a pooling P: stochastic, of rank at most T/scale.

    scale    how many tokens become one, or the side of a block of patches
    pooling  average of neighbours, stride (every scale-th token), or block of the patch `grid`
    beta     where it is given, queries and pooled keys are standardised as in Attention-BN (BN+SH)
    """

    kind: Literal["scaled_heads"] = "scaled_heads"
    scale: Whole
    pooling: Pooling = "average"
    grid: tuple[Whole, Whole] | None = None
    beta: Finite | None = None
    scaling: bool = True
    epsilon: Positive = 1e-5

    @model_validator(mode="after")
    def has_its_grid(self) -> "ScaledHeads":
        if (self.pooling == "block") != (self.grid is not None):
            raise ValueError('pooling = "block" and grid = [rows, columns] need each other')
        return self

    def refuse_tokens(self, tokens: int) -> None:
        pooling_matrix(self.pooling, tokens, self.scale, self.grid)

    def matrices(self, queries: Array, keys: Array) -> Array:
        weights, pooling = self.factors(queries, keys)
        return weights if pooling is None else weights @ pooling

    def factors(self, queries: Array, keys: Array) -> tuple[Array, Array | None]:
        xp = queries.__array_namespace__()
        pooling, pooled = None, self.pooled(keys)
        if self.scale > 1:
            matrix = pooling_matrix(self.pooling, keys.shape[-2], self.scale, self.grid)
            pooling = xp.asarray(matrix, dtype=keys.dtype)
        if self.beta is not None:
            queries, pooled = standardised(queries, pooled, self.beta, self.scaling, self.epsilon)
        return softmax(logits(queries, pooled)), pooling

    def pooled(self, values: Array) -> Array:
        if self.scale == 1:
            return values
        return pool(values, self.pooling, self.scale, self.grid)
