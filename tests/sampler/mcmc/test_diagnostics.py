"""The verdict on draws, and diagnostics that are those of ArviZ, element by element."""

from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.mcmc import convergence
from sampler.mcmc.diagnostics import MOST_DIAGNOSED, R_HAT_OF_REPETITIONS, diagnose, worst_share
from tests.problems import (
    HMC,
    LONG,
    NUTS,
    SPLIT_HMC,
    TEMPERED,
    autoregressive,
    healthy_statistics,
)


def worst_ess(received):
    """Smallest bulk or tail effective sample size of any diagnosed element."""
    return min(min(q.ess_bulk, q.ess_tail) for q in received.quantities.values())


def healthy(rng):
    draws = {
        "order_parameter": rng.standard_normal((*LONG, 2, 2)),
        "predictor": rng.standard_normal((*LONG, 6)),
    }
    return draws, healthy_statistics(rng, LONG)


def test_independent_draws_pass(rng):
    received = diagnose(*healthy(rng), NUTS)
    assert received.passed, received.reasons
    assert received.reasons == received.remarks == ()
    assert set(received.quantities) == {"order_parameter", "predictor", "log_posterior"}
    assert worst_ess(received) > 2000  # of 4000 independent draws
    assert (received.chains, received.draws, received.numbers["divergences"]) == (4, 1000, 0)
    # differences of independent energies have twice their variance
    assert min(received.numbers["bfmi"]) > 1.5
    assert received.numbers["leapfrog_steps_per_draw"] == 7.0
    assert received.numbers["sync_efficiency"] == 1.0


def frozen(draws, statistics):
    draws["predictor"][2] = draws["predictor"][2, 0]


def stands_still_elsewhere_in_every_chain(draws, statistics):
    draws["order_parameter"][..., 0, 0] = np.arange(LONG[0])[:, None]


def stands_still_in_every_chain(draws, statistics):
    draws["order_parameter"][..., 0, 1] = 0.3


def stands_still_in_one_chain(draws, statistics):
    draws["predictor"][1, :, 4] = 0.0


def not_finite(draws, statistics):
    draws["predictor"][1, 500, 3] = np.inf


def correlated(draws, statistics):
    # n (1 − ρ)/(1 + ρ) = 20 effective draws of 4000
    draws["predictor"][..., 2] = autoregressive(np.random.default_rng(3), 0.99)


def drifting(draws, statistics):
    """Whole chains agree with each other, their halves do not."""
    draws["predictor"][..., 4] += np.linspace(0.0, 2.0, LONG[1])


def slow_in_its_tails(draws, statistics):
    """Signs are independent, sizes move slowly."""
    draws["predictor"][..., 3] *= np.exp(autoregressive(np.random.default_rng(3), 0.99))


def without_r_hat(draws, statistics):
    """Distances from the median that are all the same: 0/0."""
    draws["predictor"][..., 3] = np.where(np.arange(LONG[1]) % 2, 1.0, -1.0)


def alone(draws, statistics):
    """Nothing says that another chain would go to the same place, however long this one is."""
    for of in (draws, statistics):
        of |= {name: values.reshape(1, -1, *values.shape[2:]) for name, values in of.items()}


def slow_energies_of_one_chain(draws, statistics):
    # BFMI of an AR(1) energy is 2 (1 − ρ) = 0.1
    statistics["energy"][1] = autoregressive(np.random.default_rng(3), 0.95)[0]


def no_step_short_enough_in_one_chain(draws, statistics):
    statistics["step_size"][2] = 1e-11


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (frozen, "predictor: chain 2 is frozen"),
        (stands_still_elsewhere_in_every_chain, "order_parameter[0, 0]:"),
        (stands_still_in_every_chain, "order_parameter[0, 1]:"),
        (stands_still_in_one_chain, "predictor[4]:"),
        (not_finite, "predictor: chain 1 holds numbers"),
        (correlated, "predictor: R-hat"),
        (drifting, "predictor: R-hat"),
        (slow_in_its_tails, "predictor:"),
        (without_r_hat, "predictor:"),
        (alone, ""),
        (slow_energies_of_one_chain, "BFMI 0."),
        (no_step_short_enough_in_one_chain, "step size 1e-11"),
    ],
)
def test_what_must_fail_fails_with_its_reason_alone(spoil, reason, rng):
    draws, statistics = healthy(rng)
    spoil(draws, statistics)
    received = diagnose(draws, statistics, NUTS)
    assert received.verdict == "fail"
    assert any(one.startswith(reason) for one in received.reasons)
    assert all(one.startswith(reason.split(" ")[0]) for one in received.reasons)


def of_problem(draws, name, *places):
    """Masks of what a problem fixes: these places of one quantity."""
    mask = np.zeros(draws[name].shape[2:], bool)
    mask[tuple(np.transpose(places))] = True
    return lambda: {name: mask.reshape(-1)}


def test_what_the_problem_fixes_is_left_out_and_nothing_else_that_stands_still(rng):
    draws, statistics = healthy(rng)
    draws["order_parameter"][..., 0, 1] = 0.25
    known = of_problem(draws, "order_parameter", (0, 1))
    received = diagnose(draws, statistics, NUTS, known)
    assert received.passed, received.reasons
    # Fixed for another element, for another quantity, or with another value in one chain.
    for other in (
        of_problem(draws, "order_parameter", (1, 0)),
        of_problem(draws, "predictor", (1,)),
    ):
        assert not diagnose(draws, statistics, NUTS, other).passed
    draws["order_parameter"][2, :, 0, 1] = 0.5
    received = diagnose(draws, statistics, NUTS, known)
    assert [one.split(":")[0] for one in received.reasons] == ["order_parameter[0, 1]"]


def test_elements_that_are_not_judged_must_move_too(rng):
    """Of many an even selection is judged; which of them stand still is known of all."""
    draws, statistics = healthy(rng)
    draws["predictor"] = rng.standard_normal((*LONG, 2 * MOST_DIAGNOSED))
    draws["predictor"][..., 1] = 0.7
    received = diagnose(draws, statistics, NUTS)
    assert [one.split(":")[0] for one in received.reasons] == ["predictor[1]"]


@pytest.mark.parametrize(
    ("algorithm", "what", "number"),
    [(NUTS, "diverging", "divergences"), (SPLIT_HMC, "lost", "lost_points")],
)
def test_more_than_one_bad_trajectory_in_a_thousand_fails(algorithm, what, number, rng):
    """Fewer are remarked on."""
    draws, statistics = healthy(rng)
    statistics[what][0, :4] = True  # 4 of 4000: the limit itself
    received = diagnose(draws, statistics, algorithm)
    assert received.passed
    assert len(received.remarks) == 1
    statistics[what][0, 4] = True
    received = diagnose(draws, statistics, algorithm)
    assert len(received.reasons) == 1
    assert received.numbers[number] == 5


def test_chains_side_by_side_wait_for_the_longest_trajectory_of_each_draw(rng):
    draws, statistics = healthy(rng)
    statistics["n_steps"] = rng.integers(1, 64, LONG)
    waited = LONG[0] * sum(max(of_draw) for of_draw in statistics["n_steps"].T)
    received = diagnose(draws, statistics, NUTS).numbers
    assert received["sync_efficiency"] == pytest.approx(statistics["n_steps"].sum() / waited)
    assert received["leapfrog_steps_per_draw"] == statistics["n_steps"].mean()


def test_saturated_trajectories_are_only_remarked_on(rng):
    draws, statistics = healthy(rng)
    steps = np.array([[1, 2, 3, 4, 7, 8]])
    stored = NUTS.stored({"trajectory_steps": steps})
    np.testing.assert_array_equal(stored["tree_depth"], [[1, 2, 2, 3, 3, 4]])
    statistics["trajectory_steps"] = np.full(LONG, 1023)
    statistics["n_steps"] = np.full(LONG, 5 * 1023)  # of five trajectories one draw is kept
    received = diagnose(draws, statistics, NUTS)
    assert received.passed
    assert received.numbers["saturated_share"] == 1.0
    assert len(received.remarks) == 1
    deeper = diagnose(draws, statistics, replace(NUTS, max_tree_depth=11))
    assert deeper.numbers["saturated_share"] == 0.0
    static = diagnose(draws, statistics, HMC)
    assert static.remarks == ()


# --- repetitions of particles


def repeated(rng, common: float, repetitions: int = 8, particles: int = 128):
    """Draws whose repetitions have a part in common, and the statistics of their algorithm."""
    shape = repetitions, particles
    draws = common * rng.standard_normal((repetitions, 1, 40)) + rng.standard_normal((*shape, 40))
    ones = np.ones(shape)
    statistics = {
        "lp": rng.standard_normal(shape),
        "acceptance_rate": 0.8 * ones,
        "lowest_acceptance": 0.7 * ones,
        "lost": 0 * ones,
        "temperatures": 5 * ones,
        "ancestor": np.tile(np.arange(particles), (repetitions, 1)),
        "mode": np.zeros(shape),
        "log_evidence": 0.01 * rng.standard_normal((repetitions, 1)) * ones,
        "log_evidence_prior": np.nan * ones,
    }
    return {"order_parameter": draws}, statistics


def test_repetitions_that_agree_pass(rng):
    received = diagnose(*repeated(rng, 0.0), TEMPERED)
    assert received.passed, received.reasons
    assert received.r_hat_limit == R_HAT_OF_REPETITIONS
    assert worst_ess(received) > 400
    assert received.numbers["ancestors"] == [128] * 8


def test_one_repetition_of_few_ancestors_is_remarked_on(rng):
    """Fewer than one in twenty of its 128 particles at the start."""
    for count, remarks in ((7, 0), (6, 1)):
        draws, statistics = repeated(rng, 0.0)
        statistics["ancestor"][5] %= count
        received = diagnose(draws, statistics, TEMPERED)
        assert received.numbers["ancestors"] == [128] * 5 + [count] + [128] * 2
        assert len(received.remarks) == remarks


def test_repetitions_of_one_centre_and_unequal_spread_fail(rng):
    draws, statistics = repeated(rng, 0.0)
    draws["order_parameter"][::2, :, 3] *= 3.0
    received = diagnose(draws, statistics, TEMPERED)
    assert [one.split(" ")[:2] for one in received.reasons] == [["order_parameter:", "R-hat"]]


@pytest.mark.parametrize("heavy", [-1.0, 1.0])
def test_effective_draws_of_tails_are_those_of_the_worse_one(heavy, rng):
    """One element, half of whose repetitions have a heavy lower, or upper, tail."""
    draws, statistics = repeated(rng, 0.0)
    values = draws["order_parameter"][..., :1]
    values[::2] *= np.where(heavy * values[::2] > 0.0, 2.0, 1.0)
    statistics["log_evidence"] = np.zeros((8, 128))
    found = diagnose({"x": values}, statistics, TEMPERED).quantities["x"]
    beyond = values[..., 0] <= np.quantile(values, 0.05 if heavy < 0.0 else 0.95)
    share = beyond.mean(axis=1).var(ddof=1) / beyond.var(ddof=1)
    assert found.ess_tail == pytest.approx(8 / share, rel=1e-12)


def test_repetitions_are_worth_no_more_than_all_their_draws(rng):
    """All of them have the same numbers, in another order: their means do not vary at all."""
    _, statistics = repeated(rng, 0.0)
    statistics["log_evidence"] = np.zeros((8, 128))
    same = np.array([rng.permutation(128) for _ in range(8)])[..., None]
    found = diagnose({"x": same}, statistics, TEMPERED).quantities["x"]
    assert (found.ess_bulk, found.ess_tail) == (8 * 128, 8 * 128)


@pytest.mark.parametrize("repetitions", [4, 8, 32])
def test_the_worst_element_is_told_as_far_as_repetitions_know_it(repetitions, rng):
    """Shares drawn by their law, of elements alike and with one that is a hundred times slower."""
    trials, elements, fast = 400, 333, 0.001
    factors = rng.chisquare(repetitions - 1, (trials, elements)) / (repetitions - 1)
    alike = np.array([worst_share(fast * each, repetitions) for each in factors])
    assert np.median(alike) == pytest.approx(fast, rel=0.1)  # by the largest: 3 to 5 times that
    slow = fast * np.where(np.arange(elements) == 7, 100.0, 1.0)
    worst = np.array([worst_share(slow * each, repetitions) for each in factors])
    # Never more than the element itself shows, and far more than the mean over all.
    assert (worst <= (slow * factors).max(axis=1)).all()
    assert np.median(worst) > 10 * np.mean(slow)


def test_effective_draws_are_those_of_repetitions_of_equal_weight(rng):
    """Half of the repetitions with nearly all the weight: half as many draws."""
    draws, statistics = repeated(rng, 1 / 3)
    of_all = worst_ess(diagnose(draws, statistics, TEMPERED))
    logs = np.where(np.arange(8) % 2, -3.0, 0.0)
    unequal = statistics | {"log_evidence": logs[:, None] * np.ones((8, 128))}
    equal = statistics | {"log_evidence": np.zeros((8, 128))}
    of_some, of_equal = (worst_ess(diagnose(draws, one, TEMPERED)) for one in (unequal, equal))
    weights = np.exp(logs) / np.exp(logs).sum()
    assert of_some / of_equal == pytest.approx(1.0 / np.sum(weights**2) / 8, rel=1e-12)
    assert of_all == pytest.approx(of_equal, rel=1e-3)


# --- diagnostics of many quantities at once are those of ArviZ, element by element


AXES = {"chain_axis": 0, "draw_axis": 1}
OF_ARVIZ = {
    "r_hat": lambda draws: array_stats.rhat(draws, method="rank", **AXES),
    "bulk_ess": lambda draws: array_stats.ess(draws, method="bulk", **AXES),
    "tail_ess": lambda draws: array_stats.ess(draws, method="tail", prob=(0.05, 0.95), **AXES),
    "mean_ess": lambda draws: array_stats.ess(draws, method="mean", **AXES),
    "mean_mcse": lambda draws: array_stats.mcse(draws, method="mean", **AXES),
}


def varied(rng, shape):
    """Chains of every kind: independent, sluggish, alternating, drifting, heavy-tailed, apart."""
    chains, draws = shape
    noise = rng.standard_normal((7, *shape))
    steps = np.arange(draws)
    sluggish = autoregressive(rng, 0.9, shape)
    alternating = autoregressive(rng, -0.7, shape)
    return np.stack(
        [
            noise[0],
            sluggish,
            alternating,
            noise[1] + 3.0 * steps / draws,
            noise[2] / np.abs(noise[3]),
            np.round(2.0 * noise[4]),
            noise[5] + np.arange(chains)[:, None],
            1e3 + noise[6],
        ],
        axis=-1,
    ).reshape(*shape, 2, 4)


RECEIVED = {
    "r_hat": lambda draws: convergence.rank_diagnostics(draws)[0],
    "bulk_ess": lambda draws: convergence.rank_diagnostics(draws)[1],
    "tail_ess": lambda draws: convergence.rank_diagnostics(draws)[2],
    "mean_ess": convergence.mean_ess,
    "mean_mcse": convergence.mean_mcse,
}


@pytest.mark.parametrize("shape", [(4, 1000), (1, 61), (3, 4)])
@pytest.mark.parametrize("name", sorted(OF_ARVIZ))
def test_every_element_has_the_number_of_arviz(name, shape, rng):
    draws = varied(rng, shape)
    expected = np.empty((2, 4))
    for place in np.ndindex(2, 4):
        with np.errstate(all="ignore"):
            expected[place] = OF_ARVIZ[name](draws[(..., *place)])
    received = RECEIVED[name](draws)
    assert received.shape == (2, 4)
    np.testing.assert_allclose(received, expected, rtol=1e-10)


@pytest.mark.parametrize("name", sorted(OF_ARVIZ))
def test_what_cannot_be_judged_is_not_a_number_and_spoils_no_neighbour(name, rng):
    draws = rng.standard_normal((4, 100, 3))
    expected = RECEIVED[name](draws)
    draws[2, 30, 1] = np.inf
    received = RECEIVED[name](draws)
    np.testing.assert_array_equal(received[[0, 2]], expected[[0, 2]])
    assert np.isnan(received[1])
    assert np.isnan(RECEIVED[name](draws[:, :3])).all()


def test_shares_between_repetitions_are_those_of_their_means(rng):
    """Repetitions with a part in common: one of them is worth (1 + a²)/a² draws, if many."""
    common = np.array([0.0, 0.3])
    shape = (400, 64)
    draws = common * rng.standard_normal((400, 1, 2)) + rng.standard_normal((*shape, 2))
    r_hat, bulk, *tails = convergence.repetition_diagnostics(draws)
    expected = (common**2 + 1 / 64) / (common**2 + 1.0)
    # The variance of 400 means is known to √(2/399), the normal scores change it little.
    np.testing.assert_allclose(bulk, expected, rtol=4 * np.sqrt(2 / 399))
    np.testing.assert_allclose(r_hat**2, 1.0 + np.array([0.0, common[1] ** 2]), atol=0.03)
    assert (np.array(tails)[:, 1] > np.array(tails)[:, 0]).all()


@pytest.mark.parametrize("name", sorted(OF_ARVIZ))
@pytest.mark.parametrize("scale", [2.0**-80, 2.0**80])
def test_nothing_depends_on_the_unit(name, scale, rng):
    """Of ArviZ, draws are constant that differ by less than 1e-15, whatever they are."""
    draws = varied(rng, (4, 100))
    expected = RECEIVED[name](draws) * (scale if name == "mean_mcse" else 1.0)
    np.testing.assert_array_equal(RECEIVED[name](scale * draws), expected)
