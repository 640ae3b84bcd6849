"""Heads with gates: the outputs of a trained model some of whose heads are replaced.

Networks of the command `train` are here, PyTorch modules in `modules`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.errors import InputError
from sampler.tasks.splits import Split
from sampler.token_network import READ
from sampler.transformer.chosen_layers import EVERY_LAYER, ChosenLayers
from sampler.transformer.model import FrozenNetwork

Head = tuple[int, int]  # layer and head, counted from 0
# What a closed gate lets through: nothing, or the mean over examples, token by token.
Replacement = Literal["zero", "mean"]


@runtime_checkable
class GatedModel(Protocol):
    """A trained model with its examples, each of whose heads has a gate g.

    In the place of its output o a head sends g o + (1 − g) r, where r is 0 or the mean of o over
    all examples at the same token. Heads are counted through all layers, lowest layer first.
    """

    @property
    def heads(self) -> tuple[int, ...]:
        """H_1 … H_L of the layers that run."""
        ...

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of these layers in the whole model, from 1."""
        ...

    def outputs(
        self, gates: Float[np.ndarray, " head"], replacement: Replacement
    ) -> Float[np.ndarray, "example output"]:
        """f(x) of every example with these gates, the same for all examples."""
        ...

    def slopes(
        self,
        along: Float[np.ndarray, "example output"],
        replacement: Replacement,
        gates: Float[np.ndarray, " head"] | None = None,
    ) -> Float[np.ndarray, "example head"]:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h of every example and gate, where gates are so; None: all 1."""
        ...

    def magnitudes(self) -> Float[np.ndarray, " head"]:
        """The Frobenius norm of the weights by which a head acts, as the implementation says."""
        ...

    def output_count(self) -> int:
        """The number of outputs."""
        ...


@dataclass(frozen=True)
class Numbering:
    """Heads that are removed, each as gates, theory and tables number it.

    gates   (layer, head) from 0, of the layers that run
    theory  (layer, head) from 0, in the network of the theory
    shown   layer of the whole model from 1, head from 0
    """

    gates: tuple[Head, ...]
    theory: tuple[Head, ...]
    shown: tuple[Head, ...]

    @classmethod
    def of(
        cls,
        counts: Sequence[int],
        numbers: Sequence[int] = (),
        chosen: ChosenLayers = EVERY_LAYER,
        *,
        single: bool = False,
    ) -> "Numbering":
        """Heads that a theory sees of layers with so many heads and these numbers, 1 … L.

        chosen  layers and heads of the theory
        single  whether all of them are heads of its one layer
        """
        numbers = numbers or range(1, len(counts) + 1)
        gates: list[Head] = []
        theory: list[Head] = []
        for layer, place in enumerate(chosen.places(numbers)):
            kept = chosen.kept(numbers[place], counts[place], all_may_go=single)
            for number, head in enumerate(kept):
                theory.append((0, len(gates)) if single else (layer, number))
                gates.append((place, head))
        return cls(
            tuple(gates), tuple(theory), tuple((numbers[place], head) for place, head in gates)
        )

    @property
    def layers(self) -> list[int]:
        """Numbers of these heads in each layer of the theory, where they come before others."""
        last = max(layer for layer, _ in self.theory)
        return [sum(layer == at for layer, _ in self.theory) for at in range(last + 1)]


def all_heads(counts: Sequence[int]) -> list[Head]:
    """Every head of layers with so many, lowest layer first."""
    return [(layer, head) for layer, count in enumerate(counts) for head in range(count)]


def places_of(heads: Sequence[Head], counts: Sequence[int]) -> list[int]:
    """Places of heads among all heads of layers with so many, lowest layer first."""
    return [all_heads(counts).index(head) for head in heads]


def closed_gates(counts: Sequence[int], removed: Collection[Head]) -> Float[np.ndarray, " head"]:
    """Gates of layers with so many heads, 0 for the heads removed and 1 for all others."""
    return np.array([head not in removed for head in all_heads(counts)], float)


@dataclass(frozen=True)
class GatedNetwork:
    """A network of the command `train` on some examples; magnitudes are ‖V_l^h‖.

    inputs     [example, token, channel]
    attention  [example, head, key, query] of each layer
    """

    network: FrozenNetwork
    inputs: np.ndarray
    attention: tuple[np.ndarray, ...]

    @classmethod
    def of_blocks(cls, network: FrozenNetwork, blocks: Iterable[Split]) -> "GatedNetwork":
        """On the examples of all blocks, which are held at once: a mean is over all of them."""
        parts = list(blocks)
        layers = zip(*(part.attention for part in parts), strict=True)
        inputs = np.concatenate([part.inputs for part in parts])
        return cls(network, inputs, tuple(np.concatenate(of_layer) for of_layer in layers))

    def __post_init__(self) -> None:
        heads = tuple(matrices.shape[1] for matrices in self.attention)
        if heads != self.heads:
            remedy = f"the trained network has heads {self.heads}; use `random_heads = 0`"
            raise InputError("heads of the task", heads, remedy)

    @property
    def heads(self) -> tuple[int, ...]:
        return self.network.architecture.heads

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.heads) + 1))

    def outputs(self, gates, replacement):
        everyone = np.broadcast_to(gates, (len(self.inputs), sum(self.heads)))
        return np.asarray(self._forward(replacement)(jnp.asarray(everyone)))

    def slopes(self, along, replacement, gates=None):
        count = sum(self.heads)
        here = np.broadcast_to(np.ones(count) if gates is None else gates, (len(along), count))
        _, pull_back = jax.vjp(self._forward(replacement), jnp.asarray(here, float))
        return np.asarray(pull_back(jnp.asarray(along))[0])

    def magnitudes(self):
        return self.network.magnitudes()

    def output_count(self):
        return self.network.architecture.outputs

    def _forward(self, replacement: Replacement):
        weights = {name: jnp.asarray(values) for name, values in self.network.weights.items()}
        attention = tuple(map(jnp.asarray, self.attention))
        return partial(gated_forward, weights, jnp.asarray(self.inputs), attention,
                       replacement == "mean", self.network.readout)  # fmt: skip


@partial(jax.jit, static_argnames=("use_mean", "readout"))
def gated_forward(
    weights: dict[str, Array],
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head key query"], ...],
    use_mean: bool,
    readout: Literal["mean", "last"],
    gates: Float[Array, "example all_heads"],
) -> Float[Array, "example output"]:
    """f(x) token by token, the mean over the tokens that are read.

    z^{l+1} = Σ_h (g_h o_h + (1 − g_h) r_h)/√H_l with o_h = V_l^h z^l Ω^{l,h}/√N_l. Means are those
    of the whole network, every gate open.
    """
    hidden = inputs @ weights["V_0"].T / inputs.shape[-1] ** 0.5
    plain, first = hidden, 0
    for layer, matrices in enumerate(attention, start=1):
        values = weights[f"V_{layer}"] / weights[f"V_{layer}"].shape[2] ** 0.5

        def of_heads(tokens, matrices=matrices, values=values):
            return jnp.einsum("xhst,xsi,hji->xhtj", matrices, tokens, values, optimize=True)

        count = matrices.shape[1]
        gate = gates[:, first : first + count, None, None]
        sent = gate * of_heads(hidden)
        if use_mean:
            undisturbed = of_heads(plain)
            sent = sent + (1.0 - gate) * undisturbed.mean(axis=0)
            plain = undisturbed.sum(axis=1) / count**0.5
        hidden = sent.sum(axis=1) / count**0.5
        first += count
    read_out = weights["a"] / weights["a"].shape[1] ** 0.5
    return hidden[:, READ[readout]].mean(axis=1) @ read_out.T
