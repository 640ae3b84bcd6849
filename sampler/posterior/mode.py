"""The mode of order parameters in Bartlett coordinates, and the Hessian there.

Without data every Bartlett coordinate has a variance of about one, and the likelihood shrinks few
directions only, those that the labels see, the less the wider the network. So in very many
coordinates, where a dense Hessian could not be stored, chains do with the widths of the prior.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.errors import InputError
from sampler.posterior.order_parameters import OrderParameters
from sampler.posterior.space import TEMPERATURE, Gaussian, Mode
from theory.architecture import HESSIAN_COORDINATES, Architecture
from theory.energy_derivatives import hessian_with_energy
from theory.laplace import LogPosterior
from theory.learning_problem import LearningProblem
from theory.saddle_point import (
    SaddlePointStatus,
    dense_direction,
    descend,
    truncated_direction,
)

# The Hessian is formed by its formula where that holds no more numbers than this at a time, else
# column by column.
FORMULA_NUMBERS = 2**26
# Below so many products the Hessian costs less than compiling it.
NUMPY_PRODUCTS = 2**29
# The mode only starts and whitens the chains: it need not be exact.
TOLERANCE = 1e-6
ROUGH_TOLERANCE = 1e-2
STEPS = 200
# Curvatures of −ln p below this count as this: the prior's are about one.
SMALLEST_CURVATURE = 1e-3

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]
Hessian = Callable[[np.ndarray], np.ndarray]


def find_mode(space: OrderParameters) -> Mode | None:
    """Newton descent on −ln p(x, y) from x = 0, where Bartlett factors are diagonal.

    The scale is that of the Hessian at its end; directions along which that is not convex keep
    their absolute curvature. None where the Hessian there is not finite. Raises InputError for a
    density that is not finite.
    """
    size, dtype = space.size, space.dtype
    few, formula_fits = size <= HESSIAN_COORDINATES, hessian_fits(space)
    columns = rows_of(space) * space.data.attended.shape[2]
    cheap = columns**2 * space.data.labels.size <= NUMPY_PRODUCTS
    if few and cheap and space.spread is None:
        function, hessian = derivatives_by_numpy(space)
    else:
        function, hessian = derivatives_by_jax(space)

    def products(point: np.ndarray) -> Callable:
        return lambda vector: np.asarray(hessian_product(space, point, vector), float)

    # At fixed P/N the mode lies a distance of order √N from the centre of the prior.
    widest = max(float(np.asarray(degrees)[0]) for degrees in space.chain.degrees)
    scales = np.full(size, widest**0.5)
    tolerance = TOLERANCE if few else ROUGH_TOLERANCE * size**0.5
    ended = descend(
        function,
        dense_direction(hessian) if few and formula_fits else truncated_direction(products),
        lambda point: scales,
        np.zeros(size, dtype),
        tolerance,
        STEPS,
    )
    if ended.status is SaddlePointStatus.NOT_FINITE:
        remedy = "the posterior density is not finite: raise it, or rescale inputs and labels"
        raise InputError("temperature", float(space.temperature), remedy)
    if few:
        curvature = hessian(ended.point)
        if not np.all(np.isfinite(curvature)):
            return None
        eigenvalues, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        scale = vectors / np.sqrt(np.maximum(np.abs(eigenvalues), SMALLEST_CURVATURE))
    else:
        scale = prior_scales(space)
    # Converted by NumPy, which compiles nothing.
    centre, scale, norm, limit = (
        jnp.asarray(np.asarray(x, dtype))
        for x in (ended.point, scale, ended.gradient_norm, tolerance)
    )
    return Mode(Gaussian(centre, scale), norm, limit)


def rows_of(space: OrderParameters) -> int:
    """Rows of U_1: paths times outputs."""
    return space.data.attended.shape[1] * space.outputs


def hessian_fits(space: OrderParameters) -> bool:
    """Whether the second derivatives in U_1, [p_1 D, p_1 D] and [p_1², p_1²], are small."""
    rows, channels = rows_of(space), space.data.attended.shape[2]
    return max((rows * channels) ** 2, rows**4) <= FORMULA_NUMBERS


def problem_of(space: OrderParameters) -> LearningProblem:
    """The learning problem whose posterior a space is, with the temperature 𝒯_0 for given."""
    chain, attended = space.chain, space.data.attended
    widths = tuple(int(np.asarray(degrees)[0]) for degrees in chain.degrees)
    variances = tuple(np.asarray(chain.variances).tolist())
    architecture = Architecture(
        chain.heads, widths, variances, channels=attended.shape[2], outputs=space.outputs
    )
    return LearningProblem(architecture, attended, space.data.labels, float(space.temperature))


def derivatives_by_numpy(space: OrderParameters) -> tuple[Function, Hessian]:
    """Value with gradient, and Hessian, of −ln p(x, y) as functions that compile nothing.

    Those of the theory, whose coordinates are the same numbers in another order.
    """
    posterior, places = LogPosterior(problem_of(space)), {}
    layers = zip(posterior.coordinates.shapes, posterior.coordinates.layers, strict=True)
    for layer, (shape, part) in enumerate(layers, start=1):
        numbers = np.arange(part.start, part.stop)
        places[f"chi_{layer}"], places[f"lower_{layer}"] = np.split(numbers, [shape.rank])
    order = np.concatenate([places[name] for name in space.shapes])
    back = np.argsort(order)

    def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = posterior.value_and_gradient(point[back])
        return value, gradient[order]

    def hessian(point: np.ndarray) -> np.ndarray:
        return posterior.hessian(point[back])[np.ix_(order, order)]

    return value_and_gradient, hessian


def derivatives_by_jax(space: OrderParameters) -> tuple[Function, Hessian]:
    """Value with gradient, and Hessian, of −ln p(x, y), compiled."""

    def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = potential_and_slope(space, point)
        return float(value), np.asarray(gradient, float)

    def hessian(point: np.ndarray) -> np.ndarray:
        if hessian_fits(space):
            return np.asarray(hessian_by_formula(space, point), float)
        columns = [hessian_product(space, point, direction) for direction in np.eye(len(point))]
        return np.asarray(jnp.stack(columns), float)

    return value_and_gradient, hessian


@jax.jit
def potential_and_slope(space: OrderParameters, point: Float[Array, " coordinate"]):
    """−ln p(x, y) and its gradient."""
    return jax.value_and_grad(space.potential)(point)


@jax.jit
def hessian_product(space: OrderParameters, point, vector) -> Float[Array, " coordinate"]:
    """Hessian of −ln p(x, y) times a vector."""
    return jax.jvp(jax.grad(space.potential), (point,), (vector,))[1]


@jax.jit
def hessian_by_formula(space: OrderParameters, point) -> Float[Array, "coordinate coordinate"]:
    """Hessian of −ln p(x, y) from the second derivatives of the energy in U_1."""
    energy = space.energy(space.unflatten(point))
    features = space.features(space.data.attended)
    hessian = hessian_with_energy(
        point,
        energy,
        features,
        lambda x: space.factors(space.unflatten(x))[0],
        lambda x: -space.log_prior(space.unflatten(x)),
    )
    if space.spread is None:
        return hessian
    # The formula holds the temperature fixed: its row is one product of Hessian and vector.
    place = list(space.shapes).index(TEMPERATURE)
    index = sum(int(np.prod(shape)) for shape in list(space.shapes.values())[:place])
    row = hessian_product(space, point, jnp.zeros_like(point).at[index].set(1.0))
    return hessian.at[index].set(row).at[:, index].set(row)


def prior_scales(space: OrderParameters) -> Float[np.ndarray, " coordinate"]:
    """Standard deviations without data: about 1, or the spread of the temperature."""
    parts = [
        np.full(int(np.prod(shape)), 1.0 if name != TEMPERATURE else float(space.spread))
        for name, shape in space.shapes.items()
    ]
    return np.concatenate(parts)
