"""Attention that was sampled, of some training examples: what draws have found, heads in order.

Heads of a layer with the same prior can be exchanged: a mean over draws means something only when
the heads of every draw have been put into the order in which they are nearest to a reference. That
is the draw of the likeliest repetition which is nearest to all its others, with the heads that made
the labels, or else those that the task has a name for, in the place of its nearest ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from sampler.analysis.names import label
from sampler.analysis.validation import kept_draws
from sampler.attention.learned import exchange_groups
from sampler.attention.measures import (
    Groups,
    aimed_at,
    attention_distances,
    attention_entropies,
    attention_overlaps,
    matched,
    medoid,
)
from sampler.attention.sampled import SampledAttention, Tokens
from sampler.learned_problem import LearnedProblem
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.kept import evenly_spaced
from sampler.mcmc.tempered import repetition_weights
from sampler.recipes.task_section import UNIFORM
from sampler.runtime import jax_settings

# Of the examples that attention is measured on so many are stored; draws of all chains that are
# measured; draws of each chain that are stored one by one, and among which the reference is looked
# for; draws of the prior.
SHOWN_EXAMPLES, MOST_DRAWS, SINGLE_DRAWS, CANDIDATES, PRIOR_DRAWS = 8, 400, 2, 24, 200
PRIOR_MEAN = "prior mean"

Logits = Mapping[str, np.ndarray]


def kept_logits(
    collected: DrawCollector, names: list[str]
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, " kept"]]:
    """Logit weights [chain, kept draw, …] of all layers, and the draws that are kept of all."""
    numbers = np.arange(collected.draws_made)
    for name in names:
        if name in collected.thinned:
            numbers = np.intersect1d(numbers, collected.thinned[name].draws)
    found = {}
    for name in names:
        if name in collected.thinned:
            one = collected.thinned[name]
            found[name] = one.values[:, np.searchsorted(one.draws, numbers)]
        else:
            found[name] = collected.draws[name][:, numbers]
    return found, numbers


@dataclass(frozen=True)
class Measured:
    """Entropies, distances and overlaps of the heads of a layer of attention, in some draws.

    entropy            [chain, draw, head]
    distance, overlap  [chain, draw, head, reference]
    cost               [chain, draw, head, place], distances from the head that a place is for
    """

    entropy: np.ndarray
    distance: np.ndarray
    overlap: np.ndarray
    cost: np.ndarray

    def at_places(self, order: Int[np.ndarray, "chain draw place"]) -> dict[str, np.ndarray]:
        """Name → numbers of the heads that stand at each place."""
        found = {"entropy": np.take_along_axis(self.entropy, order, axis=2)}
        for name in ("distance", "overlap"):
            found[name] = np.take_along_axis(getattr(self, name), order[..., None], axis=2)
        return found


@dataclass(frozen=True)
class LearnedLayer:
    """A layer of attention with learned heads, and what its draws are held against.

    number  from 1, among layers of attention
    prior   mean over the prior [example, head, key, query]; of other heads their attention
    known   heads of the task or the teacher [example, known, key, query]
    places  the head that each place is for [example, place, key, query]
    """

    number: int
    groups: Groups
    prior: Float[np.ndarray, "example head key query"]
    known: Float[np.ndarray, "example known key query"]
    places: Float[np.ndarray, "example place key query"]

    @property
    def references(self) -> Float[np.ndarray, "example reference key query"]:
        """All of them, one behind the other."""
        return np.concatenate([self.prior, self.known, self.places], axis=1)

    def measured(self, entropy, distance, overlap) -> Measured:
        """Each head beside its own prior mean, the known heads, and the places."""
        heads = self.prior.shape[1]
        own = np.arange(heads)
        of_references = [
            np.concatenate([values[..., own, own, None], values[..., heads:-heads]], axis=-1)
            for values in (distance, overlap)
        ]
        return Measured(entropy, *of_references, distance[..., -heads:])

    def order(self, measured: Measured) -> Int[np.ndarray, "chain draw place"]:
        return matched(measured.cost, self.groups)


def attention_table(problem: LearnedProblem, collected: DrawCollector, seed: int = 0) -> xr.Dataset:
    """The group `attention` of `draws.nc`, for every layer l of attention with learned heads.

    Heads are in matched order; distance, overlap and entropy are those of
    `sampler.attention.measures`, over some training examples, of which a few are shown.

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
    names = [name for name, _ in problem.sites]
    logits, numbers = kept_logits(collected, names)
    chains = logits[names[0]].shape[0]
    chosen = kept_draws(chains, len(numbers), MOST_DRAWS)
    single = evenly_spaced(len(chosen), SINGLE_DRAWS)
    weights = repetition_weights(collected.statistics)
    tokens = jax.tree.map(lambda leaf: leaf[measured], problem.data.tokens)
    of_draws = {name: values[:, chosen] for name, values in logits.items()}
    generator = np.random.default_rng(seed)
    of_prior = {
        n: generator.standard_normal((1, PRIOR_DRAWS, *shape)) for n, shape in problem.sites
    }
    with jax_settings():
        candidates = {
            name: values[0 if weights is None else int(np.argmax(weights))]
            for name, values in of_draws.items()
        }
        layers = layers_of(problem, tokens, of_prior, candidates)
        found = measured_layers(attention, tokens, of_draws, layers)
        without = measured_layers(attention, tokens, of_prior, layers)
        orders = [layer.order(one) for layer, one in zip(layers, found, strict=True)]
        means, squares = moments(attention, tokens, of_draws, layers, orders)
        alone = [
            single_draws(attention, tokens, of_draws, layers, orders, one)
            for one in single.tolist()
        ]
    shown = evenly_spaced(len(measured), SHOWN_EXAMPLES)
    sizes = {"heads": list(map(len, attention.learned)), "pairs": list(map(int, attention.pairs))}
    sizes["learned_layers"] = len(layers)
    table = xr.Dataset(coords={"shown_example": measured[shown]}, attrs=sizes)
    for place, layer in enumerate(layers):
        singles = np.stack([one[place] for one in alone], axis=1)
        matrices = means[place], squares[place], singles
        drawn = found[place].at_places(orders[place])
        prior = without[place].at_places(layer.order(without[place]))
        columns = matrix_columns(layer, shown, *matrices) | number_columns(layer, drawn, prior)
        n, known = layer.number, problem.known[layer.number - 1]
        columns[f"head_of_place_{n}"] = (("chain", "measured_draw", f"head_{n}"), orders[place])
        columns[f"learned_{n}"] = (f"head_{n}", np.array(attention.learned[n - 1], int))
        coordinates = {f"head_{n}": list(problem.names_of_attention[n - 1])}
        coordinates[f"reference_{n}"] = [PRIOR_MEAN, *known.names]
        if known.names:
            columns[f"generating_{n}"] = (f"known_{n}", np.array(known.generating, int))
            coordinates[f"known_{n}"] = list(known.names)
        table = table.assign(columns).assign_coords(coordinates)
    draws = {"measured_draw": numbers[chosen], "single": numbers[chosen][single]}
    return label(table, problem).assign_coords({**table.coords, **draws})


def matrix_columns(
    layer: LearnedLayer,
    shown: Int[np.ndarray, " shown"],
    mean: np.ndarray,
    square: np.ndarray,
    singles: np.ndarray,
) -> dict:
    """Columns of matrices, of the examples that are shown.

    mean, square  [chain, example, head, key, query]
    singles       [chain, single, example, head, key, query]
    """
    n = layer.number
    axes = ("shown_example", f"head_{n}", "key", f"query_{n}")
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    found = {
        "": (("chain", *axes), mean[:, shown]),
        "_deviation": (("chain", *axes), deviation[:, shown]),
        "_single": (("chain", "single", *axes), singles[:, :, shown]),
        "_prior": (axes, layer.prior[shown]),
    }
    if layer.known.shape[1]:
        found["_known"] = ((axes[0], f"known_{n}", *axes[2:]), layer.known[shown])
    return {
        f"attention_{n}{suffix}": (dims, values.astype(np.float32))
        for suffix, (dims, values) in found.items()
    }


def number_columns(
    layer: LearnedLayer, drawn: Mapping[str, np.ndarray], prior: Mapping[str, np.ndarray]
) -> dict:
    """Columns of entropies, distances and overlaps, of the draws and of the prior."""
    n, columns = layer.number, {}
    for name, values in drawn.items():
        axes = (f"head_{n}",) if name == "entropy" else (f"head_{n}", f"reference_{n}")
        columns[f"{name}_{n}"] = (("chain", "measured_draw", *axes), values)
        columns[f"{name}_{n}_prior"] = (("prior_draw", *axes), prior[name][0])
    return columns


def layers_of(
    problem: LearnedProblem, tokens: Tokens, of_prior: Logits, candidates: Logits
) -> list[LearnedLayer]:
    """Layers with learned heads, each with its prior mean, known heads, and heads of its places.

    of_prior    logit weights [1, draw, …] of the prior
    candidates  [draw, …], of which one is the reference
    """
    attention = problem.data.attention
    every = exchange_groups(attention.learned, attention.variants)
    numbers = [n for n, groups in enumerate(every) if groups]
    groups = [every[n] for n in numbers]
    count = len(next(iter(candidates.values())))
    few = {name: values[evenly_spaced(count, CANDIDATES)] for name, values in candidates.items()}
    matrices = [np.asarray(one) for one in _matrices(attention, tokens, few, tuple(numbers))]
    costs = [
        np.stack([np.stack([attention_distances(a, b) for b in of_layer]) for a in of_layer])
        for of_layer in matrices
    ]
    best = medoid(costs, groups)
    identity = [np.arange(one.shape[2])[None, None] for one in matrices]
    orders = [np.broadcast_to(one, (1, PRIOR_DRAWS, one.size)) for one in identity]
    priors, _ = _moments(attention, tokens, of_prior, tuple(numbers), tuple(orders))
    layers = []
    for n, of_layer, those, mean in zip(numbers, matrices, groups, priors, strict=True):
        prior = np.array(mean[0])
        for group in map(list, those):
            prior[:, group] = prior[:, group].mean(axis=1, keepdims=True)
        read = attention.read if n + 1 == len(attention.learned) else slice(None)
        known = problem.known[n]
        heads = known.matrices[..., read]
        if not known.names:
            heads = np.zeros((len(prior), 0, *prior.shape[2:]))
        places = of_layer[best]
        targets = np.flatnonzero(known.generating)
        if not targets.size:
            targets = np.array([i for i, name in enumerate(known.names) if name != UNIFORM], int)
        if 0 < targets.size <= sum(map(len, those)):
            order, target = aimed_at(attention_distances(places, heads[:, targets]), those)
            places = places[:, order]
            places[:, target >= 0] = heads[:, targets[target[target >= 0]]]
        layers.append(LearnedLayer(n + 1, those, prior, heads, places))
    return layers


def measured_layers(
    attention: SampledAttention, tokens: Tokens, logits: Logits, layers: list[LearnedLayer]
) -> list[Measured]:
    """Numbers of the heads of every layer, in all draws [chain, draw, …] of the logit weights."""
    numbers = tuple(layer.number - 1 for layer in layers)
    references = tuple(jnp.asarray(layer.references) for layer in layers)
    found = _measures(attention, tokens, dict(logits), references, numbers)
    return [layer.measured(*map(np.asarray, one)) for layer, one in zip(layers, found, strict=True)]


def moments(
    attention: SampledAttention,
    tokens: Tokens,
    logits: Logits,
    layers: list[LearnedLayer],
    orders: list[np.ndarray],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Mean and mean square of the matrices of every layer [chain, …], heads at their places."""
    numbers = tuple(layer.number - 1 for layer in layers)
    found = _moments(attention, tokens, dict(logits), numbers, tuple(orders))
    mean, square = ([np.asarray(one) for one in each] for each in found)
    return mean, square


def single_draws(
    attention: SampledAttention,
    tokens: Tokens,
    logits: Logits,
    layers: list[LearnedLayer],
    orders: list[np.ndarray],
    draw: int,
) -> list[np.ndarray]:
    """Matrices of every layer in one draw of each chain [chain, …], heads at their places."""
    of_draw = {name: values[:, draw] for name, values in logits.items()}
    found = _matrices(attention, tokens, of_draw, tuple(layer.number - 1 for layer in layers))
    return [
        np.take_along_axis(np.asarray(one), order[:, draw][:, None, :, None, None], axis=2)
        for one, order in zip(found, orders, strict=True)
    ]


@partial(jax.jit, static_argnames="numbers")
def _matrices(attention, tokens, logits, numbers):
    """Matrices of these layers, [draw, example, head, key, query] each."""

    def one(position):
        return tuple(attention.columns(position, tokens, n) for n in numbers)

    return jax.lax.map(one, logits)


@partial(jax.jit, static_argnames="numbers")
def _measures(attention, tokens, logits, references, numbers):
    def one(position):
        found = []
        for n, others in zip(numbers, references, strict=True):
            matrices = attention.columns(position, tokens, n)
            found.append(
                (
                    attention_entropies(matrices),
                    attention_distances(matrices, others),
                    attention_overlaps(matrices, others),
                )
            )
        return tuple(found)

    return jax.lax.map(lambda of_chain: jax.lax.map(one, of_chain), logits)


@partial(jax.jit, static_argnames="numbers")
def _moments(attention, tokens, logits, numbers, orders):
    def of_chain(given):
        count = len(given[1][0])

        def add(sums, draw):
            position, places = draw
            matrices = tuple(
                attention.columns(position, tokens, n)[:, order]
                for n, order in zip(numbers, places, strict=True)
            )
            return jax.tree.map(jnp.add, sums, (matrices, tuple(m**2 for m in matrices))), None

        first = jax.tree.map(lambda leaf: leaf[0], given)
        zero = jax.tree.map(jnp.zeros_like, add_shapes(first))
        sums, _ = jax.lax.scan(add, zero, given)
        return jax.tree.map(lambda leaf: leaf / count, sums)

    def add_shapes(draw):
        matrices = tuple(attention.columns(draw[0], tokens, n) for n in numbers)
        return matrices, matrices

    return jax.lax.map(of_chain, (logits, orders))
