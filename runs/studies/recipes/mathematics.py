"""Numbers of sweeps, from the files that they leave; and small sweeps."""

import csv
import sys
from pathlib import Path

import xarray as xr

from runs.studies.numbers import estimate
from runs.studies.study import RUNS
from sampler.cli import main

ORDERS = ("infinite", "leading", "next")
SHARED = {
    "accuracy": "accuracy",
    "evidence": "log_evidence",
    "validation accuracy": "validation_accuracy",
    "validation density": "validation_log_predictive_density",
}
# Rows of variants as sweeps have them, and as pages do.
SOFTMAX = '{kind = "softmax"'
FORMS = {
    SOFTMAX + "}": "softmax",
    '{kind = "batch_normalised", beta = 1.0}': "BN",
    '[[{kind = "scaled_heads", scale = 1}': "SH",
    '[[{kind = "scaled_heads", scale = 1, beta = 1.0}': "BN + SH",
    SOFTMAX + ', mask = "causal"}': "causal",
    SOFTMAX + ', mask = "window", window = 4}': "window 4",
    '{kind = "linear"}': "linear",
    '{kind = "head_normalised"}': "head-normalised",
    '{kind = "robust", limit = 0.5}': "RPC, λ = 0.5",
}
MEASURES = {
    "matrices": "head_distance_matrices",
    "outputs": "head_distance_outputs",
    "off-diagonal": "off_diagonal_share",
    "paths": "participation_ratio",
    "theory": "accuracy_leading",
    "infinite width": "accuracy_infinite",
    "at its own 𝒯": "accuracy_infinite_tuned",
}


def lines_of(file: Path) -> list[dict[str, str]]:
    """Lines of a table by their heads."""
    if not file.is_file():
        sys.exit(f"{file} is missing: run the recipe {file.parent.name} first")
    with file.open(encoding="utf-8") as text:
        return list(csv.DictReader(text))


def number(line: dict[str, str], name: str) -> float:
    """A number of a line, NaN where it has none."""
    return float(line.get(name) or "nan")


def of_sweep(folder: str) -> dict[str, dict]:
    """Accuracy, evidence and U₁ of the first path, at every point of a sweep."""
    with xr.open_dataset(Path(folder) / "sweep.nc") as sweep:
        first = sweep["order_parameter"].isel(path=0, path_=0).load()
        errors = sweep["order_parameter_error"].isel(path=0, path_=0).load()
    found = {}
    for at, line in enumerate(lines_of(Path(folder) / "sweep.csv")):
        row = {}
        for label, name in SHARED.items():
            row[label] = {order: number(line, f"{name}_{order}") for order in ORDERS}
            value, error = (number(line, f"{name}_sampled{end}") for end in ("", "_error"))
            row[label]["sampled"] = estimate(value, error, "MCSE")
        here = first[{first.dims[0]: at}]
        row["U₁"] = {order: float(here.sel(predictor=order)) for order in ORDERS[1:]}
        error = errors[{errors.dims[0]: at}]
        error = error.sel(predictor="sampled") if "predictor" in error.dims else error
        row["U₁"]["sampled"] = estimate(here.sel(predictor="sampled"), error, "MCSE")
        found[line["directory"].split("=")[1]] = row
    return found


def of_variants(folder: str) -> dict[str, dict]:
    """Means over data seeds of every variant of a sweep."""
    found = {}
    for line in lines_of(Path(folder) / "seed_averages.csv"):
        form = line["settings"].removeprefix("attention.form=")
        name = next(FORMS[start] for start in FORMS if form.startswith(start))
        found[name] = {
            label: estimate(number(line, key), number(line, f"{key}_error"), "over data seeds")
            for label, key in MEASURES.items()
        }
    return found


def small_sweep(name: str, command: str, folder: str, *settings: str) -> dict[str, dict]:
    """A few points of a recipe, with few examples."""
    out = Path(folder) / name
    sizes = ("task.examples_train=20", "task.examples_test=50", *settings)
    words = [f"--set={one}" for one in sizes]
    code = main([command, str(RUNS / f"{name}.toml"), "--out", str(out), *words])
    if code not in (0, 3):  # 3: draws that fail their diagnostics, and are marked
        sys.exit(code)
    return (of_sweep if command == "run" else of_variants)(str(out))
