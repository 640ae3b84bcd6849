"""The posterior of attention alone: at infinite width all weights are integrated out exactly.

U_1 = g 1 is fixed, g = σ_1² … σ_a², and y_c ~ N(0, g Σ_π C_ππ + 𝒯 1) for each output c by itself.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from sampler.posterior.labels import IndependentLabels
from sampler.posterior.order_parameters import OrderParameters
from sampler.posterior.space import Position


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class InfiniteWidth(OrderParameters):
    """Sampled attention at infinite width; no weight and no order parameter is a site."""

    name = "attention"

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """No site beside those of the data."""
        return {}

    @property
    def weights(self) -> dict:
        """No site beside those of the data."""
        return {}

    @property
    def scale(self) -> Float[Array, ""]:
        """√g of U_1 = g 1."""
        return jnp.sqrt(jnp.prod(self.chain.variances[1:]))

    def factors(self, position: Position) -> tuple[Float[Array, "row row"]]:
        """The factor √g 1 of U_1."""
        rows = math.prod(self.chain.heads) * self.outputs
        return (self.scale * jnp.eye(rows, dtype=self.scale.dtype),)

    def order_parameters(self, factors: tuple[Array, ...]) -> dict[str, Array]:
        """Nothing: they are the same in every draw."""
        return {}

    def law(self, position: Position, inputs: Any = None) -> IndependentLabels:
        """Law of the labels, outputs independent of each other."""
        attended = self.data.train(position) if inputs is None else inputs
        features = self.features(attended)
        columns = self.scale * features.reshape(len(features), -1)
        return IndependentLabels(columns, self.temperature_at(position), self.outputs)
