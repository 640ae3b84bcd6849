"""Densities to be sampled, and the coordinates and mode by which algorithms know them.

Where the temperature has a prior ln(𝒯/𝒯_0) is a site of a model; a position without it is at 𝒯_0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import prod
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.infer.util import compute_log_probs, log_density

from theory.architecture import HESSIAN_COORDINATES
from theory.learning_problem import LabelEnergy

Position = Mapping[str, Array]

# The site of the temperature.
TEMPERATURE = "log_temperature_ratio"

# Densities per call of a compiled function, in batches: shorter calls are filled up, so it compiles
# once.
BATCHES = 32


@runtime_checkable
class Weighted(Protocol):
    """A network by its weights: `Architecture`, or one outside the theory.

    weight_shapes  of every array, by name
    weight_layers  place of its prior variance among σ_0² … σ_a²; arrays that are left out are
                   standard normal
    """

    @property
    def widths(self) -> tuple[int, ...]: ...

    @property
    def variances(self) -> tuple[float, ...]: ...

    @property
    def outputs(self) -> int: ...

    @property
    def sizes(self) -> "Weighted": ...

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]: ...

    @property
    def weight_layers(self) -> dict[str, int]: ...


@dataclass(frozen=True)
class Coordinates:
    """All sites of a posterior as one vector: sites in alphabetical order, rows first."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, priors: Mapping[str, dist.Distribution]) -> "Coordinates":
        names = tuple(sorted(priors))
        return cls(names, tuple(tuple(priors[name].event_shape) for name in names))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """Dimension of the posterior."""
        return sum(self.sizes)

    def part(self, name: str) -> slice:
        index = self.names.index(name)
        start = sum(self.sizes[:index])
        return slice(start, start + self.sizes[index])

    def unflatten(self, flat: Float[Array, " coordinate"]) -> dict[str, Array]:
        sites = zip(self.names, self.shapes, strict=True)
        return {name: flat[self.part(name)].reshape(shape) for name, shape in sites}

    def of_draws(
        self, draws: Mapping[str, np.ndarray]
    ) -> dict[str, Float[np.ndarray, "chain draw ..."]]:
        return {name: np.asarray(draws[name]) for name in self.names}

    def flatten(self, position: Position) -> Float[Array, " coordinate"]:
        return jnp.concatenate([position[name].reshape(-1) for name in self.names])


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["point", "covariance", "scale"],
    meta_fields=["coordinates", "converged"],
)
@dataclass(frozen=True)
class Mode:
    """Mode of a density, and the Gaussian that fits it there.

    point        mode in flattened coordinates
    covariance   inverse Hessian of −ln p; in very many coordinates the variances without data
    scale        a matrix S with S Sᵀ = covariance, or its diagonal
    coordinates  flattened coordinates ↔ position by site
    converged    whether the descent met its tolerance
    """

    point: Float[Array, " coordinate"]
    covariance: Float[Array, "coordinate coordinate"] | Float[Array, " coordinate"]
    scale: Float[Array, "coordinate coordinate"] | Float[Array, " coordinate"]
    coordinates: Coordinates
    converged: bool

    def draw(self, key: Array) -> dict[str, Array]:
        """A start for one chain: a draw from the Gaussian fit."""
        normal = jax.random.normal(key, self.point.shape, self.point.dtype)
        kick = self.scale * normal if self.scale.ndim == 1 else self.scale @ normal
        return self.coordinates.unflatten(self.point + kick)

    @property
    def inverse_mass_matrix(self) -> dict[tuple[str, ...], Array]:
        """The covariance as the inverse mass matrix of all sites, dense or [coordinate]."""
        return {self.coordinates.names: self.covariance}


def require_hessian(coordinates: int) -> None:
    """Raise ValueError if the coordinates are too many for the Hessian at the mode."""
    if coordinates > HESSIAN_COORDINATES:
        raise ValueError(
            f"{coordinates:,} coordinates: the Hessian at the mode is too large (limit "
            f"{HESSIAN_COORDINATES:,}); sample with NUTS, without the evidence"
        )


@cache
def specialised(function: Callable, **settings) -> Callable:
    """The function with these hashable settings: one object, so that code compiled for it is found.

    Partial functions made twice are not equal, even where all their parts are.
    """
    return partial(function, **settings)


@runtime_checkable
class LogDensity(Protocol):
    """A law, normalised or not, as trajectories ask for it; the posterior itself is one."""

    mode: Mode | None
    priors: Mapping[str, dist.Distribution]
    single: tuple[Any, ...] | None

    @property
    def coordinates(self) -> Coordinates: ...

    def log_density(self, position: Position) -> Float[Array, ""]: ...

    def value_and_gradient(self, position: Position) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The logarithm and its gradient, site by site."""
        ...

    def gradient(self, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """The gradient in flattened coordinates, in the precision of gradients."""
        ...


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Density:
    """A posterior p(x | y) ∝ p(x, y) to be sampled, with all that an algorithm may use of it.

    Compiled functions take it as an argument. One of them serves all densities of the same model
    and observables whose arrays have equal shapes: what differs between them belongs into
    `arguments` and `observed`. `log_densities` does not enter compiled functions.

    name       of the space, as in `make_density`
    model      NumPyro model; called with `arguments`. Every site is a real array
    arguments  arrays of the model
    priors     distribution of every site without data
    observe    (random key, position, *observed) → named numbers of one draw
    observed   further arrays that `observe` needs
    complete   (random key, what `observe` saw, *completing) → further numbers of the draw, which no
               transition needs; of many draws together, after their chains have moved on
    completing further arrays that `complete` needs, such as test inputs
    passing    names that `observe` makes for `complete` alone
    together   how many draws are completed side by side; None: one after the other
    mode       mode and Gaussian fit; None where it is not known
    single     `arguments` in single precision, for gradients; None: gradients use `arguments`
    log_densities
               points [draw, coordinate] → ln p(x, y) [draw], for algorithms that evaluate many at a
               time; None where a space is sampled by chains alone
    """

    name: str
    model: Callable[..., None]
    arguments: tuple[Any, ...]
    priors: Mapping[str, dist.Distribution]
    observe: Callable[..., dict[str, Array]]
    observed: tuple[Any, ...]
    complete: Callable[..., dict[str, Array]] | None = None
    completing: tuple[Any, ...] = ()
    passing: tuple[str, ...] = ()
    together: int | None = None
    mode: Mode | None = None
    single: tuple[Any, ...] | None = None
    log_densities: Callable[[np.ndarray], np.ndarray] | None = None

    def tree_flatten(self) -> tuple[tuple, tuple]:
        """Arrays, and the functions that are compiled for, as JAX takes the density apart."""
        arrays = (
            self.arguments, self.priors, self.observed, self.completing, self.mode, self.single
        )  # fmt: skip
        functions = self.name, self.model, self.observe, self.complete, self.passing, self.together
        return arrays, functions

    @classmethod
    def tree_unflatten(cls, functions: tuple, arrays: tuple) -> "Density":
        """Put together what `tree_flatten` took apart."""
        name, model, observe, complete, passing, together = functions
        arguments, priors, observed, completing, mode, single = arrays
        return cls(
            name, model, arguments, priors, observe, observed, complete, completing, passing,
            together, mode, single,
        )  # fmt: skip

    def seen(self, key: Array, position: Position) -> dict[str, Array]:
        """Return what is read off one draw while its chain stands there."""
        found = self.observe(key, position, *self.observed)
        return found | {"log_prior": self.log_prior(position)}

    def completed(self, key: Array, seen: Mapping[str, Array]) -> dict[str, Array]:
        """All observables of one draw, from what was read off it at once."""
        if self.complete is None:
            return dict(seen)
        kept = {name: values for name, values in seen.items() if name not in self.passing}
        return kept | self.complete(key, seen, *self.completing)

    def observables(self, key: Array, position: Position) -> dict[str, Array]:
        return self.completed(key, self.seen(key, position))

    @property
    def for_gradients(self) -> "Density":
        """The posterior with the arrays that gradients are computed from."""
        return self if self.single is None else replace(self, arguments=self.single, single=None)

    @property
    def gradient_dtype(self) -> str:
        """The floating-point type in which gradients are computed."""
        return str(jnp.result_type(float, *jax.tree.leaves(self.for_gradients.arguments)))

    def with_single_gradients(self) -> "Density":
        """Return the posterior with gradients in single precision; values stay as they are."""

        def single(leaf):
            array = jnp.asarray(leaf)
            return array.astype("float32") if jnp.issubdtype(array.dtype, jnp.floating) else array

        return replace(self, single=jax.tree.map(single, self.arguments))

    @cached_property
    def coordinates(self) -> Coordinates:
        """Names and shapes of the sites, and the one vector that they make."""
        return Coordinates.of(self.priors)

    def start(self, key: Array) -> dict[str, Array]:
        """One chain's first position: around the mode where it is known, else from the priors."""
        return self.draw_prior(key) if self.mode is None else self.mode.draw(key)

    def draw_prior(self, key: Array) -> dict[str, Array]:
        """Draw a position without data."""
        return drawn_sites(key, self.priors)

    def log_density(self, position: Position) -> Float[Array, ""]:
        """ln p(x, y), normalised over x and y."""
        return log_density(self.model, self.arguments, {}, position)[0]

    def log_prior(self, position: Position) -> Float[Array, ""]:
        return sum(jnp.sum(prior.log_prob(position[n])) for n, prior in self.priors.items())

    def log_likelihood(self, position: Position) -> Float[Array, ""]:
        """ln p(y | x), from what the model observes."""
        terms = compute_log_probs(self.model, self.arguments, {}, dict(position))[0]
        return sum(term for name, term in terms.items() if name not in self.priors)

    def gradient(self, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """∂/∂x of ln p(x, y) in flattened coordinates, in the precision of gradients."""
        rough = self.for_gradients
        here = point.astype(self.gradient_dtype)
        slope = jax.grad(lambda x: rough.log_density(self.coordinates.unflatten(x)))(here)
        return slope.astype(point.dtype)

    def value_and_gradient(self, position: Position) -> tuple[Float[Array, ""], dict[str, Array]]:
        """ln p(x, y) and its gradient, site by site."""
        return jax.value_and_grad(self.log_density)(dict(position))


@partial(jax.jit, static_argnames="together")
def observables_at(keys, points: Float[Array, "draw coordinate"], density: Density, together):
    """The observables of flattened positions, `together` of them at a time."""

    def one(draw):
        key, point = draw
        return density.observables(key, density.coordinates.unflatten(point))

    return jax.lax.map(one, (keys, points), batch_size=together)


def in_blocks(
    of_block: Callable[[Array], Array],
    points: Float[np.ndarray, "draw coordinate"],
    batch: int,
) -> Float[np.ndarray, " draw"]:
    """A function of many points by calls with `BATCHES` batches each, the last one filled up."""
    if batch < 1:
        raise ValueError(f"batch_size = {batch}: must be at least 1")
    values, length = np.empty(len(points)), BATCHES * batch
    for start in range(0, len(points), length):
        block = points[start : start + length]
        missing = np.repeat(points[:1], length - len(block), axis=0)
        result = np.asarray(of_block(jnp.asarray(np.concatenate([block, missing]))))
        values[start : start + len(block)] = result[: len(block)]
    return values


# --- the temperature as a site


def temperature_prior(spread: float, dtype) -> dict[str, dist.Distribution]:
    """The prior of ln(𝒯/𝒯_0), where it has a spread."""
    if not spread:
        return {}
    normal = dist.Normal(jnp.zeros(1, dtype), jnp.asarray(spread, dtype))
    return {TEMPERATURE: normal.to_event(1)}


def sample_sites(priors: Mapping[str, dist.Distribution]) -> dict[str, Array]:
    """All sites of a NumPyro model, in the order of their priors."""
    return {name: numpyro.sample(name, prior) for name, prior in priors.items()}


def drawn_sites(key: Array, priors: Mapping[str, dist.Distribution]) -> dict[str, Array]:
    keys = dict(zip(priors, jax.random.split(key, len(priors)), strict=True))
    return {name: prior.sample(keys[name]) for name, prior in priors.items()}


def temperature_ratio(position: Position) -> Float[Array, ""] | float:
    """Ratio 𝒯/𝒯_0 of the temperature of a position to the known one."""
    return jnp.exp(position[TEMPERATURE][0]) if TEMPERATURE in position else 1.0


def energy_at(energy: LabelEnergy, position: Position) -> LabelEnergy:
    if TEMPERATURE not in position:
        return energy
    return replace(energy, temperature=energy.temperature * temperature_ratio(position))


def weights_at(position: Position, network: Weighted) -> dict[str, Array]:
    """The weights among the sites of a position."""
    return {name: position[name] for name in network.weight_shapes if name in position}


def observed_temperature(
    position: Position, temperature: float | Float[Array, ""]
) -> dict[str, Array]:
    """The temperature of a draw, where it is sampled."""
    if TEMPERATURE not in position:
        return {}
    return {"temperature": temperature * temperature_ratio(position)}


def temperature_positions(
    draws: Mapping[str, np.ndarray], problem: Any
) -> dict[str, Float[np.ndarray, "chain draw _entry"]]:
    """The site from stored temperatures [chain, draw], where there are some.

    problem  has the temperature that is known
    """
    if "temperature" not in draws:
        return {}
    return {TEMPERATURE: np.log(draws["temperature"] / problem.temperature)[..., None]}
