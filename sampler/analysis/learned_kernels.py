"""Kernel of the posterior where attention is sampled, too, and its alignment with the labels.

K follows from U_1 and the attention of the same draw, and no exchange of heads changes it: its mean
over draws needs no order. It is that of some training examples, sorted by label.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from sampler.analysis.attention_table import MOST_DRAWS, kept_logits
from sampler.analysis.estimates import RepetitionWeights, batch_means, bootstrap
from sampler.analysis.example_tables import COMPONENTS, REPLICATES, SHOWN, shown_kernel_columns
from sampler.analysis.validation import kept_draws
from sampler.learned_problem import LearnedProblem
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.kept import evenly_spaced
from sampler.runtime import jax_settings
from theory.path_kernels import path_features

MOST_SHOWN = 40


def learned_kernels(
    problem: LearnedProblem, collected: DrawCollector, weights: RepetitionWeights
) -> xr.Dataset:
    """The group `kernel` of `draws.nc`; empty where chains are too short for an error.

    kernel, centred_kernel  [shown_example, shown_example_], means over outputs, and `…_mcse`
    kernel_alignment        |e_i·y|/|y| of the eigenvectors of the mean kernel between the examples
                            that are shown, all outputs, largest eigenvalue first; `…_mcse`
    labels_shown            [shown_example, output]
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
        kernels = np.asarray(_kernels(attention, variance, tokens, dict(of_draws), overlaps))
    batches = batch_means(kernels, weights=weights)
    if len(batches) < 2:
        return xr.Dataset()
    columns: dict = {"labels_shown": (("shown_example", "output"), labels)}
    size, outputs = labels.shape
    by_output = batches.reshape(len(batches), size, outputs, size, outputs)
    of_examples = np.einsum("bxcyc->bxy", by_output) / outputs
    columns |= shown_kernel_columns(of_examples, weights)
    along = labels.reshape(-1) / np.linalg.norm(labels)

    def alignments(means: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(means)
        rounding = size * outputs * np.finfo(np.float64).eps * values[:, -1:]
        known = np.where(values > rounding, np.abs(along @ vectors), np.nan)
        return known[:, ::-1][:, :COMPONENTS]

    found = bootstrap(alignments, batches, REPLICATES, weights=weights)
    columns["kernel_alignment"] = ("component", found.value)
    columns["kernel_alignment_mcse"] = ("component", found.mcse)
    coordinates = {"component": range(found.value.size)} | dict.fromkeys(SHOWN, shown)
    return xr.Dataset(columns, coords=coordinates)


def overlaps_at(
    problem: LearnedProblem,
    draws: Mapping[str, np.ndarray],
    numbers: Int[np.ndarray, " draw"],
    chains: int,
) -> Float[np.ndarray, "_chain _draw _row _row"]:
    """U_1 of some draws.

    Where it was not drawn the network is infinitely wide: U_1 = σ_1² … σ_a² 1.
    """
    if "order_parameter" in draws:
        return np.asarray(draws["order_parameter"], np.float64)[:, numbers]
    architecture = problem.architecture
    size = architecture.path_count * architecture.outputs
    overlap = np.prod(architecture.variances[1:]) * np.eye(size)
    return np.broadcast_to(overlap, (chains, len(numbers), size, size))


@jax.jit
def _kernels(attention, input_variance, tokens, logits, overlaps):
    """K between examples and outputs, output fastest, [chain, draw, row, row]."""

    def one(draw):
        position, overlap = draw
        features = path_features(attention.attended(position, tokens), input_variance)
        count, paths = features.shape[:2]
        outputs = len(overlap) // paths
        by_path = overlap.reshape(paths, outputs, paths, outputs)
        weighed = jnp.einsum("xpi,pcqd->xcdqi", features, by_path)
        found = jnp.einsum("xcdqi,yqi->xcyd", weighed, features)
        return found.reshape(count * outputs, count * outputs)

    return jax.lax.map(lambda of_chain: jax.lax.map(one, of_chain), (logits, overlaps))
