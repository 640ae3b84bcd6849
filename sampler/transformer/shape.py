"""The shape of a trained transformer, and its parameters at the start."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sampler.random_streams import stream
from sampler.recipes.training_recipe import TrainingRecipe

Parameters = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class TransformerShape:
    """H_1 … H_L heads, widths N_1 … N_L, N_a, G key channels, D input channels."""

    heads: tuple[int, ...]
    widths: tuple[int, ...]
    key_size: int
    channels: int

    @classmethod
    def of(cls, recipe: TrainingRecipe) -> "TransformerShape":
        """The shape of the network that a recipe trains."""
        settings = recipe.training
        return cls(settings.heads, settings.layer_widths, settings.key_size, recipe.channels)

    @property
    def layers(self) -> int:
        return len(self.heads)

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """W_in [N_1, D]; W_Q_l, W_K_l [head, G, D]; W_V_l [head, N_{l+1}, N_l]; readout [N_a]."""
        shapes: dict[str, tuple[int, ...]] = {"W_in": (self.widths[0], self.channels)}
        for layer, heads in enumerate(self.heads, start=1):
            shapes[f"W_Q_{layer}"] = (heads, self.key_size, self.channels)
            shapes[f"W_K_{layer}"] = (heads, self.key_size, self.channels)
            shapes[f"W_V_{layer}"] = (heads, self.widths[layer], self.widths[layer - 1])
        shapes["readout"] = (self.widths[-1],)
        return shapes

    @property
    def parameter_count(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.parameter_shapes.values())


def draw_parameters(shape: TransformerShape, seed: int, stream_key: int) -> dict[str, np.ndarray]:
    """Parameters uniform within ±1/√(fan-in), the fan-in being the last axis; float32."""
    drawn = {}
    for position, (name, axes) in enumerate(shape.parameter_shapes.items()):
        limit = 1.0 / np.sqrt(axes[-1])
        values = stream(seed, stream_key, position).uniform(-limit, limit, axes)
        drawn[name] = values.astype(np.float32)
    return drawn
