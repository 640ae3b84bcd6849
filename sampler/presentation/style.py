"""Style of all figures: names, colours, sizes, shared elements of drawings, and saving them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image

from sampler.analysis.predictors import NAMES, is_users
from sampler.posterior.spaces import HIDDEN_WEIGHTS, ORDER_PARAMETERS, WEIGHTS

# What theories and samples are called, here as in tables and the terminal.
LEADING, NEXT, EXACT = NAMES["leading"], NAMES["next"], NAMES["sampled"]
LIMIT = NAMES["infinite"]
# Label of the samples by the space that they were drawn in.
SPACES = {
    ORDER_PARAMETERS: EXACT,
    HIDDEN_WEIGHTS: f"{EXACT}, hidden weights",
    WEIGHTS: f"{EXACT}, all weights",
}


@dataclass(frozen=True)
class FigureEntry:
    """A figure: its drawing function and the texts that describe it.

    draw         from results (`RunResults`, `SweepResults`) to a figure, None where it does not
                 apply
    caption      below it in the report: subject, and how to read it
    alternative  text in place of the picture, for screen readers
    of           kinds of results that it is drawn from: "run", "sweep"
    section      its part of the report of a run: "comparison", "attention" or "diagnostics"
    """

    draw: Callable[..., Figure | None]
    caption: str
    alternative: str
    of: tuple[str, ...] = ("run",)
    section: str = "comparison"


# Okabe–Ito palette: distinguishable with every common kind of colour blindness.
BLACK, ORANGE, SKY_BLUE, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#767676"
# Not of that palette; with every kind of colour blindness further from each of its colours
# (CIELAB distance at least 26) than some of these are from each other.
INDIGO, BROWN, OLIVE = "#4B0092", "#8C510A", "#6B6B00"

THEORY, NEXT_ORDER, SAMPLED, GAUSSIAN_PROCESS = BLUE, INDIGO, VERMILLION, BLACK
PREDICTORS = {
    "leading": THEORY,
    "next": NEXT_ORDER,
    "sampled": SAMPLED,
    "infinite": GAUSSIAN_PROCESS,
    "infinite_tuned": GAUSSIAN_PROCESS,
}
OWN_THEORIES = (BROWN, OLIVE)
SUBNETWORKS = (GREEN, ORANGE, SKY_BLUE, PURPLE)
CHAINS = (BLUE, VERMILLION, GREEN, ORANGE, SKY_BLUE, PURPLE, BLACK, YELLOW)
UNDEFINED_CELL, GRID = "#D9D9D9", "#E5E5E5"
VALUES = "RdBu_r"  # colours of matrices, white at 0

# Inches. On a phone a figure is as wide as the screen: text of one this wide is still legible.
WIDTH = 5.8
# Of a picture. The layout leaves margins itself: to cut them off means to draw everything twice.
SAVED = {"dpi": 150.0}
COLOURS = 256
# Percentage points that an axis of accuracies spans at least, or a few tenths look like all.
LEAST_POINTS = 20.0

_SETTINGS = {
    "font.family": ["sans-serif", "STIXGeneral"],  # the second one has the 𝒯 of names
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 10.0,
    "figure.titlesize": 11.0,
    "legend.fontsize": 9.0,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "errorbar.capsize": 3.0,
    "figure.constrained_layout.h_pad": 0.07,
    "figure.constrained_layout.w_pad": 0.07,
    "svg.fonttype": "none",  # text stays text: searchable, editable
    "svg.hashsalt": "attention-posterior",  # element names do not change from run to run
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the fonts and defaults of every figure, and restore the caller's on leaving.

    They begin with matplotlib's own: a style for dark slides, or for text by LaTeX, is not meant
    for figures whose colours and texts are chosen here.
    """
    with matplotlib.style.context(["default", _SETTINGS]):
        yield


class ShownFigure(Figure):
    """A figure that notebooks show, without a pyplot session."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        with figure_style():
            self.savefig(content, format="png", dpi=100.0)
        return content.getvalue()


def new_figure(width: float, height: float, title: str = "", setting: str = "") -> Figure:
    """Return an empty figure of a size in inches, not known to any pyplot session."""
    figure = ShownFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(f"{title}, {setting}" if setting else title)
    return figure


def colour_of(predictor: str, predictors: Iterable[str] = ()) -> str:
    """The colour of a predictor, the same in every figure; of the user's by their order."""
    if not is_users(predictor):
        return PREDICTORS[predictor]
    own = [name for name in predictors if is_users(name)]
    place = own.index(predictor) if predictor in own else 0
    return OWN_THEORIES[place % len(OWN_THEORIES)]


def accuracy_axis(axis: Axis) -> None:
    """Widen an axis of accuracies in per cent evenly to `LEAST_POINTS`, within 0 and 100."""
    low, high = map(float, axis.get_view_interval())
    missing = max(0.0, LEAST_POINTS - (high - low)) / 2.0
    low, high = low - missing, high + missing
    # A mark at either end is seen in full.
    shift = min(0.0, 100.5 - high) + max(0.0, -0.5 - low)
    axes = axis.axes
    set_limits = axes.set_xlim if axis is axes.xaxis else axes.set_ylim
    set_limits(low + shift, high + shift)


# --- matrices


def colour_limit(*matrices: np.ndarray) -> float:
    """Return the largest absolute value of matrices; 1 where all are zero or undefined."""
    sizes = (np.max(np.abs(m), where=np.isfinite(m), initial=0.0) for m in matrices)
    return float(max(sizes, default=0.0)) or 1.0


def within_scale(values: np.ndarray, share: float) -> float:
    """Return the end of a colour scale that this share of all absolute values is within."""
    return float(np.nanquantile(np.abs(values), share)) or 1.0


def draw_matrix(ax: Axes, matrix: np.ndarray, limit: float, **options: Any) -> AxesImage:
    """Draw a matrix in colours from −limit to limit, without a frame."""
    ax.spines[:].set_visible(False)
    options = {"cmap": VALUES, "interpolation": "nearest"} | options
    return ax.imshow(matrix, vmin=-limit, vmax=limit, **options)


def colour_bar(
    figure: Figure | SubFigure,
    image: AxesImage,
    axes: list[Axes],
    label: str,
    **where: str | float,
) -> Colorbar:
    """Add the colour bar of panels on one scale, below them by default."""
    where = {"location": "bottom", "shrink": 0.8, "pad": 0.02, "aspect": 25.0} | where
    bar = figure.colorbar(image, ax=axes, label=label, **where)
    bar.outline.set_visible(False)
    bar.ax.locator_params(nbins=5)
    return bar


# --- legends and texts


def legend_below(
    figure: Figure, entries: tuple[list, list] | None = None, columns: int = 2, **more: Any
) -> None:
    """Add a legend below all panels, its marks opaque and thick however faint the drawn ones are.

    entries: handles and labels; None for those of all panels.
    """
    legend = figure.legend(*entries or (), loc="outside lower center", ncols=columns, **more)
    for handle in legend.legend_handles:
        if not isinstance(handle, Patch):
            handle.set_alpha(1.0)
        if isinstance(handle, Line2D) and handle.get_linestyle() != "None":
            handle.set_linewidth(max(1.5, handle.get_linewidth()))


def minus_signs(text: str) -> str:
    """Return a number in words with minus signs in place of hyphens."""
    return text.replace("-", "−")


def bracket_below(text: str) -> str:
    """Return a label with its bracketed part on a line of its own."""
    return text.replace(" (", "\n(")


# --- files


def save_figure(figure: Figure, folder: Path, name: str, svg: bool = False) -> list[Path]:
    """Write `name.png` (150 dots per inch) into `folder`; return the paths of the files.

    With a palette: drawings need no more colours, and a third of the bytes. svg: `name.svg` as
    well. One that is there is drawn again in any case: it shows the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    png, vectors = folder / f"{name}.png", folder / f"{name}.svg"
    figure.savefig(png, **SAVED, metadata={"Software": None})
    with Image.open(png) as picture:
        reduced = picture.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE)
    reduced.save(png, optimize=True)
    if not (svg or vectors.exists()):
        return [png]
    # Without a date the same tables give the same bytes.
    figure.savefig(vectors, **SAVED, metadata={"Date": None, "Creator": None})
    return [png, vectors]
