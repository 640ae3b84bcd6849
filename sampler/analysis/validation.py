"""Scores on the validation split, by which settings are chosen: the test set never is used."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.estimate import (
    RepetitionWeights,
    batch_means,
    bootstrap,
    centre_of,
)
from sampler.analysis.labels import label
from sampler.mcmc.kept import ThinnedDraws
from sampler.mcmc.tempered import repetition_weights
from sampler.problem import AnyProblem, Problem, square_roots
from sampler.runtime import jax_settings
from theory import LearningProblem, OrderParameters, Predictor, predict, sub_network
from theory.observables import correct, labels_are_classes

SCORES = ("log_predictive_density", "accuracy", "squared_error")
# Each draw costs one solution of the training kernel; the errors say whether more are needed.
MOST_DRAWS = 200


def example_scores(mean, variance, labels, temperature) -> dict[str, np.ndarray]:
    """Scores [..., example] of means and variances [..., example, output], outputs averaged.

    (y − m)²,   ln N(y; m, v + 𝒯),   and, where labels are classes, whether m finds the class
    """
    error = (labels - mean) ** 2
    density = log_normal_density(error, variance + temperature)
    scores = {"log_predictive_density": density.mean(axis=-1), "squared_error": error.mean(axis=-1)}
    if labels_are_classes(labels):
        scores["accuracy"] = correct(mean, labels).astype(np.float64)
    return scores


def log_normal_density(squared_error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """ln N(y; m, s) of squared errors (y − m)² and variances s."""
    return -0.5 * (np.log(2 * np.pi * variance) + squared_error / variance)


Moments = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def moments_at(learning: LearningProblem, factor) -> Moments:
    """Mean and variance of f on any attended inputs, at U_1 = F Fᵀ."""

    def of(attended):
        return tuple(map(np.asarray, predict(Predictor.for_examples(learning, attended), factor)))

    return of


def validation_columns(
    problem: Problem, moments: Moments, name: str, temperature: float | None = None
) -> dict:
    """Columns `validation_<score>_<name>` of `theory.nc`, the mean and that of every example.

    At the temperature of the problem, where no other is given.
    """
    if problem.attended_validation is None:
        return {}
    columns: dict = {}
    mean, variance = moments(problem.attended_validation)
    temperature = problem.temperature if temperature is None else temperature
    scores = example_scores(mean, variance, problem.labels_validation, temperature)
    for score, values in scores.items():
        columns[f"validation_{score}_{name}"] = ((), values.mean())
        columns[f"validation_{score}_{name}_by_example"] = (("validation_example",), values)
    return columns


def validation_of_subnetworks(problem: Problem, subnetworks) -> dict:
    """Columns `validation_<score>_gp_subnetwork`: the GP limit of networks of fewer heads."""
    if problem.attended_validation is None or not subnetworks:
        return {}
    found = []
    for kept in subnetworks:
        smaller, attended = sub_network(problem.learning, kept, problem.attended_validation)
        factor = OrderParameters.gp_limit(smaller.architecture).factors[0]
        mean, variance = moments_at(smaller, factor)(attended)
        labels, temperature = problem.labels_validation, smaller.temperature
        found.append(example_scores(mean, variance, labels, temperature))
    return {
        f"validation_{score}_gp_subnetwork": (("subnetwork",), [s[score].mean() for s in found])
        for score in found[0]
    }


def validation_draws(problem: AnyProblem, drawn: Mapping[str, np.ndarray]) -> xr.Dataset | None:
    """Mean and variance of f on the validation split given U_1, for some draws of every chain.

    None without a validation split.
    """
    if problem.attended_validation is None:
        return None
    moments = predictor_draws(problem, problem.attended_validation, drawn, MOST_DRAWS)
    return validation_table(problem, *moments, drawn)


def predictor_draws(
    problem: Problem,
    attended: Float[Array | np.ndarray, "example path channel"],
    drawn: Mapping[str, np.ndarray],
    most: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chosen draws of each chain, `most` of all, and mean and variance of f given U_1 in them.

    Both are [chain, draw, example, output]. drawn has U_1, `order_parameter` [chain, draw, row,
    row], and the temperature where it was sampled; given these the predictor is exact,
    whatever the space that was sampled.
    """
    order_parameters = drawn["order_parameter"]
    chains = order_parameters.shape[0]
    chosen = kept_draws(*order_parameters.shape[:2], most)

    def of_chosen(values: np.ndarray) -> np.ndarray:
        return values[:, chosen].reshape(-1, *values.shape[2:])

    with jax_settings():
        predictor = Predictor.for_examples(problem.learning, jnp.asarray(attended))
        factors = jnp.asarray(square_roots(of_chosen(order_parameters)))
        temperatures = np.full(len(factors), problem.learning.temperature)
        if "temperature" in drawn:
            temperatures = of_chosen(drawn["temperature"])
        moments = _predict_each(predictor, factors, jnp.asarray(temperatures))
    mean, variance = (
        np.asarray(values).reshape(chains, chosen.size, *values.shape[1:]) for values in moments
    )
    return chosen, mean, variance


def validation_predictors(
    problem: AnyProblem,
    kept: ThinnedDraws,
    drawn: Mapping[str, np.ndarray],
) -> xr.Dataset:
    """Predictors of draws of all weights on the validation split [chain, draw, example, output].

    Given the weights f is known: its mean is f itself and its variance zero.
    """
    chosen = kept_draws(*kept.values.shape[:2], MOST_DRAWS)
    mean = np.asarray(kept.values[:, chosen], dtype=np.float64)
    return validation_table(problem, kept.draws[chosen], mean, np.zeros_like(mean), drawn)


def kept_draws(chains: int, draws: int, most: int) -> np.ndarray:
    """Evenly spaced draws of each chain, of all chains so many at most."""
    kept = max(1, min(draws, most // chains))
    return np.arange(kept) * draws // kept


def validation_table(
    problem: AnyProblem,
    chosen: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    drawn: Mapping[str, np.ndarray],
) -> xr.Dataset:
    """Mean and variance of f [chain, draw, example, output] in the chosen draws, and labels.

    The temperature is that of every draw, if `drawn` has it.
    """
    known = np.full(mean.shape[:2], problem.temperature)
    temperature = drawn["temperature"][:, chosen] if "temperature" in drawn else known
    axes = ("chain", "draw", "validation_example", "output")
    columns = {
        "predictor_mean": (axes, mean),
        "predictor_variance": (axes, variance),
        "labels": (axes[2:], problem.labels_validation),
        "temperature": (axes[:2], temperature),
    }
    return label(xr.Dataset(columns), problem).assign_coords(draw=chosen)


@jax.jit
def _predict_each(predictor: Predictor, factors, temperatures):
    def of_draw(draw):
        factor, temperature = draw
        energy = replace(predictor.energy, temperature=temperature)
        return replace(predictor, energy=energy)(factor)

    return jax.lax.map(of_draw, (factors, temperatures))


def sampled_scores(table: xr.Dataset, weights: RepetitionWeights = None) -> dict[str, dict]:
    """Scores of the posterior mean and variance, from the draws that `validation_draws` kept.

    Var[f] = E[Var[f | U_1]] + Var[E[f | U_1]]; the MCSE is a bootstrap over batches of draws.
    """
    mean, variance = table["predictor_mean"].values, table["predictor_variance"].values
    labels, temperature = table["labels"].values, table["temperature"].values[..., None, None]
    count, centre = mean.shape[0] * mean.shape[1], centre_of(mean, weights)
    # A label varies by f and by the temperature, which may have been sampled.
    parts = np.stack([mean, variance + temperature, (mean - centre) ** 2], axis=-1)

    def scores(means: np.ndarray) -> dict[str, np.ndarray]:
        shift = means[..., 0] - centre
        between = (means[..., 2] - shift**2) * (count / max(count - 1, 1))
        return example_scores(means[..., 0], means[..., 1] + between, labels, 0.0)

    def averages(means: np.ndarray) -> np.ndarray:
        return np.stack([values.mean(axis=-1) for values in scores(means).values()], axis=-1)

    batches = batch_means(parts, weights=weights)
    found = scores(centre_of(parts, weights))
    errors = bootstrap(averages, batches, weights=weights).mcse
    return {
        score: {**score_with_error(values), "mcse": error}
        for (score, values), error in zip(found.items(), errors, strict=True)
    }


def score_with_error(by_example: np.ndarray) -> dict:
    """A score, its standard error by the finite validation split, and that of every example."""
    count = by_example.size
    error = by_example.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return {"value": by_example.mean(), "validation_error": error, "by_example": by_example}


def theory_scores(theory: xr.Dataset, name: str) -> dict[str, dict]:
    """Scores stored in `theory.nc` under a name; empty without a validation split."""
    columns = {score: f"validation_{score}_{name}_by_example" for score in SCORES}
    return {
        score: score_with_error(theory[column].values)
        for score, column in columns.items()
        if column in theory
    }


def validation_comparison(theory: xr.Dataset | None, tree: xr.DataTree) -> dict[str, Mapping]:
    """The part `validation` of `comparison.json`: scores of theory, GP limit and samples."""
    found = {}
    if theory is not None:
        names = ("theory", "next_order", "gp", "gp_own")
        found = {name: theory_scores(theory, name) for name in names}
    if "validation" in tree.children:
        found["sampled"] = sampled_scores(
            tree["validation"].to_dataset(), repetition_weights(tree["sample_stats"].to_dataset())
        )
    found = {name: scores for name, scores in found.items() if scores}
    return {"validation": found} if found else {}
