"""Accuracies of a run on its test set, each with its errors."""

import math

from sampler.presentation.report.elements import Content, Html, table
from sampler.presentation.report.numbers import Number, percent
from sampler.presentation.stored_run import StoredRun
from theory.accuracy import binomial_error

CAPTION = (
    "Accuracy on the test set. Monte Carlo error: of the samples. Test set: binomial error of so "
    "many examples, common to all rows, so that differences between rows are known better."
)
VARIANTS = {
    "accuracy_diagonal_only": "theory, U₁ diagonal only",
    "accuracy_equal_diagonal": "theory, U₁ with equal diagonal",
    "accuracy_trained": "network trained by gradient descent",
    "accuracy_nearest_neighbour": "nearest neighbour in pixels",
}


def accuracy_rows(run: StoredRun) -> list[tuple[str, float, float | None]]:
    """Name, accuracy and Monte Carlo error (None where nothing is sampled) of every predictor."""
    rows: list[tuple[str, float, float | None]] = []
    sampled = sampled_accuracy(run)
    if run.theory is not None:
        rows = [("theory", theory_accuracy(run, "theory"), None)]
    if sampled:
        rows.append(("exact posterior, sampled", float(sampled["value"]), sampled["mcse"]))
    if run.theory is not None:
        rows.append(("infinite width (GP)", theory_accuracy(run, "gp"), None))
        if "accuracy_gp_subnetwork" in run.theory:
            limits = run.theory["accuracy_gp_subnetwork"]
            for name, value in zip(limits["subnetwork"].values, limits.values, strict=True):
                rows.append((f"infinite width, only {name}", float(value), None))
        rows += [
            (label, float(run.theory[name]), None)
            for name, label in VARIANTS.items()
            if name in run.theory
        ]
    return [row for row in rows if math.isfinite(row[1])]


def accuracy_table(run: StoredRun) -> Html | None:
    """The table of these accuracies; None where the labels are no classes."""
    rows = accuracy_rows(run)
    if not rows:
        return None
    cells: list[list[Content]] = []
    for name, value, mcse in rows:
        on_test_set = test_set_error(run, value)
        if mcse is not None:
            on_test_set = sampled_accuracy(run).get("binomial_error")
        monte_carlo = "" if mcse is None else percent(mcse, digits=2)
        shown = percent(value, mcse if mcse is not None else on_test_set)
        cells.append([name, shown, monte_carlo, percent(on_test_set, digits=2)])
    return table(CAPTION, ("predictor", "accuracy", "Monte Carlo error", "test set error"), cells)


def accuracy_sentence(run: StoredRun) -> str | None:
    """Theory, exact posterior and infinite width in one sentence, and what finite width gains."""
    if run.theory is None:
        return None
    theory, limit = (theory_accuracy(run, name) for name in ("theory", "gp"))
    if not (math.isfinite(theory) and math.isfinite(limit)):
        return None
    sampled = sampled_accuracy(run)
    parts = [f"theory {percent(theory, test_set_error(run, theory))}"]
    if sampled:
        parts.append(f"exact posterior {percent(sampled['value'], sampled['mcse'])}")
    parts.append(f"infinite width {percent(limit, test_set_error(run, limit))}")
    errors = "Errors: Monte Carlo for the exact posterior, of the test set for the others."
    gain = Number(theory - limit, None, 100.0, digits=3)
    return (
        f"Accuracy: {', '.join(parts)}. {errors if sampled else ''} By the theory finite width "
        f"changes it by {gain} percentage points."
    )


def sampled_accuracy(run: StoredRun) -> dict | None:
    """The sampled accuracy with its errors, None where there is none."""
    found = ((run.comparison or {}).get("accuracy") or {}).get("sampled")
    return found if found and found.get("value") is not None else None


def theory_accuracy(run: StoredRun, name: str) -> float:
    """An accuracy of `theory.nc`, NaN where it is undefined."""
    column = f"accuracy_{name}"
    if run.theory is None or column not in run.theory:
        return float("nan")
    return float(run.theory[column])


def test_set_error(run: StoredRun, accuracy: float) -> float | None:
    """√(a(1 − a)/tests), None where the number of test examples is not stored."""
    if run.theory is None or "test_example" not in run.theory.sizes:
        return None
    return binomial_error(accuracy, run.theory.sizes["test_example"])
