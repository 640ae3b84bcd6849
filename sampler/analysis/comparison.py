"""Theory held against draws."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.estimate import (
    Estimate,
    batch_means,
    bootstrap,
    mean_of,
    mean_of_batches,
    squared_deviations,
    variance_of,
    variance_of_batches,
)
from sampler.mcmc.draws import BatchMoments
from sampler.posterior.hyper_parameters import OBSERVED
from theory import AttentionPaths, head_scores
from theory.observables import binomial_error, correct, labels_are_classes


def off_diagonal_cosine(
    one: Float[np.ndarray, "*batch path path"], other: Float[np.ndarray, "path path"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Σ_{π≠π'} A B / √(Σ A² Σ B²) over the elements off the diagonal; leading axes are kept."""
    off = ~np.eye(one.shape[-1], dtype=bool)
    a, b = one[..., off], other[..., off]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def sampled_head_scores(theory: xr.Dataset, draws: np.ndarray) -> Estimate | None:
    """Head scores of the posterior mean of U_1 [chain, draw, path, path], errors by bootstrap.

    None if the theory has none: its saddle point did not converge.
    """
    heads = tuple(int(np.isfinite(row).sum()) for row in theory["head_score"].values)
    if not all(heads):
        return None
    paths = AttentionPaths(heads)
    return bootstrap(
        lambda means: np.stack([head_scores(mean, paths) for mean in means]), batch_means(draws)
    )


def off_diagonal_cosines(theory: xr.Dataset, draws: np.ndarray) -> dict[str, dict]:
    """Cosines between posterior mean of U_1, theory and the network trained by gradient descent.

    Errors by bootstrap over batches of draws; empty where there is only one path.
    """
    if draws.shape[-1] == 1:
        return {}
    batches, cosines = batch_means(draws), {}
    others = {"theory": "order_parameter", "trained": "order_parameter_trained"}
    for name, variable in others.items():
        if variable in theory:
            other = theory[variable].values
            cosine = bootstrap(lambda means, u=other: off_diagonal_cosine(means, u), batches)
            cosines[f"sampled_{name}"] = {"value": cosine.value, "mcse": cosine.mcse}
    if "order_parameter_trained" in theory:
        pair = (theory[variable].values for variable in others.values())
        cosines["theory_trained"] = {"value": off_diagonal_cosine(*pair)}
    return cosines


def hyper_parameter_comparison(tree: xr.DataTree) -> dict[str, Mapping] | None:
    """The part `hyper_parameters` of `comparison.json`; None where all of them were known.

    For the temperature, and for the variances `of` each array of weights: `prior_median` (where the
    theory is solved), posterior mean `sampled` with its `mcse`, and `standard_deviation`.
    """
    posterior, constants = tree["posterior"].to_dataset(), tree["constant_data"].to_dataset()
    found = {}
    for name in OBSERVED:
        if name in posterior:
            draws = posterior[name].values
            estimate = mean_of(draws)
            found[name] = {
                "prior_median": np.asarray(constants[name].values, dtype=np.float64),
                "sampled": estimate.value,
                "mcse": estimate.mcse,
                "standard_deviation": draws.std(axis=(0, 1), ddof=1),
            }
    if "prior_variances" in found:
        found["prior_variances"]["of"] = [str(n) for n in posterior["weights"].values]
    return found or None


@dataclass(frozen=True)
class Compared:
    """One quantity from the theory and from the draws.

    difference = sampled − theory, in units of the MCSE and relative to |sampled|. Without a theory
    it and the differences are None.
    """

    theory: np.ndarray | None
    sampled: Estimate

    def as_dict(self) -> dict:
        if self.theory is None:
            absent = dict.fromkeys(("theory", "difference_in_mcse", "relative_difference"))
            return {"sampled": self.sampled.value, "mcse": self.sampled.mcse} | absent
        difference = self.sampled.value - self.theory
        with np.errstate(divide="ignore", invalid="ignore"):
            in_mcse = difference / self.sampled.mcse
            relative = difference / np.abs(self.sampled.value)
        return {
            "theory": self.theory,
            "sampled": self.sampled.value,
            "mcse": self.sampled.mcse,
            "difference_in_mcse": in_mcse,
            "relative_difference": relative,
        }


def compare_draws(
    theory: xr.Dataset | None,
    draws: Mapping[str, np.ndarray],
    moments: Mapping[str, BatchMoments],
    labels_test: np.ndarray | None,
) -> dict[str, dict]:
    """U_l, predictors, accuracy, head scores and cosines: theory against draws [chain, draw, …].

    Theory and draws differ by O(1/N) at finite width, whatever the number of draws. Without a
    theory there are the samples with their errors, and None in its place.
    """

    def predicted(name: str) -> np.ndarray | None:
        return None if theory is None else theory[name].values

    compared = {
        name: Compared(predicted(name), mean_of(values)).as_dict()
        for name, values in draws.items()
        if "order_parameter" in name and (theory is None or name in theory)
    }
    predictor = predictor_estimates(draws, moments)
    for name, estimate in (("mean", predictor.mean), ("variance", predictor.variance)):
        compared[f"predictor_{name}"] = Compared(predicted(f"predictor_{name}"), estimate).as_dict()
    if predictor.parts:
        compared["predictor_variance"] |= {
            name: {"value": part.value, "mcse": part.mcse} for name, part in predictor.parts.items()
        }
    compared["accuracy"] = {
        "theory": None if theory is None else float(theory["accuracy_theory"]),
        "gp": None if theory is None else float(theory["accuracy_gp"]),
        "sampled": sampled_accuracy(predictor.batches, labels_test),
    }
    if theory is not None and "order_parameter" in draws and "head_score" in theory:
        overlaps = draws["order_parameter"]
        scores = sampled_head_scores(theory, overlaps)
        if scores is not None:
            compared["head_score"] = Compared(theory["head_score"].values, scores).as_dict()
        compared["off_diagonal_cosine"] = off_diagonal_cosines(theory, overlaps)
    return compared


@dataclass(frozen=True)
class PredictorEstimates:
    """Posterior mean and variance of f on the test set, and batch means of the mean.

    parts  where each draw knows its own mean m and variance v: E[v] (within), Var[m] (between)
    """

    mean: Estimate
    variance: Estimate
    batches: np.ndarray
    parts: Mapping[str, Estimate]


def predictor_estimates(
    draws: Mapping[str, np.ndarray], moments: Mapping[str, BatchMoments]
) -> PredictorEstimates:
    """E[f] and Var[f]; Rao–Blackwellised, E[m] and E[v] + Var[m], where m and v are known."""
    if "predictor_mean" in draws:
        mean, variance = draws["predictor_mean"], draws["predictor_variance"]
        deviations = squared_deviations(mean)
        parts = {"within": mean_of(variance), "between": mean_of(deviations)}
        total = mean_of(variance + deviations)
        return PredictorEstimates(mean_of(mean), total, batch_means(mean), parts)
    if "predictor" in draws:
        values = draws["predictor"]
        return PredictorEstimates(mean_of(values), variance_of(values), batch_means(values), {})
    kept = moments["predictor_mean" if "predictor_mean" in moments else "predictor"]
    flat = kept.mean.reshape(-1, *kept.mean.shape[2:])
    between = variance_of_batches(kept)
    if "predictor_variance" not in moments:
        return PredictorEstimates(mean_of_batches(kept), between, flat, {})
    within = mean_of_batches(moments["predictor_variance"])
    total = Estimate(within.value + between.value, np.sqrt(within.mcse**2 + between.mcse**2))
    parts = {"within": within, "between": between}
    return PredictorEstimates(mean_of_batches(kept), total, flat, parts)


def sampled_accuracy(batches: np.ndarray, labels_test: np.ndarray | None) -> dict | None:
    """Accuracy of the posterior mean predictor, its MCSE, and the error of a finite test set.

    The MCSE is a bootstrap over batches of draws; the binomial error is √(a(1 − a)/tests).
    """
    if not labels_are_classes(labels_test):
        return None
    if labels_test.shape[1] == 1 and batches.ndim == 2:
        batches = batches[..., None]
    estimate = bootstrap(lambda mean: correct(mean, labels_test).mean(axis=-1), batches)
    value = float(estimate.value)
    return {
        "value": value,
        "mcse": float(estimate.mcse),
        "binomial_error": binomial_error(value, len(labels_test)),
    }
