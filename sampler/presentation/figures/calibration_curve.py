"""Calibration on the test set: labels +1 where a probability of +1 is predicted."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.calibration import (
    ReliabilityBin,
    calibration_error,
    error_if_calibrated,
    labels_are_signs,
    probability_of_positive,
    reliability,
)
from sampler.analysis.predictors import SAMPLED, in_order
from sampler.analysis.results import RunResults
from sampler.presentation import style


def draw_reliability(run: RunResults) -> Figure | None:
    """Draw each predictor's reliability bins in a panel of its own, and how full the bins are.

    None without labels ±1. Bars are Wilson intervals of one standard deviation, by the finite
    number of test examples in each bin.
    """
    probabilities = predicted_probabilities(run)
    if not probabilities:
        return None
    positive, names = run.labels_test > 0, in_order(probabilities)
    bins = {name: reliability(probabilities[name], positive) for name in names}
    fullest = max(part.count for of in bins.values() for part in of)
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    width = style.WIDTH if columns > 1 else 3.6
    figure = style.new_figure(width, 3.8 * rows + 0.6, "Calibration on the test set", run.setting)
    axes = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[3.0, 1.0] * rows)
    # For every predictor the panel of its shares, and below it that of its counts.
    panels = axes.reshape(rows, 2, columns).swapaxes(1, 2).reshape(-1, 2)
    for ax in panels[len(names) :].flat:
        ax.set_axis_off()
    for place, (name, (above, below)) in enumerate(zip(names, panels, strict=False)):
        draw_bins(above, below, bins[name], style.colour_of(name, names))
        title = f"{run.name_of(name)}\n{error_text(probabilities[name], positive)}"
        above.set_title(title, fontsize=9.0)
        above.set_xticklabels([])
        below.set(xlim=above.get_xlim(), ylim=(0.0, 1.05 * fullest))
        if place % columns == 0:
            above.set_ylabel("share of labels +1")
            below.set_ylabel("labels in bin")
        if place + columns >= len(names):
            below.set_xlabel("predicted probability of +1")
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels())
    return figure


def predicted_probabilities(run: RunResults) -> dict[str, np.ndarray]:
    """Predictor → probability of +1 at every test label; nothing where labels are not ±1.

    That of the samples is of one Gaussian, too, with the posterior's mean and variance.
    """
    if not labels_are_signs(run.labels_test) or run.comparison is None:
        return {}
    moments = {
        name: run.label_moments(name) for name in (*run.predictions("predictor_mean"), SAMPLED)
    }
    return {name: probability_of_positive(*of) for name, of in moments.items() if of is not None}


def draw_bins(above: Axes, below: Axes, bins: Sequence[ReliabilityBin], colour: str) -> None:
    """Draw the share of labels +1 in every bin, and below it the number of labels."""
    low, high, count, predicted, fraction = (
        np.array([getattr(row, key) for row in bins], dtype=float)
        for key in ("low", "high", "count", "mean_probability", "fraction")
    )
    ends = np.array([row.interval() for row in bins]).T
    # Rounding may put the end of an interval that reaches 0 or 1 on the wrong side of its share.
    bars = np.maximum([fraction - ends[0], ends[1] - fraction], 0.0)
    line = {"color": style.GREY, "linewidth": 1.0, "zorder": 0, "label": "calibrated"}
    above.plot([0.0, 1.0], [0.0, 1.0], **line)
    marks = {"fmt": "o-", "markersize": 4.0, "color": colour}
    above.errorbar(predicted, fraction, bars, label="bins, bars ±1 standard error", **marks)
    above.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    below.bar(low, count, width=high - low, align="edge", color=colour, alpha=0.4)


def error_text(probability: np.ndarray, positive: np.ndarray) -> str:
    """Write the calibration error, and what chance makes of it in a calibrated predictor."""
    mean, deviation = error_if_calibrated(probability)
    error = float(calibration_error(probability, positive))
    return f"ECE {error:.3f}; calibrated: {mean:.3f} ± {deviation:.3f}"


RELIABILITY = style.FigureEntry(
    draw_reliability,
    "Calibration on the test set: where a probability is predicted, that share of labels "
    "should be +1, as on the diagonal. ECE: expected calibration error, the mean distance from the "
    "diagonal, beside what chance makes of it in a calibrated predictor.",
    "Share of labels +1 against the predicted probability of +1, with error bars, for theory, "
    "samples and infinite width; below, how many labels each bin holds.",
    shown="asked",
)
