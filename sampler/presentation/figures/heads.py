"""Head scores of a run: theories and posterior mean."""

import numpy as np
from matplotlib.figure import Figure

from sampler.analysis.compared import Compared
from sampler.analysis.results import RunResults
from sampler.presentation import style


def draw_head_importance(run: RunResults) -> Figure | None:
    """Score of every head, layer by layer; None without draws, or with one head per layer."""
    found: Compared | None = run.compared("head_score")
    if found is None or found.theory is None or np.shape(found.theory)[1] < 2:
        return None
    rows = found.element_rows("head_score", run.path_names)
    places = np.arange(len(rows))
    figure = style.new_figure(style.WIDTH, 0.34 * len(rows) + 1.9)
    figure.suptitle(style.title_of("Head scores", run.setting))
    axes = figure.subplots()
    axes.barh(
        places, [row.theory for row in rows], color=style.THEORY, height=0.6, label=style.LEADING
    )
    beyond = [row.next_order for row in rows]
    if np.isfinite(beyond).any():
        marks = {"color": style.NEXT_ORDER, "markeredgecolor": "white", "markersize": 7}
        axes.plot(beyond, places, "s", label=style.NEXT, **marks)
    sampled, errors = [row.sampled for row in rows], [row.mcse for row in rows]
    axes.errorbar(
        sampled, places, xerr=errors, fmt="D", color=style.SAMPLED, label=run.sampled_label
    )
    axes.set_yticks(places, [row.name for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(left=0.0)
    axes.set_xlabel("head score, relative to the largest")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


HEAD_IMPORTANCE = style.FigureEntry(
    draw_head_importance,
    "Head scores: the share of |U₁| on paths through each head, theory and posterior mean ± MCSE.",
    "Bars of the head scores of the theory, with those of the posterior mean of U₁ as points.",
)
