"""Attention variants beside each other."""

import tomllib
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sampler.presentation.style import GAUSSIAN_PROCESS, GREY, SAMPLED, THEORY, new_figure
from sampler.storage.sweeps import SweepResults

KEY = "attention.form="
# Column of the table, label, colour and marker of what a panel shows.
PANELS = {
    "alignment of path kernels": [("path_alignment", None, GREY, "o")],
    "off-diagonal share of $U_1$": [("off_diagonal_share", None, GREY, "o")],
    "accuracy": [
        ("accuracy_theory", "theory", THEORY, "o"),
        ("accuracy_sampled", "exact posterior", SAMPLED, "D"),
        ("accuracy_gp", "infinite width (GP)", GAUSSIAN_PROCESS, "s"),
    ],
}


def draw_form_comparison(directory: Path) -> Figure | None:
    """Draw `seed_averages.csv`, bars ±1 standard error.

    None unless a sweep over seeds leaves several forms of attention and nothing else.
    """
    rows = SweepResults(directory).seed_averages or []
    if len(rows) < 2 or not all(row["settings"].startswith(KEY) for row in rows):
        return None
    names = [form_name(row["settings"].removeprefix(KEY)) for row in rows]
    if None in names:
        return None
    figure = new_figure(10.0, 1.9 + 0.34 * len(rows))
    seeds = "/".join(sorted({row["points"] for row in rows}))
    figure.suptitle(f"Forms of attention: mean ± standard error over {seeds} seeds")
    panels = figure.subplots(1, len(PANELS), sharey=True)
    places = np.arange(len(rows))
    for ax, (title, shown) in zip(panels, PANELS.items(), strict=True):
        for column, label, colour, marker in shown:
            mean, error = (
                np.array([float(row.get(name) or "nan") for row in rows])
                for name in (column, f"{column}_error")
            )
            if np.isfinite(mean).any():
                style = {"fmt": marker, "color": colour, "markersize": 5.0, "capsize": 2.5}
                ax.errorbar(mean, places, xerr=np.nan_to_num(error), label=label, **style)
        ax.set_xlabel(title)
        ax.grid(axis="both", color="#E5E5E5", linewidth=0.8)
    panels[0].set_yticks(places, names)
    panels[0].invert_yaxis()
    figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower right", ncols=3)
    return figure


def form_name(text: str) -> str | None:
    """A short name of a form as a recipe writes it: its kind, and the values its settings take.

    None for what is not a form.
    """
    try:
        forms = flattened(tomllib.loads(f"form = {text}")["form"])
    except tomllib.TOMLDecodeError:
        return None
    if not forms or not all(isinstance(form, dict) and "kind" in form for form in forms):
        return None
    kinds = dict.fromkeys(form["kind"].replace("_", " ") for form in forms)
    values: dict[str, dict] = {}
    for form in forms:
        for key, value in form.items():
            if key != "kind":
                values.setdefault(key, {})[str(value).replace("_", " ")] = None
    words = [f"{key} {', '.join(taken)}" for key, taken in values.items()]
    return "; ".join([" and ".join(kinds), *words])


def flattened(forms) -> list:
    """Forms out of lists by layer and by head."""
    if isinstance(forms, list):
        return [form for inner in forms for form in flattened(inner)]
    return [forms]
