"""Two episodes with the inputs made of them; accuracies of trainings, and against width."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import sampler
from runs.studies.one_shot.mathematics import WIDTHS, heads_of
from sampler.data.characters import read_drawings, split_characters
from sampler.data.episodes import draw_episodes
from sampler.presentation import style
from sampler.streams import Stream, stream
from sampler.transformer.trained_transformer import read_model

IMAGES = ("support, −1", "support, +1", "query")  # by their label in an episode
EXAMPLES, SEED = 600, 0
ROWS = {
    "trained": ("trained network", "s", style.GREY),
    "theory": (r"theory, $N = 10$, at its best $\mathcal{T}$", "o", style.THEORY),
    "infinite": (r"infinite width, at its best $\mathcal{T}$", "x", style.GAUSSIAN_PROCESS),
    "pixels": ("pixel nearest neighbour", "|", style.ORANGE),
}


def draw_task(model: Path, omniglot: Path) -> Figure:
    """Draw two episodes of different labels that a trained network was not shown."""
    task = sampler.OneShot(model=model, folder=omniglot, examples_train=EXAMPLES, seed=SEED)
    data = task.make(attention=None).train
    settings = read_model(model).recipe.task.model_copy(update={"folder": str(omniglot)})
    drawings = split_characters(read_drawings(settings), settings).train
    images, kinds = draw_episodes(drawings, EXAMPLES, stream(SEED, Stream.TRAIN)).places
    signs = np.sign(data.labels[:, 0])
    shown = [0, int(np.flatnonzero(signs != signs[0])[0])]
    limit = style.within_scale(data.inputs[shown], 0.99)
    figure = style.new_figure(style.WIDTH, 5.2, "Two training examples")
    upper, lower = figure.subfigures(2, 1, height_ratios=(0.4, 1.0))
    panels = lower.subplots(1, 2, sharey=True)
    for part, ax, example in zip(upper.subfigures(1, 2), panels, shown, strict=True):
        part.suptitle(style.minus_signs(f"$y$ = {signs[example]:+g}"), fontsize=10.0)
        row = zip(part.subplots(1, 3), images[example], kinds[example], strict=True)
        for axes, image, kind in row:
            axes.imshow(drawings.images[image], cmap="Greys", vmin=0.0, vmax=1.0)
            axes.set_title(IMAGES[kind], fontsize=8.0)
            axes.set_axis_off()
        inputs = data.inputs[example].T
        matrix = style.draw_matrix(ax, inputs, limit, aspect="auto", origin="lower")
        ax.set_xlabel("token")
    panels[0].set_ylabel("channel")
    style.colour_bar(lower, matrix, list(panels), "inputs $x_0$", extend="both")
    return figure


def accuracies(one: dict) -> dict:
    """What `ROWS` names, of a training or of their mean."""
    return {
        "trained": one["same episodes"],
        "theory": one["widths"]["10"]["accuracy"],
        "infinite": one["widths"]["infinite"]["accuracy"],
        "pixels": one["pixels on them"],
    }


def draw_trainings(axes: Axes, found: dict[str, dict]) -> None:
    """Accuracy of every training, a row each."""
    for place, one in enumerate(found.values()):
        values = accuracies(one)
        for key, (label, marker, colour) in ROWS.items():
            marks = {"color": colour, "label": label if place == 0 else None}
            axes.plot(100 * values[key], place, marker, **marks)
    labels = [f"{name}: {' + '.join(map(str, heads_of(name)))}" for name in found]
    axes.set_yticks(range(len(found)), labels)
    axes.invert_yaxis()
    axes.set_ylabel("training: heads of its layers")
    axes.set_xlabel("right of test episodes (%)")


def draw_widths(axes: Axes, means: dict) -> None:
    """Accuracy of the theory against width, mean over A to E with its standard error."""
    widths = means["4·4"]["widths"] | means["wider"]
    those = [widths[str(width)]["accuracy"] for width in WIDTHS]
    values, errors = (
        100 * np.array([one[key] for one in those], float) for key in ("value", "error")
    )
    _, marker, colour = ROWS["theory"]
    axes.errorbar(WIDTHS, values, errors, fmt=f"{marker}-", color=colour, capsize=2.5)
    for key in ("trained", "pixels", "infinite"):
        one, colour = accuracies(means["4·4"])[key], ROWS[key][2]
        error = one["error"] or 0.0  # none of a single training
        low, high = (100 * (one["value"] + sign * error) for sign in (-1, 1))
        axes.axhspan(low, high, color=colour, alpha=0.25, linewidth=0)
        axes.axhline(100 * one["value"], color=colour, linewidth=1.0)
    axes.set_xscale("log")
    axes.set_xlabel("width $N$")
    axes.set_ylabel("right (%), mean ± standard error, A to E")


def draw_trainings_and_widths(found: dict[str, dict], means: dict) -> Figure:
    """Draw accuracies of trainings, and against width the mean over A to E."""
    figure = style.new_figure(style.WIDTH, 0.25 * len(found) + 2.2)
    panels = figure.subplots(1, 2)
    draw_trainings(panels[0], found)
    draw_widths(panels[1], means)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), 2)
    return figure
