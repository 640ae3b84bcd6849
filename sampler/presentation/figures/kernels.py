"""Kernels between training examples, of the network and of pairs of paths, and their alignment."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from sampler.analysis.example_tables import TINY, relative_to_size
from sampler.analysis.predictors import INFINITE, LEADING, NEXT, SAMPLED
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style
from theory import centred_kernel

EXAMPLES = "training examples, sorted by label"
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
}
SAMPLED_MARKS = {"fmt": "D", "markersize": 4.5, "zorder": 3.5}


def draw_kernels(run: RunResults, paths: bool = False) -> Figure | None:
    """Draw the kernel at infinite width, of both orders, and of the samples, as far as known.

    Between training examples sorted by their labels, all on one colour scale.

    paths: below them, the kernels of pairs of paths that they are sums of; of more than four paths,
    of those with the largest U_1
    """
    kernels = {run.name_of(name): run.predicted("kernel", name)
               for name in (INFINITE, LEADING, NEXT)}  # fmt: skip
    known = {label: relative_to_size(one) for label, one in kernels.items() if one is not None}
    if not known:
        return None
    sampled, note = run.drawn("centred_kernel", "kernel"), ""
    if sampled is not None:
        known[run.name_of(SAMPLED)] = sampled.values
        mcse = float(run.drawn("centred_kernel_mcse", "kernel").max())
        note = f"; exact posterior ± {mcse:.1g} or less"
    title = style.title_of("Centred kernel", run.setting) + f"\n{EXAMPLES}"
    stored = run.theory_values("path_kernels") if paths else None
    height, below = 2.75 * -(-len(known) // 2) + 1.3, 0.0 if stored is None else style.WIDTH + 0.6
    figure = style.new_figure(style.WIDTH, height + below, title)
    above: Figure | SubFigure = figure
    if stored is not None:
        above, lower = figure.subfigures(2, 1, height_ratios=(height, below))
        ax = lower.subplots()
        image = _draw_path_kernels(ax, run, stored)
        unit = r"\sqrt{c_\pi c_{\pi'}}$,  $c_\pi$ = mean of $\bar C_{\pi\pi}(x, x)$"
        label = r"$\bar C_{\pi\pi'}(x, x')\,/\," + unit
        style.colour_bar(lower, image, [ax], label, extend="both")
    axes = style.panel_grid(above, len(known), 2, sharex=True, sharey=True)
    limit = style.within_scale(np.stack(list(known.values())), UNSATURATED)
    for ax, (name, kernel) in zip(axes.flat, known.items(), strict=False):
        image = style.draw_matrix(ax, kernel, limit)
        ax.set_title(style.bracket_below(name))
        _mark_classes(ax, run.theory["labels_shown"].values)
    label = f"$\\bar K(x, x')$ / mean of its diagonal{note}"
    style.colour_bar(above, image, list(axes.flat), label, extend="both")
    return figure


def _mark_classes(ax: Axes, labels: np.ndarray) -> None:
    """Draw lines between classes and name them; nothing where labels are no classes."""
    ax.tick_params(length=0)
    ends = class_ends(labels)
    if ends is None:
        ax.set_xticks([])
        ax.set_yticks([])
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


def _draw_path_kernels(ax: Axes, run: RunResults, stored: np.ndarray) -> AxesImage:
    """Draw C̄_{ππ'} [path, path_, example, example] / √(c_π c_π') as blocks of one matrix.

    C̄ is the centred kernel, c_π the mean of the diagonal of C̄_{ππ}: paths differ in size more than
    in structure.
    """
    kernels, names = centred_kernel(stored), run.theory["shown_path"].values
    paths, _, size, _ = kernels.shape
    sizes = np.einsum("ppxx->p", kernels) / size
    step = size + GAP
    mosaic = np.full((paths * step - GAP,) * 2, np.nan)
    for row, column in np.ndindex(paths, paths):
        block = kernels[row, column] / max(np.sqrt(sizes[row] * sizes[column]), TINY)
        mosaic[row * step : row * step + size, column * step : column * step + size] = block
    image = style.draw_matrix(ax, mosaic, style.within_scale(mosaic, UNSATURATED))
    middles = step * np.arange(paths) + (size - 1) / 2.0
    ax.tick_params(length=0)
    ax.set_xticks(middles, names)
    ax.set_yticks(middles, names, rotation=90, va="center")
    title = r"Centred path kernels $\bar C_{\pi\pi'}$"
    count = len(run.path_names) // run.theory["labels_shown"].shape[1]
    title += f" of the {paths} strongest of {count} paths" if count > paths else ""
    ax.set(title=title, xlabel=r"path $\pi'$", ylabel=r"path $\pi$")
    return image


def draw_alignment(results: RunResults | SweepResults) -> Figure | None:
    """Draw |e_i·y| / |y| for the first principal components i of each kernel.

    Of a sweep, for the first run that has a theory; `e_i` has the largest eigenvalue for i = 1.
    """
    run = results.solved if isinstance(results, SweepResults) else results
    if run is None or run.predicted("kernel_alignment") is None:
        return None
    figure = style.new_figure(style.WIDTH, 3.9, "Kernel–task alignment", run.setting)
    ax = figure.subplots()
    for name, marks in MARKS.items():
        values = run.predicted("kernel_alignment", name)
        if values is not None:
            marks = {"label": run.name_of(name), "color": style.colour_of(name), **marks}
            _draw_curve(ax, values, None, **marks)
    sampled = run.sampled("kernel_alignment")
    if sampled is not None:
        marks = {"label": run.name_of(SAMPLED), "color": style.SAMPLED}
        _draw_curve(ax, sampled.value, sampled.mcse, **marks, **SAMPLED_MARKS)
    ax.set_xlabel("principal component $i$ of the training kernel")
    ax.set_ylabel(r"alignment $|e_i \cdot y|\,/\,|y|$")
    ax.set_ylim(bottom=0.0)
    count = min(run.theory.sizes["component"], COMPONENTS)
    ax.set_xticks([1, *range(10, count + 1, 10)] if count >= 10 else range(1, count + 1))
    style.legend_below(figure)
    return figure


def _draw_curve(ax: Axes, values: np.ndarray, mcse: np.ndarray | None, **marks) -> None:
    values = values[:COMPONENTS]
    error = None if mcse is None else mcse[:COMPONENTS]
    places = np.arange(1, len(values) + 1)
    ax.errorbar(places, values, error, linewidth=1.0, capsize=2.0, **marks)


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
