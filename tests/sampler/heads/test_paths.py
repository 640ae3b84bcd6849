"""Fewer paths and fewer directions, against the whole network, brute force and numerical minima."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from sampler.heads.measures import Numbers, losses
from sampler.heads.paths import (
    AGAIN,
    BEST,
    NETWORK,
    OVERLAP,
    RANDOM,
    RULES,
    THEORY,
    CompressedPaths,
    Curve,
    best_directions,
    compressed_paths,
    curve_of,
    mean_curve,
    outputs_in_order,
    projected,
    removal_order,
    terms_of_directions,
)
from sampler.heads.shown_paths import compression_table, draw_compressed
from sampler.problem import square_roots
from sampler.storage.results import from_json, to_json
from sampler.transformer.model import FrozenNetwork
from tests.assertions import FLOAT64_ROUNDING, assert_equal_to_rounding
from theory import (
    Architecture,
    AttentionPaths,
    LearningProblem,
    Predictor,
    mean_without,
    predict,
)

HEADS, OUTPUTS, CHANNELS = (2, 3), 2, 5
PATHS = 6


@pytest.fixture
def network(rng) -> FrozenNetwork:
    """A network of random weights, two outputs."""
    sizes = {"V_0": (4, CHANNELS), "V_1": (2, 3, 4), "V_2": (3, 6, 3), "a": (OUTPUTS, 6)}
    weights = {name: rng.standard_normal(axes) for name, axes in sizes.items()}
    architecture = Architecture(HEADS, (4, 3, 6), (1.0,) * 4, CHANNELS, OUTPUTS)
    return FrozenNetwork(weights, architecture)


def examples(rng, count=40):
    """Attended inputs, and labels of two classes."""
    classes = np.eye(OUTPUTS)[rng.integers(0, OUTPUTS, count)]
    return rng.standard_normal((count, PATHS, CHANNELS)), classes


def contributions(network, attended):
    by_path = network.path_weights().reshape(PATHS, OUTPUTS, CHANNELS)
    return np.einsum("xpi,poi->xpo", attended, by_path)


def positive(rng, rows):
    """A positive definite matrix, its eigenvalues from 1 to as many as there are rows."""
    basis = np.linalg.qr(rng.standard_normal((rows, rows)))[0]
    return basis * np.arange(1.0, rows + 1) @ basis.T


@pytest.fixture
def compressed(network, rng):
    """All of it, with a theory at a random U₁."""
    train = examples(rng, 30)
    learning = LearningProblem(network.architecture, *map(jnp.asarray, train), 0.3)
    chosen, test = examples(rng, 25), examples(rng)
    overlap = positive(rng, PATHS * OUTPUTS)
    found = compressed_paths(learning, overlap, chosen, test, network.path_weights(), seed=3)
    return found, learning, overlap, chosen, test


def test_all_paths_are_the_whole_network_and_the_paths_of_a_head_are_that_head(network, rng):
    attended, _ = examples(rng)
    terms = contributions(network, attended)
    uses = AttentionPaths(HEADS).uses(1, 2)
    order = [*np.flatnonzero(uses), *np.flatnonzero(~uses)]
    outputs = outputs_in_order(terms, [int(path) for path in order])
    operations = 10 * PATHS * CHANNELS
    scale = np.abs(terms).sum(axis=1).max()
    for count, removed in ((0, []), (uses.sum(), [(1, 2)])):
        expected = network.without(removed).predictor(jnp.asarray(attended))
        assert_equal_to_rounding(outputs[count], expected, operations=operations, scale=scale)
        by_head = mean_without(terms, AttentionPaths(HEADS), removed)
        assert_equal_to_rounding(outputs[count], by_head, operations=PATHS, scale=scale)
    assert len(outputs) == PATHS
    np.testing.assert_array_equal(outputs[-1], terms[:, order[-1]])


def test_every_path_that_goes_is_the_least_of_those_left(network, rng):
    """Each rule by brute force: the loss without a path, gates moved by finite differences."""
    attended, labels = examples(rng)
    terms = contributions(network, attended)

    def loss(gates):
        return losses("squared", np.einsum("xpo,p->xo", terms, gates), labels)

    step = 1e-6  # the loss is quadratic in the gates: central differences are exact to rounding
    by_hand = {
        "loss": lambda gates, gate: np.mean(loss(gates - gate) - loss(gates)),
        "slope": lambda gates, gate: np.mean(
            np.abs(loss(gates + step * gate) - loss(gates - step * gate)) / (2 * step)
        ),
        "size": lambda gates, gate: np.mean((terms * gate[:, None]).sum(axis=1) ** 2),
    }
    for key, rule in RULES.items():
        left = np.ones(PATHS)
        for path in removal_order(terms, labels, rule):
            known = {one: by_hand[key](left, np.eye(PATHS)[one]) for one in np.flatnonzero(left)}
            assert path == min(known, key=known.get)
            left[path] = 0.0


def test_greedy_removal_is_exhaustive_search_where_paths_do_not_interact(rng):
    """Orthogonal contributions: the best set of every size is nested; otherwise it is no worse."""
    directions = np.linalg.qr(rng.standard_normal((40, PATHS)))[0]
    labels = rng.standard_normal((40, 1))
    for terms, exact in (
        (directions[..., None] * rng.uniform(0.5, 2.0, (PATHS, 1)), True),
        (rng.standard_normal((40, PATHS, 1)), False),
    ):
        order = removal_order(terms, labels, RULES["loss"])
        greedy = losses_by_kept(outputs_in_order(terms, order), labels)
        best = np.array([
            min(
                losses("squared", terms[:, list(kept)].sum(axis=1), labels).mean()
                for kept in itertools.combinations(range(PATHS), count)
            )
            for count in range(PATHS, 0, -1)
        ])  # fmt: skip
        if exact:
            assert_equal_to_rounding(greedy, best, operations=40 * PATHS)
        else:
            rounding = 40 * PATHS * FLOAT64_ROUNDING * best.max()
            assert np.all(greedy >= best - rounding)
            # of all, all but one: greedy looks at every set
            assert_equal_to_rounding(greedy[:2], best[:2], operations=40 * PATHS)


def losses_by_kept(outputs, labels):
    return np.array([losses("squared", one, labels).mean() for one in outputs])


def test_costs_are_paired_over_examples(network, rng):
    attended, labels = examples(rng)
    terms = contributions(network, attended)
    found = curve_of(outputs_in_order(terms, range(PATHS)), labels, range(PATHS))
    assert found.kept == tuple(range(PATHS, 0, -1))
    without = terms[:, 2:].sum(axis=1)
    whole = terms.sum(axis=1)
    right = [one.argmax(axis=1) == labels.argmax(axis=1) for one in (whole, without)]
    lost = {
        "accuracy": right[0].astype(float) - right[1],
        "loss": losses("squared", without, labels) - losses("squared", whole, labels),
    }
    for key, one in lost.items():
        assert found.cost[key].values[0] == 0.0 == found.cost[key].errors[0]
        assert found.cost[key].values[2] == pytest.approx(one.mean(), rel=1e-12)
        error = one.std(ddof=1) / np.sqrt(len(one))
        assert found.cost[key].errors[2] == pytest.approx(error, rel=1e-12)


def test_the_fewest_cost_no_more_than_allowed_and_so_do_all_larger_numbers():
    values, errors = (0.0, -0.01, 0.02, 0.005, 0.3), (0.0, 0.01, 0.012, 0.01, 0.1)
    found = Curve((5, 4, 3, 2, 1), {"loss": Numbers(values, errors)})
    assert found.fewest(0.01) == 4
    assert found.fewest(0.01, errors=-1.0) == 2
    assert found.fewest(0.0, errors=1.0) == 4
    assert found.fewest(-1.0) == 5, "all of them cost nothing, whatever is allowed"
    assert found.fewest(1.0) == 1
    other = {"loss": Numbers((9.0,) * 5, errors), "accuracy": Numbers(values, errors)}
    assert Curve((5, 4, 3, 2, 1), other).fewest(0.01) == 4, "accuracy decides where it is known"


def test_the_mean_over_random_curves_has_errors_of_both_kinds():
    some = [Curve((2, 1), {"loss": Numbers((0.0, value), (0.0, 0.3))}) for value in (1.0, 2.0, 3.0)]
    found = mean_curve(some).cost["loss"]
    assert found.values == (0.0, 2.0)
    assert found.errors[1] == pytest.approx(np.sqrt(0.09 + 1.0 / 3.0))


def test_path_weights_are_the_network(network, rng):
    attended, _ = examples(rng)
    by_path = contributions(network, attended)
    expected = network.predictor(jnp.asarray(attended))
    scale = np.abs(by_path).sum(axis=1).max()
    assert_equal_to_rounding(by_path.sum(axis=1), expected, operations=200, scale=scale)


def test_all_directions_are_the_whole_network(network, rng):
    attended, _ = examples(rng)
    weights = network.path_weights()
    basis = np.linalg.qr(rng.standard_normal((PATHS * OUTPUTS,) * 2))[0]
    expected = network.predictor(jnp.asarray(attended))
    by_path = np.einsum("xpi,xqi->pq", attended, attended)
    by_channel = np.einsum("xpi,xpj->ij", attended, attended)
    condition = np.sqrt(np.linalg.cond(by_path) * np.linalg.cond(by_channel))
    for directions in (best_directions(weights, attended), projected(weights, basis)):
        terms = terms_of_directions(directions, attended)
        scale = np.abs(terms).sum(axis=1).max()
        received = terms.sum(axis=1)
        words = {"operations": 10 * PATHS * CHANNELS, "condition": condition, "scale": scale}
        assert_equal_to_rounding(received, expected, **words)


def test_nothing_is_lost_in_directions_that_no_example_has_any_of(network, rng):
    """All paths see the same: the metric is of rank one, and all directions still are W."""
    same = np.repeat(examples(rng)[0][:, :1], PATHS, axis=1)
    weights = network.path_weights()
    left, right = best_directions(weights, same)
    # the least root of the metric is that of rounding
    condition = 1.0 / np.sqrt(FLOAT64_ROUNDING)
    assert_equal_to_rounding(left @ right, weights, operations=100, condition=condition)


def separable(rng, paths, channels):
    """Examples of which paths and channels vary independently: all pairs of roots of a metric."""
    by_path, by_channel = positive(rng, paths), positive(rng, channels)
    one, other = square_roots(by_path).T, square_roots(by_channel).T
    return np.einsum("ap,bi->abpi", one, other).reshape(-1, paths, channels)


def distance(weights, other, attended, outputs):
    """Σ_x |f − f'|² of two path weights."""
    change = (weights - other).reshape(attended.shape[1], outputs, attended.shape[2])
    return np.sum(np.einsum("xpi,poi->xo", attended, change) ** 2)


def test_the_best_directions_are_a_minimum_found_by_brute_force(rng):
    """One direction of two paths and two channels: all angles of both, the nearest one refined."""
    attended, weights = separable(rng, 2, 2), rng.standard_normal((2, 2))
    left, right = best_directions(weights, attended)
    received = distance(weights, left[:, :1] @ right[:1], attended, 1)

    def of_angles(angles):
        one, other = ([[np.cos(angle), np.sin(angle)]] for angle in angles)
        unit = np.transpose(one) @ other
        outputs, whole = (np.einsum("xpi,pi->x", attended, w) for w in (unit, weights))
        return distance(weights, unit * (outputs @ whole) / (outputs @ outputs), attended, 1)

    grid = np.linspace(0.0, np.pi, 41)
    start = min(itertools.product(grid, grid), key=of_angles)
    expected = minimize(of_angles, start, method="Nelder-Mead",
                        options={"xatol": 1e-9, "fatol": 1e-15}).fun  # fmt: skip
    assert received == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_best_directions_beat_random_ones(rng, outputs):
    """Random ones with the best values there can be in them, and neighbours of the best ones."""
    attended = separable(rng, 4, 3)
    weights = rng.standard_normal((4 * outputs, 3))
    left, right = best_directions(weights, attended)
    for rank in (1, 2):
        best = left[:, :rank] @ right[:rank]
        least = distance(weights, best, attended, outputs)
        design = np.einsum("xpi,oc->xopci", attended, np.eye(outputs)).reshape(-1, weights.size)
        for spread in (1e-3, None):
            for _ in range(20):
                basis = rng.standard_normal((4 * outputs, rank))
                basis = basis if spread is None else left[:, :rank] + spread * basis
                columns = np.einsum("nei,er->nri", design.reshape(-1, 4 * outputs, 3), basis)
                columns = columns.reshape(len(design), -1)
                values = np.linalg.lstsq(columns, design @ weights.ravel(), rcond=None)[0]
                other = basis @ values.reshape(rank, 3)
                assert distance(weights, other, attended, outputs) > least


def test_the_theory_with_less_of_its_overlap_learns_its_readout_again(compressed):
    """Lower ranks, and fewer paths, are predictors at U₁ so made."""
    found, learning, overlap, _, (attended, labels) = compressed
    vectors = np.linalg.eigh(overlap)[1]
    predictor, rows = Predictor.for_examples(learning, jnp.asarray(attended)), PATHS * OUTPUTS
    order = found.removed[THEORY]["loss"].removed
    assert found.removed[THEORY][AGAIN].removed == order
    kernel = learning.energy.kernels.kernel(jnp.asarray(square_roots(overlap)))
    condition = np.linalg.norm(kernel, 2) / learning.temperature

    def loss(some):
        lower = some @ some.T @ overlap @ some @ some.T
        mean, _ = predict(predictor, jnp.asarray(square_roots(lower)))
        return losses("squared", np.asarray(mean), labels).mean()

    for curve, less in (
        (found.ranks[THEORY][AGAIN], lambda rank: vectors[:, rows - rank :]),
        (found.removed[THEORY][AGAIN], lambda kept: np.eye(rows)[:, rows_of(order[-kept:])]),
    ):
        for kept in (curve.kept[0], 3, 1):
            received = curve.cost["loss"].values[curve.kept.index(kept)]
            words = {"operations": rows * len(kernel), "condition": condition, "scale": 1.0}
            assert_equal_to_rounding(received, loss(less(kept)) - loss(np.eye(rows)), **words)


def rows_of(paths):
    return [path * OUTPUTS + output for path in paths for output in range(OUTPUTS)]


def test_orders_are_chosen_on_other_examples_and_measured_on_these(compressed, network):
    found, _, overlap, chosen, test = compressed
    own = found.removed[NETWORK]
    assert own["loss"].removed == tuple(
        removal_order(contributions(network, chosen[0]), chosen[1], RULES["loss"])
    )
    assert own[THEORY].removed == found.removed[THEORY]["loss"].removed
    by_path = overlap.diagonal().reshape(PATHS, OUTPUTS).sum(axis=1)
    assert own[OVERLAP].removed == tuple(np.argsort(by_path))
    terms = contributions(network, test[0])
    for key, curve in own.items():
        if key != RANDOM:
            left = terms[:, list(curve.removed[3:])].sum(axis=1)
            lost = losses("squared", left, test[1]) - losses("squared", terms.sum(axis=1), test[1])
            assert curve.cost["loss"].values[3] == pytest.approx(lost.mean(), rel=1e-9)
    assert set(found.ranks[NETWORK]) == {BEST, OVERLAP, RANDOM}
    # best directions are as many as channels, of others there are as many as rows
    assert found.ranks[NETWORK][BEST].kept[0] == CHANNELS
    assert found.ranks[NETWORK][OVERLAP].kept[0] == PATHS * OUTPUTS


def test_numbers_kept_are_counted(compressed):
    found = compressed[0]
    rows = PATHS * OUTPUTS
    assert found.numbers(PATHS, directions=False) == rows * CHANNELS
    assert found.numbers(2, directions=False) == 2 * OUTPUTS * CHANNELS
    assert found.numbers(3, directions=True) == 3 * (rows + CHANNELS)
    assert found.numbers(4, directions=True) == rows * CHANNELS, "no factors where they are more"


def test_the_table_and_the_figure_say_how_many_can_go(compressed):
    found = from_json(CompressedPaths, to_json(compressed[0]))
    assert found == compressed[0]
    table = compression_table(found)
    by_name = {row[0]: row for row in table.rows}
    curve = found.removed[NETWORK]["slope"]
    _, kept, share, half = by_name["trained network, by |∂loss/∂gate|"]
    assert kept.startswith(f"paths {curve.fewest()}")
    assert share.value == curve.fewest() / PATHS
    cost = curve.cost["accuracy"]
    assert (half.value, half.error) == (cost.values[3], cost.errors[3])
    assert len(table.rows) == sum(
        len(curves) for of in (found.removed, found.ranks) for curves in of.values()
    )
    axes = draw_compressed(found).axes
    assert [ax.get_title() for ax in axes] == ["trained network"] * 2 + ["theory"] * 2
    drawn = axes[1].containers[0].lines[0].get_xydata()
    best = found.ranks[NETWORK][BEST]
    np.testing.assert_array_equal(drawn[:, 0], best.kept)
    np.testing.assert_allclose(drawn[:, 1], 100 * np.array(best.cost["accuracy"].values))
