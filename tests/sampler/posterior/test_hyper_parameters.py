"""Sampled temperature and variances: identities with networks that have them, and quadrature."""

import itertools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from numpyro.infer.util import log_density
from scipy.special import logsumexp

from sampler.analysis.validation import example_scores, sampled_scores, validation_draws
from sampler.jobs.stages import stored_positions
from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chunks import sample_in_chunks
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.hamiltonian import NUTS
from sampler.network import network_outputs, overlaps
from sampler.posterior.bridge import bridge_evidence
from sampler.posterior.density import TEMPERATURE, VARIANCES, weights_at
from sampler.posterior.importance import importance_draws
from sampler.posterior.labels import label_log_likelihood
from sampler.posterior.order_parameters import (
    OrderParameterPosterior,
    factors_at,
    find_mode,
    likelihood_factor,
    log_likelihood_at,
    log_prior,
)
from sampler.posterior.spaces import make_density
from sampler.posterior.weight_draws import weight_draws
from sampler.posterior.weights import weight_model
from sampler.problem import Problem
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.commands import FEW_DRAWS, SMALLEST, in_process, settings
from tests.problems import (
    ARCHITECTURES,
    exact_scalar_posterior,
    order_parameters_of,
    random_problem,
    scalar_problem,
    weighted_mean_and_error,
)
from theory import LearningProblem, Predictor
from theory import predict as predict_labels
from theory.architecture import HyperPriors
from theory.bartlett import WishartChain

SPREADS = HyperPriors(temperature_spread=0.5, variance_spread=0.4)
NAMES = ["one layer", "two layers, three outputs", "narrow"]
ROUNDING = {"operations": 1e4}


def problem_of(name, rng, temperature=0.3) -> LearningProblem:
    problem = random_problem(ARCHITECTURES[name], rng, temperature=temperature)
    return replace(problem, hyper_priors=SPREADS)


def random_position(problem, rng) -> dict:
    """A position of the order parameter model, hyper-parameters included."""
    coordinates = OrderParameterPosterior.of(problem).coordinates
    return coordinates.unflatten(jnp.asarray(0.5 * rng.standard_normal(coordinates.size)))


def known_problem(problem: LearningProblem, position) -> LearningProblem:
    """The problem that has the temperature and the variances of a position for given."""
    variances = np.asarray(problem.architecture.variances) * np.exp(position[VARIANCES])
    architecture = replace(problem.architecture, variances=tuple(map(float, variances)))
    temperature = problem.temperature * float(np.exp(position[TEMPERATURE][0]))
    return LearningProblem(architecture, problem.attended, problem.labels, temperature)


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_a_position_is_one_of_the_network_with_its_variances(name, rng):
    problem = problem_of(name, rng)
    position = random_position(problem, rng)
    known = known_problem(problem, position)
    received = factors_at(position, WishartChain.of(problem.architecture))
    bartlett = {n: v for n, v in position.items() if n not in (TEMPERATURE, VARIANCES)}
    expected = factors_at(bartlett, WishartChain.of(known.architecture))
    for one, other in zip(received, expected, strict=True):
        assert_equal_to_rounding(one, other, **ROUNDING)
    likelihood = log_likelihood_at(position, problem.energy, WishartChain.of(problem.architecture))
    assert_equal_to_rounding(
        likelihood,
        label_log_likelihood(known.energy, expected[0]),
        condition=1.0 / known.temperature,
        **ROUNDING,
    )


def density_of(model, fixed, values, *arguments):
    """The logarithm of a model's density, compiled as a whole."""
    return jax.jit(lambda v, *data: log_density(model, data, fixed, v)[0])(values, *arguments)


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_models_of_weights_have_the_density_of_the_network_with_these_variances(name, rng):
    """Sites keep the priors of the known variances: the likelihood alone sees the sampled ones."""
    problem = problem_of(name, rng)
    architecture = problem.architecture
    hyper = {
        n: v for n, v in random_position(problem, rng).items() if n in (TEMPERATURE, VARIANCES)
    }
    known = known_problem(problem, hyper)
    sites = {n: jnp.asarray(rng.standard_normal(s)) for n, s in architecture.weight_shapes.items()}
    prior = sum(
        -0.5 * np.sum(np.square(hyper[name]) / spread**2)
        - hyper[name].size * np.log(spread * np.sqrt(2 * np.pi))
        for name, spread in ((TEMPERATURE, 0.5), (VARIANCES, 0.4))
    )
    scaled = weights_at(sites | hyper, architecture)
    # A Gaussian density scales with the size of what it is a density of.
    volumes = {
        name: float(np.log(scaled[name].ravel()[0] / sites[name].ravel()[0])) * sites[name].size
        for name in sites
    }
    jacobian = sum(volumes.values())

    def densities(model, arguments, values, of):
        return density_of(
            model, {"architecture": of}, values, *arguments, jnp.asarray(of.variances)
        )

    data, variances = (problem.attended, problem.labels), jnp.asarray(architecture.variances)
    both = {"architecture": architecture, "hyper_priors": SPREADS}
    received = density_of(weight_model, both, sites | hyper, *data, problem.temperature, variances)
    expected = densities(weight_model, (*data, known.temperature), scaled, known.architecture)
    scale = abs(float(expected)) + abs(float(jacobian))
    assert_equal_to_rounding(received, expected + jacobian + prior, scale=scale, **ROUNDING)


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_the_hessian_at_the_mode_is_that_of_repeated_differentiation(name, rng):
    problem = problem_of(name, rng)
    mode = find_mode(problem, OrderParameterPosterior.of(problem))
    assert mode.converged
    chain, unflatten = WishartChain.of(problem.architecture), mode.coordinates.unflatten

    def negative_log_density(point):
        position = unflatten(point)
        factor = likelihood_factor(position, chain)
        temperature = problem.temperature * jnp.exp(position[TEMPERATURE][0])
        noisy = problem.energy.kernels.kernel(factor)
        noisy = noisy + temperature * jnp.eye(noisy.shape[0])
        flat = problem.labels.reshape(-1)
        energy = jnp.linalg.slogdet(noisy)[1] + flat @ jnp.linalg.solve(noisy, flat)
        return 0.5 * energy - log_prior(position, chain, SPREADS)

    gradient = jax.jit(jax.grad(negative_log_density))(mode.point)
    hessian = np.asarray(jax.jit(jax.hessian(negative_log_density))(mode.point))
    eigenvalues = np.linalg.eigvalsh(hessian)
    assert np.linalg.norm(gradient) < 1e-4 * np.sqrt(eigenvalues.max())
    assert eigenvalues.min() > 1e-3  # where the mode has a floor for what is not convex
    received = np.asarray(mode.covariance) @ hessian
    condition = eigenvalues.max() / eigenvalues.min() / problem.temperature
    assert_equal_to_rounding(received, np.eye(len(hessian)), condition=condition, **ROUNDING)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("space", "name"),
    list(itertools.product(("order_parameters", "weights"), NAMES[1:])),
)
def test_what_is_observed_of_a_draw_is_that_at_its_temperature_and_variances(space, name, rng):
    problem = problem_of(name, rng)
    architecture = problem.architecture
    attended = jnp.asarray(rng.standard_normal((5, *problem.attended.shape[1:])))
    density = make_density(space, problem, attended, keep_weights=True)
    flat = jnp.asarray(0.5 * rng.standard_normal(density.coordinates.size))
    position = density.coordinates.unflatten(flat)
    known = known_problem(problem, position)
    seen = jax.jit(density.observables)(jax.random.key(1), position)
    assert_equal_to_rounding(seen["temperature"], known.temperature, **ROUNDING)
    assert_equal_to_rounding(seen["prior_variances"], known.architecture.variances, **ROUNDING)
    condition = 1.0 / known.temperature
    if space != "weights":
        # F of U_1, which carries all variances but that of the inputs, as the kernel of `known`.
        values, vectors = np.linalg.eigh(seen["order_parameter"])
        factor = jnp.asarray(vectors * np.sqrt(np.clip(values, 0.0, None)))
        expected = predict_labels(Predictor.for_examples(known, attended), factor)
        for moment, one in zip(("mean", "variance"), expected, strict=True):
            assert_equal_to_rounding(
                seen[f"predictor_{moment}"], one, condition=condition, scale=10.0, operations=1e6
            )
    if space != "order_parameters":
        weights = {array: seen[array] for array in architecture.weight_shapes}
        outputs = network_outputs(weights, attended, architecture)
        assert_equal_to_rounding(seen["predictor"], outputs, **ROUNDING)
        for array, values in weights_at(position, architecture).items():
            assert_equal_to_rounding(weights[array], values, **ROUNDING)
        lowest = overlaps(weights, architecture)[0]
        assert_equal_to_rounding(seen["order_parameter"], lowest, **ROUNDING)


def quadrature(problem: LearningProblem, test, nodes: int = 32):
    """Evidence, E[ln 𝒯/𝒯_0] and E[Σ ln σ²/σ_0²] of a scalar problem by Gauss and Hermite.

    The labels see the sum of the logarithms of the three variances alone.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = np.log(weights / weights.sum())
    spreads = problem.hyper_priors
    temperatures = spreads.temperature_spread * points
    sums = spreads.variance_spread * np.sqrt(3.0) * points
    table = np.empty((nodes, nodes))
    for i, log_temperature in enumerate(temperatures):
        for j, log_variance in enumerate(sums):
            *below, readout = problem.architecture.variances
            variances = (*below, readout * float(np.exp(log_variance)))
            known = LearningProblem(
                replace(problem.architecture, variances=variances),
                problem.attended,
                problem.labels,
                problem.temperature * float(np.exp(log_temperature)),
            )
            table[i, j] = exact_scalar_posterior(known, test, points=120).log_evidence
    table += weights[:, None] + weights[None, :]
    evidence = logsumexp(table)
    share = np.exp(table - evidence)
    return evidence, share.sum(axis=1) @ temperatures, share.sum(axis=0) @ sums


@pytest.mark.heavy
def test_one_head_by_quadrature(rng):
    problem, test = scalar_problem(rng)
    problem = replace(problem, hyper_priors=SPREADS)
    evidence, temperature, variances = quadrature(problem, test)
    found = importance_draws(order_parameters_of(problem), 40_000, seed=5)
    assert found.trusted, found.explain()
    ess = found.effective_sample_size
    assert_within_mcse(found.log_evidence, evidence, found.log_evidence_error, ess=ess)
    for values, expected in (
        (found.position[TEMPERATURE][:, 0], temperature),
        (found.position[VARIANCES].sum(axis=1), variances),
    ):
        assert_within_mcse(
            *_in_order(weighted_mean_and_error(found.weights, values), expected), ess=ess
        )
    positions = stored_positions(chains_of(problem, "order_parameters"), problem)
    bridged = bridge_evidence(order_parameters_of(problem), positions, seed=3)
    assert bridged.trusted, bridged.explain()
    assert_within_mcse(bridged.log_evidence, evidence, bridged.error)


def _in_order(mean_and_error, expected):
    return mean_and_error[0], expected, mean_and_error[1]


def chains_of(problem, space: str, draws: int = 1000, keep_weights: bool = False) -> dict:
    """What four chains observe [chain, draw, …]."""
    collected = DrawCollector()
    settings = ChainSettings(warmup=300, draws=draws, seed=3)
    sample_in_chunks(
        make_density(space, problem, problem.attended[:2], keep_weights), NUTS, settings, collected
    )
    return collected.draws


@pytest.mark.slow
def test_weights_drawn_back_have_the_overlaps_and_the_predictors_of_their_draw(rng):
    problem = problem_of("two layers", rng)
    draws = chains_of(problem, "order_parameters", draws=50)
    positions = stored_positions(draws, problem)
    drawn = weight_draws(problem, positions, 50, seed=1)
    received = jax.vmap(jax.vmap(lambda w: overlaps(w, problem.architecture)[0]))(
        {n: jnp.asarray(v) for n, v in drawn.weights.items()}
    )
    assert_equal_to_rounding(received, draws["order_parameter"], operations=1e5)
    # One draw of the order parameters, many of the weights: the predictor's exact law.
    one = {n: np.repeat(v[:1, :1], 4000, axis=1) for n, v in positions.items()}
    drawn = weight_draws(problem, one, 4000, seed=2)
    outputs = jax.vmap(lambda w: network_outputs(w, problem.attended[:2], problem.architecture))(
        {n: jnp.asarray(v[0]) for n, v in drawn.weights.items()}
    )
    mean, variance = (draws[f"predictor_{moment}"][0, 0] for moment in ("mean", "variance"))
    error = np.sqrt(variance / 4000)
    assert_within_mcse(outputs.mean(axis=0), mean, error)
    assert_within_mcse(outputs.var(axis=0), variance, variance * np.sqrt(2 / 4000))


@pytest.mark.heavy
def test_validation_scores_use_the_temperature_and_variances_of_every_draw(rng):
    problem = problem_of("two layers", rng)
    attended = jnp.asarray(rng.standard_normal((7, *problem.attended.shape[1:])))
    labels = rng.choice([-1.0, 1.0], (7, 1))
    whole = Problem(
        problem, attended, labels, ("path",) * 4, (("h", "h"), ("h", "h")), attended, labels
    )
    positions = [random_position(problem, rng) for _ in range(6)]
    known = [known_problem(problem, position) for position in positions]
    factors = [
        factors_at(position, WishartChain.of(problem.architecture))[0] for position in positions
    ]
    shape = (2, 3)
    drawn = {
        "order_parameter": np.array([f @ f.T for f in factors]).reshape(
            *shape, *2 * [len(factors[0])]
        ),
        "temperature": np.array([one.temperature for one in known]).reshape(shape),
        "prior_variances": np.array([one.architecture.variances for one in known]).reshape(
            *shape, -1
        ),
    }
    given = [
        predict_labels(Predictor.for_examples(one, attended), factor)
        for one, factor in zip(known, factors, strict=True)
    ]
    means, variances = (np.array(values) for values in zip(*given, strict=True))
    noise = np.array([one.temperature for one in known]).mean()
    total = variances.mean(axis=0) + means.var(axis=0, ddof=1) + noise
    expected = example_scores(means.mean(axis=0), total, labels, 0.0)
    received = sampled_scores(validation_draws(whole, drawn))
    for score, values in expected.items():
        assert_equal_to_rounding(
            received[score]["by_example"], values, operations=1e5, condition=1e2, what=score
        )


def test_without_a_hessian_every_site_has_its_own_scale(rng, monkeypatch):
    monkeypatch.setattr("sampler.posterior.order_parameters.HESSIAN_COORDINATES", 0)
    problem = problem_of("one layer", rng)
    mode = find_mode(problem, OrderParameterPosterior.of(problem))
    for name, spread in ((TEMPERATURE, 0.5), (VARIANCES, 0.4), ("chi_1", 1.0)):
        part = mode.coordinates.part(name)
        np.testing.assert_allclose(mode.scale[part], spread)
        np.testing.assert_allclose(mode.covariance[part], spread**2)


@pytest.mark.long
def test_a_run_says_what_it_found_beside_what_was_given(tmp_path, capsys):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SMALLEST)
    given = ("posterior.temperature_spread=0.5", "posterior.variance_spread=0.3")
    asked = ("sampler.evidence=true", "sampler.weight_draws=3", "sampler.warmup=50")
    short = ("sampler.draws=60", "sampler.chains=2")
    run = tmp_path / "run"
    in_process("run", recipe, "--out", run, *settings(*given, *asked, *short))
    printed = capsys.readouterr().out
    comparison = json.loads((run / "comparison.json").read_text())
    with xr.open_datatree(run / "draws.nc") as draws:
        posterior = draws["posterior"].to_dataset().load()
        weights = draws["posterior_weights"].to_dataset().load()
        statistics = draws["sample_stats"].attrs
    assert posterior["prior_variances"].dims == ("chain", "draw", "weights")
    assert list(posterior["weights"].values) == ["V_0", "V_1", "V_2", "a"]
    found = comparison["hyper_parameters"]
    for name in ("temperature", "prior_variances"):
        values = posterior[name].values
        np.testing.assert_allclose(found[name]["sampled"], values.mean(axis=(0, 1)), rtol=1e-12)
        np.testing.assert_array_equal(found[name]["prior_median"], np.ones(values.shape[2:]))
    assert f"{found['temperature']['sampled']:.4g}" in printed
    assert "variance of V_1" in printed
    page = (run / "report.html").read_text()
    assert "variance of V_1" in page
    # The evidence averages over what was sampled; that of the theory is at the given values.
    evidence = comparison["log_evidence"]
    assert evidence["theory"] is None
    assert evidence["sampled"]["method"] == "bridge"
    assert evidence["sampled"]["value"] == statistics["log_evidence"]
    assert weights["a"].shape[:2] == (2, 3)
    # U_a = a aᵀ/N_a of the weights drawn back is that of the draw they belong to.
    stored = posterior["readout_order_parameter"].sel(draw=weights["draw"].values).values
    received = np.einsum("cdoi,cdpi->cdop", weights["a"].values, weights["a"].values)
    np.testing.assert_allclose(received / weights["a"].shape[-1], stored, rtol=1e-8)


@pytest.mark.long
def test_networks_outside_the_theory_sample_them_too(tmp_path):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SMALLEST)
    spreads = ("posterior.temperature_spread=0.5", "posterior.variance_spread=0.3")
    asked = ("network.values=relu", "sampler.space=weights", *FEW_DRAWS, *spreads)
    in_process("run", recipe, "--out", tmp_path / "run", *settings(*asked))
    found = json.loads((tmp_path / "run" / "comparison.json").read_text())["hyper_parameters"]
    assert found["prior_variances"]["of"] == ["V_0", "V_1", "V_2", "a"]
    assert found["temperature"]["sampled"] != 1.0
