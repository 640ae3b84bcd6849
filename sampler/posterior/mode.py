"""The mode of the posterior of order parameters.

Without data every Bartlett coordinate has a variance of about one, and the likelihood shrinks few
directions only, those that the labels see, the less the wider the network. So in very many
dimensions, where a dense Hessian could not be stored, chains do with unit masses.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.posterior.density import Coordinates, Mode
from sampler.posterior.hyper_parameters import site_spreads
from sampler.posterior.order_parameters import OrderParameterPosterior
from theory.architecture import HESSIAN_COORDINATES, HyperPriors
from theory.saddle_point import dense_direction, descend, truncated_direction

# The mode only starts and whitens the chains: it need not be exact.
MODE_TOLERANCE = 1e-6
ROUGH_TOLERANCE = 1e-2
MODE_STEPS = 200


def find_mode(posterior: OrderParameterPosterior) -> Mode:
    """Newton descent on −ln p(B_1 … B_{L+1}, y) from the centre of the prior.

    The curvature that whitens the chains is the Hessian at the mode; directions along which it is
    not convex keep their absolute curvature, so the result is always a proper scale.
    """
    coordinates, dtype = posterior.coordinates, posterior.features.dtype
    size = coordinates.size

    def value_and_gradient(point):
        value, gradient = posterior.value_and_gradient(point)
        return float(value), np.asarray(gradient, float)

    def hessian(point):
        return np.asarray(posterior.curvature(point), float)

    def products(point):
        return lambda vector: np.asarray(posterior.curvature_along(point, vector), float)

    few = size <= HESSIAN_COORDINATES
    dense = few and posterior.formula_fits
    # At fixed P/N the mode lies a distance of order √N from the centre of the prior.
    widest = max(float(degrees[0]) for degrees in posterior.chain.degrees)
    scales = np.full(size, widest**0.5)
    ended = descend(
        value_and_gradient,
        dense_direction(hessian) if dense else truncated_direction(products),
        lambda point: scales,
        np.zeros(size, dtype),  # every site at zero: Bartlett factors are diagonal
        MODE_TOLERANCE if few else ROUGH_TOLERANCE * size**0.5,
        MODE_STEPS,
    )
    point, converged = jnp.asarray(ended.point, dtype), ended.converged
    if not few:
        scale = prior_scales(coordinates, posterior.hyper_priors, dtype)
        return Mode(point, scale**2, scale, coordinates, converged)
    whitened = hessian(ended.point)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
    sizes = np.maximum(np.abs(eigenvalues), 1e-3)
    return Mode(
        point=point,
        covariance=jnp.asarray((vectors / sizes) @ vectors.T, dtype),
        scale=jnp.asarray(vectors / np.sqrt(sizes), dtype),
        coordinates=coordinates,
        converged=converged,
    )


def prior_scales(
    coordinates: Coordinates, hyper_priors: HyperPriors, dtype
) -> Float[Array, " coordinate"]:
    """Standard deviations without data: about 1, or the spread of what has a log-normal prior."""
    spreads = site_spreads(hyper_priors)
    sites = zip(coordinates.names, coordinates.sizes, strict=True)
    return jnp.concatenate([jnp.full(size, spreads.get(name, 1.0), dtype) for name, size in sites])
