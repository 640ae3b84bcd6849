"""What the kernel of a narrow network learns.

Alignment |eᵢ·y|/|y| of the labels with the principal components eᵢ of the kernel between training
examples, on the four-path task at N = 10: of infinite width, of both orders of the theory, and of
the exact posterior, whose kernel is that at the mean of U₁.

    python -m runs.studies.kernel_alignment.study     a minute or two
"""

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.numbers import estimate, told_diagonal
from runs.studies.study import RUNS, Study
from runs.studies.tables import Table, table
from sampler.presentation import style

WIDTH, SHOWN, DRAWN = 10, 5, 20
ORDERS = {"infinite": style.LIMIT, "leading": style.LEADING, "next": style.NEXT}


def measure(settings: dict) -> dict:
    """Alignments with the first components, by predictor and sampled, and the diagonal of U₁."""
    recipe = sampler.Recipe.load(RUNS / "markov_four_paths.toml", {"network.widths": WIDTH})
    theory = sampler.solve(recipe)
    draws = sampler.sample(recipe, progress=False, **settings)
    compared = sampler.compare(theory, draws)
    found = compared.elements("kernel_alignment").isel(component=slice(DRAWN))
    of_order = {who: found["predicted"].sel(predictor=who) for who in ORDERS}
    paths = [str(name) for name in theory["path"].values]
    return {
        "alignment": {who: values.values.tolist() for who, values in of_order.items()},
        "sampled": {name: found[name].values.tolist() for name in ("sampled", "error")},
        "U₁": dict(zip(paths, told_diagonal(compared, ("leading",)), strict=True)),
    }


def numbers(rows: dict[str, dict]) -> dict:
    """Alignments by component, and the share of |y|² that the first components hold."""
    row = rows["four paths"]
    sampled = [estimate(*one, "MCSE") for one in zip(*row["sampled"].values(), strict=True)]
    return {
        "components": {
            str(place + 1): {who: row["alignment"][who][place] for who in ORDERS}
            | {"sampled": sampled[place]}
            for place in range(DRAWN)
        },
        "held": {who: np.square(row["alignment"][who][:SHOWN]).sum() for who in ORDERS},
        "U₁": row["U₁"],
    }


def tables(numbers: dict) -> dict[str, Table]:
    """The first components."""
    rows = {str(one): numbers["components"][str(one)] for one in range(1, SHOWN + 1)}
    columns = {
        "infinite width": ("infinite", 3),
        "leading order": ("leading", 3),
        "next order": ("next", 3),
        "exact posterior": ("sampled", 4),
    }
    return {"alignment": table("component", rows, columns)}


def draw(numbers: dict) -> Figure:
    """Draw alignments against the component."""
    figure = style.new_figure(style.WIDTH, 3.4, "Labels along components of the kernel, N = 10")
    axes, found = figure.subplots(), numbers["components"]
    places = [*map(int, found)]
    for who, label, marker in (("infinite", style.LIMIT, "s"), ("leading", style.LEADING, "o")):
        values = [one[who] for one in found.values()]
        axes.plot(places, values, marker, color=style.colour_of(who), markersize=5, label=label)
    known = {at: one["sampled"] for at, one in found.items() if one["sampled"]["value"] is not None}
    values, errors = ([one[part] for one in known.values()] for part in ("value", "error"))
    marks = {"color": style.SAMPLED, "marker": "D", "fillstyle": "none", "markersize": 7}
    axes.errorbar([*map(int, known)], values, errors, label=style.EXACT, linestyle="none", **marks)
    axes.set(xlabel="component $i$", ylabel="$|e_i \\cdot y|\\,/\\,|y|$", ylim=(0.0, 1.0))
    axes.set_xticks(range(1, DRAWN + 1, 2))
    style.legend_below(figure, axes.get_legend_handles_labels())
    return figure


STUDY = Study(
    __file__,
    points=lambda small, folder: {
        "four paths": (measure, {"until": "draws", "warmup": 20, "draws": 20} if small else {})
    },
    numbers=numbers,
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw(numbers)},
)

if __name__ == "__main__":
    STUDY.run()
