"""One-shot episodes of drawings of characters, and their tokens."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int

from sampler.attention.variants import Array
from sampler.data.image_files import SIDE, Drawings

PATCH = 8  # pixels of a patch
GRID = SIDE // PATCH  # rows, and columns, of patches
PATCHES = GRID**2  # of one image
IMAGES = 3  # of one episode
TOKENS = IMAGES * PATCHES
# Keeps blank patches, which have no variance, at zero.
EPSILON = 1e-5
# Labels of the images of an episode; the third says that this is for the network to find out.
CLASSES, UNKNOWN = 2, 2


@dataclass(frozen=True)
class PickedExamples:
    """Examples that a network learns: numbers by which inputs are gathered, and their targets.

    places   of an episode the rows of its images in `Drawings.images`, [example, image], two
             supports and the query, and their labels: 0 or 1 for a support, 2 for the query
    targets  of an episode +1 where the query is of the character labelled 1, −1 for the other
    """

    places: tuple[Int[np.ndarray, " example *_image"], ...]
    targets: Float[np.ndarray, " example *output"]

    @property
    def examples(self) -> int:
        return len(self.targets)

    def part(self, start: int, end: int) -> "PickedExamples":
        return PickedExamples(
            tuple(numbers[start:end] for numbers in self.places), self.targets[start:end]
        )


def draw_episodes(
    drawings: Drawings, examples: int, generator: np.random.Generator
) -> PickedExamples:
    """Episodes of two different characters, each equally likely.

    Order and labels of the supports are fair coins, independent of each other, and so is which of
    them is asked for. The query is any other drawing of its character.
    """
    count = drawings.characters
    first = generator.integers(count, size=examples)
    other = (first + 1 + generator.integers(count - 1, size=examples)) % count
    pair = np.stack([first, other], axis=1)
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
) -> PickedExamples:
    """Episodes from drawings, the label of the first support, and the support asked for."""
    labels = np.stack([label, 1 - label, np.full_like(label, UNKNOWN)], axis=1)
    target = labels[np.arange(label.size), asked]
    images = np.concatenate([supports, query[:, None]], axis=1)
    return PickedExamples((images, labels), 2.0 * target - 1.0)


def normalised_patches(
    images: Float32[np.ndarray, "drawing row column"], copies: int = 1
) -> Float[np.ndarray, "drawing patch channel"]:
    """Patches in row-major order, each with mean 0 and variance 1: LayerNorm without a scale.

    (patch − mean)/√(variance + 10⁻⁵); `copies` repeats every patch along its channels, as in images
    with equal colours.
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
    patches: Float[Array, "drawing patch channel"],
    positions: Float[Array, "token channel"],
    embedding: Float[Array, "label channel"],
    drawings: Int[Array, "example image"],
    labels: Int[Array, "example image"],
) -> Float[Array, "example token channel"]:
    """x_0 = patch + position + embedding of the image's label; supports first, then the query."""
    labelled = patches[drawings] + embedding[labels][:, :, None, :]
    return labelled.reshape(len(drawings), *positions.shape) + positions
