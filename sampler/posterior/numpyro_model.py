"""The posterior as plain NumPyro models, for everything that NumPyro does with a model.

Priors, forward pass and laws of the labels are those of the models that our chains sample; here
labels are an argument, and what a reader wants to see of a draw is a site. Chains use less of it
where that is faster: where rows stand for the training examples they see the rows, not the labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float

from sampler.attention.sampled import Tokens
from sampler.errors import InputError
from sampler.network import named_order_parameters, network_outputs, overlaps
from sampler.posterior.density import (
    Position,
    Weighted,
    energy_at,
    observed_temperature,
    sample_sites,
    specialised,
    temperature_prior,
    temperature_ratio,
    weights_at,
)
from sampler.posterior.hidden_weights import (
    Forward,
    NewIndependentLabels,
    ReadoutPosterior,
    hidden_weight_model,
    readout_columns,
)
from sampler.posterior.labels import (
    CollapsedLabels,
    Labels,
    NewLabels,
    sample_labels_of_examples,
    site_of_labels,
)
from sampler.posterior.learned_attention import AttendingExamples, limit_scale
from sampler.posterior.order_parameters import (
    order_parameters_at,
    sample_order_parameters,
)
from sampler.posterior.spaces import linear_outputs
from sampler.posterior.weights import weight_model
from theory.architecture import Architecture
from theory.learning_problem import LabelEnergy, LearningProblem
from theory.path_kernels import Features, path_features
from theory.predictor import Predictor
from theory.wishart_chain import WishartChain

# Sites on request, by whether weights V_0 are among the sites.
SITES_OF_WEIGHTS = ("predictor",)
SITES_GIVEN_KERNEL = ("predictor_mean", "predictor_variance")
# Attended inputs and labels of all training examples.
WholeTrainingSet = tuple[
    Float[np.ndarray, "example path channel"], Float[np.ndarray, "example output"]
]
# A model of NumPyro, and the keyword arguments to call it with.
Model = tuple[Callable[..., None], dict[str, Any]]


def require_float64() -> None:
    """Raise InputError unless JAX computes in float64; nothing is set here."""
    precision = jnp.result_type(float)
    if precision != jnp.float64:
        remedy = "factorising K + 𝒯 1 needs 64 bits; call numpyro.enable_x64() before anything else"
        raise InputError("precision", str(precision), remedy)


def refuse_unknown_sites(sites: Sequence[str], known: tuple[str, ...]) -> None:
    """Raise InputError for a site that this model cannot have."""
    for name in sites:
        if name not in known:
            raise InputError("sites", name, f"this space has {', '.join(known)}")


def make_deterministic(values: dict[str, Array]) -> None:
    for name, value in values.items():
        numpyro.deterministic(name, value)


# --- all weights


def model_of_weights(
    inputs: Any,
    labels: Labels | None,
    temperature: Float[Array, ""],
    variances: Float[Array, " layer"],
    inputs_test: Any = None,
    inputs_new: Any = None,
    *,
    predict: Forward,
    architecture: Weighted,
    temperature_spread: float,
    fits_theory: bool,
    sites: tuple[str, ...],
) -> None:
    """All weights, and the labels of every example given these.

    predict  f(x) of inputs, from the weights
    """
    require_float64()
    position = weight_model(
        inputs,
        labels,
        temperature,
        variances,
        architecture=architecture,
        temperature_spread=temperature_spread,
        predict=predict,
    )
    weights = weights_at(position, architecture)
    if fits_theory:
        make_deterministic(named_order_parameters(overlaps(weights, architecture)))
    make_deterministic(observed_temperature(position, temperature))
    if "predictor" in sites:
        numpyro.deterministic("predictor", site_of_labels(predict(weights, inputs_test)))
    if inputs_new is not None:
        outputs, noise = predict(weights, inputs_new), temperature * temperature_ratio(position)
        sample_labels_of_examples(outputs, None, noise, "y_new", "new_example")


def make_model_of_weights(
    inputs: Any,
    labels: Float[Array, "example output"],
    inputs_test: Any,
    sites: Sequence[str],
    *,
    temperature: float,
    architecture: Weighted,
    temperature_spread: float,
    predict: Forward | None = None,
    hidden: bool = False,
) -> Model:
    """Return the model of all weights, or of hidden weights.

    predict  forward pass of a network outside the theory
    hidden   whether the readout is integrated out
    """
    refuse_unknown_sites(sites, SITES_GIVEN_KERNEL if hidden else SITES_OF_WEIGHTS)
    sizes = architecture.sizes
    common = {
        "architecture": sizes,
        "temperature_spread": temperature_spread,
        "sites": tuple(sites),
    }
    if hidden:
        forward = predict or linear_outputs(sizes)
        model = specialised(model_of_hidden_weights, predict=forward, **common)
    else:
        forward = predict or specialised(network_outputs, architecture=sizes)
        common["fits_theory"] = predict is None
        model = specialised(model_of_weights, predict=forward, **common)
    return model, {
        "inputs": inputs,
        "labels": site_of_labels(labels),
        "temperature": jnp.asarray(temperature),
        "variances": jnp.asarray(architecture.variances),
        **({"inputs_test": inputs_test} if sites else {}),
    }


# --- hidden weights


def model_of_hidden_weights(
    inputs: Any,
    labels: Labels | None,
    temperature: Float[Array, ""],
    variances: Float[Array, " layer"],
    inputs_test: Any = None,
    inputs_new: Any = None,
    *,
    predict: Forward,
    architecture: Weighted,
    temperature_spread: float,
    sites: tuple[str, ...],
) -> None:
    """All weights but the readout, and the labels of all examples given these."""
    require_float64()
    network = {"architecture": architecture, "predict": predict}
    position, columns, labels = hidden_weight_model(
        inputs, labels, temperature, variances, temperature_spread=temperature_spread, **network
    )
    make_deterministic(observed_temperature(position, temperature))
    here = temperature * temperature_ratio(position)
    by_output = jnp.reshape(labels, (-1, architecture.outputs))
    if sites:
        of_test = readout_columns(position, inputs_test, variances, **network)
        found = ReadoutPosterior.of(columns, by_output, here).moments(of_test)
        moments = dict(zip(SITES_GIVEN_KERNEL, found, strict=True))
        make_deterministic({name: site_of_labels(moments[name]) for name in sites})
    if inputs_new is not None:
        of_new = readout_columns(position, inputs_new, variances, **network)
        numpyro.sample("y_new", NewIndependentLabels(of_new, here, columns, by_output))


# --- order parameters, or the weights above V_0


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["energy", "features", "input_variance", "projection"],
    meta_fields=[],
)
@dataclass(frozen=True)
class TrainingExamples:
    """Training examples as the collapsed spaces see them; what the labels are is not among it.

    energy          path kernels and temperature 𝒯_0, of the examples or of rows that stand for them
    features        φ^π of these
    input_variance  σ_0², with which features are made
    projection      Q [example, row], where rows stand for the examples: attended inputs are Q times
                    those of the rows
    """

    energy: LabelEnergy
    features: Float[Array, "row path channel"]
    input_variance: Float[Array, ""]
    projection: Float[Array, "example row"] | None

    def features_of(
        self, inputs: Float[Array, "new path channel"]
    ) -> Float[Array, "new path channel"]:
        return path_features(jnp.asarray(inputs), self.input_variance)


def collapsed_model(
    labels: Labels | None,
    examples: TrainingExamples,
    prior: WishartChain | Float[Array, " layer"],
    inputs_test: Float[Array, "test path channel"] | None = None,
    inputs_new: Float[Array, "new path channel"] | None = None,
    *,
    draw: Callable,
    order_parameters: Callable[..., tuple[Array, ...]],
    sites: tuple[str, ...],
) -> None:
    """The sites of U_1, and the labels of all examples given it.

    draw              samples the sites from their prior, and gives the factor F of the kernel
    order_parameters  U_1 … U_a at a position
    """
    require_float64()
    position, factor = draw(prior)
    energy = energy_at(examples.energy, position)
    law = CollapsedLabels(energy, factor, examples.projection)
    labels = numpyro.sample("y", law, obs=site_of_labels(labels))
    matrices = order_parameters(position, prior)
    if matrices:
        make_deterministic(named_order_parameters(matrices))
    make_deterministic(observed_temperature(position, examples.energy.temperature))
    if not sites and inputs_new is None:
        return
    by_output = jnp.reshape(labels, (-1, energy.labels.shape[1]))
    rows = by_output if examples.projection is None else examples.projection.T @ by_output
    energy = replace(energy, labels=rows)
    if sites:
        cross = Features(examples.features_of(inputs_test), examples.features)
        moments = dict(zip(SITES_GIVEN_KERNEL, Predictor(energy, cross, None)(factor), strict=True))
        make_deterministic({name: site_of_labels(moments[name]) for name in sites})
    if inputs_new is not None:
        features = examples.features, examples.features_of(inputs_new)
        numpyro.sample("y_new", NewLabels(energy, factor, *features))


def make_collapsed_model(
    learning: LearningProblem,
    labels: Float[Array, "example output"],
    inputs_test: Float[Array, "test path channel"],
    sites: Sequence[str],
    inputs: Float[np.ndarray, "example path channel"] | None = None,
) -> Model:
    """Return the model in the space "order_parameters".

    learning  the examples, or the rows that stand for them
    labels    of the examples themselves
    inputs    attended inputs of the examples themselves, where rows stand for them
    """
    refuse_unknown_sites(sites, SITES_GIVEN_KERNEL)
    arch = learning.architecture
    draw = specialised(sample_order_parameters, temperature_spread=learning.temperature_spread)
    examples = TrainingExamples(
        replace(learning.energy, temperature=jnp.asarray(learning.temperature), residual=None),
        learning.features,
        jnp.asarray(arch.variances[0]),
        None if inputs is None else jnp.asarray(basis_of_examples(inputs)),
    )
    model = specialised(
        collapsed_model, draw=draw, order_parameters=order_parameters_at, sites=tuple(sites)
    )
    return model, {
        "labels": site_of_labels(labels),
        "examples": examples,
        "prior": WishartChain.of(arch),
        **({"inputs_test": inputs_test} if sites else {}),
    }


# --- attention that is sampled, too


def model_with_attention(
    labels: Labels | None,
    examples: AttendingExamples,
    prior: WishartChain | Float[Array, " layer"],
    inputs_test: Tokens | None = None,
    inputs_new: Tokens | None = None,
    *,
    model: Callable[..., None],
    of_weights: bool,
) -> None:
    """Logit weights of the learned heads, then the model of the attention that they make.

    model       `model_of_weights`, `model_of_hidden_weights`, or `collapsed_model`
    of_weights  whether it is one of the first two
    """
    require_float64()
    logits = sample_sites(examples.attention.priors)
    attended = examples.attended(logits)
    others = [
        None if tokens is None else examples.attended(logits, tokens)
        for tokens in (inputs_test, inputs_new)
    ]
    if of_weights:
        model(attended, labels, examples.temperature, prior, *others)
        return
    energy, features = examples.energy(attended), examples.features(attended)
    training = TrainingExamples(energy, features, examples.variances[0], None)
    model(labels, training, prior, *others)


def sample_infinite_width(
    variances: Float[Array, " layer"], rows: int, temperature_spread: float
) -> tuple[Position, Float[Array, "row row"]]:
    """Sample what has a prior of its own; and the factor √g 1 of U_1 at infinite width."""
    position = sample_sites(temperature_prior(temperature_spread, variances.dtype))
    return position, limit_scale(variances) * jnp.eye(rows, dtype=variances.dtype)


def no_order_parameters(position: Position, variances: Float[Array, " layer"]) -> tuple:
    """At infinite width order parameters are known."""
    return ()


def make_model_with_attention(
    space: str,
    examples: AttendingExamples,
    architecture: Architecture,
    temperature_spread: float,
    inputs_test: Tokens,
    sites: Sequence[str],
) -> Model:
    """Return the model of sampled attention in a space; `inputs_test` and new ones are tokens."""
    require_float64()
    sizes, prior = architecture.sizes, examples.variances
    known = SITES_OF_WEIGHTS if space == "weights" else SITES_GIVEN_KERNEL
    refuse_unknown_sites(sites, known)
    common = {
        "architecture": sizes,
        "temperature_spread": temperature_spread,
        "sites": tuple(sites),
    }
    collapsed: dict[str, tuple[Callable, Callable]] = {
        "order_parameters": (
            specialised(sample_order_parameters, temperature_spread=temperature_spread),
            order_parameters_at,
        ),
        "attention": (
            specialised(
                sample_infinite_width,
                rows=architecture.path_count * architecture.outputs,
                temperature_spread=temperature_spread,
            ),
            no_order_parameters,
        ),
    }
    if space == "weights":
        forward = specialised(network_outputs, architecture=sizes)
        model = specialised(model_of_weights, predict=forward, fits_theory=True, **common)
    elif space == "hidden_weights":
        model = specialised(model_of_hidden_weights, predict=linear_outputs(sizes), **common)
    elif space in collapsed:
        draw, matrices = collapsed[space]
        arguments = {"draw": draw, "order_parameters": matrices, "sites": tuple(sites)}
        model = specialised(collapsed_model, **arguments)
        if space == "order_parameters":
            prior = WishartChain.of(architecture)
    else:
        raise InputError("space", space, f"use weights, hidden_weights, {', '.join(collapsed)}")
    of_weights = space not in collapsed
    return specialised(model_with_attention, model=model, of_weights=of_weights), {
        "labels": site_of_labels(examples.labels),
        "examples": examples,
        "prior": prior,
        **({"inputs_test": inputs_test} if sites else {}),
    }


def basis_of_examples(
    inputs: Float[np.ndarray, "example path channel"],
) -> Float[np.ndarray, "example row"]:
    """Q of X = Q R, X = [example, path · channel], with the signs of the kept triangle R."""
    basis, triangle = np.linalg.qr(np.reshape(inputs, (len(inputs), -1)))
    return basis * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)


def make_numpyro_model(
    space: str,
    learning: LearningProblem,
    inputs_test: Float[Array, "test path channel"],
    sites: Sequence[str] = (),
    whole: WholeTrainingSet | None = None,
) -> Model:
    """Return the model of a network of the theory in a space, and its keyword arguments.

    sites  deterministic sites on request, on the test set
    whole  attended inputs and labels of all examples, where rows stand for them in `learning`
    """
    require_float64()
    inputs, labels = (learning.attended, learning.labels) if whole is None else whole
    if space in ("hidden_weights", "weights"):
        return make_model_of_weights(
            jnp.asarray(inputs),
            jnp.asarray(labels),
            inputs_test,
            sites,
            temperature=learning.temperature,
            architecture=learning.architecture,
            temperature_spread=learning.temperature_spread,
            hidden=space == "hidden_weights",
        )
    if space != "order_parameters":
        raise InputError("space", space, 'use "order_parameters", "hidden_weights" or "weights"')
    examples = None if whole is None else inputs
    return make_collapsed_model(learning, jnp.asarray(labels), inputs_test, sites, examples)
