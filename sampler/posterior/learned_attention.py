"""The posterior of attention and weights together: p(W, x | y) ∝ p(W) p(x) N(y; 0, K(x; W) + 𝒯 1).

Logit weights W of learned heads are further sites beside those of any space. Given W a network is
one with fixed attention, whose attended inputs are made from W inside the density: the models and
observables are those of `spaces`, with data that follow from the position.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float

from sampler.attention.sampled import SampledAttention, Tokens
from sampler.posterior.density import (
    Density,
    Position,
    observed_temperature,
    sample_sites,
    specialised,
    temperature_prior,
    temperature_ratio,
)
from sampler.posterior.hidden_weights import (
    hidden_weight_model,
    hidden_weight_priors,
    observe_hidden_weights,
)
from sampler.posterior.labels import IndependentLabels, site_of_labels
from sampler.posterior.order_parameters import order_parameter_model, site_priors
from sampler.posterior.pointwise import LabelledExamples
from sampler.posterior.spaces import (
    EFFECTIVE,
    FACTOR,
    at_temperature_of,
    linear_outputs,
    observe_order_parameters,
    observe_weights,
    predict_of_order_parameters,
    predict_of_weights,
)
from sampler.posterior.weights import weight_model, weight_priors
from theory.architecture import Architecture
from theory.learning_problem import LabelEnergy
from theory.path_kernels import Features, path_features, sum_over_paths
from theory.predictor import Predictor
from theory.wishart_chain import WishartChain

# Eigenvalues of U_1, U_2 … U_a, which an exchange of heads leaves as they are.
SPECTRUM = "overlap_eigenvalues_"


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["attention", "tokens", "labels", "temperature", "variances"],
    meta_fields=[],
)
@dataclass(frozen=True)
class AttendingExamples:
    """Training examples whose attended inputs follow from the logit weights of a position.

    attention    the heads
    tokens       inputs [example, token, channel] and attention of the heads that are not learned
    labels       y [example, output]
    temperature  𝒯_0
    variances    σ_0² … σ_a²
    """

    attention: SampledAttention
    tokens: Tokens
    labels: Float[Array, "example output"]
    temperature: Float[Array, ""]
    variances: Float[Array, " layer"]

    def attended(
        self, position: Position, tokens: Tokens | None = None
    ) -> Float[Array, "example path channel"]:
        """ξ^π at a position, of the training examples or of others."""
        return self.attention.attended(position, self.tokens if tokens is None else tokens)

    def features(self, attended: Float[Array, "any path channel"]):
        """Features φ^π of attended inputs."""
        return path_features(attended, self.variances[0])

    def energy(self, attended: Float[Array, "example path channel"]) -> LabelEnergy:
        """E(U_1) of the labels, which is differentiated in the attended inputs, too."""
        kernels = Features(self.features(attended), None)
        return LabelEnergy(kernels, self.labels, self.temperature)

    def given(self, position: Position) -> tuple[LabelEnergy, Float[Array, "example path channel"]]:
        """Energy of the labels and features φ^π at a position."""
        attended = self.attended(position)
        return self.energy(attended), self.features(attended)

    def astype(self, dtype) -> "AttendingExamples":
        return jax.tree.map(partial(jnp.asarray, dtype=dtype), self)


# --- models


def attending_model(
    examples: AttendingExamples, prior: Any, *, model: Callable[..., Any], collapsed: bool
) -> None:
    """Standard normal logit weights, then the model of fixed attention that they make.

    collapsed  whether that takes the energy of the labels, or attended inputs and labels
    """
    attended = examples.attended(sample_sites(examples.attention.priors))
    if collapsed:
        model(examples.energy(attended), prior)
    else:
        model(attended, examples.labels, examples.temperature, prior)


def infinite_width_model(
    energy: LabelEnergy, variances: Float[Array, " layer"], temperature_spread: float = 0.0
) -> None:
    """Labels at infinite width: all weights integrated out, and nothing left of them."""
    position = sample_sites(temperature_prior(temperature_spread, variances.dtype))
    features = energy.kernels.left.reshape(len(energy.labels), -1)
    columns = limit_scale(variances) * features
    temperature = energy.temperature * temperature_ratio(position)
    labels = IndependentLabels(columns, temperature, energy.labels.shape[1])
    numpyro.sample("y", labels, obs=site_of_labels(energy.labels))


def limit_scale(variances: Float[Array, " layer"]) -> Float[Array, ""]:
    """Scale √g of U_1 = g 1 at infinite width, g = σ_1² … σ_a²."""
    return jnp.sqrt(jnp.prod(variances[1:]))


# --- what is read off a draw


def observe_attending(
    key: Array,
    position: Position,
    examples: AttendingExamples,
    prior: Any,
    *,
    observe: Callable[..., dict[str, Array]],
) -> dict[str, Array]:
    """Observables of the space at the attention of this position, and the logit weights."""
    seen = observe(key, position, prior, examples.temperature)
    return with_attention(seen, position, examples)


def with_attention(
    found: dict[str, Array], position: Position, examples: AttendingExamples
) -> dict[str, Array]:
    """Observables, with the eigenvalues of their overlaps and the logit weights of the position."""
    overlaps = [values for name, values in found.items() if "order_parameter" in name]
    found |= {f"{SPECTRUM}{n}": jnp.linalg.eigvalsh(u) for n, u in enumerate(overlaps, start=1)}
    return found | {name: position[name] for name, _ in examples.attention.sites}


def observe_hidden_attending(
    key: Array,
    position: Position,
    examples: AttendingExamples,
    prior: Float[Array, " layer"],
    test: Tokens,
    validation: Tokens | None,
    *,
    observe: Callable[..., dict[str, Array]],
) -> dict[str, Array]:
    """Observables of hidden weights at the attention of this position, and the logit weights."""
    attended = examples.attended(position)
    others = [None if t is None else examples.attended(position, t) for t in (test, validation)]
    training = LabelledExamples(attended, examples.labels)
    given = attended, examples.labels, examples.temperature, prior
    return with_attention(observe(key, position, *given, *others, training), position, examples)


def predict_attending(
    key: Array,
    seen: Mapping[str, Array],
    examples: AttendingExamples,
    test: Tokens,
    validation: Tokens | None,
    *,
    predict: Callable[..., dict[str, Array]],
) -> dict[str, Array]:
    """Predictors of the space at the attention of this draw, and what it says of the labels."""
    attended = examples.attended(seen)
    training = LabelledExamples(attended, examples.labels)
    found = predict(key, seen, examples, attended, examples.attended(seen, test), training)
    if validation is not None:
        others = examples.attended(seen, validation)
        of_validation = predict(key, seen, examples, attended, others, None)
        found["predictor_validation"] = of_validation["predictor"]
    return found


def observe_infinite_width(
    key: Array,
    position: Position,
    variances: Float[Array, " layer"],
    temperature: Float[Array, ""],
    *,
    rows: int,
) -> dict[str, Array]:
    """The factor of U_1, which is known: √g 1, of so many rows."""
    factor = limit_scale(variances) * jnp.eye(rows, dtype=variances.dtype)
    return {FACTOR: factor} | observed_temperature(position, temperature)


def predictor_at(
    seen: Mapping[str, Array], examples: AttendingExamples, attended: Array, others: Array
) -> Predictor:
    """The predictor of other examples at the attention of a draw."""
    features = examples.features(attended)
    energy = LabelEnergy(Features(features, None), examples.labels, examples.temperature)
    cross = Features(examples.features(others), features)
    return at_temperature_of(Predictor(energy, cross, None), seen)


def predict_by_order_parameters(key, seen, examples, attended, others, training):
    """As `predict_of_order_parameters`."""
    predictor = predictor_at(seen, examples, attended, others)
    features = predictor.cross.right, predictor.cross.left
    return predict_of_order_parameters(
        key, seen, predictor, *features, examples.variances[0], training
    )


def predict_by_weights(key, seen, examples, attended, others, training, *, architecture):
    """As `predict_of_weights`."""
    return predict_of_weights(
        key, seen, others, examples.temperature, training, architecture=architecture
    )


def drawn_outputs(
    key: Array, seen: Mapping[str, Array], examples: AttendingExamples
) -> Float[Array, "example output"]:
    """Draw f(x) of the training examples without data, from what was read off a position."""
    attended = examples.attended(seen)
    _, paths, channels = attended.shape
    if EFFECTIVE in seen:
        return sum_over_paths(attended, seen[EFFECTIVE].reshape(paths, -1, channels))
    factor = seen[FACTOR]
    normal = jax.random.normal(key, (factor.shape[1], channels), factor.dtype)
    weights = (factor @ normal).reshape(paths, -1, channels)
    return sum_over_paths(examples.features(attended), weights)


# --- the spaces


def attending_density(
    name: str,
    examples: AttendingExamples,
    test: Tokens,
    validation: Tokens | None,
    architecture: Architecture,
    temperature_spread: float,
    with_weights: bool,
) -> Density:
    """The posterior of attention and weights in the space `name`, as `spaces.make_density`.

    In the space "attention" the network is one of infinite width, whatever its widths. Chains
    begin from the prior: the mode is not known. Raises ValueError for another name.

    test, validation  further examples, whose predictor is read off every draw
    """
    sizes, variances = architecture.sizes, examples.variances
    if name == "order_parameters":
        prior: Any = WishartChain.of(architecture, variances.dtype)
        priors = site_priors(prior, temperature_spread)
        model = specialised(order_parameter_model, temperature_spread=temperature_spread)
        observe, predict = observe_order_parameters, predict_by_order_parameters
        passing: tuple[str, ...] = (FACTOR,)
    elif name == "weights":
        prior = variances
        priors = weight_priors(sizes, variances, temperature_spread)
        model = specialised(weight_model, architecture=sizes, temperature_spread=temperature_spread)
        observe = specialised(observe_by_weights, architecture=sizes, with_weights=with_weights)
        predict = specialised(predict_by_weights, architecture=sizes)
        passing = (EFFECTIVE,)
    elif name == "hidden_weights":
        network = {"architecture": sizes, "predict": linear_outputs(architecture)}
        kept = tuple(sizes.weight_shapes) if with_weights else ()
        observe = specialised(observe_hidden_weights, fits_theory=True, kept=kept, **network)
        model = specialised(hidden_weight_model, temperature_spread=temperature_spread, **network)
        return Density(
            name=name,
            model=specialised(attending_model, model=model, collapsed=False),
            arguments=(examples, variances),
            priors=examples.attention.priors
            | hidden_weight_priors(sizes, variances, temperature_spread),
            observe=specialised(observe_hidden_attending, observe=observe),
            observed=(examples, variances, test, validation),
        )
    elif name == "attention":
        prior = variances
        priors = temperature_prior(temperature_spread, variances.dtype)
        model = specialised(infinite_width_model, temperature_spread=temperature_spread)
        rows = architecture.path_count * architecture.outputs
        observe = specialised(observe_infinite_width, rows=rows)
        predict, passing = predict_by_order_parameters, (FACTOR,)
    else:
        known = "order_parameters, hidden_weights, weights, or attention"
        raise ValueError(f"space {name!r}: use {known}")
    return Density(
        name=name,
        model=specialised(attending_model, model=model, collapsed=name != "weights"),
        arguments=(examples, prior),
        priors=examples.attention.priors | priors,
        observe=specialised(observe_attending, observe=observe),
        observed=(examples, prior),
        complete=specialised(predict_attending, predict=predict),
        completing=(examples, test, validation),
        passing=passing,
        together=None,
    )


def observe_by_weights(key, position, variances, temperature, *, architecture, with_weights):
    """As `observe_weights`."""
    return observe_weights(
        key, position, temperature, architecture=architecture, with_weights=with_weights
    )
