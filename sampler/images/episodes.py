"""One-shot episodes: their drawing, their tokens, and the nearest neighbour that answers them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int

from sampler.images.drawings import Drawings
from sampler.recipes.training_recipe import GRID, PATCH, PATCHES

# Labels of the images of an episode; the third says that this is for the network to find out.
CLASSES, UNKNOWN = 2, 2


@dataclass(frozen=True)
class Episodes:
    """Two supports and the query of every episode.

    drawings  rows of `Drawings.images`
    labels    0 or 1 for a support, 2 for the query
    targets   +1 where the query is of the character labelled 1, −1 where it is of the other
    """

    drawings: Int[np.ndarray, "example image"]
    labels: Int[np.ndarray, "example image"]
    targets: Float[np.ndarray, " example"]

    @property
    def examples(self) -> int:
        return self.targets.size

    @property
    def places(self) -> tuple[np.ndarray, ...]:
        """What the inputs are gathered by."""
        return self.drawings, self.labels

    def part(self, start: int, end: int) -> "Episodes":
        """Some of the episodes."""
        return Episodes(self.drawings[start:end], self.labels[start:end], self.targets[start:end])


def draw_episodes(drawings: Drawings, examples: int, generator: np.random.Generator) -> Episodes:
    """Episodes of two different characters, each equally likely.

    Order and labels of the supports are fair coins, independent of each other, and so is which of
    them is asked for. The query is any other drawing of its character.
    """
    count = drawings.characters
    one = generator.integers(count, size=examples)
    other = (one + 1 + generator.integers(count - 1, size=examples)) % count
    pair = np.stack([one, other], axis=1)
    support = generator.integers(drawings.counts[pair])
    label = generator.integers(CLASSES, size=examples)
    asked = generator.integers(2, size=examples)
    rows = np.arange(examples)
    character = pair[rows, asked]
    drawn = drawings.counts[character]
    query = (support[rows, asked] + 1 + generator.integers(drawn - 1)) % drawn
    first = drawings.first
    return make_episodes(first[pair] + support, first[character] + query, label, asked)


def make_episodes(
    supports: Int[np.ndarray, "example support"],
    query: Int[np.ndarray, " example"],
    label: Int[np.ndarray, " example"],
    asked: Int[np.ndarray, " example"],
) -> Episodes:
    """Episodes from drawings, the label of the first support, and the support asked for."""
    labels = np.stack([label, 1 - label, np.full_like(label, UNKNOWN)], axis=1)
    target = labels[np.arange(label.size), asked]
    return Episodes(np.concatenate([supports, query[:, None]], axis=1), labels, 2.0 * target - 1.0)


# Keeps blank patches, which have no variance, at zero.
EPSILON = 1e-5


def normalised_patches(
    images: Float32[np.ndarray, "drawing row column"], copies: int = 1
) -> Float[np.ndarray, "drawing patch channel"]:
    """Patches in row-major order, each with mean 0 and variance 1: LayerNorm without a scale.

    (patch − mean)/√(variance + 10⁻⁵); `copies` repeats every patch along its channels, as images
    with so many equal colours have it.
    """
    split = images.astype(np.float64).reshape(-1, GRID, PATCH, GRID, PATCH)
    patches = split.transpose(0, 1, 3, 2, 4).reshape(-1, PATCHES, PATCH * PATCH)
    centred = patches - patches.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(centred.var(axis=-1, keepdims=True) + EPSILON)
    return np.tile(scaled, copies)


def position_table(tokens: int, channels: int) -> Float[np.ndarray, "token channel"]:
    """Sinusoidal positions, standardised as a whole: mean 0 and variance 1 over all entries.

    sin(t/10000^(2i/D)) at channel 2i, the cosine at channel 2i + 1.
    """
    frequency = 10000.0 ** (-np.arange(0, channels, 2) / channels)
    angle = np.arange(tokens)[:, None] * frequency
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(tokens, -1)[:, :channels]
    return (table - table.mean()) / table.std()


def episode_inputs(
    patches: Float[np.ndarray, "drawing patch channel"],
    drawings: Int[np.ndarray, "example image"],
    labels: Int[np.ndarray, "example image"],
    embedding: Float[np.ndarray, "label channel"],
) -> Float[np.ndarray, "example token channel"]:
    """x_0 = patch + position + embedding of the image's label; supports first, then the query."""
    labelled = patches[drawings] + embedding[labels][:, :, None, :]
    inputs = labelled.reshape(len(drawings), -1, patches.shape[-1])
    return inputs + position_table(inputs.shape[1], inputs.shape[2])


def nearest_neighbour(drawings: Drawings, episodes: Episodes) -> Float[np.ndarray, " example"]:
    """The target of the support that has the smaller squared pixel distance; 0 if both have it."""
    images = drawings.images.reshape(len(drawings.images), -1)
    query = images[episodes.drawings[:, 2]]
    first, second = (
        np.square(images[episodes.drawings[:, support]] - query).sum(axis=1, dtype=np.float64)
        for support in range(2)
    )
    return (2.0 * episodes.labels[:, 0] - 1.0) * np.sign(second - first)
