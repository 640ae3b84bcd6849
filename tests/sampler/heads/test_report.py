"""Tables and figures of removed heads: what fits, what is left out."""

from dataclasses import replace

import numpy as np
import pytest

from sampler.heads import figures, removal_tables
from sampler.heads.head_importance import PREDICTIONS, Numbers
from sampler.heads.removal import Curve, RemovedHeads
from sampler.presentation.style import figure_style

HEADS = tuple((layer, head) for layer in (5, 6) for head in (0, 3, 7, 11))
MEASURES = ("mean_loss", "mean_accuracy", "zero_loss", "zero_accuracy")


def numbers(seed: int, scale: float = 1.0) -> Numbers:
    values = scale * np.random.default_rng(seed).random(len(HEADS))
    return Numbers(tuple(values), tuple(0.1 * values))


@pytest.fixture
def removed() -> RemovedHeads:
    predicted = {key: numbers(seed) for seed, key in enumerate(PREDICTIONS)}
    measured = {key: numbers(10 + seed, 0.1) for seed, key in enumerate(MEASURES)}
    accuracy = Numbers((0.9, 0.8, 0.7), (0.01, 0.01, 0.01))
    curve = Curve(HEADS[:2], {"model": accuracy, "zeroed": accuracy}, numbers(3))
    return RemovedHeads(
        HEADS, "likelihood", 500, 200, {"loss": (0.3, 0.01), "accuracy": (0.9, 0.01)}, measured,
        predicted, {"score": (curve,), "taylor": (curve,), "random": (curve, curve)}, (20, 20), 0.1,
    )  # fmt: skip


def test_at_eighty_columns_the_table_keeps_taylor_importance_and_accuracy(removed):
    lines = removal_tables.removal_table(removed).text(width=80)
    header = " ".join(lines.splitlines()[:5])
    for name in ("loss, mean", "acc., mean", "Taylor"):
        assert name in header
    assert max(map(len, lines.splitlines())) <= 80


def test_heads_are_called_by_their_numbers_in_the_model(removed):
    text = removal_tables.removal_table(removed).text(width=200)
    for layer, head in HEADS:
        assert f"layer {layer}, head {head}" in text


@pytest.mark.heavy
def test_figures_without_a_theory_or_orders_are_left_out(removed):
    alone = replace(
        removed,
        predicted={key: removed.predicted[key] for key in ("taylor", "magnitude")},
        curves={}, widths=None, temperature=None,
    )  # fmt: skip
    with figure_style():
        assert figures.draw_head_scores(alone) is None
        assert figures.draw_orders(alone) is None
        image = figures.draw_map(alone).axes[0].images[0].get_array()
        assert len(figures.draw_orders(removed).axes) == 2
    assert np.shape(image) == (2, 4)
    assert np.ma.filled(image, np.nan)[0, 1] == removed.measured["mean_loss"].values[1]
