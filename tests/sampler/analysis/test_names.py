"""Heads in words: those of a window have their numbers in the model, whatever was chosen."""

import numpy as np

from sampler.analysis.names import element_name, numbers_in_model

HEADS = np.array([["5.0", "5.3", "5.7", "residual"], ["6.1", "6.4", "residual", ""]], dtype=object)


def test_heads_of_a_window_have_their_numbers_in_the_model():
    assert numbers_in_model(list(HEADS[0])) == [0, 3, 7, "residual"]
    assert numbers_in_model(["0", "1", "residual"]) == [0, 1, 2]
    assert numbers_in_model(["good", "uniform"]) == [0, 1]
    names = [element_name("head_score", (0, place), (), HEADS, (5, 6)) for place in range(4)]
    assert names[:3] == [f"layer 5, head {head}" for head in (0, 3, 7)]
    assert len(set(names)) == 4
    assert element_name("head_score", (1, 1), (), HEADS, (5, 6)) == "layer 6, head 4"
    good = np.array([["good", "uniform"]], dtype=object)
    assert element_name("head_score", (0, 1), (), good) == "layer 1, head 1 (uniform)"
