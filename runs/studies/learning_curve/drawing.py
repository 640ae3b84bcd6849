"""The learning curve, drawn."""

import numpy as np
from matplotlib.figure import Figure

from sampler.presentation import style

PATHS = ("good", "adversarial 1", "denoising", "adversarial 2")
UNITS = {"accuracy": 100.0, "evidence": 1.0}
# Widths: dashes of lines, and marks.
LOOKS = {10: ("-", "D", "full"), 100: ("--", "o", "none")}
OF_PATHS = dict(zip(PATHS, (style.GREEN, style.PURPLE, style.ORANGE, style.BROWN), strict=True))
OF_ORDERS = {
    "leading": (style.LEADING, style.THEORY),
    "next": (style.NEXT, style.NEXT_ORDER),
}


def draw(rows: list[dict]) -> Figure:
    """Draw accuracy, evidence and the diagonal of U₁ against the number of examples."""
    figure = style.new_figure(style.WIDTH, 7.4, "Learning curve: four paths, 20 feature channels")
    panels = figure.subplots(2, 2, sharex=True)
    upper, overlaps = panels
    for (width, (dashes, mark, fill)), below in zip(LOOKS.items(), overlaps, strict=True):
        of_width = [row for row in rows if row["width"] == width]
        sizes = [row["examples"] for row in of_width]
        marks = {"marker": mark, "fillstyle": fill, "markersize": 5, "linestyle": "none"}

        def of(name: str, who: str, times: float = 1.0, of_width=of_width) -> np.ndarray:
            return times * np.array([row[name][who] for row in of_width])

        def exact(ax, name: str, times=1.0, sizes=sizes, of_width=of_width, **how) -> None:
            found = [row[name]["sampled"] for row in of_width]
            values, errors = (
                times * np.array([one[part] for one in found]) for part in ("value", "error")
            )
            ax.errorbar(sizes, values, errors, **how)

        for ax, (name, times) in zip(upper, UNITS.items(), strict=True):
            for order, (label, colour) in OF_ORDERS.items():
                line = {"color": colour, "linestyle": dashes, "linewidth": 1.2}
                ax.plot(sizes, of(name, order, times), label=f"{label}, $N$ = {width}", **line)
            label = f"{style.EXACT}, $N$ = {width}"
            exact(ax, name, times, label=label, color=style.SAMPLED, **marks)
        for path, colour in OF_PATHS.items():
            below.plot(sizes, of(path, "leading"), color=colour, label=path)
            exact(below, path, color=colour, **marks)
        below.axhline(1.0, color=style.GREY, linewidth=0.8, zorder=0)
        below.set(yscale="log", title=f"diagonal of $U_1$, $N$ = {width}", xlabel="examples $P$")
    limit = {"color": style.GAUSSIAN_PROCESS, "linestyle": ":", "label": style.LIMIT}
    for ax, (name, times) in zip(upper, UNITS.items(), strict=True):
        ax.plot(sizes, of(name, "infinite", times), **limit)
    upper[0].set(xscale="log", title="accuracy (%)")
    upper[1].set(title=r"evidence $\ln p(y)$ an example")
    overlaps[1].sharey(overlaps[0])
    for ax in panels.flat:
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    paths = overlaps[0].get_legend_handles_labels()
    both = map(list.__add__, upper[0].get_legend_handles_labels(), paths)
    style.legend_below(figure, tuple(both))
    return figure
