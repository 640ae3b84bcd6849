"""Which temperature of a sweep the validation split chooses, at each value of the other settings.

By the accuracy of the theory to leading order, then by its log predictive density, which alone
counts where labels are not classes. Infinite width has a temperature of its own, found by every run
(`infinite_tuned`). The test set takes no part.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.predictors import AXIS, LEADING, TUNED
from sampler.analysis.scores import ACCURACY, DENSITY
from sampler.analysis.sweep_dataset import SweptPoint, along_grid, swept_points
from sampler.errors import InputError
from sampler.settings.recipe import Recipe

TEMPERATURE = "posterior.temperature"
EXAMPLE = "validation_example"
PREDICTORS = [LEADING, TUNED]


def validation_scores(recipe: Recipe, points: Sequence[SweptPoint]) -> xr.Dataset:
    """Scores of every validation example along the swept keys, [key, …, predictor, example].

    With the label of every point, and the temperature of every predictor.
    """
    stored = {f"validation_{score}_by_example": score for score in (ACCURACY, DENSITY)}
    stored["temperature"] = "temperature"
    tables = []
    for point in points:
        table = xr.Dataset({"point": point.label})
        if point.run.theory is not None:
            known = {name: score for name, score in stored.items() if name in point.run.theory}
            scores = point.run.theory[list(known)].rename(known).reindex({AXIS: PREDICTORS})
            table = table.merge(scores.reset_coords(drop=True))
        tables.append(table)
    return along_grid(recipe.sweep, tables)


def best_temperature(scores: xr.Dataset) -> xr.DataArray:
    """The temperature with the best scores of one predictor; NaN where none has any."""
    mean = scores.mean(EXAMPLE)
    among = mean[DENSITY]
    if ACCURACY in mean:
        largest = mean[ACCURACY].max(TEMPERATURE)
        among = among.where((mean[ACCURACY] == largest) | largest.isnull())
    return among.idxmax(TEMPERATURE)


def selection(recipe: Recipe, points: Sequence[SweptPoint]) -> dict[str, dict[str, Any]]:
    """Label → scores of the points whose temperature is chosen, one for each other setting.

    `ahead` is by how much its scores are above those of the `next_best` temperature; the error is
    that of the difference, example by example, by the finite number of examples. Empty where no
    temperature is swept, or no point has scores.
    """
    table = validation_scores(recipe, points)
    if TEMPERATURE not in recipe.sweep or DENSITY not in table:
        return {}
    scores = table[[name for name in (ACCURACY, DENSITY) if name in table]]
    leading, swept = scores.sel({AXIS: LEADING}), table[TEMPERATURE]
    chosen = best_temperature(leading)
    second = best_temperature(leading.where(swept != chosen))
    at, beside = ({TEMPERATURE: one.fillna(swept[0])} for one in (chosen, second))
    best, infinite = leading.sel(at), table.sel({AXIS: TUNED, **at})
    columns = {
        "temperature": chosen,
        "next_best": second,
        f"{TUNED}_temperature": infinite["temperature"],
        **with_errors(best),
        **with_errors((best - leading.sel(beside)).where(second.notnull()), "ahead_"),
        **with_errors(infinite[list(scores)], f"{TUNED}_"),
    }
    known = xr.Dataset({name: one.drop_vars([TEMPERATURE, AXIS], errors="ignore")
                        for name, one in columns.items()})  # fmt: skip
    known = known.where(chosen.notnull()).assign(point=table["point"].sel(at))
    rows = known.expand_dims("place").to_dataframe().set_index("point")[list(columns)]
    settings = {point.label: point.settings for point in points}
    return {
        label: {"settings": {k: v for k, v in settings[label].items() if k != TEMPERATURE}} | row
        for label, row in rows.dropna(subset="temperature").to_dict("index").items()
    }


def with_errors(scores: xr.Dataset, prefix: str = "") -> dict[str, xr.DataArray]:
    """Mean of every score over the examples, and its standard error."""
    errors = scores.std(EXAMPLE, ddof=1) / np.sqrt(scores.count(EXAMPLE))
    pairs = {name: scores[name].mean(EXAMPLE) for name in scores}
    pairs |= {f"{name}_error": errors[name] for name in scores}
    return {f"{prefix}{name}": values for name, values in pairs.items()}


def chosen_points(directory: Path, recipe: Recipe) -> set[str]:
    """Labels of the points whose temperature is chosen, one for each other setting.

    All where no temperature is swept. Raises InputError if none can be chosen somewhere: the task
    has no validation split, or no saddle point converged.
    """
    points = swept_points(directory, recipe)
    if TEMPERATURE not in recipe.sweep:
        return {point.label for point in points}
    chosen = set(selection(recipe, points))
    if len(chosen) * len(recipe.sweep[TEMPERATURE]) < len(points):
        raise InputError(
            "sampler.points",
            "selected",
            "no temperature has scores on a validation split; set task.examples_validation, or "
            'sampler.points = "all"',
        )
    return chosen
