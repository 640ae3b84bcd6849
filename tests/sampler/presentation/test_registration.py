"""A figure from outside: one function, registered, and it is shown."""

import pytest

from sampler.analysis.results import open_run
from sampler.presentation.figures.catalogue import FIGURES, draw_figures
from sampler.presentation.style import FigureEntry, new_figure
from tests.pages import page_of, stored_run


@pytest.fixture
def added():
    """What is registered here is known in this test alone."""
    names = list(FIGURES)
    yield
    for name in set(FIGURES) - set(names):
        del FIGURES._entries[name]


@pytest.mark.heavy
@pytest.mark.usefixtures("added")
def test_a_figure_is_one_function_and_one_call(tmp_path):
    def draw(run):
        if run.predicted("kernel_alignment") is None:
            return None
        figure = new_figure(4.0, 3.0)
        figure.subplots().plot(run.predicted("kernel_alignment"))
        return figure

    entry = FigureEntry(draw, "What I look at.", "A line that says what I look at.")
    FIGURES.register("mine", entry)
    with pytest.raises(ValueError, match="figure 'mine' is registered already"):
        FIGURES.register("mine", entry)
    directory = stored_run(tmp_path / "run", "recipe.toml", "theory.nc")
    drawn = {path.name for path in draw_figures(directory, open_run(directory), svg=True)}
    assert {"mine.png", "mine.svg"} <= drawn
    page = page_of(directory)
    assert "What I look at." in page.text
    assert "A line that says what I look at." in [entry["alt"] for entry in page.named("img")]
