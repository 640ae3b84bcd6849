"""Kernels and their alignment as figures."""

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.compared import Compared
from sampler.analysis.comparison import ComparedRun
from sampler.analysis.estimate import Estimate
from sampler.analysis.results import RunResults
from sampler.presentation.figures.kernels import (
    class_ends,
    draw_alignment,
    draw_kernels,
    draw_path_kernels,
)


def test_kernels_are_drawn_as_stored_on_one_scale():
    labels = np.array([[1.0], [1.0], [-1.0]])
    kernels = {"infinite width": np.eye(3), "leading order": np.full((3, 3), -1.0)}
    figure = draw_kernels(kernels, labels, "")
    images = [ax.images[0] for ax in figure.axes if ax.images]
    for image, expected in zip(images, kernels.values(), strict=True):
        np.testing.assert_array_equal(image.get_array(), expected)
        assert image.get_clim() == (-1.0, 1.0)
    left = figure.axes[0]
    assert [label.get_text() for label in left.get_yticklabels()] == ["$y$ = +1", "$y$ = −1"]
    np.testing.assert_array_equal(left.get_yticks(), [0.5, 2.0])


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


def test_path_kernels_are_centred_and_relative_to_their_size(rng):
    features = rng.standard_normal((3, 2, 4)) * np.array([1.0, 5.0])[:, None]
    kernels = np.einsum("xpi,yqi->pqxy", features + 1.0, features + 1.0)
    figure = draw_path_kernels(kernels, ["a", "b"], more=3)
    centred = features - features.mean(axis=0)
    centred /= np.sqrt((centred**2).sum(axis=2).mean(axis=0))[:, None]
    expected = np.einsum("xpi,yqi->pqxy", centred, centred)
    mosaic = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    received = [[mosaic[:3, :3], mosaic[:3, 4:]], [mosaic[4:, :3], mosaic[4:, 4:]]]
    np.testing.assert_allclose(received, expected, atol=1e-13)
    assert np.isnan(mosaic[3]).all()
    assert "2 strongest of 5 paths" in figure.get_suptitle()


def test_alignment_of_draws_has_its_errors():
    theory = xr.Dataset({"kernel_alignment": ("component", [0.5, 0.25])})
    sampled = Estimate(np.array([0.75, 0.5]), np.array([0.25, 0.5]))
    compared = {"kernel_alignment": Compared(theory["kernel_alignment"].values, sampled)}
    comparison = ComparedRun(None, {}, compared, {}, None)
    figure = draw_alignment(RunResults.held(None, theory=theory, comparison=comparison))
    (bars,) = figure.axes[0].collections
    np.testing.assert_array_equal(bars.get_segments(), [[[1, 0.5], [1, 1]], [[2, 0], [2, 1]]])
