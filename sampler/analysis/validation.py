"""Scores on the validation split, by which settings are chosen: the test set never is used."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.estimates import Estimate, RepetitionWeights
from sampler.analysis.names import label
from sampler.analysis.predictors import predicted
from sampler.analysis.scores import SCORES, LabelMoments, error_of_mean, example_scores
from sampler.mcmc.collected_draws import ThinnedDraws
from sampler.problem import AnyProblem, Problem, square_roots
from sampler.runtime import jax_settings
from theory import LearningProblem, OrderParameters, Predictor, predict, sub_network

GROUP = "validation"
# Each draw costs one solution of the training kernel; the errors say whether more are needed.
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
    given = (*moments(problem.attended_validation), problem.labels_validation, temperature)
    for score, values in example_scores(*given).items():
        columns[f"validation_{score}"] = ((), values.mean())
        columns[f"validation_{score}_by_example"] = (("validation_example",), values)
    return columns


def validation_of_subnetworks(problem: Problem, subnetworks: SubNetworks) -> dict:
    """Columns `validation_<score>_of_sub_network`: infinite width of networks of fewer heads."""
    if problem.attended_validation is None or not subnetworks:
        return {}
    scores = []
    for kept in subnetworks:
        smaller, attended = sub_network(problem.learning, kept, problem.attended_validation)
        factor = OrderParameters.gp_limit(smaller.architecture).factors[0]
        given = (*moments_at(smaller, factor)(attended), problem.labels_validation)
        scores.append(example_scores(*given, smaller.temperature))
    return {
        f"validation_{score}_of_sub_network": (("sub_network",), [s[score].mean() for s in scores])
        for score in scores[0]
    }


def predicted_by_example(theory: xr.Dataset, predictor: str) -> dict[str, np.ndarray]:
    """Score → that of a predictor at every example; empty without a validation split."""
    columns = {
        score: predicted(theory, f"validation_{score}_by_example", predictor) for score in SCORES
    }
    return {score: values for score, values in columns.items() if values is not None}


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
    """Evenly spaced draws of each chain, of all chains so many at most."""
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


def label_moments(table: xr.Dataset, weights: RepetitionWeights = None) -> LabelMoments:
    """Moments of the labels of the validation split over the draws that were kept."""
    names = ("predictor_mean", "predictor_variance", "temperature")
    return LabelMoments.of(*(table[name].values for name in names), weights)


def sampled_scores(table: xr.Dataset, weights: RepetitionWeights = None) -> dict[str, Estimate]:
    """Scores of posterior mean and variance of the draws that were kept, with their errors."""
    moments, labels = label_moments(table, weights), table["labels"].values

    def averages(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        scores = example_scores(mean, variance, labels, 0.0)
        return np.stack([values.mean(axis=-1) for values in scores.values()], axis=-1)

    of_all = moments.estimate(averages)
    by_example = example_scores(*moments.posterior, labels, 0.0)
    return {
        score: Estimate(
            of_all.value[place],
            of_all.mcse[place],
            of_all.deviations[:, place],
            of_all.degrees,
            error_of_mean(values),
            repetitions=of_all.repetitions,
        )
        for place, (score, values) in enumerate(by_example.items())
    }


def sampled_by_example(
    table: xr.Dataset, weights: RepetitionWeights = None
) -> dict[str, np.ndarray]:
    """Score → that of posterior mean and variance at every example of the validation split."""
    moments = label_moments(table, weights)
    return example_scores(*moments.posterior, table["labels"].values, 0.0)
