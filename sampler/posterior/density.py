"""A space in which the posterior is sampled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

Position = Mapping[str, Array]


@dataclass(frozen=True)
class SampledSpace:
    """What a sampler needs to know, and all it knows, about a posterior.

    name          the recipe's `sampler.space`
    model         NumPyro model; called with `arguments`
    arguments     arrays of the model: arguments of compiled code, never closures
    observe       (random key, position, *observed) → named numbers of one draw
    observed      further arrays that `observe` needs, such as test inputs
    start         random key → one chain's first position; None: a draw from the prior
    inverse_mass_matrix  known scale of every direction, {site names: matrix, or its diagonal};
                         None: adapted
    """

    name: str
    model: Callable[..., None]
    arguments: tuple[Any, ...]
    observe: Callable[..., dict[str, Array]]
    observed: tuple[Any, ...]
    start: Callable[[Array], Position] | None = None
    inverse_mass_matrix: Mapping[tuple[str, ...], Array] | None = None
