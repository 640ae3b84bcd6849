"""Random streams: what is drawn from a user's seed, each by a key of its own.

Streams of one seed are independent of each other, whatever recipe asks for them: data, teacher,
training and the task of a trained model may have the same seed, as by default they do.
"""

from enum import Enum, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@unique
class Stream(Enum):
    """What random numbers are for: the first entry of a key, and how many entries follow it.

    Two streams share numbers only where the whole key is the same, so that one first entry serves
    two of them where a different number of entries follows.
    """

    # Of a task: data, and the weights of heads.
    TRAIN = 0, 0
    TEST = 1, 0
    VALIDATION = 3, 0
    HEADS = 2, 2  # layer, head
    # Of a task whose heads were trained.
    EPISODES_TO_VALIDATE = 2, 0
    RANDOM_HEADS = 3, 1  # array
    CHOSEN_SERIES = 1, 1  # split
    # Of labels of a teacher.
    TEACHER_WEIGHTS = 5, 0
    TEACHER_NOISE = 6, 1  # split
    TEACHER_TEMPERATURE = 7, 0
    # Of a training: how its data are split, the network, its examples.
    CHARACTERS = 8, 0
    SERIES = 0, 1  # class
    COMPOSITIONS = 100, 0
    PARAMETERS = 9, 1  # array
    EMBEDDING = 10, 0
    BATCHES = 2, 1  # block of steps
    CHOICE = 11, 0
    EVALUATION = 4, 1  # split
    # Of draws without data.
    PRIOR = 12, 0

    def __init__(self, first: int, further: int) -> None:
        self.first = first
        self.further = further


def stream(seed: int, of: Stream, *further: int) -> "np.random.Generator":
    """The random generator of this seed and this key, independent of that of any other key."""
    import numpy as np  # only here: the command line starts without it

    if len(further) != of.further:
        raise TypeError(f"{of} takes {of.further} further entries, not {len(further)}")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(of.first, *further)))
