"""A learning curve over four decades of examples.

Four paths with few feature channels: any number of examples enters theory and posterior through
Π D rows, so that a million of them cost no more than some hundreds once they are read. Accuracy,
evidence and U₁ of theory (both orders) and of the exact posterior, against the number of examples.

    python -m runs.studies.learning_curve.study [--small]

Up to a million examples, which take minutes to make.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.study import Study, estimate
from runs.studies.tables import Table, table
from sampler.presentation import style

SIZES = (100, 300, 1000, 3000, 10_000, 100_000, 1_000_000)
WIDTHS = (10, 100)
PATHS = ("good", "adversarial 1", "denoising", "adversarial 2")
TEMPERATURE = 0.3
TASK = {
    "tokens": 30,
    "features": 20,
    "examples_test": 4000,
    "perpendicular_noise": 1.0,
}
ATTENTION = {"heads": [["good", "random"], ["uniform", "random"]], "inverse_temperature": 10.0}
ORDERS = ("infinite", "leading", "next")
SHARED = ("accuracy", "log_evidence")


def measure(examples: int, width: int) -> dict:
    """Theory to both orders, exact posterior and infinite width, at one point of the curve."""
    recipe = sampler.Recipe(
        task=sampler.MarkovChain(examples_train=examples, **TASK),
        attention=ATTENTION,
        network={"widths": width},
        posterior={"temperature": TEMPERATURE},
    )
    theory = sampler.solve(recipe)
    if not theory.attrs["converged"]:
        raise SystemExit(theory.attrs["explanation"])
    draws = sampler.sample(recipe, space="order_parameters", evidence=True, progress=False)
    compared = sampler.compare(theory, draws)
    values = compared.table()["value"]
    row = {"examples": examples, "width": width, "trusted": bool(compared.diagnostics.passed)}
    for name in SHARED:
        row |= {f"{name}_{who}": values.get((name, who), np.nan) for who in ORDERS}
        sampled = compared.rows[name, "sampled"]
        row[name] = estimate(sampled["value"], sampled["error"], "MCSE")
    elements = compared.elements("order_parameter")
    predicted = elements["predicted"]
    known = predicted["predictor"].values
    for order in (order for order in ORDERS[1:] if order in known):
        diagonal = np.diagonal(predicted.sel(predictor=order))
        row |= {f"{path}_{order}": value for path, value in zip(PATHS, diagonal, strict=True)}
    means, errors = (np.diagonal(elements[name]) for name in ("sampled", "error"))
    for path, *of_path in zip(PATHS, means, errors, strict=True):
        row[path] = estimate(*of_path, "MCSE")
    return row


TABLED = (100, 1000, 10_000, 1_000_000)
COLUMNS = {
    "infinite width": ("10/accuracy_infinite", 1, 100),
    "N = 100: theory": ("100/accuracy_leading", 1, 100),
    "N = 100: exact": ("100/accuracy", 2, 100),
    "N = 10: theory": ("10/accuracy_leading", 1, 100),
    "N = 10: next order": ("10/accuracy_next", 1, 100),
    "N = 10: exact": ("10/accuracy", 2, 100),
}
# Theory, next order, exact posterior: their colours. Widths: dashes of lines, and marks.
LOOKS = {10: ("-", "D", "full"), 100: ("--", "o", "none")}
OF_PATHS = dict(zip(PATHS, (style.GREEN, style.PURPLE, style.ORANGE, style.BROWN), strict=True))


def draw(rows: list[dict]) -> Figure:
    """Draw accuracy, evidence and the diagonal of U₁ against the number of examples."""
    figure = style.new_figure(style.WIDTH, 7.4, "Learning curve: four paths, 20 feature channels")
    panels = figure.subplots(2, 2, sharex=True)
    upper, overlaps = panels[0], panels[1]
    sizes = np.array([row["examples"] for row in rows if row["width"] == WIDTHS[0]])
    units = dict(zip(SHARED, (100.0, 1.0 / sizes), strict=True))
    for width, (dashes, mark, fill) in LOOKS.items():
        of_width = [row for row in rows if row["width"] == width]
        sampled = {"marker": mark, "fillstyle": fill, "markersize": 5, "linestyle": "none"}

        def of(name: str, part: str | None = None, of_width=of_width) -> np.ndarray:
            return np.array([row[name][part] if part else row[name] for row in of_width])

        for ax, (name, unit) in zip(upper, units.items(), strict=True):
            for order, label, colour in (
                ("leading", style.LEADING, style.THEORY),
                ("next", style.NEXT, style.NEXT_ORDER),
            ):
                line = {"color": colour, "linestyle": dashes, "linewidth": 1.2}
                ax.plot(sizes, unit * of(f"{name}_{order}"), label=f"{label}, {width}", **line)
            values, errors = unit * of(name, "value"), unit * of(name, "error")
            label = f"{style.EXACT}, {width}"
            ax.errorbar(sizes, values, errors, color=style.SAMPLED, label=label, **sampled)
        ax = overlaps[list(LOOKS).index(width)]
        for path, colour in OF_PATHS.items():
            ax.plot(sizes, of(f"{path}_leading"), color=colour, label=path)
            ax.errorbar(sizes, of(path, "value"), of(path, "error"), color=colour, **sampled)
        ax.axhline(1.0, color=style.GREY, linewidth=0.8, zorder=0)
        ax.set(yscale="log", title=f"diagonal of $U_1$, $N$ = {width}", xlabel="examples $P$")
    for ax, (name, unit) in zip(upper, units.items(), strict=True):
        limit = unit * of(f"{name}_infinite")
        ax.plot(sizes, limit, color=style.GAUSSIAN_PROCESS, linestyle=":", label=style.LIMIT)
    upper[0].set(xscale="log", title="accuracy (%)")
    upper[1].set(title=r"evidence $\ln p(y)$ an example")
    overlaps[1].sharey(overlaps[0])
    for ax in panels.flat:
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    paths = overlaps[0].get_legend_handles_labels()
    handles, labels = map(list.__add__, upper[0].get_legend_handles_labels(), paths)
    words = [label.replace(", 1", ", $N$ = 1") for label in labels]
    style.legend_below(figure, (handles, words))
    return figure


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Numbers of examples and widths."""
    sizes = SIZES[:1] if small else SIZES
    return {f"{size},{width}": (measure, size, width) for size in sizes for width in WIDTHS}


def tables(numbers: dict) -> dict[str, Table]:
    """Accuracy in per cent, evidence an example and U₁ of two paths, at some sizes."""
    shown = [size for size in TABLED if f"{size},10" in numbers]
    by_width = {
        f"{size:,}": {str(width): numbers[f"{size},{width}"] for width in WIDTHS} for size in shown
    }
    overlaps = {
        f"{path}, N = {width}{words}": (f"{width}/{path}{order}", 1 if path == "good" else 2)
        for width in WIDTHS
        for path, order, words in (
            ("good", "", ""),
            ("good", "_leading", ", theory"),
            ("good", "_next", ", next order"),
            ("adversarial 1", "", ""),
        )
    }
    evidences = {
        f"{size:,}": {
            f"{who}, {width}": (one["log_evidence"]["value"] if who == "exact" else
                                one["log_evidence_infinite"]) / size
            for width in WIDTHS
            for one in [numbers[f"{size},{width}"]]
            for who in ("exact", "infinite")
        }
        for size in shown
    }  # fmt: skip
    columns = {"N = 10": ("exact, 10", 5), "N = 100": ("exact, 100", 5)}
    return {
        "accuracy": table("P", by_width, COLUMNS),
        "overlaps": table("P", by_width, overlaps),
        "evidence": table("P", evidences, columns | {"infinite width": ("infinite, 10", 5)}),
    }


STUDY = Study(
    __file__,
    points,
    numbers=dict,
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw(list(rows.values()))},
)

if __name__ == "__main__":
    STUDY.run()
