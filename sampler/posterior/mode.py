"""The mode of order parameters in Bartlett coordinates, and the Hessian there.

Without data every Bartlett coordinate has a variance of about one, and the likelihood shrinks few
directions only, those that the labels see, the less the wider the network. So in very many
coordinates, where a dense Hessian could not be stored, chains do with the widths of the prior.
"""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sampler.errors import InputError
from sampler.posterior.densities import hessian_products, potential_and_slope
from sampler.posterior.order_parameters import OrderParameterSpace
from sampler.posterior.space import Gaussian, Mode
from theory.architecture import Architecture
from theory.laplace import LogPosterior
from theory.learning_problem import LearningProblem
from theory.saddle_point import (
    SaddlePointStatus,
    dense_direction,
    descend,
    truncated_direction,
)
from theory.size_limits import HESSIAN_COORDINATES, next_order_fits

# The mode only starts and whitens the chains: it need not be exact.
TOLERANCE = 1e-6
ROUGH_TOLERANCE = 1e-2
STEPS = 200
# Curvatures of −ln p below this count as this: the prior's are about one.
SMALLEST_CURVATURE = 1e-3


def find_mode(space: OrderParameterSpace) -> Mode | None:
    """Newton descent on −ln p(θ, y) from θ = 0, where Bartlett factors are diagonal.

    The scale is that of the Hessian at its end; directions along which that is not convex keep
    their absolute curvature. None where the Hessian there is not finite. Raises InputError for a
    density that is not finite.
    """
    size, dtype, derivatives = space.size, space.dtype, Derivatives(space)
    few = size <= HESSIAN_COORDINATES
    if few and derivatives.of_theory:
        direction = dense_direction(derivatives.hessian)
    else:
        direction = truncated_direction(
            lambda point: lambda vector: derivatives.products(point, vector[None])[0]
        )
    # At fixed P/N the mode lies a distance of order √N from the centre of the prior.
    scales = np.full(size, max(derivatives.problem.architecture.widths) ** 0.5)
    tolerance = TOLERANCE if few else ROUGH_TOLERANCE * size**0.5
    start = np.zeros(size, dtype)
    function = derivatives.value_and_slope
    ended = descend(function, direction, lambda point: scales, start, tolerance, STEPS)
    if ended.status is SaddlePointStatus.NOT_FINITE:
        remedy = "the posterior density is not finite: raise it, or rescale inputs and labels"
        raise InputError("temperature", float(space.temperature), remedy)
    if few:
        curvature = derivatives.hessian(ended.point)
        if not np.all(np.isfinite(curvature)):
            return None
        eigenvalues, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        scale = vectors / np.sqrt(np.maximum(np.abs(eigenvalues), SMALLEST_CURVATURE))
    else:
        scale = np.ones(size)
        if (others := derivatives.is_temperature).any():
            scale[others] = np.asarray(space.prior_gaussian.scale)[others]
    # Converted by NumPy, which compiles nothing.
    centre, scale, norm, limit = (
        jnp.asarray(np.asarray(x, dtype))
        for x in (ended.point, scale, ended.gradient_norm, tolerance)
    )
    return Mode(Gaussian(centre, scale), norm, limit)


class Derivatives:
    """Derivatives of −ln p(θ, y): those of the theory, which compiles nothing, where it has them.

    Its coordinates are the same numbers in another order; its temperature is the given one.
    """

    def __init__(self, space: OrderParameterSpace) -> None:
        self.space, self.problem = space, problem_of(space)
        self.of_theory = next_order_fits(self.problem.architecture)
        # Of one temperature at a time: it holds all features.
        self.posterior = lru_cache(1)(lambda given: LogPosterior(problem_of(space, given)))
        coordinates = self.posterior(self.problem.temperature).coordinates
        shapes, places = self.problem.architecture.bartlett_shapes, {}
        layers = zip(shapes, coordinates.layers, strict=True)
        for layer, (shape, part) in enumerate(layers, start=1):
            numbers = np.arange(part.start, part.stop)
            places[f"chi_{layer}"], places[f"lower_{layer}"] = np.split(numbers, [shape.rank])
        # Where the theory has each coordinate; it has no temperature.
        self.places = np.concatenate([places.get(name, [-1]) for name in space.shapes])
        self.is_temperature = self.places < 0

    def value_and_slope(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""
        if self.of_theory and not self.is_temperature.any():
            value, slope = self.posterior(self.problem.temperature).value_and_gradient(
                self.in_theory(point)
            )
            return value, slope[self.places]
        value, slope = potential_and_slope(self.space, point)
        return float(value), np.asarray(slope, float)

    def hessian(self, point: np.ndarray) -> Float[np.ndarray, "coordinate coordinate"]:
        """Second derivatives."""
        if not self.of_theory:
            return self.products(point, np.eye(len(point)))
        known, places = ~self.is_temperature, self.places[~self.is_temperature]
        # Its coordinate is ln(𝒯/𝒯_0).
        temperature = self.problem.temperature * float(np.exp(point[self.is_temperature].sum()))
        of_theory = self.posterior(temperature).hessian(self.in_theory(point))
        hessian = np.zeros((len(point), len(point)))
        hessian[np.ix_(known, known)] = of_theory[np.ix_(places, places)]
        if not known.all():
            row = self.products(point, 1.0 - known[None])
            hessian[~known], hessian[:, ~known] = row, row.T
        return hessian

    def products(self, point: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """The Hessian times each direction."""
        return np.asarray(hessian_products(self.space, point, directions), float)

    def in_theory(self, point: np.ndarray) -> np.ndarray:
        """Coordinates of the theory at a point."""
        known = ~self.is_temperature
        coordinates = np.empty(known.sum())
        coordinates[self.places[known]] = point[known]
        return coordinates


def problem_of(space: OrderParameterSpace, temperature: float | None = None) -> LearningProblem:
    """The learning problem whose posterior a space is at a temperature, by default 𝒯_0."""
    chain, attended = space.chain, space.fixed.attended
    widths = tuple(int(np.asarray(degrees)[0]) for degrees in chain.degrees)
    variances = tuple(np.asarray(chain.variances).tolist())
    architecture = Architecture(
        chain.heads, widths, variances, channels=attended.shape[2], outputs=space.outputs
    )
    given = float(space.temperature) if temperature is None else temperature
    return LearningProblem(architecture, attended, space.data.labels, given)
