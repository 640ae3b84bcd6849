"""The task of contaminated keys, and the attention of variants whose keys are clipped or not."""

from dataclasses import dataclass

import numpy as np

import sampler
from sampler.attention.variants import VARIANTS, AttentionVariant

TOKENS, GROUPS, CHANNELS, KEY_CHANNELS, HEADS = 32, 4, 16, 16, 2
GAIN, KEY_NOISE, CLASS_SIZE = 1.5, 0.5, 0.7
TRAIN, TEST, WIDTH, TEMPERATURE = 100, 300, 10, 0.1
SHARES, SIZES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4), (1.0, 3.0, 10.0, 30.0)
SHARE, SIZE = 0.1, 10.0  # each is fixed while the other varies
CONDITIONS = [(share, SIZE) for share in SHARES]
CONDITIONS += [(SHARE, size) for size in SIZES if size != SIZE]


@dataclass(frozen=True)
class Competitor:
    """A variant, whether its queries are the keys of the same tokens, and what clips its keys."""

    variant: AttentionVariant
    keys_alone: bool = False
    limit: float = np.inf

    def attention(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Ω [example, head, key, query]."""
        clipped = np.clip(keys, -self.limit, self.limit)
        return self.variant.matrices(keys if self.keys_alone else queries, clipped)


SOFTMAX, RPC = VARIANTS["softmax"](), VARIANTS["robust"]
# Limits are 1 and 2 standard deviations of clean keys.
COMPETITORS = {
    "softmax": Competitor(SOFTMAX),
    "softmax, keys clipped at 1": Competitor(SOFTMAX, limit=GAIN),
    "softmax of keys alone": Competitor(SOFTMAX, keys_alone=True),
    "RPC, limit 2": Competitor(RPC(limit=2.0 * GAIN), keys_alone=True),
    "RPC, limit 1": Competitor(RPC(limit=GAIN), keys_alone=True),
}


@dataclass(frozen=True)
class Sequences:
    """Tokens [example, token, channel], queries and keys [example, head, token, …], labels."""

    tokens: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    labels: np.ndarray


def draw_sequences(rng: np.random.Generator, direction: np.ndarray, examples: int) -> Sequences:
    """Sequences with clean keys; `direction` is that of the classes."""
    group = rng.permuted(np.tile(np.arange(TOKENS) % GROUPS, (examples, 1)), axis=1)
    classes = rng.choice([-1.0, 1.0], (examples, GROUPS))
    of_token = np.take_along_axis(classes, group, axis=1)
    noise = rng.standard_normal((examples, TOKENS, CHANNELS))
    tokens = CLASS_SIZE * of_token[:, :, None] * direction + noise
    centres = rng.standard_normal((examples, HEADS, GROUPS, KEY_CHANNELS))
    points = np.take_along_axis(centres, group[:, None, :, None], axis=2)
    queries, keys = (
        GAIN * (points + KEY_NOISE * rng.standard_normal(points.shape)) / np.hypot(1.0, KEY_NOISE)
        for _ in range(2)
    )
    return Sequences(tokens, queries, keys, of_token[:, -1])


def contaminated(keys: np.ndarray, share: float, size: float, rng) -> np.ndarray:
    """Keys of which a share of the entries is off by ± size standard deviations."""
    where = rng.random(keys.shape) < share
    return keys + where * size * GAIN * rng.choice([-1.0, 1.0], keys.shape)


def of_competitor(competitor: Competitor, train: Sequences, test: Sequences, dirty: list):
    """Error of outputs, and accuracy of the theory, of a competitor, by condition."""
    clean = competitor.attention(test.queries, test.keys)
    found = [competitor.attention(test.queries, keys) for keys in dirty]
    outputs = [np.einsum("xhkq,xkc->xhqc", one, test.tokens) for one in (clean, *found)]
    size = np.linalg.norm(outputs[0])
    recipe = sampler.Recipe(
        task=sampler.Arrays(
            inputs=train.tokens,
            labels=train.labels,
            attention=[competitor.attention(train.queries, train.keys)],
            inputs_test=np.tile(test.tokens, (len(dirty), 1, 1)),
            labels_test=np.tile(test.labels, len(dirty)),
            attention_test=[np.concatenate(found)],
        ),
        network={"widths": WIDTH},
        posterior={"temperature": TEMPERATURE},
        theory={"starts": 1, "next_order": False},
    )
    solved = sampler.solve(recipe)["predictor_mean"]
    mean = np.asarray(solved.sel(predictor="leading")).reshape(len(dirty), TEST)
    return {
        "outputs": [np.linalg.norm(one - outputs[0]) / size for one in outputs[1:]],
        "accuracy": (np.sign(mean) == test.labels).mean(axis=1).tolist(),
    }


def measure(seed: int) -> dict[str, dict]:
    """What every competitor does, on the same sequences; the same entries are off for all sizes."""
    rng = np.random.default_rng([seed, 0])
    direction = rng.standard_normal(CHANNELS)
    direction /= np.linalg.norm(direction)
    train, test = (draw_sequences(rng, direction, examples) for examples in (TRAIN, TEST))
    dirty = [
        contaminated(test.keys, share, size, np.random.default_rng([seed, 1]))
        for share, size in CONDITIONS
    ]
    return {name: of_competitor(one, train, test, dirty) for name, one in COMPETITORS.items()}
