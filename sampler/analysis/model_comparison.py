"""Models of the same training labels side by side, by leave-one-out cross-validation.

A run brings the exact posterior of its network, by its samples, and infinite width, another
network, at its own and at the same temperature. A theory is no rival of the posterior that it
approximates: the leading order stands in its place only where no samples can be trusted, and its
name says so. Order and weights are those of `arviz_stats.compare`, with evidence and scores on the
test set beside them.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.cross_validation import (
    ELPD,
    GROUP,
    PARETO_K,
    count_unreliable,
    error_of_sum,
    limit_of_k,
)
from sampler.analysis.estimates import Estimate
from sampler.analysis.predictors import LEADING, OTHER_NETWORKS, SAMPLED, number
from sampler.analysis.results import RunResults, open_run
from sampler.analysis.scores import (
    ACCURACY,
    DENSITY,
    OUTPUT,
    error_of_mean,
    example_scores,
    labelled,
)
from sampler.errors import InputError

if TYPE_CHECKING:
    import pandas

# Beside the columns of ArviZ: numbers of a comparison, with their Monte Carlo errors.
BESIDE = ("log_evidence", "accuracy", "log_predictive_density")


@dataclass(frozen=True)
class Model:
    """One model, as it predicts each training label from all others.

    elpd        ln p(y_i | y_{−i}) of every example
    labels      what identifies the training labels
    unreliable  examples whose Pareto k is above its limit; None without draws
    draws       number of draws behind it; None without draws
    scores      evidence and scores on the test set, as far as known
    tests       scores on the test set, example by example
    trusted     whether the draws passed their diagnostics
    """

    name: str
    elpd: Float[np.ndarray, " example"]
    labels: str
    unreliable: int | None = None
    draws: int | None = None
    scores: dict[str, Estimate] = field(default_factory=dict)
    tests: "Tests | None" = None
    trusted: bool = True

    @property
    def counts(self) -> bool:
        """Whether it is compared with others: not by draws that fail, nor by k above its limit."""
        return self.trusted and not self.unreliable

    def is_same(self, other: "Model") -> bool:
        """Whether both, without draws, predict alike, as infinite width does at every width."""
        if self.draws is not None or other.draws is not None or self.labels != other.labels:
            return False
        return np.allclose(self.elpd, other.elpd, rtol=1e-5, atol=1e-6)


def models_of(run: RunResults, name: str) -> list[Model]:
    """The network of a run and that of infinite width, as far as they predict what is left out."""
    models, elpd = [], run.drawn(ELPD, GROUP)
    if elpd is not None:
        draws, labels = (run.drawn_attribute(key, GROUP) for key in ("draws", "labels"))
        unreliable = count_unreliable(np.asarray(run.drawn(PARETO_K, GROUP).values), draws)
        values = np.asarray(elpd.values, dtype=np.float64)
        model = f"{name}, {run.name_of(SAMPLED)}"
        scores = scores_of_run(run, SAMPLED)
        trusted = bool(run.trusted)
        tests = tests_of(run, SAMPLED) if trusted else None
        models.append(Model(model, values, labels, unreliable, draws, scores, tests, trusted))
    in_place = "not sampled"
    if models:
        in_place = "" if models[0].counts else "samples not trusted"
    for predictor in (*([LEADING] if in_place else []), *OTHER_NETWORKS):
        values = run.predicted("elpd_by_example", predictor)
        if values is not None:
            labels = run.theory["elpd_by_example"].attrs["labels"]
            scores = scores_of_run(run, predictor)
            model = f"{name}, {run.name_of(predictor)}"
            model += f" ({in_place})" if predictor == LEADING else ""
            models.append(
                Model(model, values, labels, scores=scores, tests=tests_of(run, predictor))
            )
    return models


@dataclass(frozen=True)
class Tests:
    """Scores on the test set, example by example.

    labels  [example, output]
    scores  name → one number for every example
    """

    labels: Float[np.ndarray, "example output"]
    scores: dict[str, Float[np.ndarray, " example"]]

    def minus(self, other: "Tests | None", score: str) -> np.ndarray | None:
        """Differences of a score; None unless both are scored on the same examples."""
        if other is None or score not in self.scores or score not in other.scores:
            return None
        if not np.array_equal(self.labels, other.labels):
            return None
        return self.scores[score] - other.scores[score]


def tests_of(run: RunResults, predictor: str) -> Tests | None:
    """Scores of a predictor on every test example; None where labels or predictions are unknown."""
    moments = run.label_moments(predictor)
    if moments is None:
        return None
    labels = xr.DataArray(run.labels_test, dims=("test_example", OUTPUT))
    scores = example_scores(*(labelled(one, labels) for one in moments), labels)
    return Tests(run.labels_test, {name: values.values for name, values in scores.items()})


def scores_of_run(run: RunResults, predictor: str) -> dict[str, Estimate]:
    """Evidence and scores on the test set, of the comparison or of the theory alone.

    Without those of the samples that are not to be trusted.
    """
    rows = {} if run.comparison is None else run.comparison.rows
    scores = {}
    for score in BESIDE:
        row = rows.get((score, predictor), {"value": np.nan, "state": ""})
        if np.isfinite(row["value"]) and not (predictor == SAMPLED and row["state"]):
            mcse = row["error"] if predictor == SAMPLED else 0.0
            scores[score] = Estimate(row["value"], mcse, test_error=row["test_error"])
        elif predictor != SAMPLED and np.isfinite(value := number(run.theory, score, predictor)):
            scores[score] = Estimate(value, 0.0)
    return scores


def compare_directories(
    directories: Sequence[Path], names: Sequence[str] | None = None
) -> "pandas.DataFrame":
    """Compare the models of stored runs, which are called by their paths where no names are given.

    Raises InputError as `compare_models_of`, and for a directory without results.
    """
    names = names_of_runs(directories) if names is None else names
    opened = [open_run(directory) for directory in directories]
    return compare_models_of(list(zip(names, opened, strict=True)))


def compare_models_of(runs: Sequence[tuple[str, RunResults]]) -> "pandas.DataFrame":
    """Compare all models of runs with the same training labels; equal models appear once.

    Raises InputError where the labels differ, or nothing is known of leave-one-out.
    """
    models: list[Model] = []
    for name, run in runs:
        of_run = models_of(run, name)
        if not of_run:
            remedy = "holds no leave-one-out predictions; run it again, or `compare` without it"
            raise InputError("run", name, remedy)
        models += [model for model in of_run if not any(map(model.is_same, models))]
    for model in models:
        if model.labels != models[0].labels:
            remedy = f"has other training labels than {models[0].name}: models cannot be compared"
            raise InputError("run", model.name, remedy)
    return best_first(models)


def best_first(models: Sequence[Model]) -> "pandas.DataFrame":
    """A row for each model, the best first; columns as in ArviZ's `compare`, and scores beside.

    Models that do not count are last, without rank, difference and weight.
    """
    import pandas

    counted = [model for model in models if model.counts]
    weights = stacking_weights(counted) if counted else {}
    best, rows = next((counted[place] for place in weights), None), {}
    for rank, (place, weight) in enumerate(weights.items()):
        rows[counted[place].name] = row_of(counted[place], rank, best, weight)
    rows |= {model.name: row_of(model) for model in models if not model.counts}
    return pandas.DataFrame.from_dict(rows, orient="index")


def row_of(
    model: Model, rank: int | float = np.nan, best: Model | None = None, weight: float = np.nan
) -> dict[str, int | float | None]:
    """The columns of a model; those that compare it are NaN without a best one."""
    difference = np.full(1, np.nan) if best is None else model.elpd - best.elpd
    row = {
        "rank": rank,
        "elpd": float(model.elpd.sum()),
        "se": error_of_sum(model.elpd),
        "elpd_diff": float(difference.sum()),
        "dse": 0.0 if model is best else error_of_sum(difference),
        "weight": weight,
        "unreliable": model.unreliable,
    }
    for score in BESIDE:
        estimate = model.scores.get(score)
        row[score] = estimate and float(estimate.value)
        row[f"{score}_error"] = estimate and float(estimate.mcse)
    return row | tests_apart(model, best)


def tests_apart(model: Model, best: Model | None) -> dict[str, float]:
    """Scores on the test set minus those of the best model, with the error of this difference.

    Example by example; NaN where they are not known of the same examples.
    """
    columns = {}
    for score in (ACCURACY, DENSITY):
        known = model.tests is not None and best is not None
        apart = model.tests.minus(best.tests, score) if known else None
        columns[f"{score}_diff"] = np.nan if apart is None else float(apart.mean())
        columns[f"{score}_dse"] = np.nan if apart is None else error_of_mean(apart)
    return columns


def stacking_weights(models: Sequence[Model]) -> dict[int, float]:
    """Place → weight of the models by stacking, the best model first."""
    if len(models) == 1:
        return {0: 1.0}
    import arviz_stats  # only here: it takes long

    # Releases differ in their arguments.
    exact = {"round_to": "none"} if "round_to" in signature(arviz_stats.compare).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, and of k, which the table has
        data = {str(place): elpd_data(model) for place, model in enumerate(models)}
        table = arviz_stats.compare(data, **exact)
    return {int(place): float(weight) for place, weight in table["weight"].items()}


def elpd_data(model: Model) -> Any:
    """A model as ArviZ compares it; how many parameters it has is not asked."""
    from arviz_stats import ELPDData

    by_example = xr.DataArray(model.elpd, dims="example")
    given = {
        "kind": "loo",
        "elpd": float(model.elpd.sum()),
        "se": error_of_sum(model.elpd),
        "p": float("nan"),
        "n_samples": model.draws or 1,
        "n_data_points": len(model.elpd),
        "scale": "log",
        "warning": bool(model.unreliable),
        "good_k": limit_of_k(model.draws or 1),
        "elpd_i": by_example,
        "pareto_k": xr.zeros_like(by_example),
    }
    accepted = signature(ELPDData).parameters
    return ELPDData(**{name: value for name, value in given.items() if name in accepted})


def names_of_runs(directories: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell directories apart."""
    paths = [Path(directory).resolve() for directory in directories]
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names
