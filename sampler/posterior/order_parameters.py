"""The posterior of order parameters: all weights integrated out, U_1 … U_a in Bartlett coordinates.

With every weight integrated out, p(U_a, U_L … U_1, y) is the chain of `theory.wishart_chain` times
N(y; 0, K(U_1) + 𝒯 1). Its dimension does not depend on width, channels, tokens or examples. Nothing
here is derived from the action of the theory, which it is compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, polygamma
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions as dist

from sampler.network import named_order_parameters
from sampler.posterior.given import Given
from sampler.posterior.labels import CollapsedLabels
from sampler.posterior.space import Position, Space
from theory.learning_problem import LabelEnergy
from theory.leave_one_out import left_out
from theory.path_kernels import Features, path_features, sum_over_paths
from theory.predictor import Predictor
from theory.wishart_chain import (
    WishartChain,
    bartlett_matrix,
    chain_factors,
    log_chi_density,
    standardised_log,
)

# Stored coordinates are named by their site after this.
BARTLETT = "bartlett_"


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class OrderParameters(Space):
    """The Wishart chain of U_1 … U_a, and y ~ N(0, K(U_1) + 𝒯 1).

    Sites are `chi_l` [rank] and `lower_l` [entry] of each Bartlett factor B_l, l = 1 … L + 1.

    chain  the law of U_1 … U_a
    """

    chain: WishartChain

    name = "order_parameters"

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the diagonals of B_l, and of what is below them, where there is anything."""
        shapes = {}
        for layer, shape in enumerate(self.chain.shapes, start=1):
            shapes[f"chi_{layer}"] = (shape.rank,)
            if shape.below_diagonal:
                shapes[f"lower_{layer}"] = (shape.below_diagonal,)
        return shapes

    @property
    def weights(self) -> dict[str, dist.Distribution]:
        """Standardised log χ on the diagonals of Bartlett factors, standard normal below them."""
        priors = {}
        layers = zip(self.chain.degrees, self.chain.shapes, strict=True)
        for layer, (degrees, shape) in enumerate(layers, start=1):
            # Made by NumPy and not validated: neither may compile anything.
            priors[f"chi_{layer}"] = StandardisedLogChi(degrees, validate_args=False).to_event(1)
            if entries := shape.below_diagonal:
                zeros, ones = (jnp.asarray(np.full(entries, x, degrees.dtype)) for x in (0, 1))
                priors[f"lower_{layer}"] = dist.Normal(zeros, ones, validate_args=False).to_event(1)
        return priors

    def draw_by_numpy(self, count: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draws of the diagonals: compiling a generator of χ² takes JAX half a minute."""
        return {
            f"chi_{layer}": standardised_log_chi(np.asarray(degrees), count, generator)
            for layer, degrees in enumerate(self.chain.degrees, start=1)
        }

    @property
    def outputs(self) -> int:
        """Number of outputs O."""
        return self.chain.shapes[-1].rows

    @property
    def input_variance(self) -> Float[Array, ""]:
        """Prior variance σ_0² of V_0."""
        return self.chain.variances[0]

    def factors(self, position: Position) -> tuple[Float[Array, "_size _rank"], ...]:
        """Factors F_1 … F_{L+1} with U_l = F_l F_lᵀ."""
        matrices = bartlett_matrices(position, self.chain)
        return chain_factors(matrices, self.chain.heads, self.chain.scales)

    def order_parameters(self, factors: tuple[Array, ...]) -> dict[str, Array]:
        """U_1 … U_a by name."""
        return named_order_parameters(tuple(factor @ factor.T for factor in factors))

    def stored(self, position: Position) -> dict[str, Array]:
        """Bartlett coordinates, from which weights are drawn back and the evidence follows."""
        return {f"{BARTLETT}{name}": position[name] for name in self.weight_shapes}

    def features(self, attended: Float[Array, "example path channel"]) -> Array:
        """Features φ^π of attended inputs."""
        return path_features(attended, self.input_variance)

    def energy(self, position: Position) -> LabelEnergy:
        """E(U_1) of the training labels at the data and temperature of a position."""
        kernels = self.data.kernels(position, self.features)
        return LabelEnergy(kernels, self.data.labels, self.temperature_at(position))

    def law(self, position: Position, inputs: Any = None) -> CollapsedLabels:
        """Law N(0, K(U_1) + 𝒯 1) of all labels."""
        energy = self.energy(position)
        if inputs is not None:
            labels = jnp.zeros((len(inputs), self.outputs), inputs.dtype)
            energy = LabelEnergy(Features(self.features(inputs)), labels, energy.temperature)
        return CollapsedLabels(energy, self.factors(position)[0])

    def given(self, position: Position, key: PRNGKeyArray | None) -> Given:
        """The network given U_1, by regression with the kernel K(U_1)."""
        factors, energy = self.factors(position), self.energy(position)
        factor, features = factors[0], self.features(self.data.train(position))
        predictor = Predictor(energy, Features(features), None)
        whitening = predictor.whitening(factor)

        def moments(inputs: Array):
            cross = self.data.cross(inputs, features, self.features)
            return Predictor(energy, *cross).moments(whitening, factor)

        function = None
        if key is not None:
            weights = predictor.draw_weights(key, whitening, factor, features)
            function = lambda inputs: sum_over_paths(self.features(inputs), weights)  # noqa: E731
        return Given(
            function,
            moments,
            lambda _: left_out(energy, whitening, self.data.combinations),
            self.order_parameters(factors),
            self.stored(position),
        )


def bartlett_matrices(
    position: Position, chain: WishartChain
) -> tuple[Float[Array, "_rows _rank"], ...]:
    """Bartlett matrices B_1 … B_{L+1} at a position."""
    matrices = []
    layers = zip(chain.shapes, chain.degrees, strict=True)
    for layer, (shape, degrees) in enumerate(layers, start=1):
        diagonal = position[f"chi_{layer}"]
        below = position.get(f"lower_{layer}", diagonal[:0])
        matrices.append(bartlett_matrix(diagonal, below, shape.rows, degrees))
    return tuple(matrices)


def stored_sites(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Bartlett coordinates of stored draws [chain, draw, …], under the names of their sites."""
    return {
        name.removeprefix(BARTLETT): values
        for name, values in draws.items()
        if name.startswith(BARTLETT)
    }


def standardised_log_chi(
    degrees: Float[np.ndarray, " rank"], count: int, generator: np.random.Generator
) -> Float[np.ndarray, "{count} rank"]:
    """Draws of `StandardisedLogChi` by NumPy."""
    squares = generator.chisquare(degrees, (count, len(degrees)))
    return standardised_log(squares, degrees).astype(degrees.dtype)


class StandardisedLogChi(dist.Distribution):
    """Law of t with ln c = ½ ln ν + t/√(2ν) and c ~ χ_ν: of order one at every ν."""

    arg_constraints: ClassVar = {"degrees": dist.constraints.positive}
    support = dist.constraints.real
    reparametrized_params: ClassVar = ["degrees"]

    def __init__(self, degrees, *, validate_args=None) -> None:
        self.degrees = jnp.asarray(degrees)
        super().__init__(jnp.shape(self.degrees), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        shape = sample_shape + self.batch_shape
        gamma = dist.Gamma(self.degrees / 2.0, 0.5).expand(shape).sample(key)
        return standardised_log(gamma, self.degrees)

    @property
    def mean(self):
        half = self.degrees / 2.0
        return jnp.sqrt(half) * (digamma(half) - jnp.log(half))

    @property
    def variance(self):
        half = self.degrees / 2.0
        return half * polygamma(1, half)

    def log_prob(self, value):
        return log_chi_density(value, self.degrees)
