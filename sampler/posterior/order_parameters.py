"""The posterior of order parameters in Bartlett coordinates.

With every weight integrated out, p(U_a, U_L … U_1, y) is the chain of `theory.wishart_chain`
times the Gaussian N(y; 0, K(U_1) + 𝒯 1). Its dimension does not depend on width, channels, tokens
or examples.
Nothing here is derived from the action of the theory, which it is compared with.

Mode: without data every Bartlett coordinate has a variance of about one, and the likelihood shrinks
few directions only, those that the labels see, the less the wider the network. So in very many
dimensions, where a dense Hessian could not be stored, chains do with unit masses.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.special import digamma, gammaln, polygamma
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.devices import batch_bytes
from sampler.errors import InputError
from sampler.posterior.density import (
    TEMPERATURE,
    Coordinates,
    Mode,
    Position,
    energy_at,
    in_blocks,
    sample_sites,
    temperature_prior,
)
from sampler.posterior.labels import CollapsedLabels, label_log_likelihood, site_of_labels
from theory.architecture import HESSIAN_COORDINATES, stored_bytes
from theory.energy_derivatives import hessian_with_energy
from theory.laplace import LogPosterior
from theory.learning_problem import LabelEnergy, LearningProblem
from theory.path_kernels import Features, store_path_kernels
from theory.saddle_point import (
    SaddlePointStatus,
    dense_direction,
    descend,
    truncated_direction,
)
from theory.wishart_chain import WishartChain, bartlett_matrix, chain_factors

# The Hessian is formed by its formula where that holds no more numbers than this at a time, else
# column by column.
FORMULA_NUMBERS = 2**26
# Below so many products the Hessian costs less than compiling it.
NUMPY_PRODUCTS = 2**29
# Path kernels are stored up to this size: a batch of kernels is then one matrix product with them.
STORED_BYTES = 2**30
# Fewer would leave cores idle, more would gain nothing.
SMALLEST_BATCH, LARGEST_BATCH = 8, 4096
# The mode only starts and whitens the chains: it need not be exact.
MODE_TOLERANCE = 1e-6
ROUGH_TOLERANCE = 1e-2
MODE_STEPS = 200


class StandardisedLogChi(dist.Distribution):
    """Law of t with ln c = ½ ln ν + t/√(2ν) and c ~ χ_ν: of order one at every ν.

    ln p(t) = ν ln c − c²/2 + const = −(ν/2)(e^u − 1 − u) + const, u = t √(2/ν); the second form
    does not cancel at large ν.
    """

    arg_constraints: ClassVar = {"degrees": dist.constraints.positive}
    support = dist.constraints.real
    reparametrized_params: ClassVar = ["degrees"]

    def __init__(self, degrees, *, validate_args=None) -> None:
        self.degrees = jnp.asarray(degrees)
        super().__init__(jnp.shape(self.degrees), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        shape = sample_shape + self.batch_shape
        gamma = dist.Gamma(self.degrees / 2.0, 0.5).expand(shape).sample(key)
        return jnp.sqrt(self.degrees / 2.0) * jnp.log(gamma / self.degrees)

    @property
    def mean(self):
        half = self.degrees / 2.0
        return jnp.sqrt(half) * (digamma(half) - jnp.log(half))

    @property
    def variance(self):
        half = self.degrees / 2.0
        return half * polygamma(1, half)

    def log_prob(self, value):
        half = self.degrees / 2.0
        u = value / jnp.sqrt(half)
        constant = half * jnp.log(half) - half - gammaln(half) - 0.5 * jnp.log(half)
        return constant - half * (jnp.expm1(u) - u)


def order_parameter_model(
    energy: LabelEnergy, chain: WishartChain, temperature_spread: float = 0.0
) -> None:
    """Wishart chain in standardised Bartlett coordinates, and the likelihood of all labels.

    Sites: `chi_l` [rank] and `lower_l` [entry] of each Bartlett factor B_l, l = 1 … L + 1, and
    the temperature where it has a prior.
    """
    position, factor = sample_order_parameters(chain, temperature_spread)
    labels = CollapsedLabels(energy_at(energy, position), factor)
    numpyro.sample("y", labels, obs=site_of_labels(energy.labels))


def sample_order_parameters(
    chain: WishartChain, temperature_spread: float = 0.0
) -> tuple[dict[str, Array], Float[Array, "row rank"]]:
    """All sites of a model, and the factor F with K(F Fᵀ) the kernel of the labels there."""
    position = sample_sites(site_priors(chain, temperature_spread))
    return position, likelihood_factor(position, chain)


def site_priors(
    chain: WishartChain, temperature_spread: float = 0.0
) -> dict[str, dist.Distribution]:
    """Prior of every site."""
    return bartlett_prior(chain) | temperature_prior(temperature_spread, chain.variances.dtype)


def bartlett_prior(chain: WishartChain) -> dict[str, dist.Distribution]:
    """Standardised log χ on the diagonals of Bartlett factors, standard normal below them.

    A factor with one entry has nothing below it, and no such site.
    """
    sites = {}
    factors = zip(chain.degrees, chain.below_diagonal, strict=True)
    for layer, (degrees, entries) in enumerate(factors, start=1):
        # Made by NumPy and not validated: neither may compile anything.
        sites[f"chi_{layer}"] = StandardisedLogChi(degrees, validate_args=False).to_event(1)
        if entries:
            zeros, ones = (jnp.asarray(np.full(entries, x, degrees.dtype)) for x in (0, 1))
            normal = dist.Normal(zeros, ones, validate_args=False)
            sites[f"lower_{layer}"] = normal.to_event(1)
    return sites


def log_prior(
    position: Position, chain: WishartChain, temperature_spread: float = 0.0
) -> Float[Array, ""]:
    """Logarithm of the prior density of a position."""
    prior = site_priors(chain, temperature_spread)
    return sum(site.log_prob(position[name]) for name, site in prior.items())


def bartlett_matrices_at(
    position: Position, chain: WishartChain
) -> tuple[Float[Array, "_rows _rank"], ...]:
    matrices = []
    for layer, (rows, degrees) in enumerate(zip(chain.rows, chain.degrees, strict=True), start=1):
        diagonal = position[f"chi_{layer}"]
        below = position.get(f"lower_{layer}", diagonal[:0])
        matrices.append(bartlett_matrix(diagonal, below, rows, degrees))
    return tuple(matrices)


def factors_at(position: Position, chain: WishartChain) -> tuple[Float[Array, "_size _rank"], ...]:
    """Factors F_1 … F_{L+1} with U_l = F_l F_lᵀ at a position of the sampler."""
    return chain_factors(bartlett_matrices_at(position, chain), chain.heads, chain.scales)


def order_parameters_at(
    position: Position, chain: WishartChain
) -> tuple[Float[Array, "_size _size"], ...]:
    return tuple(factor @ factor.T for factor in factors_at(position, chain))


def likelihood_factor(position: Position, chain: WishartChain) -> Float[Array, "row rank"]:
    """Factor F with K(F Fᵀ) the kernel of the labels at a position of the sampler."""
    return factors_at(position, chain)[0]


def log_likelihood_at(
    position: Position, energy: LabelEnergy, chain: WishartChain
) -> Float[Array, ""]:
    factor = likelihood_factor(position, chain)
    return label_log_likelihood(energy_at(energy, position), factor)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["energy", "features", "chain"],
    meta_fields=["temperature_spread"],
)
@dataclass(frozen=True)
class OrderParameterPosterior:
    """p(x, y) of the order parameters in flattened Bartlett coordinates x, and its derivatives.

    energy        E(U_1) of the labels at the known temperature
    features      φ^π(x_μ) of the training examples
    chain         the law of U_1 … U_a
    temperature_spread  prior standard deviation of ln 𝒯; 0 where it is fixed
    """

    energy: LabelEnergy
    features: Float[Array, "example path channel"]
    chain: WishartChain
    temperature_spread: float = 0.0

    @classmethod
    def of(cls, problem: LearningProblem) -> "OrderParameterPosterior":
        chain = WishartChain.of(problem.architecture, problem.labels.dtype)
        return cls(problem.energy, problem.features, chain, problem.temperature_spread)

    @property
    def priors(self) -> dict[str, dist.Distribution]:
        """Prior of every site."""
        return site_priors(self.chain, self.temperature_spread)

    @property
    def coordinates(self) -> Coordinates:
        return Coordinates.of(self.priors)

    @property
    def formula_fits(self) -> bool:
        """Whether the second derivatives in U_1, [p_1 D, p_1 D] and [p_1², p_1²], are small."""
        rows, channels = self.rows, self.features.shape[2]
        return max((rows * channels) ** 2, rows**4) <= FORMULA_NUMBERS

    @property
    def rows(self) -> int:
        """Rows of U_1: paths times outputs."""
        return self.features.shape[1] * self.chain.outputs

    def _negative_log_density(self, point):
        position = self.coordinates.unflatten(point)
        factor = likelihood_factor(position, self.chain)
        label_energy = energy_at(self.energy, position)(factor)
        return 0.5 * label_energy - log_prior(position, self.chain, self.temperature_spread)

    @jax.jit
    def value_and_gradient(self, point):
        """−ln p(x, y), but for the constant of the likelihood, and its gradient."""
        return jax.value_and_grad(self._negative_log_density)(point)

    @jax.jit
    def curvature_along(self, point, vector):
        """Hessian of −ln p(x, y) times a vector."""
        gradient = jax.grad(self._negative_log_density)
        return jax.jvp(gradient, (point,), (vector,))[1]

    def curvature(self, point) -> Float[Array, "coordinate coordinate"]:
        """Hessian of −ln p(x, y): by its formula, or by columns where its arrays are too large."""
        if self.formula_fits:
            return self._curvature_by_formula(point)
        columns = [self.curvature_along(point, direction) for direction in np.eye(len(point))]
        return jnp.stack(columns)

    @jax.jit
    def _curvature_by_formula(self, point):
        unflatten = self.coordinates.unflatten

        def factor_at(flat):
            return likelihood_factor(unflatten(flat), self.chain)

        def rest(flat):
            return -log_prior(unflatten(flat), self.chain, self.temperature_spread)

        energy_here = energy_at(self.energy, unflatten(point))
        hessian = hessian_with_energy(point, energy_here, self.features, factor_at, rest)
        if TEMPERATURE not in self.coordinates.names:
            return hessian
        # The formula holds the temperature fixed: its row is one product of Hessian and vector.
        index = self.coordinates.part(TEMPERATURE).start
        gradient = jax.grad(self._negative_log_density)
        _, row = jax.jvp(gradient, (point,), (jnp.zeros_like(point).at[index].set(1.0),))
        return hessian.at[index].set(row).at[:, index].set(row)

    def log_densities(
        self, points: Float[np.ndarray, "draw coordinate"], batch_size: int | None = None
    ) -> Float[np.ndarray, " draw"]:
        """ln p(x, y), normalised over x and y.

        `batch_size` kernels are held at a time, by default as many as fit the caches. A value that
        is not a number stays so.
        """
        batch = self.default_batch if batch_size is None else batch_size
        return in_blocks(partial(self.batched_log_densities, batch=batch), points, batch)

    @partial(jax.jit, static_argnames="batch")
    def batched_log_densities(self, points, *, batch: int):
        """ln p(x, y) of all points, compiled, so many kernels at a time."""

        def log_density(point):
            position = self.coordinates.unflatten(point)
            likelihood = log_likelihood_at(position, self.energy, self.chain)
            return likelihood + log_prior(position, self.chain, self.temperature_spread)

        return jax.lax.map(log_density, points, batch_size=batch)

    @property
    def default_batch(self) -> int:
        """As many draws as keep their kernels, factors and features within the bytes of a batch.

        Stored path kernels are read once per batch, so a batch is at least as large as they are.
        """
        size = self.energy.labels.size
        numbers = 2 * size**2
        limit = batch_bytes()
        if isinstance(self.energy.kernels, Features):
            numbers += size * self.rows * self.features.shape[2]
        else:
            limit = max(limit, self.energy.kernels.nbytes)
        return int(np.clip(limit // (8 * numbers), SMALLEST_BATCH, LARGEST_BATCH))

    @cached_property
    def for_batches(self) -> "OrderParameterPosterior":
        """The posterior with path kernels stored, where that makes batches of kernels cheaper.

        One kernel at a time reads all stored numbers for few products, a batch of them does not.
        """
        form = self.energy.kernels
        if not isinstance(form, Features):
            return self
        examples, outputs = self.energy.labels.shape
        _, paths, channels = self.features.shape
        stored = stored_bytes(examples, None, paths, outputs)
        features = self.rows * channels
        assembled = features * examples * (examples * outputs**2 + 2 * self.rows)
        if stored > STORED_BYTES or stored * outputs**2 > 8 * assembled:
            return self
        energy = replace(self.energy, kernels=store_path_kernels(form, outputs))
        return replace(self, energy=energy)


def find_mode(problem: LearningProblem, posterior: OrderParameterPosterior) -> Mode:
    """Newton descent on −ln p(B_1 … B_{L+1}, y) from the centre of the prior.

    The curvature that whitens the chains is the Hessian at the mode; directions along which it is
    not convex keep their absolute curvature, so the result is always a proper scale. Raises
    InputError for a density that is not finite.
    """
    coordinates, dtype = posterior.coordinates, posterior.features.dtype
    size = coordinates.size
    few = size <= HESSIAN_COORDINATES
    columns = posterior.rows * problem.architecture.channels
    cheap = columns**2 * problem.labels.size <= NUMPY_PRODUCTS
    if few and cheap and problem.temperature_spread == 0.0:
        value_and_gradient, hessian = derivatives_by_numpy(problem, coordinates)
    else:

        def value_and_gradient(point):
            value, gradient = posterior.value_and_gradient(point)
            return float(value), np.asarray(gradient, float)

        def hessian(point):
            return np.asarray(posterior.curvature(point), float)

    def products(point):
        return lambda vector: np.asarray(posterior.curvature_along(point, vector), float)

    dense = few and posterior.formula_fits
    # At fixed P/N the mode lies a distance of order √N from the centre of the prior.
    widest = max(float(np.asarray(degrees)[0]) for degrees in posterior.chain.degrees)
    scales = np.full(size, widest**0.5)
    ended = descend(
        value_and_gradient,
        dense_direction(hessian) if dense else truncated_direction(products),
        lambda point: scales,
        np.zeros(size, dtype),  # every site at zero: Bartlett factors are diagonal
        MODE_TOLERANCE if few else ROUGH_TOLERANCE * size**0.5,
        MODE_STEPS,
    )
    if ended.status is SaddlePointStatus.NOT_FINITE:
        remedy = "the posterior density is not finite: raise it, or rescale inputs and labels"
        raise InputError("temperature", problem.temperature, remedy)
    point, converged = jnp.asarray(ended.point, dtype), ended.converged
    if not few:
        scale = prior_scales(coordinates, posterior.temperature_spread, dtype)
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


def derivatives_by_numpy(problem: LearningProblem, coordinates: Coordinates):
    """Return −ln p(x, y) with its gradient, and its Hessian, as functions that compile nothing.

    Those of the theory, whose coordinates are the same numbers in another order.
    """
    theirs, places = LogPosterior(problem), {}
    for layer, (shape, part) in enumerate(
        zip(theirs.coordinates.shapes, theirs.coordinates.layers, strict=True), start=1
    ):
        numbers = np.arange(part.start, part.stop)
        places[f"chi_{layer}"], places[f"lower_{layer}"] = np.split(numbers, [shape.rank])
    order = np.concatenate([places[name] for name in coordinates.names])
    back = np.argsort(order)

    def value_and_gradient(point):
        value, gradient = theirs.value_and_gradient(point[back])
        return value, gradient[order]

    def hessian(point):
        return theirs.hessian(point[back])[np.ix_(order, order)]

    return value_and_gradient, hessian


def prior_scales(
    coordinates: Coordinates, temperature_spread: float, dtype
) -> Float[Array, " coordinate"]:
    """Standard deviations without data: about 1, or the spread of the temperature."""
    spreads = {TEMPERATURE: temperature_spread}
    sites = zip(coordinates.names, coordinates.sizes, strict=True)
    return jnp.concatenate([jnp.full(size, spreads.get(name, 1.0), dtype) for name, size in sites])
