"""Figures of a run: what is drawn is what is stored, and missing tables leave out their figure."""

import matplotlib
import numpy as np
import pytest
from scipy.stats import norm, t

from sampler.analysis.estimates import Estimate
from sampler.analysis.kernels import relative_to_size
from sampler.analysis.results import open_run
from sampler.errors import InputError
from sampler.presentation.figures.catalogue import draw_figures
from sampler.presentation.figures.kernel_matrices import class_ends, draw_alignment, draw_kernels
from sampler.presentation.figures.order_parameter import draw_order_parameter
from sampler.presentation.figures.predictor_errors import MOMENTS, draw_predictor, residuals
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


def test_residuals_of_the_predictor_are_in_errors_of_the_samples():
    sampled, mcse = np.array([0.25, 1.5, 2.0]), np.array([0.125, 0.5, 0.0])
    received = residuals(sampled, np.array([0.0, 1.0, 1.0]), mcse)
    np.testing.assert_array_equal(received, [2.0, 1.0])
    theory = theory_of({"leading": {"predictor_mean": (("test_example",), np.zeros(3))}})

    def drawn(errors):
        estimate, predicted = Estimate(sampled, errors), {"predictor_mean": np.zeros(3)}
        compared = comparison_of({"predictor_mean": estimate}, {"leading": predicted})
        return draw_predictor(held(theory, comparison=compared))

    assert drawn(np.full(3, np.nan)) is None  # of too few draws
    (ax,) = drawn(mcse).axes
    heights, edges, _ = ax.patches[0].get_data()
    assert np.sum(heights * np.diff(edges)) == pytest.approx(1.0)


def test_residuals_of_the_predictor_stand_beside_what_chance_allows():
    """The largest of all values of a panel, by Student's t: two chains have twenty batches."""
    run = open_run(STORED)
    for ax, quantity in zip(draw_predictor(run).axes, MOMENTS, strict=True):
        values = np.size(run.sampled(quantity).value)
        limit = t.isf(norm.sf(3.0) / values, 2 * 10 - 1)
        drawn = sorted(line.get_xdata()[0] for line in ax.lines)
        np.testing.assert_allclose(drawn, [-limit, limit], rtol=1e-9)


# --- kernels


def test_kernels_are_drawn_as_stored_on_one_scale():
    labels = np.array([[1.0], [1.0], [-1.0]])
    kernels = {"infinite": np.eye(3), "leading": np.diag([1.0, 2.0, 3.0])}
    axes = ("shown_example", "shown_example_")
    theory = theory_of(
        {name: {"kernel": (axes, one)} for name, one in kernels.items()},
        labels_shown=(("shown_example", "output"), labels),
    )
    figure = draw_kernels(held(theory))
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    assert len({image.get_clim() for image in images}) == 1
    for image, kernel in zip(images, kernels.values(), strict=True):
        np.testing.assert_array_equal(image.get_array(), relative_to_size(kernel))
    np.testing.assert_array_equal(figure.axes[0].get_yticks(), [0.5, 2.0])


def test_path_kernels_are_centred_and_relative_to_their_size(rng):
    features = rng.standard_normal((3, 2, 4)) * np.array([1.0, 5.0])[:, None]
    kernels = np.einsum("xpi,yqi->pqxy", features + 1.0, features + 1.0)
    columns = {"path_kernels": (("shown_path", "shown_path_", *"xz"), kernels)}
    columns |= {"labels_shown": (("x", "output"), np.ones((3, 1)))}
    of_limit = {"order_parameter": (PAIRS, np.eye(5)), "kernel": (("x", "z"), np.eye(3))}
    theory = theory_of({"infinite": of_limit}, **columns)
    run = held(theory.assign_coords(shown_path=["a", "b"], path=list("abcde")))
    centred = features - features.mean(axis=0)
    centred /= np.sqrt((centred**2).sum(axis=2).mean(axis=0))[:, None]
    expected = np.einsum("xpi,yqi->pqxy", centred, centred)
    alone, both = (
        [ax.images[0] for ax in draw_kernels(run, paths=paths).axes if ax.images]
        for paths in (False, True)
    )
    assert len(both) == len(alone) + 1
    (mosaic,) = [
        np.ma.filled(image.get_array(), np.nan)
        for image in both
        if image.get_array().shape == (7, 7)
    ]
    received = [[mosaic[:3, :3], mosaic[:3, 4:]], [mosaic[4:, :3], mosaic[4:, 4:]]]
    np.testing.assert_allclose(received, expected, atol=1e-13)
    assert np.isnan(mosaic[3]).all()


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


def test_alignment_of_draws_has_its_errors():
    theory = theory_of({"leading": {"kernel_alignment": (("component",), [0.5, 0.25])}})
    sampled = Estimate(np.array([0.75, 0.5]), np.array([0.25, 0.5]))
    compared = comparison_of({"kernel_alignment": sampled}, {})
    figure = draw_alignment(held(theory, comparison=compared))
    (bars,) = figure.axes[0].collections
    np.testing.assert_array_equal(bars.get_segments(), [[[1, 0.5], [1, 1]], [[2, 0], [2, 1]]])


# --- all figures of a directory


@pytest.fixture
def directory(tmp_path):
    return stored_run(tmp_path / "run")


def drawn(directory) -> set[str]:
    return {path.stem for path in draw_figures(directory, open_run(directory))}


@pytest.mark.usefixtures("undrawn")
def test_a_missing_table_leaves_out_its_figures_only(directory):
    every, settings = drawn(directory), dict(matplotlib.rcParams)
    assert {"order_parameter", "predictor_mean", "kernels", "chains"} <= every
    (directory / "comparison.nc").unlink()
    theory = drawn(directory)
    assert theory < every
    assert {"order_parameter", "kernels", "chains"} <= theory
    assert "predictor_mean" not in theory
    (directory / "theory.nc").unlink()
    assert "chains" in drawn(directory) <= theory - {"order_parameter", "kernels"}
    assert dict(matplotlib.rcParams) == settings


@pytest.mark.parametrize("name", ["theory.nc", "comparison.nc", "draws.nc"])
def test_a_damaged_file_is_named_and_nothing_is_drawn(directory, name):
    (directory / name).write_bytes(b"{ not what was written")
    with pytest.raises(InputError, match=name):
        drawn(directory)
    assert not (directory / "figures").exists()
