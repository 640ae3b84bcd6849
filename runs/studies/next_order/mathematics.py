"""The theory of two orders beside the exact posterior of U₁, and power laws of what is left.

Data grow as copies of one small problem, each copy in channels of its own, so that nothing but the
size changes. The posterior is known from weighted importance draws, as many as bring their noise
below a fifth of what is left of the difference; beyond their reach chains draw it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import chdtri

import sampler
from runs.studies.numbers import estimate
from sampler.analysis.difference import DIFFERS, NOT_TRUSTED, RESOLVED, difference_of
from sampler.analysis.estimates import Estimate
from theory import LearningProblem, solve_next_order, solve_saddle_point

BLOCK = 200_000
PATHS, CHANNELS = 2, 4
FEWEST_WIDTHS = 3
SLOPES = (-5.0, 3.0)
ORDERS = ("leading", "next")
Data = tuple[np.ndarray, np.ndarray]  # attended inputs and labels


# --- data


def base(examples: int, outputs: int) -> Data:
    """Two paths, one of them weaker; outputs are signs of linear functions of the other one."""
    rng = np.random.default_rng(1)
    attended = rng.standard_normal((examples, PATHS, CHANNELS)) * np.array([1.0, 0.6])[:, None]
    return attended, np.sign(attended[:, 0] @ rng.standard_normal((CHANNELS, outputs)))


def data_of(outputs: int, copies: int) -> Data:
    """Several copies of one problem, the energy of which is multiplied; of no outputs, an example.

    Two outputs have eight examples in a copy, ten have six.
    """
    if not outputs:
        return np.ones((1, 1, 1)), np.ones((1, 1))
    attended, labels = base({2: 8, 10: 6}[outputs], outputs)
    examples = len(attended)
    spread = np.zeros((copies, examples, PATHS, copies, CHANNELS))
    for copy in range(copies):
        spread[copy, :, :, copy] = np.sqrt(copies) * attended
    shape = copies * examples, PATHS, copies * CHANNELS
    return spread.reshape(shape), np.tile(labels, (copies, 1))


def recipe_of(data: Data, width: int, temperature: float) -> sampler.Recipe:
    """A network of this width that learns these data."""
    attended, labels = data
    return sampler.Recipe(
        task=sampler.Arrays(
            attended=attended,
            labels=labels,
            heads=[attended.shape[1]],
            attended_test=attended[:1],
        ),
        network={"widths": width},
        posterior={"temperature": temperature},
    )


# --- the exact posterior by weighted draws


def exact(
    problem, predictions: list[np.ndarray], most_draws: int, stream: tuple[int, ...] = ()
) -> Estimate:
    """Posterior mean of U₁ with the covariance of its error.

    Draws until the noise is below a fifth of the smallest difference from the predictions. Means of
    different streams are independent.
    """
    space = problem.space("order_parameters")

    def overlap(point):
        factor = space.factors(space.unflatten(point))[0]
        return (factor @ factor.T).reshape(-1)

    overlaps = jax.jit(jax.vmap(overlap))
    total, moments, squares, of_weights, draws, first = 0.0, 0.0, 0.0, 0.0, 0, None
    while draws < most_draws:
        # Around the mode alone: its heavy tails bound the weights of so many draws.
        block = sampler.weighted_draws(
            problem, min(BLOCK, most_draws), [draws + 1, *stream], adapted=False
        )
        if not block.trusted:
            raise SystemExit(block.explain())
        values = np.asarray(overlaps(jnp.asarray(block.points)))
        first = block.log_evidence if first is None else first
        weights = block.weights * np.exp(block.log_evidence - first)
        total, moments = total + weights.sum(), moments + weights @ values
        of_weights += weights @ weights
        mean = moments / total
        away = weights[:, None] * (values - mean)
        squares = squares + away.T @ away
        draws += len(values)
        noise = squares / total**2
        gaps = [np.sum((mean - one.reshape(-1)) ** 2) for one in predictions]
        if min(gaps) > 26.0 * np.trace(noise):
            break
    sizes, directions = np.linalg.eigh(noise)
    rows = np.sqrt(np.maximum(sizes, 0.0))[:, None] * directions.T
    return Estimate(mean, np.sqrt(np.diag(noise)), rows, int(total**2 / of_weights) - 1)


def by_weighted_draws(
    outputs: int, copies: int, width: int, temperature: float, most_draws: int
) -> dict:
    """Relative difference of U₁ of both orders, with its error."""
    recipe = recipe_of(data_of(outputs, copies), width, temperature)
    problem = sampler.make_problem(recipe)
    learning: LearningProblem = problem.learning
    saddle = solve_saddle_point(learning)
    beyond = solve_next_order(learning, saddle, evidence=False)
    predictions = [np.asarray(saddle.order_parameters.matrices[0]), beyond.order_parameters[0]]
    sampled = exact(problem, predictions, most_draws)
    found = [difference_of(one.reshape(-1), sampled) for one in predictions]
    return dict(zip(ORDERS, map(row_of, found), strict=True))


def row_of(one: Mapping) -> list:
    """Size, error, whether there is a difference, and what it is below."""
    # Near zero the square is known, not its root.
    error, below = one["difference_error"], one["below"]
    error = error if one["state"] == RESOLVED else np.fmin(error, below)
    return [one["difference"], float(error), one["state"] in (RESOLVED, DIFFERS), below]


def by_chains(outputs: int, copies: int, width: int, temperature: float, draws: int) -> dict:
    """The same by chains, without what cannot be trusted."""
    recipe = recipe_of(data_of(outputs, copies), width, temperature)
    theory = sampler.solve(recipe)
    if not theory.attrs["converged"]:
        raise SystemExit(theory.attrs["explanation"])
    compared = sampler.compare(theory, sampler.sample(recipe, draws=draws, progress=False))
    fine = theory.attrs["next_order_status"] == "fine"
    found = {
        order: compared.rows["order_parameter", order]
        for order in (ORDERS if fine else ["leading"])
    }
    return {order: row_of(one) for order, one in found.items() if one["state"] != NOT_TRUSTED}


def two_paths(width: int, draws: int) -> dict:
    """What the next order leaves of U₁ of the two paths of finite_size.toml, on the good path.

    square, freedom: δᵀ Σ⁻¹ δ of all elements, which is χ² where the next order is exact.
    """
    recipe = sampler.Recipe(
        task=sampler.MarkovChain(perpendicular_noise=5.0, seed=8),
        attention={"heads": [["good", "uniform"], ["uniform"]]},
        network={"widths": width},
    )
    problem = sampler.make_problem(recipe)
    saddle = solve_saddle_point(problem.learning)
    beyond = solve_next_order(problem.learning, saddle, evidence=False).order_parameters[0]
    sampled = exact(problem, [beyond], draws, stream=(width,))
    upper = np.flatnonzero(np.triu(np.ones(beyond.shape)))
    gap, rows = (sampled.value - beyond.reshape(-1))[upper], sampled.deviations[:, upper]
    noise = rows.T @ rows
    return {
        "exact": estimate(sampled.value[0], sampled.mcse[0], "MCSE"),
        "next order": beyond[0, 0],
        "difference": estimate(gap[0], sampled.mcse[0], "MCSE"),
        "square": gap @ np.linalg.solve(noise, gap),
        "freedom": len(gap),
    }


# --- power laws


@dataclass(frozen=True)
class PowerLaw:
    """difference ≈ prefactor · N^slope, with the standard error of the slope.

    NaN for fewer than three widths, or where no difference can be told from Monte Carlo noise.
    """

    slope: float
    slope_error: float
    prefactor: float


UNDEFINED = PowerLaw(np.nan, np.nan, np.nan)


def fit_power_law(widths: np.ndarray, difference: np.ndarray, mcse: np.ndarray) -> PowerLaw:
    """Least squares of theory − exact, with its sign, against c N^slope: min Σ (d − c N^s)²/MCSE².

    All points enter, however small their difference: choosing the resolved ones would keep those
    that noise has made large. The error of the slope is inflated by √(χ²/degrees) where the points
    scatter more than their errors, since a power law is only the leading term.
    """
    width, gap, error = (np.asarray(of, float) for of in (widths, difference, mcse))
    if len(width) < FEWEST_WIDTHS or not np.all(error > 0.0):
        return UNDEFINED
    centre = np.exp(np.log(width).mean())  # so that prefactor and slope are nearly independent
    logs, target = np.log(width / centre), gap / error

    def best_prefactor(slope: float) -> tuple[float, float]:
        """The prefactor at a slope, and χ² there."""
        shape = np.exp(slope * logs) / error
        best = float(shape @ target / (shape @ shape))
        return best, float(np.sum((target - best * shape) ** 2))

    slopes = np.linspace(*SLOPES, 161)
    start = int(np.argmin([best_prefactor(slope)[1] for slope in slopes]))
    around = slopes[max(0, start - 1)], slopes[min(start + 1, len(slopes) - 1)]
    fit = minimize_scalar(lambda slope: best_prefactor(slope)[1], bounds=around, method="bounded")
    slope = float(fit.x)
    prefactor, chi_square = best_prefactor(slope)
    # Two numbers were fitted: by chance alone they gain more than this in one case of a thousand.
    if np.sum(target**2) - chi_square < chdtri(2, 1e-3):
        return UNDEFINED
    shape = np.exp(slope * logs) / error
    jacobian = np.stack([shape, prefactor * logs * shape], axis=1)
    scatter = max(1.0, chi_square / (len(width) - 2))
    slope_error = np.sqrt(scatter * np.linalg.inv(jacobian.T @ jacobian)[1, 1])
    return PowerLaw(slope, float(slope_error), float(prefactor * centre**-slope))


# --- of all widths


def summary(found: dict[str, dict]) -> dict[str, dict]:
    """Differences by width of both orders, and the exponent of their power law."""
    orders = {}
    for order in ORDERS:
        rows = {width: one[order] for width, one in found.items() if order in one}
        values = np.array(list(rows.values())).reshape(-1, 4)
        law = fit_power_law(np.array([*map(int, rows)]), values[:, 0], values[:, 1])
        orders[order] = {
            "slope": estimate(law.slope, law.slope_error, "of the fit"),
            "difference": {
                width: estimate(value, error, "MCSE") | {"differs": bool(differs), "below": below}
                for width, (value, error, differs, below) in rows.items()
            },
        }
    return orders
