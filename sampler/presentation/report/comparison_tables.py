"""Theory against samples in numbers: quantity by quantity, and U₁ element by element."""

from collections.abc import Mapping, Sequence

import numpy as np

from sampler.presentation.report.differences import Difference, largest_by_chance, place
from sampler.presentation.report.elements import Html, table
from sampler.presentation.report.numbers import Number, count, percent
from sampler.presentation.stored_run import StoredRun

MOST_ROWS = 15


def differences_table(found: Mapping[str, Difference]) -> Html | None:
    """Median and largest difference of every quantity, in both units."""
    if not found:
        return None
    rows = [
        [
            one.name,
            count(one.elements),
            percent(one.whole, one.whole_error),
            Number(one.median_in_mcse, digits=3),
            Number(one.worst_in_mcse, digits=3),
            Number(largest_by_chance(one.elements), digits=2),
            percent(one.median_relative, digits=2),
            percent(one.worst_relative, digits=2),
            one.at,
        ]
        for one in found.values()
    ]
    header = (
        "quantity", "elements", "as a whole", "median, MCSE", "largest, MCSE",
        "largest by chance, MCSE", "median, relative", "largest, relative", "largest in MCSE at",
    )  # fmt: skip
    caption = (
        "Sampled minus theory. As a whole: norm of the difference over norm of the samples. By "
        "element: absolute value, in Monte Carlo standard errors (MCSE) and relative to the "
        "sampled element; an element close to zero has a large relative difference of no weight."
    )
    return table(caption, header, rows)


def order_parameter_table(run: StoredRun) -> Html | None:
    """Elements of U₁: theory, sampled, difference; the diagonal alone where there are many."""
    compared = run.compared("order_parameter")
    if compared is None:
        return None
    theory, sampled, mcse = (compared[key] for key in ("theory", "sampled", "mcse"))
    pairs, left_out = shown_elements(len(theory))
    rows = []
    for i, j in pairs:
        gap = sampled[i, j] - theory[i, j]
        with np.errstate(divide="ignore", invalid="ignore"):
            in_mcse, relative = float(gap / mcse[i, j]), float(gap / abs(sampled[i, j]))
        rows.append(
            [
                place("order_parameter", (i, j), run.path_names),
                Number(float(theory[i, j])),
                Number(float(sampled[i, j]), float(mcse[i, j])),
                Number(in_mcse, digits=2),
                percent(relative, digits=2),
            ]
        )
    caption = f"Order parameter U₁, path by path: theory and posterior mean ± MCSE.{left_out}"
    header = ("paths", "theory", "sampled ± MCSE", "difference, MCSE", "difference, relative")
    return table(caption, header, rows)


def shown_elements(paths: int) -> tuple[Sequence[tuple[int, int]], str]:
    """Places of the elements that are shown, and a remark on those that are not."""
    pairs = [(i, j) for i in range(paths) for j in range(i, paths)]
    if len(pairs) <= MOST_ROWS:
        return pairs, ""
    diagonal = [(i, i) for i in range(min(paths, MOST_ROWS))]
    return diagonal, f" {len(diagonal)} of {len(pairs)} elements; all are in comparison.json."


def head_score_table(comparison: Mapping) -> Html | None:
    """Head scores of the posterior mean of U₁ beside the theory's."""
    entry = comparison.get("head_score")
    if not entry:
        return None
    theory, sampled, mcse = (np.array(entry[k], dtype=float) for k in ("theory", "sampled", "mcse"))
    rows = [
        [
            f"layer {layer + 1}, head {head + 1}",
            Number(float(theory[layer, head])),
            Number(float(sampled[layer, head]), float(mcse[layer, head])),
        ]
        for layer, head in np.argwhere(np.isfinite(theory))
    ]
    caption = "Head scores: the share of |U₁| on paths through a head; sampled ± MCSE."
    return table(caption, ("head", "theory", "sampled ± MCSE"), rows) if rows else None
