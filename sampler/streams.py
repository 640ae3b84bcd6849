"""Random streams: everything that is drawn from a seed, each by a key of its own.

Streams of one seed are independent of each other, whatever recipe asks for them: data, teacher,
training, chains and bootstraps may have the same seed, as by default they do. The random starts of
the theory, which knows nothing of this table, are drawn from the seed itself, without a key.
"""

from enum import Enum, unique
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Array, Int, PRNGKeyArray

# No stream has more further entries than this.
MOST_FURTHER = 7


@unique
class Stream(Enum):
    """Purposes of random numbers: the first entry of a key, and how many entries follow it.

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
    # Of labels of a teacher.
    TEACHER_WEIGHTS = 5, 0
    TEACHER_NOISE = 6, 1  # split
    TEACHER_TEMPERATURE = 7, 0
    # Of a training: how its data are split, the network, its examples.
    CHARACTERS = 8, 0
    SERIES = 0, 1  # class
    PARAMETERS = 9, 1  # array
    EMBEDDING = 10, 0
    BATCHES = 2, 1  # block of steps
    CHOICE = 11, 0
    EVALUATION = 4, 1  # split
    # Of draws without data.
    PRIOR = 12, 0
    # Of chains: transitions, starts, shared state, observables.
    TRANSITIONS = 13, 0
    STARTS = 14, 0
    SHARED = 15, 0
    OBSERVATIONS = 16, 0
    # Of observables of one draw, parts of its key: f, new labels, labels given all others.
    FUNCTION = 17, 0
    NEW_LABELS = 18, 0
    LEFT_OUT_LABELS = 19, 0
    # Of weights drawn back from order parameters.
    WEIGHTS = 20, 1  # draw
    # Of points at which densities and gradients are examined.
    ROUNDING = 21, 0
    ROUGHNESS = 22, 0
    FIXED_ELEMENTS = 23, 0
    # Of the log evidence for chains.
    IMPORTANCE = 24, 0
    BRIDGE = 25, 0
    # Of tempered particles: the search for modes, and repetitions.
    FAR_STARTS = 26, 0
    CURVATURES = 27, 1  # end of a descent
    PARTICLES = 28, 2  # law in which they begin, repetition
    RESAMPLING = 29, 3  # distribution, repetition, temperature
    MOVES = 30, 3  # distribution, repetition, temperature
    # Of learned heads: logits without data, and what tells whether a head matters.
    PRIOR_LOGITS = 31, 0
    ANY_VECTORS = 32, 0
    ANY_LOGITS = 33, 2  # draw, head
    # Of samples drawn again, for errors.
    BOOTSTRAP = 34, 0
    TEST_SET_AGAIN = 35, 0
    # Of heads that a model loses.
    RANDOM_ORDERS = 37, 0
    SIZES_AGAIN = 38, 0

    def __init__(self, first: int, further: int) -> None:
        self.first = first
        self.further = further


def entries_of(of: Stream, further: tuple[int, ...]) -> tuple[int, ...]:
    """The entries of a key. Raises TypeError unless the stream has as many further ones."""
    if len(further) != of.further:
        raise TypeError(f"{of} takes {of.further} further entries, not {len(further)}")
    return of.first, *further


def stream(seed: int, of: Stream, *further: int) -> "np.random.Generator":
    """NumPy's random generator of this seed and key, independent of that of any other key."""
    import numpy as np  # only here: the command line starts without it

    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=entries_of(of, further)))


def jax_key(seed: "int | Int[Array, '']", of: Stream, *further: int) -> "PRNGKeyArray":
    """JAX's random key of this seed and key, and parent of no other key's children.

    The seed may be traced, so that no key is made by a program of its own.
    """
    import numpy as np

    first, *others = entries_of(of, further)
    number = np.int64(seed) if isinstance(seed, int) else seed
    entries = [(MOST_FURTHER + 1) * first + len(others), *others]
    return _folded_in()(number, np.array(entries, np.uint32))


def part_of_key(key: "PRNGKeyArray", of: Stream, *further: int) -> "PRNGKeyArray":
    """The key of a stream below another key, which is used for nothing but such parts.

    A key that is split has the children 0, 1, …, as if these were folded in. So where two streams
    differ in the number of further entries alone, their first entries must differ.
    """
    import jax

    first, *others = entries_of(of, further)
    for entry in ((MOST_FURTHER + 1) * first + len(others), *others):
        key = jax.random.fold_in(key, entry)
    return key


@cache
def _folded_in():
    """The key of a seed with numbers folded in, as one compiled function: its steps are four."""
    import jax

    def folded_in(seed, entries):
        key = jax.random.key(seed)
        for place in range(len(entries)):
            key = jax.random.fold_in(key, entries[place])
        return key

    return jax.jit(folded_in)
