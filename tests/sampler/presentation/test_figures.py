"""Figures of a run: what is drawn is what is stored, and missing tables leave out their figure."""

import matplotlib
import numpy as np
import pytest
import xarray as xr
from arviz_stats.base import array_stats
from scipy.stats import norm, t

from sampler.analysis.estimates import Estimate
from sampler.analysis.results import open_run
from sampler.analysis.slowest import slowest_element
from sampler.presentation.figures.attention import draw_attention
from sampler.presentation.figures.catalogue import draw_figures
from sampler.presentation.figures.kernel_matrices import class_ends, draw_kernels
from sampler.presentation.figures.order_parameter import (
    draw_order_parameter,
)
from sampler.presentation.figures.theory_against_draws import draw_theory_against_draws
from sampler.presentation.figures.traces import draw_chains, rank_histogram
from sampler.presentation.style import draw_matrix, figure_style, new_figure, save_figure
from tests.held import comparison_of, held, theory_of
from tests.pages import STORED, stored_run

PAIRS = ("path", "path_")


# --- U_1 and the predictor


def test_order_parameter_panels_show_the_stored_matrices():
    leading, sampled = np.array([[2.0, -1.0], [-1.0, 4.0]]), np.array([[2.5, -1.0], [-1.0, 3.0]])
    beyond, mcse = 1.25 * leading, np.array([[0.25, 0.1], [0.1, 0.0]])
    orders = {"leading": leading, "next": beyond}
    theory = theory_of({name: {"order_parameter": (PAIRS, one)} for name, one in orders.items()})
    compared = comparison_of(
        {"order_parameter": Estimate(sampled, mcse)},
        {name: {"order_parameter": one} for name, one in orders.items()},
    )
    theory = theory.assign_coords(path=["a", "b"])
    figure = draw_order_parameter(held(theory, comparison=compared))
    panels = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    received = [np.ma.filled(image.get_array(), np.nan) for image in panels]
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = [np.where(mcse > 0, (sampled - one) / mcse, np.nan) for one in (leading, beyond)]
    for expected in (sampled, leading, beyond, *gaps):
        assert sum(np.array_equal(one, expected, equal_nan=True) for one in received) == 1
    # One scale for the matrices, another for all differences.
    assert len({image.get_clim() for image in panels}) == 2


def test_theories_and_draws_are_drawn_element_by_element():
    """U_1 once for each pair of paths; without an error nothing is drawn."""
    sampled, mcse = np.array([[2.0, -1.0], [-1.0, 3.0]]), np.array([[0.5, 0.1], [0.1, 0.25]])
    theories = {"leading": 1.5 * sampled, "next": sampled + 0.1}

    def drawn(errors):
        estimate = Estimate(sampled, errors)
        predictions = {name: {"order_parameter": one} for name, one in theories.items()}
        compared = comparison_of({"order_parameter": estimate}, predictions)
        return draw_theory_against_draws(held(theory_of({"leading": {}}), comparison=compared))

    assert drawn(np.full((2, 2), np.nan)) is None
    above, below = drawn(mcse).axes
    upper = ([0, 0, 1], [0, 1, 1])
    for bars, points, theory in zip(above.containers, below.lines, theories.values(), strict=False):
        marks, _, (segments,) = bars.lines
        np.testing.assert_array_equal(marks.get_xdata(), theory[upper])
        ends = [segment[:, 1] for segment in segments.get_segments()]
        expected = sampled[upper] + np.outer([-1, 1], mcse[upper])
        np.testing.assert_allclose(np.transpose(ends), expected)
        gaps = ((sampled - theory) / mcse)[upper]
        low, high = below.get_ylim()
        np.testing.assert_allclose(points.get_ydata(), np.clip(gaps, low, high))


def test_differences_stand_beside_what_chance_allows():
    """The largest of all values of a panel, by Student's t: two chains have twenty batches."""
    run = open_run(STORED)
    _, *below = np.reshape(draw_theory_against_draws(run).axes, (2, -1))[1]
    for ax, quantity in zip(below, ("predictor_mean", "predictor_variance"), strict=True):
        values = np.size(run.sampled(quantity).value)
        limit = t.isf(norm.sf(3.0) / values, 2 * 10 - 1)
        drawn = sorted(line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":")
        np.testing.assert_allclose(drawn, [-limit, limit], rtol=1e-9)


# --- kernels


def centred(kernel):
    """Less the means of rows and columns, over the mean of the diagonal."""
    middle = np.eye(len(kernel)) - 1.0 / len(kernel)
    kernel = middle @ kernel @ middle
    return kernel / np.mean(np.diag(kernel))


def test_kernels_are_drawn_as_stored_on_one_scale():
    labels = np.array([[1.0], [1.0], [-1.0]])
    kernels = {"infinite": np.eye(3), "leading": np.diag([1.0, 2.0, 3.0])}
    axes = ("shown_example", "shown_example_")
    theory = theory_of(
        {name: {"kernel": (axes, one)} for name, one in kernels.items()},
        labels_shown=(("shown_example", "output"), labels),
    )
    sampled = np.diag([3.0, 2.0, 1.0])
    compared = comparison_of({"kernel": Estimate(sampled, 0.1 * np.ones((3, 3)))}, {})
    figure = draw_kernels(held(theory, comparison=compared))
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    assert len({image.get_clim() for image in images}) == 1
    for image, kernel in zip(images, [*kernels.values(), sampled], strict=True):
        np.testing.assert_allclose(image.get_array(), centred(kernel), atol=1e-15)
    np.testing.assert_array_equal(figure.axes[0].get_yticks(), [0.5, 2.0])


def test_path_kernels_are_centred_and_relative_to_their_size(rng):
    """Of five paths the four with the largest U_1, by loops over pairs of them."""
    features = rng.standard_normal((3, 5, 4)) * np.array([1.0, 5.0, 1.0, 2.0, 0.1])[:, None] + 1.0
    columns = {"kernel_features": (("shown_example", "kernel_path", "feature"), features)}
    columns |= {"labels_shown": (("shown_example", "output"), np.ones((3, 1)))}
    of_limit = {"order_parameter": (PAIRS, np.diag([5.0, 4.0, 1.0, 2.0, 3.0]))}
    of_limit["kernel"] = (("shown_example", "shown_example_"), np.eye(3))
    theory = theory_of({"leading": of_limit}, **columns)
    run = held(theory.assign_coords(kernel_path=list("abcde")))
    alone, both = (
        [ax.images[0] for ax in draw_kernels(run, paths=paths).axes if ax.images]
        for paths in (False, True)
    )
    (mosaic,) = [one.get_array() for one in both if one.get_array().shape == (15, 15)]
    assert len(both) == len(alone) + 1
    strongest = [0, 1, 3, 4]
    kernels = np.einsum("xpi,yqi->pqxy", features, features)[np.ix_(strongest, strongest)]
    middle = np.eye(3) - 1.0 / 3.0
    sizes = [np.trace(middle @ kernels[p, p] @ middle) / 3.0 for p in range(4)]
    for p, q in np.ndindex(4, 4):
        expected = middle @ kernels[p, q] @ middle / np.sqrt(sizes[p] * sizes[q])
        received = mosaic[4 * p : 4 * p + 3, 4 * q : 4 * q + 3]
        np.testing.assert_allclose(received, expected, atol=1e-13)
    assert np.isnan(np.ma.filled(mosaic, np.nan)[[3, 7, 11]]).all()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[1.0], [1.0], [-1.0]], [2, 3]),
        ([[1.0], [1.0]], [2]),
        ([[0.3], [0.2], [0.1]], None),
        (np.eye(3).tolist(), [1, 2, 3]),
        ([[0.1, 0.2], [0.3, 0.1], [0.0, 1.0]], None),
    ],
)
def test_classes_are_told_from_other_labels(labels, expected):
    received = class_ends(np.array(labels))
    assert expected is None if received is None else received.tolist() == expected


# --- learned attention


@pytest.mark.parametrize("queries", [4, 1])
def test_learned_heads_have_a_row_of_prior_mean_posterior_mean_and_draws(rng, queries):
    """Of all queries the first example, of one query all examples; heads that are fixed have none.

    Repetitions count by their evidence, and the likeliest have a column.
    """
    logs, shape = np.array([0.0, 2.0, 1.0, -1.0]), (3, 2, 4, queries)  # example, head, key, query
    drawn, single = rng.random((4, *shape)), rng.random((4, 2, *shape))
    prior, axes = rng.random(shape), ("shown_example", "head_1", "key", "query_1")
    columns = {
        "attention_1": (("chain", *axes), drawn),
        "attention_1_single": (("chain", "single", *axes), single),
        "attention_1_prior": (axes, prior),
        "head_of_place_1": (("chain", "measured_draw", "head_1"), np.zeros((4, 5, 2), int)),
        "learned_1": ("head_1", np.array([0, 1])),
    }
    statistics = {"ancestor": np.ones((4, 5)), "log_evidence": logs[:, None] * np.ones((4, 5))}
    groups = {
        "posterior": xr.Dataset(),
        "attention": xr.Dataset(columns, attrs={"learned_layers": 1}),
        "sample_stats": xr.Dataset({n: (("chain", "draw"), v) for n, v in statistics.items()}),
    }
    figure = draw_attention(held(draws=groups))
    panels = [ax for ax in figure.axes if ax.images and ax.get_title()]
    weights = np.exp(logs) / np.exp(logs).sum()
    mean = np.einsum("c,cehkq->ehkq", weights, drawn)
    chosen = [prior, mean, *(single[chain, -1] for chain in (1, 2, 0))]
    expected = [m[:, 1, :, 0] if queries == 1 else m[0, 1] for m in chosen]
    for panel, matrix in zip(panels, expected, strict=True):
        np.testing.assert_allclose(panel.images[0].get_array(), matrix, rtol=1e-12)


# --- all figures of a directory


@pytest.fixture
def directory(tmp_path):
    return stored_run(tmp_path / "run")


def drawn(directory) -> set[str]:
    return {path.stem for path in draw_figures(directory, open_run(directory))}


@pytest.mark.usefixtures("undrawn")
def test_a_missing_table_leaves_out_its_figures_only(directory):
    every, settings = drawn(directory), dict(matplotlib.rcParams)
    assert {"order_parameter", "theory_against_draws", "kernels", "chains"} <= every
    (directory / "comparison.nc").unlink()
    theory = drawn(directory)
    assert theory < every
    assert {"order_parameter", "kernels", "chains"} <= theory
    assert "theory_against_draws" not in theory
    (directory / "theory.nc").unlink()
    assert "chains" in drawn(directory) <= theory - {"order_parameter", "kernels"}
    assert dict(matplotlib.rcParams) == settings


# --- figures of how chains move: their numbers from the definition, and which elements are shown


CHAINS, DRAWS = 3, 200


def autoregressive(rng, memory: float, shape=(CHAINS, DRAWS)) -> np.ndarray:
    """x_t = memory · x_{t−1} + noise."""
    values = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        values[:, draw] += memory * values[:, draw - 1]
    return values


def test_the_element_that_forgets_last_of_all_is_shown(rng):
    """However many there are: the slowest of a thousand is element 997."""
    draws = rng.normal(size=(CHAINS, DRAWS, 1000))
    draws[..., 997] = autoregressive(rng, 0.97)
    table = xr.DataArray(draws, dims=("chain", "draw", "test_example"))
    ((label, values),) = slowest_element("predictor", table).items()
    assert label == "predictor [997]"
    np.testing.assert_array_equal(values, draws[..., 997])
    last = (array_stats.ess(draws[..., at], chain_axis=0, draw_axis=1) for at in range(990, 1000))
    assert int(np.argmin([float(one) for one in last])) == 7


def test_elements_that_do_not_move_are_passed_over(rng):
    draws = np.stack([np.ones((CHAINS, DRAWS)), autoregressive(rng, 0.1)], axis=-1)
    draws = np.stack([draws, np.full_like(draws, np.nan)], axis=-2)
    table = xr.DataArray(draws, dims=("chain", "draw", "path", "path_"))
    assert list(slowest_element("$U_1$", table)) == ["$U_1$ [0, 1]"]
    assert slowest_element("$U_1$", table.isel(path=slice(1, 2))) == {}


@pytest.mark.parametrize(("extra", "word"), [({}, "chain"), ({"ancestor"}, "repetition")])
def test_repetitions_are_not_called_chains(rng, extra, word):
    statistics = {name: (("chain", "draw"), autoregressive(rng, 0.2)) for name in {"lp", *extra}}
    trace, _ = draw_chains(held(draws={"sample_stats": xr.Dataset(statistics)})).axes
    labels = [line.get_label() for line in trace.lines]
    assert labels == [f"{word} {number}" for number in range(CHAINS)]


def test_rank_histogram_counts_every_draw_once():
    draws = np.random.default_rng(0).normal(size=(3, 40))
    ordered = np.sort(draws, axis=None)
    expected = np.array(
        [
            [np.isin(chain, ordered[start : start + 30]).sum() for start in range(0, 120, 30)]
            for chain in draws
        ]
    )
    np.testing.assert_array_equal(rank_histogram(draws, bins=4), expected)


# --- saving figures: which files there are


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
