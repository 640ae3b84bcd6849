"""Attention is a support-vector regressor.

Give every key a label, and regress the labels on the keys with a tube of half-width ε in which
errors cost nothing. The solution *is* attention: softmax attention over the same keys, whose
values are the coefficients of the regression. Keys inside the tube have value 0 (arXiv
2406.13781). This script solves one such regression, checks the identity, and draws it. It then
looks at what else follows: the conditions as a complementarity problem, the primal form with
features of finite order, and the regressions behind Attention-BN and Attention-SH.

    python -m runs.studies.attention_regression.study     a second
"""

import numpy as np
from matplotlib.figure import Figure

from runs.studies.attention_regression.mathematics import (
    complementarity,
    cut_off,
    identity,
    of_variants,
    support_vector_attention,
)
from runs.studies.study import Study
from runs.studies.tables import Table
from sampler.presentation import style

TUBE, BOUND, KEYS, QUERIES = 0.4, 10_000.0, 40, 1000
MARGIN = 0.3  # how far beyond the keys the regressor is drawn
ORDERS = (4, 8, 16, 24, 32, 40)  # of the exponential that is cut off


def measure() -> dict:
    """All that is asked, of one regression, and what its figure shows."""
    rng = np.random.default_rng(0)
    keys = np.sort(rng.uniform(-3.0, 3.0, KEYS))[:, None]
    labels = np.sin(keys) + 0.3 * rng.standard_normal(keys.shape)
    attention = support_vector_attention(keys, labels, TUBE, BOUND)
    numbers = identity(attention, rng.uniform(-4.0, 4.0, (QUERIES, 1)), rng)
    queries = rng.uniform(-3.0, 3.0, (QUERIES, 1))
    numbers |= {
        "complementarity": complementarity(attention, BOUND),
        "cut off": {str(order): cut_off(keys, queries, order) for order in ORDERS},
        **of_variants(keys, labels, queries, TUBE, BOUND),
    }
    line = np.linspace(keys.min() - MARGIN, keys.max() + MARGIN, 500)
    drawn = {"keys": keys, "labels": labels, "values": attention.values}
    drawn |= {"line": line, "fit": attention.attend(line[:, None])}
    return {"numbers": numbers, "drawn": {name: np.ravel(one) for name, one in drawn.items()}}


def tables(numbers: dict) -> dict[str, Table]:
    """The identities, and what is left of the exponential that is cut off."""
    rows = {
        "support vectors, of 40 keys": str(numbers["support vectors"]),
        "attention beside the regressor, at 1,000 queries": power(numbers["difference"]),
        "random values beside the conditions of their own regression": power(numbers["converse"]),
        "Attention-SH beside its regressor": power(numbers["Attention-SH"]["difference"]),
        "Attention-BN beside its regressor": power(numbers["Attention-BN"]["difference"]),
        "smallest slack of the conditions": power(numbers["complementarity"]["slack"]),
        "largest of the smaller of two factors": power(numbers["complementarity"]["pair"]),
        **{
            f"rows of softmax cut off at order {order}": power(error)
            for order, error in numbers["cut off"].items()
        },
    }
    return {"identities": [["what", "at most apart"], *map(list, rows.items())]}


def power(number: float) -> str:
    """A number as a page has it, 8.9·10⁻¹⁶."""
    digits, exponent = f"{number:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits}·10{raised}".replace("-", "−")


def draw(row: dict) -> Figure:
    """Labels, regressor and tube above; below the values, 0 for every key inside the tube."""
    keys, labels, values = (np.array(row[name]) for name in ("keys", "labels", "values"))
    line, fit = np.array(row["line"]), np.array(row["fit"])
    support = values != 0.0
    title = "Softmax attention is a support-vector regressor"
    figure = style.new_figure(style.WIDTH, 5.4, title)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 1.0])
    tube = rf"tube $f(x) \pm \varepsilon$, $\varepsilon$ = {TUBE:g}"
    marks = {"color": style.BLUE, "alpha": 0.15, "linewidth": 0.0}
    above.fill_between(line, fit - TUBE, fit + TUBE, label=tube, **marks)
    above.plot(line, fit, color=style.BLUE, label=r"attention $f(x) = \sum_j A(x, k_j)\, v_j$")
    for shown, colour, face, label in (
        (~support, style.GREY, "white", "key inside the tube ($v_j = 0$)"),
        (support, style.VERMILLION, style.VERMILLION, r"support vector ($v_j \neq 0$)"),
    ):
        marks = {"color": colour, "markerfacecolor": face, "markersize": 6.0, "linestyle": "none"}
        above.plot(keys[shown], labels[shown], marker="o", label=label, **marks)
        below.vlines(keys[shown], 0.0, values[shown], color=colour)
        below.plot(keys[shown], values[shown], marker="o", **marks)
    above.set_ylabel("label $y_j$ at key $k_j$")
    below.axhline(0.0, color=style.GREY, linewidth=0.8, zorder=0)
    # Values differ by orders of magnitude, as normalisers along a line do.
    below.set_yscale("symlog", linthresh=float(np.abs(values[support]).min()))
    below.set_ylim(4.0 * values.min(), 4.0 * values.max())
    below.minorticks_off()
    below.set(ylabel="value $v_j$", xlabel="query $x$, key $k_j$")
    figure.align_ylabels()
    style.legend_below(figure, above.get_legend_handles_labels())
    return figure


STUDY = Study(
    __file__,
    points=lambda small, folder: {"regression": (measure,)},
    numbers=lambda rows: rows["regression"]["numbers"],
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw(rows["regression"]["drawn"])},
)

if __name__ == "__main__":
    STUDY.run()
