"""Figures of the support-vector identity and of rank collapse: what is drawn is what was found."""

import ast
from types import SimpleNamespace

import numpy as np
import pytest

from sampler.presentation.style import figure_style, save_figure
from tests import ROOT
from tests.assertions import assert_equal_to_rounding
from theory import Similarity, support_vector_attention

DEFINITIONS = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef


def defined_in(script):
    """Imports, functions, classes and constants of a script in runs/, without what it computes."""
    tree = ast.parse((ROOT / "runs" / script).read_text(encoding="utf-8"))
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, DEFINITIONS)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()").isupper())
    ]
    found = {"__name__": script}
    exec(compile(tree, script, "exec"), found)
    return SimpleNamespace(**found)


COLLAPSE, VECTORS = defined_in("rank_collapse.py"), defined_in("support_vectors.py")
draw_support_vectors = VECTORS.draw_support_vectors


def solved(channels, similarity=Similarity.SOFTMAX, tube=0.3):
    keys = np.linspace(-1.0, 1.0, 9 * channels).reshape(9, channels)
    return support_vector_attention(keys, np.sin(4.0 * keys[:, :1]), tube, 100.0, similarity)


def drawn(ax, label):
    return next(line.get_ydata() for line in ax.lines if line.get_label() == label)


@pytest.mark.parametrize("similarity", Similarity)
def test_support_vectors_labels_and_values(tmp_path, similarity):
    attention = solved(1, similarity)
    support = list(attention.support_vectors)
    silent = sorted(set(range(9)) - set(support))
    assert support
    assert silent
    with figure_style():
        figure = draw_support_vectors(attention, "nine keys")
        above, below = figure.axes
        np.testing.assert_array_equal(
            drawn(above, r"support vector ($v_j \neq 0$)"), attention.labels[support, 0]
        )
        np.testing.assert_array_equal(
            drawn(above, "key inside the tube ($v_j = 0$)"), attention.labels[silent, 0]
        )
        values = np.concatenate([line.get_ydata() for line in below.lines if len(line.get_ydata())])
        assert set(attention.values[support, 0]) <= set(values)
        save_figure(figure, tmp_path, "support_vectors", svg=True)
    assert "nine keys" in (tmp_path / "support_vectors.svg").read_text(encoding="utf-8")


def test_a_tube_wide_enough_for_all_labels_has_no_support_vectors(tmp_path):
    attention = solved(1, tube=2.0)
    assert attention.support_vectors == ()
    with figure_style():
        save_figure(draw_support_vectors(attention), tmp_path, "all_inside")


def test_keys_in_a_plane_are_refused():
    with pytest.raises(ValueError, match="keys: 2 channels; must be 1"):
        draw_support_vectors(solved(2))


def test_rank_collapse_draws_geometric_means_relative_to_the_start(tmp_path):
    plain = np.array([[2.0, 1.0, 0.0], [4.0, 0.5, 0.0]])
    curves = [
        COLLAPSE.CollapseCurve("all", plain, 3.0 * plain),
        COLLAPSE.CollapseCurve("causal", plain, plain),
    ]
    with figure_style():
        figure = COLLAPSE.draw_rank_collapse(curves, "3 tokens")
        received = drawn(figure.axes[0], "all")
        assert_equal_to_rounding(received[:2], [1.0, 0.25], operations=8)
        assert received[2] < 1e-300
        save_figure(figure, tmp_path, "rank_collapse", svg=True)
    text = (tmp_path / "rank_collapse.svg").read_text(encoding="utf-8")
    for expected in ("3 tokens", "causal", "2 seeds", "LayerNorm"):
        assert expected in text, expected
