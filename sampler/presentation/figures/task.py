"""Two examples of the task: what they were made of, and what the network is given."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style

# Share of the numbers of the inputs that lie within the colour scale.
UNSATURATED = 0.99


def label_text(labels: np.ndarray) -> str:
    """The label of one example, [output], in words."""
    if labels.size == 1:
        return f"$y$ = {labels[0]:+.3g}".replace("-", "−")
    return f"label: output {labels.argmax()}"


def draw_task(table: xr.Dataset) -> Figure:
    """Draw the examples of `task.nc` side by side: pictures where there are any, inputs below."""
    tokens = "inputs" in table
    inputs = table["inputs" if tokens else "attended"].values
    count = len(inputs)
    pictured = "pictures" in table
    figure = style.new_figure(style.WIDTH, 5.2 if pictured else 3.9)
    figure.suptitle("Two training examples" if count > 1 else "A training example")
    upper, lower = figure.subfigures(2, 1, height_ratios=(0.4, 1.0)) if pictured else (None, figure)
    axes = lower.subplots(1, count, squeeze=False, sharey=True)[0]
    limit = float(np.quantile(np.abs(inputs), UNSATURATED)) or 1.0
    for place, ax in enumerate(axes):
        # Tokens from left to right, channels from the bottom up.
        image = ax.imshow(
            inputs[place].T, cmap=style.VALUES, vmin=-limit, vmax=limit, aspect="auto",
            origin="lower", interpolation="nearest",
        )  # fmt: skip
        ax.spines[:].set_visible(False)
        ax.set_xlabel(_axis_label("token" if tokens else "path", inputs.shape[1], table))
        if not pictured:
            ax.set_title(label_text(table["labels"].values[place]))
    axes[0].set_ylabel(_axis_label("channel", inputs.shape[2], table))
    what = "inputs $x_0$" if tokens else r"attended inputs $\xi^\pi$"
    style.colour_bar(lower, image, list(axes), what, extend="both")
    if upper is not None:
        _draw_pictures(upper, table)
    return figure


def _axis_label(name: str, shown: int, table: xr.Dataset) -> str:
    """What an axis counts, and that it is only the beginning where it is."""
    there = int(table.attrs[f"{name}s"])
    return name if shown == there else f"{name}, first {shown} of {there}"


def _draw_pictures(figure: SubFigure, table: xr.Dataset) -> None:
    """The pictures of every example, each with what it is, under the label of the example."""
    pictures, names = table["pictures"].values, table["picture_names"].values
    for place, part in enumerate(figure.subfigures(1, len(pictures), squeeze=False)[0]):
        part.suptitle(label_text(table["labels"].values[place]), fontsize=10.0)
        axes: list[Axes] = part.subplots(1, pictures.shape[1], squeeze=False)[0]
        for ax, picture, name in zip(axes, pictures[place], names[place], strict=True):
            ax.imshow(picture, cmap="Greys", vmin=0.0, vmax=1.0)
            ax.set_title(str(name), fontsize=8.0)
            ax.set_axis_off()


def task_of(results: RunResults | SweepResults) -> Figure | None:
    """Of a run, or of the first run of a sweep; None where no examples are stored."""
    runs = results.runs if isinstance(results, SweepResults) else [results]
    tables = [run.task for run in runs if run is not None and run.task is not None]
    return draw_task(tables[0]) if tables else None


TASK = style.FigureEntry(
    task_of,
    "Training examples of two labels, as the network is given them: the numbers of every token, "
    "and above them the pictures that they were made of, if any. Up to 64 tokens and 256 channels.",
    "Two training examples with their labels as coloured matrices of tokens and channels, and as "
    "pictures where they were made of such.",
    of=("run", "sweep"),
)
