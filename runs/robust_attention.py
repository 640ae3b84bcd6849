# %% [markdown]
# # Robust attention: what clipped keys are worth when keys are contaminated
#
# RPC attention (arXiv 2406.13762) takes keys for a smooth part and a few gross errors, clips them,
# and lets every token attend by the similarity of its clipped key to those of the others. Here the
# keys of a small task are contaminated: a share of their entries, wherever they are, is off by a
# given number of standard deviations. What changes in the outputs of a head, and in the accuracy of
# a network that was trained on clean keys?
#
# The task: 32 tokens of a sequence belong to four groups. A group has a random key of its own and a
# class, ±1; each token shows the key of its group and, weakly, its class. The last token is read
# out, and its class is clear only to a head that averages over its group. Keys say nothing about
# classes, so that all depends on attention. Two heads see other keys of the same groups.
#
#     python runs/robust_attention.py [FOLDER] [SEEDS]
#
# by default into runs/results/robust_attention, over 10 data seeds.

# %%
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from renew import estimate, record

import sampler
from sampler.attention.variants import AttentionVariant, Robust, Softmax
from sampler.presentation import style

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/robust_attention")
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
TOKENS, GROUPS, CHANNELS, KEY_CHANNELS, HEADS = 32, 4, 16, 16, 2
GAIN, KEY_NOISE, CLASS_SIZE = 1.5, 0.5, 0.7
TRAIN, TEST, WIDTH, TEMPERATURE = 100, 300, 10, 0.1
SHARES, SIZES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4), (1.0, 3.0, 10.0, 30.0)
SHARE, SIZE = 0.1, 10.0  # the one is held while the other varies


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
    Competitor(
        "RPC, limit 1, 3 iterations", style.PURPLE, "X", Robust(limit=GAIN, iterations=3), True
    ),
)
SAMPLED = ("softmax", "RPC, limit 1")  # whose exact posterior is drawn, in the first seeds
SAMPLED_SEEDS = 3
CONDITIONS = [(share, SIZE) for share in SHARES]
CONDITIONS += [(SHARE, size) for size in SIZES if size != SIZE]


# %%
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


def measured(seed: int) -> dict[str, np.ndarray]:
    """Error of outputs and accuracies, [competitor, condition]; NaN where nothing was sampled.

    All competitors and conditions see the same sequences, and the same entries are off for sizes.
    """
    rng = np.random.default_rng([seed, 0])
    direction = rng.standard_normal(CHANNELS)
    direction /= np.linalg.norm(direction)
    train, test = (draw_sequences(rng, direction, examples) for examples in (TRAIN, TEST))
    dirty = [
        contaminated(test.keys, share, size, np.random.default_rng([seed, 1]))
        for share, size in CONDITIONS
    ]
    rows = []
    for competitor in COMPETITORS:
        clean = competitor.attention(test.queries, test.keys)
        found = [competitor.attention(test.queries, keys) for keys in dirty]
        outputs = [np.einsum("xhkq,xkc->xhqc", one, test.tokens) for one in (clean, *found)]
        size = np.linalg.norm(outputs[0])
        errors = np.array([np.linalg.norm(one - outputs[0]) / size for one in outputs[1:]])
        task = sampler.arrays_task(
            inputs_train=train.tokens,
            labels_train=train.labels,
            attention_train=[competitor.attention(train.queries, train.keys)],
            inputs_test=np.tile(test.tokens, (len(dirty), 1, 1)),
            labels_test=np.tile(test.labels, len(dirty)),
            attention_test=[np.concatenate(found)],
        )
        network = sampler.make_network(widths=WIDTH, temperature=TEMPERATURE)
        solved = sampler.solve(task, network)
        predictors = {"theory": "leading", "infinite width": "infinite"}
        means = {
            name: solved["predictor_mean"].sel(predictor=one) for name, one in predictors.items()
        }
        if seed < SAMPLED_SEEDS and competitor.name in SAMPLED:
            draws = sampler.sample(task, network)
            means["exact posterior"] = draws["predictions"]["predictor_mean"].mean(
                ("chain", "draw")
            )
        row = {"outputs": errors, "exact posterior": np.full(len(dirty), np.nan)}
        for name, mean in means.items():
            right = np.sign(np.reshape(np.asarray(mean), (len(dirty), TEST))) == test.labels
            row[name] = right.mean(axis=1)
        rows.append(row)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


# %%
by_seed = [measured(seed) for seed in range(SEEDS)]
found = {name: np.stack([one[name] for one in by_seed]) for name in by_seed[0]}


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds (the first axis) and its standard error, seeds without a number left out."""
    values = values[~np.isnan(values).any(axis=tuple(range(1, values.ndim)))]
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


numbers = {}


def table(what: str, key: str, values: np.ndarray, rows: list[str]) -> None:
    """Print a row of mean ± standard error for each competitor, a column for each condition."""
    mean, error = mean_and_error(values)
    kind = f"over {SEEDS} data seeds"
    numbers[key] = {
        row: {
            f"{100 * share:g} % by {size:g}": estimate(one, by, kind)
            for (share, size), one, by in zip(CONDITIONS, means, errors, strict=True)
        }
        for row, means, errors in zip(rows, mean, error, strict=True)
    }
    print(f"\n{what}, mean ± standard error over {SEEDS} seeds")
    heads = [f"{share:.0%} by {size:g}" for share, size in CONDITIONS]
    print(f"{'entries off':31}" + "".join(f"{head:>15}" for head in heads))
    for row, means, errors in zip(rows, mean, error, strict=True):
        cells = [f"{one:.3f} ± {by:.3f}" for one, by in zip(means, errors, strict=True)]
        print(f"{row:31}" + "".join(f"{cell:>15}" for cell in cells))


NAMES = [competitor.name for competitor in COMPETITORS]
table("error of outputs, |Z − Z_clean|/|Z_clean|", "outputs", found["outputs"], NAMES)
table(f"accuracy, theory, N = {WIDTH}", "accuracy", found["theory"], NAMES)
table("accuracy, infinite width", "infinite width", found["infinite width"], NAMES)
gain = found["theory"][:, 1:] - found["theory"][:, :1]
table("accuracy, theory, minus that of softmax", "minus softmax", gain, NAMES[1:])
loss = found["theory"][:, 3:] - found["theory"][:, 1:2]
table("accuracy, theory, minus that of softmax with clipped keys", "minus clipped", loss, NAMES[3:])
places = [NAMES.index(name) for name in SAMPLED]
sampled = [found[name][:, places] for name in ("exact posterior", "theory")]
mean, error = mean_and_error((sampled[0] - sampled[1]).mean(axis=2))
print("\naccuracy of the exact posterior minus theory, mean over conditions, first seeds:")
for name, one, by in zip(SAMPLED, mean, error, strict=True):
    print(f"  {name}: {100 * one:.2f} ± {100 * by:.2f} points")
numbers["exact minus theory"] = {
    name: estimate(one, by, f"over {min(SEEDS, SAMPLED_SEEDS)} data seeds")
    for name, one, by in zip(SAMPLED, mean, error, strict=True)
}


# %%
def draw_panel(axes, values: np.ndarray, conditions: list[tuple[float, float]], by_share: bool):
    """One line with error bars for each competitor along the shares or the sizes."""
    mean, error = mean_and_error(values)
    places = [CONDITIONS.index(one) for one in conditions]
    along = [100 * share if by_share else size for share, size in conditions]
    for competitor, means, errors in zip(COMPETITORS, mean, error, strict=True):
        axes.errorbar(
            along,
            means[places],
            errors[places],
            color=competitor.colour,
            marker=competitor.marker,
            markersize=4.0,
            label=competitor.name,
        )


with style.figure_style():
    figure = style.new_figure(style.WIDTH, 6.0)
    figure.suptitle("Attention with contaminated keys")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    by_share = [(share, SIZE) for share in SHARES]
    by_size = [(SHARE, size) for size in SIZES]
    for row, name in zip(panels, ("outputs", "theory"), strict=True):
        shown = found[name] if name == "outputs" else 100 * found[name]
        draw_panel(row[0], shown, by_share, by_share=True)
        draw_panel(row[1], shown, by_size, by_share=False)
    panels[0, 0].set(ylabel="error of outputs", title=f"off by {SIZE:g} standard deviations")
    panels[0, 1].set(title=f"{SHARE:.0%} of the entries off", xscale="log")
    panels[1, 0].set(ylabel=f"accuracy (%), theory, N = {WIDTH}", xlabel="entries off (%)")
    panels[1, 1].set(xlabel="off by (standard deviations)", xticks=SIZES)
    panels[1, 1].set_xticklabels([f"{size:g}" for size in SIZES])
    panels[1, 1].minorticks_off()
    style.legend_below(figure, panels[0, 0].get_legend_handles_labels(), columns=2)
    written = style.save_figure(figure, folder, "robust_attention")
print("figure:", *written)
record(
    folder,
    "robust_attention",
    numbers,
    made_by="python runs/robust_attention.py",
    seeds=list(range(SEEDS)),
)
