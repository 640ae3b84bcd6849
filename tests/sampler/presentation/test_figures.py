"""Figures: what is drawn is what is stored, and a missing table leaves out its figure."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.stats import binom, norm, t

from sampler.analysis.difference import element_bound
from sampler.analysis.estimates import Estimate
from sampler.analysis.results import open_run
from sampler.analysis.slowest import slowest_element
from sampler.analysis.sweep_results import SweepResults
from sampler.presentation import style
from sampler.presentation.figures.accuracy import draw_accuracy_against_width, draw_band
from sampler.presentation.figures.against_width import draw_finite_size
from sampler.presentation.figures.attention import draw_attention
from sampler.presentation.figures.catalogue import draw_figures
from sampler.presentation.figures.kernel_matrices import draw_kernels
from sampler.presentation.figures.order_parameter import (
    draw_order_parameter,
    draw_trained_order_parameter,
)
from sampler.presentation.figures.temperatures import draw_against_temperature
from sampler.presentation.figures.theory_against_draws import draw_theory_against_draws
from sampler.presentation.figures.traces import INDEPENDENT, draw_chains, rank_histogram
from tests.commands import write_sweep
from tests.pages import stored_run
from tests.problems import autoregressive
from tests.told.held import comparison_of, held, held_sweep, theory_of

PAIRS = ("path", "path_")
SHOWN = ("shown_example", "shown_example_")


def panels_of(figure) -> list[np.ndarray]:
    """Matrices with a title, NaN where nothing is drawn."""
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    return [np.ma.filled(image.get_array(), np.nan) for image in images]


def of_colour(ax, colour: str) -> list[np.ndarray]:
    """[point, (x, y)] of every line of this colour."""
    return [line.get_xydata() for line in ax.lines if to_hex(line.get_color()).upper() == colour]


# --- a run


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

    panels = panels_of(figure)
    (mosaic,) = [one for one in panels if one.shape == (15, 15)]
    received = [one for one in panels if one.shape == (3, 3)]
    for shown, kernel in zip(received, [*kernels.values(), sampled], strict=True):
        size = np.mean(np.diag(middle @ kernel @ middle))
        np.testing.assert_allclose(shown, centred(kernel, size), atol=1e-15)
    of_paths = np.einsum("xpi,yqi->pqxy", features, features)[np.ix_([0, 1, 3, 4], [0, 1, 3, 4])]
    sizes = [np.trace(middle @ of_paths[p, p] @ middle) / 3.0 for p in range(4)]
    for p, q in np.ndindex(4, 4):
        expected = centred(of_paths[p, q], np.sqrt(sizes[p] * sizes[q]))
        np.testing.assert_allclose(
            mosaic[4 * p : 4 * p + 3, 4 * q : 4 * q + 3], expected, atol=1e-13
        )


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
    weights = np.exp(logs) / np.exp(logs).sum()
    mean = np.einsum("c,cehkq->ehkq", weights, drawn)
    chosen = [prior, mean, *(single[chain, -1] for chain in (1, 2, 0))]
    expected = [m[:, 1, :, 0] if queries == 1 else m[0, 1] for m in chosen]
    for panel, matrix in zip(panels_of(draw_attention(held(draws=groups))), expected, strict=True):
        np.testing.assert_allclose(panel, matrix, rtol=1e-12)


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


# --- sweeps


def test_accuracy_against_width_draws_the_stored_values(tmp_path):
    rows = [{"point": p, "directory": p, "width": w} for p, w in (("a", 10), ("b", 100))]
    accuracies = {"leading": [0.5, 0.25], "next": [0.625, np.nan], "sampled": [0.75, np.nan]}
    errors = {"error": [0.125, np.nan], "test_error": [0.25, np.nan]}
    write_sweep(tmp_path, rows, {"accuracy": accuracies}, errors)
    (ax,) = draw_accuracy_against_width(SweepResults(tmp_path)).axes
    (leading,), (beyond,) = of_colour(ax, style.THEORY), of_colour(ax, style.NEXT_ORDER)
    np.testing.assert_array_equal(leading, [[10, 50.0], [100, 25.0]])
    np.testing.assert_array_equal(beyond[:, 1], [62.5, np.nan])
    np.testing.assert_array_equal(of_colour(ax, style.SAMPLED), [[[10, 75.0]]])
    assert not of_colour(ax, style.GAUSSIAN_PROCESS), "what is undefined has no line"
    thin, thick = (bars.get_segments()[0][:, 1] for bars in ax.collections)
    np.testing.assert_array_equal(thin, [50.0, 100.0])
    np.testing.assert_array_equal(thick, [62.5, 87.5])


def test_the_band_of_an_accuracy_is_its_binomial_deviation():
    shares, widths, tests = np.array([0.5, 0.1]), np.array([10.0, 100.0]), 40
    run = held(theory=xr.Dataset(coords={"test_example": range(tests)}))
    sweep, ax = held_sweep(runs=[run, None], numbers=lambda _: shares), Figure().subplots()
    assert draw_band(ax, widths, sweep)
    outline = ax.collections[0].get_paths()[0].vertices
    for width, share in zip(widths, shares, strict=True):
        heights = outline[outline[:, 0] == width, 1]
        deviation = binom.std(tests, share) / tests
        expected = 100 * (share - deviation), 100 * (share + deviation)
        np.testing.assert_allclose([heights.min(), heights.max()], expected)


ERROR, DEGREES = 1e-4, 39


def over_widths(widths, predicted, paths=1) -> SweepResults:
    """A sweep over widths in memory, whose sampled U_1 is 2 in every element."""
    values = {**predicted, "sampled": np.full(len(widths), 2.0)}
    matrices = np.array(list(values.values()))[:, :, None, None] * np.ones((paths, paths))
    key, degrees = "network.widths", np.full((len(values), 1, len(widths)), float(DEGREES))
    columns = {
        "order_parameter": (("predictor", key, *PAIRS), matrices),
        "order_parameter_error": ((key, *PAIRS), np.full_like(matrices[0], ERROR)),
        "degrees": (("predictor", "quantity", key), degrees),
        "width": ((key,), widths),
    }
    texts = {"point": "", "sampled_space": "order_parameters", "diagnostics": "pass"}
    columns |= {n: ((key,), np.full(len(widths), text, dtype=object)) for n, text in texts.items()}
    names = [f"path {number}" for number in range(paths)]
    axes = {key: widths, "predictor": list(values), "path": names, "path_": names}
    return held_sweep(dataset=xr.Dataset(columns, axes | {"quantity": ["order_parameter"]}))


def test_finite_size_shows_values_and_differences_of_both_orders():
    """Theory off by 1/N and next order by 1/N² from N = 30 on; in noise the 95 % bound is drawn."""
    widths = np.array([10, 30, 100, 300])
    beyond = np.where(widths > 10, 2.0 + 1.0 / widths**2, np.nan)
    sweep = over_widths(widths, {"leading": 2.0 + 1.0 / widths, "next": beyond})
    above, below = draw_finite_size(sweep).axes
    np.testing.assert_array_equal(of_colour(above, style.NEXT_ORDER)[0][:, 1], beyond)
    resolved, hidden = of_colour(below, style.NEXT_ORDER)
    np.testing.assert_allclose(resolved, [[30.0, 1 / 900]])
    bounds = [[w, element_bound(1 / w**2, ERROR, DEGREES)] for w in (100.0, 300.0)]
    np.testing.assert_allclose(hidden, bounds)
    (leading,) = of_colour(below, style.THEORY)
    np.testing.assert_allclose(leading, np.stack([widths, 1.0 / widths], axis=1))


def test_a_difference_in_one_of_several_elements_has_the_limit_of_all():
    """Two paths have three elements: Bonferroni's limit of Student's t, as rare as three σ."""
    limit = t.isf(norm.sf(3.0) / 3, DEGREES) * ERROR
    off = np.array([1.01, 0.99]) * limit
    sweep = over_widths(np.array([10, 30]), {"leading": 2.0 + off}, paths=2)
    *_, first, second = draw_finite_size(sweep).axes
    for below in (first, second):
        resolved, hidden = of_colour(below, style.THEORY)
        np.testing.assert_allclose(resolved, [[10.0, off[0]]])
        np.testing.assert_allclose(hidden, [[30.0, element_bound(off[1], ERROR, DEGREES)]])


def test_scores_against_the_temperature_have_the_best_of_each_marked(tmp_path):
    temperatures = [0.1, 1.0]
    row = {"width": 10, "next_order_status": "fine"}
    rows = [{"point": str(one), "directory": str(one), **row} for one in temperatures]
    evidence = {"leading": [-2.0, -3.0], "next": [np.nan] * 2, "infinite": [-6.0, -5.0]}
    accuracy = {"leading": [0.8, 0.9], "next": [0.81, 0.91], "infinite": [np.nan] * 2}
    numbers = {"log_evidence": evidence, "validation_accuracy": accuracy}
    write_sweep(tmp_path, rows, numbers, **{"posterior.temperature": temperatures})
    first, second = draw_against_temperature(SweepResults(tmp_path)).axes
    lines = {to_hex(one.lines[0].get_color()).upper(): one.lines[0] for one in first.containers}
    for who, colour in (("leading", style.THEORY), ("infinite", style.GAUSSIAN_PROCESS)):
        expected = np.stack([temperatures, evidence[who]], axis=1)
        np.testing.assert_array_equal(lines[colour].get_xydata(), expected)
    np.testing.assert_array_equal(of_colour(second, style.THEORY)[0][:, 1], [80.0, 90.0])
    marks = [line for line in first.lines if line.get_marker() == "v"]
    best = {line.get_color(): line.get_xdata()[0] for line in marks}
    # Beside the temperature by less than a tenth of the axis.
    assert best[style.THEORY] == pytest.approx(0.1, rel=0.1)
    assert best[style.GAUSSIAN_PROCESS] == pytest.approx(1.0, rel=0.1)
