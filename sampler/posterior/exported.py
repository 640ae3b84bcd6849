"""The posterior as a plain NumPyro model, for everything that NumPyro does with a model.

Priors and laws are those that our own chains sample; here labels are an argument, and what a reader
wants to see of a draw is a site.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpyro
from jaxtyping import Array, Float

from sampler.errors import InputError
from sampler.posterior.flat_density import require_settings
from sampler.posterior.labels import flat_labels
from sampler.posterior.space import Space, sample_labels
from sampler.posterior.spaces import WEIGHTS

# A model of NumPyro, and the keyword arguments to call it with.
Model = tuple[Callable[..., None], dict[str, Any]]


def export_model(space: Space, sites: Sequence[str], labels: Array | None = None) -> Model:
    """Return the model of a space, and its keyword arguments.

    sites   predictors of the test set that are sites on request
    labels  of the examples themselves, where rows stand for them in the space

    Raises InputError for a site that this space does not have.
    """
    require_settings()
    allowed = ("predictor",) if space.name == WEIGHTS else ("predictor_mean", "predictor_variance")
    for name in sites:
        if name not in allowed:
            raise InputError("sites", name, f"this space has {', '.join(allowed)}")
    labels = space.data.labels if labels is None else labels
    model = partial(posterior_model, sites=tuple(sites))
    return model, {"labels": flat_labels(labels), "space": space}


def posterior_model(
    labels: Array | None, space: Space, inputs_new: Any = None, *, sites: tuple[str, ...] = ()
) -> None:
    """The posterior with what a reader wants to see of a draw as deterministic sites.

    labels      y of the training examples; None where they are to be drawn
    inputs_new  further inputs, whose labels are the site `y_new`
    sites       predictors of the test set that are asked for
    """
    require_settings()
    position = space.model(labels)
    labels = position.pop("y")
    space = space.with_labels(labels)
    given = space.given(position, None)
    shown = dict(given.order_parameters)
    if space.spread is not None:
        shown["temperature"] = space.temperature_at(position)
    if sites:
        predictors = given.predictors(space.data.test(position))
        shown |= {name: flat_labels(predictors[name]) for name in sites}
    for name, value in shown.items():
        numpyro.deterministic(name, value)
    if inputs_new is not None:
        law = space.law_of_new(position, space.data.attend(position, inputs_new))
        sample_labels("y_new", "new_example", law)


def basis_of_examples(
    inputs: Float[np.ndarray, "example path channel"],
) -> Float[np.ndarray, "example row"]:
    """Q of X = Q R, X = [example, path · channel], with the signs of the triangle R of rows."""
    basis, triangle = np.linalg.qr(np.reshape(inputs, (len(inputs), -1)))
    return basis * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
