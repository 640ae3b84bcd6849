"""What the theory says of a head: its score, and the loss that its predictor gains without it.

The head's paths can leave the sum f(x) = Σ_π m_π(x) after learning; its rows of U₁ can be zeroed,
so that the readout of the rest is learned again; and the network without it can be solved anew.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas
from scipy.stats import spearmanr

import sampler
from theory import (
    AttentionPaths,
    Predictor,
    mean_without,
    path_contributions,
    predict,
    solve_saddle_point,
    sub_network,
)

Head = tuple[int, int]  # layer and head, counted from 0
BEST = "taylor"  # what practitioners use
SCORE, REMOVED, ZEROED, AGAIN = "score", "removed", "zeroed", "solved_again"
NAMES = {
    BEST: "Taylor |∂loss/∂gate|",
    "magnitude": "magnitude of the weights",
    SCORE: "head score",
    REMOVED: "loss of the theory",
    ZEROED: "loss with U₁ zeroed",
    AGAIN: "loss solved again",
}


def numbers_of_theory(
    recipe: sampler.Recipe, heads: Sequence[Head], again: bool = True
) -> pandas.DataFrame:
    """Head scores, and squared losses gained on validation examples without each of these heads.

    again  whether the theory is solved once more without each head: NaN where it has no solution
    """
    table = sampler.solve(recipe.changed({"theory.next_order": False})).sel(predictor="leading")
    problem = sampler.make_problem(recipe)
    learning, attended = problem.learning, problem.attended_validation
    labels = np.asarray(problem.labels_validation)
    factor = root_of(table["order_parameter"].values)
    paths = AttentionPaths(learning.architecture.heads)
    predictor = Predictor.for_examples(learning, attended)
    brought = np.asarray(path_contributions(learning, factor, attended))
    whole = mean_squares(brought.sum(axis=1) - labels)
    rows = []
    for head in heads:
        kept = np.where(paths.through([head]), 0.0, 1.0).repeat(len(factor) // paths.count)
        means = {
            REMOVED: mean_without(brought, paths, [head]),
            ZEROED: predict(predictor, kept[:, None] * factor)[0],
        }
        if again:
            means[AGAIN] = solved_again(learning, attended, head)
        gained = {key: mean_squares(mean - labels) - whole for key, mean in means.items()}
        rows.append({SCORE: float(table["head_score"][head])} | gained)
    return pandas.DataFrame(rows)


def rank_correlation(numbers: np.ndarray, costs: np.ndarray, resampled: int = 2000) -> dict:
    """Spearman's ρ of numbers of heads with costs, and 95 % if other heads had been trained."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(len(costs), size=(resampled, len(costs)))
    drawn = [one for one in drawn if min(np.ptp(numbers[one]), np.ptp(costs[one])) > 0]
    again = [spearmanr(numbers[one], costs[one]).statistic for one in drawn]
    low, high = np.quantile(again, [0.025, 0.975])
    return {"rho": spearmanr(numbers, costs).statistic, "low": low, "high": high}


def ahead(rho: dict[str, float], key: str) -> float:
    """1 where a number is ahead of Taylor importance, ½ where they are equal."""
    return float(rho[key] > rho[BEST]) + 0.5 * float(rho[key] == rho[BEST])


def over_models(
    statistic: Callable, values: dict[str, float], models: dict[str, dict], resampled: int = 2000
) -> dict:
    """A statistic of models, and its 95 % interval by resampling tasks with all their models."""
    by_task: dict[str, list[float]] = {}
    for name, value in values.items():
        by_task.setdefault(models[name]["task"], []).append(value)
    tasks, generator = list(by_task.values()), np.random.default_rng(0)
    again = []
    for _ in range(resampled):
        drawn = generator.integers(len(tasks), size=len(tasks))
        again.append(statistic(np.concatenate([tasks[place] for place in drawn])))
    low, high = np.quantile(again, [0.025, 0.975])
    value = statistic(list(values.values()))
    return {"value": value, "low": low, "high": high, "models": len(values)}


def root_of(overlap: np.ndarray) -> np.ndarray:
    """F of U₁ = F Fᵀ."""
    values, vectors = np.linalg.eigh(overlap)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def mean_squares(residuals) -> float:
    """The squared loss of residuals [example, output]."""
    return float((np.asarray(residuals) ** 2).sum(axis=1).mean())


def solved_again(learning, attended, removed: Head) -> np.ndarray | float:
    """The mean of f in the theory of the network without a head; NaN where it has no solution."""
    kept = [
        [head for head in range(count) if (layer, head) != removed]
        for layer, count in enumerate(learning.architecture.heads)
    ]
    if not all(kept):
        return np.nan
    smaller, attended = sub_network(learning, kept, attended)
    saddle = solve_saddle_point(smaller, starts=1)
    if not saddle.converged:
        return np.nan
    predictor = Predictor.for_examples(smaller, attended)
    return np.asarray(predict(predictor, saddle.order_parameters.factors[0])[0])
