"""Theories at draws of attention: against sums over a grid of all attention that there is.

One head that attends by positions to three tokens: of its logits two numbers matter. Draws are made
from the exact posterior on a grid, so that every column has a known answer on the same grid.
"""

import math
from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import xarray as xr

import sampler
from sampler.analysis.attention_columns import AttentionColumns, gap_of
from sampler.analysis.attention_theories import (
    COLUMNS,
    FEWEST_EFFECTIVE,
    THEORY,
    DrawWeights,
    attention_theories,
    ratio_of_means,
    why_no_theories,
)
from sampler.analysis.draws_table import ATTENTION_THEORIES
from sampler.analysis.estimate import mean_of
from sampler.analysis.labels import AVERAGED, LEADING, LIMIT, REWEIGHTED
from sampler.jobs import stages
from sampler.posterior.evidence_at_attention import affordable_points, log_evidence_at
from tests.learned import learned_problem
from theory import (
    LearningProblem,
    Predictor,
    evidence_at_infinite_width,
    evidence_at_leading_order,
    predict,
)

TASK = {
    "kind": "markov_chain",
    "tokens": 2,
    "features": 4,
    "examples_train": 20,
    "examples_test": 3,
}
NODES, DRAWS, CHAINS = 9, 96, 8
# Two directions in which three logits change attention.
DIRECTIONS = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])


@cache
def problem_of(width):
    attention = {"inverse_temperature": 2.0, "learned": {"form": "positions", "variance": 2.0}}
    return learned_problem(task=TASK, heads=(("learned",),), widths=width, attention=attention)


@cache
def grid():
    """Logits [node, head, token] and the logarithm of their prior mass."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    pairs = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = np.log(np.outer(weights, weights)).reshape(-1)
    return (pairs @ DIRECTIONS)[:, None], mass - scipy.special.logsumexp(mass)


@cache
def learning_at(width, node):
    problem = problem_of(width)
    position = {"logits_1": jnp.asarray(grid()[0][node])}
    attended = problem.examples.attended(position)
    learning = LearningProblem(problem.architecture, attended, problem.labels, problem.temperature)
    return learning, problem.examples.attended(position, problem.test)


def exact_log_evidence(learning):
    """ln ∫ dU p(U) N(y; 0, U C + 𝒯), U = σ² c_1² c_2²/(N_1 N_a) of two independent χ²."""
    arch = learning.architecture
    features = np.asarray(learning.features)[:, 0]
    values, vectors = np.linalg.eigh(features @ features.T)
    labels = vectors.T @ np.asarray(learning.labels)[:, 0]
    shares = (np.arange(400) + 0.5) / 400
    squares = [scipy.stats.chi2(width).ppf(shares) / width for width in arch.widths]
    scale = math.prod(arch.order_parameter_variances) * np.multiply.outer(*squares)
    noisy = scale[..., None] * np.maximum(values, 0.0) + learning.temperature
    logs = -0.5 * np.sum(np.log(2 * np.pi * noisy) + labels**2 / noisy, axis=-1)
    return scipy.special.logsumexp(logs) - np.log(logs.size)


def at_leading_order(learning, tests, **_):
    found = evidence_at_leading_order(
        np.asarray(learning.features),
        np.asarray(learning.labels),
        learning.architecture,
        learning.temperature,
    )
    factor = found.saddle.order_parameters.factors[0]
    mean, _ = predict(Predictor.for_examples(learning, tests), factor)
    return found.value, float(np.sum(factor**2)), np.asarray(mean)[:, 0]


def at_infinite_width(learning, tests):
    arch = learning.architecture
    features, labels = np.asarray(learning.features), np.asarray(learning.labels)
    found = evidence_at_infinite_width(features, labels, arch, learning.temperature)
    scale = math.prod(arch.order_parameter_variances)
    factor = jnp.asarray(np.sqrt(scale) * np.eye(1))
    mean, _ = predict(Predictor.for_examples(learning, tests), factor)
    return found.value, scale, np.asarray(mean)[:, 0]


@cache
def on_grid(width):
    """Everything on the grid: exact ln p(y | W), and what both theories say."""
    nodes = range(len(grid()[0]))
    given = [learning_at(width, node) for node in nodes]
    exact = np.array([exact_log_evidence(learning) for learning, _ in given])
    theories = {}
    for name, theory in ((LEADING, at_leading_order), (LIMIT, at_infinite_width)):
        logs, traces, means = zip(*(theory(*one) for one in given), strict=True)
        theories[name] = np.array(logs), np.array(traces), np.array(means)
    return exact, theories


@cache
def drawn(width):
    """The nodes of independent draws of the exact posterior [chain, draw], and the table there."""
    exact, _ = on_grid(width)
    mass = np.exp(exact + grid()[1] - scipy.special.logsumexp(exact + grid()[1]))
    nodes = np.random.default_rng(3).choice(len(mass), (CHAINS, DRAWS // CHAINS), p=mass)
    known = scipy.special.logsumexp(exact + grid()[1])
    logits = {"logits_1": grid()[0][nodes]}
    equal = np.full(CHAINS, 1.0 / CHAINS)
    table = attention_theories(problem_of(width), logits, equal, DRAWS, known, seed=5)
    return nodes, table


def columns_of(width):
    nothing = xr.Dataset(coords={"chain": range(CHAINS)})
    tree = xr.DataTree.from_dict({"posterior": nothing, ATTENTION_THEORIES: drawn(width)[1]})
    return AttentionColumns.of(tree)


def within(estimate, expected, errors=4.0):
    """Whether every element is within so many errors."""
    return np.all(np.abs(np.asarray(estimate.value) - expected) <= errors * estimate.mcse)


@pytest.mark.slow
def test_the_evidence_given_attention_is_that_of_quadrature():
    for node in (0, 20, 40, 80):
        learning, _ = learning_at(10, node)
        found = log_evidence_at(learning, node)
        assert found.trusted
        assert found.error < 0.05
        assert abs(found.value - exact_log_evidence(learning)) < 4 * found.error


@pytest.mark.slow
@pytest.mark.parametrize("theory", [LEADING, LIMIT])
@pytest.mark.long
def test_posteriors_of_theories_are_those_of_the_grid(theory):
    columns, (_, theories) = columns_of(10), on_grid(10)
    found, (logs, traces, means) = columns.columns[f"{theory}, {REWEIGHTED}"], theories[theory]
    assert float(drawn(10)[1]["effective_draws"].min()) > 2 * FEWEST_EFFECTIVE
    total = scipy.special.logsumexp(logs + grid()[1])
    mass = np.exp(logs + grid()[1] - total)
    assert within(found["predictor_mean"], mass @ means)
    if theory == LEADING:
        assert within(found["overlap_trace"], mass @ traces)
    assert within(found["log_evidence"], total)
    attention = scipy.special.softmax(math.sqrt(2.0) * grid()[0][:, 0], axis=1)
    assert within(found["attention_1"], (mass @ attention)[:, None])
    assert within(found["attention_concentration_1"], mass @ np.sum(attention**2, axis=1))


@pytest.mark.long
def test_averages_over_the_attention_of_the_exact_posterior():
    columns, (exact, theories) = columns_of(10), on_grid(10)
    mass = np.exp(exact + grid()[1] - scipy.special.logsumexp(exact + grid()[1]))
    _, traces, means = theories[LEADING]
    found = columns.columns[f"{LEADING}, {AVERAGED}"]
    assert within(found["predictor_mean"], mass @ means)
    assert within(found["overlap_trace"], mass @ traces)
    nodes, table = drawn(10)
    at_draws = table["log_evidence_given_attention_exact"].values
    assert np.max(np.abs(at_draws - exact[nodes])) < 0.2


@pytest.mark.slow
@pytest.mark.long
def test_wide_networks_leave_nothing_between_columns():
    columns = columns_of(10**6)
    assert set(columns.columns) == set(COLUMNS)
    one = columns.columns[f"{LIMIT}, {REWEIGHTED}"]
    for name, other in columns.columns.items():
        for key in ("predictor_mean", "predictor_variance", "overlap_trace"):
            gap = np.abs(other[key].value - one[key].value)
            assert np.all(gap <= 4 * one[key].mcse + 1e-4 * np.abs(one[key].value)), (name, key)
    assert float(drawn(10**6)[1]["effective_draws"].min()) > 0.95 * DRAWS


def test_without_weights_a_ratio_of_means_is_a_mean(rng):
    values, alike = rng.standard_normal((8, 20, 3)), np.ones((8, 20))
    for weights in (None, rng.dirichlet(np.ones(8))):
        found, known = ratio_of_means(values, alike, weights), mean_of(values, weights)
        np.testing.assert_allclose(found.value, known.value, rtol=1e-12)
        np.testing.assert_allclose(found.deviations, known.deviations, rtol=1e-12)
        assert found.degrees == known.degrees


def test_the_error_of_a_ratio_is_that_of_many_repetitions(rng):
    chains, draws, repeated = 10, 200, 400
    points = rng.standard_normal((repeated, chains, draws, 1))
    shares = np.exp(0.7 * points[..., 0])  # of a Gaussian, moved by 0.7
    found = [ratio_of_means(x, w, None) for x, w in zip(points, shares, strict=True)]
    values = np.array([float(one.value[0]) for one in found])
    assert abs(values.mean() - 0.7) < 4 * values.std() / np.sqrt(repeated)
    squares = np.mean([float(one.mcse[0]) ** 2 for one in found])
    # The variance of a variance of 400 values is 2/400 of it.
    assert abs(squares / values.var() - 1) < 4 * np.sqrt(2 / repeated) + 0.05


def test_weights_that_few_draws_carry_are_refused(rng):
    logs = 6.0 * rng.standard_normal((4, 32))
    found = DrawWeights.of(logs, None)
    assert found.effective < FEWEST_EFFECTIVE
    assert "effective draws" in found.reason
    logs[0] = np.nan
    assert "at 32 of 128 draws" in DrawWeights.of(0.01 * logs, None).reason
    assert not DrawWeights.of(0.3 * rng.standard_normal((4, 32)), None).reason


def test_errors_of_the_same_repetitions_cancel(rng):
    draws = rng.standard_normal((9, 50, 2))
    weights = np.full(9, 1 / 9)
    one, other = mean_of(draws, weights), mean_of(draws + 1.0, weights)
    assert np.max(gap_of(one, other, paired=True).mcse) < 1e-12
    np.testing.assert_allclose(gap_of(one, other, paired=False).mcse, np.sqrt(2) * one.mcse)


def test_what_has_no_theories_says_why():
    problem = problem_of(10)
    assert why_no_theories(problem, "order_parameters", 100) == ""
    assert "its own theory" in why_no_theories(problem, "attention", 100)
    assert why_no_theories(problem, "order_parameters", 0) == "not asked for"


RECIPE = {
    "name": "positions",
    "task": {"kind": "markov_chain", "tokens": 4, "features": 6, "examples_train": 20,
             "examples_test": 10},
    "attention": {"heads": [["learned"]], "learned": {"form": "positions", "variance": 2.0}},
    "network": {"widths": 10},
    "posterior": {"temperature": 0.2},
    "sampler": {"algorithm": "tempered", "particles": 32, "repetitions": 9, "until": "draws",
                "attention_theories": 72},
}  # fmt: skip


@pytest.mark.long
def test_a_run_ends_with_theories_and_verdicts(tmp_path, monkeypatch):
    judge = stages.diagnose_stage
    passing = {"verdict": "pass", "reasons": ()}
    monkeypatch.setattr(stages, "diagnose_stage", lambda tree: replace(judge(tree), **passing))
    run = sampler.run(RECIPE, out=tmp_path / "run", progress=False)
    found = run.comparison.result
    assert set(found.own) == set(COLUMNS)
    drawn, columns = run.draws[ATTENTION_THEORIES], AttentionColumns.of(run.draws)
    # Of few draws the tail of weights is not always known.
    assert set(columns.refused) <= {f"{LIMIT}, {REWEIGHTED}"}
    exact = found.quantities["log_evidence"]
    assert exact.sampled.method == "tempered"
    for name in columns.columns:
        difference = found.differences[f"predictor_mean: {name}"]
        assert difference.said
        assert found.own[name].headline.startswith(f"{name}: ")
        own = dict(found.compared)["order_parameter"].own[name]
        np.testing.assert_array_equal(own, drawn["order_parameter"].sel({THEORY: name}))
    table = run.comparison.to_dataframe()
    assert {*columns.columns, "sampled"} <= set(table.columns)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert all(f"{name}: " in page for name in COLUMNS)
    assert {"order_parameter", "predictor_mean"} <= {
        path.stem for path in (tmp_path / "run" / "figures").glob("*.png")
    }
    again = sampler.compare(None, run.draws)
    assert again.result.own == found.own


def test_points_are_fewer_where_each_takes_long():
    architecture = problem_of(10).architecture
    few, some, many = (
        affordable_points(replace(architecture, channels=5000), examples)
        for examples in (100, 1000, 2000)
    )
    assert few > 10_000
    assert FEWEST_EFFECTIVE < some < 128
    assert many < FEWEST_EFFECTIVE
    # Rows stand for examples beyond the features.
    assert affordable_points(architecture, 10**6) > 10_000
    assert affordable_points(replace(architecture, heads=(12,)), 100) == 0
