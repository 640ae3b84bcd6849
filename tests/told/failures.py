"""Stored runs of pretended samplers that pass their diagnostics, or fail in a known way."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.comparison import ComparisonTree
from sampler.analysis.cross_validation import leave_one_out_table
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.predictors import along_predictors
from sampler.analysis.results import RunResults
from sampler.analysis.scores import example_scores, labelled
from sampler.jobs.stages import compare_tables
from sampler.storage.result_files import write_comparison, write_result
from tests.problems import (
    CHAINS,
    TRAIN,
    collect,
    healthy_statistics,
    random_observables,
    small_problem,
)
from theory.observables import accuracy

DRAWS = 1500
TEMPERATURE = 0.2
EXAMPLES_VALIDATION = 20
REPETITIONS, PARTICLES = 8, 400


@dataclass(frozen=True)
class Stored:
    """What a run stores.

    own  what a theory of the user's own predicts
    """

    theory: xr.Dataset
    draws: xr.DataTree
    own: dict[str, dict[str, np.ndarray]]

    @cached_property
    def comparison(self) -> ComparisonTree:
        return compare_tables(self.theory, self.draws, self.own)

    def held(self, directory: Path | None = None, sampled: bool = True) -> RunResults:
        """The results in memory, or the theory alone."""
        given = {"draws": self.draws, "comparison": self.comparison} if sampled else {}
        return RunResults.held(directory, theory=self.theory, **given)

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        write_result(directory, "theory.nc", self.theory)
        write_result(directory, "draws.nc", self.draws)
        write_comparison(directory, self.comparison.tree, self.comparison.to_json())
        return directory


# --- what goes wrong: every function changes observables and statistics, or attributes


def chain_alone(observables, statistics, attributes):
    for of in (observables, statistics):
        of |= {name: values[:1] for name, values in of.items()}


def chains_apart(observables, statistics, attributes):
    observables["order_parameter"][1] *= 1.5


def chain_frozen(observables, statistics, attributes):
    observables["predictor"][1] = observables["predictor"][1, :1]


def element_without_r_hat(observables, statistics, attributes):
    """Distances from the median that are all the same: 0/0."""
    draws = statistics["lp"].shape[1]
    observables["predictor"][..., 2, 0] = np.where(np.arange(draws) % 2, 1.0, -1.0)


def number_not_finite(observables, statistics, attributes):
    observables["predictor"][0, 7, 1, 0] = np.nan


def repetitions_apart(observables, statistics, attributes):
    """Repetitions of one law whose evidences are far apart: one of them has all the weight."""
    logs = np.zeros(REPETITIONS)
    logs[0] = 6.0
    as_repetitions(observables, statistics, attributes, logs)
    attributes["log_evidence_trusted"] = 0


# Every draw of these is unusable.
FAILURES = {
    made.__name__: made
    for made in (
        chain_alone, chains_apart, chain_frozen, element_without_r_hat, number_not_finite,
        repetitions_apart,
    )
}  # fmt: skip


def evidence_not_trusted(observables, statistics, attributes):
    attributes["log_evidence_trusted"] = 0


def tail_of_one_example(observables, statistics, attributes):
    """Weights e^{tE} of exponential numbers E have a tail of shape t."""
    values = observables["log_likelihood"]
    rng = np.random.default_rng(8)
    values[..., 4] = -1.0 - 1.2 * rng.standard_exponential(values.shape[:2])


# Draws of these are sound, one number of theirs is not: what is spoilt, and that number.
UNTRUSTED = {
    made.__name__: (made, number)
    for made, number in (
        (evidence_not_trusted, "log_evidence"),
        (tail_of_one_example, "elpd"),
    )
}


def repetitions_agree(observables, statistics, attributes):
    as_repetitions(observables, statistics, attributes, np.zeros(REPETITIONS))


def repetitions_few(observables, statistics, attributes):
    """So few that differences are not known, though the draws can be trusted."""
    as_repetitions(observables, statistics, attributes, np.zeros(4))


def as_repetitions(observables, statistics, attributes, log_evidences):
    """The draws as particles of repetitions with these log evidences."""
    shape = len(log_evidences), PARTICLES
    rng = np.random.default_rng(5)
    for name, values in observables.items():
        chosen = rng.integers(values.shape[0] * values.shape[1], size=shape)
        observables[name] = values.reshape(-1, *values.shape[2:])[chosen]
    ones = np.ones(shape)
    statistics.clear()
    statistics |= {
        "lp": rng.standard_normal(shape),
        "acceptance_rate": 0.8 * ones,
        "lowest_acceptance": 0.7 * ones,
        "temperatures": 5 * ones,
        "ancestor": np.broadcast_to(np.arange(PARTICLES), shape).astype(float),
        "mode": np.zeros(shape),
        "log_evidence": log_evidences[:, None] * ones,
        "log_evidence_prior": np.nan * ones,
    }
    attributes |= {"algorithm": "tempered", "particles": PARTICLES, "target_acceptance": 0.8}


# --- made


def stored(
    spoil=None, *, seed: int = 1, scale: float = 1.0, evidence: float = -7.0, status: str = "fine"
) -> Stored:
    """A run of a small problem whose theory is beside its draws.

    spoil     what goes wrong with it
    scale     of U_1, by which it differs from other runs
    evidence  of the samples
    status    of the next order
    """
    problem = small_problem(np.random.default_rng(0), labels_test=LABELS)
    rng = np.random.default_rng(seed)
    observables = random_observables(problem, rng, DRAWS)
    observables = {n: v for n, v in observables.items() if not n.startswith(("V_", "a"))}
    observables["order_parameter"] *= scale
    tails = -1.0 - 0.1 * rng.standard_exponential((CHAINS, DRAWS, TRAIN))
    observables["log_likelihood"] = tails
    statistics = healthy_statistics(rng, (CHAINS, DRAWS))
    attributes = {
        "algorithm": "nuts", "space": "order_parameters", "seconds": 3.0, "seconds_warmup": 1.0,
        "seconds_draws": 2.0, "gradients": 100, "log_evidence": evidence,
        "log_evidence_error": 0.01, "log_evidence_method": "bridge", "log_evidence_trusted": 1,
        "target_acceptance": 0.8, "max_tree_depth": 10,
    }  # fmt: skip
    means = {n: v.mean(axis=(0, 1)) for n, v in observables.items()}
    variance = observables["predictor"].var(axis=(0, 1), ddof=1)[:, 0]
    if spoil is not None:
        spoil(observables, statistics, attributes)
    collected = collect(observables, statistics, pieces=1)
    left_out = leave_one_out_table(problem, collected, "order_parameters")
    tree = draws_tree(problem, collected, attributes, left_out=left_out)
    tree["validation"] = xr.DataTree(validation(rng, len(statistics["lp"]), scale))
    theory = theory_beside(tree, means, variance, scale).assign_attrs(
        converged=1, explanation="", next_order_status=status, next_order_explanation="doubted",
        temperature=TEMPERATURE,
    )  # fmt: skip
    own = {"mine": {"order_parameter": means["order_parameter"] + 0.2}}
    return Stored(theory, tree, own)


LABELS = np.random.default_rng(3).choice([-1.0, 1.0], (5, 1))
LABELS_VALIDATION = np.where(np.arange(EXAMPLES_VALIDATION) % 2, 1.0, -1.0)[:, None]
VALIDATION_AXES = ("chain", "draw", "validation_example", "output")


def validation(rng, chains: int, scale: float) -> xr.Dataset:
    """Mean and variance of f given U_1 in fifty draws of each chain, better for a larger scale."""
    shape = chains, 50, EXAMPLES_VALIDATION, 1
    mean = 0.5 * scale * LABELS_VALIDATION + 0.01 * rng.standard_normal(shape)
    return xr.Dataset(
        {
            "predictor_mean": (VALIDATION_AXES, mean),
            "predictor_variance": (VALIDATION_AXES, np.full(shape, 0.3)),
            "labels": (VALIDATION_AXES[2:], LABELS_VALIDATION),
            "temperature": (VALIDATION_AXES[:2], np.full(shape[:2], TEMPERATURE)),
        }
    )


def theory_beside(tree: xr.DataTree, means, variance, scale: float) -> xr.Dataset:
    """Both orders and infinite width, at a distance from the means of the draws."""
    labels = tree["leave_one_out"].attrs["labels"]
    predictions = {}
    for name, off in {"leading": 0.5, "next": 0.1, "infinite": 1.0}.items():
        mean = np.full(EXAMPLES_VALIDATION, 0.4) * LABELS_VALIDATION[:, 0] * scale / (1 + off)
        of_split = xr.DataArray(LABELS_VALIDATION, dims=VALIDATION_AXES[2:])
        variance_there = xr.full_like(of_split, 0.3 + TEMPERATURE)
        scores = example_scores(labelled(mean, of_split), variance_there, of_split)
        columns = {
            "predictor_mean": (("test_example",), means["predictor"][:, 0] + off),
            "predictor_variance": (("test_example",), variance),
            "temperature": ((), TEMPERATURE),
            "log_evidence": ((), -7.0 - off),
            "accuracy": ((), accuracy(means["predictor"] + off, LABELS)),
        }
        if name != "infinite":
            overlap = means["order_parameter"] + off * np.eye(4)
            columns["order_parameter"] = (("path", "path_"), overlap)
        if name != "next":
            columns["elpd_by_example"] = (("example",), -1.5 - off - 0.1 * np.arange(TRAIN))
            columns["elpd"] = ((), columns["elpd_by_example"][1].sum())
        for score, values in scores.items():
            columns[f"validation_{score}"] = ((), float(values.mean()))
            columns[f"validation_{score}_by_example"] = (values.dims, values.values)
        predictions[name] = columns
    table = along_predictors(predictions)
    table["elpd_by_example"].attrs["labels"] = labels
    table["participation_ratio"] = ((), 1.5)
    paths = tree["posterior"]["path"].values
    return table.assign_coords(path=paths, path_=paths)
