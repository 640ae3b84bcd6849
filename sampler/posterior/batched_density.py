"""ln p(B_1 … B_{L+1}, y) of many positions at once, in bounded memory."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sampler.posterior.mode import Unflatten
from sampler.posterior.order_parameter_model import log_likelihood_at, log_prior
from theory.architecture import Architecture
from theory.energy import LabelEnergy
from theory.hyper_priors import KNOWN, HyperPriors
from theory.path_kernels import FeatureForm, store_path_kernels
from theory.symmetric_kernels import stored_numbers

# Batches per call of the compiled function; shorter calls are filled up, so it compiles once.
BATCHES = 32
# Kernels of one batch: small enough for the caches of a processor, large enough to fill a GPU.
BATCH_BYTES = {"cpu": 4 * 2**20}
BATCH_BYTES_ELSEWHERE = 2**30
# Path kernels are stored up to this size: a batch of kernels is then one matrix product with them.
STORED_BYTES = 2**30
# Fewer would leave cores idle, more would gain nothing.
SMALLEST_BATCH, LARGEST_BATCH = 8, 4096


def batched_log_density(
    energy: LabelEnergy,
    architecture: Architecture,
    points: Float[np.ndarray, "draw coordinate"],
    batch_size: int | None = None,
    hyper_priors: HyperPriors = KNOWN,
) -> Float[np.ndarray, " draw"]:
    """ln p(x, y) at flattened positions x (order of `Unflatten`), normalised over x and y.

    `batch_size` kernels are held at a time (by default as many as fit the caches). A value that is
    not a number stays so.
    """
    batch = _default_batch(energy, architecture) if batch_size is None else batch_size
    if batch < 1:
        raise ValueError(f"batch_size = {batch_size}: must be at least 1")
    values = np.empty(len(points))
    length = BATCHES * batch
    for start in range(0, len(points), length):
        block = points[start : start + length]
        missing = np.repeat(points[:1], length - len(block), axis=0)
        filled = jnp.asarray(np.concatenate([block, missing]))
        result = np.asarray(_log_densities(filled, energy, architecture, hyper_priors, batch))
        values[start : start + len(block)] = result[: len(block)]
    return values


def energy_for_batches(energy: LabelEnergy, architecture: Architecture) -> LabelEnergy:
    """The same energy with path kernels stored where that makes batches of kernels cheaper.

    One kernel at a time reads all stored numbers for few products, a batch of them does not.
    """
    form = energy.kernels
    if not isinstance(form, FeatureForm):
        return energy
    examples, outputs = energy.labels.shape
    paths, rows = architecture.path_count, architecture.order_parameter_sizes[0]
    numbers = stored_numbers(examples, paths) if outputs == 1 else (paths * examples) ** 2
    features = rows * architecture.channels
    assembled = features * examples * (examples * outputs**2 + 2 * rows)
    if 8 * numbers > STORED_BYTES or numbers * outputs**2 > assembled:
        return energy
    return replace(energy, kernels=store_path_kernels(form, architecture))


def _default_batch(energy: LabelEnergy, architecture: Architecture) -> int:
    """As many draws as keep their kernels, factors and features within the stated bytes.

    Stored path kernels are read once per batch, so a batch is at least as large as they are.
    """
    size = energy.labels.size
    numbers = 2 * size**2
    limit = BATCH_BYTES.get(jax.default_backend(), BATCH_BYTES_ELSEWHERE)
    if isinstance(energy.kernels, FeatureForm):
        numbers += size * architecture.order_parameter_sizes[0] * architecture.channels
    else:
        limit = max(limit, energy.kernels.nbytes)
    return int(np.clip(limit // (8 * numbers), SMALLEST_BATCH, LARGEST_BATCH))


@partial(jax.jit, static_argnames=("architecture", "hyper_priors", "batch"))
def _log_densities(points, energy: LabelEnergy, architecture, hyper_priors, batch: int):
    unflatten = Unflatten.of(architecture, hyper_priors)

    def log_density(point):
        position = unflatten(point)
        likelihood = log_likelihood_at(position, energy, architecture)
        return likelihood + log_prior(position, architecture, hyper_priors)

    return jax.lax.map(log_density, points, batch_size=batch)
