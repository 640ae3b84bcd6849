"""One-shot episodes: two labelled drawings, and a query that is of the same character as one."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from sampler.images.drawings import Drawings

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
