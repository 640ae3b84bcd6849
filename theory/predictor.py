"""Predictor mean and variance at any order parameter: saddle point, GP limit or a draw."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from theory.attended_inputs import path_features
from theory.energy import LabelEnergy
from theory.learning_problem import LearningProblem
from theory.noisy_kernel import NoisyKernel
from theory.path_kernels import PathKernels, path_kernels


@partial(jax.tree_util.register_dataclass, data_fields=["energy", "cross", "gram"], meta_fields=[])
@dataclass(frozen=True)
class Predictor:
    """Predicts f on a set of test examples from any factor F of U_1 = F Fᵀ.

    energy  training kernels, labels and temperature
    cross   path kernels between test and training examples
    gram    φ^π(x)·φ^π'(x) [test, path, path] of each test example with itself
    """

    energy: LabelEnergy
    cross: PathKernels
    gram: Float[Array, "test path path"]

    @classmethod
    def for_examples(
        cls, problem: LearningProblem, attended: Float[Array, "test path channel"]
    ) -> "Predictor":
        """A predictor for the given attended test inputs."""
        arch = problem.architecture
        features = path_features(attended, arch.variances[0])
        return cls(
            energy=problem.energy,
            cross=path_kernels(attended, problem.attended, arch),
            gram=jnp.einsum("xpi,xqi->xpq", features, features),
        )

    def __call__(
        self, factor: Float[Array, "row rank"]
    ) -> tuple[Float[Array, "test output"], Float[Array, "test output"]]:
        """Mean m and variance v of f, each output by itself.

        m(x) = k(x)ᵀ (K + 𝒯)⁻¹ y,   v(x) = K(x, x) − k(x)ᵀ (K + 𝒯)⁻¹ k(x); a new label varies by
        v + 𝒯. Source: arXiv 2405.15926, predictor statistics.
        """
        noisy = self.energy.noisy_kernel(factor)
        to_train = self.cross.kernel(factor)
        return self._mean_and_variance(noisy, to_train, factor)

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

        Matheron's rule: with f₀ a draw from the prior and ε ~ N(0, 𝒯),
        f = f₀ + kᵀ (K + 𝒯)⁻¹ (y − f₀(train) − ε). f₀ is linear in φ, so no covariance of the test
        set is ever formed.
        """
        noisy = self.energy.noisy_kernel(factor)
        to_train = self.cross.kernel(factor)
        mean, variance = self._mean_and_variance(noisy, to_train, factor)
        weight_key, noise_key = jax.random.split(key)
        _, paths, channels = features_train.shape
        normal = jax.random.normal(weight_key, (factor.shape[1], channels), factor.dtype)
        linear = (factor @ normal).reshape(paths, -1, channels)
        on_train, on_test = (
            jnp.einsum("xpi,pci->xc", features, linear)
            for features in (features_train, features_test)
        )
        noise = jax.random.normal(noise_key, on_train.shape, factor.dtype)
        noisy_prior = on_train + jnp.sqrt(self.energy.temperature) * noise
        correction = to_train @ noisy.solve((self.energy.labels - noisy_prior).reshape(-1))
        return mean, variance, on_test + correction.reshape(on_test.shape)

    def _mean_and_variance(self, noisy: NoisyKernel, to_train, factor):
        whitened = noisy.whiten(to_train.T)
        mean = (noisy.whiten(self.energy.flat_labels) @ whitened).reshape(self._shape)
        explained = jnp.sum(whitened**2, axis=0).reshape(self._shape)
        return mean, self.prior_variance(factor) - explained

    @property
    def _shape(self) -> tuple[int, int]:
        return self.gram.shape[0], self.energy.labels.shape[1]

    def prior_variance(self, factor: Float[Array, "_row _rank"]) -> Float[Array, "test output"]:
        """K(x, x): the variance of f before any data."""
        paths, outputs = self.gram.shape[1], self.energy.labels.shape[1]
        blocks = (factor @ factor.T).reshape(paths, outputs, paths, outputs)
        per_output = jnp.stack([blocks[:, c, :, c] for c in range(outputs)])
        return jnp.einsum("xpq,cpq->xc", self.gram, per_output)


def predict(
    predictor: Predictor, factor: Float[Array, "row rank"]
) -> tuple[Float[Array, "test output"], Float[Array, "test output"]]:
    """Compiled call of a predictor at one factor of U_1."""
    return _predict(predictor, factor)


_predict = jax.jit(lambda predictor, factor: predictor(factor))
