"""The predictor on the test set: what theories leave of it, in errors of the samples."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.predictors import SAMPLED
from sampler.analysis.results import RunResults
from sampler.presentation import style
from sampler.presentation.tables import orders_and_users
from theory.observables import labels_are_classes

TITLE = "Predictor on the test set"
MOMENTS = {"predictor_mean": "mean $m(x)$", "predictor_variance": "variance $v(x)$"}
BINS = 40
SHOWN = 0.99  # share of the residuals that a panel is wide enough for


def draw_predictor(run: RunResults) -> Figure | None:
    """Draw histograms of (exact − theory)/MCSE over the test set, a panel for mean and variance.

    A predictor without error has the law of the grey curve, a standard normal.
    """
    panels = {}
    for quantity, symbol in MOMENTS.items():
        sampled, predictions = run.sampled(quantity), run.predictions(quantity)
        theories = orders_and_users(list(predictions))
        if sampled is not None and theories:
            of_theories = {
                name: residuals(sampled.value, predictions[name], sampled.mcse) for name in theories
            }
            if all(values.size for values in of_theories.values()):
                panels[symbol] = of_theories, run.comparison.largest_by_chance(quantity)
    if not panels:
        return None
    width = style.WIDTH if len(panels) > 1 else 3.6
    figure = style.new_figure(width, 3.6, TITLE, run.setting)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (symbol, (of_theories, limit)) in zip(axes, panels.items(), strict=True):
        draw_residuals(ax, of_theories, limit, run)
        ax.set(title=symbol, xlabel="(exact − theory) / MCSE")
    axes[0].set_ylabel("density of test values")
    style.legend_below(figure, axes[0].get_legend_handles_labels())
    return figure


def residuals(sampled: np.ndarray, theory: np.ndarray, mcse: np.ndarray) -> np.ndarray:
    """(sampled − theory)/MCSE of all values that have an error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        every = np.ravel((sampled - theory) / mcse)
    return every[np.isfinite(every)]


def draw_residuals(
    ax: Axes, of_theories: dict[str, np.ndarray], limit: float, run: RunResults
) -> None:
    """Draw the histograms of all theories above the law of noise alone.

    Values beyond the limit, between dotted lines, are no noise.
    """
    every = np.concatenate(list(of_theories.values()))
    end = max(limit + 1.0, float(np.quantile(np.abs(every), SHOWN)) if every.size else 0.0)
    x = np.linspace(-end, end, 400)
    noise = {"color": style.GREY, "alpha": 0.3, "linewidth": 0.0, "label": "noise alone"}
    ax.fill_between(x, np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi), **noise)
    line = {"color": style.GREY, "linestyle": ":", "linewidth": 1.0}
    for at in (-limit, limit):
        ax.axvline(at, label="largest by chance" if at > 0.0 else None, **line)
    for name, values in of_theories.items():
        heights, edges = np.histogram(np.clip(values, -end, end), BINS, (-end, end), density=True)
        ax.stairs(heights, edges, color=style.colour_of(name, of_theories), label=run.name_of(name))
    ax.set(xlim=(-end, end), ylim=(0.0, None))


def draw_sampled_predictor(run: RunResults) -> Figure | None:
    """Draw posterior mean and deviation of f, in ascending order of the mean.

    Where no theory of the network predicts it.

    Where labels are classes, those that the value speaks for are told from the others by colour.
    """
    moments = [run.sampled(quantity) for quantity in MOMENTS]
    if orders_and_users(list(run.predictions("predictor_mean"))) or None in moments:
        return None
    mean, variance = (estimate.value.ravel() for estimate in moments)
    figure = style.new_figure(style.WIDTH, 4.2, TITLE, run.setting)
    ax = figure.subplots()
    rank = np.argsort(np.argsort(mean, kind="stable"))
    for (name, shown), colour in zip(
        groups(mean.size, run.labels_test).items(), (style.VERMILLION, style.BLUE), strict=False
    ):
        marks = {"fmt": "o", "markersize": 2.5, "capsize": 0.0, "color": colour, "alpha": 0.6}
        error = np.sqrt(variance[shown])
        ax.errorbar(rank[shown], mean[shown], error, elinewidth=0.5, label=name, **marks)
    ax.axhline(0.0, color=style.GREY, linewidth=1.0, zorder=0)
    ax.set_xlabel("test values in ascending order")
    ax.set_ylabel(f"{run.name_of(SAMPLED)}\nmean of $f(x)$, bars ±1 posterior deviation")
    style.legend_below(figure)
    return figure


def groups(size: int, labels: np.ndarray | None) -> dict[str, np.ndarray]:
    """Name of a group of test values → which belong to it."""
    if labels is None or labels.size != size or not labels_are_classes(labels):
        return {f"{size} test values": np.ones(size, bool)}
    if labels.shape[1] == 1:
        positive = labels[:, 0] > 0
        return {"class +": positive, "class −": ~positive}
    positive = (labels == labels.max(axis=1, keepdims=True)).ravel()
    return {"its class": positive, "another class": ~positive}


PREDICTOR = style.FigureEntry(
    draw_predictor,
    "What theories leave of mean and variance of the predictor over the test set, in Monte Carlo "
    "standard errors (MCSE) of the exact posterior. Where a theory is exact, its curve is the grey "
    "one; wider ones are errors of the theory, shifted ones are biased. Beyond the dotted lines "
    "chance alone brings none of the values; what lies beyond the panel is counted at its ends.",
    "Histograms over the test set of the difference between the exact posterior and each theory, "
    "in Monte Carlo standard errors, for mean and variance of the predictor.",
)
PREDICTOR_SAMPLED = style.FigureEntry(
    draw_sampled_predictor,
    "The predictor over the test set, by the samples alone.",
    "Sampled mean and deviation of the predictor over the test set, without a theory beside.",
)
