"""Kernels between some training examples, and their alignment with the labels.

The kernel of a posterior is K at the mean of U_1, in which it is linear. Where attention is
also sampled, it is the mean of K over draws of U_1 and attention: no exchange of heads changes it.
With several outputs it is shown as the mean over outputs.
"""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from scipy.linalg import eigh

from sampler.analysis.estimates import OF_CHAINS, Averages, Estimate
from sampler.analysis.learned_heads import MOST_DRAWS, kept_logits
from sampler.analysis.validation import kept_draws
from sampler.mcmc.collected_draws import DrawCollector, evenly_spaced
from sampler.problem import Problem, square_roots
from sampler.runtime import jax_settings
from sampler.token_problem import LearnedProblem
from theory import Features, centred_kernel
from theory.path_kernels import assemble_kernel, path_features

# Components whose sampled alignment is known, and eigenvectors of the mean kernel that these may
# turn into within the error of the draws.
COMPONENTS = 50
FOLLOWED = 2 * COMPONENTS
# Examples that are shown where attention is sampled, and numbers that features are stored as.
MOST_SHOWN, MOST_NUMBERS = 40, 2**20
REPLICATES = 200
SHOWN = ("shown_example", "shown_example_")


def kernel_at(
    features: Float[np.ndarray, "example path channel"],
    overlap: Float[np.ndarray, "row row"],
) -> Float[np.ndarray, "example example"]:
    """K = Σ U^{ππ'} φ^π(x)·φ^π'(x'), its mean over outputs."""
    paths, outputs = features.shape[1], len(overlap) // features.shape[1]
    by_output = overlap.reshape(paths, outputs, paths, outputs)
    of_paths = np.einsum("pcqc->pq", by_output) / outputs
    weighed = np.einsum("xpi,pq->xqi", features, of_paths, optimize=True)
    return weighed.reshape(len(features), -1) @ features.reshape(len(features), -1).T


# --- of the theory


def shown_features(problem: Problem) -> xr.Dataset:
    """Features of some training examples, from which K follows for any U_1, and their labels.

    Of many paths fewer examples than the problem shows. Channels are combined, which changes no
    product, where there are more of them than rows. Empty where no training examples can be shown.
    """
    if problem.shown is None:
        return xr.Dataset()
    numbers, shown = problem.shown
    _, paths, channels = shown.shape
    most = max(2, MOST_NUMBERS // (paths * channels), math.isqrt(MOST_NUMBERS) // paths)
    chosen = evenly_spaced(len(numbers), most)
    features = path_features(shown.inputs[chosen], problem.architecture.variances[0])
    if len(chosen) * paths < channels:
        rows = features.reshape(-1, channels)
        features = np.transpose(np.linalg.qr(rows.T, mode="r")).reshape(len(chosen), paths, -1)
    columns = {
        "kernel_features": (("shown_example", "kernel_path", "feature"), features),
        "labels_shown": (("shown_example", "output"), shown.labels[chosen]),
    }
    coordinates = {"shown_example": numbers[chosen], "kernel_path": list(problem.path_names)}
    return xr.Dataset(columns, coordinates | {"feature": range(features.shape[2])})


def kernel_of(problem: Problem, overlap: Float[np.ndarray, "row row"]) -> dict:
    """Column `kernel` of `theory.nc` at U_1; empty where no training examples can be shown."""
    table = shown_features(problem)
    return {"kernel": (SHOWN, kernel_at(table["kernel_features"].values, overlap))} if table else {}


# --- of draws

Statistic = Callable[[np.ndarray], np.ndarray]


def similarity_to_draws(
    kernel: Float[np.ndarray, "example example"],
    batches: Float[np.ndarray, "batch example example"],
    averages: Averages = OF_CHAINS,
) -> Estimate:
    """Centred kernel alignment ⟨K, K'⟩/(‖K‖ ‖K'‖) of K with the mean K' over batches of draws.

    With ‖K'‖² without the bias by the noise of the draws (Cortes, Mohri and Rostamizadeh, 2012);
    NaN where nothing is left of it.
    """
    kernel, batches = centred_kernel(kernel), centred_kernel(batches)
    means, count = averages.resampled(batches), len(batches)
    noise = np.sum(averages.of_replicates(means, count).mcse ** 2)
    squares = np.sum(kernel**2) * (np.sum(means**2, axis=(-2, -1)) - noise)
    known = np.where(squares > 0, squares, np.nan)
    alignments = np.sum(kernel * means, axis=(-2, -1)) / np.sqrt(known)
    return averages.of_replicates(alignments, count)


def alignment_table(
    alignments: Statistic,
    kernels: Float[np.ndarray, "batch row row"],
    averages: Averages,
    defined: np.ndarray | bool = True,
) -> xr.Dataset:
    """Alignments [component] of the mean of batches of kernels, NaN where they are undefined.

    Errors are those of a bootstrap over batches.
    """
    estimate = averages.bootstrap(alignments, kernels, REPLICATES)
    columns = {
        "kernel_alignment": ("component", np.where(defined, estimate.value, np.nan)),
        "kernel_alignment_mcse": ("component", np.where(defined, estimate.mcse, np.nan)),
    }
    return xr.Dataset(columns, coords={"component": range(len(estimate.value))})


def sampled_alignment(
    problem: Problem, draws: Mapping[str, np.ndarray], averages: Averages = OF_CHAINS
) -> xr.Dataset:
    """The group `kernel` of `draws.nc`: kernel–task alignment of the first components.

    Empty without order parameters, and where chains are too short for an error.
    """
    if "order_parameter" not in draws:
        return xr.Dataset()
    batches = averages.batches(np.asarray(draws["order_parameter"], np.float64))
    if len(batches) < 2:
        return xr.Dataset()
    with jax_settings():
        return sampled_alignment_table(problem, batches, averages)


def sampled_alignment_table(
    problem: Problem,
    batches: Float[np.ndarray, "batch row row"],
    averages: Averages = OF_CHAINS,
) -> xr.Dataset:
    """Kernel–task alignment of the first components at the mean of batches of U_1.

    In the bootstrap eigenvectors turn among the first `FOLLOWED` ones of the mean kernel. NaN where
    an eigenvalue is 0 to rounding.
    """
    learning, outputs = problem.learning, problem.architecture.outputs
    labels = np.asarray(learning.labels).reshape(-1)
    factor = jnp.asarray(square_roots(averages.mean_of_batches(batches)))
    kernel = np.asarray(assemble_kernel(Features(learning.features, None), factor))
    first = len(kernel) - min(len(kernel), FOLLOWED)
    eigenvalues, vectors = eigh(kernel, subset_by_index=[first, len(kernel) - 1])
    # vᵀ φ for vectors v over (example, output): with them K between eigenvectors is K of features.
    by_example = vectors.reshape(-1, outputs, vectors.shape[1])
    features = np.asarray(learning.features)
    projected = np.einsum("xcm,xpi->mpci", by_example, features, optimize=True)
    rows = projected.reshape(vectors.shape[1], batches.shape[-1], -1)
    along = labels @ vectors / np.sqrt(labels @ labels + learning.residual_squares)

    def alignments(means: np.ndarray) -> np.ndarray:
        turned = np.linalg.eigh(means)[1][..., ::-1][..., :COMPONENTS]
        return np.abs(np.einsum("m,rmi->ri", along, turned))

    rounding = len(kernel) * np.finfo(np.float64).eps * eigenvalues[-1]
    defined = (eigenvalues > rounding)[::-1][:COMPONENTS]
    kernels = np.stack([kernel_at(rows, batch) for batch in batches])
    return alignment_table(alignments, kernels, averages, defined)


# --- of draws of attention


def learned_kernels(
    problem: LearnedProblem, collected: DrawCollector, averages: Averages
) -> xr.Dataset:
    """The group `kernel` of `draws.nc` where attention is sampled, of some training examples.

    Kernel and alignment of the posterior with their errors; `labels_shown` [shown_example, output].
    Empty where chains are too short for an error.
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
    batches = averages.batches(kernels)
    if len(batches) < 2:
        return xr.Dataset()
    size, outputs = labels.shape
    along = labels.reshape(-1) / np.linalg.norm(labels)

    def alignments(means: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(means)
        rounding = size * outputs * np.finfo(np.float64).eps * values[:, -1:]
        aligned = np.where(values > rounding, np.abs(along @ vectors), np.nan)
        return aligned[:, ::-1][:, :COMPONENTS]

    by_output = batches.reshape(len(batches), size, outputs, size, outputs)
    mean = averages.bootstrap(np.asarray, np.einsum("bxcyc->bxy", by_output) / outputs)
    columns = {
        "kernel": (SHOWN, mean.value),
        "kernel_mcse": (SHOWN, mean.mcse),
        "labels_shown": (("shown_example", "output"), labels),
    }
    table = xr.Dataset(columns, dict.fromkeys(SHOWN, shown))
    return table.merge(alignment_table(alignments, batches, averages))


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
