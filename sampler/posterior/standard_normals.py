"""Several arrays of standard normal numbers at once."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def standard_normals(key: Array, shapes: Mapping[str, tuple[int, ...]], dtype) -> dict[str, Array]:
    """Independent N(0, 1) arrays of the given shapes, by name.

    One call of the generator for all: every call is compiled anew, at a large part of a second.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pieces = jnp.split(jax.random.normal(key, (int(ends[-1]),), dtype), ends[:-1])
    return {
        name: piece.reshape(shape)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }
