"""Attention that was sampled, of some training examples, with the heads of all draws in one order.

Heads of a layer with the same prior can be exchanged: a mean over draws means something only when
the heads of every draw have been put into the order in which they are nearest to a reference. That
is the draw of the likeliest repetition which is nearest to all its others. Of several modes the
mean is no attention all the same: single draws stand beside it.

Entropies, and distances from the mean over the prior, are those of `sampler.attention.similarity`.
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
    attention_distances,
    attention_entropies,
    matched,
    medoid,
)
from sampler.mcmc.collected_draws import DrawCollector, evenly_spaced
from sampler.mcmc.tempered import repetition_weights
from sampler.runtime import jax_settings
from sampler.streams import Stream, stream
from sampler.token_problem import LearnedProblem

# Of the examples that attention is measured on so many are stored; draws of all chains that are
# measured; draws of each chain that are stored one by one, and among which the reference is looked
# for; draws of the prior.
SHOWN_EXAMPLES, MOST_DRAWS, SINGLE_DRAWS, CANDIDATES, PRIOR_DRAWS = 8, 400, 2, 24, 200
# Numbers of every draw and head, as they are stored and as they are called.
NUMBERS = {"entropy": "entropy", "distance": "distance from prior mean"}

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

    Heads are in matched order; numbers are of some training examples, of which a few are shown.

    attention_l         [chain, shown_example, head_l, key, query_l], means over draws
    attention_l_single  [chain, single, shown_example, head_l, key, query_l], single draws
    attention_l_prior   [shown_example, head_l, key, query_l], mean over the prior
    learned_l           [head_l], which heads are learned
    head_of_place_l     [chain, measured_draw, head_l], the head of the draw that stands there
    entropy_l           [chain, measured_draw, head_l], nats
    distance_l          [chain, measured_draw, head_l], from the prior mean
    entropy_l_prior, distance_l_prior
                        the same of draws of the prior [prior_draw, head_l], in matched order, too

    Matrices are in single precision. Of the last layer there are only the queries that are read.

    seed  of the draws of the prior
    """
    attention, measured = problem.data.attention, problem.measured
    logits, numbers = kept_logits(collected, [name for name, _ in problem.sites])
    chosen = kept_draws(len(next(iter(logits.values()))), len(numbers), MOST_DRAWS)
    single = evenly_spaced(len(chosen), SINGLE_DRAWS)
    tokens = jax.tree.map(lambda leaf: leaf[measured], problem.data.tokens)
    drawn = {name: values[:, chosen] for name, values in logits.items()}
    random = stream(seed, Stream.PRIOR_LOGITS)
    of_prior = {n: random.standard_normal((1, PRIOR_DRAWS, *size)) for n, size in problem.sites}
    weights = repetition_weights(collected.statistics)
    likeliest = 0 if weights is None else int(np.argmax(weights))
    candidates = {name: values[likeliest] for name, values in drawn.items()}
    with jax_settings():
        references = reference_draw(attention, tokens, candidates)
        tables = [
            layer_table(problem, layer, reference, tokens, drawn, of_prior, single)
            for layer, reference in references.items()
        ]
    shown = evenly_spaced(len(measured), SHOWN_EXAMPLES)
    table = xr.merge([of_layer.isel(shown_example=shown) for of_layer in tables])
    coordinates = {
        "shown_example": measured[shown],
        "measured_draw": numbers[chosen],
        "single": numbers[chosen][single],
    }
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
    attention, n = problem.data.attention, layer + 1
    groups = exchange_groups(attention.learned, attention.variants)[layer]
    prior = prior_mean(attention, tokens, of_prior, layer, groups)
    of_layer = attention, tokens, layer, jnp.asarray(prior), jnp.asarray(reference), groups
    numbers, order = measured_heads(drawn, *of_layer)
    without_data, _ = measured_heads(of_prior, *of_layer)
    some = {name: values[:, single] for name, values in drawn.items()}
    singles = jax.lax.map(lambda chain: _matrices(attention, tokens, chain, layer), some)
    singles = np.take_along_axis(
        np.asarray(singles), order[:, single][:, :, None, :, None, None], axis=3
    )
    head, axes = f"head_{n}", ("shown_example", f"head_{n}", "key", f"query_{n}")
    matrices = {
        "": (("chain", *axes), np.asarray(_mean(attention, tokens, drawn, layer, order))),
        "_single": (("chain", "single", *axes), singles),
        "_prior": (axes, prior),
    }
    columns = {
        f"attention_{n}{suffix}": (dims, values.astype(np.float32))
        for suffix, (dims, values) in matrices.items()
    }
    columns[f"head_of_place_{n}"] = (("chain", "measured_draw", head), order)
    columns[f"learned_{n}"] = (head, np.array(attention.learned[layer], int))
    for name in NUMBERS:
        columns[f"{name}_{n}"] = (("chain", "measured_draw", head), numbers[name])
        columns[f"{name}_{n}_prior"] = (("prior_draw", head), without_data[name][0])
    return xr.Dataset(columns, {head: list(problem.names_of_attention[layer])})


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
    prior = np.array(_mean(attention, tokens, of_prior, layer, order)[0])
    for group in map(list, groups):
        prior[:, group] = prior[:, group].mean(axis=1, keepdims=True)
    return prior


def measured_heads(
    logits: Logits,
    attention: SampledAttention,
    tokens: AttendingTokens,
    layer: int,
    prior: Float[jax.Array, "example head key query"],
    reference: Float[jax.Array, "example head key query"],
    groups: Groups,
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, "chain draw place"]]:
    """Name → numbers of the heads at each place of every draw, and which heads stand there."""
    entropy, of_prior, of_reference = map(
        np.asarray, _measures(attention, tokens, logits, layer, prior, reference)
    )
    order = matched(of_reference, groups)
    # Each head from its own prior mean.
    numbers = {"entropy": entropy, "distance": np.diagonal(of_prior, axis1=-2, axis2=-1)}
    return {n: np.take_along_axis(one, order, axis=2) for n, one in numbers.items()}, order


@partial(jax.jit, static_argnames="layer")
def _matrices(attention, tokens, logits, layer):
    """Matrices of a layer, [draw, example, head, key, query]."""
    return jax.lax.map(lambda position: attention.columns(position, tokens, layer), logits)


@partial(jax.jit, static_argnames="layer")
def _measures(attention, tokens, logits, layer, *others):
    """Entropies of a layer [chain, draw, head], and distances from other matrices [… other]."""

    def of_draw(position):
        matrices = attention.columns(position, tokens, layer)
        distances = (attention_distances(matrices, other) for other in others)
        return attention_entropies(matrices), *distances

    return jax.lax.map(lambda of_chain: jax.lax.map(of_draw, of_chain), logits)


@partial(jax.jit, static_argnames="layer")
def _mean(attention, tokens, logits, layer, orders):
    """Mean of the matrices of a layer [chain, …], heads at their places."""

    def of_chain(draws):
        def add(total, draw):
            position, order = draw
            return total + attention.columns(position, tokens, layer)[:, order], None

        first = jax.tree.map(lambda leaf: leaf[0], draws[0])
        zeros = jnp.zeros_like(attention.columns(first, tokens, layer))
        return jax.lax.scan(add, zeros, draws)[0] / len(draws[1])

    return jax.lax.map(of_chain, (logits, orders))
