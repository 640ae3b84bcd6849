"""Kernels between training examples, of the network and of pairs of paths, and their alignment."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sampler.analysis.kernels import TINY, relative_to_size
from sampler.analysis.predictors import INFINITE, LEADING, NEXT, SAMPLED
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_results import SweepResults
from sampler.presentation import style
from theory import centred_kernel

# Thickness of the lines between blocks, in examples.
GAP = 1
# Share of the elements that lie within the colour scale: diagonals are much larger than the rest.
UNSATURATED = 0.97
COMPONENTS = 50
# Where all curves of alignment agree, all are still seen: a cross on a diamond in a ring.
MARKS = {
    INFINITE: {"fmt": "s--", "markersize": 3.5},
    LEADING: {"fmt": "o-", "markersize": 8.0, "markerfacecolor": "none", "zorder": 3},
    NEXT: {"fmt": "x", "markersize": 5.0, "zorder": 4},
    SAMPLED: {"fmt": "D", "markersize": 4.5, "zorder": 3.5},
}


def draw_kernels(run: RunResults, paths: bool = False) -> Figure | None:
    """Draw the kernel at infinite width, of both orders, and of the samples, as far as known.

    Between training examples sorted by their labels, all on one colour scale.

    paths: below them, the kernels of pairs of paths that they are sums of; of more than four paths,
    of those with the largest U_1
    """
    predicted = {name: run.predicted("kernel", name) for name in (INFINITE, LEADING, NEXT)}
    kernels = {
        run.name_of(name): relative_to_size(kernel)
        for name, kernel in predicted.items()
        if kernel is not None
    }
    if not kernels:
        return None
    sampled, note = run.drawn("centred_kernel", "kernel"), ""
    if sampled is not None:
        kernels[run.name_of(SAMPLED)] = sampled.values
        mcse = float(run.drawn("centred_kernel_mcse", "kernel").max())
        note = f"; exact posterior ± {mcse:.1g} or less"
    title = f"Centred kernel, {run.setting}\ntraining examples, sorted by label"
    stored = run.theory_values("path_kernels") if paths else None
    height, below = 2.75 * -(-len(kernels) // 2) + 1.3, 0.0 if stored is None else style.WIDTH + 0.6
    figure = style.new_figure(style.WIDTH, height + below, title)
    above: Figure | SubFigure = figure
    if stored is not None:
        above, lower = figure.subfigures(2, 1, height_ratios=(height, below))
        draw_path_kernels(lower, run, stored)
    axes = style.panel_grid(above, len(kernels), 2, sharex=True, sharey=True)
    limit = style.within_scale(np.stack(list(kernels.values())), UNSATURATED)
    for ax, (name, kernel) in zip(axes.flat, kernels.items(), strict=False):
        image = style.draw_matrix(ax, kernel, limit)
        ax.set_title(style.bracket_below(name))
        mark_classes(ax, run.theory["labels_shown"].values)
    label = f"$\\bar K(x, x')$ / mean of its diagonal{note}"
    style.colour_bar(above, image, list(axes.flat), label, extend="both")
    return figure


def mark_classes(ax: Axes, labels: np.ndarray) -> None:
    """Draw lines between classes and name them; nothing where labels are no classes."""
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
    """Return where each class of sorted labels ends; None where labels are no classes."""
    changes = np.flatnonzero((np.diff(labels, axis=0) != 0).any(axis=1)) + 1
    ends = np.array([*changes, len(labels)])
    return ends if len(ends) <= max(2, labels.shape[1]) else None


def draw_path_kernels(figure: SubFigure, run: RunResults, stored: np.ndarray) -> None:
    """Draw C̄_{ππ'} [path, path_, example, example] / √(c_π c_π') as blocks of one matrix.

    C̄ is the centred kernel, c_π the mean of the diagonal of C̄_{ππ}: paths differ in size more than
    in structure.
    """
    kernels, names = centred_kernel(stored), run.theory["shown_path"].values
    paths, _, size, _ = kernels.shape
    sizes = np.einsum("ppxx->p", kernels) / size
    blocks = kernels / np.maximum(np.sqrt(np.outer(sizes, sizes)), TINY)[..., None, None]
    # A line of nothing between blocks.
    blocks = np.pad(blocks, ((0, 0), (0, 0), (0, GAP), (0, GAP)), constant_values=np.nan)
    step = size + GAP
    mosaic = blocks.swapaxes(1, 2).reshape(paths * step, paths * step)[:-GAP, :-GAP]
    ax = figure.subplots()
    image = style.draw_matrix(ax, mosaic, style.within_scale(mosaic, UNSATURATED))
    middles = step * np.arange(paths) + (size - 1) / 2.0
    ax.tick_params(length=0)
    ax.set_xticks(middles, names)
    ax.set_yticks(middles, names, rotation=90, va="center")
    title = r"Centred path kernels $\bar C_{\pi\pi'}$"
    count = len(run.path_names) // run.theory["labels_shown"].shape[1]
    title += f" of the {paths} strongest of {count} paths" if count > paths else ""
    ax.set(title=title, xlabel=r"path $\pi'$", ylabel=r"path $\pi$")
    unit = r"\sqrt{c_\pi c_{\pi'}}$,  $c_\pi$ = mean of $\bar C_{\pi\pi}(x, x)$"
    label = r"$\bar C_{\pi\pi'}(x, x')\,/\," + unit
    style.colour_bar(figure, image, [ax], label, extend="both")


def draw_alignment(results: RunResults | SweepResults) -> Figure | None:
    """Draw |e_i·y| / |y| for the first principal components i of each kernel.

    Of a sweep, for the first run that has a theory; `e_i` has the largest eigenvalue for i = 1.
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
    "Kernel K = Σ U₁ C_{ππ'} between up to 40 training examples, evenly from all, sorted by label: "
    "infinite width, both orders of the theory and the exact posterior, each relative to the mean "
    "of its diagonal. What all examples have in common is taken away: red pairs are more alike "
    "than others, blue ones less. Blocks on the diagonal are pairs of one class.",
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
