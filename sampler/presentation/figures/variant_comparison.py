"""Attention variants beside each other."""

import tomllib
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style
from sampler.recipes.settings import setting_text

FORM = "attention.form"
# Column of the table, label, colour and marker of what a panel shows.
PANELS = {
    "alignment of path kernels": [("path_alignment", None, style.GREY, "o")],
    "off-diagonal share of $U_1$": [("off_diagonal_share", None, style.GREY, "o")],
    "accuracy": [
        ("accuracy_theory", style.LEADING, style.THEORY, "o"),
        ("accuracy_sampled", style.EXACT, style.SAMPLED, "D"),
        ("accuracy_gp", style.LIMIT, style.GAUSSIAN_PROCESS, "s"),
    ],
}


def draw_variant_comparison(sweep: SweepResults) -> Figure | None:
    """Draw `seed_averages.csv`, bars ±1 standard error.

    None unless a sweep over seeds leaves several attention variants and nothing else.
    """
    rows = sweep.seed_averages or []
    key = f"{FORM}="
    if len(rows) < 2 or not all(row["settings"].startswith(key) for row in rows):
        return None
    names = [variant_name(row["settings"].removeprefix(key)) for row in rows]
    if None in names:
        return None
    figure = style.new_figure(style.WIDTH, 1.6 + len(PANELS) * (0.7 + 0.26 * len(rows)))
    seeds = "/".join(sorted({row["points"] for row in rows}))
    figure.suptitle(f"Attention variants: mean ± standard error over {seeds} seeds")
    panels = figure.subplots(len(PANELS), 1, sharey=True)
    places = np.arange(len(rows))
    for ax, (title, shown) in zip(panels, PANELS.items(), strict=True):
        for column, label, colour, marker in shown:
            mean, error = (
                np.array([float(row.get(name) or "nan") for row in rows])
                for name in (column, f"{column}_error")
            )
            if np.isfinite(mean).any():
                marks = {"fmt": marker, "color": colour, "markersize": 5.0, "capsize": 2.5}
                ax.errorbar(mean, places, xerr=np.nan_to_num(error), label=label, **marks)
        ax.set_xlabel(title)
        ax.grid(axis="both", color="#E5E5E5", linewidth=0.8)
        # Shares of 1: a tenth of a point must not look like all.
        ax.set_xlim(style.span_at_least(ax.get_xlim(), 0.01 * style.LEAST_POINTS, 1.0))
        ax.set_yticks(places, names)
    panels[0].invert_yaxis()
    figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def variant_name(text: str) -> str | None:
    """A short name of an attention variant as a recipe writes it; None for what is none."""
    try:
        return name_of_form(tomllib.loads(f"form = {text}")["form"])
    except tomllib.TOMLDecodeError:
        return None


def name_of_form(form: Any) -> str | None:
    """The same for the value of that setting: kinds of its variants, and their settings."""
    variants = flattened(form)
    if not variants or not all(isinstance(one, dict) and "kind" in one for one in variants):
        return None
    kinds = dict.fromkeys(one["kind"].replace("_", " ") for one in variants)
    values: dict[str, dict] = {}
    for one in variants:
        for key, value in one.items():
            if key != "kind":
                values.setdefault(key, {})[str(value).replace("_", " ")] = None
    words = [f"{key} {', '.join(taken)}" for key, taken in values.items()]
    return "; ".join([" and ".join(kinds), *words])


LONGEST_LABEL, SHORTEST_WORD = 44, 8


def short_label(settings: Mapping[str, Any]) -> str:
    """Swept keys and their values at one point, for an axis: variants by name, keys by their end.

    Where that is too long it is the longest of them that is cut: points still differ by the others.
    """
    words = [
        (key == FORM and name_of_form(value)) or setting_text(key.rpartition(".")[2], value)
        for key, value in settings.items()
    ]
    excess = len(", ".join(words)) - LONGEST_LABEL
    if excess > 0:
        longest = max(words, key=len)
        kept = max(len(longest) - excess - 1, SHORTEST_WORD)
        words[words.index(longest)] = longest[:kept].rstrip(" ,;") + "…"
    return ", ".join(words)


def flattened(variants: Any) -> list:
    """Variants out of lists by layer and by head."""
    if isinstance(variants, list | tuple):
        return [one for inner in variants for one in flattened(inner)]
    return [variants]


VARIANT_COMPARISON = style.FigureEntry(
    draw_variant_comparison,
    "Attention variants, means over seeds with their standard errors. Above how alike "
    "their paths are (smaller: less redundant), below how well they predict.",
    "Attention variants, one per row: alignment of their path kernels, off-diagonal share of "
    "U₁, and accuracy of theory, exact posterior and infinite width, with error bars.",
    of=("sweep",),
)
