"""All weights drawn back, exactly, from draws of the order parameters.

Given the Bartlett matrices B_l of a draw, all weights are drawn from their conditional posterior:
no chain, no approximation. Together they are draws from p(weights | data), with the overlaps U_l
of the draw they come from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.devices import side_by_side
from sampler.errors import InputError
from sampler.posterior.density import (
    Coordinates,
    Position,
    energy_at,
)
from sampler.posterior.order_parameters import OrderParameterPosterior, bartlett_matrices_at
from sampler.posterior.weights import draw_input_weights, orthonormal_rows, standard_normals
from theory.architecture import Architecture
from theory.learning_problem import LabelEnergy, LearningProblem
from theory.wishart_chain import WishartChain, chain_factors, link_scales

MEMORY_LIMIT = 2 * 2**30
# Draws are made side by side while their arrays fit into this many bytes.
BATCH_BYTES = 64 * 2**20
WEIGHT_STREAM = 2


@dataclass(frozen=True)
class WeightDraws:
    """Weights of some of the draws of every chain.

    weights  name → [chain, kept draw, …]: V_0, V_1 … V_L, a
    draws    which draws of each chain they belong to [kept draw]
    """

    weights: Mapping[str, np.ndarray]
    draws: np.ndarray


def weight_draws(
    problem: LearningProblem,
    positions: Mapping[str, np.ndarray],
    count: int,
    seed: int,
    memory_limit: int = MEMORY_LIMIT,
) -> WeightDraws:
    """Draw all weights for `count` evenly spaced draws of every chain.

    positions  Bartlett coordinates `chi_l` [chain, draw, rank], `lower_l` [chain, draw, entry],
               and the site of the temperature where it was sampled
    seed       fixes the weights of each draw, whatever other draws are asked for

    Raises InputError when there are fewer draws than asked for, or when the arrays would exceed
    `memory_limit` bytes.
    """
    posterior = OrderParameterPosterior.of(problem)
    known = KnownFeatures(posterior.energy, posterior.features)
    laws = posterior.chain, problem.architecture, posterior.coordinates
    return weights_of_draws(known, *laws, positions, count, seed, memory_limit)


@runtime_checkable
class GivenPosition(Protocol):
    """A tree of arrays that give the training examples of a position."""

    def given(self, position: Position) -> tuple[LabelEnergy, Float[Array, "example path channel"]]:
        """Energy of the labels and features φ^π(x_μ) at a position."""


@partial(jax.tree_util.register_dataclass, data_fields=["energy", "features"], meta_fields=[])
@dataclass(frozen=True)
class KnownFeatures:
    """Training examples whose features depend on no position."""

    energy: LabelEnergy
    features: Float[Array, "example path channel"]

    def given(self, position: Position) -> tuple[LabelEnergy, Float[Array, "example path channel"]]:
        """Energy of the labels and features φ^π(x_μ)."""
        return self.energy, self.features


def weights_of_draws(
    examples: GivenPosition,
    chain: WishartChain,
    architecture: Architecture,
    coordinates: Coordinates,
    positions: Mapping[str, np.ndarray],
    count: int,
    seed: int,
    memory_limit: int = MEMORY_LIMIT,
) -> WeightDraws:
    """Draw weights as `weight_draws` does, for examples that may depend on the position."""
    dtype = chain.variances.dtype
    positions = coordinates.of_draws(positions)
    chains, draws = positions["chi_1"].shape[:2]
    refuse_unusable_count(count, chains, draws, architecture, dtype.itemsize, memory_limit)
    kept = np.arange(1, count + 1) * draws // count - 1
    flat = {
        name: jnp.asarray(values[:, kept].reshape(-1, *values.shape[2:]).astype(dtype))
        for name, values in positions.items()
    }
    index = jnp.asarray((np.arange(chains)[:, None] * draws + kept).reshape(-1))
    example = {
        name: jax.ShapeDtypeStruct(values.shape[1:], values.dtype) for name, values in flat.items()
    }
    sizes = jax.eval_shape(lambda position: examples.given(position)[1], example)
    batch = batch_size(sizes.shape[0], chain, architecture, chains * count)
    weights = _draw_all(seed, index, flat, examples, chain, architecture, batch)
    return WeightDraws(
        {
            name: np.asarray(values).reshape(chains, count, *values.shape[1:])
            for name, values in weights.items()
        },
        kept,
    )


def refuse_unusable_count(
    count: int,
    chains: int,
    draws: int,
    architecture: Architecture,
    item_bytes: int,
    memory_limit: int = MEMORY_LIMIT,
) -> None:
    """Raise InputError unless weights of `count` draws per chain exist and fit into memory."""
    if not 1 <= count <= draws:
        raise InputError(
            "weight_draws", count, f"must lie between 1 and the {draws} draws of each chain"
        )
    per_count = chains * architecture.weight_count * item_bytes
    if count * per_count > memory_limit:
        most = memory_limit // per_count
        remedy = f"use at most {most}" if most else "use narrower layers or fewer chains"
        raise InputError(
            "weight_draws",
            count,
            f"{architecture.weight_count:,} weights × {count} draws × {chains} chains need "
            f"{count * per_count / 2**30:.3g} GiB (limit {memory_limit / 2**30:.3g} GiB); {remedy}",
        )


def batch_size(
    count: int, chain: WishartChain, architecture: Architecture, total: int
) -> int | None:
    """Draws made side by side, where any are: as many as fit into BATCH_BYTES."""
    item = chain.variances.dtype.itemsize
    examples, rank = count * architecture.outputs, len(chain.degrees[0])
    renormalised = examples * rank * architecture.channels
    numbers = 4 * architecture.weight_count + 4 * examples**2 + renormalised
    return side_by_side(int(max(1, min(total, BATCH_BYTES // (item * numbers)))))


@partial(jax.jit, static_argnames=("architecture", "batch"))
def _draw_all(seed, index, positions, examples, chain, architecture, batch):
    """`draw_weights` of every row of `positions`: the one place where draws are batched."""
    base = jax.random.fold_in(jax.random.key(seed), WEIGHT_STREAM)
    keys = jax.vmap(partial(jax.random.fold_in, base))(index)

    def one(row):
        key, position = row
        matrices = bartlett_matrices_at(position, chain)
        energy, features = examples.given(position)
        here = energy_at(energy, position)
        return draw_weights(key, matrices, here, features, architecture)

    return jax.lax.map(one, (keys, positions), batch_size=batch)


def draw_weights(
    key: Array,
    matrices: tuple[Float[Array, "_rows _rank"], ...],
    energy: LabelEnergy,
    features: Float[Array, "example path channel"],
    architecture: Architecture,
) -> dict[str, Array]:
    """Draw all weights given the Bartlett matrices B_1 … B_{L+1} and the labels.

    Q_l [r_l, N_l] is uniform among matrices with orthonormal rows, w_l = √N_l F_l Q_l, a = w_{L+1},
        V_l^h = V + Q_{l+1}ᵀ (σ_l B_l[h] Q_l − Q_{l+1} V),   V ~ N(0, σ_l²),
    where B_l[h] are the rows of head h; V_0 by Matheron's rule. `features` are φ^π(x_μ).
    """
    factors = chain_factors(matrices, architecture.heads, link_scales(architecture))
    shapes = {k: shape for k, shape in architecture.weight_shapes.items() if k not in ("V_0", "a")}
    for layer, matrix in enumerate(matrices, start=1):
        shapes[f"Q_{layer}"] = (matrix.shape[1], architecture.widths[layer - 1])
    upper_key, input_key = jax.random.split(key)
    normal = standard_normals(upper_key, shapes, features.dtype)
    above = orthonormal_rows(normal[f"Q_{architecture.layers + 1}"])
    weights = {"a": architecture.widths[-1] ** 0.5 * factors[-1] @ above}
    for layer in range(architecture.layers, 0, -1):
        rows, values = orthonormal_rows(normal[f"Q_{layer}"]), normal[f"V_{layer}"]
        wanted = (matrices[layer - 1] @ rows).reshape(values.shape[0], -1, values.shape[2])
        missing = wanted - jnp.einsum("ri,hij->hrj", above, values)
        deviation = architecture.variances[layer] ** 0.5
        weights[f"V_{layer}"] = deviation * (values + jnp.einsum("ri,hrj->hij", above, missing))
        above = rows
    lowest = architecture.widths[0] ** 0.5 * factors[0] @ above
    variance = architecture.variances[0]
    weights["V_0"] = draw_input_weights(input_key, lowest, factors[0], energy, features, variance)
    return {name: weights[name] for name in architecture.weight_shapes}
