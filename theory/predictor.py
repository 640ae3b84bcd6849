"""Predictor mean and variance at any order parameter: saddle point, infinite width or a draw.

The mean is a sum over paths: their contributions, and the mean of a network that loses heads.
"""

from collections.abc import Collection
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, PRNGKeyArray

from theory.architecture import AttentionPaths
from theory.energy import regress
from theory.learning_problem import LabelEnergy, LearningProblem
from theory.path_kernels import (
    Features,
    PathKernels,
    make_path_kernels,
    on_host,
    path_features,
    renormalise,
    sum_over_paths,
)
from theory.size_limits import examples_at_a_time


@register_dataclass
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
    gram: Float[Array | np.ndarray, "test path path"] | None

    @classmethod
    def for_examples(
        cls, problem: LearningProblem, attended: Float[Array | np.ndarray, "test path channel"]
    ) -> "Predictor":
        """Return the predictor of the given attended test inputs."""
        architecture = problem.architecture
        cross = make_path_kernels(attended, problem.attended, architecture)
        if isinstance(cross, Features):
            return cls(problem.energy, cross, None)
        features = path_features(on_host(attended), architecture.variances[0])
        return cls(problem.energy, cross, jnp.asarray(features @ features.swapaxes(1, 2)))

    def __call__(
        self, factor: Float[Array | np.ndarray, "row rank"]
    ) -> tuple[Float[Array | np.ndarray, "test output"], Float[Array | np.ndarray, "test output"]]:
        """Mean m and variance v of f, each output by itself; a new label varies by v + 𝒯.

        Source: arXiv 2405.15926, predictor statistics.
        """
        return self.moments(self.whitening(factor), factor)

    def whitening(
        self, factor: Float[Array | np.ndarray, "row rank"]
    ) -> Float[Array | np.ndarray, "example_output example_output"]:
        """Λ⁻¹ with Λ Λᵀ = K + 𝒯 1 of the training examples."""
        return self.energy.noisy_kernel(factor).whitening

    def moments(
        self,
        whitening: Float[Array | np.ndarray, "example_output example_output"],
        factor: Float[Array | np.ndarray, "row rank"],
    ) -> tuple[Float[Array | np.ndarray, "test output"], Float[Array | np.ndarray, "test output"]]:
        """Mean and variance of f on all test examples, in bounded memory."""
        outputs, labels = self.energy.labels.shape[1], self.energy.flat_labels[:, None]
        if not isinstance(self.cross, Features):
            prior = self.prior_variance(factor).reshape(-1)
            mean, variance = regress(whitening, self.cross.kernel(factor), prior, labels)
            return mean.reshape(-1, outputs), variance.reshape(-1, outputs)
        seen = renormalise(self.cross.right, factor)
        # Columns of an example, and its K to all labels, whitened and squared.
        numbers = outputs * (seen.shape[1] + 3 * labels.size)
        at_a_time = examples_at_a_time(self.cross.examples, numbers * factor.dtype.itemsize)

        def of_examples(features: Float[Array | np.ndarray, "_example path channel"]):
            columns = renormalise(features, factor)
            prior = (columns**2).sum(axis=1)
            mean, variance = regress(whitening, columns @ seen.T, prior, labels)
            return mean.reshape(-1, outputs), variance.reshape(-1, outputs)

        if factor.__array_namespace__() is np:
            starts = range(0, self.cross.examples, at_a_time)
            blocks = [of_examples(self.cross.left[start : start + at_a_time]) for start in starts]
            return tuple(np.concatenate(moments) for moments in zip(*blocks, strict=True))

        def of_example(features: Float[Array, "path channel"]):
            mean, variance = of_examples(features[None])
            return mean[0], variance[0]

        return jax.lax.map(of_example, self.cross.left, batch_size=at_a_time)

    def prior_variance(
        self, factor: Float[Array | np.ndarray, "_row _rank"]
    ) -> Float[Array | np.ndarray, "test output"]:
        """K(x, x) = Σ_ππ' U_1^{(π,o),(π',o)} φ^π(x)·φ^π'(x), the variance of f before any data."""
        paths, outputs = self.gram.shape[1], self.energy.labels.shape[1]
        blocks = (factor @ factor.T).reshape(paths, outputs, paths, outputs)
        return blocks.__array_namespace__().einsum("xpq,pcqc->xc", self.gram, blocks)

    def draw_weights(
        self,
        key: PRNGKeyArray,
        whitening: Float[Array | np.ndarray, "example_output example_output"],
        factor: Float[Array | np.ndarray, "row rank"],
        features: Float[Array | np.ndarray, "example path channel"],
    ) -> Float[Array | np.ndarray, "path output channel"]:
        """Draw w from the posterior of f(x) = Σ_π φ^π(x)·w^π given U_1 = F Fᵀ.

        Matheron's rule: with w̃ = F z a draw from the prior, f̃ its outputs on the training
        examples, whose features these are, and ε ~ 𝒩(0, 𝒯),

            w = w̃ + F Fᵀ φᵀ (K + 𝒯)⁻¹ (y − f̃ − ε).
        """
        weight_key, noise_key = jax.random.split(key)
        _, paths, channels = features.shape
        normal = jax.random.normal(weight_key, (factor.shape[1], channels), factor.dtype)
        prior = (factor @ normal).reshape(paths, -1, channels)
        outputs = sum_over_paths(features, prior)
        noise = jax.random.normal(noise_key, outputs.shape, factor.dtype)
        noisy = outputs + jnp.sqrt(self.energy.temperature) * noise
        alpha = (whitening @ (self.energy.labels - noisy).reshape(-1)) @ whitening
        return prior + learned_weights(features, alpha.reshape(outputs.shape), factor)


def predict(
    predictor: Predictor, factor: Float[Array | np.ndarray, "row rank"]
) -> tuple[Float[Array | np.ndarray, "test output"], Float[Array | np.ndarray, "test output"]]:
    """Mean and variance of f at one U_1 = F Fᵀ, by NumPy."""
    predictor, factor = on_host((predictor, factor))
    return predictor(factor)


def learned_weights(
    features: Float[Array | np.ndarray, "example path channel"],
    alpha: Float[Array | np.ndarray, "example output"],
    factor: Float[Array | np.ndarray, "row rank"],
) -> Float[Array | np.ndarray, "path output channel"]:
    """U_1 φᵀ α: the weights w of f(x) = Σ_π φ^π(x)·w^π = Σ_μ K(x, x_μ) α_μ."""
    numbers = factor.__array_namespace__()
    learned = numbers.einsum("xpi,xc->pci", features, alpha)
    paths, outputs, channels = learned.shape
    carried = factor @ (factor.T @ learned.reshape(paths * outputs, channels))
    return carried.reshape(paths, outputs, channels)


def path_contributions(
    problem: LearningProblem,
    factor: Float[Array | np.ndarray, "row rank"],
    attended: Float[Array | np.ndarray, "test path channel"],
) -> Float[Array | np.ndarray, "test path output"]:
    """The terms m_π(x) of the predictor mean m(x) = Σ_π m_π(x), one per path, at U_1 = F Fᵀ.

        m_{π,o}(x) = φ^π(x)·w^{π,o},   w^{π,o} = Σ_{π',o'} U_1^{πo,π'o'} Σ_μ φ^π'(x_μ) α_{μ,o'}

    with α = (K + 𝒯 1)⁻¹ y. Given U_1 it is the posterior mean of the output of path π.
    """
    variance = problem.architecture.variances[0]
    energy, factor, attended = on_host((problem.energy, factor, attended))
    alpha = energy.noisy_kernel(factor).solve(energy.flat_labels).reshape(energy.labels.shape)
    by_path = learned_weights(problem.features, alpha, factor)
    brought = path_features(attended, variance).swapaxes(0, 1) @ by_path.swapaxes(1, 2)
    return brought.swapaxes(0, 1)


def mean_without(
    contributions: Float[np.ndarray, "test path output"],
    paths: AttentionPaths,
    removed: Collection[tuple[int, int]],
) -> Float[np.ndarray, "test output"]:
    """The mean m(x) without the paths through heads (layer, head), counted from 0.

    They are removed after learning: all other paths keep their weights.
    """
    return contributions[:, ~paths.through(removed)].sum(axis=1)
