"""Cost of sampling by sizes, and the choice of space and algorithm that follows from it.

Nothing is timed: the same recipe is sampled in the same way on any machine. Free of JAX.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.mcmc.kept import evenly_spaced
from sampler.recipes.limits import DEFAULT_WARMUP, OF_ANY_NETWORK
from sampler.recipes.recipe import Recipe
from sampler.recipes.sections import AUTO, lowest_layers, mlp_shapes
from sampler.tasks.splits import AnySplit, AttendedSplit, Split, StreamedSplit, attended_by_numpy
from sampler.tasks.task import Task
from theory.architecture import (
    HESSIAN_COORDINATES,
    Architecture,
    bartlett_coordinate_count,
    has_next_order,
)
from theory.kernel_sizes import SYMMETRIC_FORM_BYTES, stored_bytes

# Examples that the stiffness of all of them is estimated from.
MOST_EXAMPLES = 400
# What predicted times are for: about as many as the diagnostics of hundreds of quantities need.
EFFECTIVE_DRAWS = 1200
# Steps of warm-up that are enough (tests/benchmarks/RESULTS.md): about a known mode only a step is
# to be found, and from the prior a short descent leads to where it is.
SHORT_WARMUP = {("order_parameters", "split_hmc"): 50, ("weights", "split_hmc"): 200}


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network with its data, from which the cost of sampling is predicted.

    examples     P, training examples, or the rows that stand for them
    observed     examples whose predictor is read off every draw
    stiffness    largest eigenvalue of K/𝒯 in the limit of infinite width; NaN where it is not known
    attending    products of one example whose attention is sampled; 0 where it is fixed
    logits       logit weights that are sampled
    added        weights of a network outside the theory beside those of its architecture and logits
    """

    architecture: Architecture
    examples: int
    observed: int
    stiffness: float = math.nan
    attending: int = 0
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
        tokens, widths = task.train.tokens, architecture.widths
        below = [widths[layer - 1] for layer in lowest_layers(task.pairs)]
        read = max(below) if task.learned.stream else task.channels
        return replace(
            sizes,
            attending=task.learned.products(tokens, read, recipe.network.readout),
            logits=task.learned.count(tokens, task.channels, below),
        )

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
    def bartlett_coordinates(self) -> int:
        """Coordinates of the exact posterior of all order parameters."""
        one = self.architecture
        return bartlett_coordinate_count(one.heads, one.widths, one.outputs)

    @property
    def has_next_order(self) -> bool:
        return has_next_order(self.architecture, self.bartlett_coordinates)

    @property
    def stores_kernels(self) -> bool:
        """Whether path kernels are few enough to be stored; else K is assembled from features."""
        return stored_bytes(self.examples, self.architecture) <= SYMMETRIC_FORM_BYTES

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

    @property
    def with_units_as_outputs(self) -> "Sizes":
        """The sizes of the network that has one output per unit below its readout."""
        one = self.architecture
        return replace(self, architecture=replace(one, outputs=one.widths[-1]))

    @property
    def readout_operations(self) -> int:
        """Products that integrate the readout out: the smaller of Gᵀ G and G Gᵀ is factorised."""
        small, large = sorted((self.examples, self.architecture.widths[-1]))
        return small**2 * large + small**3

    def gradient_operations(self, space: str) -> int:
        """Operations of one gradient of the log posterior, leading order.

        Weights are contracted along the paths first, 2 (Σ_l p_l N_l N_{l+1} + p_1 N_1 D), then with
        the attended inputs, 2 P p_1 D. Integrated spaces assemble K, factorise it and invert the
        factor instead, 2 O² P² per pair of paths and 2 (P O)³. A gradient costs three times that.
        Where attention is sampled, the smaller of K and its dual [p_1 D] is factorised. Hidden
        weights are contracted to one row per unit below the readout, in the place of an output.
        """
        one = self.architecture
        integrated = self.kernel_operations + (self.examples * one.outputs) ** 3
        if self.logits:
            small, large = sorted((self.examples * one.outputs, self.path_operations))
            integrated = small**2 * large + small**3
        wide = self.with_units_as_outputs
        products = {
            "weights": self.forward_operations,
            "hidden_weights": wide.forward_operations + self.readout_operations,
            "order_parameters": integrated,
            "attention": integrated,
        }
        return 3 * 2 * (products[space] + ATTENDING * self.examples * self.attending)

    def moved_numbers(self, space: str) -> int:
        """Numbers that a step of a trajectory moves; order parameters are too few to count."""
        count = self.weight_count
        moved = {
            "weights": count,
            "hidden_weights": count - self.architecture.outputs * self.architecture.widths[-1],
        }
        return self.logits + moved.get(space, 0)

    def observation_operations(self, space: str) -> int:
        """Operations that read the predictor of the observed examples off one draw, leading order.

        From the weights 2 p_1 D for each. Where the readout is integrated out there is a row for
        each of its units, and N_a² for the variance. Where others are, mean and variance need the
        kernel with all training examples, 2 P O p_1 D, and a solution with the factor, (P O)² O.
        """
        rows = self.examples * self.architecture.outputs
        each = 2 * self.path_operations
        if space == "hidden_weights":
            wide = self.with_units_as_outputs
            each = 2 * wide.path_operations + self.architecture.widths[-1] ** 2
        elif space != "weights":
            each = each * rows + rows**2 * self.architecture.outputs
        return self.observed * (each + 2 * self.attending)


def narrowness(one: Architecture) -> float:
    """max_l p_l / N_l: above 1 a layer is narrower than its order parameter."""
    return max(p / n for p, n in zip(one.order_parameter_sizes, one.widths, strict=True))


@dataclass(frozen=True)
class Speed:
    """Speed of one algorithm in one space, measured on one core over many problems.

    start      seconds before the warm-up of a small problem: compilation and mode
    warmup     cost of a step of warm-up, relative to that of a draw
    rate       operations of a gradient per second
    gradients  per effective draw of the worst element, in wide networks
    narrow     how many times more there are for each unit of max_l p_l / N_l
    few        the same for each unit of max_l 1 / N_l², in the space of all weights
    stiff      exponent of the condition number 1 + λ_max(K)/𝒯 in the number of gradients: ½ for
               chains of all weights, which follow the directions that the examples fix
    singular   gradients more, for each unit of λ_max(K)/𝒯 and of what max_l p_l / N_l is above 1:
               singular order parameters have the stiff directions of the weights
    draws      per effective draw
    """

    start: float
    warmup: float
    rate: float
    gradients: float
    narrow: float
    few: float
    stiff: float
    singular: float
    draws: float

    def gradients_needed(self, sizes: Sizes) -> float:
        stiffness = (1.0 + sizes.stiffness) ** self.stiff if self.stiff else 1.0
        singular = self.singular * sizes.stiffness * max(0.0, narrowness(sizes.architecture) - 1.0)
        widths = (
            1
            + self.narrow * narrowness(sizes.architecture)
            + self.few / min(sizes.architecture.widths) ** 2
        )
        return self.gradients * stiffness * widths + singular

    def gradient_seconds(self, space: str, sizes: Sizes, operations: int) -> float:
        """Seconds of one step of a trajectory, its gradient being one of so many operations."""
        return LATENCY + operations / self.rate + sizes.moved_numbers(space) / MOVED_RATE

    def gradients_of_draw(self, sizes: Sizes, longest: float = math.inf) -> float:
        """Gradients of one draw, `longest` at most."""
        return min(self.gradients_needed(sizes) / self.draws, longest)

    def observation_seconds(self, space: str, sizes: Sizes) -> float:
        """Seconds in which one draw is read off."""
        return sizes.observation_operations(space) / OBSERVED_RATE

    def draw_seconds(self, space: str, sizes: Sizes) -> float:
        """Seconds of one draw."""
        gradient = self.gradient_seconds(space, sizes, sizes.gradient_operations(space))
        return self.gradients_of_draw(sizes) * gradient + self.observation_seconds(space, sizes)

    def seconds(self, space: str, sizes: Sizes, warmup: int) -> float:
        """Predicted time to `EFFECTIVE_DRAWS` effective draws, with so many steps of warm-up."""
        return self.start + self.draws_worth(warmup, MEASURED_CHAINS) * self.draw_seconds(
            space, sizes
        )

    def draws_worth(self, warmup: int, chains: int) -> float:
        """Draws that cost as much as warm-up and `EFFECTIVE_DRAWS` effective draws."""
        return chains * warmup * self.warmup + EFFECTIVE_DRAWS * self.draws


# A product of sampled attention, small matrices and exponentials, in products of large matrices.
ATTENDING = 8
# Chains of the measured runs.
MEASURED_CHAINS = 4
# Seconds of a gradient in which nothing is computed; operations of observations, and coordinates
# moved by a step, per second.
LATENCY, OBSERVED_RATE, MOVED_RATE = 1e-4, 4e10, 1.6e8
# `python -m tests.benchmarks fit`, from the table of `python -m tests.benchmarks choices`.
SPEEDS = {
    ("order_parameters", "split_hmc"): Speed(16.4, 1.42, 8.62e10, 1.7, 3.11, 0.0, 0.0, 0.309, 1.66),
    ("order_parameters", "nuts"): Speed(29.3, 0.863, 2.25e10, 9.82, 0.001, 0.0, 0.0, 0.333, 1.48),
    ("weights", "split_hmc"): Speed(22.3, 0.93, 2.45e10, 12.2, 0.0, 63.9, 0.5, 0.0, 2.23),
    ("weights", "nuts"): Speed(93.7, 0.171, 9.67e9, 28.5, 0.0, 50.9, 0.5, 0.0, 1.66),
}
# Networks outside the theory, by which no space is chosen: of ReLU values, one and two layers.
OUTSIDE_SPEEDS = {
    ("hidden_weights", "split_hmc"): Speed(22.3, 1.0, 2.45e10, 12.0, 0.0, 0.0, 0.5, 0.0, 2.35),
    ("hidden_weights", "nuts"): Speed(45.3, 0.5, 2.57e10, 19.0, 0.0, 0.0, 0.5, 0.0, 2.35),
}
MEASURED = tuple(dict.fromkeys(algorithm for _, algorithm in SPEEDS))
# Draws of order parameters know mean and variance of the predictor exactly, so that another space
# has to be faster by this factor.
PREFERRED, ADVANTAGE = "order_parameters", 2.0
# Acceptance of trajectories about a Gaussian, outside the theory: half the steps of the default of
# the algorithm, which is for posteriors that nearly are this Gaussian.
OUTSIDE_ACCEPTANCE = 0.8
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
    """The space and algorithm that are predicted to be fastest of those that the recipe allows.

    Order parameters are left only for a space that is `ADVANTAGE` times faster.
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
    one = architecture
    count = bartlett_coordinate_count(one.heads, one.widths, one.outputs)
    fitted = count <= HESSIAN_COORDINATES and narrowness(one) <= 1.0
    if space == "order_parameters" and not fitted:
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
        space = next(one for one in allowed if one in OF_ANY_NETWORK)
        reason = "fewer gradients than all weights, of a network outside the theory"
        if space == "weights":
            reason = "of a network outside the theory"
        return SamplingMethod(space, named or "split_hmc", reason)
    spaces = settings.spaces_for(network, recipe.fits_theory) or settings.spaces
    if settings.space == AUTO:
        spaces = tuple(space for space in spaces if space != "hidden_weights") or spaces
    if recipe.learns_attention:
        space = PREFERRED if PREFERRED in spaces else spaces[0]
        if named or settings.asks_for_chains:
            return SamplingMethod(space, named or LIKE_OTHERS, "attention is sampled, too")
        reason = "attention is sampled, too, and chains from the prior stay where they fall"
        return SamplingMethod(space, TEMPERED, reason)
    (best, seconds), *others = ranked(sizes, spaces, (named,) if named else MEASURED)
    reason = f"{duration(seconds)} predicted for {EFFECTIVE_DRAWS:,} effective draws"
    if others:
        pair, seconds = others[0]
        reason += f"; next {', '.join(pair)} with {duration(seconds)}"
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
    """The largest eigenvalue of the Gram matrix of so many examples like these: it is extensive."""
    flat = attended.reshape(len(attended), -1)
    gram = flat @ flat.T if len(flat) < flat.shape[1] else flat.T @ flat
    return float(np.linalg.eigvalsh(gram)[-1] / flat.shape[1] * examples / len(flat))


def ranked(
    sizes: Sizes, spaces: Sequence[str], algorithms: Sequence[str] = MEASURED
) -> list[tuple[tuple[str, str], float]]:
    """Pairs of space and algorithm with their predicted seconds, what is to be chosen first."""

    def weighed(found: tuple[tuple[str, str], float]) -> float:
        (space, _), seconds = found
        return seconds * (1.0 if space == PREFERRED else ADVANTAGE)

    pairs = [(space, algorithm) for space in spaces for algorithm in algorithms]
    return sorted(((pair, predicted_seconds(*pair, sizes)) for pair in pairs), key=weighed)


def predicted_seconds(space: str, algorithm: str, sizes: Sizes) -> float:
    warmup = warmup_of(space, algorithm, sizes.architecture)
    return speed_of(space, algorithm).seconds(space, sizes, warmup)


def speed_of(space: str, algorithm: str) -> Speed:
    """The measured speed of this pair, or of one that is taken to be like it."""
    known = PREFERRED if space == "attention" else space
    speeds = SPEEDS | OUTSIDE_SPEEDS
    return speeds.get((known, algorithm)) or speeds[known, LIKE_OTHERS]


def duration(seconds: float) -> str:
    """A predicted time, which is known to a factor of two or so."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
