# %% [markdown]
# # Your own transformer: which heads and paths carry the labels?
#
# A small PyTorch encoder learns to look something up: six items, each with a key and a value ±1,
# then a query that repeats one key, with noise; the class is the value of that item. Its attention
# is exported, and theory and sampler say what a Bayesian network of values makes of it. Then every
# head is removed from the PyTorch model, to see what it costs.
#
#     pip install -c constraints.txt -e '.[torch]'
#     python runs/bring_your_own.py [FOLDER]   (minutes; default runs/results/bring_your_own)

# %%
import copy
import sys
from pathlib import Path

import numpy as np
import xarray as xr
from renew import estimate, of_point, record

from sampler import open_results
from sampler.analysis.predictors import number, predicted
from sampler.cli import main
from sampler.presentation.style import BLACK, GREY, THEORY, figure_style, new_figure, save_figure
from sampler.torch_models.export import export_attention

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this tutorial needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

ITEMS, KEYS, NOISE = 6, 8, 0.3
WIDTH, HEADS, LAYERS, STEPS, BATCH = 24, 2, 2, 400, 128
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/bring_your_own")
recipe = Path(__file__).with_name("bring_your_own.toml")
torch.set_num_threads(1)  # these matrices are too small for more
torch.manual_seed(1)


# %% [markdown]
# ## The task and the model
# Any model will do that is made of `nn.MultiheadAttention`, at whatever depth.


# %%
def look_up(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [example, item and query, key channels, value, "I am the query"], and labels ±1."""
    keys = torch.rand(examples, KEYS).argsort(dim=1)[:, :ITEMS]
    values = 2.0 * torch.randint(0, 2, (examples, ITEMS)) - 1.0
    each, chosen = torch.arange(examples), torch.randint(0, ITEMS, (examples,))
    shown = torch.cat([keys, keys[each, chosen, None]], dim=1)
    tokens = torch.zeros(examples, ITEMS + 1, KEYS + 2)
    tokens[..., :KEYS] = nn.functional.one_hot(shown, KEYS)
    tokens[..., :KEYS] += NOISE * torch.randn(examples, ITEMS + 1, KEYS)
    tokens[:, :ITEMS, KEYS] = values
    tokens[:, ITEMS, KEYS + 1] = 1.0
    return tokens, values[each, chosen]


class LookUp(nn.Module):
    """A post-norm encoder that reads its answer off the last token, the query."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(KEYS + 2, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(ITEMS + 1, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS)
        self.readout = nn.Linear(WIDTH, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.readout(self.encoder(self.embedding(tokens) + self.positions)[:, -1])[:, 0]


def correct(model: LookUp, tokens: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    model.eval()
    with torch.no_grad():
        return (model(tokens).sign() == labels).numpy()


# %%
model = LookUp().train()
optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(STEPS):
    tokens, labels = look_up(BATCH)
    loss = nn.functional.softplus(-labels * model(tokens)).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
test = look_up(4000)
right = correct(model, *test)
model_error = right.std() / np.sqrt(len(right))
print(
    f"PyTorch model: accuracy {right.mean():.3f} ± {model_error:.3f} on {len(right)} new examples"
)

# %% [markdown]
# ## Export
# The layers of an encoder have residual connections, so a path may pass a layer by: with
# `residual=True` each layer gets one more head, the last, whose attention is the identity.

# %%
arrays = export_attention(
    folder / "attention.npz",
    model,
    train=look_up(100),
    test=(test[0][:1000], test[1][:1000]),
    residual=True,
)
print("exported:", arrays)

# %% [markdown]
# ## Theory and exact posterior
# The same as `attention-posterior run runs/bring_your_own.toml`; and the theory alone for the
# heads without the residual connections, to see what those are good for.

# %%
where = f'task.path="{arrays.resolve()}"'
code = main(["run", str(recipe), "--out", str(folder / "run"), "--set", where])
if code:
    sys.exit(code)
without = [list(range(HEADS))] * LAYERS
settings = ["--set", where, "--set", f"network.heads={without}"]
code = main(["solve", str(recipe), "--out", str(folder / "without_residual"), *settings])
if code:
    sys.exit(code)

theory = xr.load_dataset(folder / "run" / "theory.nc", engine="h5netcdf")
narrow = xr.load_dataset(folder / "without_residual" / "theory.nc", engine="h5netcdf")
compared = open_results(folder / "run").comparison.elements("order_parameter")
leading = compared["predicted"].sel(predictor="leading")
of_theory, sampled, mcse = map(np.diagonal, (leading, compared["sampled"], compared["error"]))
print("\nDiagonal of U₁, where the prior mean is 1; heads 0 and 1 of a layer, and 2 to pass it by")
for path in np.argsort(-of_theory):
    name = str(theory["path"].values[path])
    found = f"{sampled[path]:5.2f} ± {mcse[path]:.2f}"
    print(f"path {name}  theory {of_theory[path]:5.2f}  sampled {found}")

# %% [markdown]
# ## What removing a head costs the PyTorch model
# The outputs of a head are channels of the concatenation that `out_proj` reads.

# %%
drops = np.zeros((LAYERS, HEADS, 2))
for layer in range(LAYERS):
    for head in range(HEADS):
        smaller = copy.deepcopy(model)
        columns = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        with torch.no_grad():
            smaller.encoder.layers[layer].self_attn.out_proj.weight[:, columns] = 0.0
        # Paired: the same examples with and without the head.
        lost = right.astype(float) - correct(smaller, *test)
        drops[layer, head] = lost.mean(), lost.std() / np.sqrt(len(lost))

scores = predicted(theory, "head_score")  # layer, head; the last head is the residual connection
scores_alone = predicted(narrow, "head_score")
print(f"\n{'head':>14}  score   score without residual   drop of the PyTorch model")
for layer in range(LAYERS):
    for head in range(HEADS):
        drop, error = 100 * drops[layer, head]
        print(
            f"layer {layer + 1}, head {head}  {scores[layer, head]:5.2f}   "
            f"{scores_alone[layer, head]:22.2f}   {drop:5.1f} ± {error:.1f} points"
        )
    print(f"layer {layer + 1}, past it {scores[layer, HEADS]:5.2f}")
print(
    f"\naccuracy: PyTorch {right.mean():.3f}; theory {number(theory, 'accuracy'):.3f}, "
    f"without residual {number(narrow, 'accuracy'):.3f}"
)

# %%
points = 100 * drops.reshape(-1, 2)
names = [f"layer {layer + 1}, head {head}" for layer in range(LAYERS) for head in range(HEADS)]
places = np.arange(len(names))
with figure_style():
    figure = new_figure(7.2, 3.2)
    figure.suptitle(f"Heads of a PyTorch encoder, N = 20, {ITEMS} items")
    left, right_axes = figure.subplots(1, 2, sharey=True)
    kept = scores[:, :HEADS].ravel()
    left.barh(places - 0.18, kept, height=0.34, color=THEORY, label="with residual")
    left.barh(places + 0.18, scores_alone.ravel(), height=0.34, color=GREY, label="without")
    left.set_yticks(places, names)
    left.set_xlabel("head score, theory")
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    right_axes.errorbar(points[:, 0], places, xerr=points[:, 1], fmt="o", color=BLACK)
    right_axes.axvline(0.0, color=GREY, linewidth=0.8)
    right_axes.set_xlabel("loss of accuracy without the head\n(PyTorch, points ± error)")
    written = save_figure(figure, folder, "bring_your_own")
print("figure:", *written)
first, found = np.argmax(of_theory), of_point(folder / "run")
record(
    folder,
    "bring_your_own",
    {
        "model": estimate(right.mean(), model_error, f"over {len(right)} new examples"),
        **{
            name: {
                "score": scores[layer, head],
                "without residual": scores_alone[layer, head],
                "drop": estimate(*drop, f"over {len(right)} new examples"),
            }
            for name, (layer, head), drop in zip(
                names, np.ndindex(LAYERS, HEADS), points, strict=True
            )
        },
        "strongest path": {
            "theory": of_theory[first],
            "sampled": estimate(sampled[first], mcse[first], "MCSE"),
        },
        "other paths at most": np.delete(sampled, first).max(),
        "accuracy without residual": number(narrow, "accuracy"),
        "accuracy": found["accuracy"],
        "diagnostics": found["diagnostics"],
    },
    made_by="python runs/bring_your_own.py",
    seeds={"torch": 1},
)
