"""Heads whose logit weights are sampled, and the prior of these; free of JAX."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import LayerVariants
from sampler.attention.logits import LogitForm, contracted, head_matrices
from sampler.attention.variants import AttentionVariant
from sampler.streams import Stream, stream

# Sites of logit weights, one for each layer of attention with learned heads.
LOGITS = "logits_"
# The queries of the last layer that a readout reads.
READ = {"last": slice(-1, None), "first": slice(0, 1), "mean": slice(None)}
# Draws of logits that decide whether attention depends on them.
COMPARED_DRAWS = 6
# Arrays of the attention of a block of examples, for each chain. Where not all examples are one
# block, gradients compute them again instead of keeping them.
BLOCK_BYTES = 2**26
# Arrays as large as the logits that a variant and its gradient make, about.
COPIES = 6


def attention_numbers(form: LogitForm, heads: int, tokens: int, channels: int, rank: int) -> int:
    """Numbers of the attention of one example, those for its gradient counted.

    heads  of all layers
    rank   G of logits of low rank
    """
    widest = {"full": channels, "low_rank": rank, "positions": 1}[form]
    return tokens * channels + heads * tokens * (COPIES * tokens + 2 * widest)


@dataclass(frozen=True, eq=False)
class LearnedHeads:
    """Heads of every layer of attention, which of them are learned, and how their logits are made.

    Logits of key s and query t, with standard normal Z of each head:

        full       x_sᵀ W x_t,  W_ij = c_i c_j Z_ij                       Z [channel, channel]
        low_rank   (W_K x_s)·(W_Q x_t)/√G,  W_Q = c_0 Z_0, W_K = c_1 Z_1   Z [2, G, channel]
        positions  c_0 Z_s of the key alone                               Z [token]

    scale     c, [channel] or of one or two numbers
    learned   which heads of each layer are learned
    variants  the attention variant of each head
    rank      G; 0 for another form
    stream    whether x is the hidden vector z/√N below each layer, not the input
    """

    form: LogitForm
    scale: Float[np.ndarray, " number"]
    learned: tuple[tuple[bool, ...], ...]
    variants: LayerVariants
    rank: int = 0
    stream: bool = False

    def keeping(self, kept: tuple[tuple[int, ...], ...]) -> "LearnedHeads | None":
        """Those of a sub-network with these heads; None where it has no learned ones."""
        learned, variants = (
            tuple(
                tuple(of_layer[head] for head in heads)
                for of_layer, heads in zip(by_layer, kept, strict=True)
            )
            for by_layer in (self.learned, self.variants)
        )
        smaller = replace(self, learned=learned, variants=variants)
        return smaller if any(map(any, learned)) else None

    def shapes(
        self, tokens: int, channels: int, widths: Sequence[int] = ()
    ) -> dict[str, tuple[int, ...]]:
        """Sites of the logit weights, [learned head, …] for each layer that has such.

        widths  of the hidden vectors below each layer, which those that read the stream need
        """
        sites = {}
        units = widths if self.stream else (channels,) * len(self.learned)
        for number, (of_layer, size) in enumerate(zip(self.learned, units, strict=True), start=1):
            shapes = {
                "full": (size, size),
                "low_rank": (2, self.rank, size),
                "positions": (tokens,),
            }
            if any(of_layer):
                sites[f"{LOGITS}{number}"] = (sum(of_layer), *shapes[self.form])
        return sites

    def drawn_matrices(
        self,
        inputs: Float[np.ndarray, "example token channel"],
        layer: int,
        generators: Sequence[np.random.Generator],
    ) -> Float[np.ndarray, "example learned_head key query"]:
        """Draw the matrices of the learned heads of a layer, counted from 0, from their prior.

        There is a generator for each head.
        """
        (_, *shape), *_ = self.shapes(*inputs.shape[1:]).values()
        normal = np.stack([generator.standard_normal(shape) for generator in generators])
        variants = tuple(compress(self.variants[layer], self.learned[layer]))
        return head_matrices(self.form, normal, inputs, variants, self.scale, contracted)

    def without_effect(
        self, inputs: Float[np.ndarray, "example token channel"], readout: str
    ) -> list[tuple[int, int]]:
        """Layers and heads, from 0, of learned heads whose output does not depend on their logits.

        So few draws of their prior differ in all other heads, however sharp these are.
        """
        alone, vectors = self, inputs
        if self.stream:  # any vectors do for those below a layer
            alone = replace(self, stream=False)
            vectors = stream(0, Stream.ANY_VECTORS).standard_normal(inputs.shape)
        found = []
        for layer, of_layer in enumerate(self.learned):
            heads = list(compress(range(len(of_layer)), of_layer))
            read = READ[readout] if layer + 1 == len(self.learned) else slice(None)
            drawn = [
                alone.drawn_matrices(
                    vectors, layer, [stream(0, Stream.ANY_LOGITS, draw, head) for head in heads]
                )[..., read]
                for draw in range(COMPARED_DRAWS if heads else 0)
            ]
            for place, head in enumerate(heads):
                if all(np.array_equal(one[:, place], drawn[0][:, place]) for one in drawn):
                    found.append((layer, head))
        return found

    def count(self, tokens: int, channels: int, widths: Sequence[int] = ()) -> int:
        """Logit weights of all sites."""
        return sum(map(math.prod, self.shapes(tokens, channels, widths).values()))

    def numbers(self, tokens: int, channels: int) -> int:
        """Numbers of the attention of one example, those for its gradient counted."""
        heads = sum(map(len, self.learned))
        return attention_numbers(self.form, heads, tokens, channels, self.rank)

    @property
    def exchangeable(self) -> bool:
        """Whether two heads of a layer have the same prior, so that chains may exchange them."""
        groups = exchange_groups(self.learned, self.variants)
        return any(len(group) > 1 for of_layer in groups for group in of_layer)


def exchange_groups(
    learned: tuple[tuple[bool, ...], ...], variants: LayerVariants
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Learned heads of each layer, those together that have the same prior: of the same variant."""
    layers = []
    for is_learned, of_layer in zip(learned, variants, strict=True):
        groups: dict[AttentionVariant, list[int]] = {}
        for head in compress(range(len(of_layer)), is_learned):
            groups.setdefault(of_layer[head], []).append(head)
        layers.append(tuple(map(tuple, groups.values())))
    return tuple(layers)
