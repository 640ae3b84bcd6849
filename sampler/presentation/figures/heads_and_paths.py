"""The network: attention of its heads to a training example, and paths weighed by U_1."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sampler.analysis.predictors import SAMPLED
from sampler.analysis.results import RunResults
from sampler.analysis.text import Number
from sampler.presentation import style
from theory import AttentionPaths

# Heads of a layer and layers that have a place.
MOST_HEADS, MOST_LAYERS = 6, 4
COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY_BLUE, style.VERMILLION)
LINK = "#D0D0D0"
# Half the side of a map where neighbours are 1 apart; inches of that distance, and of all layers,
# at most; points of the widest line.
HALF, LARGEST, HIGHEST, WIDEST = 0.33, 1.7, 6.0, 5.0
# Inches of a letter, and letters of a path and of an entry in one of two columns of the legend.
LETTER, LETTERS_OF_PATH, LETTERS_OF_HALF = 0.085, 32, 36
BOX = {"facecolor": "white", "edgecolor": "black", "linewidth": 0.5, "pad": 2.0}


@dataclass(frozen=True)
class DrawnPath:
    """A path by its heads, layer by layer, the diagonal of U_1 there, and its legend."""

    heads: tuple[int, ...]
    weight: float
    label: str


@dataclass(frozen=True)
class DrawnLayers:
    """Names of the heads [layer][head], and attention [layer][head, key, query] where known."""

    names: Sequence[Sequence[str]]
    attention: Sequence[np.ndarray | None]

    @classmethod
    def of(cls, run: RunResults) -> "DrawnLayers":
        """Names and attention by the content of `task.nc`; of learned heads attention by draws."""
        layers = range(1, 1 + sum(str(name).startswith("head_names_") for name in run.task))
        stored = [run.task.get(f"attention_{layer}") for layer in layers]
        return cls(
            [list(map(str, run.task[f"head_names_{layer}"].values)) for layer in layers],
            [
                run.sampled_attention(layer) if matrices is None else np.abs(matrices.values)
                for layer, matrices in zip(layers, stored, strict=True)
            ],
        )

    @property
    def rows(self) -> int:
        """Layers that have a place."""
        return min(len(self.names), MOST_LAYERS)

    @property
    def columns(self) -> int:
        """Places in the widest layer; the last one stands for further heads, where there are."""
        return min(max(map(len, self.names[: self.rows])), MOST_HEADS)

    def place(self, layer: int, head: int) -> float:
        """Where a head stands from left to right."""
        shown = min(len(self.names[layer]), self.columns)
        return (self.columns - shown) / 2.0 + min(head, shown - 1)


def draw_network(run: RunResults) -> Figure | None:
    """Draw layers from the inputs up, and the paths through their heads.

    The width of a line is proportional to the diagonal of U_1. None where no example of the task is
    stored.
    """
    if run.task is None:
        return None
    layers = DrawnLayers.of(run)
    paths = strongest_paths(run, [len(names) for names in layers.names])
    rows, columns = layers.rows, layers.columns
    listed = 1 if max((len(path.label) for path in paths), default=0) > LETTERS_OF_HALF else 2
    unit = min((style.WIDTH - 0.2) / (columns + 0.5), HIGHEST / (rows + 0.9), LARGEST)
    height = unit * (rows + 0.9) + 1.4 + 0.19 * -(-len(paths) // listed)
    figure = style.new_figure(style.WIDTH, height, "Network", run.setting)
    ax = figure.subplots()
    ax.set_axis_off()
    ax.set(xlim=(-0.75, columns - 0.25), ylim=(-0.95, rows - 0.05), aspect="equal")
    draw_paths(ax, layers, paths)
    draw_heads(figure, ax, layers, int(unit / LETTER))
    if paths:
        where = {"loc": "outside lower center", "ncols": listed}
        figure.legend(title=legend_title(run, paths), title_fontsize=9.0, **where)
    return figure


def draw_paths(ax: Axes, layers: DrawnLayers, paths: Sequence[DrawnPath]) -> None:
    """Draw faint lines between all heads, and the paths, side by side where they meet."""
    middle = (layers.columns - 1) / 2.0
    below, above = (middle, -0.75), (middle, layers.rows - 0.3)
    places = [
        sorted({layers.place(layer, head) for head in range(len(names))})
        for layer, names in enumerate(layers.names[: layers.rows])
    ]
    starts = [[below], *([(at, row + HALF) for at in of] for row, of in enumerate(places))]
    ends = [*([(at, row - HALF) for at in of] for row, of in enumerate(places)), [above]]
    for of_row in zip(starts, ends, strict=True):
        for start, end in itertools.product(*of_row):
            ax.plot(*zip(start, end, strict=True), color=LINK, linewidth=0.6)
    largest = max((path.weight for path in paths), default=1.0)
    for number, (path, colour) in enumerate(zip(paths, COLOURS, strict=False)):
        aside = HALF * (number - (len(paths) - 1) / 2.0) / 4.0
        points = [below]
        for layer, head in enumerate(path.heads[: layers.rows]):
            at = layers.place(layer, head) + aside
            points += [(at, layer - HALF), (at, layer + HALF)]
        width = max(0.8, WIDEST * path.weight / largest)
        marks = {"color": colour, "zorder": 2.5, "label": path.label, "linewidth": width}
        ax.plot(*zip(*points, above, strict=True), solid_joinstyle="round", **marks)
    further = len(layers.names) - layers.rows
    write(ax, *below, "inputs")
    write(ax, *above, f"{further} more layers, readout" if further else "readout")


def draw_heads(figure: Figure, ax: Axes, layers: DrawnLayers, letters: int) -> None:
    """Draw a map of attention, or an empty box, for every head that has a place, with its name."""
    stored = [matrices.max() for matrices in layers.attention if matrices is not None]
    norm, image = PowerNorm(0.5, 0.0, float(max(stored, default=1.0))), None
    limits = ax.get_xlim(), ax.get_ylim()
    for layer, names in enumerate(layers.names[: layers.rows]):
        attention = layers.attention[layer]
        shown = len(names) if len(names) <= layers.columns else layers.columns - 1
        for head, name in enumerate(names[:shown]):
            left, bottom = layers.place(layer, head) - HALF, layer - HALF
            if attention is not None:
                extent = (left, left + 2.0 * HALF, bottom, bottom + 2.0 * HALF)
                marks = {"cmap": "Greys", "norm": norm, "interpolation": "nearest"}
                image = ax.imshow(attention[head], extent=extent, zorder=3, **marks)
            face = "white" if attention is None else "none"
            frame = {"facecolor": face, "edgecolor": "black", "zorder": 4}
            ax.add_patch(Rectangle((left, bottom), 2.0 * HALF, 2.0 * HALF, **frame))
            at = float(layer) if attention is None else layer + HALF
            write(ax, left + HALF, at, abbreviated(name, letters))
        if shown < len(names):
            write(ax, layers.columns - 1.0, float(layer), f"{len(names) - shown} more")
        ax.text(-0.55, layer, f"layer {layer + 1}", rotation=90, ha="center", va="center")
    ax.set(xlim=limits[0], ylim=limits[1])
    if image is not None:
        label = r"attention $|\Omega|$ to one example: queries from left to right, keys down"
        style.colour_bar(figure, image, [ax], label, aspect=35.0)


def write(ax: Axes, x: float, y: float, text: str) -> None:
    ax.text(x, y, text, ha="center", va="center", fontsize=9.0, bbox=BOX, zorder=5)


def abbreviated(name: str, letters: int) -> str:
    """Cut a name to at most so many letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def strongest_paths(run: RunResults, heads: Sequence[int]) -> list[DrawnPath]:
    """List the paths with the largest diagonal of U_1 to leading order, means over outputs.

    The legend has it beside that of the draws with its error; of several outputs it has the former.
    """
    leading = run.predicted("order_parameter")
    if leading is None:
        return []
    every = AttentionPaths(tuple(heads))
    weights = np.diagonal(leading).reshape(every.count, -1).mean(axis=1)
    outputs = len(leading) // every.count
    sampled, paths = run.sampled("order_parameter"), []
    for path in sorted(np.argsort(-weights, kind="stable")[: len(COLOURS)].tolist()):
        name = run.path_names[path * outputs].removesuffix(", output 0")
        label = f"{abbreviated(name, LETTERS_OF_PATH)}: {Number(float(weights[path]))}"
        if outputs == 1 and sampled is not None:
            value, error = (float(of[path, path]) for of in (sampled.value, sampled.mcse))
            label += f" ({Number(value, error)})"
        paths.append(DrawnPath(tuple(every.indices[path].tolist()), float(weights[path]), label))
    return paths


def legend_title(run: RunResults, paths: Sequence[DrawnPath]) -> str:
    """What the numbers beside the paths are."""
    title = "diagonal of $U_1$ to leading order"
    if any("±" in path.label for path in paths):
        title += f" ({run.name_of(SAMPLED)} ± MCSE)"
    count = int(run.task.attrs["paths"])
    return f"{len(paths)} strongest of {count} paths: {title}" if len(paths) < count else title


NETWORK = style.FigureEntry(
    draw_network,
    "The network from the inputs up: what its heads attend to in one training example, up to 64 "
    "tokens (of learned heads the mean over draws), and its paths, lines as wide "
    "as the diagonal of U₁. Of more than six paths those with the largest have a colour; up to "
    "four layers and six heads of each have a place.",
    "Layers of maps of attention, one for each head, joined by lines for attention paths, which "
    "are as wide as the diagonal of U₁.",
    shown="asked",
)
