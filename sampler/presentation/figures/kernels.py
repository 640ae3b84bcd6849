"""Kernels between training examples: of pairs of paths, and of theories and exact posterior."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sampler.analysis.kernel_tables import TINY, relative_to_size
from sampler.analysis.results import RunResults
from sampler.presentation import style
from theory import centred_kernel

EXAMPLES = "training examples, sorted by label"
# Thickness of the lines between blocks, in examples.
GAP = 1
# Share of the elements that lie within the colour scale: diagonals are much larger than the rest.
UNSATURATED = 0.97


def draw_kernels(
    kernels: dict[str, np.ndarray], labels: np.ndarray, title: str, note: str = ""
) -> Figure:
    """Draw matrices, title → [example, example], on one colour scale.

    labels: [example, output], by which the examples are sorted. note: below the colour bar.
    """
    rows = -(-len(kernels) // 2)
    figure = style.new_figure(style.WIDTH, 2.75 * rows + 1.3)
    figure.suptitle(title)
    axes = figure.subplots(rows, 2, squeeze=False, sharex=True, sharey=True)
    limit = unsaturated(np.stack(list(kernels.values())))
    for ax in axes.flat[len(kernels) :]:
        ax.set_axis_off()
    for ax, (name, kernel) in zip(axes.flat, kernels.items(), strict=False):
        image = _draw_matrix(ax, kernel, limit)
        ax.set_title(name.replace(" (", "\n("))
        _mark_classes(ax, labels)
    style.colour_bar(
        figure,
        image,
        list(axes.flat),
        f"$\\bar K(x, x')$ / mean of its diagonal{note}",
        extend="both",
    )
    return figure


def unsaturated(matrices: np.ndarray) -> float:
    """End of a colour scale that nearly all elements are within."""
    return float(np.nanquantile(np.abs(matrices), UNSATURATED)) or 1.0


def _draw_matrix(ax: Axes, matrix: np.ndarray, limit: float) -> AxesImage:
    ax.spines[:].set_visible(False)
    return ax.imshow(matrix, cmap=style.VALUES, vmin=-limit, vmax=limit, interpolation="nearest")


def _mark_classes(ax: Axes, labels: np.ndarray) -> None:
    """Lines between classes and their names in the middle; nothing where labels are no classes."""
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
    middles = (starts + ends - 1) / 2.0
    if labels.shape[1] == 1:
        names = [f"$y$ = {labels[start, 0]:+g}".replace("-", "−") for start in starts]
    else:
        names = [str(labels[start].argmax()) for start in starts]
    ax.set_xticks(middles, names)
    ax.set_yticks(middles, names)


def class_ends(labels: np.ndarray) -> np.ndarray | None:
    """Where each class of sorted labels ends; None where labels are no classes."""
    changes = np.flatnonzero((np.diff(labels, axis=0) != 0).any(axis=1)) + 1
    ends = np.array([*changes, len(labels)])
    return ends if len(ends) <= max(2, labels.shape[1]) else None


def kernels_of_run(run: RunResults) -> Figure | None:
    """Infinite width, both orders of the theory, and the exact posterior where it was sampled."""
    known = {
        style.LIMIT: run.theory_values("gp_kernel"),
        style.LEADING: run.theory_values("kernel"),
        style.NEXT: run.theory_values("kernel_next_order"),
    }
    known = {name: relative_to_size(kernel) for name, kernel in known.items() if kernel is not None}
    if not known:
        return None
    sampled, note = run.drawn("centred_kernel", "kernel"), ""
    if sampled is not None:
        known[run.sampled_label] = sampled.values
        mcse = float(run.drawn("centred_kernel_mcse", "kernel").max())
        note = f"; exact posterior ± {mcse:.1g} or less"
    title = style.title_of("Centred kernel", run.setting) + f"\n{EXAMPLES}"
    return draw_kernels(known, run.theory["labels_shown"].values, title, note)


def draw_path_kernels(kernels: np.ndarray, names: list[str], more: int = 0) -> Figure:
    """Draw K̄^{ππ'} [path, path_, example, example] / √(k_π k_π') as blocks of one matrix.

    K̄ is the centred kernel, k_π the mean of the diagonal of K̄^{ππ}: paths differ in size more than
    in structure.

    more: how many paths are not among them.
    """
    paths, _, size, _ = kernels.shape
    kernels = centred_kernel(kernels)
    sizes = np.einsum("ppxx->p", kernels) / size
    step = size + GAP
    mosaic = np.full((paths * step - GAP,) * 2, np.nan)
    for row, column in np.ndindex(paths, paths):
        block = kernels[row, column] / max(np.sqrt(sizes[row] * sizes[column]), TINY)
        mosaic[row * step : row * step + size, column * step : column * step + size] = block
    figure = style.new_figure(style.WIDTH, style.WIDTH + 0.9)
    title = r"Centred path kernels $\bar K^{\pi\pi'}$"
    title = f"{title} of the {paths} strongest of {paths + more} paths" if more else title
    figure.suptitle(f"{title}\n{EXAMPLES}")
    ax = figure.subplots()
    image = _draw_matrix(ax, mosaic, unsaturated(mosaic))
    middles = step * np.arange(paths) + (size - 1) / 2.0
    ax.tick_params(length=0)
    ax.set_xticks(middles, names)
    ax.set_yticks(middles, names, rotation=90, va="center")
    ax.set_xlabel(r"path $\pi'$")
    ax.set_ylabel(r"path $\pi$")
    unit = r"\sqrt{k_\pi k_{\pi'}}$,  $k_\pi$ = mean of $\bar K^{\pi\pi}(x, x)$"
    label = r"$\bar K^{\pi\pi'}(x, x')\,/\," + unit
    style.colour_bar(figure, image, [ax], label, extend="both")
    return figure


def path_kernels_of_run(run: RunResults) -> Figure | None:
    """Of the paths whose kernels are stored."""
    kernels = run.theory_values("path_kernels")
    if kernels is None:
        return None
    names = [str(name) for name in run.theory["shown_path"].values]
    outputs = run.theory["labels_shown"].shape[1]
    return draw_path_kernels(kernels, names, len(run.path_names) // outputs - len(names))


KERNELS = style.FigureEntry(
    kernels_of_run,
    "Kernel K = Σ U₁ K^{ππ'} between up to 40 training examples, evenly from all, sorted by label: "
    "infinite width, both orders of the theory and the exact posterior, each relative to the mean "
    "of its diagonal. What all examples have in common is taken away: red pairs are more alike "
    "than others, blue ones less. Blocks on the diagonal are pairs of one class.",
    "Coloured matrices over pairs of training examples sorted by label: the kernel at infinite "
    "width, of both orders of the theory and of the exact posterior.",
)
PATH_KERNELS = style.FigureEntry(
    path_kernels_of_run,
    "Kernels K^{ππ'} between pairs of attention paths, each of the same training examples sorted "
    "by label, without what all examples have in common, and relative to the size of the kernels "
    "of both paths; of more than four paths, those with the largest U₁. The kernel of the network "
    "is their sum, weighed by U₁.",
    "Blocks of coloured matrices, one for each pair of attention paths: their kernel between "
    "training examples sorted by label.",
)
