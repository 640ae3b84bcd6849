"""Sampled attention in matched order: planted heads, numbers by loops, and what they are of."""

from dataclasses import replace
from functools import cache
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.analysis.draws_table import draws_tree
from sampler.analysis.estimates import OF_CHAINS
from sampler.analysis.kernels import learned_kernels
from sampler.analysis.learned_heads import SampledHeads, attention_table, matched_rows
from sampler.attention.similarity import (
    attention_distances,
    attention_entropies,
    matched,
    medoid,
)
from sampler.mcmc.algorithm import Chunk
from sampler.mcmc.collected_draws import DrawCollector
from sampler.problem import build_problem
from sampler.teacher import make_labelled_task
from tests.recipes import MARKOV, learned_recipe, logits_of_random_heads
from theory import kernel_alignment

CHAINS, DRAWS = 2, 6
HEADS = (("learned", "good", "learned"), ("learned", "learned"))
ATTRIBUTES = {"algorithm": "hmc", "space": "order_parameters"}


@cache
def taught():
    """A problem whose labels are those of a teacher, with the teacher's logit weights."""
    recipe = learned_recipe(task=MARKOV | {"labels": "teacher"}, heads=HEADS)
    task = make_labelled_task(recipe)
    return build_problem(recipe, task), logits_of_random_heads(recipe, task), task


def collected(draws, statistics=None) -> DrawCollector:
    """A collector of draws that are given, name → [chain, draw, …]."""
    found = DrawCollector()
    given = {"lp": np.zeros((CHAINS, DRAWS))} | (statistics or {})
    found(Chunk("draws", DRAWS, DRAWS, given, draws))
    return found


def around(logits, seed=0, spread=0.1):
    """Draws [chain, draw, …] not far from some logit weights."""
    noise = np.random.default_rng(seed)
    return {
        name: values + spread * noise.standard_normal((CHAINS, DRAWS, *values.shape))
        for name, values in logits.items()
    }


def exchanged(draws, seed=1):
    """The same draws, learned heads of every layer exchanged at random, and which stand where."""
    random = np.random.default_rng(seed)
    found, orders = {}, {}
    for name, values in draws.items():
        order = random.permuted(np.tile(np.arange(values.shape[2]), (CHAINS, DRAWS, 1)), axis=-1)
        index = order.reshape(*order.shape, *[1] * (values.ndim - 3))
        found[name], orders[name] = np.take_along_axis(values, index, axis=2), order
    assert any(np.ptp(order, axis=1).any() for order in orders.values())
    return found, orders


@pytest.mark.slow
def test_exchanging_heads_at_random_leaves_means_of_matrices_and_numbers_as_they_are():
    problem, logits, _ = taught()
    draws = around(logits)
    plain = attention_table(problem, collected(draws))
    mixed = attention_table(problem, collected(exchanged(draws)[0]))
    for layer, learned in ((1, [0, 2]), (2, [0, 1])):
        axis = f"head_{layer}"
        names = [n for n in plain if axis in plain[n].dims and not n.startswith("head_of_place")]
        same = np.arange(plain.sizes[axis])
        turned = same.copy()
        turned[learned] = learned[::-1]
        # The reference is a draw, whose heads may stand either way round.
        equal = [
            all(
                np.allclose(plain[name].isel({axis: order}).values, mixed[name].values, 1e-5, 1e-7)
                for name in names
            )
            for order in (same, turned)
        ]
        assert sorted(equal) == [False, True]


@pytest.mark.slow
def test_numbers_of_draws_are_those_of_their_matrices():
    """Entropies, and distances from the prior mean of a head's own kind, of heads at their places.

    With means over draws of chains, their errors and R-hat as of ArviZ.
    """
    problem, logits, _ = taught()
    tree = draws_tree(problem, collected(around(logits, spread=1.0)), ATTRIBUTES)
    stored, frame = tree["attention"], SampledHeads.of(tree).to_dataframe()
    frame = frame.set_index(["layer", "head", "quantity"])
    single = np.searchsorted(stored["measured_draw"], stored["single"])
    for layer, groups in ((1, [[0, 2], [1]]), (2, [[0, 1]])):
        prior = stored[f"attention_{layer}_prior"].values
        for group in groups:  # one law, one mean
            assert np.ptp(prior[:, group], axis=1).max() == 0.0
        for chain, draw in np.ndindex(CHAINS, len(single)):
            matrices = stored[f"attention_{layer}_single"].values[chain, draw].astype(float)
            there = chain, single[draw]
            for head in range(matrices.shape[1]):
                one, mean = matrices[:, head], prior[:, head]
                entropy = -np.mean(np.sum(one * np.log(one), axis=1))
                distance = np.mean(np.sum(np.abs(one - mean), axis=1)) / 2
                for name, expected in (("entropy", entropy), ("distance", distance)):
                    received = stored[f"{name}_{layer}"].values[there][head]
                    assert received == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for (layer, head, quantity), row in frame.iterrows():
        drawn = stored[f"{quantity.split()[0]}_{layer}"].values[..., head]
        expected = [
            drawn.mean(),
            array_stats.mcse(drawn, chain_axis=0, draw_axis=1, method="mean"),
            array_stats.rhat(drawn, chain_axis=0, draw_axis=1, method="rank"),
        ]
        np.testing.assert_allclose(row[["value", "error", "r_hat"]].astype(float), expected)


def test_rows_of_paths_and_outputs_go_with_their_heads():
    """Two layers of 2 and 3 heads, two outputs: row (path, output) in matched order."""
    orders = np.array([1, 0]), np.array([2, 0, 1])
    rows = matched_rows([order[None, None] for order in orders], 12)[0, 0]
    expected = [
        (orders[0][first] * 3 + orders[1][second]) * 2 + output
        for first, second, output in product(range(2), range(3), range(2))
    ]
    assert rows.tolist() == expected


def random_matrices(heads, seed):
    columns = np.random.default_rng(seed).dirichlet(np.ones(5), (3, heads, 4))
    return columns.swapaxes(-1, -2)


def test_distances_and_entropies_of_heads_are_those_of_loops():
    """Means over examples and queries of half of Σ |a − b|; entropies of −Σ a ln a."""
    one, other = random_matrices(2, 0), random_matrices(3, 1)
    count = one.shape[0] * one.shape[3]
    distances, entropies = attention_distances(one, other), attention_entropies(one)
    for head, reference in np.ndindex(2, 3):
        a, b = one[:, head], other[:, reference]
        columns = [(a[e, :, q], b[e, :, q]) for e, q in np.ndindex(one.shape[0], one.shape[3])]
        distance = sum(sum(abs(x - y)) for x, y in columns) / 2 / count
        assert distances[head, reference] == pytest.approx(distance, rel=1e-12)
        entropy = -sum(x @ np.log(x) for x, _ in columns) / count
        assert entropies[head] == pytest.approx(entropy, rel=1e-12)


def test_heads_of_other_groups_are_never_exchanged():
    """The cheapest order of all four heads would exchange 0 and 1, which are of two kinds."""
    costs = 1.0 - np.eye(4)[[1, 0, 3, 2]]
    assert matched(costs, ((0, 1), (2, 3))).tolist() == [1, 0, 3, 2]
    assert matched(costs, ((0,), (1,), (2, 3))).tolist() == [0, 1, 3, 2]
    assert matched(costs, ((2, 3),)).tolist() == [0, 1, 3, 2]


def test_the_medoid_is_that_of_all_orders():
    draws = np.stack([random_matrices(2, seed) for seed in range(5)])
    costs = np.stack([np.stack([attention_distances(a, b) for b in draws]) for a in draws])
    best = np.minimum(costs[..., 0, 0] + costs[..., 1, 1], costs[..., 0, 1] + costs[..., 1, 0]).sum(
        axis=1
    )
    assert medoid([costs], [((0, 1),)]) == np.argmin(best)


@pytest.mark.slow
def test_order_parameters_go_with_their_paths():
    """U₁ of exchanged heads in matched order is that of the heads before, and so is its mean.

    In one of the four orders in which the heads of the reference may stand.
    """
    problem, logits, _ = taught()
    draws, random = around(logits), np.random.default_rng(8)
    vectors = random.standard_normal((CHAINS, DRAWS, 3, 2, 4))  # w [head of 1, head of 2, unit]
    mixed, orders = exchanged(draws)
    moved = np.empty_like(vectors)
    for chain in range(CHAINS):
        for draw in range(DRAWS):
            first = np.array([0, 1, 2])
            first[[0, 2]] = first[[0, 2]][orders["logits_1"][chain, draw]]
            rows = np.ix_(first, orders["logits_2"][chain, draw])
            moved[chain, draw] = vectors[chain, draw][rows]
    found = []
    for logit_draws, w in ((draws, vectors), (mixed, moved)):
        flat = w.reshape(CHAINS, DRAWS, 6, 4)
        overlap = np.einsum("cdpn,cdqn->cdpq", flat, flat) / 4
        tree = draws_tree(
            problem, collected(logit_draws | {"order_parameter": overlap}), ATTRIBUTES
        )
        found.append((SampledHeads.of(tree), overlap))
    expected = found[0][1].mean(axis=(0, 1))
    np.testing.assert_allclose(found[0][0].order_parameter.value, expected, rtol=1e-12)
    paths = np.arange(6).reshape(3, 2)
    orders = (paths[f][:, s].ravel() for f in ([0, 1, 2], [2, 1, 0]) for s in ([0, 1], [1, 0]))
    received = found[1][0].order_parameter.value
    assert sum(np.allclose(received, expected[np.ix_(o, o)], 1e-12) for o in orders) == 1
    assert np.abs(found[1][1].mean(axis=(0, 1)) - expected).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("infinite", [False, True])
def test_the_mean_kernel_is_that_of_a_loop_and_no_exchange_changes_it(infinite):
    """K = Σ U^{(π,c),(π',d)} φ^π(x)·φ^π'(y), draw by draw; alignment as the theory defines it.

    At infinite width no U is drawn: it is σ_1² σ_2² σ_a² 1.
    """
    problem, logits, _ = taught()
    network = replace(problem.network, variances=(0.7, 1.3, 0.6, 1.1))
    problem, draws = replace(problem, network=network), around(logits)
    random = np.random.default_rng(9)
    factors = random.standard_normal((CHAINS, DRAWS, 6, 6))
    overlaps = factors @ factors.swapaxes(-1, -2)
    given = collected(draws if infinite else draws | {"order_parameter": overlaps})
    if infinite:
        overlaps = np.broadcast_to(1.3 * 0.6 * 1.1 * np.eye(6), overlaps.shape)
    table = learned_kernels(problem, given, OF_CHAINS)
    shown = table["shown_example"].values
    arch, expected = problem.architecture, np.zeros((7, 7))
    scale = np.sqrt(arch.variances[0] / (arch.channels * arch.path_count))
    for chain in range(CHAINS):
        for draw in range(DRAWS):
            position = {n: jnp.asarray(values[chain, draw]) for n, values in draws.items()}
            features = scale * np.asarray(problem.data.train(position))
            for x in range(7):
                for y in range(7):
                    cross = features[shown[x]] @ features[shown[y]].T
                    expected[x, y] += np.sum(overlaps[chain, draw] * cross) / (CHAINS * DRAWS)
    np.testing.assert_allclose(table["kernel"], expected, rtol=1e-5)
    labels = np.asarray(problem.labels)[shown, 0]
    assert (np.diff(labels) >= 0).all()
    alignment = np.asarray(kernel_alignment(jnp.asarray(expected), jnp.asarray(labels)))
    np.testing.assert_allclose(table["kernel_alignment"], alignment, rtol=1e-4)


@pytest.mark.slow
def test_numbers_of_heads_are_weighted_means_with_the_errors_of_these():
    """Weights in proportion to evidence; the error is that of a ratio of means."""
    problem, logits, _ = taught()
    count = np.ones((CHAINS, DRAWS))
    statistics = {
        "ancestor": np.tile(np.arange(DRAWS), (CHAINS, 1)),
        "log_evidence": np.array([[0.0], [np.log(3.0)]]) * count,
    }
    given = collected(around(logits), statistics)
    tree = draws_tree(problem, given, ATTRIBUTES | {"algorithm": "tempered"})
    found, stored = SampledHeads.of(tree), tree["attention"]
    frame = found.to_dataframe().set_index(["layer", "head", "quantity"])
    assert {index[:2] for index in frame.index} == {(1, 0), (1, 2), (2, 0), (2, 1)}
    one, drawn = frame.loc[(2, 1, "distance from prior mean")], stored["distance_2"].values
    means, prior = drawn[:, :, 1].mean(axis=1), stored["distance_2_prior"].values[:, 1]
    np.testing.assert_allclose(one["value"], 0.25 * means[0] + 0.75 * means[1])
    np.testing.assert_allclose(one["prior"], prior.mean())
    np.testing.assert_allclose(one["prior_deviation"], prior.std(ddof=1))
    # Without one repetition the mean is that of the other; to second order in cumulants of ln Z it
    # has a covariance beside it, whose distance counts three times.
    without = (one["value"] - means[::-1]) ** 2
    covariance = 0.5 * np.log(3.0) * (means[1] - means[0])
    beyond = 3.0 * (means.mean() + covariance - one["value"])
    np.testing.assert_allclose(one["error"], np.sqrt(0.5 * np.sum(without) + beyond**2))
    matrices = stored["attention_1"].values
    expected = 0.25 * matrices[0] + 0.75 * matrices[1]
    np.testing.assert_allclose(found.matrices(1).values, expected, rtol=1e-5)
