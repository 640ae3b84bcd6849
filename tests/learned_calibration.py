"""Simulation-based calibration of heads whose attention is sampled; as `tests.calibration`."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from sampler.posterior.density import Density, Position, weights_at

from sampler.learned_problem import LearnedProblem
from sampler.network import network_outputs, overlaps
from sampler.posterior.labels import label_log_likelihood
from sampler.posterior.order_parameters import factors_at
from tests.calibration import draw_sites
from tests.learned import learned_problem
from theory.path_kernels import Features
from theory.predictor import Predictor
from theory.wishart_chain import WishartChain

QUANTITIES = (
    "U_1[0, 0]", "U_1[1, 0]", "u_a", "predictor", "log likelihood", "logit difference",
    "attention of the first token",
)  # fmt: skip
TASK = {
    "kind": "markov_chain",
    "tokens": 4,
    "features": 4,
    "examples_train": 12,
    "examples_test": 2,
}


class LearnedCalibration:
    """Two learned heads, whose logits depend on positions, and order parameters of width 4.

    wider  factor of the standard deviation of logits, as the sampler believes it to be
    """

    def __init__(self, wider: float = 1.0) -> None:
        self.problem: LearnedProblem = learned_problem(
            task=TASK,
            heads=(("learned", "learned"),),
            widths=4,
            attention={"learned": {"form": "positions", "variance": 2.0}},
            posterior={"temperature": 0.02},
        )
        attention = self.problem.examples.attention
        believed = replace(attention, scale=wider * attention.scale)
        self.believed = replace(
            self.problem, examples=replace(self.problem.examples, attention=believed)
        )
        self.chain = WishartChain.of(self.problem.architecture)

    def simulate(self, key) -> tuple[Position, jax.Array]:
        """Logit weights and all other weights from the prior, and labels from these."""
        examples, arch = self.problem.examples, self.problem.architecture
        site_key, noise_key, *keys = jax.random.split(key, 2 + len(arch.weight_shapes))
        position = draw_sites(site_key, examples.attention.priors)
        for one, (name, shape) in zip(keys, arch.weight_shapes.items(), strict=True):
            scale = arch.weight_variances[name] ** 0.5
            position[name] = scale * jax.random.normal(one, shape)
        clean = network_outputs(weights_at(position, arch), examples.attended(position), arch)
        noise = jax.random.normal(noise_key, clean.shape)
        return position, clean + examples.temperature**0.5 * noise

    def density(self, labels) -> Density:
        """The posterior of these labels."""
        examples = replace(self.believed.examples, labels=labels)
        problem = replace(self.believed, examples=examples)
        return problem.density("order_parameters", "float64", False)

    def truth(self, key, position, labels):
        """Quantities of real weights."""
        examples, arch = self.problem.examples, self.problem.architecture
        weights = weights_at(position, arch)
        tested = examples.attended(position, self.problem.test)
        prediction = network_outputs(weights, tested, arch)[0, 0]
        matrices = overlaps(weights, arch)
        factor = jnp.linalg.cholesky(matrices[0])
        return self.stacked(position, examples, matrices, factor, prediction, labels)

    def drawn(self, key, position, labels):
        """Quantities of a draw of attention and order parameters, and of weights given these."""
        examples = replace(self.believed.examples, labels=labels)
        factors = factors_at(position, self.chain)
        attended = examples.attended(position)
        train = examples.features(attended)
        test = examples.features(examples.attended(position, self.believed.test))
        predictor = Predictor(examples.energy(attended), Features(test, train), None)
        prediction = predictor.draw(key, factors[0], train, test)[0, 0]
        matrices = tuple(factor @ factor.T for factor in factors)
        return self.stacked(position, examples, matrices, factors[0], prediction, labels)

    def stacked(self, position, examples, matrices, factor, prediction, labels):
        """[quantity], as `QUANTITIES`."""
        (site,) = (name for name, _ in examples.attention.sites)
        logits = examples.attention.scale * position[site]
        energy = replace(examples, labels=labels).energy(examples.attended(position))
        likelihood = label_log_likelihood(energy, factor)
        lowest, readout = matrices[0], matrices[-1]
        return jnp.stack([
            lowest[0, 0], lowest[1, 0], readout[0, 0], prediction, likelihood,
            logits[0, 0] - logits[0, 1], jax.nn.softmax(logits[1])[0],
        ])  # fmt: skip
