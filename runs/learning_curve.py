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
from renew import record

import sampler
from sampler.presentation.style import figure_style, new_figure, save_figure

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/learning_curve")
largest = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
SIZES = [size for size in (100, 300, 1000, 3000, 10_000, 100_000, 1_000_000) if size <= largest]
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
ORDERS = ("gp", "theory", "next_order")


def point(task, examples: int, width: int) -> dict[str, float]:
    """Theory to both orders, exact posterior and infinite width, at one point of the curve."""
    network = sampler.make_network(widths=width, temperature=TEMPERATURE)
    theory = sampler.solve(task, network, next_order_evidence=True)
    if not theory.attrs["converged"]:
        raise SystemExit(theory.attrs["explanation"])
    draws = sampler.sample(task, network, space="order_parameters", evidence=True, progress=False)
    compared = sampler.compare(theory, draws)
    found = compared.result.to_json()
    row = {"examples": examples, "width": width, "trusted": compared.trusted}
    for name in ("accuracy", "log_evidence"):
        row |= {f"{name}_{order}": known(found[name][order]) for order in ORDERS}
        sampled = found[name]["sampled"]
        row |= {f"{name}_sampled": sampled["value"], f"{name}_mcse": sampled["mcse"]}
    for column in ("theory", "next_order", "sampled", "mcse"):
        overlap = np.asarray(found["order_parameter"].get(column, np.full((4, 4), np.nan)))
        values = np.diagonal(overlap)
        row |= {f"{name}_{column}": float(values[path]) for path, name in enumerate(PATHS)}
    return row


def known(value: float | None) -> float:
    """A number, or NaN where there is none: the next order is not defined everywhere."""
    return float("nan") if value is None else value


def curve() -> list[dict[str, float]]:
    """All points, printed as they come: accuracy, ln p(y) per example, U₁ of the good path."""
    print("      P    N | accuracy GP, theory, next order, exact | ln p(y)/P | U₁ good", flush=True)
    rows = []
    for examples in SIZES:
        task = sampler.markov_chain_task(examples_train=examples, **TASK)
        for width in WIDTHS:
            row = point(task, examples, width)
            rows.append(row)
            accuracy = " ".join(f"{row[f'accuracy_{order}']:.4f}" for order in ORDERS)
            accuracy += f" {row['accuracy_sampled']:.4f} ± {row['accuracy_mcse']:.4f}"
            evidence = " ".join(
                f"{row[f'log_evidence_{order}'] / examples:.5f}" for order in (*ORDERS, "sampled")
            )
            good = " ".join(f"{row[f'good_{one}']:.4g}" for one in ("theory", "next_order"))
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
    return {"value": row[f"{name}_sampled"], "error": row[f"{name}_mcse"], "kind": "MCSE"}


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
with figure_style():
    figure = new_figure(9.0, 3.4)
    accuracy, evidence, overlap = figure.subplots(1, 3)
    for place, width in enumerate(WIDTHS):
        of_width = [row for row in rows if row["width"] == width]
        column = {key: np.array([row[key] for row in of_width]) for key in of_width[0]}
        sizes, colour = column["examples"], f"C{place}"
        marks = {"color": colour, "linestyle": "", "marker": "o", "markersize": 4, "capsize": 2}
        for axes, name, scale in ((accuracy, "accuracy", 1.0), (evidence, "log_evidence", sizes)):
            axes.plot(sizes, column[f"{name}_theory"] / scale, color=colour, label=f"N = {width}")
            axes.plot(sizes, column[f"{name}_next_order"] / scale, color=colour, linestyle=":")
            error = column[f"{name}_mcse"] / scale
            axes.errorbar(sizes, column[f"{name}_sampled"] / scale, error, **marks)
        for name, line in zip(PATHS, ("-", "-.", "--", ":"), strict=True):
            overlap.plot(sizes, column[f"{name}_theory"], color=colour, linestyle=line)
            overlap.errorbar(sizes, column[f"{name}_sampled"], column[f"{name}_mcse"], **marks)
            if place == 0:
                overlap.plot([], [], color="black", linestyle=line, label=name)
    for axes, name in ((accuracy, "accuracy"), (evidence, "log_evidence")):
        infinite = {row["examples"]: row[f"{name}_gp"] for row in rows}
        scale = np.array(list(infinite)) if axes is evidence else 1.0
        values = np.array(list(infinite.values())) / scale
        axes.plot(list(infinite), values, color="0.5", linestyle="--", label="infinite width")
    accuracy.set(xscale="log", title="accuracy on 4,000 new examples")
    evidence.set(xscale="log", title="ln p(y) per example")
    overlap.set(xscale="log", yscale="log", title="$U_1$ of each path with itself")
    for axes in (accuracy, evidence, overlap):
        axes.set_xlabel("training examples P")
    accuracy.legend()
    orders = {"-": "theory, leading order", ":": "theory, next order", "": "exact posterior"}
    for line, label in orders.items():
        evidence.plot(
            [], [], color="black", linestyle=line, marker="" if line else "o", label=label
        )
    evidence.legend(handles=evidence.get_legend_handles_labels()[0][-len(orders) :])
    overlap.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    written = save_figure(figure, folder, "learning_curve")
print("figure:", *written)
