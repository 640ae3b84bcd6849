"""Heads in words: those of a window have their numbers in the model, whatever was chosen."""

import numpy as np

from sampler.analysis.names import element_name, numbers_in_model
from sampler.analysis.predictors import along_predictors
from sampler.presentation.notebook import head_table

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


def test_a_table_of_head_scores_has_the_numbers_of_the_model():
    scores = np.array([[1.0, 0.5, 0.2, 0.4], [0.3, 0.6, 0.1, np.nan]])
    table = along_predictors({"leading": {"head_score": (("layer", "head"), scores)}})
    table = table.assign_coords(layer=[5, 6], head=range(4), head_name=(("layer", "head"), HEADS))
    frame = head_table(table)
    assert list(frame.index) == [
        (5, 0),
        (5, 3),
        (5, 7),
        (5, "residual"),
        (6, 1),
        (6, 4),
        (6, "residual"),
    ]
    assert frame.loc[(6, 4), "leading"] == 0.6
