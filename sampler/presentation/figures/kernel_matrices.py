"""Kernels between training examples, of the network and of pairs of paths, and their alignment."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sampler.analysis.predictors import INFINITE, LEADING, NEXT, SAMPLED
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_results import SweepResults
from sampler.presentation import style
from theory import centred_kernel

# Thickness of the lines between blocks, in examples, and paths that have a block.
GAP, MOST_PATHS = 1, 4
# Share of the elements that lie within the colour scale: diagonals are much larger than the rest.
UNSATURATED = 0.97
COMPONENTS = 50
TINY = np.finfo(np.float64).tiny
# Where all curves of alignment agree, all are still seen: a cross on a diamond in a ring.
MARKS = {
    INFINITE: {"fmt": "s--", "markersize": 3.5},
    LEADING: {"fmt": "o-", "markersize": 8.0, "markerfacecolor": "none", "zorder": 3},
    NEXT: {"fmt": "x", "markersize": 5.0, "zorder": 4},
    SAMPLED: {"fmt": "D", "markersize": 4.5, "zorder": 3.5},
}


def relative_to_size(
    kernel: Float[np.ndarray, "example example"],
) -> Float[np.ndarray, "example example"]:
    """The centred kernel in units of the mean of its diagonal; 0 for one that is constant."""
    centred = centred_kernel(kernel)
    return centred / max(np.mean(np.diagonal(centred)), TINY)


def draw_kernels(run: RunResults, paths: bool = False) -> Figure | None:
    """Draw the kernel at infinite width, of both orders, and of the samples, if known.

    Between training examples sorted by their labels, all on one colour scale.

    paths: below them, the kernels of pairs of paths that they are sums of; of more than four paths,
    of those with the largest U_1
    """
    kernels = {name: run.predicted("kernel", name) for name in (INFINITE, LEADING, NEXT)}
    sampled = run.sampled("kernel")
    if sampled is not None:
        kernels[SAMPLED] = sampled.value
    shown = {n: relative_to_size(one) for n, one in kernels.items() if one is not None}
    if not shown or "labels_shown" not in run.theory:
        return None
    title = f"Centred kernel, {run.setting}\ntraining examples, sorted by label"
    height, below = 2.75 * -(-len(shown) // 2) + 1.3, style.WIDTH + 0.6 if paths else 0.0
    figure = style.new_figure(style.WIDTH, height + below, title)
    above: Figure | SubFigure = figure
    if paths:
        parts = np.ravel(figure.subfigures(2, 1, height_ratios=(height, below)))
        above = parts[0]
        draw_path_kernels(parts[1], run)
    axes = above.subplots(-(-len(shown) // 2), 2, squeeze=False, sharex=True, sharey=True)
    limit = style.within_scale(np.stack(list(shown.values())), UNSATURATED)
    for ax, (name, kernel) in zip(axes.flat, shown.items(), strict=False):
        image = style.draw_matrix(ax, kernel, limit)
        ax.set_title(style.bracket_below(run.name_of(name)))
        mark_classes(ax, run.theory["labels_shown"].values)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    label = r"$\bar K(x, x')$ / mean of its diagonal"
    style.colour_bar(above, image, list(axes.flat), label, extend="both")
    return figure


def mark_classes(ax: Axes, labels: np.ndarray) -> None:
    """Draw lines between classes and name them; nothing where labels are not classes."""
    ax.tick_params(length=0)
    ax.set(xticks=[], yticks=[])
    ends = class_ends(labels)
    if ends is None:
        return
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color="black", linewidth=0.6)
        ax.axvline(end - 0.5, color="black", linewidth=0.6)
    starts = np.array([0, *ends[:-1]])
    if labels.shape[1] == 1:
        names = [style.minus_signs(f"$y$ = {labels[start, 0]:+g}") for start in starts]
    else:
        names = [str(labels[start].argmax()) for start in starts]
    middles = (starts + ends - 1) / 2.0
    ax.set_xticks(middles, names)
    ax.set_yticks(middles, names)


def class_ends(labels: np.ndarray) -> np.ndarray | None:
    """Return where each class of sorted labels ends; None where labels are not classes."""
    changes = np.flatnonzero((np.diff(labels, axis=0) != 0).any(axis=1)) + 1
    ends = np.array([*changes, len(labels)])
    return ends if len(ends) <= max(2, labels.shape[1]) else None


def draw_path_kernels(figure: SubFigure, run: RunResults) -> None:
    """Draw C̄_{ππ'}/√(c_π c_π') of the strongest paths as blocks of one matrix.

    C̄ is the centred kernel, c_π the mean of the diagonal of C̄_{ππ}: paths differ in size more
    than in structure.
    """
    features = run.theory["kernel_features"]
    count, overlap = features.sizes["kernel_path"], run.predicted("order_parameter")
    weights = np.ones(count)
    if overlap is not None:
        weights = np.diagonal(overlap).reshape(count, -1).mean(axis=1)
    strongest = np.sort(np.argsort(-weights, kind="stable")[:MOST_PATHS])
    centred = features.isel(kernel_path=strongest) - features.mean("shown_example")
    rows = centred.transpose("kernel_path", "shown_example", "feature").values
    rows /= np.maximum(np.sqrt(np.sum(rows**2, axis=2).mean(axis=1)), TINY)[:, None, None]
    # A line of nothing between blocks.
    rows = np.pad(rows, ((0, 0), (0, GAP), (0, 0)), constant_values=np.nan)
    step, rows = rows.shape[1], rows.reshape(-1, rows.shape[2])[:-GAP]
    ax, mosaic = figure.subplots(), rows @ rows.T
    image = style.draw_matrix(ax, mosaic, style.within_scale(mosaic, UNSATURATED))
    middles = step * np.arange(len(strongest)) + (step - GAP - 1) / 2.0
    names = features["kernel_path"].values[strongest]
    ax.tick_params(length=0)
    ax.set_xticks(middles, names)
    ax.set_yticks(middles, names, rotation=90, va="center")
    title = r"Centred path kernels $\bar C_{\pi\pi'}$"
    title += f" of the {len(names)} strongest of {count} paths" if count > len(names) else ""
    ax.set(title=title, xlabel=r"path $\pi'$", ylabel=r"path $\pi$")
    unit = r"\sqrt{c_\pi c_{\pi'}}$,  $c_\pi$ = mean of $\bar C_{\pi\pi}(x, x)$"
    label = r"$\bar C_{\pi\pi'}(x, x')\,/\," + unit
    style.colour_bar(figure, image, [ax], label, extend="both")


def draw_alignment(results: RunResults | SweepResults) -> Figure | None:
    """Draw |e_i·y| / |y| for the first principal components i of each kernel.

    In sweeps, for the first run that has a theory; `e_i` has the largest eigenvalue for i = 1.
    """
    run = results.solved if isinstance(results, SweepResults) else results
    if run is None or run.predicted("kernel_alignment") is None:
        return None
    curves = {name: (run.predicted("kernel_alignment", name), None) for name in MARKS}
    sampled = run.sampled("kernel_alignment")
    if sampled is not None:
        curves[SAMPLED] = sampled.value, sampled.mcse[:COMPONENTS]
    figure = style.new_figure(style.WIDTH, 3.9, "Kernel–task alignment", run.setting)
    ax = figure.subplots()
    for name, (values, errors) in curves.items():
        if values is not None:
            places = np.arange(1, len(values[:COMPONENTS]) + 1)
            marks = {"label": run.name_of(name), "color": style.colour_of(name), **MARKS[name]}
            ax.errorbar(places, values[:COMPONENTS], errors, linewidth=1.0, capsize=2.0, **marks)
    ax.set_xlabel("principal component $i$ of the training kernel")
    ax.set_ylabel(r"alignment $|e_i \cdot y|\,/\,|y|$")
    ax.set_ylim(bottom=0.0)
    count = min(run.theory.sizes["component"], COMPONENTS)
    ax.set_xticks([1, *range(10, count + 1, 10)] if count >= 10 else range(1, count + 1))
    style.legend_below(figure)
    return figure


KERNELS = style.FigureEntry(
    draw_kernels,
    "Kernel K, the path kernels weighted by U₁, between up to 40 training examples, evenly from "
    "all, sorted by label: infinite width, both orders of the theory and the exact posterior, each "
    "relative to the mean of its diagonal. What all examples have in common is taken away: red "
    "pairs are more alike than others, blue ones less. Blocks on the diagonal are pairs of one "
    "class.",
    "Coloured matrices over pairs of training examples sorted by label: the kernel at infinite "
    "width, of both orders of the theory and of the exact posterior.",
)
KERNEL_ALIGNMENT = style.FigureEntry(
    draw_alignment,
    "How much of the labels lies along each of the first 50 principal components of the training "
    "kernel: infinite width, both orders of the theory, and the exact posterior ± MCSE.",
    "Alignment of the principal components of the training kernel with the labels, component by "
    "component: infinite width, both orders of the theory, and the exact posterior.",
    of=("run", "sweep"),
)
