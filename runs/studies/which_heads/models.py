"""Trained models whose heads are removed.

Encoders of PyTorch that learn to look something up, to continue a repetition, to read digits and to
tell apart time series, with two layers and with up to six; and transformers of the command `train`
that learn one-shot classification, which need the files of Omniglot in runs/omniglot. Weights that
were trained once are kept in a folder.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import sampler
from runs.studies.study import RUNS

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this study needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

torch.set_num_threads(1)  # these matrices are too small for more
SYMBOLS, WIDTH, BATCH = 8, 32, 64
# Examples of the theory, of predictions, and of what removal costs.
LEARNED, VALIDATION, UNSEEN = 100, 1000, 4000
# What the theory sees of a model: all of it, two of its layers.
WHOLE: dict = {}
LOW: dict = {"layers": (1, 2)}
MIDDLE: dict = {"layers": (3, 4)}
HIGH: dict = {"layers": (5, 6)}


@dataclass(frozen=True)
class TrainedModel:
    """A model with its splits, the network of its theory, and what the theory sees of it.

    task   by which models are resampled
    """

    model: object
    network: sampler.Network
    temperature: float
    task: str
    splits: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)

    def recipe_of_theory(self, folder: Path) -> sampler.Recipe:
        """What the theory learns: the attention of the model, residual connections among heads."""
        task = self.model
        if self.splits:
            file = folder / "attention.npz"
            shown = {**self.splits, **self.settings}
            task = sampler.Arrays(
                sampler.export_attention(file, self.model, residual=True, **shown)
            )
        return sampler.Recipe(
            task=task, network=self.network, posterior={"temperature": self.temperature}
        )


# --- tasks: tokens [example, token, channel], and labels ±1


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


# --- models


class Encoder(nn.Module):
    """An encoder, read out at its last token, or at the mean of all; post-norm up to 3 layers."""

    def __init__(self, channels: int, layers: int, heads: int, mean: bool) -> None:
        super().__init__()
        self.embedding = nn.Linear(channels, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, heads, 2 * WIDTH, dropout=0.0, batch_first=True,
                                           norm_first=layers > 3)  # fmt: skip
        norm = nn.LayerNorm(WIDTH) if layers > 3 else None
        self.encoder = nn.TransformerEncoder(layer, layers, norm, enable_nested_tensor=False)
        self.readout, self.mean = nn.Linear(WIDTH, 1), mean

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embedding(tokens))
        return self.readout(hidden.mean(dim=1) if self.mean else hidden[:, -1])[:, 0]


def train_encoder(model: Encoder, draw, steps: int) -> None:
    """Adam on new batches, its learning rate falling to 0."""
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        tokens, labels = draw(BATCH)
        loss = nn.functional.softplus(-labels * model(tokens)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


def encoder(
    task: str,
    layers: int,
    heads: int,
    steps: int,
    seed: int,
    folder: Path,
    settings: dict = WHOLE,
    unseen: int = UNSEEN,
) -> TrainedModel:
    """An encoder trained on a task, or kept in the folder; 𝒯 = 0.1 in the theory."""
    torch.manual_seed(seed)
    drawn = {"look_up": look_up, "induction": induction}
    counts = {"train": LEARNED, "validation": VALIDATION, "test": unseen}
    if task in drawn:
        learn = drawn[task]
        splits = {name: learn(count) for name, count in counts.items()}
    else:
        arrays = arrays_of(task, seed)
        learn = partial(of_arrays, *arrays["learned"])
        splits = {"train": learn(LEARNED)} | {
            name: of_arrays(*arrays[name], counts[name]) for name in ("validation", "test")
        }
    mean = task not in drawn
    model = Encoder(learn(1)[0].shape[2], layers, heads, mean)
    file = folder / f"{task}_{layers}x{heads}_{seed}.pt"
    if not file.is_file():
        train_encoder(model, learn, steps)
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), file)
    model.load_state_dict(torch.load(file, weights_only=True))
    network = sampler.Network(widths=20, readout="mean" if mean else "last")
    return TrainedModel(model.eval(), network, 0.1, task, splits, settings)


def arrays_of(task: str, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of what is learned, of validation, and of the test."""
    if task == "time_series":
        made = sampler.TimeSeries(
            examples_train=4000, examples_validation=VALIDATION, examples_test=UNSEEN,
            tokens=12, channels=4, lag=3, noise=0.5, seed=seed,
        ).make(sampler.Attention(heads=[["uniform"]]))  # fmt: skip
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


def one_shot(name: str, folder: Path) -> TrainedModel:
    """A training of the study `one_shot`; N = 10 and 𝒯 = 0.5 in the theory."""
    task = sampler.OneShot(
        model=RUNS / "trained" / name,
        folder=RUNS / "omniglot",
        examples_train=300,
        examples_validation=VALIDATION,
        examples_test=UNSEEN,
    )
    return TrainedModel(task, sampler.Network(widths=10), 0.5, "one_shot")


MODELS: dict[str, Callable[[Path], TrainedModel]] = {
    **{f"look_up_2x4_{seed}": partial(encoder, "look_up", 2, 4, 500, seed) for seed in range(3)},
    **{f"induction_2x4_{seed}": partial(encoder, "induction", 2, 4, 6000, seed) for seed in (0, 1)},
    **{f"digits_2x4_{seed}": partial(encoder, "digits", 2, 4, 400, seed) for seed in (0, 1)},
    **{f"time_series_2x4_{seed}": partial(encoder, "time_series", 2, 4, 400, seed)
       for seed in (0, 1)},
    **{f"look_up_3x2_{seed}": partial(encoder, "look_up", 3, 2, 500, seed) for seed in (0, 1)},
    **{f"one_shot_{name}": partial(one_shot, name) for name in "ABCDEFGH"},
    "look_up_6x4_0_low": partial(encoder, "look_up", 6, 4, 1000, 0, settings=LOW),
    "look_up_6x4_0_middle": partial(encoder, "look_up", 6, 4, 1000, 0, settings=MIDDLE),
    "look_up_6x4_0_high": partial(encoder, "look_up", 6, 4, 1000, 0, settings=HIGH),
    "digits_4x2_0_whole": partial(encoder, "digits", 4, 2, 600, 0),
    "digits_4x2_0_low": partial(encoder, "digits", 4, 2, 600, 0, settings=LOW),
    "digits_4x2_0_high": partial(encoder, "digits", 4, 2, 600, 0, settings=MIDDLE),
}  # fmt: skip
