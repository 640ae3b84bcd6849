"""Predictor mean and variance at any order parameter: saddle point, GP limit or a draw."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from theory.attended_inputs import path_features
from theory.energy import LabelEnergy
from theory.learning_problem import LearningProblem
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
        tests, outputs = self.gram.shape[0], self.energy.labels.shape[1]
        noisy = self.energy.noisy_kernel(factor)
        to_train = self.cross.kernel(factor)
        whitened = noisy.whiten(to_train.T)
        mean = whitened.T @ noisy.whiten(self.energy.flat_labels)
        explained = jnp.sum(whitened**2, axis=0).reshape(tests, outputs)
        return mean.reshape(tests, outputs), self.prior_variance(factor) - explained

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
