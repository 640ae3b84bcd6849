"""Simulation-based calibration outside the theory, and networks that it must tell apart."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.attention.sampled import SampledAttention
from sampler.mcmc.split_hmc import SplitChain
from sampler.posterior.space import Space
from sampler.settings.network_sections import Mlp
from sampler.token_network import TokenNetwork, predict_split
from tests.calibration import WARMUP, calibration_ranks, sites_at_truth, uniformity
from tests.token_networks import Learned, data_of, network_of, problem_of_splits, split_of
from theory import Architecture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.usefixtures("without_annotation_checks"),
]
EXAMPLES, TOKENS, TEMPERATURE = 8, 3, 0.05
DATA_SETS, SMALLEST_P = 128, 1e-3
SPLIT = SplitChain(chains=1, warmup=WARMUP, target_acceptance=0.9, max_steps=32)
# As many channels as units, so that heads that read inputs have as many weights as others.
ARCHITECTURE = Architecture((2,), (3, 3), (1.3, 0.8, 1.5), channels=3)
# Little depends on logits: it takes one head, one token read and more examples to tell them apart.
MORE_EXAMPLES = {"stream": 24}
OF_STREAM = replace(ARCHITECTURE, heads=(1,))
HEADS = Learned("full", ((True,),), stream=True, scale=(2.0,))
# A network, and another one that is taken for it.
KINDS = {
    "before": ({"norm": "before"}, {}),
    "after": ({"norm": "after"}, {}),
    "residual": ({"residual": True}, {}),
    "mlp": ({"mlp": Mlp(width=4, activation="gelu")}, {}),
    "stream": ({"stream": True}, {"stream": False}),
}


@dataclass(frozen=True)
class BlockCalibration:
    """Quantities of a network and of draws of the network that the sampler takes it for.

    heads  learned ones, where there are such
    """

    network: TokenNetwork
    believed: TokenNetwork
    heads: SampledAttention | None
    examples: int

    @classmethod
    def of(cls, kind: str, *, wrong: bool = False) -> "BlockCalibration":
        networks, heads = [], None
        true, another = KINDS[kind]
        for settings in (true, another if wrong else true):
            kept = {key: value for key, value in settings.items() if key != "stream"}
            network = network_of(ARCHITECTURE, readout="mean", **kept)
            if "stream" in settings:
                network = network_of(OF_STREAM, readout="last", **kept)
                heads = HEADS.heads(network, TOKENS)
                network = replace(network, logits=heads.sites, stream=settings["stream"])
            networks.append(network)
        return cls(*networks, heads, MORE_EXAMPLES.get(kind, EXAMPLES))

    @property
    def splits(self):
        rng = np.random.default_rng(5)
        data = (data_of(self.network, rng, count, TOKENS) for count in (self.examples, 1))
        return tuple(split_of(one, self.heads) for one in data)

    def simulate(self, key):
        """All weights from their priors, and labels from these."""
        site_key, noise_key = jax.random.split(key)
        network, position = self.network, {}
        keys = jax.random.split(site_key, len(network.weight_shapes))
        for one, (name, shape) in zip(keys, network.weight_shapes.items(), strict=True):
            layer = network.weight_layers.get(name)
            variance = 1.0 if layer is None else network.variances[layer]
            position[name] = variance**0.5 * jax.random.normal(one, shape)
        clean = predict_split(position, self.splits[0], self.network)
        return position, clean + TEMPERATURE**0.5 * jax.random.normal(noise_key, clean.shape)

    def space(self, labels) -> Space:
        train, test = self.splits
        problem = problem_of_splits(self.believed, train, labels, TEMPERATURE, test)
        return problem.space("weights")

    def at_truth(self, position, start) -> dict:
        return sites_at_truth(position, start)

    def truth(self, key, position, labels):
        return self.quantities(position, labels, self.network)

    def drawn(self, key, position, labels):
        return self.quantities(position, labels, self.believed)

    @property
    def names(self) -> tuple[str, ...]:
        """Predictor, log likelihood, and squares of the weights that both networks have."""
        both = {*self.network.weight_shapes} & {*self.believed.weight_shapes}
        return "predictor", "log likelihood", *sorted(both)

    def quantities(self, weights, labels, network):
        train, test = (predict_split(weights, one, network) for one in self.splits)
        squares = [jnp.sum(weights[name] ** 2) for name in self.names[2:]]
        return jnp.stack([test[0, 0], -jnp.sum((train - labels) ** 2), *squares])


def p_values(
    calibrated: BlockCalibration, seed: int, data_sets: int = DATA_SETS
) -> dict[str, float]:
    received = uniformity(
        calibration_ranks(calibrated, data_sets, seed, chain=SPLIT), calibrated.names
    )
    print({name: f"{p:.3g}" for name, p in received.items()})
    return received


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_of_the_truth_are_uniform(kind):
    received = p_values(BlockCalibration.of(kind), seed=1)
    assert min(received.values()) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_finds_a_network_that_is_taken_for_another(kind):
    received = p_values(BlockCalibration.of(kind, wrong=True), seed=2, data_sets=DATA_SETS // 2)
    assert min(received.values()) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
