"""Sentences about heads: constants that are sent, gradients that vanish, contradicted orders."""

import numpy as np

from sampler.analysis.names import head_label
from sampler.heads.gates import Numbering
from sampler.heads.measures import without_error
from sampler.heads.notes import notes_of_measures, notes_of_orders
from sampler.heads.removal import MeasuredHeads

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


COSTS = (1.0, 0.5, 0.1, 0.02)


def test_a_sentence_names_the_heads_whose_costs_differ_beyond_their_noise():
    (note,) = notes_of_measures(measured(COSTS, (1.0, 0.01, 0.1, 0.02)), {})
    assert head_label(1, 1) in note
    assert head_label(1, 0) not in note
    assert len(notes_of_measures(measured((1.0, 0.01, 0.1, 0.02), COSTS), {})) == 1
    assert notes_of_measures(measured(COSTS, COSTS), {}) == []
    # By as much, and not by more errors than three.
    noisy = measured((0.2, 0.1, 0.1, 0.1), (0.1, 0.1, 0.1, 0.1), spread=2.0)
    assert notes_of_measures(noisy, {}) == []


def judged(scores, **settings):
    found = measured(COSTS, COSTS).judging(
        {"score": without_error(np.array(scores))},
        widths=(4, 4, 4), temperature=0.1, seed=0, **settings,
    )  # fmt: skip
    return found


def test_an_order_that_removal_contradicts_is_said():
    assert len(notes_of_orders(judged([0.1, 0.2, 0.3, 1.0]))) == 1
    assert notes_of_orders(judged([1.0, 0.3, 0.2, 0.1])) == []
