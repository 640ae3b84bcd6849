"""The posteriors without weights, integrated out: of order parameters, and of attention alone.

With every weight integrated out, p(U_a, U_L … U_1, y) is the chain of `theory.wishart_chain` times
N(y; 0, K(U_1) + 𝒯 1). Its dimension is bounded at any width, and independent of channels, tokens
and examples. Nothing here is derived from the action of the theory, which it is compared with.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.special import digamma, polygamma
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions as dist

from sampler.network import named_order_parameters
from sampler.posterior.data import FixedPaths, SampledPaths
from sampler.posterior.given import Given
from sampler.posterior.labels import (
    CollapsedLabels,
    IndependentLabels,
    RowsOfExamples,
    labels_of_weights,
)
from sampler.posterior.space import TEMPERATURE, Position, Space
from sampler.streams import Stream, stream
from theory.learning_problem import LabelEnergy
from theory.leave_one_out import left_out
from theory.path_kernels import Features, on_host, path_features, sum_over_paths
from theory.predictor import Predictor
from theory.wishart_chain import (
    WishartChain,
    bartlett_matrix,
    chain_factors,
    draw_log_chi,
    log_chi_density,
)

# Stored coordinates are named by their site after this.
BARTLETT = "bartlett_"
BARTLETT_SITES = ("chi_", "lower_")
# Weights that are drawn side by side, of draws without data.
PRIOR_NUMBERS = 2**21


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class KernelSpace(Space):
    """Spaces without weights: given U_1, regression with the kernel K(U_1).

    chain  the distribution of U_1 … U_a
    """

    data: FixedPaths | SampledPaths
    chain: WishartChain

    def lowest_factor(self, position: Position) -> Float[Array, "row rank"]:
        """F with U_1 = F Fᵀ."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """Number of outputs O."""
        return self.chain.shapes[-1].rows

    @property
    def input_variance(self) -> Float[Array, ""] | np.floating:
        """Prior variance σ_0² of V_0."""
        return self.chain.variances[0]

    def features(
        self, attended: Float[Array | np.ndarray, "example path channel"]
    ) -> Float[Array | np.ndarray, "example path channel"]:
        """Features φ^π of attended inputs."""
        return path_features(attended, self.input_variance)

    def energy(self, position: Position) -> LabelEnergy:
        """E(U_1) of the training labels at the data and temperature of a position."""
        kernels = self.data.kernels(position, self.features)
        return LabelEnergy(kernels, self.data.labels, self.temperature_at(position))

    def given(self, position: Position, key: PRNGKeyArray | None) -> Given:
        """The network given U_1, by regression with the kernel K(U_1)."""
        factor, energy = self.lowest_factor(position), self.energy(position)
        features = self.features(self.data.train(position))
        predictor = Predictor(energy, Features(features), None)
        whitening = predictor.whitening(factor)

        def moments(inputs: Array):
            cross = self.data.cross(inputs, features, self.features)
            return Predictor(energy, *cross).moments(whitening, factor)

        function = None
        if key is not None:
            weights = predictor.draw_weights(key, whitening, factor, features)
            function = lambda inputs: sum_over_paths(self.features(inputs), weights)  # noqa: E731
        return Given(
            function, moments, lambda _: left_out(energy, whitening, self.data.combinations)
        )


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class OrderParameterSpace(KernelSpace):
    """The Wishart chain of U_1 … U_a, and y ~ N(0, K(U_1) + 𝒯 1).

    Sites are `chi_l` [rank] and `lower_l` [entry] of each Bartlett factor B_l, l = 1 … L + 1.
    """

    name = "order_parameters"

    @property
    def fixed(self) -> FixedPaths:
        """The data of attention that is not sampled."""
        assert isinstance(self.data, FixedPaths)
        return self.data

    @property
    def overlaps_fix_predictors(self) -> bool:
        """Where attention is not sampled."""
        return isinstance(self.data, FixedPaths)

    def model(self, labels: Array | None, inputs: Any = None) -> None:
        """The Wishart chain in Bartlett coordinates as a NumPyro model, and all labels given it."""
        position = self.sample_shared()
        layers = zip(self.chain.degrees, self.chain.shapes, strict=True)
        for layer, (degrees, shape) in enumerate(layers, start=1):
            chi, lower = f"chi_{layer}", f"lower_{layer}"
            position[chi] = numpyro.sample(chi, StandardisedLogChi(degrees).to_event())
            if entries := shape.below_diagonal:
                standard = dist.Normal(0.0, 1.0).expand([entries])
                position[lower] = numpyro.sample(lower, standard.to_event())

        energy = self.energy(position)
        if inputs is not None:
            of_labels = jnp.zeros((len(inputs), self.outputs), inputs.dtype)
            energy = replace(energy, kernels=Features(self.features(inputs)), labels=of_labels)
        law = CollapsedLabels(energy, self.lowest_factor(position))

        if inputs is None and self.data.basis is not None:
            law = RowsOfExamples(law, self.data.basis, self.temperature_at(position))
        elif labels is not None:
            self.weigh_residual(position)
        numpyro.sample("y", law, obs=labels)

    def draw_by_numpy(self, count: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draws of all sites: compiling a generator of χ² takes JAX half a minute."""
        drawn = {
            f"chi_{layer}": draw_log_chi(np.asarray(degrees), (count, len(degrees)), generator)
            for layer, degrees in enumerate(self.chain.degrees, start=1)
        }
        for name, shape in self.shapes.items():
            if name not in drawn:
                scale = np.asarray(self.spread) if name == TEMPERATURE else 1.0
                normal = scale * generator.standard_normal((count, *shape))
                drawn[name] = normal.astype(self.dtype)
        return drawn

    def draws_without_data(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Stored numbers of draws [draw, …] without data; of fixed attention without JAX.

        Labels are those of networks with weights drawn from the prior: no kernel is factorised.
        """
        if not isinstance(self.data, FixedPaths):
            return super().draws_without_data(count, seed)
        generator, here = stream(seed, Stream.PRIOR), on_host(self)
        position = here.draw_by_numpy(count, generator)
        factors = here.factors(position)
        observed = dict(named_order_parameters(tuple(f @ f.mT for f in factors)))
        observed |= here.observe_temperature(position)
        temperatures = np.broadcast_to(here.temperature_at(position), count)
        if (examples := here.data.examples(position)) is not None:
            features = here.features(examples[0])
            block = max(1, PRIOR_NUMBERS // math.prod(factors[0].shape[1:2] + features.shape[2:]))
            labels = [
                labels_of_weights(
                    features,
                    factors[0][start : start + block],
                    temperatures[start : start + block],
                    generator.standard_normal,
                )
                for start in range(0, count, block)
            ]
            observed["posterior_predictive"] = np.concatenate(labels, dtype=np.float32)
        return observed

    def factors(
        self, position: Position
    ) -> tuple[Float[Array | np.ndarray, "*draw _size _rank"], ...]:
        """Factors F_1 … F_{L+1} with U_l = F_l F_lᵀ."""
        matrices = bartlett_matrices(position, self.chain)
        return chain_factors(matrices, self.chain.heads, self.chain.scales)

    def lowest_factor(self, position: Position) -> Float[Array, "row rank"]:
        """F_1."""
        return self.factors(position)[0]

    def given(self, position: Position, key: PRNGKeyArray | None) -> Given:
        """The network given U_1, with all order parameters and their Bartlett coordinates.

        From the coordinates weights are drawn back, and the evidence follows.
        """
        overlaps = tuple(factor @ factor.T for factor in self.factors(position))
        stored = {f"{BARTLETT}{n}": x for n, x in position.items() if n.startswith(BARTLETT_SITES)}
        return replace(
            super().given(position, key),
            order_parameters=named_order_parameters(overlaps),
            stored=stored,
        )


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionSpace(KernelSpace):
    """Sampled attention at infinite width; no weight and no order parameter is a site.

    U_1 = σ_1² ⋯ σ_a² 1 is fixed, and y ~ N(0, K(U_1) + 𝒯 1), each output by itself.
    """

    name = "attention"

    def model(self, labels: Array | None, inputs: Any = None) -> None:
        """Logit weights as a NumPyro model, and the labels given these."""
        position = self.sample_shared()
        features = self.features(self.data.train(position) if inputs is None else inputs)
        columns = self.scale * features.reshape(len(features), -1)
        law = IndependentLabels(columns, self.temperature_at(position), self.outputs)
        numpyro.sample("y", law, obs=labels)

    @property
    def scale(self) -> Float[Array, ""]:
        """Standard deviation σ_1 ⋯ σ_a, the root of the diagonal of U_1."""
        return jnp.sqrt(jnp.prod(self.chain.variances[1:]))

    def lowest_factor(self, position: Position) -> Float[Array, "row row"]:
        """The factor σ_1 ⋯ σ_a 1 of U_1."""
        rows = math.prod(self.chain.heads) * self.outputs
        return self.scale * jnp.eye(rows, dtype=self.scale.dtype)


def bartlett_matrices(
    position: Position, chain: WishartChain
) -> tuple[Float[Array | np.ndarray, "*draw _rows _rank"], ...]:
    """Bartlett matrices B_1 … B_{L+1} at a position, or at many along leading axes of NumPy's."""
    matrices = []
    layers = zip(chain.shapes, chain.degrees, strict=True)
    for layer, (shape, degrees) in enumerate(layers, start=1):
        diagonal = position[f"chi_{layer}"]
        below = position.get(f"lower_{layer}", diagonal[..., :0])
        matrices.append(bartlett_matrix(diagonal, below, shape.rows, degrees))
    return tuple(matrices)


def stored_sites(draws: Mapping[str, np.ndarray], temperature: float) -> dict[str, np.ndarray]:
    """Sites of the order parameters [chain, draw, …] from stored draws; temperature is 𝒯_0."""
    sites = {
        name.removeprefix(BARTLETT): values
        for name, values in draws.items()
        if name.startswith(BARTLETT)
    }
    if "temperature" in draws:
        sites[TEMPERATURE] = np.log(draws["temperature"] / temperature)[..., None]
    return sites


class StandardisedLogChi(dist.Distribution):
    """Distribution of τ with ln χ = ½ ln ν + τ/√(2ν), χ ~ χ_ν: of order one at every ν."""

    arg_constraints: ClassVar = {"degrees": dist.constraints.positive}
    support = dist.constraints.real
    reparametrized_params: ClassVar = ["degrees"]

    def __init__(self, degrees, *, validate_args=None) -> None:
        self.degrees = jnp.asarray(degrees)
        super().__init__(jnp.shape(self.degrees), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        return draw_log_chi(self.degrees, sample_shape + self.batch_shape, key)

    @property
    def mean(self):
        half = self.degrees / 2.0
        return jnp.sqrt(half) * (digamma(half) - jnp.log(half))

    @property
    def variance(self):
        half = self.degrees / 2.0
        return half * polygamma(1, half)

    def log_prob(self, value):
        return log_chi_density(value, self.degrees)
