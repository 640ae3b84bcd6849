"""Operations of sampling by sizes, and the choice of space and algorithm that follows from them.

Nothing is timed: the same recipe is sampled in the same way on any machine. Free of JAX.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import lowest_layers, mlp_shapes
from sampler.mcmc.kept import evenly_spaced
from sampler.posterior.spaces import HIDDEN_WEIGHTS, OF_TOKENS, ORDER_PARAMETERS, WEIGHTS
from sampler.settings.recipe import Recipe
from sampler.settings.sampler import DEFAULT_WARMUP, OUTSIDE_ACCEPTANCE, SHORT_WARMUP
from sampler.settings.types import AUTO
from sampler.tasks.splits import AnySplit, AttendedSplit, Split, StreamedSplit, attended_by_numpy
from sampler.tasks.task import Task
from theory.architecture import (
    HESSIAN_COORDINATES,
    STORED_TRAINING_BYTES,
    Architecture,
    stored_bytes,
)

# Examples that the stiffness of all of them is estimated from.
MOST_EXAMPLES = 400


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network with its data, from which the cost of sampling is predicted.

    examples     P, training examples, or the rows that stand for them
    observed     examples whose predictor is read off every draw
    stiffness    largest eigenvalue of K/𝒯 in the limit of infinite width; NaN where it is not known
    logits       logit weights that are sampled
    added        weights of a network outside the theory beside those of its architecture and logits
    """

    architecture: Architecture
    examples: int
    observed: int
    stiffness: float = math.nan
    logits: int = 0
    added: int = 0

    @classmethod
    def of(cls, recipe: Recipe, task: Task, eigenvalue: float = math.nan) -> "Sizes":
        """Sizes for a recipe and its task; `eigenvalue` is that of `leading_eigenvalue`.

        In the limit of infinite width the eigenvalues of K are those of the Gram matrix, times
        σ_0² … σ_a².
        """
        architecture = recipe.network.architecture(task.heads, task.channels, task.outputs)
        examples = task.train.examples
        if recipe.has_theory:
            examples = architecture.rows_of(examples)
        scale = math.prod(architecture.variances) / recipe.posterior.temperature
        mlp = mlp_shapes(recipe.network.mlp, architecture.widths, task.pairs)
        added = sum(map(math.prod, mlp.values()))
        stiffness = eigenvalue * scale
        sizes = cls(architecture, examples, task.test.examples, stiffness, added=added)
        if task.learned is None:
            return sizes
        below = [architecture.widths[layer - 1] for layer in lowest_layers(task.pairs)]
        logits = task.learned.count(task.train.tokens, task.channels, below)
        return replace(sizes, logits=logits)

    def as_dict(self) -> dict[str, Any]:
        one = self.architecture
        return {
            "heads": one.heads, "widths": one.widths, "channels": one.channels,
            "outputs": one.outputs, "rows": self.examples, "test_examples": self.observed,
        }  # fmt: skip

    @property
    def weight_count(self) -> int:
        """Number of weights of the network, its logits left out."""
        return self.architecture.weight_count + self.added

    @property
    def path_pairs(self) -> int:
        """Number of path kernels to store: C_{ππ'} with π ≤ π' is enough for one output."""
        paths = self.architecture.path_count
        return paths * (paths + 1) // 2 if self.architecture.outputs == 1 else paths**2

    @property
    def stores_kernels(self) -> bool:
        """Whether path kernels are few enough to be stored; else K is assembled from features."""
        paths, outputs = self.architecture.path_count, self.architecture.outputs
        return stored_bytes(self.examples, None, paths, outputs) <= STORED_TRAINING_BYTES

    @property
    def kernel_operations(self) -> int:
        """Products that assemble K(U_1): O² P² for each pair of paths, or p_1 D P (P O² + p_1)."""
        one = self.architecture
        if self.stores_kernels:
            return one.outputs**2 * self.path_pairs * self.examples**2
        rows = self.examples * one.outputs**2 + one.order_parameter_sizes[0]
        return self.path_operations * self.examples * rows

    @property
    def contraction_operations(self) -> int:
        """Products of the weights along all paths above the input weights, Σ_l p_l N_l N_{l+1}."""
        one = self.architecture
        rows = one.order_parameter_sizes
        return sum(
            p * n * m for p, n, m in zip(rows[:-1], one.widths[:-1], one.widths[1:], strict=True)
        )

    @property
    def path_operations(self) -> int:
        """Products that give the predictor of one example from all path weights, p_1 D."""
        return self.architecture.order_parameter_sizes[0] * self.architecture.channels

    @property
    def forward_operations(self) -> int:
        """Products of a forward pass of all examples, contracted along the paths first."""
        inner = self.architecture.widths[0] + self.examples
        return self.contraction_operations + self.path_operations * inner

    def gradient_operations(self, space: str) -> int:
        """Operations of one gradient of the log posterior, leading order.

        Weights are contracted along the paths first, 2 (Σ_l p_l N_l N_{l+1} + p_1 N_1 D), then with
        the attended inputs, 2 P p_1 D. Order parameters assemble K, factorise it and invert the
        factor instead, 2 O² P² per pair of paths and 2 (P O)³. A gradient costs three times that.
        """
        if space == WEIGHTS:
            return 6 * self.forward_operations
        return 6 * (self.kernel_operations + (self.examples * self.architecture.outputs) ** 3)


def narrowness(one: Architecture) -> float:
    """max_l p_l / N_l: above 1 a layer is narrower than its order parameter."""
    return max(p / n for p, n in zip(one.order_parameter_sizes, one.widths, strict=True))


@dataclass(frozen=True)
class Gradients:
    """Gradients per effective draw of the worst element, measured over many problems.

    wide      in wide networks
    narrow    how many times more there are for each unit of max_l p_l / N_l
    few       the same for each unit of max_l 1 / N_l², in the space of all weights
    stiff     exponent of the condition number 1 + λ_max(K)/𝒯 in the number of gradients: ½ for
              chains of all weights, which follow the directions that the examples fix
    singular  gradients more, for each unit of λ_max(K)/𝒯 and of what max_l p_l / N_l is above 1:
              singular order parameters have the stiff directions of the weights
    """

    wide: float
    narrow: float = 0.0
    few: float = 0.0
    stiff: float = 0.0
    singular: float = 0.0

    def needed(self, sizes: Sizes) -> float:
        """Gradients of a network of these sizes."""
        one = sizes.architecture
        stiffness = (1.0 + sizes.stiffness) ** self.stiff if self.stiff else 1.0
        singular = self.singular * sizes.stiffness * max(0.0, narrowness(one) - 1.0)
        widths = 1.0 + self.narrow * narrowness(one) + self.few / min(one.widths) ** 2
        return self.wide * stiffness * widths + singular


# Space and algorithm of networks in the theory.
GRADIENTS = {
    (ORDER_PARAMETERS, "split_hmc"): Gradients(1.7, narrow=3.11, singular=0.309),
    (ORDER_PARAMETERS, "nuts"): Gradients(9.82, narrow=0.001, singular=0.333),
    (WEIGHTS, "split_hmc"): Gradients(12.2, few=63.9, stiff=0.5),
    (WEIGHTS, "nuts"): Gradients(28.5, few=50.9, stiff=0.5),
}
MEASURED = tuple(dict.fromkeys(algorithm for _, algorithm in GRADIENTS))
# Order parameters are left only for a space of so many times fewer operations: theirs are products
# of large matrices, 3.5 times as fast, and their draws know mean and variance of the predictor
# exactly, which is worth twice as many draws.
PREFERRED, ADVANTAGE = ORDER_PARAMETERS, 7.0
# An algorithm that is not in the table is taken to be like this one.
LIKE_OTHERS = "nuts"
# The algorithm of posteriors with many modes.
TEMPERED = "tempered"


@dataclass(frozen=True)
class SamplingMethod:
    """The space in which a posterior is sampled, the algorithm, and the reason for both.

    warmup             steps of warm-up; None: as the space has them by default
    target_acceptance  that step sizes are adapted to; None: as the algorithm has it by default
    """

    space: str
    algorithm: str
    reason: str
    warmup: int | None = None
    target_acceptance: float | None = None

    def applied_to(self, recipe: Recipe) -> Recipe:
        """The recipe with space, algorithm, warm-up and acceptance named."""
        further = {"warmup": self.warmup, "target_acceptance": self.target_acceptance}
        named = {"space": self.space, "algorithm": self.algorithm}
        named |= {name: value for name, value in further.items() if value is not None}
        return recipe.model_copy(update={"sampler": recipe.sampler.model_copy(update=named)})

    def explain(self) -> str:
        """One line for the terminal and the log."""
        return f"space {self.space}, algorithm {self.algorithm}: {self.reason}"


NAMED = "named in the recipe"


def choose_method(recipe: Recipe, sizes: Sizes) -> SamplingMethod:
    """Space and algorithm of the fewest operations per effective draw that the recipe allows.

    Order parameters are left only for a space of `ADVANTAGE` times fewer.
    """
    found, warmup = choose_pair(recipe, sizes), recipe.sampler.warmup
    if warmup is None and recipe.has_theory:
        warmup = warmup_of(found.space, found.algorithm, sizes.architecture)
    target = recipe.sampler.target_acceptance
    if target is None and not recipe.fits_theory and found.algorithm == "split_hmc":
        target = OUTSIDE_ACCEPTANCE
    return replace(found, warmup=warmup, target_acceptance=target)


def warmup_of(space: str, algorithm: str, architecture: Architecture) -> int:
    """Steps of warm-up by default: fewer where they were measured to be enough.

    In order parameters that is where the Hessian at the mode is known, as masses, and no layer is
    narrower than its order parameter, which would be singular.
    """
    count = architecture.bartlett_coordinate_count
    fitted = count <= HESSIAN_COORDINATES and narrowness(architecture) <= 1.0
    if space == ORDER_PARAMETERS and not fitted:
        return DEFAULT_WARMUP[space]
    return SHORT_WARMUP.get((space, algorithm), DEFAULT_WARMUP[space])


def choose_pair(recipe: Recipe, sizes: Sizes) -> SamplingMethod:
    """Space and algorithm, without the steps of warm-up."""
    settings, network = recipe.sampler, recipe.network
    named = None if settings.algorithm == AUTO else settings.algorithm
    if settings.space != AUTO and named:
        return SamplingMethod(settings.space, named, NAMED)
    if not recipe.fits_theory:
        allowed = *settings.spaces_for(network, recipe.fits_theory), *settings.spaces
        space = next(one for one in allowed if one in OF_TOKENS)
        reason = "fewer gradients than all weights, of a network outside the theory"
        if space == WEIGHTS:
            reason = "of a network outside the theory"
        return SamplingMethod(space, named or "split_hmc", reason)
    spaces = settings.spaces_for(network, recipe.fits_theory) or settings.spaces
    if settings.space == AUTO:
        spaces = tuple(space for space in spaces if space != HIDDEN_WEIGHTS) or spaces
    if recipe.learns_attention:
        space = PREFERRED if PREFERRED in spaces else spaces[0]
        if named or settings.asks_for_chains:
            return SamplingMethod(space, named or LIKE_OTHERS, "attention is sampled, too")
        reason = "attention is sampled, too, and chains from the prior stay where they fall"
        return SamplingMethod(space, TEMPERED, reason)
    if spaces == (HIDDEN_WEIGHTS,):
        return SamplingMethod(*spaces, named or "split_hmc", "no other space is left")
    (best, operations), *others = ranked(sizes, spaces, (named,) if named else MEASURED)
    reason = f"{operations:.1e} operations per effective draw"
    if others:
        pair, more = others[0]
        reason += f"; next {', '.join(pair)} with {more:.1e}"
    return SamplingMethod(*best, reason)


def leading_eigenvalue(task: Task, readout: str) -> float:
    """Largest eigenvalue of the Gram matrix Σ_π ξ^π(x)·ξ^π(x')/(D Π), estimated from some examples.

    The estimate is for all training examples.
    """
    blocks, attended, count = some_examples(task.train), [], 0
    while count < min(MOST_EXAMPLES, task.train.examples):
        attended.append(attended_by_numpy(next(blocks), readout, task.pairs))
        count += len(attended[-1])
    return eigenvalue_of_all(np.concatenate(attended), task.train.examples)


def some_examples(split: AnySplit) -> Iterator[Split | AttendedSplit]:
    """Examples of a split, evenly spaced where all are held, the first ones where they are not."""
    if isinstance(split, StreamedSplit):
        return split.blocks()
    return iter([split.part(evenly_spaced(split.examples, MOST_EXAMPLES))])


def eigenvalue_of_all(attended: Float[np.ndarray, "example path channel"], examples: int) -> float:
    """The largest eigenvalue of the Gram matrix of so many examples like these: it is extensive.

    NaN where the matrix overflows.
    """
    flat = attended.reshape(len(attended), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        gram = flat @ flat.T if len(flat) < flat.shape[1] else flat.T @ flat
    if not np.isfinite(gram).all():
        return math.nan
    return float(np.linalg.eigvalsh(gram)[-1] / flat.shape[1] * examples / len(flat))


def ranked(
    sizes: Sizes, spaces: Sequence[str], algorithms: Sequence[str] = MEASURED
) -> list[tuple[tuple[str, str], float]]:
    """Pairs of space and algorithm with operations per effective draw, the one to choose first."""

    def operations(space: str, algorithm: str) -> float:
        measured = GRADIENTS.get((space, algorithm)) or GRADIENTS[space, LIKE_OTHERS]
        return measured.needed(sizes) * sizes.gradient_operations(space)

    def weighed(counted: tuple[tuple[str, str], float]) -> float:
        (space, _), number = counted
        return number * (1.0 if space == PREFERRED else ADVANTAGE)

    pairs = [(space, algorithm) for space in spaces for algorithm in algorithms]
    return sorted(((pair, operations(*pair)) for pair in pairs), key=weighed)
