"""Attention variants: the matrix that a head makes of its queries and keys.

A variant is a frozen group of settings with a method `matrices`. It sees the queries and keys of
the heads of one layer that share it, [example, head, token, key channel], and returns
Ω [example, head, key, query], as everything in this program has it: the weight of key s for query
t is Ω_st. Its columns need not sum to 1, nor need its entries be positive. Variants are written
with the operations that NumPy and JAX share: the same code serves recipes, trainings and tests.

To add one, write such a class and register it: VARIANTS.register("my_kind", MyVariant).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from sampler.registry import Registry

# An array of NumPy or of JAX: variants use what both have.
Array = Any
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=1)]


class AttentionVariant(BaseModel):
    """Settings of a variant, each a field with its limits; `kind` is its name in recipes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True,
        use_attribute_docstrings=True,
    )  # fmt: skip
    if TYPE_CHECKING:  # every variant has its own, of one value
        kind: str
    # Why gradient descent cannot train queries and keys through this variant; None where it can.
    untrainable: ClassVar[str | None] = None

    # Whether the matrix of a head depends on the other heads of its layer with this variant.
    joins_heads: ClassVar[bool] = False
    # Whether some of the queries may be given alone, for the columns of these.
    columns_alone: ClassVar[bool] = False

    @model_serializer(mode="wrap")
    def with_kind(self, handler: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """Keep `kind`, which tells variants apart, where defaults are left out."""
        return {"kind": self.kind, **handler(self)}

    def refuse_tokens(self, tokens: int) -> None:
        """Raise ValueError if sequences of this length cannot be attended to."""

    def matrices(self, queries: Array, keys: Array) -> Array:
        """Ω [example, head, key, query] of queries and keys [example, head, token, key channel]."""
        raise NotImplementedError


# --- the parts of which variants are made


def logits(
    queries: Float[Array, "example head query size"], keys: Float[Array, "example head key size"]
) -> Float[Array, "example head key query"]:
    """k_s·q_t/√G."""
    return transposed(queries @ transposed(keys) / queries.shape[-1] ** 0.5)


def softmax(values: Float[Array, "*axes key query"]) -> Float[Array, "*axes key query"]:
    """exp(l_st)/Σ_s exp(l_st), without the largest of each column, so that nothing overflows."""
    # Reductions are along the last axis, where those of compiled functions are fast.
    rows = transposed(values)
    if isinstance(values, np.ndarray):
        return normalised_columns(transposed(np.exp(rows - rows.max(axis=-1, keepdims=True))))
    from jax.nn import softmax  # only here: recipes are read without JAX

    # Differentiated by its value: by way of the exponentials a training takes 1.5 times as long.
    return transposed(softmax(rows, axis=-1))


def normalised_columns(weights: Float[Array, "*axes key query"]) -> Float[Array, "*axes key query"]:
    """w_st/Σ_s w_st."""
    rows = transposed(weights)
    return transposed(rows / weights.__array_namespace__().sum(rows, axis=-1, keepdims=True))


def transposed(matrices: Array) -> Array:
    """The last two axes exchanged."""
    return matrices.__array_namespace__().matrix_transpose(matrices)


class Softmax(AttentionVariant):
    """Ω_st = exp(k_s·q_t/√G)/Σ_s' exp(k_s'·q_t/√G) over the keys s' that query t may see."""

    kind: Literal["softmax"] = "softmax"
    mask: Literal["none", "causal", "window", "one_sided_window"] = "none"
    """Keys that are seen: causal s ≤ t, window |t − s| ≤ w, one_sided_window 0 ≤ t − s ≤ w."""
    window: Whole | None = None
    """w of the windows."""

    @model_validator(mode="after")
    def has_its_window(self) -> "Softmax":
        windowed = self.mask.endswith("window")
        if windowed and self.window is None:
            raise ValueError(f'mask = "{self.mask}" needs a window, a whole number from 1')
        if not windowed and self.window is not None:
            raise ValueError('a window needs mask = "window" or "one_sided_window"')
        return self

    @property
    def columns_alone(self) -> bool:
        """Only without a mask, which knows queries by their number."""
        return self.mask == "none"

    def visible(self, tokens: int) -> np.ndarray:
        """[key, query]: which keys each query sees; every query sees itself."""
        behind = np.arange(tokens)[None, :] - np.arange(tokens)[:, None]
        near = np.ones_like(behind, bool) if self.window is None else np.abs(behind) <= self.window
        return near if self.mask in ("none", "window") else near & (behind >= 0)

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = queries.__array_namespace__()
        values = logits(queries, keys)
        if self.mask != "none":
            seen = xp.asarray(self.visible(keys.shape[-2]).T)
            values = transposed(xp.where(seen, transposed(values), -np.inf))
        return softmax(values)


class BatchNormalised(AttentionVariant):
    """Ω_st = softmax_s( ((k_s − βμ)/σ)·((q_t − βμ)/σ)/√G ), μ and σ over the keys of a sequence.

    Source: arXiv 2406.13781; β and the scaling as reconstructed from its algebra.
    """

    columns_alone: ClassVar[bool] = True

    kind: Literal["batch_normalised"] = "batch_normalised"
    beta: Finite = 1.0
    """β, how much of the mean is taken off: 0 none, 1 all."""
    scaling: bool = True
    """Whether channels are divided by σ = √(variance + ε)."""
    epsilon: Positive = 1e-5
    """ε."""

    def matrices(self, queries: Array, keys: Array) -> Array:
        return softmax(logits(*standardised(queries, keys, self.beta, self.scaling, self.epsilon)))


def standardised(queries: Array, keys: Array, beta: float, scaling: bool, epsilon: float):
    """(q − βμ)/σ and (k − βμ)/σ with mean μ and deviation s over the keys, channel by channel."""
    xp = queries.__array_namespace__()
    mean = xp.mean(keys, axis=-2, keepdims=True)
    scale = 1.0
    if scaling:
        scale = xp.sqrt(xp.mean((keys - mean) ** 2, axis=-2, keepdims=True) + epsilon)
    return (queries - beta * mean) / scale, (keys - beta * mean) / scale


class HeadNormalised(AttentionVariant):
    """Ω^h_st = l^h_st/√(Σ_h' (l^h'_st)²/H + ε), the logits l = k·q/√G over their size over heads.

    The heads are those of the layer that share this variant; nothing sums to 1.
    """

    columns_alone: ClassVar[bool] = True
    joins_heads: ClassVar[bool] = True

    kind: Literal["head_normalised"] = "head_normalised"
    epsilon: Positive = 1e-5
    """ε."""

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = queries.__array_namespace__()
        rows = transposed(logits(queries, keys))
        size = xp.sqrt(xp.mean(rows**2, axis=1, keepdims=True) + self.epsilon)
        return transposed(rows / size)


class Linear(AttentionVariant):
    """Ω_st = φ(k_s)·φ(q_t)/Σ_s' φ(k_s')·φ(q_t) with φ(x) = elu(x) + 1, channel by channel."""

    columns_alone: ClassVar[bool] = True

    kind: Literal["linear"] = "linear"

    def matrices(self, queries: Array, keys: Array) -> Array:
        weights = positive_features(queries) @ transposed(positive_features(keys))
        return normalised_columns(transposed(weights))


def positive_features(values: Array) -> Array:
    """φ(x) = 1 + x for x > 0 and exp(x) below."""
    xp = values.__array_namespace__()
    zero = xp.zeros_like(values)
    # Only what is taken may be large: a discarded exp(x) would make the gradient undefined.
    return xp.maximum(values, zero) + xp.exp(xp.minimum(values, zero))


class FirstOrder(AttentionVariant):
    """Ω_st = (1 + l_st)/T, the first order of softmax in small logits l = k·q/√G; T tokens."""

    columns_alone: ClassVar[bool] = True

    kind: Literal["first_order"] = "first_order"
    offset: bool = True
    """Whether logits change equal weights; without it Ω_st = l_st/√T, of either sign."""

    def matrices(self, queries: Array, keys: Array) -> Array:
        values, tokens = logits(queries, keys), keys.shape[-2]
        return (1.0 + values) / tokens if self.offset else values / tokens**0.5


class Robust(AttentionVariant):
    """Ω = softmax(K̃ K̃ᵀ/√G) over keys, with K̃ = K clipped to ±limit; queries are not used.

    Source: arXiv 2406.13762, whose first iteration this is: it depends on keys alone.
    """

    kind: Literal["robust"] = "robust"
    limit: Positive
    """λμ, in units of the keys."""

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = keys.__array_namespace__()
        clipped = xp.clip(keys, -self.limit, self.limit)
        return softmax(logits(clipped, clipped))


Pooling = Literal["average", "stride", "block"]


def pool(values: Array, pooling: Pooling, scale: int, grid: tuple[int, int] | None) -> Array:
    """Pooled tokens of values [*axes, token, channel]: averages of neighbours, or every n-th token.

    `grid` gives rows and columns of the patches of one image, whose square blocks are averaged;
    several images may follow each other. A last group that is not full is left out.
    """
    xp = values.__array_namespace__()
    *axes, tokens, channels = values.shape
    if pooling == "block":
        assert grid is not None
        rows, columns = grid
        blocks = rows // scale, scale, columns // scale, scale
        split = xp.reshape(values, (*axes, tokens // (rows * columns), *blocks, channels))
        return xp.reshape(xp.mean(split, axis=(-4, -2)), (*axes, -1, channels))
    full = values[..., : tokens // scale * scale, :]
    if pooling == "stride":
        return full[..., ::scale, :]
    return xp.mean(xp.reshape(full, (*axes, tokens // scale, scale, channels)), axis=-2)


class ScaledHeads(AttentionVariant):
    """Ω = Pᵀ softmax(P K Qᵀ/√G) with a pooling P: columns sum to 1, the rank is at most T/scale.

    Source: arXiv 2406.13781; pooling as reconstructed from its algebra.
    """

    columns_alone: ClassVar[bool] = True

    kind: Literal["scaled_heads"] = "scaled_heads"
    scale: Whole
    """How many tokens become one, or the side of a block of patches."""
    pooling: Pooling = "average"
    """Average of neighbours, stride (every scale-th token), or block of the patch `grid`."""
    grid: tuple[Whole, Whole] | None = None
    """Rows and columns of the patches of an image."""
    beta: Finite | None = None
    """β, with which queries and pooled keys are standardised as in Attention-BN (BN+SH); by default
    they are not."""
    scaling: bool = True
    """Whether their channels are divided by σ = √(variance + ε)."""
    epsilon: Positive = 1e-5
    """ε."""

    @model_validator(mode="after")
    def has_its_grid(self) -> "ScaledHeads":
        if (self.pooling == "block") != (self.grid is not None):
            raise ValueError('pooling = "block" and grid = [rows, columns] need each other')
        return self

    def refuse_tokens(self, tokens: int) -> None:
        if self.scale > tokens:
            raise ValueError(f"scale = {self.scale}: use 1 to {tokens}, the number of tokens")
        if self.grid is None:
            return
        rows, columns = self.grid
        if tokens % (rows * columns):
            grid = list(self.grid)
            raise ValueError(f"grid = {grid}: {tokens} tokens are no whole number of such grids")
        if rows % self.scale or columns % self.scale:
            text = f"must divide the rows and columns of grid {list(self.grid)}"
            raise ValueError(f"scale = {self.scale}: {text}")

    def matrices(self, queries: Array, keys: Array) -> Array:
        pooling = self.pooling, self.scale, self.grid
        pooled = pool(keys, *pooling)
        if self.beta is not None:
            queries, pooled = standardised(queries, pooled, self.beta, self.scaling, self.epsilon)
        groups = keys.__array_namespace__().eye(keys.shape[-2], dtype=keys.dtype)
        return transposed(transposed(softmax(logits(queries, pooled))) @ pool(groups, *pooling))


# Kinds of `attention.form` in recipes.
VARIANTS: Registry[type[AttentionVariant]] = Registry(
    "attention variant",
    {
        "softmax": Softmax,
        "linear": Linear,
        "first_order": FirstOrder,
        "batch_normalised": BatchNormalised,
        "scaled_heads": ScaledHeads,
        "robust": Robust,
        "head_normalised": HeadNormalised,
    },
)
