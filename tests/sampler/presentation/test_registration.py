"""A figure and a compared quantity from outside: one function, registered, and they are shown."""

import json

import numpy as np
import pytest
from sampler.analysis.compared import Compared
from sampler.presentation.summary import comparison_text

from sampler.analysis.comparison import QUANTITIES, register_quantity
from sampler.analysis.estimates import mean_of
from sampler.analysis.results import RunResults, open_run
from sampler.jobs.stages import compare_stage
from sampler.presentation.figures.draw import FIGURES, draw_figures
from sampler.presentation.style import FigureEntry, new_figure
from tests.pages import page_of, stored_run


@pytest.fixture
def added():
    """What is registered here is known in this test alone."""
    known = [(table, list(table)) for table in (FIGURES, QUANTITIES)]
    yield
    for table, names in known:
        for name in set(table) - set(names):
            del table._entries[name]


@pytest.mark.heavy
@pytest.mark.usefixtures("added")
def test_a_figure_is_one_function_and_one_call(tmp_path):
    def draw(run):
        if run.theory is None:
            return None
        figure = new_figure(4.0, 3.0)
        figure.subplots().plot(run.theory["kernel_alignment"])
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


@pytest.mark.heavy
@pytest.mark.usefixtures("added")
def test_a_compared_quantity_is_one_function_and_one_call(tmp_path, monkeypatch):
    monkeypatch.setattr("sampler.presentation.report.write.draw_figures", lambda *_, **__: [])

    def trace(given):
        draws = given.draws["order_parameter"]
        theory = np.trace(given.theory["order_parameter"].values)
        return Compared(theory, mean_of(np.trace(draws, axis1=-2, axis2=-1)))

    register_quantity("trace", trace)
    directory = stored_run(tmp_path / "run")
    compared = compare_stage(RunResults(directory)).comparison
    stored = json.loads((directory / "comparison.json").read_text())
    matrix = stored["order_parameter"]
    assert stored["trace"]["sampled"] == pytest.approx(np.trace(matrix["sampled"]), rel=1e-12)
    assert stored["trace"]["theory"] == pytest.approx(np.trace(matrix["theory"]), rel=1e-12)
    assert stored["trace"]["mcse"] > 0
    (row,) = compared.rows(["a", "b", "c", "d"][: len(matrix["theory"])])["trace"]
    assert row.difference_in_mcse == stored["trace"]["difference_in_mcse"]
    (line,) = [
        text for text in comparison_text(RunResults(directory)).splitlines() if text[:5] == "trace"
    ]
    page = page_of(directory)
    table = page.table("Accuracy, scores and evidence")
    values = table.values[table.rows.index(table.row("trace"))]
    assert [float(value) for value in values[1:3]] == [row.theory, row.sampled]
    # The same table, on the page and on the terminal.
    shown = table.row("trace")
    assert " ".join(line.split()).startswith(" ".join(shown[:3]))
    assert page.table("Sampled minus theory").row("trace")[2] == "1"
