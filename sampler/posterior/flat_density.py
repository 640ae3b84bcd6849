"""The posterior as one JAX function of a flat vector, for samplers of any other library."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sampler.posterior.density import Density, observables_at
from sampler.posterior.numpyro_model import require_float64


@partial(jax.tree_util.register_dataclass, data_fields=["density", "constant"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class FlatDensity:
    """The posterior p(x | y) ∝ p(x, y) as a function of one vector x without constraints.

    Called with x [coordinate] it is ln p(x, y), normalised over x and y: a pure function of JAX, to
    be differentiated, compiled, or batched. The value is one of JAX's trees, too, so that compiled
    functions may take it as an argument.

    density   the posterior as our own chains know it
    constant  ln p of that part of the labels that no network can fit, where rows stand for examples
    """

    density: Density
    constant: float | Float[Array, ""]

    @property
    def space(self) -> str:
        """The space whose coordinates these are."""
        return self.density.name

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.density.coordinates.size

    @property
    def names(self) -> tuple[str, ...]:
        """Name of every coordinate: a site, and its place there, as in `V_1[0, 2, 3]`."""
        coordinates = self.density.coordinates
        return tuple(
            f"{name}{list(place)}"
            for name, shape in zip(coordinates.names, coordinates.shapes, strict=True)
            for place in product(*map(range, shape))
        )

    def __call__(self, point: Float[Array | np.ndarray, " coordinate"]) -> Float[Array, ""]:
        """Log joint density, ln p(x, y), normalised over x and y."""
        return self.density.log_density(self.sites(point)) + self.constant

    def log_prior(self, point: Float[Array | np.ndarray, " coordinate"]) -> Float[Array, ""]:
        """Log prior density, ln p(x)."""
        return self.density.log_prior(self.sites(point))

    def log_likelihood(self, point: Float[Array | np.ndarray, " coordinate"]) -> Float[Array, ""]:
        """Log likelihood, ln p(y | x)."""
        return self.density.log_likelihood(self.sites(point)) + self.constant

    def start(self, key: PRNGKeyArray) -> Float[Array, " coordinate"]:
        """Draw a start from the prior."""
        require_float64()
        return self.density.coordinates.flatten(self.density.draw_prior(key))

    def sites(
        self, point: Float[Array | np.ndarray, " coordinate"]
    ) -> dict[str, Float[Array, "..."]]:
        """The sites of a NumPyro model at x, by name."""
        require_float64()
        return self.density.coordinates.unflatten(jnp.asarray(point))

    def point(
        self, sites: Mapping[str, Float[Array | np.ndarray, "..."]]
    ) -> Float[Array, " coordinate"]:
        """Return x at these sites."""
        return self.density.coordinates.flatten({k: jnp.asarray(v) for k, v in sites.items()})

    def observables(
        self, points: Float[Array | np.ndarray, "*draws coordinate"], key: PRNGKeyArray
    ) -> dict[str, Float[np.ndarray, "..."]]:
        """Order parameters and predictors of draws, as `draws.nc` has them: name → [*draws, …].

        Predictors are those of the test set. `key` is for what is drawn given x, such as f in the
        collapsed spaces. Draws are taken a few at a time, so that memory stays bounded.
        """
        require_float64()
        points = jnp.asarray(points)
        leading, flat = points.shape[:-1], points.reshape(-1, points.shape[-1])
        keys = jax.random.split(key, len(flat))
        found = observables_at(keys, flat, self.density, self.density.together)
        shaped = {n: np.asarray(v).reshape((*leading, *v.shape[1:])) for n, v in found.items()}
        # One output has no axis of its own, as everywhere outside.
        one_output = shaped["predictor"].shape[-1] == 1
        return {
            name: values[..., 0] if one_output and name.startswith("predictor") else values
            for name, values in shaped.items()
        }
