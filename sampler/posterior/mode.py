"""The mode of the posterior of order parameters, and its density around it.

Without data every Bartlett coordinate has a variance of about one, and the likelihood shrinks few
directions only, those that the labels see, the less the wider the network. So in very many
dimensions, where a dense Hessian could not be stored, chains do with unit masses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from sampler.posterior.density import Position
from sampler.posterior.hyper_parameters import TEMPERATURE, energy_at, site_spreads
from sampler.posterior.order_parameters import (
    likelihood_factor,
    log_likelihood_at,
    log_prior,
    site_priors,
)
from sampler.recipes.validation import LARGEST_DENSE
from theory.architecture import KNOWN, Architecture, HyperPriors
from theory.energy import LabelEnergy, LearningProblem, hessian_with_energy
from theory.path_kernels import FeatureForm, store_path_kernels, stored_numbers
from theory.saddle_point import dense_direction, descend, truncated_direction

# The mode only starts and whitens the chains: it need not be exact.
MODE_TOLERANCE = 1e-6
ROUGH_TOLERANCE = 1e-2
MODE_STEPS = 200
# The Hessian is formed by its formula where that holds no more numbers than this at a time, else
# column by column.
FORMULA_NUMBERS = 2**26


@dataclass(frozen=True)
class Mode:
    """Where the density is largest, and the Gaussian that fits it there.

    point       mode in flattened coordinates, sites in alphabetical order
    covariance  inverse Hessian of −ln p; in more than `LARGEST_DENSE` coordinates the variances
                without data
    scale       a matrix S with S Sᵀ = covariance, or its diagonal
    unflatten   flattened coordinates → position by site
    converged   whether the descent met its tolerance
    """

    point: Float[Array, " coordinate"]
    covariance: Float[Array, "coordinate coordinate"] | Float[Array, " coordinate"]
    scale: Float[Array, "coordinate coordinate"] | Float[Array, " coordinate"]
    unflatten: "Unflatten"
    converged: bool

    def draw(self, key: Array) -> Position:
        """A start for one chain: a draw from the Gaussian fit."""
        normal = jax.random.normal(key, self.point.shape, self.point.dtype)
        kick = self.scale * normal if self.scale.ndim == 1 else self.scale @ normal
        return self.unflatten(self.point + kick)

    @property
    def inverse_mass_matrix(self) -> Mapping[tuple[str, ...], Array]:
        """The covariance as the inverse mass matrix of all sites, dense or [coordinate]."""
        return {self.unflatten.names: self.covariance}


@dataclass(frozen=True)
class Unflatten:
    """Splits flattened coordinates into named sites, in alphabetical order."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, architecture: Architecture, hyper_priors: HyperPriors = KNOWN) -> "Unflatten":
        prior = site_priors(architecture, float, hyper_priors)
        names = tuple(sorted(prior))
        return cls(names, tuple(prior[name].event_shape[0] for name in names))

    def __call__(self, flat: Float[Array, " coordinate"]) -> dict[str, Array]:
        return {name: flat[self.part(name)] for name in self.names}

    def part(self, name: str) -> slice:
        """Where the coordinates of a site are."""
        index = self.names.index(name)
        start = sum(self.sizes[:index])
        return slice(start, start + self.sizes[index])


def unflatten_of(problem: LearningProblem) -> Unflatten:
    """The sites of a problem's order parameter model."""
    return Unflatten.of(problem.architecture, problem.hyper_priors)


def find_mode(problem: LearningProblem) -> Mode:
    """Newton descent on −ln p(B_1 … B_{L+1}, y) from the centre of the prior.

    The curvature that whitens the chains is the Hessian at the mode; directions along which it is
    not convex keep their absolute curvature, so the result is always a proper scale.
    """
    architecture, hyper_priors = problem.architecture, problem.hyper_priors
    unflatten = unflatten_of(problem)
    start, _ = ravel_pytree(prior_centre(architecture, problem.attended.dtype, hyper_priors))
    energy, features = problem.energy, problem.features

    def value_and_gradient(point):
        value, gradient = _value_and_gradient(point, energy, architecture, hyper_priors)
        return float(value), np.asarray(gradient, float)

    def hessian(point):
        return np.asarray(_hessian(point, energy, features, architecture, hyper_priors), float)

    def product(point, vector):
        arguments = (energy, architecture, hyper_priors)
        return np.asarray(_hessian_product(point, vector, *arguments), float)

    def hessian_by_products(point):
        return np.stack([product(point, direction) for direction in np.eye(start.size)])

    few = start.size <= LARGEST_DENSE
    dense = few and formula_fits(architecture)
    # At fixed P/N the mode lies a distance of order √N from the centre of the prior.
    scales = np.full(start.size, max(architecture.widths) ** 0.5)
    ended = descend(
        value_and_gradient,
        dense_direction(hessian) if dense else truncated_direction(product),
        lambda point: scales,
        np.asarray(start),
        MODE_TOLERANCE if few else ROUGH_TOLERANCE * start.size**0.5,
        MODE_STEPS,
    )
    converged = ended.stopped == "converged"
    if not few:
        point = jnp.asarray(ended.point, start.dtype)
        scale = prior_scales(unflatten, hyper_priors, start.dtype)
        return Mode(point, scale**2, scale, unflatten, converged)
    whitened = hessian(ended.point) if dense else hessian_by_products(ended.point)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
    sizes = np.maximum(np.abs(eigenvalues), 1e-3)
    dtype = problem.attended.dtype
    return Mode(
        point=jnp.asarray(ended.point, dtype),
        covariance=jnp.asarray((vectors / sizes) @ vectors.T, dtype),
        scale=jnp.asarray(vectors / np.sqrt(sizes), dtype),
        unflatten=unflatten,
        converged=converged,
    )


def formula_fits(architecture: Architecture) -> bool:
    """Whether the second derivatives in U_1, [p_1 D, p_1 D] and [p_1², p_1²], are small enough."""
    rows = architecture.order_parameter_sizes[0]
    return max((rows * architecture.channels) ** 2, rows**4) <= FORMULA_NUMBERS


def prior_scales(
    unflatten: Unflatten, hyper_priors: HyperPriors, dtype
) -> Float[Array, " coordinate"]:
    """Standard deviations without data: about 1, or the spread of what has a log-normal prior."""
    spreads = site_spreads(hyper_priors)
    sites = zip(unflatten.names, unflatten.sizes, strict=True)
    return jnp.concatenate([jnp.full(size, spreads.get(name, 1.0), dtype) for name, size in sites])


def prior_centre(
    architecture: Architecture, dtype, hyper_priors: HyperPriors = KNOWN
) -> dict[str, Array]:
    """Every site at zero: Bartlett factors are diagonal, U_l close to its prior mean."""
    prior = site_priors(architecture, dtype, hyper_priors)
    return {name: jnp.zeros(site.event_shape, dtype) for name, site in prior.items()}


def _negative_log_density(point, energy: LabelEnergy, architecture, hyper_priors):
    position = Unflatten.of(architecture, hyper_priors)(point)
    label_energy = energy_at(energy, position)(likelihood_factor(position, architecture))
    return 0.5 * label_energy - log_prior(position, architecture, hyper_priors)


_value_and_gradient = jax.jit(
    jax.value_and_grad(_negative_log_density), static_argnames=("architecture", "hyper_priors")
)


@partial(jax.jit, static_argnames=("architecture", "hyper_priors"))
def _hessian_product(point, vector, energy, architecture, hyper_priors):
    gradient = jax.grad(_negative_log_density)
    return jax.jvp(lambda p: gradient(p, energy, architecture, hyper_priors), (point,), (vector,))[
        1
    ]


@partial(jax.jit, static_argnames=("architecture", "hyper_priors"))
def _hessian(point, energy, features, architecture, hyper_priors):
    unflatten = Unflatten.of(architecture, hyper_priors)

    def factor_at(flat):
        return likelihood_factor(unflatten(flat), architecture)

    def rest(flat):
        return -log_prior(unflatten(flat), architecture, hyper_priors)

    energy_here = energy_at(energy, unflatten(point))
    hessian = hessian_with_energy(point, energy_here, features, 0.5, factor_at, rest)
    if TEMPERATURE not in unflatten.names:
        return hessian
    # The formula holds the temperature fixed: its row is one product of the Hessian with a vector.
    index = unflatten.part(TEMPERATURE).start
    gradient = jax.grad(
        partial(
            _negative_log_density,
            energy=energy,
            architecture=architecture,
            hyper_priors=hyper_priors,
        )
    )
    _, row = jax.jvp(gradient, (point,), (jnp.zeros_like(point).at[index].set(1.0),))
    return hessian.at[index].set(row).at[:, index].set(row)


# Batches per call of the compiled function; shorter calls are filled up, so it compiles once.
BATCHES = 32
# Kernels of one batch: small enough for the caches of a processor, large enough to fill a GPU.
BATCH_BYTES = {"cpu": 4 * 2**20}
BATCH_BYTES_ELSEWHERE = 2**30
# Path kernels are stored up to this size: a batch of kernels is then one matrix product with them.
STORED_BYTES = 2**30
# Fewer would leave cores idle, more would gain nothing.
SMALLEST_BATCH, LARGEST_BATCH = 8, 4096


def batched_log_density(
    energy: LabelEnergy,
    architecture: Architecture,
    points: Float[np.ndarray, "draw coordinate"],
    batch_size: int | None = None,
    hyper_priors: HyperPriors = KNOWN,
) -> Float[np.ndarray, " draw"]:
    """ln p(x, y) at flattened positions x (order of `Unflatten`), normalised over x and y.

    `batch_size` kernels are held at a time (by default as many as fit the caches). A value that is
    not a number stays so.
    """
    batch = _default_batch(energy, architecture) if batch_size is None else batch_size
    if batch < 1:
        raise ValueError(f"batch_size = {batch_size}: must be at least 1")
    values = np.empty(len(points))
    length = BATCHES * batch
    for start in range(0, len(points), length):
        block = points[start : start + length]
        missing = np.repeat(points[:1], length - len(block), axis=0)
        filled = jnp.asarray(np.concatenate([block, missing]))
        result = np.asarray(_log_densities(filled, energy, architecture, hyper_priors, batch))
        values[start : start + len(block)] = result[: len(block)]
    return values


def energy_for_batches(energy: LabelEnergy, architecture: Architecture) -> LabelEnergy:
    """The same energy with path kernels stored where that makes batches of kernels cheaper.

    One kernel at a time reads all stored numbers for few products, a batch of them does not.
    """
    form = energy.kernels
    if not isinstance(form, FeatureForm):
        return energy
    examples, outputs = energy.labels.shape
    paths, rows = architecture.path_count, architecture.order_parameter_sizes[0]
    numbers = stored_numbers(examples, paths) if outputs == 1 else (paths * examples) ** 2
    features = rows * architecture.channels
    assembled = features * examples * (examples * outputs**2 + 2 * rows)
    if 8 * numbers > STORED_BYTES or numbers * outputs**2 > assembled:
        return energy
    return replace(energy, kernels=store_path_kernels(form, architecture))


def _default_batch(energy: LabelEnergy, architecture: Architecture) -> int:
    """As many draws as keep their kernels, factors and features within the stated bytes.

    Stored path kernels are read once per batch, so a batch is at least as large as they are.
    """
    size = energy.labels.size
    numbers = 2 * size**2
    limit = BATCH_BYTES.get(jax.default_backend(), BATCH_BYTES_ELSEWHERE)
    if isinstance(energy.kernels, FeatureForm):
        numbers += size * architecture.order_parameter_sizes[0] * architecture.channels
    else:
        limit = max(limit, energy.kernels.nbytes)
    return int(np.clip(limit // (8 * numbers), SMALLEST_BATCH, LARGEST_BATCH))


@partial(jax.jit, static_argnames=("architecture", "hyper_priors", "batch"))
def _log_densities(points, energy: LabelEnergy, architecture, hyper_priors, batch: int):
    unflatten = Unflatten.of(architecture, hyper_priors)

    def log_density(point):
        position = unflatten(point)
        likelihood = log_likelihood_at(position, energy, architecture)
        return likelihood + log_prior(position, architecture, hyper_priors)

    return jax.lax.map(log_density, points, batch_size=batch)
