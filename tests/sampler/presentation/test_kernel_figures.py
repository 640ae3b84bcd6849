"""Kernels and their alignment as figures."""

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.compared import Compared
from sampler.analysis.estimate import Estimate
from sampler.analysis.example_tables import relative_to_size
from sampler.presentation.figures.kernels import (
    class_ends,
    draw_alignment,
    draw_kernels,
    draw_path_kernels,
)
from tests.held import held


def test_kernels_are_drawn_as_stored_on_one_scale():
    labels = np.array([[1.0], [1.0], [-1.0]])
    kernels = {"gp_kernel": np.eye(3), "kernel": np.diag([1.0, 2.0, 3.0])}
    columns = {name: (("shown_example", "shown_example_"), one) for name, one in kernels.items()}
    columns["labels_shown"] = (("shown_example", "output"), labels)
    figure = draw_kernels(held(xr.Dataset(columns)))
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    assert len({image.get_clim() for image in images}) == 1
    for image, kernel in zip(images, kernels.values(), strict=True):
        np.testing.assert_array_equal(image.get_array(), relative_to_size(kernel))
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
    columns = {"path_kernels": (("shown_path", "shown_path_", *"xz"), kernels)}
    columns |= {"labels_shown": (("x", "output"), np.ones((3, 1)))}
    columns |= {"order_parameter": (("path", "path_"), np.eye(5))}
    coordinates = {"shown_path": ["a", "b"], "path": list("abcde")}
    figure = draw_path_kernels(held(xr.Dataset(columns, coordinates)))
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
    compared = Compared(theory["kernel_alignment"].values, sampled)
    figure = draw_alignment(held(theory, kernel_alignment=compared))
    (bars,) = figure.axes[0].collections
    np.testing.assert_array_equal(bars.get_segments(), [[[1, 0.5], [1, 1]], [[2, 0], [2, 1]]])
