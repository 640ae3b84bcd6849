"""Reliability of predicted probabilities."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.predictive_quality import PredictiveQuality, Quality, ReliabilityBin
from sampler.presentation import style
from sampler.presentation.results import ShownRun

COLOURS = {
    "theory": style.THEORY,
    "next_order": style.NEXT_ORDER,
    "sampled": style.SAMPLED,
    "gp": style.GAUSSIAN_PROCESS,
}


def draw_reliability(quality: PredictiveQuality, sampled_label: str, setting: str) -> Figure | None:
    """Draw each predictor's reliability bins in a panel of its own, and how full the bins are.

    None if nothing of the quality is known. Bars are Wilson intervals of one standard deviation,
    by the finite number of test examples in each bin.
    """
    labels = ("theory", "theory, next order", sampled_label, "GP, infinite width")
    names = dict(zip(COLOURS, labels, strict=True))
    shown = {name: found for name in names if (found := getattr(quality, name)) is not None}
    if not shown:
        return None
    figure = style.new_figure(3.4 * len(shown) + 0.6, 5.0)
    figure.suptitle(style.title_of("Calibration on the test set", setting))
    axes = figure.subplots(
        2, len(shown), sharex=True, sharey="row", squeeze=False, height_ratios=[3.0, 1.0]
    )
    for column, (name, found) in enumerate(shown.items()):
        _draw_bins(axes[0, column], axes[1, column], found.reliability, COLOURS[name])
        axes[0, column].set_title(f"{names[name]}\n{_in_words(found)}")
        axes[1, column].set_xlabel("predicted probability of +1")
    axes[0, 0].set_ylabel("share of labels +1")
    axes[1, 0].set_ylabel("test labels")
    axes[0, 0].legend(loc="upper left")
    return figure


def _draw_bins(above: Axes, below: Axes, bins: tuple[ReliabilityBin, ...], colour: str) -> None:
    low, high, count, predicted, fraction = (
        np.array([getattr(row, key) for row in bins], dtype=float)
        for key in ("low", "high", "count", "mean_probability", "fraction")
    )
    ends = np.array([row.interval() for row in bins]).T
    # Rounding may put the end of an interval that reaches 0 or 1 on the wrong side of its share.
    bars = np.maximum([fraction - ends[0], ends[1] - fraction], 0.0)
    above.plot(
        [0.0, 1.0], [0.0, 1.0], color=style.GREY, linewidth=1.0, zorder=0, label="calibrated"
    )
    above.errorbar(
        predicted, fraction, bars, fmt="o-", markersize=4.0, color=colour, label="bins, ±1 SE"
    )
    above.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    below.bar(low, count, width=high - low, align="edge", color=colour, alpha=0.4)


def _in_words(found: Quality) -> str:
    """The calibration error, beside what chance would make of it in a calibrated predictor."""
    error = found.expected_calibration_error
    return (
        f"ECE {error.value:.3f} ± {error.error:.3f}\n"
        f"(if calibrated: {error.if_calibrated:.3f} ± {error.if_calibrated_deviation:.3f})"
    )


def reliability_of_run(run: ShownRun) -> Figure | None:
    """Of both orders of the theory, samples and GP limit, as far as they are known."""
    quality = run.compared_as("predictive_quality")
    return None if quality is None else draw_reliability(quality, run.sampled_label, run.setting)


RELIABILITY = style.FigureEntry(
    reliability_of_run,
    "Calibration on the test set: where a probability is predicted, that share of labels "
    "should be +1, as on the diagonal.",
    "Share of labels +1 against the predicted probability of +1, with error bars, for theory, "
    "samples and infinite width; below, how many labels each bin holds.",
)
