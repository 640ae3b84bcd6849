"""Figure of a sweep over widths: U_1 of theory and exact posterior, and how far apart they are."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from sampler.analysis.difference import element_bound, largest_by_chance
from sampler.analysis.predictors import AXIS, LEADING, NEXT, SAMPLED, is_users, predictor_name
from sampler.analysis.results import temperature_text
from sampler.analysis.sweep_results import FAILED, SweepResults
from sampler.posterior.spaces import ORDER_PARAMETERS
from sampler.presentation import style
from sampler.presentation.figures.accuracy import tick_widths

WIDTHS, SPACE = "network.widths", "sampler.space"
MOST_PATHS, COLUMNS = 4, 2
# Marker of the differences of a theory, and dashes of its values; of users' theories the last.
LOOKS = {LEADING: ("o", "-"), NEXT: ("s", (0, (4, 1)))}
OF_USERS = ("D", (0, (1, 1)))


def draw_finite_size(sweep: SweepResults) -> Figure | None:
    """Draw the diagonal of U_1 against width, and below it |theory − exact|.

    Both with the next order and with the user's theories, if known. None unless widths
    were swept.
    """
    points, solved = by_width(sweep.dataset), sweep.solved
    if points is None:
        return None
    names = [str(name) for name in points["path"].values]
    shown = names[:MOST_PATHS]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    title = "$U_1$: theory against exact posterior"
    setting = temperature_text(None if solved is None else solved.temperature)
    width = style.WIDTH if columns > 1 else 3.8
    figure = style.new_figure(width, 5.4 * rows + 1.0, title, setting)
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    compared = points.isel(place=(points["space"] == ORDER_PARAMETERS).values)
    for path, name in enumerate(shown):
        row, column = divmod(path, columns)
        above, below = axes[2 * row, column], axes[2 * row + 1, column]
        above.set_title(name)
        diagonal = {"path": path, "path_": path}
        draw_values(above, points.isel(diagonal))
        draw_differences(below, compared.isel(diagonal), len(names) * (len(names) + 1) // 2)
        set_scales(above, below, np.unique(points["width"]))
        if column == 0:
            above.set_ylabel("diagonal of $U_1$")
            below.set_ylabel("|theory − exact|")
    for ax in axes.flat:
        if not ax.has_data():
            ax.set_axis_off()
    entries = [ax.get_legend_handles_labels() for ax in axes.flat]
    by_label = {label: handle for pair in entries for handle, label in zip(*pair, strict=True)}
    style.legend_below(figure, (list(by_label.values()), list(by_label)))
    return figure


def by_width(dataset: xr.Dataset) -> xr.Dataset | None:
    """The points of a sweep in the order of their widths, along `place`.

    value      U_1 by theories and samples [place, predictor, path, path_]
    error      Monte Carlo error of the samples [place, path, path_]
    degrees    of freedom that it is known by
    space, sound
               sampled values, or empty; whether it passed its diagnostics

    None unless the points differ by width (and space) alone, layers have one width, and some point
    is solved.
    """
    swept = set(dataset["point"].dims)
    if not {WIDTHS} <= swept <= {WIDTHS, SPACE} or dataset[WIDTHS].dtype.kind not in "iu":
        return None
    if "order_parameter" not in dataset or set(dataset[AXIS].values) <= {SAMPLED}:
        return None
    points = dataset.stack(place=list(dataset["point"].dims), create_index=False).sortby("width")
    value = points["order_parameter"]
    columns = {"width": points["width"], "value": value, "sound": value["place"] >= 0}
    columns["space"] = xr.full_like(points["width"], "", dtype=object)
    if "order_parameter_error" in points:
        there = value.sel({AXIS: SAMPLED}).notnull().any(("path", "path_"))
        columns |= {
            "error": points["order_parameter_error"],
            "degrees": points["degrees"].sel(quantity="order_parameter").max(AXIS),
            "space": points["sampled_space"].where(there, ""),
            "sound": points["diagnostics"] != FAILED,
        }
    return xr.Dataset(columns)


def set_scales(above: Axes, below: Axes, widths: np.ndarray) -> None:
    """Make both axes of a path logarithmic, over the same widths and over whole decades."""
    for ax in (above, below):
        ax.set_yscale("log")
        tick_widths(ax, widths)
        # Without error bars: matplotlib 3.10 counts their logarithms among the data.
        ax.relim()
        ax.autoscale_view()
        ax.grid(color=style.GRID, linewidth=0.8)
    low, high = np.log10(below.get_ylim())
    below.set_ylim(10.0 ** np.floor(low), 10.0 ** np.ceil(high))
    below.set_xlabel("width $N$")
    above.set_xlim(below.get_xlim())
    above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    above.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    above.yaxis.set_minor_formatter(NullFormatter())


def theories_of(points: xr.Dataset) -> dict[str, tuple[str, str, object]]:
    """Both orders and the user's theories: name → colour, marker, dashes."""
    known = points["value"].notnull().any("place")
    names = [str(name) for name in points[AXIS].values if known.sel({AXIS: name})]
    names = [name for name in names if name in LOOKS or is_users(name)]
    return {name: (style.colour_of(name, names), *LOOKS.get(name, OF_USERS)) for name in names}


def draw_values(ax: Axes, points: xr.Dataset) -> None:
    """Draw an element of U_1 of theories as lines, and of the samples of every space as points.

    Samples whose diagnostics failed are crosses, as below.
    """
    for name, (colour, _, dashes) in theories_of(points).items():
        # Theories are the same in every space: of each width the first point that has them.
        curve = points["value"].sel({AXIS: name}).groupby(points["width"]).first()
        label = predictor_name(name)
        ax.plot(curve["width"], curve, color=colour, linestyle=dashes, label=label)
    for (space, label), marker in zip(style.SPACES.items(), "osD", strict=True):
        marks = {"color": style.SAMPLED, "linestyle": "none", "markersize": 5}
        marks["fillstyle"] = "full" if space == ORDER_PARAMETERS else "none"
        for sound, of_kind, text in ((True, marker, "± MCSE"), (False, "x", "diagnostics failed")):
            shown = points.isel(
                place=((points["space"] == space) & (points["sound"] == sound)).values
            )
            if shown.sizes["place"]:
                sampled = shown["value"].sel({AXIS: SAMPLED})
                bars = {"label": f"{label} ({text})", "marker": of_kind, **marks}
                ax.errorbar(shown["width"], sampled, shown["error"], **bars)


def draw_differences(ax: Axes, points: xr.Dataset, elements: int) -> None:
    """Draw |theory − exact| with errors where theory and samples differ, elsewhere its bound.

    They differ by the limit of all elements of U_1 at once.
    """
    if not points.sizes["place"]:
        return
    sampled, width = points["value"].sel({AXIS: SAMPLED}), points["width"].values
    error, degrees, sound = (points[name].values for name in ("error", "degrees", "sound"))
    limits = [largest_by_chance(elements, one) for one in degrees]
    for name, (colour, marker, _) in theories_of(points).items():
        size = abs(points["value"].sel({AXIS: name}) - sampled).values
        apart = size > limits * error
        label, fill = predictor_name(name), "full" if name == LEADING else "none"
        marks = {"color": colour, "linestyle": "none", "fillstyle": fill}
        known = np.isfinite(size)
        differs, hidden, failed = known & sound & apart, known & sound & ~apart, known & ~sound
        if differs.any():
            bars = {"marker": marker, "markersize": 4, "label": f"|{label} − exact| (± MCSE)"}
            ax.errorbar(width[differs], size[differs], error[differs], **bars, **marks)
        if hidden.any():
            bounds = {"marker": "v", "markersize": 5, "label": f"{label}: unresolved, below"}
            below = [*map(element_bound, size[hidden], error[hidden], degrees[hidden])]
            ax.plot(width[hidden], below, **bounds, **marks)
        if failed.any():
            crosses = {"marker": "x", "markersize": 5, "label": f"{label}: diagnostics failed"}
            ax.plot(width[failed], size[failed], **crosses, **marks)


FINITE_SIZE = style.FigureEntry(
    draw_finite_size,
    "U₁ of theory and exact posterior against the width: above its diagonal, below the size of the "
    "difference, of the leading and, where it is known, of the next order in 1/N, and of further "
    "theories.",
    "Diagonal of U₁ against width for theory and samples, and below their difference.",
    of=("sweep",),
)
