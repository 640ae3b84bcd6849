"""Kernels between some training examples, and their alignment with the labels.

The kernel of a posterior is K at the mean of U_1, in which it is linear. Where attention is
sampled, too, it is the mean of K over draws of U_1 and attention: no exchange of heads changes it.
With several outputs it is shown as the mean over outputs.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from scipy.linalg import eigh

from sampler.analysis.estimates import RepetitionWeights, batch_means, bootstrap, mean_over_batches
from sampler.analysis.matched_heads import MOST_DRAWS, kept_logits
from sampler.analysis.validation import kept_draws
from sampler.mcmc.collected_draws import DrawCollector, evenly_spaced
from sampler.problem import Problem, square_roots
from sampler.runtime import jax_settings
from sampler.token_problem import LearnedProblem
from theory import Features, centred_kernel
from theory.path_kernels import assemble_kernel, path_features

# Paths whose kernels are shown, components whose sampled alignment is known, and eigenvectors of
# the mean kernel that these may turn into within the error of the draws.
MOST_KERNEL_PATHS, COMPONENTS = 4, 50
FOLLOWED = 2 * COMPONENTS
# Examples that are shown where attention is sampled.
MOST_SHOWN = 40
REPLICATES = 200
TINY = np.finfo(np.float64).tiny
SHOWN = ("shown_example", "shown_example_")


def relative_to_size(
    kernels: Float[np.ndarray, "*batch example example"],
) -> Float[np.ndarray, "*batch example example"]:
    """Centred kernels in units of the mean of their diagonal; 0 for one that is constant."""
    centred = centred_kernel(kernels)
    sizes = np.einsum("...xx->...", centred) / centred.shape[-1]
    return centred / np.maximum(sizes, TINY)[..., None, None]


def kernel_at(
    features: Float[np.ndarray, "example path channel"], overlap: Float[np.ndarray, "path path"]
) -> Float[np.ndarray, "example example"]:
    """K = Σ U^{ππ'} φ^π(x)·φ^π'(x')."""
    weighed = np.einsum("xpi,pq->xqi", features, overlap, optimize=True)
    return weighed.reshape(len(features), -1) @ features.reshape(len(features), -1).T


def mean_over_outputs(
    problem: Problem, overlap: Float[np.ndarray, "row row"]
) -> Float[np.ndarray, "path path"]:
    """Σ_c U_1^{(π,c),(π',c)}/O."""
    paths, outputs = problem.architecture.path_count, problem.architecture.outputs
    return np.einsum("pcqc->pq", overlap.reshape(paths, outputs, paths, outputs)) / outputs


# --- of the theory


def shown_features(problem: Problem) -> Float[np.ndarray, "example path channel"]:
    """φ^π of the examples that are shown."""
    return path_features(np.asarray(problem.shown.attended), problem.architecture.variances[0])


def kernel_of(problem: Problem, overlap: Float[np.ndarray, "row row"]) -> dict:
    """Column `kernel` of `theory.nc` at U_1; empty where no training examples can be shown."""
    if problem.shown is None:
        return {}
    kernel = kernel_at(shown_features(problem), mean_over_outputs(problem, overlap))
    return {"kernel": (SHOWN, kernel)}


def strongest_paths(
    problem: Problem, overlap: Float[np.ndarray, "row row"]
) -> Int[np.ndarray, " path"]:
    """The paths with the largest diagonal of U_1, in their order."""
    weights = np.diagonal(mean_over_outputs(problem, overlap))
    return np.sort(np.argsort(-weights, kind="stable")[:MOST_KERNEL_PATHS])


def path_kernels(problem: Problem, overlap: Float[np.ndarray, "row row"]) -> xr.Dataset:
    """Kernels between the paths with the largest U_1, and labels, of the examples shown.

    Empty where no training examples can be shown.
    """
    if problem.shown is None:
        return xr.Dataset()
    strongest = strongest_paths(problem, overlap)
    features, names = shown_features(problem)[:, strongest], np.array(problem.path_names)[strongest]
    kernels = np.einsum("xpi,yqi->pqxy", features, features, optimize=True)
    columns = {
        "path_kernels": (("shown_path", "shown_path_", *SHOWN), kernels),
        "labels_shown": (("shown_example", "output"), problem.shown.labels),
    }
    coordinates = dict.fromkeys(SHOWN, problem.shown.numbers)
    return xr.Dataset(columns, coordinates | dict.fromkeys(("shown_path", "shown_path_"), names))


# --- of draws


def sampled_kernels(
    problem: Problem, draws: Mapping[str, np.ndarray], weights: RepetitionWeights = None
) -> xr.Dataset:
    """The group `kernel` of `draws.nc`: kernel and alignment of the posterior with their errors.

    Empty without order parameters, and where chains are too short for an error.
    """
    if "order_parameter" not in draws:
        return xr.Dataset()
    batches = batch_means(np.asarray(draws["order_parameter"], np.float64), weights=weights)
    if len(batches) < 2:
        return xr.Dataset()
    with jax_settings():
        table = sampled_alignment_table(problem, batches, weights)
    if problem.shown is None:
        return table
    features = shown_features(problem)
    kernels = [kernel_at(features, mean_over_outputs(problem, batch)) for batch in batches]
    return table.merge(shown_kernels(np.stack(kernels), problem.shown.numbers, weights))


def shown_kernels(
    kernels: Float[np.ndarray, "batch example example"],
    numbers: Int[np.ndarray, " example"],
    weights: RepetitionWeights,
) -> xr.Dataset:
    """Mean kernel between examples of these numbers, and centred and scaled, with their errors."""
    columns = {}
    for name, statistic in {"kernel": np.asarray, "centred_kernel": relative_to_size}.items():
        estimate = bootstrap(statistic, kernels, weights=weights)
        columns |= {name: (SHOWN, estimate.value), f"{name}_mcse": (SHOWN, estimate.mcse)}
    return xr.Dataset(columns, coords=dict.fromkeys(SHOWN, numbers))


Alignments = Callable[[np.ndarray], np.ndarray]


def alignment_table(
    alignments: Alignments,
    kernels: Float[np.ndarray, "batch row row"],
    weights: RepetitionWeights,
    defined: np.ndarray | bool = True,
) -> xr.Dataset:
    """Alignments [component] of the mean of batches of kernels, NaN where they are undefined.

    Errors are those of a bootstrap over batches.
    """
    estimate = bootstrap(alignments, kernels, REPLICATES, weights=weights)
    columns = {
        "kernel_alignment": ("component", np.where(defined, estimate.value, np.nan)),
        "kernel_alignment_mcse": ("component", np.where(defined, estimate.mcse, np.nan)),
    }
    return xr.Dataset(columns, coords={"component": range(len(estimate.value))})


def sampled_alignment_table(
    problem: Problem,
    batches: Float[np.ndarray, "batch row row"],
    weights: RepetitionWeights = None,
) -> xr.Dataset:
    """Kernel–task alignment of the first components at the mean of batches of U_1.

    In the bootstrap eigenvectors turn among the first `FOLLOWED` ones of the mean kernel. NaN where
    an eigenvalue is 0 to rounding.
    """
    learning, outputs = problem.learning, problem.architecture.outputs
    labels = np.asarray(learning.labels).reshape(-1)
    factor = jnp.asarray(square_roots(mean_over_batches(batches, weights)))
    kernel = np.asarray(assemble_kernel(Features(learning.features, None), factor))
    first = len(kernel) - min(len(kernel), FOLLOWED)
    eigenvalues, vectors = eigh(kernel, subset_by_index=[first, len(kernel) - 1])
    # vᵀ φ for vectors v over (example, output): with them K between eigenvectors is K of features.
    by_example = vectors.reshape(-1, outputs, vectors.shape[1])
    features = np.asarray(learning.features)
    projected = np.einsum("xcm,xpi->mpci", by_example, features, optimize=True)
    rows = projected.reshape(vectors.shape[1], batches.shape[-1], -1)
    kernels = np.stack([kernel_at(rows, batch) for batch in batches])
    along = labels @ vectors / np.sqrt(labels @ labels + learning.residual_squares)

    def alignments(means: np.ndarray) -> np.ndarray:
        turned = np.linalg.eigh(means)[1][..., ::-1][..., :COMPONENTS]
        return np.abs(np.einsum("m,rmi->ri", along, turned))

    rounding = len(kernel) * np.finfo(np.float64).eps * eigenvalues[-1]
    defined = (eigenvalues > rounding)[::-1][:COMPONENTS]
    return alignment_table(alignments, kernels, weights, defined)


# --- of draws of attention


def learned_kernels(
    problem: LearnedProblem, collected: DrawCollector, weights: RepetitionWeights
) -> xr.Dataset:
    """The group `kernel` of `draws.nc` where attention is sampled, of some training examples.

    Kernels and alignments as in `sampled_kernels`, the alignments of the kernel between the
    examples that are shown; `labels_shown` [shown_example, output]. Empty where chains are too
    short for an error.
    """
    order = np.lexsort(np.asarray(problem.labels).T[::-1])
    shown = order[evenly_spaced(len(order), MOST_SHOWN)]
    labels = np.asarray(problem.labels)[shown]
    logits, numbers = kept_logits(collected, [name for name, _ in problem.sites])
    chains = len(next(iter(logits.values())))
    chosen = kept_draws(chains, len(numbers), MOST_DRAWS)
    of_draws = {name: values[:, chosen] for name, values in logits.items()}
    tokens = jax.tree.map(lambda leaf: leaf[shown], problem.data.tokens)
    overlaps = overlaps_at(problem, collected.draws, numbers[chosen], chains)
    with jax_settings():
        variance, attention = problem.architecture.variances[0], problem.data.attention
        kernels = np.asarray(_kernels(attention, variance, tokens, of_draws, overlaps))
    batches = batch_means(kernels, weights=weights)
    if len(batches) < 2:
        return xr.Dataset()
    size, outputs = labels.shape
    by_output = batches.reshape(len(batches), size, outputs, size, outputs)
    along = labels.reshape(-1) / np.linalg.norm(labels)

    def alignments(means: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(means)
        rounding = size * outputs * np.finfo(np.float64).eps * values[:, -1:]
        aligned = np.where(values > rounding, np.abs(along @ vectors), np.nan)
        return aligned[:, ::-1][:, :COMPONENTS]

    mean_of_outputs = np.einsum("bxcyc->bxy", by_output) / outputs
    table = shown_kernels(mean_of_outputs, shown, weights)
    table = table.merge(alignment_table(alignments, batches, weights))
    return table.assign(labels_shown=(("shown_example", "output"), labels))


def overlaps_at(
    problem: LearnedProblem,
    draws: Mapping[str, np.ndarray],
    numbers: Int[np.ndarray, " draw"],
    chains: int,
) -> Float[np.ndarray, "_chain _draw _row _row"]:
    """U_1 of some draws; σ_1² … σ_a² 1, that of infinite width, where it was not drawn."""
    if "order_parameter" in draws:
        return np.asarray(draws["order_parameter"], np.float64)[:, numbers]
    architecture = problem.architecture
    size = architecture.path_count * architecture.outputs
    overlap = np.prod(architecture.variances[1:]) * np.eye(size)
    return np.broadcast_to(overlap, (chains, len(numbers), size, size))


@jax.jit
def _kernels(attention, input_variance, tokens, logits, overlaps):
    """K between examples and outputs, output fastest, [chain, draw, row, row]."""

    def of_draw(draw):
        position, overlap = draw
        features = path_features(attention.attended(position, tokens), input_variance)
        count, paths = features.shape[:2]
        outputs = len(overlap) // paths
        by_path = overlap.reshape(paths, outputs, paths, outputs)
        weighed = jnp.einsum("xpi,pcqd->xcdqi", features, by_path)
        kernel = jnp.einsum("xcdqi,yqi->xcyd", weighed, features)
        return kernel.reshape(count * outputs, count * outputs)

    return jax.lax.map(lambda of_chain: jax.lax.map(of_draw, of_chain), (logits, overlaps))
