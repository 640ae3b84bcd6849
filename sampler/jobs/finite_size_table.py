"""Theory against exact posterior along the widths of a sweep (`finite_size.json`)."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from sampler.analysis.finite_size import fit_power_law
from sampler.jobs.sweep_table import point_directory
from sampler.recipes.recipe import Recipe
from sampler.storage.json_file import read_json, write_json
from sampler.storage.results import (
    COMPARISON_FILE,
    THEORY_FILE,
    read_theory,
)

FINITE_SIZE_FILE = "finite_size.json"


def write_finite_size(directory: Path, recipe: Recipe) -> bool:
    """Write U_1 by width from theory and from every sampled space, with power laws in N.

    Only for sweeps whose points differ by width (and space); says whether it was written.
    """
    if not {"network.widths"} <= set(recipe.sweep) <= {"network.widths", "sampler.space"}:
        return False
    points = [(point_directory(directory, label), point) for label, point in recipe.points()]
    if not all(isinstance(point.network.widths, int) for _, point in points):
        return False
    theory, sampled = {}, {}
    for where, point in points:
        width = point.network.widths
        if (where / THEORY_FILE).is_file():
            table = read_theory(where)
            theory[width] = table["order_parameter"].values
            names = [str(name) for name in table["path"].values]
        if (where / COMPARISON_FILE).is_file():
            compared = read_json(where / COMPARISON_FILE).get("order_parameter")
            if compared:
                sampled.setdefault(point.sampler.space, {})[width] = compared
    if not theory:
        return False
    widths = sorted(theory)
    content = {
        "paths": names,
        "theory": {"widths": widths, "order_parameter": [theory[w] for w in widths]},
        "sampled": {space: by_width(found) for space, found in sampled.items()},
    }
    if len(sampled.get("order_parameters", {})) >= 3:
        content["power_laws"] = power_laws(content["sampled"]["order_parameters"], names)
    write_json(directory / FINITE_SIZE_FILE, content)
    return True


def by_width(found: dict[int, dict]) -> dict:
    """U_1 of one space at every width: mean, MCSE and theory − sampled."""
    widths = sorted(found)
    tables = [{k: np.array(found[w][k], dtype=float) for k in found[w]} for w in widths]
    return {
        "widths": widths,
        "order_parameter": np.stack([table["sampled"] for table in tables]),
        "mcse": np.stack([table["mcse"] for table in tables]),
        "difference": np.stack([table["theory"] - table["sampled"] for table in tables]),
    }


def power_laws(exact: dict, names: list[str]) -> list[dict]:
    """One power law for every diagonal element of U_1."""
    return [
        {"path": name}
        | asdict(
            fit_power_law(exact["widths"], exact["difference"][:, i, i], exact["mcse"][:, i, i])
        )
        for i, name in enumerate(names)
    ]
