"""Many short chains in groups of one start: nested R-hat, errors by groups, the rule that ends."""

import tomllib
from dataclasses import replace
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import binom, rankdata, t

from sampler.analysis.estimate import by_repetition, mean_of, mean_of_batches
from sampler.convergence import nested_diagnostics, rank_diagnostics
from sampler.errors import ExitCode, InputError
from sampler.mcmc import chunks
from sampler.mcmc.algorithm import SUPERCHAIN, Algorithm, ChainSettings
from sampler.mcmc.chunks import sample_in_chunks
from sampler.mcmc.diagnostics import R_HAT_LIMIT, diagnose, nested_limit
from sampler.mcmc.draws import DrawCollector, _Moments
from sampler.mcmc.hamiltonian import SplitHmc, StaticHmc, bfmi_of
from sampler.mcmc.kept import MOST_BATCHES, most_batches
from sampler.mcmc.stopping import CHECKED_ESS, FIRST_CHECK, StoppingRule, first_check, next_check
from sampler.mcmc.tempered import repetition_weights
from sampler.posterior.spaces import order_parameter_density, weight_density
from sampler.recipes.recipe import make_recipe
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.commands import TINY, command, settings, stored_arrays
from tests.problems import exact_scalar_posterior, scalar_problem
from tests.small import autoregressive

GROUPS, MEMBERS = 16, 16
CHAINS = GROUPS * MEMBERS


def numbered(shape, groups):
    """The statistic that numbers groups of so many chains and draws."""
    return np.repeat(np.arange(shape[0])[:, None] // (shape[0] // groups), shape[1], axis=1)


def one_start(rng, coefficient, draws, starts, members=MEMBERS):
    """AR(1) chains of unit variance whose groups begin at `starts`, the start not among draws."""
    values = np.repeat(starts, members)
    noise = np.sqrt(1 - coefficient**2) * rng.standard_normal((draws, len(values)))
    found = []
    for each in noise:
        values = coefficient * values + each
        found.append(values)
    return np.stack(found, axis=1)


@pytest.mark.parametrize("draws", [4, 7, 20])
def test_nested_r_hat_is_that_of_arviz(draws, rng):
    values = rng.standard_normal((24, draws, 3)) ** 3
    values[:6, :, 1] += 0.7
    values[8:, :, 2] *= 4.0  # seen by the folded ranks alone
    axes = {"chain_axis": 0, "draw_axis": 1}
    ids = np.arange(24) // 6
    expected = [
        array_stats.rhat_nested(values[..., k], superchain_ids=ids, method="rank", **axes)
        for k in range(3)
    ]
    np.testing.assert_allclose(nested_diagnostics(values, 4)[0], expected, rtol=1e-12)


def by_loops(values, groups):
    """√(1 + B/W) as Margossian et al. define it, of the scores of ranks, chains taken whole."""

    def of(scores):
        members = np.split(scores, groups)
        within = [
            np.var([chain.mean() for chain in group], ddof=1)
            + (np.mean([np.var(chain, ddof=1) for chain in group]) if scores.shape[1] > 1 else 0.0)
            for group in members
        ]
        between = np.var([group.mean() for group in members], ddof=1)
        return np.sqrt(1.0 + between / np.mean(within))

    def scored(one):
        quantile = NormalDist().inv_cdf
        shares = (rankdata(one) - 3 / 8) / (one.size + 1 / 4)
        return np.reshape([quantile(share) for share in shares], one.shape)

    return max(of(scored(values)), of(scored(np.abs(values - np.median(values)))))


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_shorter_chains_are_taken_whole(draws, rng):
    values = rng.standard_normal((24, draws, 2))
    values[:6, :, 1] += 0.7
    expected = [by_loops(values[..., k], 4) for k in range(2)]
    np.testing.assert_allclose(nested_diagnostics(values, 4)[0], expected, rtol=1e-12)


def test_one_draw_of_every_chain_is_worth_one_effective_draw(rng):
    _, bulk, tail = nested_diagnostics(rng.standard_normal((CHAINS, 1, 2)), GROUPS)
    np.testing.assert_array_equal([bulk, tail], np.full((2, 2), CHAINS))


def test_effective_draws_are_those_of_independent_chains(rng):
    """n(1 − ρ)/(1 + ρ) of each long chain, up to what the spread of 1,024 means is known by."""
    coefficient, draws, chains = 0.5, 200, 1024
    values = autoregressive(rng, coefficient, (chains, draws))
    expected = chains * draws * (1 - coefficient) / (1 + coefficient)
    _, bulk, _ = nested_diagnostics(values[..., None], GROUPS)
    assert abs(bulk[0] / expected - 1.0) < 4.0 * np.sqrt(2.0 / chains) + 2.0 / draws


def test_the_limit_is_that_of_long_chains_where_groups_are_large():
    assert_equal_to_rounding(nested_limit(10**12), R_HAT_LIMIT, operations=1e4)
    assert_equal_to_rounding(nested_limit(1) ** 2, 1.0 + R_HAT_LIMIT**2, operations=10)


def test_groups_at_different_modes_are_found_and_short_chains_that_agree_pass(rng):
    """Ordinary R-hat of short sluggish chains fails either way; nested R-hat tells them apart."""
    groups, draws = 64, 8
    agree = one_start(rng, 0.9, draws, rng.standard_normal(groups))
    # Forgotten starts: the chains of a group no longer have anything in common.
    agree = rng.permutation(agree)
    apart = agree + np.repeat(rng.choice([-1.0, 1.0], groups), MEMBERS)[:, None]
    for values, passes in ((agree, True), (apart, False)):
        assert rank_diagnostics(values[..., None])[0, 0] > R_HAT_LIMIT
        nested = nested_diagnostics(values[..., None], groups)[0, 0]
        assert (nested <= nested_limit(MEMBERS)) == passes


def judged(values, groups=GROUPS):
    statistics = {"lp": values, SUPERCHAIN: numbered(values.shape, groups)}
    return diagnose({"x": values}, statistics, Algorithm())


def test_starts_that_are_not_forgotten_fail_the_verdict(rng):
    starts = rng.standard_normal(GROUPS)
    forgotten = judged(one_start(rng, 0.1, 4, starts))
    assert forgotten.passed
    assert forgotten.groups == GROUPS
    assert forgotten.r_hat_limit == nested_limit(MEMBERS)
    kept = judged(one_start(rng, 0.95, 4, starts))
    assert any("x: R-hat" in reason for reason in kept.reasons)


def test_a_chain_may_stay_where_it_is_but_no_group_may(rng):
    values = rng.standard_normal((CHAINS, 4))
    values[3] = values[3, 0]
    assert judged(values).passed
    values[:MEMBERS] = values[0, 0]
    assert any("group 0 is frozen" in reason for reason in judged(values).reasons)


@pytest.mark.parametrize("coefficient", [0.05, 0.95])
def test_errors_are_calibrated_whether_or_not_starts_are_forgotten(coefficient, rng):
    """Intervals of Student's t with one degree fewer than groups cover the truth as often as said.

    Those by all chains as if independent do not, where starts are not forgotten.
    """
    repetitions, draws, level = 600, 3, 0.9
    starts = rng.standard_normal(repetitions * GROUPS)
    values = one_start(rng, coefficient, draws, starts).reshape(repetitions, CHAINS, draws)
    values = np.moveaxis(values, 0, -1)  # repetitions as elements
    covered = {}
    for groups in (GROUPS, CHAINS):
        found = mean_of(values, np.full(groups, 1.0 / groups))
        assert found.degrees == groups - 1
        limit = t.ppf(0.5 + level / 2, found.degrees)
        covered[groups] = int(np.sum(np.abs(found.value) <= limit * found.mcse))
    low, high = binom.ppf([1e-4, 1 - 1e-4], repetitions, level)
    assert low <= covered[GROUPS] <= high
    assert (covered[CHAINS] < low) == (coefficient > 0.9)


def test_means_of_groups_are_those_of_their_draws(rng):
    values = rng.standard_normal((12, 5, 3))
    weights = np.full(4, 0.25)
    means = [values[3 * k : 3 * k + 3].reshape(-1, 3).mean(axis=0) for k in range(4)]
    found = mean_of(values, weights)
    np.testing.assert_allclose(found.value, values.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(found.mcse, np.std(means, axis=0, ddof=1) / 2.0, rtol=1e-12)
    moments = _Moments()
    moments.add(values)
    of_batches = mean_of_batches(moments.moments, weights)
    np.testing.assert_allclose(of_batches.mcse, found.mcse, rtol=1e-12)
    np.testing.assert_array_equal(by_repetition(values, None), values)
    statistics = {SUPERCHAIN: numbered((12, 5), 4)}
    np.testing.assert_array_equal(repetition_weights(statistics), weights)


def test_moments_of_many_chains_have_fewer_batches(rng):
    assert [most_batches(chains) for chains in (4, 16, 64, 1024)] == [MOST_BATCHES, 40, 10, 8]
    values = rng.standard_normal((256, 100, 1))
    moments = _Moments()
    moments.add(values)
    found = moments.moments
    assert found.batch_size == 16
    expected = values[:, :96].reshape(256, 6, 16, 1).mean(axis=2)
    np.testing.assert_allclose(found.mean, expected, rtol=1e-12)


def test_bfmi_of_short_chains_is_one_number(rng):
    """That of a long chain cut into pieces, up to the cuts: both are known to √(5/n) or better."""
    energy = autoregressive(rng, 0.5, (1, 40_000))
    whole, pieces = bfmi_of(energy)[0], energy.reshape(-1, 4)
    (found,) = bfmi_of(pieces, together=True)
    assert abs(found - whole) < 5.0 * np.sqrt(5.0 / pieces.size)
    assert bfmi_of(pieces[:, :1], together=True) == ()


def test_checks_of_short_chains_begin_where_all_draws_could_suffice():
    assert first_check(4, 0) == FIRST_CHECK
    for chains in (4, 64, 256, 1024):
        first = first_check(chains, 2)
        assert chains * first >= CHECKED_ESS > chains * (first - 1)
    checks = [first_check(1024, GROUPS)]
    while len(checks) < 6:
        checks.append(next_check(checks[-1], 20_000, 1))
    assert checks == [1, 2, 3, 4, 6, 8]


@pytest.mark.parametrize(
    ("chains", "groups", "words"),
    [
        (256, 48, "must divide the number of chains, 256, evenly; use 32 or chains = 240"),
        (256, 1, "use at least 2, or 0 for none"),
        (4, 4, "needs at least 2 chains in each group, so 8 or more of them"),
        (7, 2, "must divide the number of chains, 7, evenly; use chains = 6"),
    ],
)
def test_groups_that_do_not_fit_are_refused_with_a_remedy(chains, groups, words):
    recipe = tomllib.loads(TINY)
    recipe["sampler"] |= {"chains": chains, "superchains": groups}
    with pytest.raises(InputError) as refused:
        make_recipe(recipe)
    assert (refused.value.field, refused.value.value) == ("sampler.superchains", groups)
    assert words in refused.value.remedy
    with pytest.raises(ValueError, match="superchains"):
        ChainSettings(chains=chains, superchains=groups)


@pytest.fixture(scope="module")
def problem():
    return scalar_problem(np.random.default_rng(4))


@pytest.fixture(scope="module")
def density(problem):
    learning, test = problem
    return order_parameter_density(learning, jnp.asarray(test))


GROUPED = ChainSettings(chains=12, warmup=7, draws=6, superchains=3)
KINDS = {"hmc": StaticHmc(leapfrog_steps=5), "split_hmc": SplitHmc()}


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "space"), [("split_hmc", "order_parameters"), ("hmc", "weights")])
def test_chains_of_a_group_begin_at_one_point_and_part(kind, space, problem, density):
    learning, test = problem
    if space == "weights":  # whose mode is not known
        density = weight_density(learning, jnp.asarray(test), keep_weights=False)
    algorithm = KINDS[kind]
    chain = algorithm.prepared(density, GROUPED)
    begun = chunks.start_chains(chain, 12, jax.random.key(0), density, 3)
    at = jax.vmap(lambda state: density.coordinates.flatten(chain.position(state, density)))
    points = np.asarray(at(begun[1])).reshape(3, 4, -1)
    assert_equal_to_rounding(points, np.repeat(points[:, :1], 4, axis=1), operations=100)
    assert len(np.unique(np.round(points[:, 0, 0], 6))) == 3
    found = []
    sample_in_chunks(density, algorithm, replace(GROUPED, warmup=1), found.append)
    first = found[1].statistics
    assert len(np.unique(first["energy"][:, 0])) == 12  # with a momentum of its own each
    np.testing.assert_array_equal(first[SUPERCHAIN][:, 0], GROUPED.starts)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_groups_go_on_bit_for_bit(kind, density):
    whole, rest = [], []
    sample_in_chunks(density, KINDS[kind], GROUPED, whole.append)
    middle = next(one for one in whole if one.phase == "draws")
    sample_in_chunks(density, KINDS[kind], GROUPED, rest.append, resume=middle.snapshot)
    left = whole[whole.index(middle) + 1 :]
    for part in ("observables", "statistics"):
        received, expected = (
            {
                name: np.concatenate([getattr(one, part)[name] for one in made], axis=1)
                for name in getattr(made[0], part)
            }
            for made in (rest, left)
        )
        assert set(received) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(received[name], values, err_msg=name)


@pytest.mark.heavy
@pytest.mark.parametrize("chains", [64, pytest.param(1024, marks=pytest.mark.slow)])
def test_the_rule_ends_short_chains_at_the_exact_posterior(chains, problem, density):
    learning, test = problem
    groups, most = chains // 8, 400
    settings = ChainSettings(chains, warmup=15, draws=most, seed=3, superchains=groups)
    collected = DrawCollector()
    rule = StoppingRule(SplitHmc(), collected, most, np.inf, first=first_check(chains, groups))

    def on_chunk(chunk):
        collected(chunk)
        rule(chunk)

    sample_in_chunks(density, SplitHmc(), settings, on_chunk, next_end=rule.next_end)
    assert rule.ended == "trusted"
    assert collected.draws_made < FIRST_CHECK / 4
    exact = exact_scalar_posterior(learning, test)
    weights = repetition_weights(collected.statistics)
    for name, expected in (
        ("order_parameter", exact.order_parameter[0]),
        ("predictor_mean", exact.predictor_mean),
    ):
        found = mean_of(collected.draws[name], weights)
        received = np.ravel(found.value)
        k = t.isf(3e-5, groups - 1)
        assert_within_mcse(received, np.ravel(expected), np.ravel(found.mcse), k=k, what=name)


@pytest.mark.heavy
def test_a_run_of_short_chains_says_so_everywhere(tmp_path):
    sizes = ("chains=64", "superchains=8", "warmup=20", 'algorithm="split_hmc"', "max_draws=60")
    recipe, folder = tmp_path / "tiny.toml", tmp_path / "run"
    recipe.write_text(TINY, encoding="utf-8")
    sampler_settings = settings(*(f"sampler.{one}" for one in sizes))
    code, problem = command("run", recipe, "--out", folder, *sampler_settings)
    assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED), problem
    stored = stored_arrays(folder)
    np.testing.assert_array_equal(stored["sample_stats/superchain"][:, 0], np.arange(64) // 8)
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "in 8 groups of one start" in report
    assert "R-hat is nested" in report
