"""The table of a sweep: one row per point, gathered from its run directories (`sweep.csv`)."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sampler.analysis.validation import SCORES
from sampler.jobs.select_point import select_point
from sampler.recipes.recipe import Recipe
from sampler.storage.json_file import read_json, write_atomically
from sampler.storage.point_directory import point_directory
from sampler.storage.results import (
    COMPARISON_FILE,
    THEORY_FILE,
    read_theory,
)

SWEEP_FILE = "sweep.csv"
REDUNDANCY = (
    "head_distance_matrices", "head_distance_outputs", "path_alignment", "participation_ratio",
    "off_diagonal_share",
)  # fmt: skip
COLUMNS = (
    "point", "directory", "width", "accuracy_theory", "accuracy_gp", "accuracy_sampled",
    "accuracy_sampled_mcse", "accuracy_sampled_binomial", "sampled_space",
    "accuracy_diagonal_only", "accuracy_equal_diagonal",
)  # fmt: skip


def write_sweep_table(directory: Path, recipe: Recipe) -> None:
    """Write `sweep.csv`, numbers that do not exist left empty, and choose a point."""
    rows = [
        point_row(directory, point_directory(directory, label), label, point)
        for label, point in recipe.points()
    ]
    names = list(COLUMNS) + sorted({n for row in rows for n in row} - set(COLUMNS))
    write_table(directory / SWEEP_FILE, names, rows)
    select_point(directory, recipe)


def write_table(path: Path, names: Sequence[str], rows: Iterable[Mapping]) -> None:
    """Write rows under these names; what a row lacks, and what is not finite, is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: cell(v) for k, v in row.items()} for row in rows)
    write_atomically(path, lambda file: file.write_text(text.getvalue()))


def point_row(sweep: Path, directory: Path, label: str, recipe: Recipe) -> dict:
    """One row: where the point is, its width, its accuracies, its scores on validation data."""
    widths = recipe.network.widths
    row: dict = {
        "point": label,
        "directory": str(directory.relative_to(sweep)),
        "width": widths if isinstance(widths, int) else max(widths),
    }
    if (directory / THEORY_FILE).is_file():
        theory = read_theory(directory)
        for name in ("theory", "gp", "diagonal_only", "equal_diagonal"):
            row[f"accuracy_{name}"] = float(theory[f"accuracy_{name}"])
        for name in (f"validation_{score}_{who}" for score in SCORES for who in ("theory", "gp")):
            if name in theory:
                row[name] = float(theory[name])
        for name in (*REDUNDANCY, "log_evidence", "log_evidence_gp"):
            if name in theory:
                row[name] = float(theory[name])
        if "subnetwork" in theory.coords:
            for name in theory["subnetwork"].values:
                value = theory["accuracy_gp_subnetwork"].sel(subnetwork=name)
                row[f"gp:{name}"] = float(value)
    if (directory / COMPARISON_FILE).is_file():
        row["sampled_space"] = recipe.sampler.space
        comparison = read_json(directory / COMPARISON_FILE)
        for score, found in comparison.get("validation", {}).get("sampled", {}).items():
            row[f"validation_{score}_sampled"] = found["value"]
            row[f"validation_{score}_sampled_mcse"] = found["mcse"]
        evidence = (comparison.get("log_evidence") or {}).get("sampled")
        if evidence and evidence["trusted"]:
            row["log_evidence_sampled"] = evidence["value"]
            row["log_evidence_sampled_mcse"] = evidence["mcse"]
        sampled = (comparison.get("accuracy") or {}).get("sampled")
        if sampled:
            row["accuracy_sampled"] = sampled["value"]
            row["accuracy_sampled_mcse"] = sampled["mcse"]
            row["accuracy_sampled_binomial"] = sampled["binomial_error"]
    return row


def cell(value):
    return "" if isinstance(value, float) and not math.isfinite(value) else value
