"""Training and test examples: attended inputs that are fixed or sampled, or tokens.

The sampled part of the inputs, the logit weights of learned heads, has sites and priors here, so
that learned attention is a kind of data in every space.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from sampler.attention.sampled import AttendingTokens, SampledAttention
from theory.learning_problem import ResidualLabels
from theory.leave_one_out import Combinations
from theory.path_kernels import Features, PathKernels, StoredKernels

# Eigenvalues of U_1, U_2 … U_a, which an exchange of heads leaves as they are.
SPECTRUM = "overlap_eigenvalues_"

Position = Mapping[str, Array | np.ndarray]
# Numbers of some examples.
Places = np.ndarray
FeaturesOf = Callable[[Array], Float[Array, "example path channel"]]


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Data:
    """Labels of the training examples, and the interface of inputs.

    labels      y [example, output], or of the rows that represent the examples
    residual    labels that no row represents
    basis       Q [example, row], where a model takes the labels of the examples themselves
    pointwise   whether every draw is asked about single training examples
    """

    labels: Float[Array | np.ndarray, "row output"]
    residual: ResidualLabels | None = None
    basis: Float[Array | np.ndarray, "example row"] | None = None
    pointwise: bool = field(default=True, metadata={"static": True})

    @property
    def read_by_density(self) -> Any:
        """The arrays that the density reads, and so every gradient: all by default."""
        return self

    def sample_sites(self) -> dict[str, Array]:
        """Sample the sampled part of the inputs, as sites of a NumPyro model."""
        return {}

    def train(self, position: Position) -> Any:
        """Inputs of the training examples, or of the rows that represent them."""
        raise NotImplementedError

    def test(self, position: Position) -> Any:
        """Inputs of the test examples."""
        raise NotImplementedError

    @property
    def tests(self) -> int:
        """Number of test examples."""
        return 0

    def validation(self, position: Position) -> Any:
        """Inputs whose predictor is observed of every draw; None where there are none."""
        return None

    @property
    def numbers_of_draw(self) -> int:
        """Approximate count of numbers per draw of all inputs, for each output."""
        return 3 * (len(self.labels) + self.tests)

    def attend(self, position: Position, inputs: Any) -> Any:
        """Further inputs, as a space takes them."""
        return inputs

    def examples(self, position: Position) -> tuple[Any, Array | np.ndarray] | None:
        """Inputs and labels of single training examples; None where draws are not asked."""
        raise NotImplementedError

    def join(self, left: Any, right: Any) -> Any:
        """Inputs of two sets of examples as those of one set."""
        return jnp.concatenate([left, right])

    def observe(self, position: Position, overlaps: Mapping[str, Array]) -> dict[str, Array]:
        """Stored data of a draw."""
        return {}

    def astype(self, dtype: Any) -> "Data":
        """The data in another floating-point type."""
        return astype(self, dtype)


def astype(tree: Any, dtype: Any) -> Any:
    """A tree of arrays with all floating-point numbers in another type.

    By NumPy, which compiles nothing, but for arrays that are traced.
    """

    def cast(leaf: Array):
        if leaf.dtype == dtype or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        if isinstance(leaf, Tracer):
            return leaf.astype(dtype)
        return jnp.asarray(np.asarray(leaf, dtype))

    return jax.tree.map(cast, tree)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class FixedPaths(Data):
    """Attended inputs ξ^π, and path kernels of them where these are stored.

    whole         attended inputs and labels of the examples, where rows represent them
    combinations  what these are of the rows, where they are left out in turn
    stored        kernels of the training examples with themselves
    stored_cross  kernels of the test examples with the training examples
    gram          φ^π(x)·φ^π'(x) of each test example with itself, for `stored_cross`
    """

    attended: Float[Array | np.ndarray, "row path channel"]
    attended_test: Float[Array | np.ndarray, "test path channel"]
    whole: tuple[Array | np.ndarray, Array | np.ndarray] | None = None
    combinations: Combinations | None = None
    stored: StoredKernels | None = None
    stored_cross: PathKernels | None = None
    gram: Float[Array | np.ndarray, "test path path"] | None = None

    @property
    def read_by_density(self) -> Any:
        """Labels, and path kernels where they are stored, else attended inputs."""
        return self.labels, self.residual, self.attended if self.stored is None else self.stored

    def train(self, position: Position) -> Float[Array | np.ndarray, "row path channel"]:
        """Attended inputs of the training examples, or of the rows that represent them."""
        return self.attended

    def test(self, position: Position) -> Float[Array | np.ndarray, "test path channel"]:
        """Attended inputs of the test examples."""
        return self.attended_test

    @property
    def tests(self) -> int:
        """Number of test examples."""
        return len(self.attended_test)

    @property
    def numbers_of_draw(self) -> int:
        """Count of numbers per draw of all examples."""
        labels = self.labels if self.whole is None else self.whole[1]
        return 3 * (len(labels) * self.pointwise + self.tests)

    def examples(self, position: Position) -> tuple[Array | np.ndarray, Array | np.ndarray] | None:
        """Attended inputs and labels of single training examples."""
        if not self.pointwise:
            return None
        return (self.attended, self.labels) if self.residual is None else self.whole

    def kernels(self, position: Position, features_of: FeaturesOf) -> PathKernels:
        """Path kernels of the training examples."""
        return self.stored or Features(features_of(self.attended))

    def cross(self, inputs, train: Array, features_of: FeaturesOf) -> tuple[PathKernels, Any]:
        """Path kernels of inputs with training features, and of each input with itself."""
        if self.stored_cross is None or inputs is not self.attended_test:
            return Features(features_of(inputs), train), None
        return self.stored_cross, self.gram


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class WithTokens(Data):
    """Data of tokens: the tokens of each split, of which every row is an example."""

    tokens: Any
    tokens_test: Any
    tokens_validation: Any = None

    @property
    def read_by_density(self) -> Any:
        """Labels and tokens."""
        return self.labels, self.residual, self.tokens

    def train(self, position: Position) -> Any:
        """Inputs of the training examples."""
        return self.attend(position, self.tokens)

    def test(self, position: Position) -> Any:
        """Inputs of the test examples."""
        return self.attend(position, self.tokens_test)

    @property
    def tests(self) -> int:
        """Number of test examples."""
        return len(jax.tree.leaves(self.tokens_test)[0])

    @property
    def numbers_of_draw(self) -> int:
        """Count of numbers per draw of all examples, those of validation included."""
        tokens = jax.tree.leaves(self.tokens_validation)
        return super().numbers_of_draw + (len(tokens[0]) if tokens else 0)

    def validation(self, position: Position) -> Any:
        """Inputs of the validation examples, where there are some."""
        tokens = self.tokens_validation
        return None if tokens is None else self.attend(position, tokens)

    def examples(self, position: Position) -> tuple[Any, Array | np.ndarray] | None:
        """Inputs and labels of the training examples."""
        return (self.train(position), self.labels) if self.pointwise else None


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class SampledPaths(WithTokens):
    """Attended inputs that follow from the logit weights of a position; tokens are to be attended.

    attention  of all heads, as a function of the logit weights
    """

    combinations: ClassVar[None] = None

    attention: SampledAttention

    @property
    def read_by_density(self) -> Any:
        """Labels, tokens, and the inputs of attention."""
        return super().read_by_density, self.attention

    def sample_sites(self) -> dict[str, Array]:
        """Sample the logit weights, standard normal a priori."""
        return self.attention.sample_sites()

    def attend(self, position: Position, inputs: AttendingTokens) -> Array:
        """Attended inputs of tokens at the attention of a position."""
        return self.attention.attended(position, inputs)

    def kernels(self, position: Position, features_of: FeaturesOf) -> PathKernels:
        """Path kernels of the training examples."""
        return Features(features_of(self.train(position)))

    def cross(self, inputs, train: Array, features_of: FeaturesOf) -> tuple[PathKernels, Any]:
        """Path kernels of inputs with training features."""
        return Features(features_of(inputs), train), None

    def observe(self, position: Position, overlaps: Mapping[str, Array]) -> dict[str, Array]:
        """Logit weights, and eigenvalues of all overlaps."""
        spectra = {
            f"{SPECTRUM}{number}": jnp.linalg.eigvalsh(overlap)
            for number, overlap in enumerate(overlaps.values(), start=1)
        }
        return spectra | {name: position[name] for name, _ in self.attention.sites}


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class TokenData(WithTokens):
    """Inputs of a network computed token by token: all but the weights."""

    def join(self, left: Any, right: Any) -> Any:
        """Tokens of two sets of examples as those of one set; learned heads are the same."""
        (inputs, attention, *heads), (more_inputs, more_attention, *_) = left, right
        pairs = zip(attention, more_attention, strict=True)
        joined = tuple(jnp.concatenate(pair) for pair in pairs)
        return jnp.concatenate([inputs, more_inputs]), joined, *heads
