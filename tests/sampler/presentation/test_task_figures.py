"""The sketches of task and network: what is drawn is what is stored, of any size."""

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.compared import Compared
from sampler.analysis.estimate import Estimate
from sampler.analysis.results import RunResults
from sampler.presentation.figures.network import (
    COLOURS,
    MOST_HEADS,
    MOST_LAYERS,
    DrawnLayers,
    abbreviated,
    draw_network,
    draw_task,
    label_text,
)
from tests.held import held
from theory import AttentionPaths


def table_of(rng, heads=(2, 2), tokens=4, attention=True, pictures=False) -> xr.Dataset:
    """The content of `task.nc`."""
    columns = {"labels": (("example", "output"), np.array([[1.0], [-1.0]]))}
    columns["inputs"] = (("example", "token", "channel"), rng.standard_normal((2, tokens, 3)))
    for layer, count in enumerate(heads, start=1):
        columns[f"head_names_{layer}"] = (f"head_{layer}", [f"h{i}" for i in range(count)])
        if attention and layer <= MOST_LAYERS:
            matrices = rng.random((min(count, MOST_HEADS), tokens, tokens))
            columns[f"attention_{layer}"] = ((f"shown_head_{layer}", "key", "query"), matrices)
    if pictures:
        images = rng.random((2, 3, 5, 5))
        columns["pictures"] = (("example", "picture", "row", "column"), images)
        columns["picture_names"] = (("example", "picture"), [["a", "b", "c"]] * 2)
    sizes = {"tokens": 9, "channels": 3, "paths": int(np.prod(heads))}
    return xr.Dataset(columns, attrs=sizes)


def run_of(table: xr.Dataset | None, diagonal=None, sampled=None, outputs: int = 1) -> RunResults:
    """A run with U_1 of this diagonal; sampled: that of the draws, each ± 0.01."""
    theory, compared = None, {}
    if diagonal is not None:
        layers = DrawnLayers.of(held(None).having(task=table))
        heads = [table.sizes[f"head_{layer + 1}"] for layer in range(len(layers.names))]
        names = ["·".join(map(str, path)) for path in AttentionPaths(tuple(heads)).indices]
        if outputs > 1:
            names = [f"{name}, output {c}" for name in names for c in range(outputs)]
        overlap = np.diag(np.asarray(diagonal, np.float64))
        theory = xr.Dataset({"order_parameter": (("path", "path_"), overlap)}, {"path": names})
        if sampled is not None:
            estimate = Estimate(np.diag(sampled), np.full_like(overlap, 0.01))
            compared = {"order_parameter": Compared(overlap, estimate)}
    return held(theory, **compared).having(task=table)


def legend_of(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def coloured(figure) -> dict[str, float]:
    """Colour of a path → width of its line."""
    lines = figure.axes[0].lines
    return {line.get_color(): line.get_linewidth() for line in lines if line.get_color() in COLOURS}


def test_every_head_is_drawn_with_its_attention(rng):
    table = table_of(rng)
    figure = draw_network(run_of(table, [4.0, 1.0, 2.0, 0.5], [4.5, 1.0, 2.0, 0.5]))
    images = figure.axes[0].images
    expected = [*table["attention_1"].values, *table["attention_2"].values]
    for image, matrix in zip(images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), matrix)
    assert len({image.get_clim() for image in images}) == 1
    assert legend_of(figure)[0] == "0·0: 4.000 (4.500 ± 0.010)"
    widths = list(coloured(figure).values())
    np.testing.assert_allclose(widths[0] / widths[2], 4.0 / 2.0)


def test_without_a_theory_heads_are_linked_and_no_path_is_named(rng):
    figure = draw_network(run_of(table_of(rng)))
    assert not figure.legends
    assert not coloured(figure)
    # Inputs to two heads, two heads to two heads, two heads to the readout.
    assert len(figure.axes[0].lines) == 2 + 4 + 2


def test_of_many_paths_the_strongest_are_named(rng):
    heads = (4, 4, 4)
    diagonal = rng.permutation(64) + 1.0
    figure = draw_network(run_of(table_of(rng, heads), diagonal))
    strongest = sorted(np.argsort(-diagonal)[: len(COLOURS)])
    names = ["·".join(map(str, AttentionPaths(heads).indices[path])) for path in strongest]
    assert [entry.split(":")[0] for entry in legend_of(figure)] == names
    assert "6 strongest of 64 paths" in figure.legends[0].get_title().get_text()


def test_what_has_no_place_is_said(rng):
    heads = (MOST_HEADS + 4, *(1,) * (MOST_LAYERS + 1))
    figure = draw_network(run_of(table_of(rng, heads)))
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"5 more", "2 more layers, readout"} <= texts
    assert len(figure.axes[0].images) == MOST_HEADS - 1 + MOST_LAYERS - 1


def test_heads_without_tokens_are_boxes(rng):
    figure = draw_network(run_of(table_of(rng, attention=False), np.ones(4)))
    assert not figure.axes[0].images
    assert {"h0", "h1"} <= {text.get_text() for text in figure.axes[0].texts}


def test_several_outputs_are_averaged(rng):
    figure = draw_network(run_of(table_of(rng, (2,)), [1.0, 3.0, 5.0, 7.0], outputs=2))
    assert legend_of(figure) == ["0: 2.000", "1: 6.000"]


def test_older_runs_have_no_sketch():
    assert draw_network(run_of(None)) is None


@pytest.mark.parametrize(("name", "expected"), [("abcde", "abcde"), ("abcdef", "abcd…")])
def test_long_names_are_cut(name, expected):
    assert abbreviated(name, 5) == expected


@pytest.mark.parametrize("pictures", [True, False])
def test_examples_are_drawn_side_by_side(rng, pictures):
    table = table_of(rng, pictures=pictures)
    figure = draw_task(run_of(table))
    drawn = [ax.images[0].get_array() for ax in figure.axes if ax.images and ax.axison]
    for received, inputs in zip(drawn, table["inputs"].values, strict=False):
        np.testing.assert_array_equal(received, inputs.T)
    shown = [ax.images[0].get_array() for ax in figure.axes if ax.images and not ax.axison]
    expected = table["pictures"].values.reshape(-1, 5, 5) if pictures else []
    np.testing.assert_array_equal(shown, expected)
    assert "token, first 4 of 9" in {ax.get_xlabel() for ax in figure.axes}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([1.0], "$y$ = +1"), ([-0.25], "$y$ = −0.25"), ([-0.1, 0.9], "label: output 1")],
)
def test_labels_in_words(labels, expected):
    assert label_text(np.array(labels)) == expected
