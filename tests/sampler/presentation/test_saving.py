"""Saving figures: which files there are."""

import numpy as np

from sampler.presentation.style import draw_matrix, figure_style, new_figure, save_figure


def matrix_figure():
    """A square in a wide figure, below a title."""
    figure = new_figure(4.0, 2.0, "matrix")
    draw_matrix(figure.subplots(), np.eye(2), 1.0)
    return figure


def test_an_svg_is_drawn_on_request_and_again_where_it_is_there(tmp_path):
    png, svg = tmp_path / "matrix.png", tmp_path / "matrix.svg"
    assert save_figure(matrix_figure(), tmp_path, "matrix") == [png]
    with figure_style():
        assert save_figure(matrix_figure(), tmp_path, "matrix", svg=True) == [png, svg]
    svg.write_text("of earlier results")
    assert save_figure(matrix_figure(), tmp_path, "matrix") == [png, svg]
    assert svg.read_text(encoding="utf-8") != "of earlier results"


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    with figure_style():
        first, second = (
            save_figure(matrix_figure(), tmp_path / name, "matrix", svg=True) for name in "ab"
        )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
