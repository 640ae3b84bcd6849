"""What does the posterior of values make of attention that learned Raven's matrices?

A network of three layers of one, two and two heads of linear attention learned to name one symbol
of the ninth panel of a matrix, of compositions of rules of which five in twenty-five were held out
of training. Its weights, and the matrices of this study, are in frozen.npz. Networks of width 10
with its attention learn their values from 400 matrices of seen compositions, with theory and exact
posterior, and are tested on matrices of seen and of held-out ones.

    python -m runs.studies.raven.study [FOLDER]

One minute.
"""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.study import Study, estimate
from sampler.presentation import style
from theory import participation_ratio
from theory.observables import binomial_error

Arrays = dict[str, np.ndarray]

FILE = "frozen.npz"
LAYERS, SYMBOLS, PANELS = 3, 4, 9
TESTS = {"seen": "test_seen", "held out": "test_held_out"}
TEMPERATURES, WIDTH, CHAINS = (0.01, 0.03, 0.1), 10, {"progress": False}


def tokens_of(panels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Tokens [matrix, panel, channel]: features, one-hot positions, and what is asked for.

    A symbol is its centred one-hot vector times the root of their number. The ninth token shows no
    features, and names the one that is asked for.
    """
    count, _, features = panels.shape
    shown = SYMBOLS**0.5 * (np.eye(SYMBOLS)[panels].reshape(count, PANELS, -1) - 1 / SYMBOLS)
    shown[:, -1] = 0.0
    question = np.zeros((count, PANELS, features))
    question[np.arange(count), -1, asked] = 1.0
    positions = np.broadcast_to(np.eye(PANELS), (count, PANELS, PANELS))
    return np.concatenate([shown, positions, question], axis=2)


def attention_of(frozen: Arrays, tokens: np.ndarray) -> list[np.ndarray]:
    """Ω [matrix, head, key, query] of every layer: logits k·q/√G, over √T."""
    layers = []
    for layer in range(1, LAYERS + 1):
        W_K, W_Q = (frozen[f"W_{kind}_{layer}"].astype(np.float64) for kind in "KQ")
        keys, queries = (np.einsum("hgi,xti->xhtg", weights, tokens) for weights in (W_K, W_Q))
        layers.append(keys @ queries.swapaxes(2, 3) / (W_K.shape[1] * PANELS) ** 0.5)
    return layers


def outputs_of_training(frozen: Arrays, tokens: np.ndarray) -> np.ndarray:
    """f(x) with the values that were trained, of the ninth token."""
    hidden = tokens @ frozen["W_in"].T.astype(np.float64)
    for layer, matrices in enumerate(attention_of(frozen, tokens), start=1):
        values = np.einsum("hab,xtb->xhta", frozen[f"W_V_{layer}"], hidden)
        hidden = np.einsum("xhst,xhsa->xta", matrices, values) / matrices.shape[1] ** 0.5
    return hidden[:, -1] @ frozen["readout"].T


def examples_of(frozen: Arrays, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of a split, and what is to be answered: centred one-hot vectors."""
    panels, asked = (frozen[f"{kind}_{split}"].astype(int) for kind in ("panels", "asked"))
    ninth = panels[np.arange(len(panels)), -1, asked]
    return tokens_of(panels, asked), np.eye(SYMBOLS)[ninth] - 1 / SYMBOLS


def arrays_of(frozen: Arrays, test: str) -> Arrays:
    """The arrays of a task with this test split."""
    found = {}
    for name, split in (("train", "train"), ("validation", "validation"), ("test", test)):
        tokens, labels = examples_of(frozen, split)
        found |= {f"inputs_{name}": tokens, f"labels_{name}": labels}
        layers = enumerate(attention_of(frozen, tokens), start=1)
        found |= {f"attention_{name}_{layer}": matrices for layer, matrices in layers}
    return found


def share(value: float, count: int) -> dict:
    """A share of right answers with its binomial error."""
    return estimate(value, binomial_error(float(value), count), "binomial")


def measure(frozen: Arrays) -> dict:
    """Accuracies on both kinds of compositions: theory, infinite width, exact, trained; and U₁."""
    arrays = {name: arrays_of(frozen, split) for name, split in TESTS.items()}
    tasks = {name: sampler.make_task("arrays", **those) for name, those in arrays.items()}
    network = partial(sampler.make_network, widths=WIDTH)

    def solve(name: str, temperature: float):
        chosen = network(temperature=temperature)
        return sampler.solve(tasks[name], chosen, starts=1, next_order=False)

    tried = {temperature: solve("held out", temperature) for temperature in TEMPERATURES}
    theirs, limit = (
        max(tried, key=lambda at: float(tried[at]["validation_accuracy"].sel(predictor=who)))
        for who in ("leading", "infinite")
    )
    found: dict = {"temperature": theirs, "temperature, infinite width": limit}
    for name, those in arrays.items():
        theory, infinite = solve(name, theirs), solve(name, limit)
        draws = sampler.sample(tasks[name], network(temperature=theirs), **CHAINS)
        compared = sampler.compare(theory, draws)
        labels, count = those["labels_test"].argmax(axis=1), len(those["labels_test"])
        trained = outputs_of_training(frozen, those["inputs_test"]).argmax(axis=1)
        exact = compared.rows["accuracy", "sampled"]
        found[name] = {
            "theory": share(theory["accuracy"].sel(predictor="leading"), count),
            "infinite width": share(infinite["accuracy"].sel(predictor="infinite"), count),
            "trained": share(np.mean(trained == labels), count),
            # An accuracy moves in steps of one test example.
            "exact": estimate(exact["value"], max(exact["error"], 0.5 / count), "MCSE"),
            "trusted": bool(compared.diagnostics.passed),
        }
    overlap = np.asarray(theory["order_parameter"].sel(predictor="leading"))
    blocks = overlap.reshape(2 * (len(overlap) // SYMBOLS, SYMBOLS))
    traced = np.einsum("pcqc->pq", blocks) / SYMBOLS
    return found | {"U₁": traced.tolist(), "participation ratio": participation_ratio(traced)}


COLUMNS = {
    "theory": ("theory", 3),
    "exact posterior": ("exact", 4),
    "infinite width": ("infinite width", 3),
    "trained values": ("trained", 3),
}


def draw(numbers: dict) -> Figure:
    """Draw U₁ of the theory, traced over outputs, path by path."""
    figure = style.new_figure(4.0, 3.2)
    axes, traced = figure.subplots(), np.array(numbers["U₁"])
    names = [f"0·{one}·{other}" for one in range(2) for other in range(2)]
    limit = np.abs(traced).max()
    image = axes.imshow(traced, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="path", ylabel="path")
    figure.colorbar(image, label="U₁ of the theory, traced")
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    with np.load(study.home / FILE) as stored:
        frozen = dict(stored)
    numbers = study.once("posterior", measure, frozen)
    study.record(numbers)
    study.table("posterior", "compositions", {name: numbers[name] for name in TESTS}, COLUMNS)
    with style.figure_style():
        study.draw(draw(numbers), "posterior")
