"""How often predictions are right, with binomial errors."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sampler.attention.forms.form import Form
from sampler.images.episodes import Episodes
from sampler.transformer.network import gather_inputs, predict
from sampler.transformer.training_data import PatchTable, part
from theory.accuracy import binomial_error

EXAMPLES_AT_ONCE = 500


@partial(jax.jit, static_argnames="forms")
def _predict(parameters, patches, positions, embedding, drawings, labels, forms):
    inputs = gather_inputs(patches, positions, embedding, drawings, labels)
    return predict(parameters, inputs, forms)


def predict_episodes(
    parameters: Mapping[str, Any],
    table: PatchTable,
    episodes: Episodes,
    forms: tuple[tuple[Form, ...], ...] = (),
) -> Float[np.ndarray, " example"]:
    """f of every episode, a few hundred at a time to bound memory."""
    pieces = []
    for start in range(0, episodes.examples, EXAMPLES_AT_ONCE):
        some = part(episodes, start, start + EXAMPLES_AT_ONCE)
        places = (jnp.asarray(some.drawings), jnp.asarray(some.labels))
        received = _predict(
            dict(parameters), table.patches, table.positions, table.embedding, *places, forms
        )
        pieces.append(np.asarray(received, dtype=np.float64))
    return np.concatenate(pieces)


def accuracy(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The fraction of right signs, 0 counting half, and its binomial error √(p(1 − p)/n)."""
    right = float(np.mean(0.5 + 0.5 * np.sign(predictions) * targets))
    return {"accuracy": right, "error": binomial_error(right, targets.size)}
