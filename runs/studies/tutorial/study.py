"""From a task to a verdict on the theory: task, exact draws, widths, calibration.

A network of two attention layers reads noisy sequences and says which of two hidden Markov chains
made them. Its attention is fixed: a *good* head looks where the hidden state is the same, a
*uniform* one looks everywhere. Its values are random, trained by the rules of probability: we ask
for their posterior. Two paths lead through the heads, and the 2 × 2 matrix U₁ says how much each
counts, and how much they count together. Theory predicts U₁; here its posterior is sampled, too.

    python -m runs.studies.tutorial.study [--small]     half a minute
"""

from pathlib import Path

import numpy as np

import sampler
from runs.studies.numbers import estimate
from runs.studies.study import Study
from runs.studies.tables import Table, table
from runs.studies.tutorial.drawing import WIDTH, draw_reliability, draw_task, draw_widths
from runs.studies.tutorial.mathematics import error_if_calibrated, probabilities

WIDTHS = (3, 10, 30, 100, 300, 1000)
PREDICTORS = {
    "leading": "theory",
    "sampled": "exact posterior",
    "infinite": "infinite width",
    "infinite_tuned": "infinite width, at its best",
}


def recipe_of(width: int, examples_test: int) -> sampler.Recipe:
    """60 sequences to learn from, others to be tested on, with much noise."""
    return sampler.Recipe(
        task=sampler.MarkovChain(
            perpendicular_noise=5.0, seed=8, examples_train=60, examples_test=examples_test,
            features=100,
        ),
        attention={"heads": [["good", "uniform"], ["uniform"]]},
        network={"widths": width},
        posterior={"temperature": 0.01},
    )  # fmt: skip


def of_theory(width: int, examples_test: int) -> dict:
    """U₁ of both paths, and accuracy; the narrower, the more the posterior chooses."""
    solved = sampler.solve(recipe_of(width, examples_test))
    good, uniform = np.diag(solved["order_parameter"].sel(predictor="leading"))
    accuracy = float(solved["accuracy"].sel(predictor="leading"))
    return {"good": good, "uniform": uniform, "accuracy": accuracy}


def against_draws(width: int, examples_test: int) -> dict:
    """Theory beside the exact posterior, with as many draws as its diagnostics ask for."""
    recipe = recipe_of(width, examples_test)
    theory = sampler.solve(recipe)
    draws = sampler.sample(recipe, progress=False)
    comparison = sampler.compare(theory, draws)
    found, overlaps = comparison.table(), comparison.elements("order_parameter")
    measures = ("accuracy", "log_predictive_density", "expected_calibration_error")
    return {
        "found": {who: {name: dict(found.loc[name, who]) for name in measures}
                  for who in PREDICTORS},
        "own temperature": float(theory["temperature"].sel(predictor="infinite_tuned")),
        "overlaps": [np.diag(overlaps["sampled"]), np.diag(overlaps["error"])],
        "probabilities": probabilities(comparison, theory, PREDICTORS),
        "positive": draws["predictions_constant_data"]["labels_test"].values > 0,
    }  # fmt: skip


def numbers(rows: dict[str, dict]) -> dict:
    """U₁ by width; of every predictor what it says at N = 10, with the error of the test set."""
    row = rows["exact"]
    found = {
        "widths": {name: one for name, one in rows.items() if name != "exact"},
        "own temperature": row["own temperature"],
    }
    for who in PREDICTORS:
        accuracy, density, error = row["found"][who].values()
        expected = error_if_calibrated(np.array(row["probabilities"][who]))
        away = (error["value"] - expected["value"]) / expected["error"]
        found[who] = {
            "accuracy": estimate(accuracy["value"], accuracy["test_error"], "binomial"),
            "density": estimate(density["value"], density["test_error"], "over test examples"),
            "calibration error": estimate(error["value"], error["test_error"],
                                          "over test examples"),
            "if calibrated": expected,
            "deviations": away,
        }  # fmt: skip
    found["MCSE"] = {name: one["error"] for name, one in row["found"]["sampled"].items()}
    return found


def tables(numbers: dict) -> dict[str, Table]:
    """Calibration of every predictor, and U₁ against width."""
    measures = {
        "accuracy": ("accuracy", 3),
        "log predictive density": ("density", 3),
        "calibration error": ("calibration error", 3),
        "… of a calibrated predictor, ± its deviation over drawn labels": ("if calibrated", 3),
        "deviations between the two": ("deviations", 1),
    }
    by_predictor = table("", {words: numbers[who] for who, words in PREDICTORS.items()}, measures)
    columns = {"U₁ good": ("good", 2), "U₁ uniform": ("uniform", 2), "accuracy": ("accuracy", 3)}
    return {
        "calibration": [list(line) for line in zip(*by_predictor, strict=True)],
        "widths": table("N", numbers["widths"], columns),
    }


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """The exact posterior at one width, and the theory at several."""
    widths, examples = (WIDTHS[:2], 100) if small else (WIDTHS, 500)
    found = {str(width): (of_theory, width, examples) for width in widths}
    return {"exact": (against_draws, WIDTH, examples)} | found


def figures(rows: dict[str, dict], numbers: dict) -> dict:
    """The task, theory against width, and calibration."""
    return {
        "task": draw_task(),
        "figure": draw_widths(rows, numbers),
        "reliability": draw_reliability(rows["exact"], PREDICTORS),
    }


STUDY = Study(__file__, points, numbers, tables, figures)

if __name__ == "__main__":
    STUDY.run()
