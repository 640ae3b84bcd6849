"""Attended inputs of heads whose logit weights are sampled, from these and the inputs.

The only place where sampled attention is computed. What is read of the last layer are the columns
of the token that is read out: paths are contracted from there down to the inputs, and no product of
two attention matrices is ever formed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.attention.heads import layer_matrices
from sampler.attention.learned import (
    BLOCK_BYTES,
    LOGITS,
    LearnedHeads,
    LogitForm,
    attention_numbers,
    queries_and_keys,
)
from sampler.attention.variants import AttentionVariant
from theory.attended import pair_matrices


@partial(jax.tree_util.register_dataclass, data_fields=["inputs", "fixed"], meta_fields=[])
@dataclass(frozen=True)
class Tokens:
    """Inputs of some examples, and the attention of the heads that are not learned.

    inputs  [example, token, channel]
    fixed   for each layer of attention [example, fixed head, key, query]; of the last one only
            the queries that are read
    """

    inputs: Float[Array, "example token channel"]
    fixed: tuple[Float[Array, "example _head key _query"], ...]

    def astype(self, dtype) -> "Tokens":
        return jax.tree.map(partial(jnp.asarray, dtype=dtype), self)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["scale"],
    meta_fields=["form", "learned", "variants", "pairs", "readout", "sites"],
)
@dataclass(frozen=True)
class SampledAttention:
    """Attention as a function of sampled logit weights; of `LearnedHeads`, for JAX.

    pairs    whether each layer of attention serves two layers of weights
    readout  "last", "first" or "mean"
    sites    name and shape of the logit weights of each layer that has learned heads
    """

    scale: Float[Array, " number"]
    form: LogitForm
    learned: tuple[tuple[bool, ...], ...]
    variants: tuple[tuple[AttentionVariant, ...], ...]
    pairs: tuple[bool, ...]
    readout: str
    sites: tuple[tuple[str, tuple[int, ...]], ...]

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

    @property
    def priors(self) -> dict[str, dist.Distribution]:
        """Prior of every site: standard normal."""
        dtype = self.scale.dtype
        return {
            name: dist.Normal(jnp.zeros(shape, dtype), jnp.ones(shape, dtype)).to_event(len(shape))
            for name, shape in self.sites
        }

    def tokens(
        self,
        inputs: Float[np.ndarray, "example token channel"],
        attention: tuple[Float[np.ndarray, "example _head key query"], ...],
    ) -> Tokens:
        """Inputs with the matrices of the heads that are not learned, of those of all heads."""
        fixed = []
        for layer, (matrices, learned) in enumerate(zip(attention, self.learned, strict=True)):
            kept = [head for head, is_learned in enumerate(learned) if not is_learned]
            read = self.read if layer + 1 == len(self.learned) else slice(None)
            fixed.append(jnp.asarray(matrices[:, kept][..., read]))
        return Tokens(jnp.asarray(inputs), tuple(fixed))

    @property
    def read(self) -> slice:
        """The queries of the last layer that are read."""
        ends = {"last": slice(-1, None), "first": slice(0, 1), "mean": slice(None)}
        return ends[self.readout]

    def attended(
        self, position: Mapping[str, Array], tokens: Tokens
    ) -> Float[Array, "example path channel"]:
        """Attended inputs ξ^π(x) of all examples: here, and nowhere else, they are batched."""
        examples = tokens.inputs.shape[0]
        each = tokens.inputs.dtype.itemsize * self.numbers(tokens)
        blocks = -(-examples * each // BLOCK_BYTES)
        if blocks <= 1:
            return self.attended_at_once(position, tokens)
        size = -(-examples // min(blocks, examples))
        count = -(-examples // size)

        leaves, tree = jax.tree.flatten(tokens)

        def in_blocks(leaf):
            filled = jnp.pad(leaf, ((0, count * size - examples), *((0, 0),) * (leaf.ndim - 1)))
            return filled.reshape(count, size, *leaf.shape[1:])

        @jax.checkpoint
        def of_block(leaves):
            return self.attended_at_once(position, jax.tree.unflatten(tree, leaves))

        found = jax.lax.map(of_block, list(map(in_blocks, leaves)))
        return found.reshape(count * size, *found.shape[2:])[:examples]

    def numbers(self, tokens: Tokens) -> int:
        """Numbers of the attention of one example, those for its gradient counted."""
        _, length, channels = tokens.inputs.shape
        rank = self.sites[0][1][-2]  # [head, 2, G, channel] where logits have a low rank
        heads = sum(map(len, self.learned))
        return attention_numbers(self.form, heads, length, channels, rank)

    def attended_at_once(
        self, position: Mapping[str, Array], tokens: Tokens
    ) -> Float[Array, "example path channel"]:
        """Contract from the token that is read down to the inputs."""
        weights, top = None, len(self.learned) - 1
        for layer in range(top, -1, -1):
            omega = self.columns(position, tokens, layer)
            if self.pairs[layer]:
                omega = pair_matrices(omega)
            if weights is None:
                weights = jnp.mean(omega, axis=-1)
                continue
            carried = jnp.einsum("ehkq,epq->ehpk", omega, weights)
            weights = carried.reshape(len(carried), -1, carried.shape[-1])
        return weights @ tokens.inputs

    def matrices(
        self, position: Mapping[str, Array], tokens: Tokens
    ) -> tuple[Float[Array, "example _head key _query"], ...]:
        """Ω of every layer; of the last one the columns that are read."""
        return tuple(self.columns(position, tokens, n) for n in range(len(self.learned)))

    def columns(
        self, position: Mapping[str, Array], tokens: Tokens, layer: int
    ) -> Float[Array, "example head key _query"]:
        """Ω of all heads of a layer, counted from 0; of the last one the columns that are read."""
        learned, fixed = self.learned[layer], tokens.fixed[layer]
        if not any(learned):
            return fixed
        variants = tuple(v for v, one in zip(self.variants[layer], learned, strict=True) if one)
        read = self.read if layer + 1 == len(self.learned) else slice(None)
        alone = all(variant.columns_alone for variant in variants)
        normal = position[f"{LOGITS}{layer + 1}"]
        queries = read if alone else slice(None)
        made = queries_and_keys(self.form, self.scale, normal, tokens.inputs, queries)
        found = layer_matrices(variants, *made)
        if not alone:
            found = found[..., read]
        found = jnp.broadcast_to(found, (len(tokens.inputs), *found.shape[1:]))
        if all(learned):
            return found
        places, parts = {True: 0, False: 0}, []
        for one in learned:
            of, place = (found if one else fixed), places[one]
            parts.append(of[:, place : place + 1])
            places[one] += 1
        return jnp.concatenate(parts, axis=1)
