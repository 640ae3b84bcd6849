"""The baseline: which support has the pixels nearest to those of the query."""

import numpy as np
from jaxtyping import Float

from sampler.images.drawings import Drawings
from sampler.images.episodes import Episodes


def nearest_neighbour(drawings: Drawings, episodes: Episodes) -> Float[np.ndarray, " example"]:
    """The target of the support that has the smaller squared pixel distance; 0 if both have it."""
    images = drawings.images.reshape(len(drawings.images), -1)
    query = images[episodes.drawings[:, 2]]
    distance = np.stack(
        [
            np.square(images[episodes.drawings[:, support]] - query).sum(axis=1, dtype=np.float64)
            for support in range(2)
        ]
    )
    of_first = 2.0 * episodes.labels[:, 0] - 1.0
    return of_first * np.sign(distance[1] - distance[0])
