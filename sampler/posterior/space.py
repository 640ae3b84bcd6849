"""A posterior p(θ | y) ∝ p(θ) p(y | θ) in one space of coordinates θ.

A space is its NumPyro `model`: priors, and the distribution of the labels y. NumPyro's handlers run
it, and all else follows: log densities, shapes and the flat vector, draws from the prior, the
distribution of new labels. Every algorithm samples that model; `given` adds the stored numbers of a
draw.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import RLock
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.infer.util import compute_log_probs

from sampler.posterior.data import Data, astype
from sampler.posterior.given import Given
from sampler.posterior.labels import LabelLaw, flat_labels, split_labels
from sampler.runtime import side_by_side
from sampler.streams import Stream, jax_key, part_of_key, stream

# Site name → value.
Position = Mapping[str, Array | np.ndarray]
# Stored numbers of predictors, from a position and the network given it.
Predict = Callable[[Given, Position], dict[str, Array]]

# The site of the labels, and the site ln(𝒯/𝒯_0), where the temperature has a prior.
LABELS, TEMPERATURE = "y", "log_temperature_ratio"
DRAWN_TOGETHER = 64
# NumPyro keeps its handlers in one list for the process: threads run models one after the other.
ONE_AT_A_TIME = RLock()


@register_dataclass
@dataclass(frozen=True)
class Gaussian:
    """Gaussian θ = centre + scale · ζ, ζ standard normal; the scale is a matrix or a diagonal."""

    centre: Float[Array, " coordinate"]
    scale: Float[Array, "coordinate coordinate"] | Float[Array, " coordinate"]

    @classmethod
    def standard(cls, like: Float[Array, " coordinate"]) -> "Gaussian":
        """Standard normal in as many coordinates."""
        return cls(jnp.zeros_like(like), jnp.ones_like(like))

    @property
    def is_dense(self) -> bool:
        """Whether the scale is a matrix."""
        return self.scale.ndim == 2

    @property
    def covariance(self) -> Float[Array, "coordinate coordinate"] | Float[Array, " coordinate"]:
        """scale · scaleᵀ, or the variances where the scale is a diagonal."""
        return self.scale @ self.scale.T if self.is_dense else self.scale**2

    def at(self, standard: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """Return the point θ at ζ."""
        return self.centre + (self.scale @ standard if self.is_dense else self.scale * standard)

    def standardise(self, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """Return ζ at the point θ."""
        away = point - self.centre
        return jnp.linalg.solve(self.scale, away) if self.is_dense else away / self.scale

    def pull_back(self, slope: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """Map ∂/∂θ to ∂/∂ζ."""
        return slope @ self.scale if self.is_dense else slope * self.scale

    def draw(self, key: PRNGKeyArray) -> Float[Array, " coordinate"]:
        """Draw one point."""
        return self.at(jax.random.normal(key, self.centre.shape, self.centre.dtype))


@register_dataclass
@dataclass(frozen=True)
class Mode:
    """Mode of a posterior in flat coordinates, as chains are whitened by it.

    gaussian       the mode, and a scale with scale · scaleᵀ = S, the inverse Hessian there
    gradient_norm  of −ln p where the search ended
    tolerance      the limit that the norm had to meet
    """

    gaussian: Gaussian
    gradient_norm: Float[Array, ""]
    tolerance: Float[Array, ""]

    @property
    def converged(self) -> bool:
        """Whether the search met its tolerance."""
        return float(self.gradient_norm) <= float(self.tolerance)

    def explain(self) -> str:
        """One line: value, limit, and the consequence where the search failed."""
        return (
            f"mode search: |gradient| = {float(self.gradient_norm):.1e} (limit "
            f"{float(self.tolerance):.0e})"
        ) + ("" if self.converged else ", not converged; rescale labels or raise the temperature")


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Space:
    """A posterior in one space; compiled functions take it as an argument.

    data         inputs, labels, and whatever of the inputs is sampled
    temperature  𝒯_0
    spread       s of ln(𝒯/𝒯_0) ~ N(0, s²); None where the temperature is fixed
    mode         around which chains begin and are whitened; None if unknown
    single       the same space in single precision, for gradients; None: full precision
    keep         names of the weights that are observed of every draw
    """

    data: Data
    temperature: Float[Array | np.ndarray, ""]
    spread: Float[Array | np.ndarray, ""] | None = None
    mode: Mode | None = None
    single: "Space | None" = None
    keep: tuple[str, ...] = field(default=(), metadata={"static": True})

    name: ClassVar[str]

    # --- defined by a space

    def model(self, labels: Array | None, inputs: Any = None) -> None:
        """The posterior as a NumPyro model: every site with its prior, and the site `y`.

        labels  of the training examples, or of the rows for them; None where they are drawn
        inputs  other inputs, of which `y` are then the labels; None: those of the data

        Priors have the support of all real numbers.
        """
        raise NotImplementedError

    def given(self, position: Position, key: PRNGKeyArray | None) -> Given:
        """The network given a position and the training labels; no f is drawn without a key."""
        raise NotImplementedError

    # --- what models have in common

    def sample_shared(self) -> dict[str, Array]:
        """Sample logit weights of the data, and the temperature."""
        return {**self.data.sample_sites(), **self.sample_temperature()}

    def sample_temperature(self) -> dict[str, Array]:
        """Sample the site ln(𝒯/𝒯_0) ~ N(0, s²), where the temperature has a prior."""
        if self.spread is None:
            return {}
        prior = dist.Normal(0.0, self.spread).expand([1]).to_event()
        return {TEMPERATURE: numpyro.sample(TEMPERATURE, prior)}

    def temperature_at(
        self, position: Position
    ) -> Float[Array | np.ndarray, "*draw"] | np.floating:
        """Temperature 𝒯 of a position, 𝒯_0 where it is fixed; or of many along leading axes."""
        if TEMPERATURE not in position:
            return self.temperature
        log_ratio = position[TEMPERATURE][..., 0]
        return self.temperature * log_ratio.__array_namespace__().exp(log_ratio)

    def observe_temperature(
        self, position: Position
    ) -> dict[str, Array | np.ndarray | np.floating]:
        """The temperature under its name, where it differs from draw to draw."""
        return {"temperature": self.temperature_at(position)} if TEMPERATURE in position else {}

    def weigh_residual(self, position: Position) -> None:
        """Weigh the labels that no row represents, as a factor of the model."""
        if self.data.residual is not None:
            residual = self.data.residual.log_likelihood(self.temperature_at(position))
            numpyro.factor("labels_that_no_row_stands_for", residual)

    @property
    def overlaps_fix_predictors(self) -> bool:
        """Whether mean and variance of f follow from order parameters and temperature."""
        return False

    # --- derived from the model

    def run(
        self,
        position: Position,
        labels: Array | None = None,
        inputs: Any = None,
        key: PRNGKeyArray | None = None,
    ) -> Mapping[str, dict[str, Any]]:
        """Every site of the model as NumPyro records it, unseen by a model that it is run in.

        Sites of the position have its values, others are drawn by the key.
        """
        model = handlers.substitute(self.model, data=dict(position))
        if key is not None:
            model = handlers.seed(model, key)
        with ONE_AT_A_TIME, handlers.block():
            return handlers.trace(model).get_trace(labels, inputs)

    def log_prior(self, position: Position) -> Float[Array, ""]:
        """Log prior density ln p(θ)."""
        return _log_densities(self.alone, dict(position))[0]

    def log_likelihood(self, position: Position) -> Float[Array, ""]:
        """Log likelihood ln p(y | θ), of all examples where rows represent them."""
        return _log_densities(self.alone, dict(position))[1]

    def log_density(self, position: Position) -> Float[Array, ""]:
        """Log joint density ln p(θ, y), normalised over θ and y."""
        log_prior, log_likelihood = _log_densities(self.alone, dict(position))
        return log_prior + log_likelihood

    def law(self, position: Position, inputs: Any = None) -> dist.Distribution:
        """Distribution of labels given a position, of training examples or other inputs."""
        return self.run({**position, LABELS: 0.0}, inputs=inputs)[LABELS]["fn"]

    def law_of_new(self, position: Position, inputs: Any) -> dist.Distribution:
        """Distribution of the labels of new inputs, given a position and the training labels."""
        return NewLabels(self, position, inputs)

    def draw_prior(self, key: PRNGKeyArray, drawn: Position | None = None) -> dict[str, Array]:
        """Draw a position without data, but for the sites that are drawn already."""
        return _draw_prior(key, self.alone, dict(drawn or {}))

    def draw_by_numpy(self, count: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data of the sites whose generator JAX compiles slowly."""
        return {}

    def draws_without_data(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Stored numbers of draws [draw, …] without data, by name."""
        drawn = self.draw_by_numpy(count, stream(seed, Stream.PRIOR))
        observed = _observe_prior(jax_key(seed, Stream.PRIOR), drawn, self, count)
        return {name: np.asarray(values) for name, values in observed.items()}

    @property
    def prior_gaussian(self) -> Gaussian:
        """Mean and standard deviation without data of every coordinate."""
        return _prior_gaussian(self.alone)

    @property
    def alone(self) -> "Space":
        """The part that densities and priors need: no mode, no copy, labels of rows."""
        return replace(self, data=replace(self.data, basis=None), mode=None, single=None)

    def with_labels(self, labels: Array) -> "Space":
        """The space with other labels of the examples."""
        labels, residual = jnp.reshape(labels, (-1, self.data.labels.shape[1])), self.data.residual
        if self.data.basis is not None:
            labels, residual = split_labels(labels, self.data.basis)
        return replace(self, data=replace(self.data, labels=labels, residual=residual))

    # --- draws

    def start(self, key: PRNGKeyArray) -> Float[Array, " coordinate"]:
        """Draw the first point of a chain: around the mode if known, else a prior draw."""
        if self.mode is None:
            return self.flatten(self.draw_prior(key))
        return self.mode.gaussian.draw(key)

    def observe(
        self, key: PRNGKeyArray, position: Position, predict: Predict | None = None
    ) -> dict[str, Array]:
        """All that is stored of one draw, by name.

        predict  gives the stored numbers of predictors on the test set; None: all
        """
        temperature = self.temperature_at(position)
        given = self.given(position, part_of_key(key, Stream.FUNCTION))
        observed = given.observe(key, self.data, position, temperature)
        if predict is None:
            observed |= given.predictors(self.data.test(position))
        else:
            observed |= predict(given, position)
        observed |= self.data.observe(position, given.order_parameters)
        observed["log_prior"] = self.log_prior(position)
        return observed | self.observe_temperature(position)

    def observe_prior(self, key: PRNGKeyArray, drawn: Position) -> dict[str, Array]:
        """Stored numbers of one draw without data: order parameters, and labels of the examples.

        Some sites may be drawn already.
        """
        site_key, label_key = jax.random.split(key)
        position = self.draw_prior(site_key, drawn)
        observed = dict(self.given(position, None).order_parameters)
        observed |= self.data.observe(position, observed)
        observed |= {name: position[name] for name in self.keep if name in position}
        observed |= self.observe_temperature(position)
        if (examples := self.data.examples(position)) is not None:
            inputs, labels = examples
            replicated = self.law(position, inputs).sample(label_key).reshape(labels.shape)
            observed["posterior_predictive"] = replicated.astype(jnp.float32)
        return observed

    # --- one flat vector

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every site, in the order of the flat vector, which is alphabetical."""
        drawn = _draw_prior.eval_shape(_shape_of_key(), self.alone, {})
        return {name: drawn[name].shape for name in sorted(drawn)}

    @property
    def size(self) -> int:
        """Dimension of the posterior."""
        return sum(map(math.prod, self.shapes.values()))

    def flatten(self, position: Position) -> Float[Array, " coordinate"]:
        """All sites as one vector, in alphabetical order, rows first."""
        return jnp.concatenate([jnp.reshape(position[name], -1) for name in self.shapes])

    def unflatten(self, point: Float[Array, "*draw coordinate"]) -> dict[str, Array]:
        """The sites of one vector, or of many along leading axes."""
        position, start, leading = {}, 0, point.shape[:-1]
        for name, shape in self.shapes.items():
            end = start + math.prod(shape)
            position[name] = point[..., start:end].reshape(*leading, *shape)
            start = end
        return position

    def potential(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
        """−ln p(θ, y) of the flat vector."""
        return -self.log_density(self.unflatten(point))

    def least_potential(self, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
        """Lower bound of −ln p(θ, y): labels vary by 𝒯 or more, so p(y | θ) ≤ (2π𝒯)^(−n/2)."""
        position = self.unflatten(point)
        temperature, residual = self.temperature_at(position), self.data.residual
        largest = -0.5 * self.data.labels.size * jnp.log(2.0 * math.pi * temperature)
        if residual is not None:
            largest = largest + residual.log_likelihood(temperature)
        return -self.log_prior(position) - largest

    def slope(self, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
        """∂/∂θ of −ln p(θ, y), in the precision of gradients."""
        rough = self if self.single is None else self.single
        return _slope(rough.alone, point.astype(rough.dtype)).astype(point.dtype)

    @property
    def reference(self) -> Gaussian:
        """The Gaussian about which chains move: at the mode if known, else the prior's."""
        return self.prior_gaussian if self.mode is None else self.mode.gaussian

    # --- precision

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of the densities."""
        return self.temperature.dtype

    @property
    def gradient_dtype(self) -> str:
        """Floating-point type of the gradients."""
        return str(self.dtype if self.single is None else self.single.dtype)

    def astype(self, dtype: Any) -> "Space":
        """The space with all its numbers in another floating-point type."""
        return astype(self, dtype)

    def with_single_gradients(self) -> "Space":
        """The space with gradients in single precision; values stay as they are."""
        return replace(self, single=replace(self, single=None).astype(jnp.float32))


# --- the model as JAX takes it: run once for all spaces of equal shapes, wherever it is used


@partial(jax.jit, inline=True)
def _log_densities(space: Space, position: Position) -> tuple[Array, Array]:
    """ln p(θ) and ln p(y | θ): NumPyro's, of the sites that are sampled and that are observed."""
    labels = flat_labels(space.data.labels)
    with ONE_AT_A_TIME, handlers.block():
        logs, sites = compute_log_probs(space.model, (labels,), {}, position)
    parts = {False: jnp.zeros((), space.dtype), True: jnp.zeros((), space.dtype)}
    for name, value in logs.items():
        parts[sites[name]["is_observed"]] += value
    return parts[False], parts[True]


@partial(jax.jit, inline=True)
def _slope(space: Space, point: Float[Array, " coordinate"]) -> Float[Array, " coordinate"]:
    return jax.grad(space.potential)(point)


@partial(jax.jit, inline=True)
def _draw_prior(key: PRNGKeyArray, space: Space, drawn: Position) -> dict[str, Array]:
    sites = space.run(drawn, flat_labels(space.data.labels), key=key)
    return {name: sites[name]["value"] for name in _sampled(sites)}


@partial(jax.jit, inline=True)
def _prior_gaussian(space: Space) -> Gaussian:
    position = {name: jnp.zeros(shape, space.dtype) for name, shape in space.shapes.items()}
    sites = space.run(position, flat_labels(space.data.labels))
    priors = [(sites[name]["fn"], shape) for name, shape in space.shapes.items()]
    means = [jnp.broadcast_to(prior.mean, shape).reshape(-1) for prior, shape in priors]
    variances = [jnp.broadcast_to(prior.variance, shape).reshape(-1) for prior, shape in priors]
    moments = jnp.concatenate(means), jnp.sqrt(jnp.concatenate(variances))
    return Gaussian(*(moment.astype(space.dtype) for moment in moments))


def _sampled(sites: Mapping[str, dict[str, Any]]) -> list[str]:
    """Names of the sites that are sampled. Raises TypeError where one has a bounded prior."""
    names = []
    for name, site in sites.items():
        if site["type"] != "sample" or site["is_observed"]:
            continue
        support = site["fn"].support
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        if support is not dist.constraints.real:
            raise TypeError(f"the prior of {name} has the support {support}: it must be all reals")
        names.append(name)
    return names


@cache
def _shape_of_key() -> jax.ShapeDtypeStruct:
    return jax.eval_shape(jax.random.key, 0)


# --- new labels


class NewLabels(LabelLaw):
    """Joint distribution of the labels of new inputs, given a position and the training labels."""

    pytree_data_fields = ("space", "position", "inputs")

    def __init__(self, space: Space, position, inputs: Any, *, validate_args=None) -> None:
        self.space, self.position, self.inputs = space, position, inputs
        examples = len(jax.tree.leaves(inputs)[0])
        super().__init__(examples, space.data.labels.shape[1], validate_args)

    def log_prob(self, value):
        """ln p(y, y_new | θ) − ln p(y | θ)."""
        space, data = self.space, self.space.data
        new = jnp.reshape(value, (-1, data.labels.shape[1]))
        train = data.train(self.position)
        both = flat_labels(jnp.concatenate([data.labels, new]))
        together = space.law(self.position, data.join(train, self.inputs)).log_prob(both)
        return together - space.law(self.position, train).log_prob(flat_labels(data.labels))

    def draw(self, key):
        function_key, noise_key = jax.random.split(key)
        outputs = self.space.given(self.position, function_key).function(self.inputs)
        noise = jax.random.normal(noise_key, outputs.shape, outputs.dtype)
        temperature = self.space.temperature_at(self.position)
        return (outputs + jnp.sqrt(temperature) * noise).reshape(self.event_shape)


def chain_model(space: Space) -> None:
    """The posterior in a space as NumPyro's samplers take it."""
    space.model(flat_labels(space.data.labels))


@partial(jax.jit, static_argnames="count")
def _observe_prior(key, drawn: Position, space: Space, count: int):
    draws, batch = (jax.random.split(key, count), drawn), side_by_side(DRAWN_TOGETHER)
    return jax.lax.map(lambda draw: space.observe_prior(*draw), draws, batch_size=batch)
