"""Simulation-based calibration of heads whose attention is sampled; as `tests.calibration`."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from sampler.network import network_outputs, overlaps
from sampler.posterior.labels import CollapsedLabels, flat_labels
from sampler.posterior.space import Position, Space
from sampler.token_problem import LearnedProblem
from tests.learned import learned_problem
from tests.problems import weight_variances

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
        self.exact = self.problem.space("order_parameters")
        data = self.problem.data
        attention = replace(data.attention, scale=wider * data.attention.scale)
        self.believed = replace(self.exact, data=replace(data, attention=attention))

    def simulate(self, key) -> tuple[Position, jax.Array]:
        """Logit weights and all other weights from the prior, and labels from these."""
        data, arch = self.problem.data, self.problem.architecture
        shapes = dict(data.attention.sites) | arch.weight_shapes
        noise_key, *keys = jax.random.split(key, 1 + len(shapes))
        position = {
            name: weight_variances(arch).get(name, 1.0) ** 0.5 * jax.random.normal(k, shape)
            for k, (name, shape) in zip(keys, shapes.items(), strict=True)
        }
        clean = network_outputs(position, data.train(position), arch)
        noise = jax.random.normal(noise_key, clean.shape)
        return position, clean + self.problem.temperature**0.5 * noise

    def space(self, labels) -> Space:
        """The posterior of these labels."""
        return self.believed.with_labels(labels)

    def truth(self, key, position, labels):
        """Quantities of real weights."""
        arch, data = self.problem.architecture, self.problem.data
        prediction = network_outputs(position, data.test(position), arch)[0, 0]
        matrices = overlaps(position, arch)
        factor = jnp.linalg.cholesky(matrices[0])
        law = CollapsedLabels(self.exact.energy(position), factor)
        likelihood = law.log_prob(flat_labels(labels))
        return self.stacked(data, position, matrices[0], matrices[-1], prediction, likelihood)

    def drawn(self, key, position, labels):
        """Quantities of a draw of attention and order parameters, and of f given these."""
        space = self.space(labels)
        observed = space.observe(key, position)
        factors = space.factors(position)
        lowest, readout = factors[0] @ factors[0].T, factors[-1] @ factors[-1].T
        likelihood = space.log_likelihood(position)
        prediction = observed["predictor"][0, 0]
        return self.stacked(space.data, position, lowest, readout, prediction, likelihood)

    def stacked(self, data, position, lowest, readout, prediction, likelihood):
        """[quantity], as `QUANTITIES`."""
        ((site, _),) = data.attention.sites
        logits = data.attention.scale * position[site]
        return jnp.stack([
            lowest[0, 0], lowest[1, 0], readout[0, 0], prediction, likelihood,
            logits[0, 0] - logits[0, 1], jax.nn.softmax(logits[1])[0],
        ])  # fmt: skip
