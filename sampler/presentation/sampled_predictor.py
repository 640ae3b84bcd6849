"""The predictor of the samples alone, where there is no theory to hold it against."""

import numpy as np
from matplotlib.figure import Figure

from sampler.presentation.predictor_scatter import LARGEST_VECTOR_DRAWING
from sampler.presentation.style import BLUE, GREY, VERMILLION, new_figure
from theory.accuracy import labels_are_classes



def draw_sampled_predictor(
    mean: np.ndarray,
    variance: np.ndarray,
    labels: np.ndarray | None,
    sampled_label: str,
    setting: str,
) -> Figure:
    """Draw posterior mean and deviation of f over the test set, in ascending order of the mean.

    mean, variance: [test_example] or [test_example, output]; labels [test_example, output] or None.
    Where labels are classes, those that the value speaks for are told from the others by colour.
    """
    flat, deviation = mean.ravel(), np.sqrt(variance.ravel())
    order = np.argsort(flat, kind="stable")
    figure = new_figure(7.2, 4.2)
    figure.suptitle("Predictor on the test set" + (f", {setting}" if setting else ""))
    ax = figure.subplots()
    rank = np.empty(flat.size)
    rank[order] = np.arange(flat.size)
    for shown, colour, name in _groups(flat.size, labels):
        container = ax.errorbar(
            rank[shown],
            flat[shown],
            yerr=deviation[shown],
            fmt="o",
            markersize=2.5,
            color=colour,
            ecolor=colour,
            elinewidth=0.5,
            alpha=0.6,
            capsize=0.0,
            markeredgewidth=0.0,
            label=name,
        )
        if flat.size > LARGEST_VECTOR_DRAWING:
            for artist in container.get_children():
                artist.set_rasterized(True)
    ax.axhline(0.0, color=GREY, linewidth=1.0, zorder=0)
    ax.set_xlabel("test values in ascending order")
    ax.set_ylabel(f"{sampled_label}\nmean of $f(x)$, bars ±1 posterior deviation")
    ax.legend(loc="upper left")
    return figure


def _groups(size: int, labels: np.ndarray | None) -> list[tuple[np.ndarray, str, str]]:
    """Which values belong together, their colour and their name."""
    if labels is None or labels.size != size or not labels_are_classes(labels):
        return [(np.ones(size, bool), VERMILLION, f"{size} test values")]
    if labels.shape[1] == 1:
        positive, names = labels[:, 0] > 0, ("class +", "class −")
    else:
        positive = (labels == labels.max(axis=1, keepdims=True)).ravel()
        names = ("its class", "another class")
    return [(positive, VERMILLION, names[0]), (~positive, BLUE, names[1])]
