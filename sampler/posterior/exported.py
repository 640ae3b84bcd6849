"""The posterior for other programs: a NumPyro model, and a JAX function of one flat vector.

Both are the model that our own chains sample. In the NumPyro model labels are an argument, and
order parameters and predictors are sites.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers

from sampler.errors import InputError
from sampler.posterior.labels import flat_labels
from sampler.posterior.space import Space
from sampler.posterior.weights import WeightSpace
from sampler.runtime import side_by_side

# A model of NumPyro, and the keyword arguments to call it with.
Model = tuple[Callable[..., None], dict[str, Any]]
TOGETHER = 16
# Settings of JAX's transfer guard with which no constant may be written in a function.
GUARDED = ("disallow", "disallow_explicit")


def require_settings() -> None:
    """Raise InputError unless JAX computes in float64 and takes numbers from the host.

    Nothing is set here: the returned functions are called outside `jax_settings`.
    """
    precision = jnp.result_type(float)
    if precision != jnp.float64:
        remedy = "factorising K + 𝒯 1 needs 64 bits; call numpyro.enable_x64() before anything else"
        raise InputError("precision", str(precision), remedy)
    settings: Any = jax.config
    guard = settings.jax_transfer_guard_host_to_device
    if guard in GUARDED:
        remedy = 'constants of the posterior come from the host: set it to "allow" or "log"'
        raise InputError("jax_transfer_guard", guard, remedy)


def export_model(space: Space, sites: Sequence[str], labels: Array | None = None) -> Model:
    """Return the model of a space, and its keyword arguments.

    sites   predictors of the test set that are sites on request
    labels  of the examples themselves, where rows represent them in the space

    Raises InputError for a site that this space does not have.
    """
    require_settings()
    known = isinstance(space, WeightSpace)
    allowed = ("predictor",) if known else ("predictor_mean", "predictor_variance")
    for name in sites:
        if name not in allowed:
            raise InputError("sites", name, f"this space has {', '.join(allowed)}")
    given = space.data.labels if labels is None else labels
    model = partial(posterior_model, shown_sites=tuple(sites))
    return model, {"labels": flat_labels(given), "space": space}


def posterior_model(
    labels: Array | None, space: Space, inputs_new: Any = None, *, shown_sites: tuple[str, ...] = ()
) -> None:
    """The posterior with quantities of a draw as deterministic sites.

    labels       y of the training examples; None where they are to be drawn
    inputs_new   further inputs, whose labels are the site `y_new`
    shown_sites  predictors of the test set that are asked for
    """
    require_settings()
    sites = handlers.trace(space.model).get_trace(labels)
    position = {name: sites[name]["value"] for name in space.shapes}
    space = space.with_labels(sites["y"]["value"])
    given = space.given(position, None)
    shown = {**given.order_parameters, **space.observe_temperature(position)}
    if shown_sites:
        predictors = given.predictors(space.data.test(position))
        shown |= {name: flat_labels(predictors[name]) for name in shown_sites}
    for name, value in shown.items():
        numpyro.deterministic(name, value)
    if inputs_new is not None:
        law = space.law_of_new(position, space.data.attend(position, inputs_new))
        independent = bool(law.batch_shape)
        with numpyro.plate("new_example", law.batch_shape[0]) if independent else nullcontext():
            numpyro.sample("y_new", law)


def basis_of_examples(
    inputs: Float[np.ndarray, "example path channel"],
) -> Float[np.ndarray, "example row"]:
    """Q of X = Q R, X = [example, path · channel], with the signs of the triangle R of rows."""
    basis, triangle = np.linalg.qr(np.reshape(inputs, (len(inputs), -1)))
    return basis * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)


@register_dataclass
@dataclass(frozen=True, eq=False)
class FlatDensity:
    """The posterior p(θ | y) ∝ p(θ, y) as a function of one vector θ without constraints.

    Called with θ [coordinate] it is ln p(θ, y), normalised over θ and y: a pure function of JAX, to
    be differentiated, compiled, or batched. The value is one of JAX's trees, so that compiled
    functions may take it as an argument.
    """

    posterior: Space

    @property
    def space(self) -> str:
        """The name of the space whose coordinates these are."""
        return self.posterior.name

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.posterior.size

    @property
    def names(self) -> tuple[str, ...]:
        """Name of every coordinate: a site, and its place there, as in `V_1[0, 2, 3]`."""
        return tuple(
            f"{name}{list(place)}"
            for name, shape in self.posterior.shapes.items()
            for place in product(*map(range, shape))
        )

    def __call__(self, point: Float[Array | np.ndarray, " coordinate"]) -> Float[Array, ""]:
        """Log joint density, ln p(θ, y), normalised over θ and y."""
        return self.posterior.log_density(self.sites(point))

    def log_prior(self, point: Float[Array | np.ndarray, " coordinate"]) -> Float[Array, ""]:
        """Log prior density, ln p(θ)."""
        return self.posterior.log_prior(self.sites(point))

    def log_likelihood(self, point: Float[Array | np.ndarray, " coordinate"]) -> Float[Array, ""]:
        """Log likelihood, ln p(y | θ)."""
        return self.posterior.log_likelihood(self.sites(point))

    def start(self, key: PRNGKeyArray) -> Float[Array, " coordinate"]:
        """Draw a start from the prior."""
        require_settings()
        return self.posterior.flatten(self.posterior.draw_prior(key))

    def sites(
        self, point: Float[Array | np.ndarray, " coordinate"]
    ) -> dict[str, Float[Array, "..."]]:
        """The sites of a NumPyro model at θ, by name."""
        require_settings()
        return self.posterior.unflatten(jnp.asarray(point))

    def point(
        self, sites: Mapping[str, Float[Array | np.ndarray, "..."]]
    ) -> Float[Array, " coordinate"]:
        """Return θ at these sites."""
        return self.posterior.flatten({k: jnp.asarray(v) for k, v in sites.items()})

    def observables(
        self, points: Float[Array | np.ndarray, "*draws coordinate"], key: PRNGKeyArray
    ) -> dict[str, Float[np.ndarray, "..."]]:
        """Everything that `draws.nc` has of draws, by name → [*draws, …].

        Order parameters, predictors of the test set, and of every training example its log
        likelihood and a label simulated. `key` is for draws given θ, such as f in the
        collapsed spaces. Draws are taken a few at a time, so that memory stays bounded.
        """
        require_settings()
        points = jnp.asarray(points)
        leading, flat = points.shape[:-1], points.reshape(-1, points.shape[-1])
        observables = observe_points(jax.random.split(key, len(flat)), flat, self.posterior)
        # One output has no axis of its own, as everywhere outside.
        squeeze = observables["predictor"].shape[-1] == 1
        return {
            name: np.asarray(values).reshape(
                leading + values.shape[1 : -1 if squeeze and "predict" in name else None]
            )
            for name, values in observables.items()
        }


@jax.jit
def observe_points(keys, points: Float[Array, "draw coordinate"], space: Space):
    """All that is stored of draws at these points, by name → [draw, …]."""

    def observe(draw):
        key, point = draw
        return space.observe(key, space.unflatten(point))

    return jax.lax.map(observe, (keys, points), batch_size=side_by_side(TOGETHER))
