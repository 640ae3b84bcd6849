"""Saving figures: which files there are, and how a figure is arranged in them."""

import matplotlib
import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine

from sampler.presentation.style import draw_matrix, figure_style, new_figure, save_figure


def matrix_figure():
    """A square in a wide figure, below a title."""
    figure = new_figure(4.0, 2.0, "matrix")
    draw_matrix(figure.subplots(), np.eye(2), 1.0)
    return figure


def test_an_svg_is_drawn_on_request_and_again_where_it_is_there(tmp_path):
    png, svg = tmp_path / "matrix.png", tmp_path / "matrix.svg"
    assert save_figure(matrix_figure(), tmp_path, "matrix") == [png]
    assert list(tmp_path.iterdir()) == [png]
    with figure_style():
        assert save_figure(matrix_figure(), tmp_path, "matrix", svg=True) == [png, svg]
    drawn = svg.read_text(encoding="utf-8")
    svg.write_text("of earlier results")
    assert save_figure(matrix_figure(), tmp_path, "matrix") == [png, svg]
    assert svg.read_text(encoding="utf-8") != "of earlier results"
    assert ">matrix<" in drawn, "text stays text"


def test_a_figure_is_arranged_once_and_cut_to_what_it_shows(tmp_path, monkeypatch):
    arranged, execute = [], ConstrainedLayoutEngine.execute
    monkeypatch.setattr(
        ConstrainedLayoutEngine, "execute", lambda *given: arranged.append(execute(*given))
    )
    with figure_style():
        save_figure(matrix_figure(), tmp_path, "matrix", svg=True)
    assert len(arranged) == 1
    height, width = matplotlib.image.imread(tmp_path / "matrix.png").shape[:2]
    assert width < 1.2 * height
    assert height > 1.9 * 150


def test_a_figure_of_another_library_is_saved_as_it_is_arranged(tmp_path):
    figure = matplotlib.figure.Figure(figsize=(2.0, 1.0), layout="tight")
    figure.subplots().plot([0, 1], [0, 1])
    bare = matplotlib.figure.Figure(figsize=(2.0, 1.0))
    bare.subplots().plot([0, 1], [0, 1])
    for name, one in {"tight": figure, "bare": bare}.items():
        (path,) = save_figure(one, tmp_path, name)
        assert path.stat().st_size > 1000
