"""A learning curve over four decades of examples.

Four paths with few feature channels: any number of examples enters theory and posterior through
Π D rows, so that a million of them cost no more than some hundreds once they are read. Accuracy,
evidence and U₁ of theory (both orders) and of the exact posterior, against the number of examples.

    python -m runs.studies.learning_curve.study [--small]

Up to a million examples, which take minutes to make.
"""

from pathlib import Path

import sampler
from runs.studies.learning_curve.drawing import PATHS, draw
from runs.studies.numbers import told, told_diagonal
from runs.studies.study import Study
from runs.studies.tables import Table, table

SIZES = (100, 300, 1000, 3000, 10_000, 100_000, 1_000_000)
WIDTHS = (10, 100)
TEMPERATURE = 0.3
TASK = {
    "tokens": 30,
    "features": 20,
    "examples_test": 4000,
    "perpendicular_noise": 1.0,
}
ATTENTION = {"heads": [["good", "random"], ["uniform", "random"]], "inverse_temperature": 10.0}
ORDERS = ("infinite", "leading", "next")


def measure(examples: int, width: int, sampling: dict) -> dict:
    """Theory to both orders, exact posterior and infinite width, at one point of the curve."""
    recipe = sampler.Recipe(
        task=sampler.MarkovChain(examples_train=examples, **TASK),
        attention=ATTENTION,
        network={"widths": width},
        posterior={"temperature": TEMPERATURE},
    )
    theory = sampler.solve(recipe)
    if not theory.attrs["converged"]:
        raise SystemExit(theory.attrs["explanation"])
    settings = {"space": "order_parameters", "evidence": True} | sampling
    draws = sampler.sample(recipe, progress=False, **settings)
    compared = sampler.compare(theory, draws)
    row = {
        "examples": examples,
        "width": width,
        "trusted": bool(compared.diagnostics.passed),
        "accuracy": told(compared, "accuracy", ORDERS),
        "evidence": told(compared, "log_evidence", ORDERS, 1.0 / examples),
    }
    return row | dict(zip(PATHS, told_diagonal(compared, ORDERS[1:]), strict=True))


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Numbers of examples and widths."""
    few = {"until": "draws", "warmup": 20, "draws": 100}
    sizes, sampling = (SIZES[:1], few) if small else (SIZES, {})
    return {
        f"{size},{width}": (measure, size, width, sampling) for size in sizes for width in WIDTHS
    }


TABLED = (100, 1000, 10_000, 1_000_000)
ACCURACIES = {
    "infinite width": ("10/accuracy/infinite", 1, 100),
    "N = 100: theory": ("100/accuracy/leading", 1, 100),
    "N = 100: exact": ("100/accuracy/sampled", 2, 100),
    "N = 10: theory": ("10/accuracy/leading", 1, 100),
    "N = 10: next order": ("10/accuracy/next", 1, 100),
    "N = 10: exact": ("10/accuracy/sampled", 2, 100),
}
OVERLAPS = {
    f"{path}, N = {width}{words}": (f"{width}/{path}/{who}", 1 if path == "good" else 2)
    for width in WIDTHS
    for path, who, words in (
        ("good", "sampled", ""),
        ("good", "leading", ", theory"),
        ("good", "next", ", next order"),
        ("adversarial 1", "sampled", ""),
    )
}
EVIDENCES = {
    "N = 10": ("10/evidence/sampled", 5),
    "N = 100": ("100/evidence/sampled", 5),
    "infinite width": ("10/evidence/infinite", 5),
}


def tables(numbers: dict) -> dict[str, Table]:
    """Accuracy in per cent, U₁ of two paths and evidence an example, at some sizes."""
    rows = {
        f"{size:,}": {str(width): numbers[f"{size},{width}"] for width in WIDTHS}
        for size in TABLED
        if f"{size},10" in numbers
    }
    columns = {"accuracy": ACCURACIES, "overlaps": OVERLAPS, "evidence": EVIDENCES}
    return {name: table("P", rows, those) for name, those in columns.items()}


STUDY = Study(
    __file__,
    points,
    numbers=dict,
    tables=tables,
    figures=lambda rows, numbers: {"figure": draw([*numbers.values()])},
)

if __name__ == "__main__":
    STUDY.run()
