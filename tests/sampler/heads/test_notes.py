"""Sentences about heads: constants that are sent, gradients that vanish, contradicted orders."""

import numpy as np
import pytest

from sampler.heads.gates import Numbering
from sampler.heads.measures import over_examples, without_error
from sampler.heads.notes import CONTRADICTED, notes_of_measures, notes_of_orders
from sampler.heads.removal import MeasuredHeads
from sampler.heads.shown import removal_table, removal_text

EXAMPLES, HEADS = 400, (2, 2)
NUMBERING = Numbering.of(HEADS)


def measured(zero, mean, spread: float = 0.05, loss="likelihood", whole: float = 0.3):
    """Losses gained without each head, about these means."""
    noise = spread * np.random.default_rng(0).standard_normal((2, sum(HEADS), EXAMPLES))
    lost = {
        f"{kind}_loss": np.asarray(values)[:, None] + each
        for kind, values, each in zip(("zero", "mean"), (zero, mean), noise, strict=True)
    }
    return MeasuredHeads(NUMBERING, loss, {"loss": np.full((1, EXAMPLES), whole)}, lost)


SCORE = "head score, leading order (of the largest)"
COSTS = (1.0, 0.5, 0.1, 0.02)


def test_a_head_that_sends_a_constant_is_named_with_both_costs():
    (note,) = notes_of_measures(measured(COSTS, (1.0, 0.01, 0.1, 0.02)), {})
    assert "layer 1, head 1: 0.5 with 0, 0.0094 with the mean" in note
    assert "layer 1, head 0" not in note
    assert "constant" in note
    (note,) = notes_of_measures(measured((1.0, 0.01, 0.1, 0.02), COSTS), {})
    assert "disturbs" in note


def test_costs_that_differ_by_noise_alone_are_not_named():
    assert notes_of_measures(measured(COSTS, COSTS), {}) == []
    # By as much, and not by more errors than three.
    noisy = measured((0.2, 0.1, 0.1, 0.1), (0.1, 0.1, 0.1, 0.1), spread=2.0)
    assert notes_of_measures(noisy, {}) == []


@pytest.mark.parametrize(
    ("slope", "whole", "said"), [(1e-4, 1e-3, True), (0.5, 1e-3, False), (1e-4, 0.5, False)]
)
def test_gradients_are_saturated_where_they_and_the_loss_are_small(slope, whole, said):
    taylor = {"taylor": without_error(np.full(4, slope))}
    notes = notes_of_measures(measured(COSTS, COSTS, whole=whole), taylor)
    assert bool(notes) == said
    if said:
        assert "saturated" in notes[0]
        assert "loss is 0.001" in notes[0]


def judged(scores, **settings):
    found = measured(COSTS, COSTS).judging(
        {"score": without_error(np.array(scores))},
        widths=(4, 4, 4), temperature=0.1, seed=0, **settings,
    )  # fmt: skip
    return found


def test_an_order_that_removal_contradicts_is_said_beside_the_scores():
    (note,) = notes_of_orders(judged([0.1, 0.2, 0.3, 1.0]))
    assert "head score ρ = −1.00" in note
    assert note.endswith(CONTRADICTED)
    assert notes_of_orders(judged([1.0, 0.3, 0.2, 0.1])) == []
    text = " ".join(removal_text(judged([0.1, 0.2, 0.3, 1.0], notes=(note,))).split())
    assert text.index("layer 1, head 0") < text.index(CONTRADICTED) < text.index("Spearman")


def test_every_column_has_its_unit_and_few_heads_no_interval():
    text = " ".join(removal_text(judged([0.1, 0.2, 0.3, 1.0])).split())
    headers = [column.header for column in removal_table(judged([1.0] * 4)).columns]
    assert headers[1:] == ["loss, mean (nats)", "loss, zero (nats)", SCORE]
    assert "mean (nats)" in text
    assert "fewer than 8 heads" in text
    assert "[" not in text.split("Spearman")[1]
    squared = measured(COSTS, COSTS, loss="squared").judging(
        {}, widths=(4, 4, 4), temperature=0.1, seed=0
    )
    headers = [column.header for column in removal_table(squared).columns]
    assert headers[1:] == ["loss, mean (squared loss)", "loss, zero (squared loss)"]


def test_heads_whose_turn_did_not_come_are_missing():
    lost = measured(COSTS, COSTS)
    lost.lost["zero_loss"][2:] = np.nan
    found = lost.judging(
        {"score": over_examples(lost.lost["mean_loss"])},
        widths=(4, 4, 4), temperature=0.1, seed=0,
    )  # fmt: skip
    assert np.isnan(found.measured["zero_loss"].values[2:]).all()
    assert found.predicted["score"].spearman["zero_loss"].value == 1.0
    assert "–" in removal_text(found)
