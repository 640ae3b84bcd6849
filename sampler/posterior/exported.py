"""The posterior as a plain NumPyro model, for everything that NumPyro does with a model.

Priors and laws are those that our own chains sample; here labels are an argument, and what a reader
wants to see of a draw is a site.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import handlers

from sampler.errors import InputError
from sampler.posterior.flat_density import require_settings
from sampler.posterior.labels import flat_labels
from sampler.posterior.space import Space
from sampler.posterior.weights import Weights

# A model of NumPyro, and the keyword arguments to call it with.
Model = tuple[Callable[..., None], dict[str, Any]]


def export_model(space: Space, sites: Sequence[str], labels: Array | None = None) -> Model:
    """Return the model of a space, and its keyword arguments.

    sites   predictors of the test set that are sites on request
    labels  of the examples themselves, where rows stand for them in the space

    Raises InputError for a site that this space does not have.
    """
    require_settings()
    allowed = (
        ("predictor",) if isinstance(space, Weights) else ("predictor_mean", "predictor_variance")
    )
    for name in sites:
        if name not in allowed:
            raise InputError("sites", name, f"this space has {', '.join(allowed)}")
    labels = space.data.labels if labels is None else labels
    model = partial(posterior_model, shown_sites=tuple(sites))
    return model, {"labels": flat_labels(labels), "space": space}


def posterior_model(
    labels: Array | None, space: Space, inputs_new: Any = None, *, shown_sites: tuple[str, ...] = ()
) -> None:
    """The posterior with what a reader wants to see of a draw as deterministic sites.

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
