"""The network: attention of its heads to one example, and its paths weighed by U_1."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from sampler.analysis.numbers import Number
from sampler.analysis.results import RunResults
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
# Inputs and readout.
Ends = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class DrawnPath:
    """A path by its heads, layer by layer, the diagonal of U_1 there, and what the legend says."""

    heads: tuple[int, ...]
    weight: float
    name: str


@dataclass(frozen=True)
class DrawnLayers:
    """Names of the heads [layer][head], and attention [layer][head, key, query] where known."""

    names: Sequence[Sequence[str]]
    attention: Sequence[np.ndarray | None]

    @classmethod
    def of(cls, table: xr.Dataset) -> "DrawnLayers":
        """From `task.nc`."""
        layers = sum(str(name).startswith("head_names_") for name in table)
        names = [table[f"head_names_{layer}"].values for layer in range(1, layers + 1)]
        known = [table.get(f"attention_{layer}") for layer in range(1, layers + 1)]
        return cls(
            [[str(name) for name in of_layer] for of_layer in names],
            [None if one is None else np.abs(one.values) for one in known],
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
        count = len(self.names[layer])
        shown = min(count, self.columns)
        return (self.columns - shown) / 2.0 + min(head, shown - 1)

    def shown(self, layer: int) -> int:
        """How many heads of a layer have a place of their own."""
        count = len(self.names[layer])
        return count if count <= self.columns else self.columns - 1

    @property
    def largest(self) -> float:
        """Of all attention."""
        return max((float(one.max()) for one in self.attention if one is not None), default=1.0)


def draw_network(layers: DrawnLayers, paths: Sequence[DrawnPath], title: str, note: str) -> Figure:
    """Draw layers from the inputs up, and the paths through their heads.

    The width of a line is proportional to the weight of its path. note: above the legend.
    """
    rows, columns = layers.rows, layers.columns
    unit = min((style.WIDTH - 0.2) / (columns + 0.5), HIGHEST / (rows + 0.9), LARGEST)
    listed = 1 if max((len(one.name) for one in paths), default=0) > LETTERS_OF_HALF else 2
    legend = 0.35 + 0.19 * -(-len(paths) // listed) if paths else 0.0
    bar = 0.0 if all(one is None for one in layers.attention) else 0.7
    figure = style.new_figure(style.WIDTH, unit * (rows + 0.9) + legend + bar + 0.35)
    figure.suptitle(title)
    ax = figure.subplots()
    ax.set_axis_off()
    middle, top = (columns - 1) / 2.0, rows - 0.3
    ends = (middle, -0.75), (middle, top)
    _draw_links(ax, layers, ends)
    _draw_paths(ax, layers, paths, ends)
    image, norm = None, PowerNorm(0.5, 0.0, layers.largest)
    for layer, names in enumerate(layers.names[:rows]):
        shown = layers.shown(layer)
        for head, name in enumerate(names[:shown]):
            matrices = layers.attention[layer]
            matrix = None if matrices is None else matrices[head]
            at = layers.place(layer, head), layer
            image = _draw_head(ax, *at, shortened(name, int(unit / LETTER)), matrix, norm) or image
        if shown < len(names):
            _write(ax, columns - 1.0, float(layer), f"{len(names) - shown} more")
    further = "readout"
    if len(layers.names) > rows:
        further = f"{len(layers.names) - rows} more layers, readout"
    _write(ax, *ends[0], "inputs")
    _write(ax, *ends[1], further)
    for layer in range(rows):
        ax.text(-0.55, layer, f"layer {layer + 1}", rotation=90, ha="center", va="center")
    ax.set(xlim=(-0.75, columns - 0.25), ylim=(-0.95, rows - 0.05), aspect="equal")
    if image is not None:
        label = r"attention $|\Omega|$ to one example: queries from left to right, keys down"
        style.colour_bar(figure, image, [ax], label, aspect=35.0)
    if paths:
        figure.legend(loc="outside lower center", ncols=listed, title=note, title_fontsize=9.0)
    return figure


def _draw_links(ax: Axes, layers: DrawnLayers, ends: Ends) -> None:
    """Faint lines from everything to everything in the layer above."""
    places = [
        sorted({layers.place(layer, head) for head in range(len(names))})
        for layer, names in enumerate(layers.names[: layers.rows])
    ]
    below = [ends[0]]
    for layer, of_layer in enumerate(places):
        for start, at in itertools.product(below, of_layer):
            ax.plot(*zip(start, (at, layer - HALF), strict=True), color=LINK, linewidth=0.6)
        below = [(at, layer + HALF) for at in of_layer]
    for start in below:
        ax.plot(*zip(start, ends[1], strict=True), color=LINK, linewidth=0.6)


def _draw_paths(ax: Axes, layers: DrawnLayers, paths: Sequence[DrawnPath], ends: Ends) -> None:
    """Lines from the inputs through the heads to the readout, side by side where they meet."""
    largest = max((path.weight for path in paths), default=1.0)
    for number, (path, colour) in enumerate(zip(paths, COLOURS, strict=False)):
        aside = HALF * (number - (len(paths) - 1) / 2.0) / 4.0
        points = [ends[0]]
        for layer, head in enumerate(path.heads[: layers.rows]):
            at = layers.place(layer, head) + aside
            points += [(at, layer - HALF), (at, layer + HALF)]
        ax.plot(
            *zip(*points, ends[1], strict=True), zorder=2.5, solid_joinstyle="round",
            linewidth=max(0.8, WIDEST * path.weight / largest), color=colour, label=path.name,
        )  # fmt: skip


def _draw_head(
    ax: Axes, at: float, layer: int, name: str, matrix: np.ndarray | None, norm: PowerNorm
) -> AxesImage | None:
    """A map of attention, or an empty box, with the name of the head."""
    image = None
    corner, side = (at - HALF, layer - HALF), 2.0 * HALF
    if matrix is not None:
        extent = (at - HALF, at + HALF, layer - HALF, layer + HALF)
        image = ax.imshow(
            matrix, cmap="Greys", norm=norm, extent=extent, zorder=3, interpolation="nearest"
        )
    face = "white" if image is None else "none"
    ax.add_patch(Rectangle(corner, side, side, facecolor=face, edgecolor="black", zorder=4))
    _write(ax, at, layer + (0.0 if image is None else HALF), name)
    return image


def shortened(name: str, letters: int) -> str:
    """A name of at most so many letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _write(ax: Axes, x: float, y: float, text: str) -> None:
    box = {"facecolor": "white", "edgecolor": "black", "linewidth": 0.5, "pad": 2.0}
    ax.text(x, y, text, ha="center", va="center", fontsize=9.0, bbox=box, zorder=5)


def strongest_paths(run: RunResults, heads: Sequence[int]) -> list[DrawnPath]:
    """The paths with the largest diagonal of U_1 to leading order, means over outputs.

    The legend has it beside that of the draws with its error; of several outputs it has the former.
    """
    leading = run.theory_values("order_parameter")
    if leading is None:
        return []
    every = AttentionPaths(tuple(heads))
    weights = np.diagonal(leading).reshape(every.count, -1).mean(axis=1)
    outputs = len(leading) // every.count
    compared = run.compared("order_parameter")
    found = []
    for path in sorted(np.argsort(-weights, kind="stable")[: len(COLOURS)].tolist()):
        name = run.path_names[path * outputs].removesuffix(", output 0")
        name = f"{shortened(name, LETTERS_OF_PATH)}: {Number(float(weights[path]))}"
        if outputs == 1 and compared is not None:
            sampled = compared.sampled
            known = Number(float(sampled.value[path, path]), float(sampled.mcse[path, path]))
            name += f" ({known})"
        found.append(DrawnPath(tuple(every.indices[path].tolist()), float(weights[path]), name))
    return found


def network_of(run: RunResults) -> Figure | None:
    """None where no example of the task is stored."""
    if run.task is None:
        return None
    layers = DrawnLayers.of(run.task)
    paths = strongest_paths(run, [len(names) for names in layers.names])
    note = "diagonal of $U_1$ to leading order"
    if any("±" in path.name for path in paths):
        note += f" ({run.sampled_label} ± MCSE)"
    count = int(run.task.attrs["paths"])
    if len(paths) < count:
        note = f"{len(paths)} strongest of {count} paths: {note}"
    return draw_network(layers, paths, style.title_of("Network", run.setting), note)


NETWORK = style.FigureEntry(
    network_of,
    "The network from the inputs up: what its heads attend to in one training example, up to 64 "
    "tokens, and its paths, lines as wide as the diagonal of U₁. Of more than six paths those with "
    "the largest have a colour; up to four layers and six heads of each have a place.",
    "Layers of maps of attention, one for each head, joined by lines for attention paths, which "
    "are as wide as the diagonal of U₁.",
)
