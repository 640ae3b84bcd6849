"""Matrices and attention that the study of Raven's matrices keeps, against their definitions."""

import json
from functools import cache

import numpy as np
import pytest

from runs.studies.raven.mathematics import (
    SYMBOLS,
    attention_of,
    examples_of,
    frozen_arrays,
    outputs_of_training,
)
from runs.studies.raven.study import TESTS
from tests import ROOT

STUDY = ROOT / "runs" / "studies" / "raven"


frozen = cache(frozen_arrays)


def test_no_composition_is_both_seen_and_held_out():
    seen, held_out = (
        {tuple(one) for split in splits for one in frozen()[f"rules_{split}"]}
        for splits in (("train", "validation", "test_seen"), ("test_held_out",))
    )
    assert (len(seen), len(held_out), len(seen | held_out)) == (20, 5, 25)
    for feature in range(2):
        assert {one[feature] for one in seen} == set(range(5))


def test_tokens_show_eight_panels_and_name_what_is_asked():
    panels, asked = (frozen()[f"{kind}_train"] for kind in ("panels", "asked"))
    tokens, labels = examples_of(frozen(), "train")
    assert tokens.shape == (400, 9, 2 * SYMBOLS + 9 + 2)
    for x, y, of_matrix, feature in zip(tokens[:50], labels, panels, asked, strict=False):
        for place in range(9):
            shown = np.zeros(8)
            for of_feature in range(2) if place < 8 else ():
                for symbol in range(SYMBOLS):
                    is_here = of_matrix[place, of_feature] == symbol
                    shown[4 * of_feature + symbol] = 2.0 * (is_here - 0.25)
            question = [place == 8 and feature == one for one in range(2)]
            np.testing.assert_array_equal(x[place], [*shown, *np.eye(9)[place], *question])
        np.testing.assert_array_equal(y, np.eye(SYMBOLS)[of_matrix[8, feature]] - 0.25)


def test_trained_values_answer_as_recorded():
    """By a loop over queries, on its own attention; accuracies are those of the page."""
    recorded = json.loads((STUDY / "numbers.json").read_text(encoding="utf-8"))["numbers"]
    weights = {name: values.astype(float) for name, values in frozen().items() if name[0] in "Wr"}
    for name, split in TESTS.items():
        tokens, labels = examples_of(frozen(), split)
        received = outputs_of_training(frozen(), tokens)
        right = np.mean(received.argmax(axis=1) == labels.argmax(axis=1))
        assert right == pytest.approx(recorded[name]["trained"]["value"], abs=1e-9)
        some = [omega[:5] for omega in attention_of(frozen(), tokens)]
        for place in range(5):
            z = [weights["W_in"] @ token for token in tokens[place]]
            for layer in range(1, 4):
                W_K, W_Q, W_V = (weights[f"W_{kind}_{layer}"] for kind in "KQV")
                new = []
                for t in range(9):
                    moved = np.zeros(32)
                    for head in range(len(W_V)):
                        query = W_Q[head] @ tokens[place, t]
                        for s in range(9):
                            omega = (W_K[head] @ tokens[place, s]) @ query / 4.0 / 3.0
                            assert some[layer - 1][place, head, s, t] == pytest.approx(omega)
                            moved += omega * W_V[head] @ z[s] / np.sqrt(len(W_V))
                    new.append(moved)
                z = new
            assert received[place] == pytest.approx(weights["readout"] @ z[8], abs=1e-9)
