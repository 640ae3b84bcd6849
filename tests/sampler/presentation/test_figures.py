"""Figures: what is drawn is what is stored, and a missing table leaves out its figure."""

from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.stats import binom

from sampler.analysis.estimates import Estimate
from sampler.analysis.results import open_run
from sampler.analysis.slowest import slowest_element, slowest_series
from sampler.presentation.figures.attention import draw_attention
from sampler.presentation.figures.catalogue import draw_figures
from sampler.presentation.figures.kernel_matrices import (
    draw_alignment,
    draw_kernels,
    mark_classes,
)
from sampler.presentation.figures.order_parameter import (
    draw_order_parameter,
    draw_trained_order_parameter,
)
from sampler.presentation.figures.theory_against_draws import (
    draw_sampled_predictor,
    draw_theory_against_draws,
)
from sampler.presentation.figures.traces import INDEPENDENT, draw_chains, rank_histogram
from tests.pages import stored_run
from tests.problems import autoregressive
from tests.sampler.presentation.drawn import assert_bars, bars_of
from tests.told.held import comparison_of, held, theory_of

PAIRS = ("path", "path_")
SHOWN = ("shown_example", "shown_example_")


def panels_of(figure) -> list[np.ndarray]:
    """Matrices with a title, NaN where nothing is drawn."""
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    return [np.ma.filled(image.get_array(), np.nan) for image in images]


def test_order_parameters_and_how_far_they_are_off():
    """As matrices, and element by element: each pair of paths once, with its error."""
    sampled, mcse = np.array([[2.0, -1.0], [-1.0, 3.0]]), np.array([[0.5, 0.1], [0.1, 0.0]])
    theories = {"leading": 1.5 * sampled, "next": sampled + 0.1}
    of_theory = {name: {"order_parameter": (PAIRS, one)} for name, one in theories.items()}
    compared = comparison_of(
        {"order_parameter": Estimate(sampled, mcse)},
        {name: {"order_parameter": one} for name, one in theories.items()},
    )
    run = held(theory_of(of_theory).assign_coords(path=["a", "b"]), comparison=compared)
    gaps = [(sampled - one) / np.where(mcse > 0, mcse, np.nan) for one in theories.values()]
    received = panels_of(draw_order_parameter(run))
    for expected in (sampled, *theories.values(), *gaps):
        assert sum(np.array_equal(one, expected, equal_nan=True) for one in received) == 1
    above, below = draw_theory_against_draws(run).axes
    upper = ([0, 0], [0, 1])  # without an error nothing is drawn
    for bars, points, theory, gap in zip(
        above.containers, below.lines, theories.values(), gaps, strict=False
    ):
        marks, _, (segments,) = bars.lines
        np.testing.assert_array_equal(marks.get_xdata(), theory[upper])
        ends = [segment[:, 1] for segment in segments.get_segments()]
        expected = sampled[upper] + np.outer([-1, 1], mcse[upper])
        np.testing.assert_allclose(np.transpose(ends), expected)
        np.testing.assert_allclose(points.get_ydata(), np.clip(gap[upper], *below.get_ylim()))


def test_beside_a_trained_network_all_are_divided_by_the_mean_of_their_diagonal():
    """The samples with their errors, which are shown as numbers."""
    theory, trained = np.array([[1.0, 0.25], [0.25, 3.0]]), np.array([[5.0, -1.0], [-1.0, 3.0]])
    sampled, mcse = np.array([[2.0, -1.0], [-1.0, 3.0]]), np.array([[0.5, 0.1], [0.1, 0.25]])
    compared = comparison_of(
        {"order_parameter": Estimate(sampled, mcse)}, {"leading": {"order_parameter": theory}}
    )
    table = theory_of(
        {"leading": {"order_parameter": (PAIRS, theory)}}, order_parameter_trained=(PAIRS, trained)
    )
    run = held(table.assign_coords(path=["a", "b"]), comparison=compared)
    figure = draw_trained_order_parameter(run)
    for received, expected in zip(
        panels_of(figure), (theory / 2.0, sampled / 2.5, trained / 4.0), strict=True
    ):
        np.testing.assert_allclose(received, expected)
    texts = [text.get_text().replace("−", "-") for text in figure.axes[1].texts]
    numbers = [[float(part) for part in text.split("\n± ")] for text in texts]
    expected = np.stack([sampled / 2.5, mcse / 2.5], axis=-1).reshape(4, 2)
    np.testing.assert_allclose(numbers, expected)


def test_kernels_are_centred_and_relative_to_their_size(rng):
    """Of five paths the four with the largest U_1, by loops over pairs of them."""
    features = rng.standard_normal((3, 5, 4)) * np.array([1.0, 5.0, 1.0, 2.0, 0.1])[:, None] + 1.0
    columns = {"kernel_features": (("shown_example", "kernel_path", "feature"), features)}
    labels = np.array([[1.0], [1.0], [-1.0]])
    columns |= {"labels_shown": (("shown_example", "output"), labels)}
    overlap = {"order_parameter": (PAIRS, np.diag([5.0, 4.0, 1.0, 2.0, 3.0]))}
    kernels = {"infinite": np.eye(3), "leading": np.diag([1.0, 2.0, 3.0])}
    of_theory = {name: {"kernel": (SHOWN, one)} for name, one in kernels.items()}
    of_theory["leading"] |= overlap
    theory = theory_of(of_theory, **columns).assign_coords(kernel_path=list("abcde"))
    sampled = np.diag([3.0, 2.0, 1.0])
    compared = comparison_of({"kernel": Estimate(sampled, 0.1 * np.ones((3, 3)))}, {})
    figure = draw_kernels(held(theory, comparison=compared), paths=True)
    middle = np.eye(3) - 1.0 / 3.0

    def centred(kernel, size):
        return middle @ kernel @ middle / size

    drawn = [ax for ax in figure.axes if ax.images and ax.get_title()]
    (limits,) = {ax.images[0].get_clim() for ax in drawn if len(ax.images[0].get_array()) == 3}
    (blocks,) = (ax for ax in drawn if len(ax.images[0].get_array()) == 15)
    for axis in (blocks.xaxis, blocks.yaxis):
        assert [text.get_text() for text in axis.get_ticklabels()] == list("abde")
        np.testing.assert_array_equal(axis.get_ticklocs(), [1, 5, 9, 13])
    panels = panels_of(figure)
    (mosaic,) = [one for one in panels if one.shape == (15, 15)]
    received = [one for one in panels if one.shape == (3, 3)]
    for shown, kernel in zip(received, [*kernels.values(), sampled], strict=True):
        size = np.mean(np.diag(middle @ kernel @ middle))
        np.testing.assert_allclose(shown, centred(kernel, size), atol=1e-15)
    # All on the scale that 97 % of their 27 elements are within: 25.22 steps of the 26 up.
    sizes = np.sort(np.abs(received), axis=None)
    end = sizes[25] + 0.22 * (sizes[26] - sizes[25])
    np.testing.assert_allclose(limits, [-end, end])
    of_paths = np.einsum("xpi,yqi->pqxy", features, features)[np.ix_([0, 1, 3, 4], [0, 1, 3, 4])]
    sizes = [np.trace(middle @ of_paths[p, p] @ middle) / 3.0 for p in range(4)]
    for p, q in np.ndindex(4, 4):
        expected = centred(of_paths[p, q], np.sqrt(sizes[p] * sizes[q]))
        np.testing.assert_allclose(
            mosaic[4 * p : 4 * p + 3, 4 * q : 4 * q + 3], expected, atol=1e-13
        )


@pytest.mark.parametrize(("queries", "heads"), [(4, 2), (1, 9)])
def test_learned_heads_have_a_row_of_prior_mean_posterior_mean_and_draws(rng, queries, heads):
    """Of all queries the first example, of one query all examples; heads that are fixed have none.

    Repetitions count by their evidence, and the likeliest have a column. Six heads have a row.
    """
    logs = np.array([0.0, 2.0, 1.0, -1.0])
    shape = (3, heads, 4, queries)  # example, head, key, query
    drawn, single = rng.random((4, *shape)), rng.random((4, 2, *shape))
    prior, axes = rng.random(shape), ("shown_example", "head_1", "key", "query_1")
    columns = {
        "attention_1": (("chain", *axes), drawn),
        "attention_1_single": (("chain", "single", *axes), single),
        "attention_1_prior": (axes, prior),
        "head_of_place_1": (("chain", "measured_draw", "head_1"), np.zeros((4, 5, heads), int)),
        "learned_1": ("head_1", np.array([0] + [1] * (heads - 1))),
    }
    statistics = {"ancestor": np.ones((4, 5)), "log_evidence": logs[:, None] * np.ones((4, 5))}
    groups = {
        "posterior": xr.Dataset(),
        "attention": xr.Dataset(columns, attrs={"learned_layers": 1}),
        "sample_stats": xr.Dataset({n: (("chain", "draw"), v) for n, v in statistics.items()}),
    }
    weights = np.exp(logs) / np.exp(logs).sum()
    mean = np.einsum("c,cehkq->ehkq", weights, drawn)
    chosen = [prior, mean, *(single[chain, -1] for chain in (1, 2, 0))]
    expected = [
        m[:, head, :, 0] if queries == 1 else m[0, head]
        for head in range(1, heads)[:6]
        for m in chosen
    ]
    figure = draw_attention(held(draws=groups))
    images = [ax.images[0] for ax in figure.axes if ax.images]
    # One scale for all, from 0 to the largest, on which small ones are told apart by their roots.
    scale = np.array([0.0, 0.25, 1.0]) * max(map(np.max, expected))
    for image, matrix in zip(images, expected, strict=True):
        np.testing.assert_allclose(image.get_array(), matrix, rtol=1e-12)
        np.testing.assert_allclose(image.norm(scale), [0.0, 0.5, 1.0], atol=1e-12)


def test_the_element_that_forgets_last_of_all_is_shown(rng):
    """However many there are; those that do not move, or are no numbers, are passed over."""
    draws = rng.normal(size=(3, 200, 1000))
    draws[..., 997] = autoregressive(rng, 0.97, (3, 200))
    draws[..., 5], draws[..., 6] = 1.0, np.nan
    table = xr.DataArray(draws, dims=("chain", "draw", "test_example"))
    ((label, values),) = slowest_element("predictor", table).items()
    assert label == "predictor [997]"
    np.testing.assert_array_equal(values, draws[..., 997])
    assert slowest_element("predictor", table.isel(test_example=slice(5, 7))) == {}


def test_the_density_and_the_slowest_of_predictor_and_overlap_are_shown(rng):
    """What does not move, or is not of every draw, is left out, and so is all of few draws."""
    shape = 2, 100
    density, mean, overlap = (rng.normal(size=(*shape, *of)) for of in ((), (3,), (2, 2)))
    mean[..., 2] = autoregressive(rng, 0.9, shape)
    overlap[..., 0, 1] = autoregressive(rng, 0.9, shape)
    axes = ("chain", "draw")

    def groups(draws: int = 100) -> dict[str, xr.Dataset]:
        some = slice(draws)
        return {
            "posterior": xr.Dataset({"order_parameter": ((*axes, *PAIRS), overlap[:, some])}),
            "predictions": xr.Dataset({"predictor_mean": ((*axes, "test"), mean[:, some])}),
            "sample_stats": xr.Dataset({"lp": (axes, density[:, some])}),
        }

    expected = [density, mean[..., 2], overlap[..., 0, 1]]
    thinned = groups()
    thinned["predictions"].attrs["thinned"] = 2
    still = groups()
    still["sample_stats"] = xr.zeros_like(still["sample_stats"])
    for given, kept in (
        (groups(), expected), (thinned, expected[::2]), (still, expected[1:]), (groups(19), []),
    ):  # fmt: skip
        received = slowest_series(held(draws=given)).values()
        for one, other in zip(received, kept, strict=True):
            np.testing.assert_array_equal(one, other)


def test_rank_histogram_counts_every_draw_once(rng):
    draws = rng.normal(size=(3, 40))
    ordered = np.sort(draws, axis=None)
    bins = [ordered[start : start + 30] for start in range(0, 120, 30)]
    expected = [[np.isin(chain, one).sum() for one in bins] for chain in draws]
    np.testing.assert_array_equal(rank_histogram(draws, bins=4), expected)


def test_ranks_of_independent_draws_stay_in_their_band(rng):
    """Of 200 draws in 20 bins: the central 95 % of the binomial distribution of a count."""
    density = xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(3, 200)))})
    _, ranks = draw_chains(held(draws={"posterior": xr.Dataset(), "sample_stats": density})).axes
    (band,) = (one for one in ranks.patches if one.get_label() == INDEPENDENT)
    heights = band.get_path().transformed(band.get_patch_transform()).vertices[:, 1]
    low, high = binom.interval(0.95, 200, 1 / 20)
    np.testing.assert_allclose([heights.min(), heights.max()], [low / 10, high / 10])


def test_matrices_of_one_kind_have_one_colour_scale_and_show_their_numbers():
    """Differences within the noise stay pale: their scale ends at what chance may bring."""
    sampled, mcse = np.array([[2.0, -1.0], [-1.0, 3.0]]), np.array([[0.5, 0.1], [0.1, 0.2]])
    theories = {"leading": sampled + mcse, "next": np.diag([7.5, 3.25])}
    compared = comparison_of(
        {"order_parameter": Estimate(sampled, mcse)},
        {name: {"order_parameter": one} for name, one in theories.items()},
    )
    of_theory = {name: {"order_parameter": (PAIRS, one)} for name, one in theories.items()}
    for names, end in ((["leading"], 3.0), (["leading", "next"], 11.0)):
        theory = theory_of({n: of_theory[n] for n in names}).assign_coords(path=["a", "b"])
        figure = draw_order_parameter(held(theory, comparison=compared))
        axes = [ax for ax in figure.axes if ax.images and ax.get_title()]
        gaps = [(sampled - theories[name]) / mcse for name in names]
        values = [sampled, *(theories[name] for name in names)]
        largest = np.max(np.abs(values))
        expected = [(one, largest) for one in values] + [(gap, end) for gap in gaps]
        for matrix, limit in expected:
            (ax,) = (one for one in axes if np.allclose(one.images[0].get_array(), matrix))
            assert ax.images[0].get_clim() == pytest.approx((-limit, limit))
            for text in ax.texts:
                column, row = map(int, text.get_position())
                number = float(text.get_text().replace("−", "-").split("\n")[0])
                assert number == pytest.approx(matrix[row, column], abs=0.0501)
            assert len(ax.texts) == 4


def test_of_many_elements_each_has_its_own_error_between_the_limits_of_chance(rng):
    """Every k-th of 900 is drawn; one that is far off does not set the scale of the others."""
    theory, mcse = rng.permutation(900) / 100.0, rng.uniform(0.1, 0.2, 900)
    sampled = theory + mcse * np.append(np.linspace(-10.0, 10.0, 899), 1000.0)
    compared = comparison_of(
        {"predictor_mean": Estimate(sampled, mcse)}, {"leading": {"predictor_mean": theory}}
    )
    above, below = draw_theory_against_draws(held(comparison=compared)).axes
    points, _ = bars_of(above.containers[0])
    at = np.argsort(theory)[np.rint(100.0 * points[:, 0]).astype(int)]
    assert 200 <= len(set(at)) == len(at) <= 400
    assert_bars(above.containers[0], theory[at], sampled[at], mcse[at])
    gaps = (sampled - theory) / mcse
    low, high = below.get_ylim()
    drawn = np.stack([theory[at], np.clip(gaps[at], low, high)], axis=1)
    np.testing.assert_allclose(below.lines[0].get_xydata(), drawn)
    assert low == -high
    assert np.mean(np.abs(gaps) > high) <= 0.01
    assert high < 15.0
    heights = [line.get_ydata() for line in below.lines[1:]]
    np.testing.assert_allclose(heights, np.outer([-3.0, 0.0, 3.0], [1.0, 1.0]))
    equal = above.lines[-1]
    np.testing.assert_array_equal(equal.get_xdata(), equal.get_ydata())


@pytest.mark.parametrize(
    ("predictors", "drawn"),
    [
        (["infinite", "infinite_tuned"], ["infinite"]),
        (["leading", "next", "mine", "infinite"], ["leading", "next", "mine"]),
    ],
)
def test_infinite_width_stands_in_where_no_theory_predicts(predictors, drawn, rng):
    theories = dict(zip(predictors, rng.standard_normal((len(predictors), 9)), strict=True))
    predictions = {name: {"predictor_mean": one} for name, one in theories.items()}
    sampled = Estimate(rng.standard_normal(9), np.full(9, 0.1))
    compared = comparison_of({"predictor_mean": sampled}, predictions)
    above, _ = draw_theory_against_draws(held(comparison=compared)).axes
    for name, bars in zip(drawn, above.containers, strict=True):
        assert_bars(bars, theories[name], sampled.value, sampled.mcse)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_predictor_without_a_theory_is_drawn_by_rank_and_class(rng, outputs):
    """By the sign of one label, or by which of several outputs is that of the class."""
    shape = (8, outputs) if outputs > 1 else (8,)
    mean, variance = rng.standard_normal(shape), rng.uniform(0.5, 2.0, shape)
    labels = np.array([1.0, -1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0])[:, None]
    if outputs > 1:
        labels = np.eye(outputs)[(labels[:, 0] > 0).astype(int)]
    moments = {"predictor_mean": mean, "predictor_variance": variance}
    estimates = {n: Estimate(one, np.full(shape, 0.01)) for n, one in moments.items()}
    constants = xr.Dataset({"labels_test": (("test_example", "output"), labels)})
    draws = {"posterior": xr.Dataset(), "predictions_constant_data": constants}
    (ax,) = draw_sampled_predictor(held(draws=draws, comparison=comparison_of(estimates, {}))).axes
    rank = np.array([np.sum(mean < one) for one in mean.ravel()])
    for container, is_class in zip(ax.containers, (True, False), strict=True):
        of = (labels.ravel() > 0) == is_class
        assert_bars(container, rank[of], mean.ravel()[of], np.sqrt(variance.ravel()[of]))


def test_alignment_is_drawn_from_the_first_component_on(rng):
    """The first fifty of sixty, the samples with their errors."""
    curves = dict(zip(("infinite", "leading", "next"), rng.random((3, 60)), strict=True))
    value, mcse = rng.random(60), rng.uniform(0.01, 0.02, 60)
    of_theory = {n: {"kernel_alignment": (("component",), one)} for n, one in curves.items()}
    compared = comparison_of({"kernel_alignment": Estimate(value, mcse)}, {})
    theory = theory_of(of_theory).assign_coords(component=range(60))
    (ax,) = draw_alignment(held(theory, comparison=compared)).axes
    *predicted, sampled = ax.containers
    places = np.arange(1, 51)
    for container, one in zip(predicted, curves.values(), strict=True):
        expected = np.stack([places, one[:50]], axis=1)
        np.testing.assert_array_equal(container.lines[0].get_xydata(), expected)
    assert_bars(sampled, places, value[:50], mcse[:50])


@pytest.mark.parametrize(
    ("labels", "ends", "names"),
    [
        ([[1.0], [1.0], [1.0], [-1.0]], [2.5], ["+1", "-1"]),
        (np.eye(3)[[0, 0, 1, 2, 2]], [1.5, 2.5], ["0", "1", "2"]),
        ([[0.5], [0.25], [-0.5]], [], []),
    ],
)
def test_classes_of_sorted_labels_are_parted_and_named_in_their_middle(labels, ends, names):
    ax = Figure().subplots()
    mark_classes(ax, np.array(labels))
    horizontal = [line.get_ydata()[0] for line in ax.lines if np.ptp(line.get_ydata()) == 0.0]
    vertical = [line.get_xdata()[0] for line in ax.lines if np.ptp(line.get_xdata()) == 0.0]
    assert (horizontal, vertical) == (ends, ends)
    edges = [-0.5, *ends, len(labels) - 0.5]
    middles = [(a + b) / 2 for a, b in pairwise(edges)] if names else []
    for axis in (ax.xaxis, ax.yaxis):
        assert list(axis.get_ticklocs()) == middles
        shown = [one.get_text().replace("−", "-") for one in axis.get_ticklabels()]
        assert all(text.endswith(name) for text, name in zip(shown, names, strict=True))


def test_chains_are_drawn_draw_by_draw_and_with_their_shares_of_ranks(rng):
    """Of 1000 draws every third, and all in 20 bins of rank, relative to 50 in each."""
    values = rng.normal(size=(3, 1000)) + np.array([0.0, 0.0, 1.0])[:, None]
    density = xr.Dataset({"lp": (("chain", "draw"), values)})
    draws = {"posterior": xr.Dataset(), "sample_stats": density}
    trace, ranks = draw_chains(held(draws=draws)).axes
    ordered = np.sort(values, axis=None).reshape(20, 150)
    stairs = [one for one in ranks.patches if one.get_label() != INDEPENDENT]
    for chain, line, step in zip(values, trace.lines, stairs, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), [[n, chain[n]] for n in range(0, 1000, 3)])
        counts = [np.isin(chain, one).sum() / 50 for one in ordered]
        np.testing.assert_allclose(step.get_data().values, counts)
        np.testing.assert_allclose(step.get_data().edges, np.arange(21) / 20)
        assert to_hex(line.get_color()) == to_hex(step.get_edgecolor())


@pytest.mark.usefixtures("undrawn")
def test_a_missing_table_leaves_out_its_figures_only(tmp_path):
    directory, drawn = stored_run(tmp_path / "run"), []
    for gone in ("", "comparison.nc", "theory.nc"):
        if gone:
            (directory / gone).unlink()
        drawn.append({path.stem for path in draw_figures(directory, open_run(directory))})
    every, theory, draws = drawn
    assert {"order_parameter", "theory_against_draws", "kernels", "chains"} <= every
    assert {"order_parameter", "kernels", "chains"} <= theory < every
    assert "theory_against_draws" not in theory
    assert "chains" in draws <= theory - {"order_parameter", "kernels"}
