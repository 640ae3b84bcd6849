"""What a training reads: patches of every drawing on the device, and episodes by step."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from sampler.images.drawings import Drawings
from sampler.images.episodes import UNKNOWN, Episodes, draw_episodes
from sampler.images.patches import normalised_patches, position_table
from sampler.random_streams import stream
from sampler.recipes.episode_tokens import TOKENS
from sampler.recipes.training_recipe import TrainingRecipe

# First entries of the spawn keys: no two purposes share random numbers.
PARAMETERS, EMBEDDING, EPISODES, CHOICE, EVALUATION = range(5)
# Steps whose episodes are drawn at once.
BLOCK = 100
PIECE = 1000


def draw_embedding(recipe: TrainingRecipe) -> np.ndarray:
    """The frozen N(0, 1) embedding of the labels 0, 1 and unknown, [label, channel], float32."""
    shape = (UNKNOWN + 1, recipe.channels)
    generator = stream(recipe.training.seed, EMBEDDING)
    return generator.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class PatchTable:
    """Everything the inputs of episodes are gathered from, float32."""

    patches: Float32[Array, "drawing patch channel"]
    positions: Float32[Array, "token channel"]
    embedding: Float32[Array, "label channel"]


def patch_table(drawings: Drawings, embedding: np.ndarray, copies: int) -> PatchTable:
    """The patches of all drawings, a thousand drawings at a time to bound memory."""
    pieces = [
        normalised_patches(drawings.images[start : start + PIECE], copies).astype(np.float32)
        for start in range(0, len(drawings.images), PIECE)
    ]
    positions = position_table(TOKENS, embedding.shape[1]).astype(np.float32)
    return PatchTable(
        jnp.asarray(np.concatenate(pieces)), jnp.asarray(positions), jnp.asarray(embedding)
    )


def training_block(drawings: Drawings, recipe: TrainingRecipe, block: int) -> Episodes:
    """The episodes of 100 steps, one batch after the other, whatever was drawn before."""
    settings = recipe.training
    generator = stream(settings.seed, EPISODES, block)
    return draw_episodes(drawings, BLOCK * settings.batch, generator)


def part(episodes: Episodes, start: int, end: int) -> Episodes:
    """Some episodes out of many."""
    return Episodes(
        episodes.drawings[start:end], episodes.labels[start:end], episodes.targets[start:end]
    )
