# %% [markdown]
# # A learning curve over four decades of examples
#
# Four paths with few feature channels: any number of examples enters theory and posterior through
# Π D rows, so that a million of them cost no more than some hundreds once they are read. Accuracy,
# evidence and U₁ of theory (both orders) and of the exact posterior, against the number of
# examples.
#
#     python runs/learning_curve.py [FOLDER] [LARGEST]
#
# by default into runs/results/learning_curve, up to a million examples, which take minutes to make.

# %%
import csv
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from renew import estimate, record

import sampler
from sampler.presentation import style

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/learning_curve")
largest = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
SIZES = (100, 300, 1000, 3000, 10_000, 100_000, 1_000_000)
WIDTHS = (10, 100)
PATHS = ("good", "adversarial 1", "denoising", "adversarial 2")
TEMPERATURE = 0.3
TASK = {
    "tokens": 30,
    "features": 20,
    "examples_test": 4000,
    "perpendicular_noise": 1.0,
    "heads": [["good", "random"], ["uniform", "random"]],
    "inverse_temperature": 10.0,
}


# %%
ORDERS = ("infinite", "leading", "next")


def point(task, examples: int, width: int) -> dict[str, float]:
    """Theory to both orders, exact posterior and infinite width, at one point of the curve."""
    network = sampler.make_network(widths=width, temperature=TEMPERATURE)
    theory = sampler.solve(task, network)
    if not theory.attrs["converged"]:
        raise SystemExit(theory.attrs["explanation"])
    draws = sampler.sample(task, network, space="order_parameters", evidence=True, progress=False)
    compared = sampler.compare(theory, draws)
    row = {"examples": examples, "width": width, "trusted": compared.diagnostics.passed}
    for name in ("accuracy", "log_evidence"):
        row |= {f"{name}_{who}": compared.number(name, who) for who in (*ORDERS, "sampled")}
        row[f"{name}_mcse"] = compared.number(name, "sampled", "error")
    elements = compared.elements("order_parameter")
    matrices = {"sampled": elements["sampled"], "mcse": elements["error"]}
    for order in map(str, elements["predictor"].values):
        matrices[order] = elements["predicted"].sel(predictor=order)
    for column in ("leading", "next", "sampled", "mcse"):
        values = np.diagonal(matrices.get(column, np.full((4, 4), np.nan)))
        row |= {f"{name}_{column}": float(values[path]) for path, name in enumerate(PATHS)}
    return row


def curve() -> list[dict[str, float]]:
    """All points, printed as they come: accuracy, ln p(y) per example, U₁ of the good path."""
    print("      P    N | accuracy GP, theory, next order, exact | ln p(y)/P | U₁ good", flush=True)
    rows = []
    for examples in (size for size in SIZES if size <= largest):
        task = sampler.markov_chain_task(examples_train=examples, **TASK)
        for width in WIDTHS:
            row = point(task, examples, width)
            rows.append(row)
            accuracy = " ".join(f"{row[f'accuracy_{order}']:.4f}" for order in ORDERS)
            accuracy += f" {row['accuracy_sampled']:.4f} ± {row['accuracy_mcse']:.4f}"
            evidence = " ".join(
                f"{row[f'log_evidence_{order}'] / examples:.5f}" for order in (*ORDERS, "sampled")
            )
            good = " ".join(f"{row[f'good_{one}']:.4g}" for one in ("leading", "next"))
            good += f" {row['good_sampled']:.4g} ± {row['good_mcse']:.2g}"
            mark = "" if row["trusted"] else " (diagnostics failed)"
            print(f"{examples:7} {width:4} | {accuracy} | {evidence} | {good}{mark}", flush=True)
    return rows


rows = curve()
folder.mkdir(parents=True, exist_ok=True)
with (folder / "learning_curve.csv").open("w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)


def with_error(row: dict[str, float], name: str) -> dict[str, object]:
    """What was sampled at a point, with its Monte Carlo standard error."""
    return estimate(row[f"{name}_sampled"], row[f"{name}_mcse"], "MCSE")


SAMPLED = ("accuracy", "log_evidence", *PATHS)
record(
    folder,
    "learning_curve",
    {
        f"{row['examples']},{row['width']}": row | {name: with_error(row, name) for name in SAMPLED}
        for row in rows
    },
    made_by="python runs/learning_curve.py",
    seeds={"task": 0, "sampler": 0},
)

# %%
# Theory, next order, exact posterior: their colours. Widths: dashes of lines, and marks.
LOOKS = {10: ("-", "D", "full"), 100: ("--", "o", "none")}
OF_PATHS = dict(zip(PATHS, (style.GREEN, style.PURPLE, style.ORANGE, style.BROWN), strict=True))


def draw_learning_curve(rows: list[dict[str, float]]) -> Figure:
    """Draw accuracy, evidence and the diagonal of U₁ against the number of examples.

    rows: the points as `curve` returns them, the rows of `learning_curve.csv`.
    """
    figure = style.new_figure(style.WIDTH, 7.4, "Learning curve: four paths, 20 feature channels")
    panels = figure.subplots(2, 2, sharex=True)
    upper, overlaps = panels[0], panels[1]
    for width, (dashes, mark, fill) in LOOKS.items():
        of_width = [row for row in rows if row["width"] == width]
        column = {key: np.array([row[key] for row in of_width]) for key in of_width[0]}
        sizes = column["examples"]
        sampled = {"marker": mark, "fillstyle": fill, "markersize": 5, "linestyle": "none"}
        for ax, name, unit in zip(upper, ("accuracy", "log_evidence"), (100.0, 1.0 / sizes),
                                  strict=True):  # fmt: skip
            for order, label, colour in (
                ("leading", style.LEADING, style.THEORY),
                ("next", style.NEXT, style.NEXT_ORDER),
            ):
                line = {"color": colour, "linestyle": dashes, "linewidth": 1.2}
                ax.plot(sizes, unit * column[f"{name}_{order}"], label=f"{label}, {width}", **line)
            values, errors = unit * column[f"{name}_sampled"], unit * column[f"{name}_mcse"]
            label = f"{style.EXACT}, {width}"
            ax.errorbar(sizes, values, errors, color=style.SAMPLED, label=label, **sampled)
        ax = overlaps[list(LOOKS).index(width)]
        for path, colour in OF_PATHS.items():
            ax.plot(sizes, column[f"{path}_leading"], color=colour, label=path)
            means, errors = column[f"{path}_sampled"], column[f"{path}_mcse"]
            ax.errorbar(sizes, means, errors, color=colour, **sampled)
        ax.axhline(1.0, color=style.GREY, linewidth=0.8, zorder=0)
        ax.set(yscale="log", title=f"diagonal of $U_1$, $N$ = {width}", xlabel="examples $P$")
    infinite = {row["examples"]: row for row in rows}
    sizes = np.array(list(infinite))
    for ax, name, unit in zip(upper, ("accuracy", "log_evidence"), (100.0, 1.0 / sizes),
                              strict=True):  # fmt: skip
        limit = unit * np.array([row[f"{name}_infinite"] for row in infinite.values()])
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


with style.figure_style():
    written = style.save_figure(draw_learning_curve(rows), folder, "learning_curve")
print("figure:", *written)
