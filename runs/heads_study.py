# %% [markdown]
# # Which heads matter? Models of several kinds, every head removed
#
# What does a trained model lose without a head, and which number told so beforehand? Encoders of
# PyTorch learn to look something up, to continue a repetition, to read digits and to tell apart
# time series; transformers of the command `train` learn one-shot classification. Of each,
# `ablate_heads` removes every head on unseen examples and holds against that what the theory and
# practitioners' scores predict from other examples.
#
#     python runs/heads_study.py [FOLDER] [MODEL …]   (hours; default runs/results/heads_study)
#
# A model whose result is in the folder is not made again. `one_shot_A` to `one_shot_H` are the
# trainings of `one_shot_trainings.py` and need the files of Omniglot in runs/omniglot (see
# `runs/one_shot_train_omniglot.toml`). Options ask what the theory
# misses, each with a folder of its own: `--exact` samples the exact posterior as well, `--width`
# and `--learned` are units and examples of the theory of encoders, `--keep-order-parameter` leaves
# out the theory solved again without each head.

# %%
import argparse
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from renew import estimate, record

import sampler
from sampler.heads.measures import PREDICTIONS
from sampler.heads.removal import RemovedHeads
from sampler.presentation import style
from sampler.storage.results import from_json, to_json
from sampler.storage.run_directory import read_json, write_json

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this study needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

torch.set_num_threads(1)  # these matrices are too small for more
SYMBOLS, WIDTH, BATCH = 8, 32, 64
LEARNED, UNSEEN = 100, 1000  # examples of the theory; of predictions and of removal
parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="runs/results/heads_study", type=Path)
parser.add_argument("models", nargs="*", metavar="model", help="by default all")
parser.add_argument("--exact", action="store_true")
parser.add_argument("--width", default=20, type=int)
parser.add_argument("--learned", default=LEARNED, type=int)
parser.add_argument("--keep-order-parameter", action="store_true")
arguments = parser.parse_args()
folder, recipes = arguments.folder, Path(__file__).parent


# %% [markdown]
# ## Tasks: tokens [example, token, channel], and labels ±1
# %%
def with_places(tokens: torch.Tensor) -> torch.Tensor:
    """Channels that say where a token is."""
    places = torch.eye(tokens.shape[1]).expand(len(tokens), -1, -1)
    return torch.cat([tokens, places], dim=2)


def look_up(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Five items of key and value, then a query: its label is the value of that key."""
    items, each = 5, torch.arange(examples)
    keys = torch.rand(examples, SYMBOLS).argsort(dim=1)[:, :items]
    values = 2.0 * torch.randint(0, 2, (examples, items)) - 1.0
    chosen = torch.randint(0, items, (examples,))
    shown = torch.cat([keys, keys[each, chosen, None]], dim=1)
    tokens = nn.functional.one_hot(shown, SYMBOLS) + 0.2 * torch.randn(examples, 6, SYMBOLS)
    marks = torch.zeros(examples, items + 1, 2)
    marks[:, :items, 0], marks[:, items, 1] = values, 1.0
    return with_places(torch.cat([tokens, marks], dim=2)), values[each, chosen]


def induction(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Seven symbols, the last one of them seen before: in which half is the one that followed?"""
    each, order = torch.arange(examples), torch.rand(examples, SYMBOLS).argsort(dim=1)
    before = torch.randint(0, 5, (examples,))
    shown = torch.cat([order[:, :6], order[each, before, None]], dim=1)
    tokens = nn.functional.one_hot(shown, SYMBOLS) + 0.1 * torch.randn(examples, 7, SYMBOLS)
    following = order[each, before + 1]
    return with_places(tokens), torch.where(following < SYMBOLS // 2, -1.0, 1.0)


def of_arrays(
    inputs: np.ndarray, labels: np.ndarray, examples: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Some of these examples by chance."""
    chosen = torch.randperm(len(inputs))[:examples]
    return torch.as_tensor(inputs)[chosen].float(), torch.as_tensor(labels)[chosen].float()


# %% [markdown]
# ## Models
# %%
class Encoder(nn.Module):
    """A post-norm encoder, read out at its last token, or at the mean of all."""

    def __init__(self, channels: int, layers: int, heads: int, mean: bool) -> None:
        super().__init__()
        self.embedding = nn.Linear(channels, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, heads, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.readout, self.mean = nn.Linear(WIDTH, 1), mean

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embedding(tokens))
        return self.readout(hidden.mean(dim=1) if self.mean else hidden[:, -1])[:, 0]


def trained_encoder(draw, layers: int, heads: int, mean: bool, steps: int) -> Encoder:
    """Adam on new batches, its learning rate falling to 0."""
    model = Encoder(draw(1)[0].shape[2], layers, heads, mean).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        tokens, labels = draw(BATCH)
        loss = nn.functional.softplus(-labels * model(tokens)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model


def encoder(task: str, layers: int, heads: int, steps: int, seed: int) -> RemovedHeads:
    """Train an encoder on a task and remove its heads; 𝒯 = 0.1 in the theory."""
    torch.manual_seed(seed)
    drawn = {"look_up": look_up, "induction": induction}
    if task in drawn:
        learn = drawn[task]
        splits = {
            name: learn(count)
            for name, count in (("train", LEARNED), ("validation", UNSEEN), ("test", UNSEEN))
        }
    else:
        arrays = arrays_of(task, seed)
        learn = partial(of_arrays, *arrays["learned"])
        splits = {"train": learn(LEARNED)} | {
            name: of_arrays(*arrays[name], UNSEEN) for name in ("validation", "test")
        }
    mean = task not in drawn
    model = trained_encoder(learn, layers, heads, mean, steps)
    if arguments.learned != LEARNED:  # drawn now, so that the model is the same
        splits["train"] = learn(arguments.learned)
    network = sampler.make_network(
        widths=arguments.width, temperature=0.1, readout="mean" if mean else "last"
    )
    return sampler.ablate_heads(
        model,
        network,
        **splits,
        solve_again=not arguments.keep_order_parameter,
        exact=arguments.exact,
        seed=seed,
    ).result


def arrays_of(task: str, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of what is learned, of validation, and of the test."""
    if task == "time_series":
        made = sampler.time_series_task(
            examples_train=4000, examples_validation=UNSEEN, examples_test=UNSEEN,
            tokens=12, channels=4, lag=3, noise=0.5, seed=seed,
        ).data  # fmt: skip
        named = {"learned": made.train, "validation": made.validation, "test": made.test}
        return {name: (one.inputs, one.labels[:, 0]) for name, one in named.items()}
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    rows = digits.images[order] / 8.0 - 1.0  # a token is a row of pixels
    rows = np.concatenate([rows, np.broadcast_to(np.eye(8), rows.shape)], axis=2)
    labels = np.where(digits.target[order] % 2, 1.0, -1.0)
    parts = {"learned": slice(0, 900), "validation": slice(900, 1300), "test": slice(1300, None)}
    return {name: (rows[part], labels[part]) for name, part in parts.items()}


def one_shot(name: str) -> RemovedHeads:
    """Remove the heads of a training of one_shot_trainings.py; N = 10 and 𝒯 = 0.5 in the theory."""
    task = sampler.one_shot_task(
        recipes / "trained" / name,
        folder=recipes / "omniglot",
        examples_train=300,
        examples_validation=UNSEEN,
        examples_test=UNSEEN,
    )
    network = sampler.make_network(widths=10, temperature=0.5)
    return sampler.ablate_heads(
        task,
        network,
        starts=2,
        solve_again=not arguments.keep_order_parameter,
        exact=arguments.exact,
        seed=0,
    ).result


MODELS = {
    **{f"look_up_2x4_{seed}": partial(encoder, "look_up", 2, 4, 500, seed) for seed in range(3)},
    **{f"induction_2x4_{seed}": partial(encoder, "induction", 2, 4, 6000, seed) for seed in (0, 1)},
    **{f"digits_2x4_{seed}": partial(encoder, "digits", 2, 4, 400, seed) for seed in (0, 1)},
    **{f"time_series_2x4_{seed}": partial(encoder, "time_series", 2, 4, 400, seed)
       for seed in (0, 1)},
    **{f"look_up_3x2_{seed}": partial(encoder, "look_up", 3, 2, 500, seed) for seed in (0, 1)},
    **{f"one_shot_{name}": partial(one_shot, name) for name in "ABCDEFGH"},
}  # fmt: skip

# %%
chosen = arguments.models or list(MODELS)
if unknown := set(chosen) - set(MODELS):
    parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
folder.mkdir(parents=True, exist_ok=True)
for name in chosen:
    file = folder / f"{name}.json"
    if not file.is_file():
        print(f"{name} …", flush=True)
        write_json(file, to_json(MODELS[name]()))
found = {
    name: from_json(RemovedHeads, read_json(folder / f"{name}.json", "heads_study"))
    for name in MODELS
    if (folder / f"{name}.json").is_file()
}

# %% [markdown]
# ## How well each number orders the heads
# Spearman's ρ with the loss gained when a head sends nothing, and when it sends its mean.
# %%
COLUMNS = [key for key in PREDICTIONS if any(key in one.predicted for one in found.values())]


def rho(one: RemovedHeads, key: str, measure: str = "zero_loss") -> float:
    return one.predicted[key].spearman[measure].value if key in one.predicted else float("nan")


numbers: dict = {"models": {}, "median": {}, "ahead of Taylor and patching": {}}
for name, one in found.items():
    cost = one.measured["zero_loss"]
    costliest = int(np.argmax(cost.values))
    numbers["models"][name] = {
        "accuracy": estimate(*one.unpruned["accuracy"], "over test examples"),
        "most costly": estimate(
            cost.values[costliest], cost.errors[costliest], "over test examples"
        ),
        **{key: rho(one, key) for key in COLUMNS if key in one.predicted},
    }
    print(f"  {name:18} {one.unpruned['accuracy'][0]:.3f} ± {one.unpruned['accuracy'][1]:.3f}")


def medians(of: dict[str, RemovedHeads], key: str, measure: str) -> dict[str, float]:
    """Median of ρ over models, and the 95 % interval by bootstrap over them."""
    values = np.array([rho(one, key, measure) for one in of.values()])
    values = values[np.isfinite(values)]
    if not len(values):
        return {}
    again = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.quantile(np.median(again, axis=1), [0.025, 0.975])
    return {"rho": float(np.median(values)), "low": float(low), "high": float(high),
            "models": len(values)}  # fmt: skip


GROUPS = {
    "all": found,
    "encoders": {name: one for name, one in found.items() if "one_shot" not in name},
    "one-shot": {name: one for name, one in found.items() if "one_shot" in name},
}
OF_THEORY = ("removed", "removed_mean", "zeroed", "solved_again", "score")
for measure in ("zero_loss", "mean_loss"):
    print(f"\nSpearman ρ with {measure}, {len(found)} models: median (95 % bootstrap over models)")
    for group, of in GROUPS.items():
        row = {key: medians(of, key, measure) for key in COLUMNS}
        numbers["median"].setdefault(measure, {})[group] = row
    for key, one in numbers["median"][measure]["all"].items():
        print(f"  {PREDICTIONS[key]:40} {one['rho']:5.2f} ({one['low']:.2f} to {one['high']:.2f})")
    for theory in OF_THEORY:
        others = ("taylor", "patching", "patching_mean")
        ahead = sum(
            rho(one, theory, measure) > max(rho(one, key, measure) for key in others)
            for one in found.values()
        )
        numbers["ahead of Taylor and patching"].setdefault(measure, {})[theory] = ahead
        print(f"  {PREDICTIONS[theory]} ahead of Taylor and patching: {ahead} of {len(found)}")
numbers["count"] = len(found)
numbers["least of Taylor"] = min(rho(one, "taylor") for one in found.values())
record(folder, "heads_study", numbers, made_by="python runs/heads_study.py", seeds=[0, 1, 2])


# %%
def in_words(name: str) -> str:
    """`look_up_2x4_0` as "look up, heads 4·4, seed 0", `one_shot_A` as "one shot, training A"."""
    if "one_shot" in name:
        return f"one shot, training {name[-1]}"
    task, layers, heads, seed = re.fullmatch(r"([a-z_]+?)_(\d)x(\d)_(\d)", name).groups()
    return f"{task.replace('_', ' ')}, heads {'·'.join([heads] * int(layers))}, seed {seed}"


SHOWN = {
    "solved_again": (style.THEORY, "o"), "score": (style.SKY_BLUE, "s"),
    "taylor": (style.ORANGE, "^"), "patching": (style.GREEN, "D"), "magnitude": (style.GREY, "v"),
}  # fmt: skip


def draw_heads_study(found: dict[str, RemovedHeads]) -> Figure:
    """Draw ρ of five numbers in a row for each model, and on top the medians over the models.

    The best row of the theory is among the five. Bars are 95 % intervals over test examples; of
    medians, bootstrap over models.
    """
    figure = style.new_figure(style.WIDTH, 0.34 * (len(found) + 1) + 2.2)
    figure.suptitle("Which number orders heads by what their removal costs?")
    axes = figure.subplots()
    for shift, (key, (colour, mark)) in zip(np.linspace(-0.3, 0.3, 5), SHOWN.items(), strict=True):
        known = {name: one for name, one in found.items() if key in one.predicted}
        places = shift + 1 + np.array([list(found).index(name) for name in known])
        values = np.array([rho(one, key) for one in known.values()])
        bounds = [one.predicted[key].spearman["zero_loss"].interval_over_examples
                  for one in known.values()]  # fmt: skip
        if known:
            axes.hlines(places, *zip(*bounds, strict=True), color=colour, linewidth=1.0)
            median = medians(found, key, "zero_loss")
            axes.hlines(shift, median["low"], median["high"], color=colour, linewidth=2.5)
            axes.plot(median["rho"], shift, mark, color=colour, markersize=7, mec="black")
        axes.plot(values, places, mark, color=colour, markersize=5, label=PREDICTIONS[key])
    axes.set_yticks(range(len(found) + 1), ["median", *map(in_words, found)])
    axes.axhspan(-0.5, 0.5, color=style.GRID, zorder=0)
    axes.set_ylim(len(found) + 0.5, -0.5)
    axes.set_xlim(-1.05, 1.05)
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    bars = "bars: 95 % over test examples,\nof medians over models"
    axes.set_xlabel(f"Spearman ρ with the loss gained\n({bars})")
    style.legend_below(figure, axes.get_legend_handles_labels(), 2)
    return figure


with style.figure_style():
    written = style.save_figure(draw_heads_study(found), folder, "heads_study")
print("figure:", *written)
