"""Attention that was sampled, of some training examples: means over draws, and single draws."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Int

from sampler.analysis.labels import label
from sampler.analysis.validation import kept_draws
from sampler.learned_problem import LearnedProblem
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.kept import evenly_spaced
from theory.programs import program

# Examples whose attention is stored, and draws of all chains that its moments are taken of.
MOST_EXAMPLES, MOST_DRAWS = 8, 400


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


def attention_table(problem: LearnedProblem, collected: DrawCollector) -> xr.Dataset:
    """The group `attention` of `draws.nc`, for every layer l of attention.

    attention_l            [chain, shown_example, head, key, query], means over draws of each chain,
                           which may differ by an exchange of heads
    attention_l_deviation  the same, standard deviations
    attention_l_last       the same, of the last draw that is kept

    In single precision. Of the last layer there are only the queries that are read.
    """
    attention = problem.examples.attention
    names = [name for name, _ in problem.sites]
    logits, numbers = kept_logits(collected, names)
    chains = logits[names[0]].shape[0]
    chosen = kept_draws(chains, len(numbers), MOST_DRAWS)
    shown = evenly_spaced(len(problem.labels), MOST_EXAMPLES)
    tokens = jax.tree.map(lambda leaf: leaf[shown], problem.examples.tokens)
    columns = {}
    with jax.enable_x64(True):
        of_draws = {name: jnp.asarray(values[:, chosen]) for name, values in logits.items()}
        means, squares = _moments(attention, tokens, of_draws)
        last = {name: jnp.asarray(values[:, -1:]) for name, values in logits.items()}
        at_end, _ = _moments(attention, tokens, last)
    for layer, found in enumerate(zip(means, squares, at_end, strict=True), start=1):
        mean, square, end = map(np.asarray, found)
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        axes = ("chain", "shown_example", f"head_{layer}", "key", f"query_{layer}")
        for suffix, values in (("", mean), ("_deviation", deviation), ("_last", end)):
            columns[f"attention_{layer}{suffix}"] = (axes, values.astype(np.float32))
    table = label(xr.Dataset(columns), problem)
    names_of = {f"head_{n}": list(one) for n, one in enumerate(problem.head_names, start=1)}
    kept = {axis: names_of[axis] for axis in table.dims if axis in names_of}
    kept = {axis: one for axis, one in kept.items() if len(one) == table.sizes[axis]}
    return table.assign_coords(shown_example=shown, **kept)


@program
def _moments(attention, tokens, logits):
    """Mean and mean square of the matrices of every layer, [chain, …] each."""

    def of_chain(logits):
        count = next(iter(logits.values())).shape[0]

        def add(sums, position):
            matrices = attention.matrices(position, tokens)
            powers = matrices, tuple(one**2 for one in matrices)
            return jax.tree.map(jnp.add, sums, powers), None

        first = attention.matrices(jax.tree.map(lambda leaf: leaf[0], logits), tokens)
        zero = jax.tree.map(jnp.zeros_like, (first, first))
        sums, _ = jax.lax.scan(add, zero, logits)
        return jax.tree.map(lambda leaf: leaf / count, sums)

    return jax.lax.map(of_chain, logits)
