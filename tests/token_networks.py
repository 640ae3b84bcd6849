"""Networks outside the theory, followed one number after the other, as their definition has it."""

from dataclasses import dataclass, replace
from itertools import product
from math import erf, exp, sqrt

import jax.numpy as jnp
import numpy as np

from sampler.attention.learned import LearnedHeads
from sampler.attention.sampled import SampledAttention
from sampler.attention.variants import Softmax
from sampler.posterior.data import TokenData
from sampler.settings.network_sections import Mlp
from sampler.token_network import TokenArrays, TokenNetwork
from sampler.token_problem import TokenProblem
from tests.problems import NetworkData
from theory import Architecture
from theory.nonlinear_kernels import ERF, GELU

# A hypernetwork between two layers of other head counts, and one alone; all sizes differ.
PAIRED = {
    "one pair": (Architecture((2, 2), (7, 5, 6), (0.9, 1.5, 0.6, 1.3), 4), (True,)),
    "layer, pair, layer": (
        Architecture((3, 2, 2, 1), (7, 5, 6, 4, 8), (0.9, 1.5, 0.6, 1.3, 0.8, 1.1), 4, outputs=2),
        (False, True, False),
    ),
}
# φ of one number; E φ(u)² = 1 is tested where `theory.nonlinear_kernels` is.
PHI = {
    "linear": lambda u: u,
    "relu": lambda u: sqrt(2) * max(u, 0.0),
    "erf": lambda u: ERF * erf(u),
    "gelu": lambda u: GELU * u * (1 + erf(u / sqrt(2))) / 2,
}


def network_of(
    architecture, hypernetworks=None, values="linear", norm="none", readout="last", **more
) -> TokenNetwork:
    pairs = (False,) * architecture.layers if hypernetworks is None else hypernetworks
    return TokenNetwork(architecture, pairs, values, norm, readout, **more)


def data_of(network: TokenNetwork, rng, examples=3, tokens=4) -> NetworkData:
    """Inputs and attention with any sign, one array of matrices for each attention."""
    arch = network.architecture
    inputs = rng.standard_normal((examples, tokens, arch.channels))
    heads = [arch.heads[layer - 1] for layer in network.lowest_layers]
    attention = tuple(rng.standard_normal((examples, count, tokens, tokens)) for count in heads)
    return NetworkData(inputs, attention, network.readout)


def drawn_weights(network: TokenNetwork, rng) -> dict[str, np.ndarray]:
    """All weights from their priors."""
    weights = {name: rng.standard_normal(shape) for name, shape in network.weight_shapes.items()}
    for name, layer in network.weight_layers.items():
        weights[name] *= sqrt(network.variances[layer])
    return weights


@dataclass(frozen=True)
class Learned:
    """Learned softmax heads of some layers; as `LearnedHeads` has them."""

    form: str
    learned: tuple[tuple[bool, ...], ...]
    stream: bool
    scale: tuple[float, ...] = (1.3, 0.8)
    rank: int = 2

    def heads(self, network: TokenNetwork, tokens: int) -> SampledAttention:
        variants = tuple((Softmax(),) * len(of_layer) for of_layer in self.learned)
        rank = self.rank if self.form == "low_rank" else 0
        known = np.asarray(self.scale), self.learned, variants, rank, self.stream
        arch = network.architecture
        return SampledAttention.of(
            LearnedHeads(self.form, *known),
            tokens,
            arch.channels,
            network.hypernetworks,
            network.readout,
            [arch.widths[layer - 1] for layer in network.lowest_layers],
        )

    def matrices(self, fixed, weights, seen, layer):
        """Ω [head, key, query] of one example, from what is read of each token."""
        if not any(self.learned[layer]):
            return fixed
        normal, found, place = weights[f"logits_{layer + 1}"], np.array(fixed), 0
        c, tokens = self.scale, len(seen)
        for head, is_learned in enumerate(self.learned[layer]):
            if not is_learned:
                continue
            for t in range(tokens):
                logits = []
                for s in range(tokens):
                    Z = normal[place]
                    if self.form == "full":
                        by_channel = np.broadcast_to(c, len(seen[s]))
                        W = np.outer(by_channel, by_channel) * Z
                        logits.append(seen[s] @ W @ seen[t])
                    else:
                        query, key = c[0] * Z[0] @ seen[t], c[1] * Z[1] @ seen[s]
                        logits.append(query @ key / sqrt(self.rank))
                total = sum(exp(one) for one in logits)
                found[head, :, t] = [exp(one) / total for one in logits]
            place += 1
        return found


def split_of(data: NetworkData, heads: SampledAttention | None) -> TokenArrays:
    """Inputs and attention as the forward pass takes them; of learned heads those beside them."""
    if heads is None:
        return jnp.asarray(data.inputs), tuple(map(jnp.asarray, data.attention))
    tokens = heads.tokens(data.inputs, data.attention)
    return tokens.inputs, tokens.fixed, heads


def problem_of_splits(
    network: TokenNetwork, train: TokenArrays, labels, temperature: float, test: TokenArrays, **more
) -> TokenProblem:
    """A network with training and test examples, whose heads have their numbers for names."""
    return TokenProblem(
        network=network,
        data=TokenData(labels=labels, tokens=train, tokens_test=test),
        temperature=temperature,
        path_names=("0",),
        head_names=tuple(tuple(map(str, range(n))) for n in network.architecture.heads),
        **more,
    )


def normalised(hidden):
    return [(z - z.mean()) / sqrt(np.mean((z - z.mean()) ** 2) + 1e-5) for z in hidden]


def loops(network, data, weights, learned: Learned | None = None):
    """f(x) of every example, one number after the other, as the definition has it."""
    arch, outputs = network.architecture, []

    def seen(hidden):
        return normalised(hidden) if network.norm == "before" else hidden

    def joined(hidden, new):
        if network.residual:
            new = [(z + b) / sqrt(2) for z, b in zip(hidden, new, strict=True)]
        return normalised(new) if network.norm == "after" else new

    for example, tokens in enumerate(data.inputs):
        hidden = [weights["V_0"] @ token / sqrt(arch.channels) for token in tokens]
        for place, layer in enumerate(network.lowest_layers):
            below, omega = seen(hidden), data.attention[place][example]
            if learned is not None:
                width = arch.widths[layer - 1]
                read = [z / sqrt(width) for z in below] if learned.stream else tokens
                omega = learned.matrices(omega, weights, read, place)
            hidden = joined(hidden, attended(network, weights, below, omega, place))
            if network.mlp is not None:
                top = layer + network.hypernetworks[place]
                inner, outer = weights[f"mlp_in_{top}"], weights[f"mlp_out_{top}"]
                psi, new = PHI[network.mlp.activation], []
                for z in seen(hidden):
                    units = [psi(row @ z / sqrt(len(z))) for row in inner]
                    new.append(outer @ np.array(units) / sqrt(len(units)))
                hidden = joined(hidden, new)
        hidden = seen(hidden)
        readout = {"last": hidden[-1], "first": hidden[0], "mean": sum(hidden) / len(hidden)}
        outputs.append(weights["a"] @ readout[network.readout] / sqrt(arch.widths[-1]))
    return np.array(outputs)


def attended(network, weights, hidden, omega, place):
    """What an attention sends to every token."""
    arch, layer, phi = network.architecture, network.lowest_layers[place], PHI[network.values]
    V, heads, width, new = weights[f"V_{layer}"], len(omega), arch.widths[layer - 1], []
    for t in range(len(hidden)):
        if network.hypernetworks[place]:
            W = weights[f"V_{layer + 1}"]
            total = np.zeros(arch.widths[layer + 1])
            for s in range(len(hidden)):
                W_val = sum(omega[h, s, t] * V[h] for h in range(heads))
                inner = np.array([phi(u) for u in W_val @ hidden[s] / sqrt(heads * width)])
                outer = sum(omega[h, s, t] * W[h] for h in range(heads))
                total += outer @ inner / sqrt(heads * arch.widths[layer])
        else:
            total = np.zeros(arch.widths[layer])
            for h, s in product(range(heads), range(len(hidden))):
                moved = np.array([phi(u) for u in V[h] @ hidden[s] / sqrt(width)])
                total += moved * omega[h, s, t] / sqrt(heads)
        new.append(total)
    return new


_PLAIN = Architecture((2,), (4, 3), (0.8, 1.4, 1.2), channels=3)
_EVEN = Architecture((2,), (4, 4), (0.8, 1.4, 1.2), channels=3)
_PAIR = Architecture((2, 2), (3, 4, 5), (0.8, 1.4, 0.9, 1.2), channels=3)
_BLOCK = {"norm": "before", "residual": True, "mlp": Mlp(width=3, activation="gelu")}
# Networks of every kind, as `random_token_problem` poses them; a new kind is one more row.
KINDS: dict[str, tuple[TokenNetwork, Learned | None]] = {
    "relu": (network_of(_PLAIN, None, "relu", readout="mean"), None),
    "normalised": (network_of(_PLAIN, norm="after"), None),
    "normalised hypernetwork": (network_of(_PAIR, (True,), "relu", "after"), None),
    "block": (network_of(_EVEN, None, "erf", **_BLOCK), None),
    "stream": (
        network_of(_EVEN, residual=True),
        Learned("low_rank", ((True, True),), True),
    ),
}


def random_token_problem(
    kind: str,
    rng,
    *,
    examples: int = 4,
    temperature: float = 0.3,
    temperature_spread: float = 0.0,
) -> TokenProblem:
    """A network of a kind with random tokens, attention and labels, and three test examples."""
    network, learned = KINDS[kind]
    heads = None
    if learned is not None:
        heads = learned.heads(network, 3)
        network = replace(network, logits=heads.sites, stream=learned.stream)
    train, test = (split_of(data_of(network, rng, count, 3), heads) for count in (examples, 3))
    labels = jnp.asarray(rng.standard_normal((examples, network.outputs)))
    return problem_of_splits(
        network, train, labels, temperature, test, temperature_spread=temperature_spread
    )
