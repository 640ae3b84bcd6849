"""Means over the seeds of a sweep, with their standard errors (`seed_averages.csv`)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sampler.jobs.select_point import swept_points
from sampler.jobs.sweep_dataset import numeric_columns, read_rows
from sampler.jobs.sweep_table import cell, write_table
from sampler.recipes.recipe import Recipe, setting_text

SEED_AVERAGES_FILE = "seed_averages.csv"
# Columns that say where a point is, not what was found there.
PLACES = ("point", "directory", "width")


def write_seed_averages(directory: Path, recipe: Recipe) -> None:
    """Write the table if the sweep goes over a seed: a row for each value of the other settings."""
    if not any(is_seed(key) for key in recipe.sweep):
        return
    found = numeric_columns(read_rows(directory))
    columns = {name: values for name, values in found.items() if name not in PLACES}
    settings = [of_point for _, of_point, _ in swept_points(recipe)]
    rows = seed_averages(settings, columns)
    write_table(directory / SEED_AVERAGES_FILE, list(rows[0]), rows)


def is_seed(key: str) -> bool:
    """Whether a swept key only draws other random numbers."""
    return key.rpartition(".")[2] in ("seed", "head_seed")


def seed_averages(
    settings: Sequence[Mapping[str, object]], columns: Mapping[str, np.ndarray]
) -> list[dict]:
    """Settings without seeds, the number of points, and mean and standard error of every column.

    Points that lack a number do not count for it; one number alone has no error.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, of_point in enumerate(settings):
        others = tuple(
            setting_text(key, value) for key, value in of_point.items() if not is_seed(key)
        )
        groups.setdefault(others, []).append(place)
    rows = []
    for others, places in groups.items():
        row: dict = {"settings": ",".join(others), "points": len(places)}
        for name, values in columns.items():
            kept = values[places][np.isfinite(values[places])]
            row[name] = cell(float(kept.mean()) if kept.size else math.nan)
            error = kept.std(ddof=1) / math.sqrt(kept.size) if kept.size > 1 else math.nan
            row[f"{name}_error"] = cell(float(error))
        rows.append(row)
    return rows
