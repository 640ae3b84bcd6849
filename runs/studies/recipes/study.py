"""Tables of what recipes gave: read from their finished sweeps.

    python -m runs.studies.recipes.study [--small]     seconds

Sweeps are those of the recipes of the same names in runs/results, where `run` and `solve` leave
them: finite_size also with sampler.space=weights, as finite_size_weights; variants by `solve`.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from runs.studies.next_order.mathematics import fit_power_law
from runs.studies.numbers import estimate, of_kind
from runs.studies.recipes.mathematics import MEASURES, of_sweep, of_variants, small_sweep
from runs.studies.study import RUNS, Study
from runs.studies.tables import Table, cell, table
from sampler.presentation import style

SWEEPS = (
    "markov_four_paths", "markov_published", "time_series", "temperature", "finite_size",
    "finite_size_weights",
)  # fmt: skip
VARIANTS = ("attention_variants_markov", "attention_variants_time_series")
# Quoted: accuracy of the theory in the published code, by width.
PUBLISHED = {
    "10": 0.964, "30": 0.961, "50": 0.945, "100": 0.911, "300": 0.855, "500": 0.840, "1000": 0.834,
}  # fmt: skip


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Sweeps that are read; of small size two that are made."""
    if small:
        few = ("sampler.draws=100", "sweep.network.widths=[10]")
        return {
            "finite_size": (small_sweep, "finite_size", "run", folder, *few),
            VARIANTS[0]: (small_sweep, VARIANTS[0], "solve", folder, "sweep.task.seed=[0,1]"),
        }
    found = {name: (of_sweep, RUNS / "results" / name) for name in SWEEPS}
    return found | {name: (of_variants, RUNS / "results" / name) for name in VARIANTS}


def numbers(rows: dict[str, dict]) -> dict[str, dict]:
    """Points of all sweeps, and variants."""
    return {f"{name} {at}": point for name, row in rows.items() for at, point in row.items()}


def tables(numbers: dict) -> dict[str, Table]:
    """Accuracy against width, U₁ against width, what temperatures give, and variants."""
    both = {"theory": ("accuracy/leading", 3), "exact posterior": ("accuracy/sampled", 4)}
    found = {name: table("N", of_kind(numbers, name, " "), both) for name in SWEEPS[:3]}
    published = of_kind(numbers, "markov_published", " ")
    rows = {N: row | {"published": PUBLISHED[N]} for N, row in published.items()}
    found["markov_published"] = table("N", rows, {"published code": ("published", 3)} | both)
    weights = of_kind(numbers, "finite_size_weights", " ")
    rows = {
        N: row | {"weights": weights.get(N, {}).get("U₁", {}).get("sampled")}
        for N, row in of_kind(numbers, "finite_size", " ").items()
    }
    of_orders = {"theory": ("U₁/leading", 4), "next order": ("U₁/next", 4)}
    exact = {"exact posterior": ("U₁/sampled", 4), "all weights": ("weights", 3)}
    found["finite_size"] = table("N", rows, of_orders | exact)
    temperatures = of_kind(numbers, "temperature", " ")
    pairs = {
        f"{words}, {who}": (f"{key}/{order}", 3)
        for words, key in (
            ("LPD", "validation density"),
            ("validation accuracy", "validation accuracy"),
            ("test accuracy", "accuracy"),
        )
        for who, order in (("theory", "leading"), ("exact", "sampled"))
    }
    found["temperature"] = table("temperature", temperatures, pairs)
    evidences = {
        "theory": ("evidence/leading", 3),
        "next order": ("evidence/next", 3),
        "exact posterior": ("evidence/sampled", 3),
        "infinite width": ("evidence/infinite", 2),
    }
    found["evidence"] = table("temperature", temperatures, evidences)
    exponents = {
        words: exponent(of_kind(numbers, name, " "))
        for name, words in (("markov_four_paths", "four paths"), ("finite_size", "two paths"))
    }
    columns = {"power of N": ("slope", 2), "widths from 30 on": ("widths", 0)}
    found["exponents"] = table("good path of", exponents, columns)
    for name in VARIANTS:
        lines = [
            [form, *(cell(one) if one["error"] else cell(one["value"]) for one in row.values())]
            for form, row in of_kind(numbers, name, " ").items()
        ]
        found[name] = [["variant", *MEASURES], *lines]
    return found


def exponent(rows: dict[str, dict]) -> dict:
    """The power of the width by which the difference of U₁ from the leading order falls."""
    wide = {float(N): row["U₁"] for N, row in rows.items() if float(N) >= 30}
    gaps = [row["sampled"]["value"] - row["leading"] for row in wide.values()]
    errors = [row["sampled"]["error"] for row in wide.values()]
    law = fit_power_law([*wide], gaps, errors)
    return {"slope": estimate(law.slope, law.slope_error, "of the fit"), "widths": len(wide)}


def draw(numbers: dict) -> Figure:
    """Draw what both orders of the theory leave of U₁ of the good path, against the width."""
    rows = of_kind(numbers, "finite_size", " ")
    figure = style.new_figure(style.WIDTH, 3.6, "Exact posterior − theory, $U_1$ of the good path")
    axes = figure.subplots()
    for order, label, colour in (
        ("leading", style.LEADING, style.THEORY),
        ("next", style.NEXT, style.NEXT_ORDER),
    ):
        exact = [row["U₁"]["sampled"] for row in rows.values()]
        gaps = np.array([one["value"] - row["U₁"][order]
                         for one, row in zip(exact, rows.values(), strict=True)])  # fmt: skip
        errors = [one["error"] for one in exact]
        marks = {"color": colour, "marker": "o", "label": label}
        axes.errorbar([*map(float, rows)], gaps, errors, **marks)
    axes.axhline(0.0, color=style.GREY, linewidth=0.8)
    axes.set(xscale="log", xlabel="width $N$")
    axes.set_yscale("symlog", linthresh=0.001)
    axes.set_ylim(-0.002, 1.0)
    style.legend_below(figure, axes.get_legend_handles_labels())
    return figure


STUDY = Study(__file__, points, numbers, tables, lambda rows, numbers: {"figure": draw(numbers)})

if __name__ == "__main__":
    STUDY.run()
