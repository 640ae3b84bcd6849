"""Predictor mean and variance at any order parameter: saddle point, GP limit or a draw.

The mean is a sum over paths: what each of them brings, and the mean of a network that loses heads.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from theory.architecture import AttentionPaths
from theory.energy import LabelEnergy, LearningProblem, inverse_of_lower
from theory.path_kernels import (
    FeatureForm,
    PathKernels,
    path_features,
    path_kernels,
    renormalised_features,
    summed_over_paths,
)

# What a chunk of test examples may take: any number of them is predicted in bounded memory, by
# `predict` and at every draw of a chain.
CHUNK_BYTES = 256 * 2**20


@partial(jax.tree_util.register_dataclass, data_fields=["energy", "cross", "gram"], meta_fields=[])
@dataclass(frozen=True)
class Predictor:
    """Predicts f on a set of test examples from any factor F of U_1 = F Fᵀ.

    energy  training kernels, labels and temperature
    cross   path kernels between test and training examples
    gram    φ^π(x)·φ^π'(x) [test, path, path] of each test example with itself; None where `cross`
            has the features themselves
    """

    energy: LabelEnergy
    cross: PathKernels
    gram: Float[Array, "test path path"] | None

    @classmethod
    def for_examples(
        cls, problem: LearningProblem, attended: Float[Array, "test path channel"]
    ) -> "Predictor":
        """A predictor for the given attended test inputs."""
        arch = problem.architecture
        cross = path_kernels(attended, problem.attended, arch)
        if isinstance(cross, FeatureForm):
            return cls(problem.energy, cross, None)
        return cls(problem.energy, cross, _gram(path_features(attended, arch.variances[0])))

    def __call__(
        self, factor: Float[Array, "row rank"]
    ) -> tuple[Float[Array, "test output"], Float[Array, "test output"]]:
        """Mean m and variance v of f, each output by itself.

        m(x) = k(x)ᵀ (K + 𝒯)⁻¹ y,   v(x) = K(x, x) − k(x)ᵀ (K + 𝒯)⁻¹ k(x); a new label varies by
        v + 𝒯. Source: arXiv 2405.15926, predictor statistics.
        """
        return self.moments(self.whitening(factor), factor)

    def whitening(
        self, factor: Float[Array, "row rank"]
    ) -> Float[Array, "example_output example_output"]:
        """L⁻¹ with L Lᵀ = K + 𝒯 1 of the training examples."""
        return inverse_of_lower(self.energy.noisy_kernel(factor).cholesky)

    def part(self, examples: slice) -> "Predictor":
        """The predictor of some of the test examples, where `cross` has their features."""
        return replace(self, cross=FeatureForm(self.cross.left[examples], self.cross.right))

    def with_sample(
        self,
        key: PRNGKeyArray,
        factor: Float[Array, "row rank"],
        features_train: Float[Array, "example path channel"],
        features_test: Float[Array, "test path channel"],
    ) -> tuple[
        Float[Array, "test output"], Float[Array, "test output"], Float[Array, "test output"]
    ]:
        """Mean, variance, and one draw of f on all test examples jointly, given U_1 = F Fᵀ.

        No covariance of the test set is ever formed.
        """
        whitening = self.whitening(factor)
        weights = self.drawn_weights(key, whitening, factor, features_train)
        sample = summed_over_paths(features_test, weights)
        return *self.moments(whitening, factor), sample

    def drawn_weights(
        self,
        key: PRNGKeyArray,
        whitening: Float[Array, "example_output example_output"],
        factor: Float[Array, "row rank"],
        features_train: Float[Array, "example path channel"],
    ) -> Float[Array, "path output channel"]:
        """Draw w from the posterior of f(x) = Σ_π φ^π(x)·w^π given U_1 = F Fᵀ.

        Matheron's rule: with w₀ = F z a draw from the prior, f₀ its outputs and ε ~ N(0, 𝒯),
        w = w₀ + F Fᵀ Φᵀ (K + 𝒯)⁻¹ (y − f₀ − ε).
        """
        weight_key, noise_key = jax.random.split(key)
        _, paths, channels = features_train.shape
        normal = jax.random.normal(weight_key, (factor.shape[1], channels), factor.dtype)
        prior = (factor @ normal).reshape(paths, -1, channels)
        on_train = summed_over_paths(features_train, prior)
        noise = jax.random.normal(noise_key, on_train.shape, factor.dtype)
        noisy_prior = on_train + jnp.sqrt(self.energy.temperature) * noise
        alpha = (whitening @ (self.energy.labels - noisy_prior).reshape(-1)) @ whitening
        return prior + learned_weights(features_train, alpha.reshape(on_train.shape), factor)

    def moments(
        self,
        whitening: Float[Array, "example_output example_output"],
        factor: Float[Array, "row rank"],
    ) -> tuple[Float[Array, "test output"], Float[Array, "test output"]]:
        """Mean and variance of all test examples, a chunk of them at a time."""

        def of_part(part: Predictor):
            return part.given(whitening, part.cross.kernel(factor), factor)

        chunk, tests = examples_at_a_time(self, factor), self.cross.examples
        if tests <= chunk:
            return of_part(self)
        # The last chunk is filled up; where there are chunks, `cross` has the features themselves.
        count = -(-tests // chunk)
        filled = jnp.pad(self.cross.left, ((0, count * chunk - tests), (0, 0), (0, 0)))

        def of_chunk(features):
            return of_part(replace(self, cross=FeatureForm(features, self.cross.right)))

        found = jax.lax.map(of_chunk, filled.reshape(count, chunk, *filled.shape[1:]))
        return tuple(values.reshape(count * chunk, -1)[:tests] for values in found)

    def given(
        self,
        whitening: Float[Array, "example_output example_output"],
        to_train: Float[Array, "_test_output example_output"],
        factor: Float[Array, "row rank"],
    ) -> tuple[Float[Array, "test output"], Float[Array, "test output"]]:
        """Mean and variance from L⁻¹, L Lᵀ = K + 𝒯 1, and K from test to training examples.

        A product with L⁻¹ takes two thirds of the time of a triangular solve.
        """
        whitened = to_train @ whitening.T
        mean = (whitened @ (whitening @ self.energy.flat_labels)).reshape(self._shape)
        explained = jnp.sum(whitened**2, axis=1).reshape(self._shape)
        return mean, self.prior_variance(factor) - explained

    @property
    def _shape(self) -> tuple[int, int]:
        return self.cross.examples, self.energy.labels.shape[1]

    def prior_variance(self, factor: Float[Array, "_row _rank"]) -> Float[Array, "test output"]:
        """K(x, x): the variance of f before any data."""
        if self.gram is None:
            renormalised = renormalised_features(self.cross.left, factor)
            return jnp.sum(renormalised**2, axis=1).reshape(self._shape)
        paths, outputs = self.gram.shape[1], self.energy.labels.shape[1]
        blocks = (factor @ factor.T).reshape(paths, outputs, paths, outputs)
        per_output = jnp.stack([blocks[:, c, :, c] for c in range(outputs)])
        return jnp.einsum("xpq,cpq->xc", self.gram, per_output)


def predict(
    predictor: Predictor, factor: Float[Array, "row rank"]
) -> tuple[Float[Array, "test output"], Float[Array, "test output"]]:
    """Compiled call of a predictor at one factor of U_1, a chunk of test examples at a time."""
    chunk = examples_at_a_time(predictor, factor)
    tests = predictor.cross.examples
    if tests <= chunk:
        return _predict(predictor, factor)
    whitening = _whitening(predictor, factor)
    parts = [
        _predict_given(predictor.part(slice(start, start + chunk)), whitening, factor)
        for start in range(0, tests, chunk)
    ]
    mean, variance = zip(*parts, strict=True)
    return jnp.concatenate(mean), jnp.concatenate(variance)


def examples_at_a_time(predictor: Predictor, factor: Float[Array, "row rank"]) -> int:
    """Test examples whose features and kernels fit into CHUNK_BYTES; all, if they are stored."""
    if not isinstance(predictor.cross, FeatureForm):
        return predictor.cross.examples
    outputs, channels = predictor.energy.labels.shape[1], predictor.cross.left.shape[2]
    # Renormalised features, and K to all labels, whitened and squared.
    numbers = outputs * (factor.shape[1] * channels + 3 * predictor.energy.labels.size)
    return max(1, CHUNK_BYTES // (factor.dtype.itemsize * numbers))


_gram = jax.jit(lambda features: jnp.einsum("xpi,xqi->xpq", features, features))
_predict = jax.jit(lambda predictor, factor: predictor(factor))
_predict_given = jax.jit(
    lambda predictor, whitening, factor: predictor.given(
        whitening, predictor.cross.kernel(factor), factor
    )
)
_whitening = jax.jit(lambda predictor, factor: predictor.whitening(factor))


def learned_weights(
    features: Float[Array, "example path channel"],
    alpha: Float[Array, "example output"],
    factor: Float[Array, "row rank"],
) -> Float[Array, "path output channel"]:
    """U_1 Φᵀ α: the weights w of f(x) = Σ_π φ^π(x)·w^π = Σ_μ K(x, x_μ) α_μ."""
    learned = jnp.einsum("xpi,xc->pci", features, alpha)
    paths, outputs, channels = learned.shape
    carried = factor @ (factor.T @ learned.reshape(paths * outputs, channels))
    return carried.reshape(paths, outputs, channels)


def path_contributions(
    problem: LearningProblem,
    factor: Float[Array, "row rank"],
    attended: Float[Array, "test path channel"],
) -> Float[Array, "test path output"]:
    """The terms m_π(x) of the predictor mean m(x) = Σ_π m_π(x), one per path, at U_1 = F Fᵀ.

        m_{π,c}(x) = φ^π(x)·β_{π,c},   β_{π,c} = Σ_{π',c'} U_1^{πc,π'c'} Σ_μ φ^π'(x_μ) α_{μ,c'}

    with α = (K + 𝒯 1)⁻¹ y. Given U_1 it is the posterior mean of the output of path π.
    """
    variance = problem.architecture.variances[0]
    alpha = problem.energy.noisy_kernel(factor).solve(problem.energy.flat_labels)
    alpha = alpha.reshape(problem.labels.shape)
    by_path = learned_weights(path_features(problem.attended, variance), alpha, factor)
    return jnp.einsum("xpi,pci->xpc", path_features(attended, variance), by_path)


def mean_without(
    contributions: Float[np.ndarray, "test path output"],
    paths: AttentionPaths,
    removed: Collection[tuple[int, int]],
) -> Float[np.ndarray, "test output"]:
    """The mean m(x) without the paths through heads (layer, head), counted from 0.

    They are removed after learning: all other paths keep what they learned beside these heads.
    """
    return contributions[:, ~paths.through(removed)].sum(axis=1)
