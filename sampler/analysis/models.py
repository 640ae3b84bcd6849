"""Models of the same training labels side by side, by leave-one-out cross-validation.

A run brings its samples, its theory, and infinite width at its own and at the same temperature.
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

from sampler.analysis.labels import EXACT, LEADING, LIMIT, OWN_LIMIT
from sampler.analysis.leave_one_out import (
    ELPD,
    GROUP,
    PARETO_K,
    count_unreliable,
    error_of_sum,
    limit_of_k,
)
from sampler.analysis.results import RunResults, open_run
from sampler.errors import InputError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Model:
    """One model, as it predicts each training label from all others.

    elpd        ln p(y_i | y_{−i}) of every example
    labels      what identifies the training labels
    unreliable  examples whose Pareto k is above its limit; None without draws
    draws       number of draws behind it; None without draws
    evidence    ln p(y) and its error, as far as known
    accuracy    on the test set, and its error
    density     log predictive density on the test set, and its error
    """

    name: str
    elpd: Float[np.ndarray, " example"]
    labels: str
    unreliable: int | None = None
    draws: int | None = None
    evidence: tuple[float | None, float | None] = (None, None)
    accuracy: tuple[float | None, float | None] = (None, None)
    density: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class ComparedModel:
    """A line of the table of models.

    elpd, error          sum of the model's elpd, and its error by the finite number of examples
    difference, of_difference
                         elpd minus that of the best model, and the error of this
    weight               in the average of the models that predicts best (stacking)
    """

    model: Model
    elpd: float
    error: float
    difference: float
    of_difference: float
    weight: float


@dataclass(frozen=True)
class ComparedModels:
    """All models, the best first."""

    models: tuple[ComparedModel, ...] = field(default_factory=tuple)

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each model; columns as in ArviZ's `compare`, and what else is known."""
        import pandas

        rows = {}
        for rank, one in enumerate(self.models):
            model = one.model
            rows[model.name] = {
                "rank": rank,
                "elpd": one.elpd,
                "se": one.error,
                "elpd_diff": one.difference,
                "dse": one.of_difference,
                "weight": one.weight,
                "unreliable": model.unreliable,
                "log_evidence": model.evidence[0],
                "accuracy": model.accuracy[0],
                "log_predictive_density": model.density[0],
            }
        return pandas.DataFrame.from_dict(rows, orient="index")


def models_of(run: RunResults, name: str) -> list[Model]:
    found, compared = [], run.compared
    evidence, accuracy, quality = map(compared, ("log_evidence", "accuracy", "predictive_quality"))

    def measured(of: str) -> dict[str, Any]:
        known: dict[str, Any] = {}
        if evidence is not None and of != "sampled":
            known["evidence"] = (getattr(evidence, of), None)
        if accuracy is not None and of != "sampled":
            known["accuracy"] = (getattr(accuracy, of), None)
        of_quality = None if quality is None else getattr(quality, of)
        if of_quality is not None:
            score = of_quality.log_predictive_density
            known["density"] = (score.value, score.mcse)
        return known

    elpd = run.drawn(ELPD, GROUP)
    if elpd is not None:
        known = measured("sampled")
        if evidence is not None and evidence.sampled is not None:
            known["evidence"] = (evidence.sampled.value, evidence.sampled.mcse)
        if run.sampled_accuracy is not None:
            known["accuracy"] = (run.sampled_accuracy.value, run.sampled_accuracy.mcse)
        draws = run.drawn_attribute("draws", GROUP)
        k = np.asarray(run.drawn(PARETO_K, GROUP).values)
        unreliable = count_unreliable(k, draws)
        labels = run.drawn_attribute("labels", GROUP)
        values = np.asarray(elpd.values, dtype=np.float64)
        found.append(Model(f"{name}, {EXACT}", values, labels, unreliable, draws, **known))
    for of, words in (("theory", LEADING), ("gp_own", OWN_LIMIT), ("gp", LIMIT)):
        values = run.theory_values(f"elpd_{of}")
        if values is not None:
            labels = run.theory[f"elpd_{of}"].attrs["labels"]
            found.append(Model(f"{name}, {words}", values, labels, **measured(of)))
    return found


def compare_directories(
    directories: Sequence[Path], names: Sequence[str] | None = None
) -> ComparedModels:
    """Compare the models of stored runs, which are called by their paths where no names are given.

    Raises InputError as `compare_models_of`, and for a directory without results.
    """
    names = names_of_runs(directories) if names is None else names
    opened = [open_run(directory) for directory in directories]
    return compare_models_of(list(zip(names, opened, strict=True)))


def compare_models_of(runs: Sequence[tuple[str, RunResults]]) -> ComparedModels:
    """Compare all models of runs with the same training labels; equal models appear once.

    Raises InputError where the labels differ, or nothing is known of leave-one-out.
    """
    models: list[Model] = []
    for name, run in runs:
        found = models_of(run, name)
        if not found:
            remedy = "holds no leave-one-out predictions; run it again, or `compare` without it"
            raise InputError("run", name, remedy)
        models += [one for one in found if not any(same(one, other) for other in models)]
    different = [one for one in models if one.labels != models[0].labels]
    if different:
        remedy = f"has other training labels than {models[0].name}: models cannot be compared"
        raise InputError("run", different[0].name, remedy)
    return best_first(models)


def same(one: Model, other: Model) -> bool:
    """Whether two models without draws predict alike, as infinite width does at every width."""
    if one.draws is not None or other.draws is not None or one.labels != other.labels:
        return False
    return np.allclose(one.elpd, other.elpd, rtol=1e-5, atol=1e-6)


def best_first(models: Sequence[Model]) -> ComparedModels:
    """The models, best first, with differences and stacking weights by ArviZ."""
    if len(models) == 1:
        (one,) = models
        total, error = float(one.elpd.sum()), error_of_sum(one.elpd)
        return ComparedModels((ComparedModel(one, total, error, 0.0, 0.0, 1.0),))
    import arviz_stats  # only here: it takes long

    # Releases differ in their arguments.
    exact = {"round_to": "none"} if "round_to" in signature(arviz_stats.compare).parameters else {}
    places = {str(place): elpd_data(one) for place, one in enumerate(models)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of pandas, and of k, which the table has
        table = arviz_stats.compare(places, **exact)
    best = models[int(table.index[0])].elpd
    rows = []
    for place, row in table.iterrows():
        model = models[int(place)]
        difference = model.elpd - best
        rows.append(
            ComparedModel(
                model,
                float(model.elpd.sum()),
                error_of_sum(model.elpd),
                float(difference.sum()),
                error_of_sum(difference),
                float(row["weight"]),
            )
        )
    return ComparedModels(tuple(rows))


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
    paths = [Path(one).resolve() for one in directories]
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names
