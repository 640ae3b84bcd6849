"""Your own transformer: which heads and paths carry the labels?

A small PyTorch encoder learns to look something up: six items, each with a key and a value ±1,
then a query that repeats one key, with noise; the class is the value of that item. Its attention
is exported, and theory and sampler say what a Bayesian network of values makes of it. Then every
head is removed from the PyTorch model, to see what it costs.

    pip install -c constraints.txt -e '.[torch]'
    python -m runs.studies.bring_your_own.study     minutes
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.study import RUNS, Study, estimate
from runs.studies.tables import Table, table
from sampler.presentation import style

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this study needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

ITEMS, KEYS, NOISE = 6, 8, 0.3
WIDTH, HEADS, LAYERS, STEPS, BATCH = 24, 2, 2, 400, 128
TEST, TEST_OF_POSTERIOR, TRAIN = 4000, 1000, 100


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


def trained() -> LookUp:
    """A model after its training, in evaluation mode."""
    model = LookUp().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        tokens, labels = look_up(BATCH)
        loss = nn.functional.softplus(-labels * model(tokens)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def measure(small: bool, folder: Path) -> dict:
    """The model, its heads and paths by theory and exact posterior, and what removal costs."""
    torch.manual_seed(1)
    torch.set_num_threads(1)  # these matrices are too small for more
    model, test = trained(), look_up(TEST)
    # A path may pass a layer by: each has one more head, the last, whose attention is the identity.
    arrays = sampler.export_attention(
        folder / "attention.npz", model, train=look_up(TRAIN),
        test=tuple(part[:TEST_OF_POSTERIOR] for part in test), residual=True,
    )  # fmt: skip
    recipe = sampler.Recipe.load(RUNS / "bring_your_own.toml", {"task.path": arrays.resolve()})
    run = sampler.run(recipe, out=folder / "run")
    alone = [list(range(HEADS))] * LAYERS
    narrow = sampler.solve(recipe.changed({"network.heads": alone}))
    removed = sampler.ablate_heads(model, validation=look_up(TEST_OF_POSTERIOR), test=test)
    costs = removed.to_dataframe()

    compared = run.comparison
    scores, scores_alone = (
        table["head_score"].sel(predictor="leading").values for table in (run.theory, narrow)
    )
    elements = compared.elements("order_parameter")
    leading, sampled, errors = (
        np.diagonal(of)
        for of in (
            elements["predicted"].sel(predictor="leading"), elements["sampled"], elements["error"]
        )
    )  # fmt: skip
    first = np.argmax(leading)
    kind = f"over {TEST} new examples"
    heads = {
        f"layer {layer + 1}, head {head}": {
            "score": scores[layer, head],
            "without residual": scores_alone[layer, head],
            "drop": estimate(
                100 * costs["zero_accuracy"][layer + 1, head],
                100 * costs["zero_accuracy_error"][layer + 1, head],
                kind,
            ),
        }
        for layer, head in np.ndindex(LAYERS, HEADS)
    }
    accuracy = {who: compared.rows["accuracy", who] for who in ("leading", "infinite", "sampled")}
    return {
        "model": estimate(
            removed.result.attrs["whole_accuracy"],
            removed.result.attrs["whole_accuracy_error"],
            kind,
        ),
        "heads": heads,
        "strongest path": {
            "leading": leading[first],
            "sampled": estimate(sampled[first], errors[first], "MCSE"),
        },
        "other paths at most": np.delete(sampled, first).max(),
        "accuracy without residual": narrow["accuracy"].sel(predictor="leading"),
        "accuracy": {
            "leading": accuracy["leading"]["value"],
            "infinite": accuracy["infinite"]["value"],
            "sampled": estimate(accuracy["sampled"]["value"], accuracy["sampled"]["error"], "MCSE"),
        },
        "r_hat": max(one.r_hat for one in compared.diagnostics.quantities.values() if one.r_hat),
    }


def draw(heads: dict[str, dict]) -> Figure:
    """Draw head scores beside what removing a head costs the PyTorch model."""
    places = np.arange(len(heads))

    def of(key: str, part: str | None = None) -> list[float]:
        return [one[key][part] if part else one[key] for one in heads.values()]

    figure = style.new_figure(7.2, 3.2, f"Heads of a PyTorch encoder, N = 20, {ITEMS} items")
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(places - 0.18, of("score"), height=0.34, color=style.THEORY, label="with residual")
    left.barh(places + 0.18, of("without residual"), height=0.34, color=style.GREY, label="without")
    left.set_yticks(places, heads)
    left.set_xlabel("head score, theory")
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    drops = of("drop", "value"), places
    right.errorbar(*drops, xerr=of("drop", "error"), fmt="o", color=style.BLACK)
    right.axvline(0.0, color=style.GREY, linewidth=0.8)
    right.set_xlabel("loss of accuracy without the head\n(PyTorch, points ± error)")
    return figure


def tables(numbers: dict) -> dict[str, Table]:
    """Scores and costs of heads, and accuracies."""
    heads = {
        "score": ("score", 2),
        "score without residual": ("without residual", 2),
        "accuracy that PyTorch loses without the head (points)": ("drop", 1),
    }
    answers = {
        "the PyTorch model": {"accuracy": numbers["model"]},
        "theory": {
            "accuracy": numbers["accuracy"]["leading"],
            "path": numbers["strongest path"]["leading"],
        },
        "theory without residual heads": {"accuracy": numbers["accuracy without residual"]},
        "exact posterior": {
            "accuracy": numbers["accuracy"]["sampled"],
            "path": numbers["strongest path"]["sampled"],
            "other": numbers["other paths at most"],
        },
        "infinite width": {"accuracy": numbers["accuracy"]["infinite"]},
    }
    columns = {
        "right (%)": ("accuracy", 1, 100),
        "U₁ of the strongest path": ("path", 2),
        "of any other at most": ("other", 2),
    }
    return {
        "heads": table("head", numbers["heads"], heads),
        "answers": table("who", answers, columns),
    }


STUDY = Study(
    __file__,
    points=lambda small, folder: {"model": (measure, small, folder)},
    numbers=lambda rows: rows["model"],
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw(numbers["heads"])},
)

if __name__ == "__main__":
    STUDY.run()
