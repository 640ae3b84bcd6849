# %% [markdown]
# # Does the posterior find the attention that training found?
#
# A small PyTorch encoder learns whether a handwritten digit is odd or even. Its second layer of
# attention is kept; the heads of the first are sampled, with a prior of low rank, on few digits.
# Beside them: the trained network's own heads, uniform heads, and heads from the prior.
#
#     pip install -c constraints.txt -e '.[torch]'
#     python runs/learned_digits.py [FOLDER] [SEEDS]
#
# by default into runs/results/learned_digits, over 3 seeds; half an hour. What is in the folder is
# not sampled again.

# %%
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
from renew import mean_over, record
from sklearn.datasets import load_digits

import sampler
from sampler.mcmc.tempered import log_mean
from sampler.numerics import stream
from sampler.presentation import style

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this study needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/learned_digits")
seeds = range(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
SIDE, PATCH, WIDTH, HEADS, STEPS, BATCH = 8, 2, 16, 2, 1500, 64
EXAMPLES, TESTS, TEMPERATURE, RANK, VARIANCE = 100, 500, 0.1, 4, 4.0
KEPT = ["0", "1"]
LOWER = {"learned": ["learned", "learned"], "trained": KEPT, "uniform": ["uniform", "uniform"]}
torch.set_num_threads(1)


# %%
class Encoder(nn.Module):
    """Patches of a drawing, two layers of attention, the mean over patches, and one output."""

    def __init__(self) -> None:
        super().__init__()
        count = (SIDE // PATCH) ** 2
        self.embedding = nn.Linear(PATCH**2, WIDTH)
        self.positions = nn.Parameter(0.5 * torch.randn(count, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.readout = nn.Linear(WIDTH, 1)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        tokens = self.encoder(self.embedding(patches) + self.positions)
        return self.readout(tokens.mean(dim=1))[:, 0]


def drawings(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All drawings [drawing, patch, pixel] in random order, and 1 for odd digits, −1 for even."""
    stored = load_digits()
    order = stream(seed, 0).permutation(len(stored.images))
    images = stored.images[order].reshape(-1, SIDE // PATCH, PATCH, SIDE // PATCH, PATCH) / 8.0 - 1
    patches = np.ascontiguousarray(
        images.transpose(0, 1, 3, 2, 4).reshape(len(order), -1, PATCH**2)
    )
    labels = 2.0 * (stored.target[order] % 2) - 1.0
    return torch.tensor(patches, dtype=torch.float32), torch.tensor(labels, dtype=torch.float32)


def trained(seed: int, patches: torch.Tensor, labels: torch.Tensor) -> Encoder:
    """The encoder after training on these drawings."""
    torch.manual_seed(seed)
    model = Encoder().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        chosen = torch.randint(len(patches), (BATCH,))
        loss = nn.functional.softplus(-labels[chosen] * model(patches[chosen])).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


# %%
def of_seed(seed: int) -> dict:
    """Evidence, accuracy and attention of one training and one choice of drawings."""
    patches, labels = drawings(seed)
    test, rest = slice(0, TESTS), slice(TESTS, None)
    model = trained(seed, patches[rest], labels[rest])
    with torch.no_grad():
        right = (model(patches[test]).sign() == labels[test]).float().mean()
    few = slice(TESTS, TESTS + EXAMPLES)
    pairs = {"train": (patches[few], labels[few]), "test": (patches[test], labels[test])}
    file = sampler.export_attention(folder / f"attention_{seed}.npz", model, **pairs)
    network = sampler.make_network(widths=20, temperature=TEMPERATURE, readout="mean")
    found: dict = {"model": float(right)}
    for name, lower in LOWER.items():
        attention: dict = {"heads": [lower, KEPT]}
        if name == "learned":
            attention["learned"] = {"form": "low_rank", "rank": RANK, "variance": VARIANCE}
        task = sampler.arrays_task(file, attention=attention)
        if name == "learned":
            draws = sampler.sample(
                task, network, algorithm="tempered", particles=128, repetitions=4, until="draws",
                attention_theories=0, seed=seed,
            )  # fmt: skip
            statistics = draws["sample_stats"]
            evidence = log_mean(np.asarray(statistics["log_evidence"])[:, 0])
            prior = log_mean(np.asarray(statistics["log_evidence_prior"])[:, 0])
            attention_found = sampler.attention_found(draws)
            found["numbers"] = [vars(number) for number in attention_found.numbers]
            found["prior start"] = list(prior)
            np.savez_compressed(
                folder / f"matrices_{seed}.npz",
                mean=attention_found.matrices(1).values.mean(axis=0),
                single=attention_found.singles(1).values[:, 0].mean(axis=1),
                trained=trained_heads(file),
            )
        else:
            draws = sampler.sample(task, network, algorithm="importance", draws=1000, seed=seed)
            known = draws["posterior"].attrs
            evidence = known["log_evidence"], known["log_evidence_error"]
        mean = np.asarray(draws["predictions"]["predictor"]).mean(axis=(0, 1))
        right = np.mean(np.sign(mean) == labels[test].numpy())
        found[name] = {"evidence": list(map(float, evidence)), "accuracy": float(right)}
        print(seed, name, found[name], flush=True)
    return found


def trained_heads(file: Path) -> np.ndarray:
    """Mean attention [head, key, query] of the trained network's first layer."""
    with np.load(file) as arrays:
        return arrays["attention_train_1"].mean(axis=0)


# %%
folder.mkdir(parents=True, exist_ok=True)
rows = []
for seed in seeds:
    file = folder / f"{seed}.json"
    if not file.is_file():
        file.write_text(json.dumps(of_seed(seed)), encoding="utf-8")
    rows.append(json.loads(file.read_text(encoding="utf-8")))


# %%
over_seeds = partial(mean_over, what="trainings")


def number(row: dict, quantity: str, key: str) -> float:
    """A number of the attention found, its mean over the heads of layer 1."""
    return float(np.mean([one[key] for one in row["numbers"] if one["quantity"] == quantity]))


numbers: dict = {"PyTorch": {"accuracy": over_seeds([row["model"] for row in rows])}}
for name in LOWER:
    numbers[name] = {
        "accuracy": over_seeds([row[name]["accuracy"] for row in rows]),
        "evidence": over_seeds([row[name]["evidence"][0] for row in rows]),
    }
    if name != "learned":
        numbers[name]["below learned"] = over_seeds(
            [row["learned"]["evidence"][0] - row[name]["evidence"][0] for row in rows]
        )
for quantity in dict.fromkeys(one["quantity"] for one in rows[0]["numbers"]):
    numbers[quantity] = {
        key: over_seeds([number(row, quantity, key) for row in rows]) for key in ("value", "prior")
    }
numbers["prior minus modes"] = over_seeds(
    [row["prior start"][0] - row["learned"]["evidence"][0] for row in rows]
)
record(folder, "learned_digits", numbers, made_by="python runs/learned_digits.py",
       seeds=list(seeds))  # fmt: skip

# %%
with np.load(folder / f"matrices_{seeds[0]}.npz") as arrays:
    shown = {
        "trained": arrays["trained"],
        "posterior mean": arrays["mean"],
        "one draw": arrays["single"][0],
        "another": arrays["single"][-1],
    }
with style.figure_style():
    title = "First layer of attention, mean over 100 digits: training, and posterior of 100 digits"
    figure = style.new_figure(style.WIDTH, 4.0, title)
    panels = figure.subplots(HEADS, len(shown))
    largest = max(float(one.max()) for one in shown.values())
    for column, (name, matrices) in enumerate(shown.items()):
        for head in range(HEADS):
            panel = panels[head, column]
            panel.imshow(matrices[head], vmin=0.0, vmax=largest, cmap="Greys")
            panel.set_xticks([])
            panel.set_yticks([])
            if head == 0:
                panel.set_title(name)
        panels[-1, column].set_xlabel("query")
    panels[0, 0].set_ylabel("key, head 0")
    panels[1, 0].set_ylabel("key, head 1")
    written = style.save_figure(figure, folder, "learned_digits")
print("figure:", *written)
