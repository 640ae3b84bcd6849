"""Robust attention: what clipped keys are worth when keys are contaminated.

RPC attention (arXiv 2406.13762) takes keys for a smooth part and a few gross errors, clips them,
and lets every token attend by the similarity of its clipped key to those of the others. Here the
keys of a small task are contaminated: a share of their entries, wherever they are, is off by a
given number of standard deviations. What changes in the outputs of a head, and in the accuracy of
a network that was trained on clean keys?

The task: 32 tokens of a sequence belong to four groups. A group has a random key of its own and a
class, ±1; each token shows the key of its group and, weakly, its class. The last token is read
out, and its class is clear only to a head that averages over its group. Keys say nothing about
classes, so that all depends on attention. Two heads see other keys of the same groups.

    python -m runs.studies.robust_attention.study     ten data seeds, minutes
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.study import Study, mean_over
from runs.studies.tables import table
from sampler.attention.variants import AttentionVariant, Robust, Softmax
from sampler.presentation import style

TOKENS, GROUPS, CHANNELS, KEY_CHANNELS, HEADS = 32, 4, 16, 16, 2
GAIN, KEY_NOISE, CLASS_SIZE = 1.5, 0.5, 0.7
TRAIN, TEST, WIDTH, TEMPERATURE = 100, 300, 10, 0.1
SHARES, SIZES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4), (1.0, 3.0, 10.0, 30.0)
SHARE, SIZE = 0.1, 10.0  # each is fixed while the other varies


@dataclass(frozen=True)
class Competitor:
    """A variant, whether its queries are the keys of the same tokens, and what clips its keys."""

    name: str
    colour: str
    marker: str
    variant: AttentionVariant
    keys_alone: bool = False
    limit: float = np.inf

    def attention(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Ω [example, head, key, query]."""
        clipped = np.clip(keys, -self.limit, self.limit)
        return self.variant.matrices(keys if self.keys_alone else queries, clipped)


# Limits are 1 and 2 standard deviations of clean keys.
COMPETITORS = (
    Competitor("softmax", style.BLUE, "o", Softmax()),
    Competitor("softmax, keys clipped at 1", style.SKY_BLUE, "v", Softmax(), limit=GAIN),
    Competitor("softmax of keys alone", style.BLACK, "s", Softmax(), keys_alone=True),
    Competitor("RPC, limit 2", style.ORANGE, "D", Robust(limit=2.0 * GAIN), keys_alone=True),
    Competitor("RPC, limit 1", style.VERMILLION, "^", Robust(limit=GAIN), keys_alone=True),
)
CONDITIONS = [(share, SIZE) for share in SHARES]
CONDITIONS += [(SHARE, size) for size in SIZES if size != SIZE]
NAMES = tuple(competitor.name for competitor in COMPETITORS)
MEASURES = ("outputs", "accuracy")


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
    return {one.name: of_competitor(one, train, test, dirty) for one in COMPETITORS}


def by_condition(values: np.ndarray) -> dict[str, dict]:
    """Means over data seeds, of values [seed, condition]."""
    return {
        f"{100 * share:g} % by {size:g}": mean_over(of, "data seeds")
        for (share, size), of in zip(CONDITIONS, values.T, strict=True)
    }


def summary(rows: dict[str, dict]) -> dict[str, dict]:
    """Means over data seeds, and paired differences of accuracies."""

    def of(name: str, key: str) -> np.ndarray:
        return np.array([row[name][key] for row in rows.values()])

    numbers = {key: {name: by_condition(of(name, key)) for name in NAMES} for key in MEASURES}
    for key, other, names in (
        ("minus softmax", NAMES[0], NAMES[1:]),
        ("minus clipped", NAMES[1], NAMES[3:]),
    ):
        numbers[key] = {
            name: by_condition(of(name, "accuracy") - of(other, "accuracy")) for name in names
        }
    return numbers


def draw(numbers: dict[str, dict]) -> Figure:
    """Draw errors of outputs and accuracies against the share of entries that are off."""
    figure = style.new_figure(
        style.WIDTH, 3.4, f"Entries of the keys off by {SIZE:g} standard deviations"
    )
    labels = ("error of outputs", f"accuracy (%), N = {WIDTH}")
    panels = zip(figure.subplots(1, 2), MEASURES, (1.0, 100.0), labels, strict=True)
    for axes, key, times, label in panels:
        for one in COMPETITORS:
            shown = [numbers[key][one.name][f"{100 * share:g} % by {SIZE:g}"] for share in SHARES]
            values, errors = (times * np.array([of[part] for of in shown]) for part in
                              ("value", "error"))  # fmt: skip
            marks = {"color": one.colour, "marker": one.marker, "markersize": 4.0}
            axes.errorbar(
                [100 * share for share in SHARES], values, errors, label=one.name, **marks
            )
        axes.set(ylabel=label, xlabel="entries off (%)")
    style.legend_below(figure, figure.axes[0].get_legend_handles_labels(), columns=2)
    return figure


COLUMNS = {
    "clean: accuracy": ("accuracy/0 % by 10", 3),
    "10 % of entries off by 10: error of outputs": ("outputs/10 % by 10", 3),
    "accuracy": ("accuracy/10 % by 10", 3),
    "40 % off by 10: accuracy": ("accuracy/40 % by 10", 3),
    "10 % off by 30: accuracy": ("accuracy/10 % by 30", 3),
}

DIFFERENCES = {
    "clean": ("0 % by 10", 1, 100),
    "10 % off by 1": ("10 % by 1", 1, 100),
    "10 % off by 10": ("10 % by 10", 1, 100),
    "10 % off by 30": ("10 % by 30", 1, 100),
    "40 % off by 10": ("40 % by 10", 1, 100),
}


def tables(numbers: dict) -> dict[str, list]:
    """Errors and accuracies, and differences from softmax and from softmax of clipped keys."""
    rows = {name: {key: numbers[key][name] for key in MEASURES} for name in NAMES}
    pairs = {
        f"{name} | {words}": numbers[key][name]
        for key, words in (("minus softmax", "softmax"), ("minus clipped", "clipped softmax"))
        for name in numbers[key]
    }
    return {
        "conditions": table("", rows, COLUMNS),
        "differences": table("accuracy (points) | less that of", pairs, DIFFERENCES),
    }


STUDY = Study(
    __file__,
    points=lambda small, folder: {str(seed): (measure, seed) for seed in range(2 if small else 10)},
    numbers=summary,
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw(numbers)},
)

if __name__ == "__main__":
    STUDY.run()
