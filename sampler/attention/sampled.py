"""Attended inputs of heads whose logit weights are sampled, from these and the inputs.

The only place where sampled attention is computed. Of the last layer only the columns are read
of the token that is read out: paths are contracted from there down to the inputs, and no product of
two attention matrices is ever formed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.attention.layers import LayerVariants, layer_matrices, take_heads
from sampler.attention.learned import (
    BLOCK_BYTES,
    LOGITS,
    READ,
    LearnedHeads,
    attention_numbers,
)
from sampler.attention.logits import LogitForm, queries_and_keys
from theory.attended import attend_example, pair_matrices


@register_dataclass
@dataclass(frozen=True)
class AttendingTokens:
    """Inputs of some examples, and the attention of the heads that are not learned.

    inputs  [example, token, channel]
    fixed   for each layer of attention [example, fixed head, key, query]; of the last one only
            the queries that are read
    """

    inputs: Float[Array | np.ndarray, "example token channel"]
    fixed: tuple[Float[Array | np.ndarray, "example _head key _query"], ...]

    def astype(self, dtype) -> "AttendingTokens":
        return jax.tree.map(partial(jnp.asarray, dtype=dtype), self)


@register_dataclass
@dataclass(frozen=True)
class SampledAttention:
    """Attention as a function of sampled logit weights; of `LearnedHeads`, for JAX.

    pairs    whether each layer of attention serves two layers of weights
    readout  "last", "first" or "mean"
    sites    name and shape of the logit weights of each layer that has learned heads
    """

    scale: Float[Array | np.ndarray, " number"]
    form: LogitForm = field(metadata={"static": True})
    learned: tuple[tuple[bool, ...], ...] = field(metadata={"static": True})
    variants: LayerVariants = field(metadata={"static": True})
    pairs: tuple[bool, ...] = field(metadata={"static": True})
    readout: str = field(metadata={"static": True})
    sites: tuple[tuple[str, tuple[int, ...]], ...] = field(metadata={"static": True})

    @classmethod
    def of(
        cls,
        heads: LearnedHeads,
        tokens: int,
        channels: int,
        pairs: tuple[bool, ...],
        readout: str,
        widths: Sequence[int] = (),
    ) -> "SampledAttention":
        """The heads of a network; `widths` as for `LearnedHeads.shapes`."""
        sites = tuple(heads.shapes(tokens, channels, widths).items())
        arrays = heads.learned, heads.variants, pairs, readout, sites
        return cls(jnp.asarray(np.atleast_1d(heads.scale)), heads.form, *arrays)

    def astype(self, dtype) -> "SampledAttention":
        return jax.tree.map(partial(jnp.asarray, dtype=dtype), self)

    def sample_sites(self) -> dict[str, Array]:
        """Sample all logit weights, standard normal a priori, as sites of a NumPyro model."""
        standard = dist.Normal(0.0, 1.0)
        return {n: numpyro.sample(n, standard.expand(s).to_event()) for n, s in self.sites}

    def tokens(
        self,
        inputs: Float[np.ndarray, "example token channel"],
        attention: tuple[Float[np.ndarray, "example _head key query"], ...],
    ) -> AttendingTokens:
        """Inputs with the matrices of the heads that are not learned, of those of all heads."""
        fixed = tuple(
            jnp.asarray(matrices[:, np.logical_not(learned)][..., self.read(layer)])
            for layer, (matrices, learned) in enumerate(zip(attention, self.learned, strict=True))
        )
        return AttendingTokens(jnp.asarray(inputs), fixed)

    def read(self, layer: int) -> slice:
        """The queries of a layer that are read: of the last one those of the readout."""
        return READ[self.readout] if layer + 1 == len(self.learned) else slice(None)

    def attended(
        self, position: Mapping[str, Array], tokens: AttendingTokens
    ) -> Float[Array, "example path channel"]:
        """Attended inputs ξ^π(x) of all examples: here, and nowhere else, they are batched."""
        examples = tokens.inputs.shape[0]
        each = tokens.inputs.dtype.itemsize * self.numbers(tokens)
        blocks = -(-examples * each // BLOCK_BYTES)
        if blocks <= 1:
            return self.attended_at_once(position, tokens)

        leaves, tree = jax.tree.flatten(tokens)

        @jax.checkpoint
        def of_example(example):
            alone = jax.tree.unflatten(tree, [leaf[None] for leaf in example])
            return self.attended_at_once(position, alone)[0]

        size = -(-examples // min(blocks, examples))
        return jax.lax.map(of_example, leaves, batch_size=size)

    def numbers(self, tokens: AttendingTokens) -> int:
        """Numbers of the attention of one example, those for its gradient counted."""
        _, length, channels = tokens.inputs.shape
        rank = self.sites[0][1][-2]  # [head, 2, G, channel] where logits have a low rank
        heads = sum(map(len, self.learned))
        return attention_numbers(self.form, heads, length, channels, rank)

    def attended_at_once(
        self, position: Mapping[str, Array], tokens: AttendingTokens
    ) -> Float[Array, "example path channel"]:
        """The same without blocks."""
        matrices = tuple(
            pair_matrices(omega) if is_pair else omega
            for omega, is_pair in zip(self.matrices(position, tokens), self.pairs, strict=True)
        )
        read = matrices[-1].shape[-1]
        mean = jnp.full(read, 1.0 / read, tokens.inputs.dtype)
        return jax.vmap(attend_example, in_axes=(0, 0, None))(tokens.inputs, matrices, mean)

    def matrices(
        self, position: Mapping[str, Array], tokens: AttendingTokens
    ) -> tuple[Float[Array, "example _head key _query"], ...]:
        """Ω of every layer; of the last one the columns that are read."""
        return tuple(self.columns(position, tokens, n) for n in range(len(self.learned)))

    def columns(
        self, position: Mapping[str, Array], tokens: AttendingTokens, layer: int
    ) -> Float[Array, "example head key _query"]:
        """Ω of all heads of a layer, counted from 0; of the last one the columns that are read."""
        learned, fixed = self.learned[layer], tokens.fixed[layer]
        if not any(learned):
            return fixed
        variants = tuple(compress(self.variants[layer], learned))
        read = self.read(layer)
        alone = all(variant.columns_alone for variant in variants)
        normal = position[f"{LOGITS}{layer + 1}"]
        queries = read if alone else slice(None)
        made = queries_and_keys(self.form, self.scale, normal, tokens.inputs, queries)
        omega = layer_matrices(variants, *made)
        if not alone:
            omega = omega[..., read]
        omega = jnp.broadcast_to(omega, (len(tokens.inputs), *omega.shape[1:]))
        if all(learned):
            return omega
        # Heads in their order: of the learned ones, and of the fixed ones behind them.
        sources = [*np.flatnonzero(learned), *np.flatnonzero(np.logical_not(learned))]
        return take_heads(jnp.concatenate([omega, fixed], axis=1), np.argsort(sources).tolist())
