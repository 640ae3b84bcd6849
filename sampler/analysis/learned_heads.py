"""Attention that was sampled: heads of all draws in one order, and their numbers with errors.

Heads of a layer with the same prior can be exchanged: a mean over draws means something only when
the heads of every draw have been put into the order in which they are nearest to a reference. That
is the draw of the likeliest repetition which is nearest to all its others. A mean over several
modes is misleading all the same: single draws are shown as well.

Entropies, and distances from the mean over the prior, are those of `sampler.attention.similarity`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from sampler.analysis.draws import Draws
from sampler.analysis.estimates import Averages, Estimate, PredictorEstimates
from sampler.analysis.names import label
from sampler.analysis.scores import with_output
from sampler.analysis.validation import kept_draws
from sampler.attention.layers import paired
from sampler.attention.learned import exchange_groups
from sampler.attention.sampled import AttendingTokens, SampledAttention
from sampler.attention.similarity import (
    Groups,
    attention_distances,
    attention_entropies,
    matched,
    medoid,
)
from sampler.errors import InputError
from sampler.mcmc.collected_draws import DrawCollector, evenly_spaced
from sampler.mcmc.convergence import rank_diagnostics, repetition_diagnostics
from sampler.mcmc.tempered import repetition_weights
from sampler.runtime import jax_settings
from sampler.streams import Stream, stream
from sampler.token_problem import LearnedProblem

if TYPE_CHECKING:
    import pandas

GROUP, KERNEL = "attention", "kernel"
# Number of stored examples among those with measured attention; draws of all chains that are
# measured; draws of each chain that are stored one by one, and among which the reference is looked
# for; draws of the prior.
SHOWN_EXAMPLES, MOST_DRAWS, SINGLE_DRAWS, CANDIDATES, PRIOR_DRAWS = 8, 400, 2, 24, 200
# Numbers of every draw and head, as they are stored and as they are called.
NUMBERS = {"entropy": "entropy", "distance": "distance from prior mean"}

OF_REPETITIONS, OF_CHAINS = "spread of repetitions", "MCSE"

# Name → logit weights [chain, draw, …].
Logits = Mapping[str, np.ndarray]
Matrices = Float[np.ndarray, "example head key query"]


# --- from draws of logit weights


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
    head_of_place_l     [chain, measured_draw, head_l], the head of the draw placed there
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
    """Name → numbers of the heads at each place of every draw, and the heads placed there."""
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


# --- as it is read


@dataclass(frozen=True)
class SampledHeads:
    """Sampled attention, of one run: numbers, mean matrices, single draws, U₁ and the predictor.

    draws  as `sample` returns them
    """

    draws: xr.DataTree

    @classmethod
    def of(cls, draws: Any) -> "SampledHeads":
        """Take draws of a network whose attention is sampled; InputError for any others."""
        if not isinstance(draws, xr.DataTree) or "posterior" not in draws.children:
            remedy = "give what sample(task, network) returns, or a run"
            raise InputError("draws", type(draws).__name__, remedy)
        if GROUP not in draws.children or not cls(draws).layers:
            remedy = 'attention was not sampled; use heads of the kind "learned"'
            raise InputError("draws", list(map(str, draws.children)), remedy)
        return cls(draws)

    @cached_property
    def table(self) -> xr.Dataset:
        """The group `attention` of `draws.nc`: matrices, and numbers of every draw and head."""
        return self.draws[GROUP].to_dataset()

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of attention with learned heads, from 1."""
        matches = (re.fullmatch(r"head_of_place_(\d+)", str(name)) for name in self.table)
        return tuple(sorted(int(match[1]) for match in matches if match))

    @cached_property
    def averages(self) -> Averages:
        """How draws are averaged: chains alike, or repetitions by their weights."""
        return Draws(self.draws).averages

    @property
    def weights(self) -> Float[np.ndarray, " repetition"] | None:
        """Weights of the chains where they are repetitions; None where they are Markov chains."""
        return self.averages.weights

    @property
    def chain_weights(self) -> Float[np.ndarray, " chain"]:
        """Weights of the chains, up to a common factor."""
        return np.ones(self.table.sizes["chain"]) if self.weights is None else self.weights

    @property
    def kind_of_errors(self) -> str:
        """Origin of all errors: the spread of repetitions, or the effective draws of chains."""
        return OF_CHAINS if self.weights is None else OF_REPETITIONS

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """Layer, from 1, and place in matched order, from 0, of every learned head."""
        learned = ((n, np.flatnonzero(self.table[f"learned_{n}"].values)) for n in self.layers)
        return tuple((layer, int(head)) for layer, heads in learned for head in heads)

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each number of a learned head: entropy, and distance from the prior mean.

        layer, head       as in `heads`, with the name of the head
        value, error      mean over draws; error by the spread of repetitions or as an MCSE
        r_hat             of the number
        prior             mean over draws of the prior
        prior_deviation   standard deviation of a draw of the prior
        """
        import pandas

        diagnostics = rank_diagnostics if self.weights is None else repetition_diagnostics
        rows = []
        for (layer, head), (key, quantity) in product(self.heads, NUMBERS.items()):
            drawn = self.table[f"{key}_{layer}"].values[..., head]
            prior = self.table[f"{key}_{layer}_prior"].values[..., head]
            mean = self.averages.mean(drawn)
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "name": str(self.table[f"head_{layer}"].values[head]),
                    "quantity": quantity,
                    "value": float(mean.value),
                    "error": float(mean.mcse),
                    "r_hat": float(diagnostics(drawn)[0]),
                    "prior": prior.mean(),
                    "prior_deviation": prior.std(ddof=1),
                }
            )
        return pandas.DataFrame(rows)

    def matrices(self, layer: int) -> xr.DataArray:
        """Mean attention [shown_example, head, key, query] of a layer, heads in matched order."""
        of_chains = self.table[f"attention_{layer}"]
        return of_chains.weighted(xr.DataArray(self.chain_weights, dims="chain")).mean("chain")

    def singles(self, layer: int) -> xr.DataArray:
        """Attention of single draws [chain, single, shown_example, head, key, query]."""
        return self.table[f"attention_{layer}_single"]

    @cached_property
    def order_parameter(self) -> Estimate | None:
        """Mean of U₁ with its error, paths in matched order; None where U₁ is not stored.

        Of the draws that attention was measured in; at infinite width U₁ is known.
        """
        posterior = self.draws["posterior"].to_dataset()
        if "order_parameter" not in posterior:
            return None
        measured = self.table["measured_draw"].values
        overlaps = np.asarray(posterior["order_parameter"].sel(draw=measured).values, np.float64)
        heads, pairs = (np.atleast_1d(self.table.attrs[key]) for key in ("heads", "pairs"))
        orders = [
            self.table[f"head_of_place_{layer}"].values
            if layer in self.layers
            else np.broadcast_to(np.arange(count), (*overlaps.shape[:2], count))
            for layer, count in enumerate(heads.tolist(), start=1)
        ]
        rows = matched_rows(paired(tuple(orders), tuple(map(bool, pairs))), overlaps.shape[-1])
        ordered = np.take_along_axis(overlaps, rows[..., :, None], axis=2)
        return self.averages.mean(np.take_along_axis(ordered, rows[..., None, :], axis=3))

    @property
    def path_names(self) -> tuple[str, ...]:
        """Names of the rows of U₁, whose heads are places in matched order."""
        posterior = self.draws["posterior"].to_dataset()
        return tuple(map(str, posterior["path"].values)) if "path" in posterior.coords else ()

    @cached_property
    def predictor(self) -> PredictorEstimates:
        """Mean and variance of f on the test set, with their errors."""
        draws = Draws(self.draws).predictors
        return self.averages.predictor(draws.map(with_output))

    @property
    def kernel_alignment(self) -> Estimate | None:
        """|e_i·y|/|y| of eigenvectors e_i of the mean kernel, largest first; None where unknown."""
        if KERNEL not in self.draws.children or "kernel_alignment" not in self.draws[KERNEL]:
            return None
        table = self.draws[KERNEL]
        return Estimate(table["kernel_alignment"].values, table["kernel_alignment_mcse"].values)


def matched_rows(
    orders: Sequence[Int[np.ndarray, "chain draw _place"]], rows: int
) -> Int[np.ndarray, "chain draw row"]:
    """The row of U_1 of each draw placed at each row in matched order.

    orders  for each layer of weights the head placed at each place
    rows    of U_1, paths with the head of layer 1 slowest, times outputs
    """
    shape = orders[0].shape[:2]
    paths = np.zeros((*shape, 1), int)
    for order in orders:
        paths = (paths[..., :, None] * order.shape[2] + order[..., None, :]).reshape(*shape, -1)
    outputs = rows // paths.shape[-1]
    return (paths[..., None] * outputs + np.arange(outputs)).reshape(*shape, rows)
