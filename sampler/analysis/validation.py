"""Scores on the validation split, by which settings are chosen: the test set never is used."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.draws import VALIDATION, Draws
from sampler.analysis.estimates import Estimate
from sampler.analysis.names import label
from sampler.analysis.scores import (
    OUTPUT,
    LabelMoments,
    error_of_mean,
    example_scores,
    labelled,
    with_output,
)
from sampler.mcmc.collected_draws import ThinnedDraws
from sampler.problem import AnyProblem, Problem, square_roots
from sampler.runtime import jax_settings
from theory import LearningProblem, OrderParameters, Predictor, predict, sub_network

# Each draw costs one solution of the training kernel; by their errors more may be needed.
MOST_DRAWS = 200

Moments = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
SubNetworks = tuple[tuple[tuple[int, ...], ...], ...]


# --- of theories


def moments_at(learning: LearningProblem, factor) -> Moments:
    """A function of attended inputs to mean and variance of f at U_1 = F Fᵀ."""

    def moments(attended) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = predict(Predictor.for_examples(learning, attended), factor)
        return np.asarray(mean), np.asarray(variance)

    return moments


def validation_columns(
    problem: Problem, moments: Moments, temperature: float | None = None
) -> dict:
    """Columns `validation_<score>` of a predictor, the mean and that of every example.

    At the temperature of the problem, where no other is given.
    """
    if problem.attended_validation is None:
        return {}
    columns: dict = {}
    temperature = problem.temperature if temperature is None else temperature
    scores = scores_of(moments(problem.attended_validation), problem, temperature)
    for score, values in scores.items():
        columns[f"validation_{score}"] = ((), float(values.mean()))
        columns[f"validation_{score}_by_example"] = (values.dims, values.values)
    return columns


def scores_of(
    moments: tuple[np.ndarray, np.ndarray], problem: Problem, temperature: float
) -> dict[str, xr.DataArray]:
    """Scores on the validation split of mean and variance of f there, by example."""
    labels = xr.DataArray(problem.labels_validation, dims=("validation_example", OUTPUT))
    mean, variance = (labelled(values, labels) for values in moments)
    return example_scores(mean, variance + temperature, labels)


def validation_of_subnetworks(problem: Problem, subnetworks: SubNetworks) -> dict:
    """Columns `validation_<score>_of_sub_network`: infinite width of networks of fewer heads."""
    if problem.attended_validation is None or not subnetworks:
        return {}
    scores = []
    for kept in subnetworks:
        smaller, attended = sub_network(problem.learning, kept, problem.attended_validation)
        factor = OrderParameters.gp_limit(smaller.architecture).factors[0]
        moments = moments_at(smaller, factor)(attended)
        scores.append(scores_of(moments, problem, smaller.temperature))
    return {
        f"validation_{score}_of_sub_network": (
            ("sub_network",),
            [float(one[score].mean()) for one in scores],
        )
        for score in scores[0]
    }


# --- of draws


def validation_draws(problem: AnyProblem, drawn: Mapping[str, np.ndarray]) -> xr.Dataset | None:
    """Mean and variance of f on the validation split given U_1, for some draws of every chain.

    None without a validation split.
    """
    if problem.attended_validation is None:
        return None
    moments = predictor_draws(problem, problem.attended_validation, drawn, MOST_DRAWS)
    return validation_table(problem, *moments, drawn)


def validation_predictors(
    problem: AnyProblem, kept: ThinnedDraws, drawn: Mapping[str, np.ndarray]
) -> xr.Dataset:
    """The same of draws of all weights, given which f is known: its variance is zero."""
    chosen = kept_draws(*kept.values.shape[:2], MOST_DRAWS)
    mean = np.asarray(kept.values[:, chosen], dtype=np.float64)
    return validation_table(problem, kept.draws[chosen], mean, np.zeros_like(mean), drawn)


def kept_draws(chains: int, draws: int, most: int) -> np.ndarray:
    """Evenly spaced draws of each chain, up to a total number."""
    kept = max(1, min(draws, most // chains))
    return np.arange(kept) * draws // kept


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
    overlaps = drawn["order_parameter"]
    chosen = kept_draws(*overlaps.shape[:2], most)
    shape = len(overlaps), len(chosen)

    def of_chosen(values: np.ndarray) -> np.ndarray:
        return values[:, chosen].reshape(-1, *values.shape[2:])

    with jax_settings():
        predictor = Predictor.for_examples(problem.learning, jnp.asarray(attended))
        factors = jnp.asarray(square_roots(of_chosen(overlaps)))
        temperatures = np.full(len(factors), problem.learning.temperature)
        if "temperature" in drawn:
            temperatures = of_chosen(drawn["temperature"])
        moments = _predict_each(predictor, factors, jnp.asarray(temperatures))
    mean, variance = (np.asarray(moment).reshape(*shape, *moment.shape[1:]) for moment in moments)
    return chosen, mean, variance


@jax.jit
def _predict_each(predictor: Predictor, factors, temperatures):
    def of_draw(draw):
        factor, temperature = draw
        energy = replace(predictor.energy, temperature=temperature)
        return replace(predictor, energy=energy)(factor)

    return jax.lax.map(of_draw, (factors, temperatures))


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
    temperature = np.full(mean.shape[:2], problem.temperature)
    if "temperature" in drawn:
        temperature = drawn["temperature"][:, chosen]
    axes = ("chain", "draw", "validation_example", "output")
    columns = {
        "predictor_mean": (axes, mean),
        "predictor_variance": (axes, variance),
        "labels": (axes[2:], problem.labels_validation),
        "temperature": (axes[:2], temperature),
    }
    return label(xr.Dataset(columns), problem).assign_coords(draw=chosen)


def validation_scores(draws: Draws) -> dict[str, Estimate]:
    """Scores of posterior mean and variance of the draws that were kept, with their errors.

    Empty without a validation split.
    """
    moments = draws.validation_moments
    return (
        {}
        if moments is None
        else sampled_scores(moments, with_output(draws.group(VALIDATION)["labels"]))
    )


def sampled_scores(moments: LabelMoments, labels: xr.DataArray) -> dict[str, Estimate]:
    """The same from the moments of labels."""

    def averages(mean: xr.DataArray, variance: xr.DataArray) -> xr.DataArray:
        scores = example_scores(mean, variance, labels)
        return xr.concat(
            [values.mean(labels.dims[0]) for values in scores.values()], "score"
        ).transpose(..., "score")

    of_all, by_example = moments.estimate(averages), example_scores(*moments.posterior, labels)
    return {
        score: replace(
            of_all,
            value=of_all.value[place],
            mcse=of_all.mcse[place],
            deviations=of_all.deviations[:, place],
            test_error=error_of_mean(values),
        )
        for place, (score, values) in enumerate(by_example.items())
    }
