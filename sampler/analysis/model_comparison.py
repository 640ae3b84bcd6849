"""Models of the same training labels side by side, by leave-one-out cross-validation.

A run brings the exact posterior of its network, by its samples, and infinite width, another
network, at its own and at the same temperature. A theory is not compared with the posterior that it
approximates: the leading order replaces it where no samples can be trusted, and is named so. Order,
differences and weights are those of `arviz_stats.compare`, with evidence and with scores on the
test set.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
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
from sampler.analysis.difference import NOT_TRUSTED
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

OF_ARVIZ = ("rank", "elpd", "se", "elpd_diff", "dse", "weight")
# Besides the columns of ArviZ: numbers of a comparison, with their Monte Carlo errors.
BESIDE = ("log_evidence", ACCURACY, DENSITY)


@dataclass(frozen=True)
class Model:
    """A network, as one of its predictors foretells each training label from all others.

    run, predictor  whose it is
    elpd            ln p(y_i | y_{−i}) of every example
    labels          what identifies the training labels
    unreliable      examples whose Pareto k is above its limit; None without draws
    draws           number of draws behind it; None without draws
    """

    name: str
    run: RunResults
    predictor: str
    elpd: Float[np.ndarray, " example"]
    labels: str
    unreliable: int | None = None
    draws: int | None = None

    @property
    def trusted(self) -> bool:
        """Whether it has no draws, or such as passed their diagnostics."""
        return self.draws is None or self.run.trusted is not False

    @property
    def counts(self) -> bool:
        """Whether it is compared with others: not by draws that fail, nor by k above its limit."""
        return self.trusted and not self.unreliable

    def is_same(self, other: "Model") -> bool:
        """Whether both, without draws, predict alike, as infinite width does at every width."""
        if self.draws is not None or other.draws is not None or self.labels != other.labels:
            return False
        return np.allclose(self.elpd, other.elpd, rtol=1e-5, atol=1e-6)

    @property
    def tests(self) -> xr.Dataset:
        """Accuracy and density of every test example, with its labels; empty if unknown."""
        moments = self.run.label_moments(self.predictor) if self.trusted else None
        if moments is None:
            return xr.Dataset()
        labels = xr.DataArray(self.run.labels_test, dims=("test_example", OUTPUT))
        scores = example_scores(*(labelled(one, labels) for one in moments), labels)
        known = {name: scores[name] for name in (ACCURACY, DENSITY) if name in scores}
        return xr.Dataset({"labels": labels, **known})

    def elpd_data(self) -> Any:
        """As ArviZ compares it; how many parameters it has is not asked."""
        from arviz_stats import ELPDData  # only here: it takes long

        draws = self.draws or 1
        # A field of earlier releases alone.
        kind = {"kind": "loo"} if "kind" in signature(ELPDData).parameters else {}
        return ELPDData(
            **kind, elpd=float(self.elpd.sum()), se=error_of_sum(self.elpd), p=np.nan,
            n_samples=draws, n_data_points=len(self.elpd), scale="log",
            warning=bool(self.unreliable), good_k=limit_of_k(draws),
            elpd_i=xr.DataArray(self.elpd, dims="example"),
        )  # fmt: skip


def models_of(run: RunResults, name: str) -> list[Model]:
    """The network of a run and that of infinite width, if they predict left-out labels."""
    models, elpd = [], run.drawn(ELPD, GROUP)
    if elpd is not None:
        draws, labels = (run.drawn_attribute(key, GROUP) for key in ("draws", "labels"))
        unreliable = count_unreliable(np.asarray(run.drawn(PARETO_K, GROUP).values), draws)
        values = np.asarray(elpd.values, dtype=np.float64)
        title = f"{name}, {run.name_of(SAMPLED)}"
        models.append(Model(title, run, SAMPLED, values, labels, unreliable, draws))
    in_place = "samples not trusted" if models else "not sampled"
    in_place = "" if models and models[0].counts else in_place
    for predictor in (*([LEADING] if in_place else []), *OTHER_NETWORKS):
        values = run.predicted("elpd_by_example", predictor)
        if values is not None:
            title = f"{name}, {run.name_of(predictor)}"
            title += f" ({in_place})" if predictor == LEADING else ""
            labels = run.theory["elpd_by_example"].attrs["labels"]
            models.append(Model(title, run, predictor, values, labels))
    return models


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

    Raises InputError where the labels differ, or leave-one-out is missing.
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
    """A row for each model, the best first; columns as in ArviZ's `compare`, with scores.

    Models that do not count are last, without rank, difference and weight.
    """
    import pandas

    by_name = {model.name: model for model in sorted(models, key=lambda model: not model.counts)}
    counted = {name: model.elpd_data() for name, model in by_name.items() if model.counts}
    sums = {n: [m.elpd.sum(), error_of_sum(m.elpd)] for n, m in by_name.items() if not m.counts}
    table = pandas.DataFrame.from_dict(sums, orient="index", columns=["elpd", "se"])
    if counted:
        import arviz_stats  # only here: it takes long

        # Later releases round by default.
        exact = (
            {"round_to": "none"} if "round_to" in signature(arviz_stats.compare).parameters else {}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas, and of k, which the table has
            compared = arviz_stats.compare(counted, **exact)
        # How far a model is behind the best; later releases have it with the other sign.
        compared["elpd_diff"] = compared["elpd_diff"].abs()
        table = pandas.concat([compared, table])
    best = by_name[table.index[0]] if counted else None
    beside = {
        name: scores_beside(model, best if model.counts else None)
        for name, model in by_name.items()
    }
    return table.reindex(columns=list(OF_ARVIZ)).join(
        pandas.DataFrame.from_dict(beside, orient="index")
    )


def scores_beside(model: Model, best: Model | None) -> dict[str, float | int | None]:
    """Evidence and scores on the test set, and how far these are behind those of the best model.

    With the Monte Carlo errors of numbers, and the standard errors of differences, example by
    example; NaN where a number is unknown or unreliable, and where the examples differ.
    """
    rows = {} if model.run.comparison is None else model.run.comparison.rows
    columns: dict[str, float | int | None] = {"unreliable": model.unreliable}
    for score in BESIDE:
        row = rows.get((score, model.predictor), {"value": np.nan, "error": np.nan, "state": ""})
        value, error = row["value"], row["error"]
        if model.predictor != SAMPLED:
            alone = number(model.run.theory, score, model.predictor)
            value, error = value if np.isfinite(value) else alone, 0.0
        elif row["state"] == NOT_TRUSTED:
            value = error = np.nan
        columns |= {score: value, f"{score}_error": error if np.isfinite(value) else np.nan}
    tests, of_best = model.tests, xr.Dataset() if best is None else best.tests
    paired = "labels" in tests and "labels" in of_best and tests["labels"].equals(of_best["labels"])
    for score in (ACCURACY, DENSITY):
        behind = of_best[score] - tests[score] if paired and score in tests else None
        columns[f"{score}_diff"] = np.nan if behind is None else float(behind.mean())
        columns[f"{score}_dse"] = np.nan if behind is None else error_of_mean(behind)
    return columns


def names_of_runs(directories: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that distinguish directories."""
    paths = [Path(directory).resolve() for directory in directories]
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names
