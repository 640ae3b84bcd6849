"""Figures of the support-vector identity and of rank collapse: what is drawn is what was found."""

import ast
import sys
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
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "runs")  # where a script finds those beside it
        patch.setattr(sys, "argv", [script])
        exec(compile(tree, script, "exec"), found)
    return SimpleNamespace(**found)


COLLAPSE, VECTORS = defined_in("rank_collapse.py"), defined_in("support_vectors.py")
ORDERS = defined_in("next_order.py")
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
        COLLAPSE.CollapseCurve("all", plain, 3.0 * plain, plain),
        COLLAPSE.CollapseCurve("causal", plain, plain, plain),
    ]
    kept = {
        name: np.array([4.0, 4.0 * share]) for name, share in (("a", 1.0), ("b", 0.5), ("c", 0.1))
    }
    with figure_style():
        figure = COLLAPSE.draw_rank_collapse(curves, kept, "3 tokens")
        assert list(drawn(figure.axes[3], "b")) == [1.0, 0.5]
        received = drawn(figure.axes[0], "all")
        assert_equal_to_rounding(received[:2], [1.0, 0.25], operations=8)
        assert received[2] < 1e-300
        save_figure(figure, tmp_path, "rank_collapse", svg=True)
    text = (tmp_path / "rank_collapse.svg").read_text(encoding="utf-8")
    for expected in ("3 tokens", "causal", "2 seeds", "LayerNorm"):
        assert expected in text, expected


def order(power, hidden=False):
    """Differences 1/N^power, known to 1 %; the last one is hidden by its error."""
    widths = (8, 16, 32)
    values = {N: {"value": float(N) ** -power, "error": 0.01 * float(N) ** -power} for N in widths}
    if hidden:
        values[32]["error"] = 1.0
    return {"difference": {str(width): value for width, value in values.items()}}


def test_both_orders_have_their_differences_and_power_laws():
    studies = {
        "two outputs": {"leading": order(1.0), "next": order(2.0)},
        "one example": {"leading": order(1.0), "next": order(2.0, hidden=True)},
    }
    with figure_style():
        first, second = ORDERS.draw_orders(studies).axes
    texts = [text.get_text() for text in first.texts]
    assert [text.split(" ±")[0] for text in texts] == ["$N^{−1.00", "$N^{−2.00"]
    law = drawn(first, "next order: power law")
    assert_equal_to_rounding(law, 100.0 / np.array([8.0, 16.0, 32.0]) ** 2, operations=1e6)
    (limit,) = drawn(second, "next order: unresolved, below")
    assert limit == pytest.approx(100.0 * (32.0**-2 + 3.0))
