"""Independent streams of random numbers from one seed."""

import numpy as np


def stream(seed: int, *key: int) -> np.random.Generator:
    """The random generator of this seed and this key, independent of that of any other key."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
