"""Sizes of a network with its data, from which memory and cost follow. Free of JAX."""

import math
from dataclasses import dataclass, replace

import numpy as np

from sampler.attention.layers import lowest_layers, mlp_shapes
from sampler.data.examples import HELD_BYTES, StreamedExamples, attended_by_numpy
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.mcmc.collected_draws import evenly_spaced
from sampler.posterior.spaces import WEIGHTS, kind_of
from sampler.settings.recipe import Recipe
from theory.architecture import Architecture
from theory.size_limits import STORED_TRAINING_BYTES, stored_bytes

# Examples that the stiffness of all of them is estimated from, fewer where their attended inputs
# would take more than `HELD_BYTES`.
MOST_EXAMPLES = 400


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network with its data, from which the cost of sampling is predicted.

    examples     P, training examples, or the rows that represent them
    observed     examples whose predictor is read off every draw
    stiffness    largest eigenvalue of K/𝒯 in the limit of infinite width; NaN if unknown
    logits       logit weights that are sampled
    added        weights of a network outside the theory besides those of its architecture and
                 logits
    """

    architecture: Architecture
    examples: int
    observed: int
    stiffness: float = math.nan
    logits: int = 0
    added: int = 0

    @classmethod
    def of(cls, recipe: Recipe, task: Task, eigenvalue: float | None = None) -> "Sizes":
        """Sizes for a recipe and its task; `eigenvalue` is that of `leading_eigenvalue`, if known.

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
        stiffness = math.nan if eigenvalue is None else eigenvalue * scale
        sizes = cls(architecture, examples, task.test.examples, stiffness, added=added)
        if task.learned is None:
            return sizes
        below = [architecture.widths[layer - 1] for layer in lowest_layers(task.pairs)]
        logits = task.learned.count(task.train.tokens, task.channels, below)
        return replace(sizes, logits=logits)

    @property
    def weight_count(self) -> int:
        """Number of weights of the network, its logits left out."""
        return self.architecture.weight_count + self.added

    def gradient_operations(self, space: str) -> int:
        """Operations of one gradient of the log posterior, leading order.

        Weights are contracted along the paths first, 2 (Σ_l p_l N_l N_{l+1} + p_1 N_1 D), then with
        the attended inputs, 2 P p_1 D. Order parameters assemble K, factorise it and invert the
        factor instead, 2 O² P² per pair of paths and 2 (P O)³. A gradient costs three times that.
        """
        architecture, examples, outputs = (
            self.architecture,
            self.examples,
            self.architecture.outputs,
        )
        rows = architecture.order_parameter_sizes
        # Of one example from all path weights.
        along_paths = rows[0] * architecture.channels
        if kind_of(space) == WEIGHTS:
            layers = zip(rows[:-1], architecture.widths[:-1], architecture.widths[1:], strict=True)
            contracted = sum(p * n * m for p, n, m in layers)
            return 6 * (contracted + along_paths * (architecture.widths[0] + examples))
        if stored_bytes(examples, None, architecture.path_count, outputs) <= STORED_TRAINING_BYTES:
            # Stored path kernels: C_{ππ'} with π ≤ π' is enough for one output.
            paths = architecture.path_count
            pairs = paths * (paths + 1) // 2 if outputs == 1 else paths**2
            kernel = outputs**2 * pairs * examples**2
        else:
            kernel = along_paths * examples * (examples * outputs**2 + rows[0])
        return 6 * (kernel + (examples * outputs) ** 3)


def refuse_infinite_kernel(recipe: Recipe, task: Task, architecture: Architecture) -> None:
    """Raise InputError where K, or Σ y²/𝒯, overflows in the precision that is asked for."""
    precision, scale = recipe.sampler.precision, math.prod(architecture.variances)
    limit = float(np.finfo(precision).max)
    temperature = recipe.posterior.temperature
    squares = float(np.sum(task.train.labels**2)) / temperature
    found = [("labels_train", squares, "posterior.temperature", temperature)]
    for name, size in task.largest.items():
        # The trace of K, which is no less than its largest eigenvalue.
        trace = architecture.outputs * scale * task.named_splits[name].examples * size * size
        found.append((name, trace, "network.variances", list(architecture.variances)))
    for name, bound, field, value in found:
        if not bound < limit:
            remedy = f"{name}: squares overflow; scale inputs and labels to a size of about 1"
            if precision == "float32":
                field, value = "sampler.precision", precision
                remedy += ', or use "float64"'
            raise InputError(field, value, remedy)


def narrowness(architecture: Architecture) -> float:
    """max_l p_l / N_l: above 1 a layer is narrower than its order parameter."""
    return max(
        p / n for p, n in zip(architecture.order_parameter_sizes, architecture.widths, strict=True)
    )


def leading_eigenvalue(task: Task, recipe: Recipe) -> float | None:
    """Largest eigenvalue of the Gram matrix Σ_π ξ^π(x)·ξ^π(x')/(D Π) of all training examples.

    Estimated from some of them, evenly spaced where all are held and the first ones where they are
    not: it grows with their number. NaN where the matrix overflows; None where there is no theory,
    and nothing is chosen by it.
    """
    if not recipe.has_theory:
        return None
    split, examples = task.train, task.train.examples
    of_one = math.prod(task.heads) * max(task.channels, split.tokens or 0)
    most = min(MOST_EXAMPLES, examples, max(1, HELD_BYTES // (8 * of_one)))
    blocks = split.blocks() if isinstance(split, StreamedExamples) else iter([split])
    rows: list[np.ndarray] = []
    while sum(map(len, rows)) < most:
        block = next(blocks)
        some = block.part(evenly_spaced(block.examples, most))
        attended = attended_by_numpy(some, recipe.network.readout, task.pairs)
        rows.append(attended.reshape(len(attended), -1))
    flat = np.concatenate(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        gram = flat @ flat.T if len(flat) < flat.shape[1] else flat.T @ flat
    if not np.isfinite(gram).all():
        return math.nan
    return float(np.linalg.eigvalsh(gram)[-1] / flat.shape[1] * examples / len(flat))
