"""The network: attention of its heads to a training example, and paths weighed by U_1."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
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
# Half the side of a map where neighbours are 1 apart, which is so many inches at most; inches that
# all layers have at most; points of the widest line.
HALF, LARGEST, HIGHEST, WIDEST = 0.33, 1.7, 6.0, 5.0
# Inches of a letter, and letters of a path and of an entry in one of two columns of the legend.
LETTER, LETTERS_OF_PATH, LETTERS_OF_HALF = 0.085, 32, 36

Point = tuple[float, float]


@dataclass(frozen=True)
class DrawnPath:
    """A path by its heads, layer by layer, the diagonal of U_1 there, and its legend."""

    heads: tuple[int, ...]
    weight: float
    name: str


@dataclass(frozen=True)
class DrawnLayers:
    """Names of the heads [layer][head], and attention [layer][head, key, query] where known."""

    names: Sequence[Sequence[str]]
    attention: Sequence[np.ndarray | None]

    @classmethod
    def of(cls, run: RunResults) -> "DrawnLayers":
        """Take names and attention from the content of `task.nc`, or attention from the draws."""
        table = run.task
        layers = range(1, 1 + sum(str(name).startswith("head_names_") for name in table))
        known = [table.get(f"attention_{layer}") for layer in layers]
        return cls(
            [list(map(str, table[f"head_names_{layer}"].values)) for layer in layers],
            [
                run.sampled_attention(layer) if one is None else np.abs(one.values)
                for layer, one in zip(layers, known, strict=True)
            ],
        )

    @property
    def rows(self) -> int:
        return min(len(self.names), MOST_LAYERS)

    @property
    def columns(self) -> int:
        """Places in the widest layer; the last one stands for further heads, where there are."""
        return min(max(map(len, self.names[: self.rows])), MOST_HEADS)

    def place(self, layer: int, head: int) -> float:
        """Return where a head stands from left to right."""
        shown = min(len(self.names[layer]), self.columns)
        return (self.columns - shown) / 2.0 + min(head, shown - 1)

    def shown(self, layer: int) -> int:
        count = len(self.names[layer])
        return count if count <= self.columns else self.columns - 1


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
    unit = min((style.WIDTH - 0.2) / (columns + 0.5), HIGHEST / (rows + 0.9), LARGEST)
    listed = 1 if max((len(one.name) for one in paths), default=0) > LETTERS_OF_HALF else 2
    legend = 0.35 + 0.19 * -(-len(paths) // listed) if paths else 0.0
    known = [one.max() for one in layers.attention if one is not None]
    height = unit * (rows + 0.9) + legend + (0.7 if known else 0.0) + 0.35
    figure = style.new_figure(style.WIDTH, height, "Network", run.setting)
    ax = figure.subplots()
    ax.set_axis_off()
    middle = (columns - 1) / 2.0
    below, above = (middle, -0.75), (middle, rows - 0.3)
    _draw_links(ax, layers, below, above)
    _draw_paths(ax, layers, paths, below, above)
    image, norm = None, PowerNorm(0.5, 0.0, float(max(known, default=1.0)))
    for layer, (names, attention) in enumerate(
        zip(layers.names[:rows], layers.attention, strict=False)
    ):
        shown = layers.shown(layer)
        for head, name in enumerate(names[:shown]):
            at = layers.place(layer, head), layer
            matrix = None if attention is None else attention[head]
            image = (
                _draw_head(ax, *at, abbreviated(name, int(unit / LETTER)), matrix, norm) or image
            )
        if shown < len(names):
            _write(ax, columns - 1.0, float(layer), f"{len(names) - shown} more")
        ax.text(-0.55, layer, f"layer {layer + 1}", rotation=90, ha="center", va="center")
    further = len(layers.names) - rows
    _write(ax, *below, "inputs")
    _write(ax, *above, f"{further} more layers, readout" if further else "readout")
    ax.set(xlim=(-0.75, columns - 0.25), ylim=(-0.95, rows - 0.05), aspect="equal")
    if image is not None:
        label = r"attention $|\Omega|$ to one example: queries from left to right, keys down"
        style.colour_bar(figure, image, [ax], label, aspect=35.0)
    if paths:
        title = _legend_title(run, paths)
        where = {"loc": "outside lower center", "ncols": listed}
        figure.legend(title=title, title_fontsize=9.0, **where)
    return figure


def _legend_title(run: RunResults, paths: Sequence[DrawnPath]) -> str:
    title = "diagonal of $U_1$ to leading order"
    if any("±" in path.name for path in paths):
        title += f" ({run.name_of(SAMPLED)} ± MCSE)"
    count = int(run.task.attrs["paths"])
    return f"{len(paths)} strongest of {count} paths: {title}" if len(paths) < count else title


def _draw_links(ax: Axes, layers: DrawnLayers, below: Point, above: Point) -> None:
    """Draw faint lines from everything to everything in the layer above."""
    starts = [below]
    for layer, names in enumerate(layers.names[: layers.rows]):
        places = sorted({layers.place(layer, head) for head in range(len(names))})
        for start, at in itertools.product(starts, places):
            ax.plot(*zip(start, (at, layer - HALF), strict=True), color=LINK, linewidth=0.6)
        starts = [(at, layer + HALF) for at in places]
    for start in starts:
        ax.plot(*zip(start, above, strict=True), color=LINK, linewidth=0.6)


def _draw_paths(
    ax: Axes, layers: DrawnLayers, paths: Sequence[DrawnPath], below: Point, above: Point
) -> None:
    """Draw lines from the inputs through the heads to the readout, side by side where they meet."""
    largest = max((path.weight for path in paths), default=1.0)
    for number, (path, colour) in enumerate(zip(paths, COLOURS, strict=False)):
        aside = HALF * (number - (len(paths) - 1) / 2.0) / 4.0
        points = [below]
        for layer, head in enumerate(path.heads[: layers.rows]):
            at = layers.place(layer, head) + aside
            points += [(at, layer - HALF), (at, layer + HALF)]
        marks = {"color": colour, "zorder": 2.5, "solid_joinstyle": "round", "label": path.name}
        width = max(0.8, WIDEST * path.weight / largest)
        ax.plot(*zip(*points, above, strict=True), linewidth=width, **marks)


def _draw_head(
    ax: Axes, at: float, layer: int, name: str, matrix: np.ndarray | None, norm: PowerNorm
) -> AxesImage | None:
    """Draw a map of attention, or an empty box, with the name of the head."""
    image = None
    if matrix is not None:
        extent = (at - HALF, at + HALF, layer - HALF, layer + HALF)
        marks = {"cmap": "Greys", "norm": norm, "zorder": 3, "interpolation": "nearest"}
        image = ax.imshow(matrix, extent=extent, **marks)
    frame = {"facecolor": "white" if image is None else "none", "edgecolor": "black", "zorder": 4}
    ax.add_patch(Rectangle((at - HALF, layer - HALF), 2.0 * HALF, 2.0 * HALF, **frame))
    _write(ax, at, layer + (0.0 if image is None else HALF), name)
    return image


def abbreviated(name: str, letters: int) -> str:
    """Cut a name to at most so many letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _write(ax: Axes, x: float, y: float, text: str) -> None:
    box = {"facecolor": "white", "edgecolor": "black", "linewidth": 0.5, "pad": 2.0}
    ax.text(x, y, text, ha="center", va="center", fontsize=9.0, bbox=box, zorder=5)


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
    sampled = run.sampled("order_parameter")
    found = []
    for path in sorted(np.argsort(-weights, kind="stable")[: len(COLOURS)].tolist()):
        name = run.path_names[path * outputs].removesuffix(", output 0")
        name = f"{abbreviated(name, LETTERS_OF_PATH)}: {Number(float(weights[path]))}"
        if outputs == 1 and sampled is not None:
            known = Number(float(sampled.value[path, path]), float(sampled.mcse[path, path]))
            name += f" ({known})"
        found.append(DrawnPath(tuple(every.indices[path].tolist()), float(weights[path]), name))
    return found


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
