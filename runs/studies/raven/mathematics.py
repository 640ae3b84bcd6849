"""Raven's matrices as tokens, and the network that learned them: its attention and its outputs.

frozen  the arrays of frozen.npz: weights; panels, asked features and rules of every split
"""

from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]

FROZEN = Path(__file__).parent / "frozen.npz"
LAYERS, SYMBOLS, PANELS = 3, 4, 9


def frozen_arrays(matrices: int | None = None) -> Arrays:
    """Weights and matrices that are kept, of every split at most so many."""
    with np.load(FROZEN) as stored:
        return {
            name: one[:matrices] if name.startswith(("panels", "asked", "rules")) else one
            for name, one in stored.items()
        }


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
