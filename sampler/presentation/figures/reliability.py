"""Reliability of predicted probabilities."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.predictive_quality import PredictiveQuality, Quality, ReliabilityBin
from sampler.analysis.results import RunResults
from sampler.presentation import style

COLUMNS = 2
BINS = "bins, bars ±1 standard error"


def draw_reliability(quality: PredictiveQuality, sampled_label: str, setting: str) -> Figure | None:
    """Draw each predictor's reliability bins in a panel of its own, and how full the bins are.

    None if nothing of the quality is known. Bars are Wilson intervals of one standard deviation,
    by the finite number of test examples in each bin.
    """
    own = (quality.own or {}).items()
    panels = [
        (style.LEADING, quality.theory, style.THEORY),
        (style.NEXT, quality.next_order, style.NEXT_ORDER),
        *((name, one, style.own_colour(place)) for place, (name, one) in enumerate(own)),
        (sampled_label, quality.sampled, style.SAMPLED),
        (style.LIMIT, quality.gp, style.GAUSSIAN_PROCESS),
    ]
    panels = [panel for panel in panels if panel[1] is not None]
    if not panels:
        return None
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.new_figure(style.WIDTH if columns > 1 else 3.6, 3.8 * rows + 0.6)
    figure.suptitle(style.title_of("Calibration on the test set", setting))
    axes = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[3.0, 1.0] * rows)
    fullest = max(one.count for _, found, _ in panels for one in found.reliability)
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        above, below = axes[2 * row, column], axes[2 * row + 1, column]
        if place >= len(panels):
            above.set_axis_off()
            below.set_axis_off()
            continue
        name, found, colour = panels[place]
        _draw_bins(above, below, found.reliability, colour)
        above.set_title(f"{name}\n{_in_words(found)}")
        above.set_xticklabels([])
        below.set(xlim=above.get_xlim(), ylim=(0.0, 1.05 * fullest))
        if column == 0:
            above.set_ylabel("share of labels +1")
            below.set_ylabel("labels")
        if place + columns >= len(panels):
            below.set_xlabel("predicted probability of +1")
    entries = axes[0, 0].get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=2)
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
    above.errorbar(predicted, fraction, bars, fmt="o-", markersize=4.0, color=colour, label=BINS)
    above.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    below.bar(low, count, width=high - low, align="edge", color=colour, alpha=0.4)


def _in_words(found: Quality) -> str:
    """The calibration error, beside what chance would make of it in a calibrated predictor."""
    error = found.expected_calibration_error
    return (
        f"ECE {error.value:.3f} ± {error.error:.3f}\n"
        f"(if calibrated: {error.if_calibrated:.3f} ± {error.if_calibrated_deviation:.3f})"
    )


def reliability_of_run(run: RunResults) -> Figure | None:
    """Of all theories, samples and infinite width, as far as they are known."""
    quality = run.compared("predictive_quality")
    return None if quality is None else draw_reliability(quality, run.sampled_label, run.setting)


RELIABILITY = style.FigureEntry(
    reliability_of_run,
    "Calibration on the test set: where a probability is predicted, that share of labels "
    "should be +1, as on the diagonal.",
    "Share of labels +1 against the predicted probability of +1, with error bars, for theory, "
    "samples and infinite width; below, how many labels each bin holds.",
)
