"""Bridge sampling: the evidence of chains against quadrature, limits and importance weights."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sampler.mcmc.chunks import sample_in_chunks
from sampler.mcmc.draws import DrawCollector

from sampler.errors import ExitCode
from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.hamiltonian import NUTS
from sampler.posterior.bridge import _bridge, bridge_evidence
from sampler.posterior.importance import importance_draws, single
from sampler.posterior.order_parameters import OrderParameterPosterior
from tests.assertions import assert_within_mcse
from tests.commands import SMALLEST, in_process, settings
from tests.problems import (
    ARCHITECTURES,
    all_but,
    exact_scalar_posterior,
    order_parameters_of,
    random_problem,
    scalar_problem,
)

PREFIX = "bartlett_"


def chains(problem, *, count: int = 4, draws: int = 1000) -> dict[str, np.ndarray]:
    """Bartlett coordinates [chain, draw, entry] of NUTS chains."""
    collected = DrawCollector()
    settings = ChainSettings(chains=count, warmup=300, draws=draws, seed=3)
    sample_in_chunks(order_parameters_of(problem), NUTS, settings, collected)
    return {
        name.removeprefix(PREFIX): values
        for name, values in collected.draws.items()
        if name.startswith(PREFIX)
    }


@pytest.mark.heavy
def test_one_head_by_quadrature(rng):
    problem, test = scalar_problem(rng)
    exact = exact_scalar_posterior(problem, test).log_evidence
    found = bridge_evidence(order_parameters_of(problem), chains(problem), seed=1)
    assert found.trusted, found.explain()
    assert found.error < 0.02
    assert_within_mcse(found.log_evidence, exact, found.error)
    for half in found.halves:
        assert_within_mcse(half, exact, 2 * found.error)
    # The mean of two independent halves has half the error of their difference.
    one, other = found.halves
    assert abs(one - other) == pytest.approx(2.0 * found.apart * found.error, rel=1e-12)
    # Draws of another posterior are not those of this one: the estimate must depend on them.
    warmer = chains(replace(problem, temperature=8 * problem.temperature))
    wrong = bridge_evidence(order_parameters_of(problem), warmer, seed=1)
    assert abs(wrong.log_evidence - exact) > 4 * wrong.error


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", all_but(["one layer, two outputs", "narrow"], ["narrow"], pytest.mark.long)
)
def test_evidence_without_data(name, rng):
    """With zero inputs the posterior is the prior and the labels are noise: ln p(y) is known."""
    problem = random_problem(ARCHITECTURES[name], rng)
    problem = replace(problem, attended=jnp.zeros_like(problem.attended))
    found = bridge_evidence(order_parameters_of(problem), chains(problem), seed=2)
    assert found.trusted, found.explain()
    expected = scipy.stats.norm.logpdf(problem.labels, scale=problem.temperature**0.5).sum()
    assert_within_mcse(found.log_evidence, expected, found.error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    all_but(
        ["two layers", "narrow", "two layers, three outputs"],
        ["narrow"],
        pytest.mark.long,
    ),
)
def test_agrees_with_importance_weights(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng, temperature=1.0)
    weighted = importance_draws(order_parameters_of(problem), 20_000, seed=4)
    assert weighted.trusted, weighted.explain()
    found = bridge_evidence(order_parameters_of(problem), chains(problem), seed=3)
    assert found.trusted, found.explain()
    assert_within_mcse(
        found.log_evidence,
        weighted.log_evidence,
        np.hypot(found.error, weighted.log_evidence_error),
    )


@pytest.mark.slow
def test_errors_are_those_of_repetitions(rng):
    """The spread over independent chains is what the error says it is."""
    problem, test = scalar_problem(rng)
    exact = exact_scalar_posterior(problem, test).log_evidence
    density, positions = order_parameters_of(problem), chains(problem, count=96, draws=100)
    found = []
    for first in range(0, 96, 4):
        four = {name: values[first : first + 4] for name, values in positions.items()}
        found.append(bridge_evidence(density, four, seed=first))
    score = sum(((one.log_evidence - exact) / one.error) ** 2 for one in found)
    low, high = scipy.stats.chi2.ppf([1e-4, 1 - 1e-4], len(found))
    assert low < score < high


@pytest.mark.heavy
def test_the_error_has_a_part_of_each_of_both_samples(rng):
    """Independent draws of N(0, 1), and a t beside it: estimates spread as their errors say."""
    proposal = single(np.array([1.0]), np.array([[0.7]]))

    def log_density(points):
        return -0.5 * points[:, 0] ** 2

    scores = []
    for _ in range(300):
        found, error = _bridge(proposal, log_density, rng.standard_normal((4, 100, 1)), rng)
        scores.append(((found - 0.5 * np.log(2.0 * np.pi)) / error) ** 2)
    low, high = scipy.stats.chi2.ppf([1e-4, 1 - 1e-4], len(scores))
    assert low < np.sum(scores) < high


def test_chains_that_never_move_are_not_trusted(rng):
    problem, _ = scalar_problem(rng)
    density = order_parameters_of(problem)
    stuck = {"chi_1": np.full((2, 20, 1), 0.1), "chi_2": np.full((2, 20, 1), -0.2)}
    found = bridge_evidence(density, stuck, seed=1)
    assert not found.trusted
    assert "raise `draws`" in found.explain()
    with pytest.raises(ValueError, match="at least 8"):
        bridge_evidence(density, {k: v[:, :7] for k, v in stuck.items()}, seed=1)


def test_draws_are_put_in_the_order_of_the_coordinates(rng):
    problem = random_problem(ARCHITECTURES["two layers"], rng)
    coordinates = OrderParameterPosterior.of(problem).coordinates
    point = rng.standard_normal(coordinates.size)
    sites = coordinates.unflatten(jnp.asarray(point))
    position = {name: np.asarray(v)[None, None] for name, v in sites.items() if v.size}
    received = np.concatenate(list(coordinates.of_draws(position).values()), axis=2)
    np.testing.assert_array_equal(received[0, 0], point)


@pytest.mark.parametrize("asked", ["sampler.evidence=true", "sampler.algorithm=importance"])
@pytest.mark.parametrize("command", ["check", "run"])
def test_too_many_coordinates_are_refused_before_anything_is_computed(
    command, asked, tmp_path, capsys, monkeypatch
):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SMALLEST)
    monkeypatch.setattr("sampler.recipes.validation.HESSIAN_COORDINATES", 3)
    out = () if command == "check" else ("--out", tmp_path / "run")
    assert in_process(command, recipe, *out, *settings(asked)) == ExitCode.BAD_INPUT
    assert "needs the Hessian at the mode, too large in" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
