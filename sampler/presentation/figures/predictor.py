"""The predictor on the test set: what theories leave of it, in errors of the samples."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.estimates import RESOLVED_MCSE
from sampler.analysis.predictors import LEADING, NEXT, is_users
from sampler.analysis.results import RunResults
from sampler.presentation import style
from theory.observables import labels_are_classes

TITLE = "Predictor on the test set"
MOMENTS = {"predictor_mean": "mean $m(x)$", "predictor_variance": "variance $v(x)$"}
BINS = 40
# Share of the residuals that a panel is wide enough for.
SHOWN = 0.99


def draw_predictor(run: RunResults) -> Figure | None:
    """Draw histograms of (exact − theory)/MCSE over the test set, a panel for mean and variance.

    A predictor without error has the law of the grey curve, a standard normal.
    """
    panels = {}
    for quantity, symbol in MOMENTS.items():
        sampled, predictions = run.sampled(quantity), theories(run, quantity)
        if sampled is not None and predictions:
            panels[symbol] = {
                name: residuals(sampled.value, values, sampled.mcse)
                for name, values in predictions.items()
            }
    if not panels:
        return None
    width = style.WIDTH if len(panels) > 1 else 3.6
    figure = style.new_figure(width, 3.6, TITLE, run.setting)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (symbol, of_theories) in zip(axes, panels.items(), strict=True):
        _draw_residuals(ax, of_theories, run)
        ax.set(title=symbol, xlabel="(exact − theory) / MCSE")
    axes[0].set_ylabel("density of test values")
    style.legend_below(figure, axes[0].get_legend_handles_labels())
    return figure


def theories(run: RunResults, quantity: str) -> dict[str, np.ndarray]:
    """Both orders and the user's own theories; infinite width where it is the theory."""
    every = run.predictions(quantity)
    some = {name: one for name, one in every.items() if name in (LEADING, NEXT) or is_users(name)}
    return some or every


def residuals(sampled: np.ndarray, theory: np.ndarray, mcse: np.ndarray) -> np.ndarray:
    """(sampled − theory)/MCSE of all values that have an error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.ravel((sampled - theory) / mcse)
    return found[np.isfinite(found)]


def _draw_residuals(ax: Axes, of_theories: dict[str, np.ndarray], run: RunResults) -> None:
    every = np.concatenate(list(of_theories.values()))
    end = max(RESOLVED_MCSE + 1.0, float(np.quantile(np.abs(every), SHOWN)) if every.size else 0.0)
    edges = np.linspace(-end, end, BINS + 1)
    for name, values in of_theories.items():
        heights, _ = np.histogram(np.clip(values, -end, end), edges, density=True)
        colour = style.colour_of(name, of_theories)
        ax.stairs(heights, edges, color=colour, linewidth=1.5, label=run.name_of(name))
    x = np.linspace(-end, end, 400)
    normal = np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    ax.fill_between(x, normal, color=style.GREY, alpha=0.3, linewidth=0.0, label="noise alone")
    ax.set(xlim=(-end, end), ylim=(0.0, None))


def draw_sampled_predictor(run: RunResults) -> Figure | None:
    """Draw posterior mean and deviation of f, in ascending order of the mean, without a theory.

    Where labels are classes, those that the value speaks for are told from the others by colour.
    """
    moments = [run.sampled(quantity) for quantity in MOMENTS]
    if run.theory is not None or None in moments:
        return None
    mean, variance = (estimate.value.ravel() for estimate in moments)
    figure = style.new_figure(style.WIDTH, 4.2, TITLE, run.setting)
    ax = figure.subplots()
    rank = np.argsort(np.argsort(mean, kind="stable"))
    for shown, colour, name in _groups(mean.size, run.labels_test):
        marks = {"fmt": "o", "markersize": 2.5, "capsize": 0.0, "color": colour, "alpha": 0.6}
        error = np.sqrt(variance[shown])
        ax.errorbar(rank[shown], mean[shown], error, elinewidth=0.5, label=name, **marks)
    ax.axhline(0.0, color=style.GREY, linewidth=1.0, zorder=0)
    ax.set_xlabel("test values in ascending order")
    ax.set_ylabel(f"{run.name_of('sampled')}\nmean of $f(x)$, bars ±1 posterior deviation")
    style.legend_below(figure)
    return figure


def _groups(size: int, labels: np.ndarray | None) -> list[tuple[np.ndarray, str, str]]:
    """List which values belong together, their colour and their name."""
    if labels is None or labels.size != size or not labels_are_classes(labels):
        return [(np.ones(size, bool), style.VERMILLION, f"{size} test values")]
    if labels.shape[1] == 1:
        positive, names = labels[:, 0] > 0, ("class +", "class −")
    else:
        positive = (labels == labels.max(axis=1, keepdims=True)).ravel()
        names = ("its class", "another class")
    return [(positive, style.VERMILLION, names[0]), (~positive, style.BLUE, names[1])]


PREDICTOR = style.FigureEntry(
    draw_predictor,
    "What theories leave of mean and variance of the predictor over the test set, in Monte Carlo "
    "standard errors of the exact posterior. Where a theory is exact, its curve is the grey one; "
    "wider ones are errors of the theory, shifted ones are biased.",
    "Histograms over the test set of the difference between the exact posterior and each theory, "
    "in Monte Carlo standard errors, for mean and variance of the predictor.",
)
PREDICTOR_SAMPLED = style.FigureEntry(
    draw_sampled_predictor,
    "The predictor over the test set, by the samples alone.",
    "Sampled mean and deviation of the predictor over the test set, without a theory beside.",
)
