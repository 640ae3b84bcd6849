"""Attention that was sampled, of some training examples, with the heads of all draws in one order.

Heads of a layer with the same prior can be exchanged: a mean over draws means something only when
the heads of every draw have been put into the order in which they are nearest to a reference. That
is the draw of the likeliest repetition which is nearest to all its others, with the heads that made
the labels, or else those that the task has a name for, in the place of its nearest ones.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from sampler.analysis.names import label
from sampler.analysis.validation import kept_draws
from sampler.attention.learned import exchange_groups
from sampler.attention.sampled import AttendingTokens, SampledAttention
from sampler.attention.similarity import (
    Groups,
    aimed_at,
    attention_distances,
    attention_entropies,
    attention_overlaps,
    matched,
    medoid,
)
from sampler.data.known_heads import KnownHeads
from sampler.mcmc.collected_draws import DrawCollector, evenly_spaced
from sampler.mcmc.tempered import repetition_weights
from sampler.runtime import jax_settings
from sampler.settings.task_sections import UNIFORM
from sampler.streams import Stream, stream
from sampler.token_problem import LearnedProblem

# Of the examples that attention is measured on so many are stored; draws of all chains that are
# measured; draws of each chain that are stored one by one, and among which the reference is looked
# for; draws of the prior.
SHOWN_EXAMPLES, MOST_DRAWS, SINGLE_DRAWS, CANDIDATES, PRIOR_DRAWS = 8, 400, 2, 24, 200
PRIOR_MEAN = "prior mean"

# Name → logit weights [chain, draw, …].
Logits = Mapping[str, np.ndarray]
Matrices = Float[np.ndarray, "example head key query"]


def kept_logits(
    collected: DrawCollector, names: list[str]
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, " kept"]]:
    """Logit weights [chain, kept draw, …] of all layers, and the draws that are kept of all."""
    numbers, kept = np.arange(collected.draws_made), {}
    thinned = {name: collected.thinned[name] for name in names if name in collected.thinned}
    for draws in thinned.values():
        numbers = np.intersect1d(numbers, draws.draws)
    for name in names:
        if name in thinned:
            at = np.searchsorted(thinned[name].draws, numbers)
            kept[name] = thinned[name].values[:, at]
        else:
            kept[name] = collected.draws[name][:, numbers]
    return kept, numbers


def attention_table(problem: LearnedProblem, collected: DrawCollector, seed: int = 0) -> xr.Dataset:
    """The group `attention` of `draws.nc`, for every layer l of attention with learned heads.

    Heads are in matched order; distance, overlap and entropy are those of
    `sampler.attention.similarity`, over some training examples, of which a few are shown.

    attention_l            [chain, shown_example, head_l, key, query_l], means over draws
    attention_l_deviation  the same, standard deviations
    attention_l_single     [chain, single, shown_example, head_l, key, query_l], single draws
    attention_l_prior      [shown_example, head_l, key, query_l], mean over the prior
    attention_l_known      [shown_example, known_l, key, query_l], heads of the task or the teacher
    generating_l           [known_l], which of these made the labels
    learned_l              [head_l], which heads are learned
    head_of_place_l        [chain, measured_draw, head_l], the head of the draw that stands there
    entropy_l              [chain, measured_draw, head_l], nats
    distance_l, overlap_l  [chain, measured_draw, head_l, reference_l], reference 0 the prior mean
    entropy_l_prior, distance_l_prior, overlap_l_prior
                           the same of draws of the prior [prior_draw, …], in matched order, too

    Matrices are in single precision. Of the last layer there are only the queries that are read.

    seed  of the draws of the prior
    """
    attention, measured = problem.data.attention, problem.measured
    logits, numbers = kept_logits(collected, [name for name, _ in problem.sites])
    chains = len(next(iter(logits.values())))
    chosen = kept_draws(chains, len(numbers), MOST_DRAWS)
    single = evenly_spaced(len(chosen), SINGLE_DRAWS)
    tokens = jax.tree.map(lambda leaf: leaf[measured], problem.data.tokens)
    drawn = {name: values[:, chosen] for name, values in logits.items()}
    random = stream(seed, Stream.PRIOR_LOGITS)
    of_prior = {n: random.standard_normal((1, PRIOR_DRAWS, *size)) for n, size in problem.sites}
    weights = repetition_weights(collected.statistics)
    likeliest = 0 if weights is None else int(np.argmax(weights))
    with jax_settings():
        candidates = {name: values[likeliest] for name, values in drawn.items()}
        references = reference_draw(attention, tokens, candidates)
        tables = [
            layer_table(problem, layer, matrices, tokens, drawn, of_prior, single)
            for layer, matrices in references.items()
        ]
    shown = evenly_spaced(len(measured), SHOWN_EXAMPLES)
    table = xr.merge([of_layer.isel(shown_example=shown) for of_layer in tables])
    table = table.assign_coords(shown_example=measured[shown])
    coordinates = {"measured_draw": numbers[chosen], "single": numbers[chosen][single]}
    table = label(table, problem).assign_coords({**table.coords, **coordinates})
    sizes = {"heads": list(map(len, attention.learned)), "pairs": list(map(int, attention.pairs))}
    return table.assign_attrs(sizes, learned_layers=len(tables))


def reference_draw(
    attention: SampledAttention, tokens: AttendingTokens, candidates: Logits
) -> dict[int, Matrices]:
    """Layer, from 0, with learned heads → matrices of the draw that is nearest to all others.

    candidates  name → [draw, …]
    """
    groups = exchange_groups(attention.learned, attention.variants)
    layers = [layer for layer, of_layer in enumerate(groups) if of_layer]
    places = evenly_spaced(len(next(iter(candidates.values()))), CANDIDATES)
    few = {name: values[places] for name, values in candidates.items()}
    matrices = [np.asarray(_matrices(attention, tokens, few, layer)) for layer in layers]
    costs = [
        np.stack([np.stack([attention_distances(a, b) for b in of_layer]) for a in of_layer])
        for of_layer in matrices
    ]
    best = medoid(costs, [groups[layer] for layer in layers])
    return {layer: of_layer[best] for layer, of_layer in zip(layers, matrices, strict=True)}


def layer_table(
    problem: LearnedProblem,
    layer: int,
    reference: Matrices,
    tokens: AttendingTokens,
    drawn: Logits,
    of_prior: Logits,
    single: Int[np.ndarray, " single"],
) -> xr.Dataset:
    """Columns of one layer, from 0, of all examples that attention is measured on."""
    attention, known = problem.data.attention, problem.known[layer]
    groups = exchange_groups(attention.learned, attention.variants)[layer]
    prior = prior_mean(attention, tokens, of_prior, layer, groups)
    others = np.zeros((len(prior), 0, *prior.shape[2:]))
    if known.names:
        others = known.matrices[..., attention.read(layer)]
    places = with_known_heads(reference, others, known, groups)
    compared = jnp.asarray(np.concatenate([prior, others, places], axis=1))
    numbers, order = measured_heads(attention, tokens, drawn, layer, compared, groups)
    without_data, _ = measured_heads(attention, tokens, of_prior, layer, compared, groups)
    mean, square = map(np.asarray, _moments(attention, tokens, drawn, layer, order))
    singles = np.stack(
        [
            np.asarray(_matrices(attention, tokens, {n: v[:, s] for n, v in drawn.items()}, layer))
            for s in single
        ],
        axis=1,
    )
    singles = np.take_along_axis(singles, order[:, single][:, :, None, :, None, None], axis=3)

    n = layer + 1
    axes = ("shown_example", f"head_{n}", "key", f"query_{n}")
    matrices = {
        "": (("chain", *axes), mean),
        "_deviation": (("chain", *axes), np.sqrt(np.maximum(square - mean**2, 0.0))),
        "_single": (("chain", "single", *axes), singles),
        "_prior": (axes, prior),
    }
    coordinates = {f"head_{n}": list(problem.names_of_attention[layer])}
    coordinates[f"reference_{n}"] = [PRIOR_MEAN, *known.names]
    columns = {
        f"head_of_place_{n}": (("chain", "measured_draw", f"head_{n}"), order),
        f"learned_{n}": (f"head_{n}", np.array(attention.learned[layer], int)),
    }
    if known.names:
        matrices["_known"] = ((axes[0], f"known_{n}", *axes[2:]), others)
        columns[f"generating_{n}"] = (f"known_{n}", np.array(known.generating, int))
        coordinates[f"known_{n}"] = list(known.names)
    for suffix, (dims, values) in matrices.items():
        columns[f"attention_{n}{suffix}"] = (dims, values.astype(np.float32))
    for name, values in numbers.items():
        dims = (f"head_{n}",) if name == "entropy" else (f"head_{n}", f"reference_{n}")
        columns[f"{name}_{n}"] = (("chain", "measured_draw", *dims), values)
        columns[f"{name}_{n}_prior"] = (("prior_draw", *dims), without_data[name][0])
    return xr.Dataset(columns, coordinates)


def prior_mean(
    attention: SampledAttention,
    tokens: AttendingTokens,
    of_prior: Logits,
    layer: int,
    groups: Groups,
) -> Matrices:
    """Mean over the prior, the same for heads of a group; of other heads their attention."""
    heads = len(attention.learned[layer])
    order = np.broadcast_to(np.arange(heads), (1, PRIOR_DRAWS, heads))
    mean, _ = _moments(attention, tokens, of_prior, layer, order)
    prior = np.array(mean[0])
    for group in map(list, groups):
        prior[:, group] = prior[:, group].mean(axis=1, keepdims=True)
    return prior


def with_known_heads(
    reference: Matrices,
    others: Float[np.ndarray, "example known key query"],
    known: KnownHeads,
    groups: Groups,
) -> Matrices:
    """The head that each place is for: heads that made the labels, or that have a name, come first.

    They take the places of the heads of the reference that are nearest to them.
    """
    targets = np.flatnonzero(known.generating)
    if not targets.size:
        targets = np.array([i for i, name in enumerate(known.names) if name != UNIFORM], int)
    if not 0 < targets.size <= sum(map(len, groups)):
        return reference
    order, target = aimed_at(attention_distances(reference, others[:, targets]), groups)
    places = reference[:, order]
    places[:, target >= 0] = others[:, targets[target[target >= 0]]]
    return places


def measured_heads(
    attention: SampledAttention,
    tokens: AttendingTokens,
    logits: Logits,
    layer: int,
    compared: Float[jax.Array, "example reference key query"],
    groups: Groups,
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, "chain draw place"]]:
    """Name → numbers of the heads at each place of every draw, and which heads stand there.

    compared  the prior means of all heads, known heads, and the head that each place is for
    """
    measures = _measures(attention, tokens, logits, layer, compared)
    entropy, distance, overlap = map(np.asarray, measures)
    heads = np.arange(entropy.shape[-1])
    order = matched(distance[..., -heads.size :], groups)
    numbers = {"entropy": np.take_along_axis(entropy, order, axis=2)}
    for name, values in {"distance": distance, "overlap": overlap}.items():
        # Each head beside its own prior mean, and beside all known heads.
        beside = [values[..., heads, heads, None], values[..., heads.size : -heads.size]]
        of_draws = np.concatenate(beside, axis=-1)
        numbers[name] = np.take_along_axis(of_draws, order[..., None], axis=2)
    return numbers, order


@partial(jax.jit, static_argnames="layer")
def _matrices(attention, tokens, logits, layer):
    """Matrices of a layer, [draw, example, head, key, query]."""
    return jax.lax.map(lambda position: attention.columns(position, tokens, layer), logits)


@partial(jax.jit, static_argnames="layer")
def _measures(attention, tokens, logits, layer, compared):
    """Entropies, distances and overlaps of a layer, [chain, draw, head, …]."""

    def of_draw(position):
        matrices = attention.columns(position, tokens, layer)
        distances = attention_distances(matrices, compared)
        return attention_entropies(matrices), distances, attention_overlaps(matrices, compared)

    return jax.lax.map(lambda of_chain: jax.lax.map(of_draw, of_chain), logits)


@partial(jax.jit, static_argnames="layer")
def _moments(attention, tokens, logits, layer, orders):
    """Mean and mean square of the matrices of a layer [chain, …], heads at their places."""

    def of_chain(draws):
        def moments(draw):
            position, order = draw
            matrices = attention.columns(position, tokens, layer)[:, order]
            return matrices, matrices**2

        def add(sums, draw):
            return jax.tree.map(jnp.add, sums, moments(draw)), None

        first = jax.tree.map(lambda leaf: leaf[0], draws)
        zeros = jax.tree.map(jnp.zeros_like, moments(first))
        sums, _ = jax.lax.scan(add, zeros, draws)
        return jax.tree.map(lambda leaf: leaf / len(draws[1]), sums)

    return jax.lax.map(of_chain, (logits, orders))
