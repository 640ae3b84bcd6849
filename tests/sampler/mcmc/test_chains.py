"""Chains in chunks: NumPyro's own numbers whatever the length of a chunk, compiled once."""

from dataclasses import dataclass, fields, replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import register_dataclass
from numpyro import infer

from sampler import runtime
from sampler.mcmc import chains, observer
from sampler.mcmc.algorithm import Chunk
from sampler.mcmc.hamiltonian import StaticHmc
from sampler.posterior.labels import flat_labels
from sampler.posterior.weights import WeightSpace
from sampler.runtime import devices_for
from sampler.streams import Stream, jax_key
from tests.problems import SPLIT_HMC, chain_settings, random_problem, space_of
from tests.sampler.mcmc.laws import Normal
from theory import Architecture

ARCHITECTURE = Architecture((1, 2), (2, 3, 2), (1.1, 0.8, 1.2, 0.9), channels=3)
# Static trajectories compile much faster than NUTS, and chunks do not know the difference.
STATIC = StaticHmc(target_acceptance=0.8, leapfrog_steps=5)
SETTINGS = chain_settings(chains=2, warmup=21, draws=14, seed=7)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class WithNoise(WeightSpace):
    """All weights, of which something is observed that depends on the random key."""

    def observe(self, key, position):
        return super().observe(key, position) | {"noise": jax.random.normal(key, (2,))}


def small_space(rng, precision="float64") -> WithNoise:
    problem = random_problem(ARCHITECTURE, rng).astype(precision)
    test = jnp.asarray(rng.standard_normal((2, 2, 3)), precision)
    kept = tuple(ARCHITECTURE.weight_shapes)
    space = space_of(problem, "weights", test, precision=precision, keep=kept)
    return WithNoise(**{one.name: getattr(space, one.name) for one in fields(space)})


@dataclass(frozen=True)
class Run:
    """All chunks of a run, and the draws and statistics of both phases joined."""

    chunks: list[Chunk]
    draws: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    warmup: dict[str, np.ndarray]


def sampled(space, settings, algorithm=STATIC) -> Run:
    received = []
    algorithm.draw(space, settings, received.append)

    def joined(phase, part):
        of_phase = [getattr(chunk, part) for chunk in received if chunk.phase == phase]
        names = of_phase[0] if of_phase else ()
        return {name: np.concatenate([c[name] for c in of_phase], axis=1) for name in names}

    draws = joined("draws", "observables")
    return Run(received, draws, joined("draws", "statistics"), joined("warmup", "statistics"))


def assert_same(received, expected):
    assert set(received) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(received[name], values, err_msg=name)


def assert_same_trajectories(received, expected):
    """Equal but for rounding, of which trajectories leave half of the digits alone."""
    half = np.sqrt(np.finfo(float).eps) * np.abs(expected).max()
    np.testing.assert_allclose(received, expected, rtol=0, atol=half)


@pytest.fixture(scope="module")
def space():
    return small_space(np.random.default_rng(1))


@pytest.fixture(scope="module")
def default_run(space):
    """One run of static trajectories, which several tests compare with."""
    return sampled(space, SETTINGS)


@pytest.mark.slow
def test_chains_are_those_of_numpyro(space, default_run):
    run, steps = default_run, STATIC.leapfrog_steps
    start = {"init_strategy": infer.init_to_sample()}
    mcmc = infer.MCMC(
        infer.HMC(space.model, num_steps=steps, trajectory_length=None, **start),
        num_warmup=SETTINGS.warmup,
        num_samples=SETTINGS.draws,
        num_chains=SETTINGS.chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    of_chains, of_starts = (jax_key(SETTINGS.seed, s) for s in (Stream.TRANSITIONS, Stream.STARTS))
    starts = jax.vmap(space.start)(jax.random.split(of_starts, SETTINGS.chains))
    extra = ("num_steps", "diverging", "accept_prob", "potential_energy", "energy")
    keys = jax.random.split(of_chains, SETTINGS.chains)
    arguments = {"extra_fields": extra, "init_params": space.unflatten(starts)}
    mcmc.run(keys, flat_labels(space.data.labels), **arguments)
    expected = mcmc.get_samples(group_by_chain=True)
    for name, values in expected.items():
        assert_same_trajectories(run.draws[name], values)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    statistics = run.statistics
    np.testing.assert_array_equal(statistics["n_steps"], fields["num_steps"])
    np.testing.assert_array_equal(statistics["diverging"], fields["diverging"])
    assert_same_trajectories(statistics["acceptance_rate"], fields["accept_prob"])
    assert_same_trajectories(statistics["energy"], fields["energy"])
    assert_same_trajectories(statistics["lp"], -fields["potential_energy"])
    assert not np.array_equal(run.draws["V_1"][0], run.draws["V_1"][1]), "chains must differ"


@pytest.mark.slow
def test_chains_side_by_side_are_those_one_after_the_other(space, default_run, monkeypatch):
    """As on a GPU, and as on a processor."""
    as_here = runtime.on_accelerator()
    jax.clear_caches()
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "on_accelerator", lambda: not as_here)
        together = sampled(space, SETTINGS)
    jax.clear_caches()
    assert together.chunks[0].compiled
    np.testing.assert_array_equal(together.statistics["n_steps"], default_run.statistics["n_steps"])
    for name, values in default_run.draws.items():
        assert_same_trajectories(together.draws[name], values)


def test_chunks_count_to_the_end_of_each_phase(default_run):
    check_phases(default_run.chunks)
    noise = default_run.draws["noise"].reshape(-1)
    assert np.unique(noise).size == noise.size, "every draw of every chain has a key of its own"


@pytest.mark.slow
def test_results_do_not_depend_on_the_length_of_chunks(space, default_run, monkeypatch):
    monkeypatch.setattr(observer, "CHUNK_DRAWS", 3)
    monkeypatch.setattr(chains, "CHUNK_SECONDS", 0.0)
    hurried = sampled(space, SETTINGS)
    check_phases(hurried.chunks)
    lengths = [chunk.draws for chunk in hurried.chunks]
    assert max(lengths) == 3
    # No time is left for another chunk as long as one that took too long.
    assert all(other == 1 for one, other in pairwise(lengths) if one == 3)
    assert max(chunk.draws for chunk in default_run.chunks) > 3
    for part in ("draws", "statistics", "warmup"):
        assert_same(getattr(hurried, part), getattr(default_run, part))


def check_phases(received):
    """Chunks count up to the end of each phase, and only the first one compiles."""
    for phase, total in (("warmup", SETTINGS.warmup), ("draws", SETTINGS.draws)):
        of_phase = [chunk for chunk in received if chunk.phase == phase]
        done = np.cumsum([chunk.draws for chunk in of_phase])
        assert [chunk.done for chunk in of_phase] == done.tolist()
        assert done[-1] == total == of_phase[-1].total
    assert all(not chunk.observables for chunk in received if chunk.phase == "warmup")
    assert [chunk.compiled for chunk in received] == [True] + [False] * (len(received) - 1)


@pytest.mark.slow
def test_thinning_keeps_every_kth_draw_and_counts_every_step(space, default_run):
    thinning, kept = 3, 4
    run = sampled(space, replace(SETTINGS, draws=kept, thinning=thinning))
    expected = {
        name: values[:, thinning - 1 : kept * thinning : thinning]
        for name, values in default_run.draws.items()
        if name not in ("noise", "posterior_predictive")  # their keys count kept draws
    }
    assert_same({name: run.draws[name] for name in expected}, expected)
    steps = default_run.statistics["n_steps"][:, : kept * thinning]
    steps = steps.reshape(SETTINGS.chains, kept, thinning)
    np.testing.assert_array_equal(run.statistics["n_steps"], steps.sum(axis=2))
    np.testing.assert_array_equal(run.statistics["trajectory_steps"], steps[..., -1])


@dataclass(frozen=True)
class UnstableSteps(StaticHmc):
    """Leapfrog steps above 2, where those of a standard Gaussian are unstable.

    Five of 2.1 multiply the energy by some 500: the fresh momentum decides which ones diverge.
    """

    def kernel(self, model, common, whitened):
        return infer.HMC(
            model, step_size=2.1, adapt_step_size=False, num_steps=5, trajectory_length=None
        )


@pytest.mark.slow
def test_divergences_between_kept_draws_are_counted():
    space, algorithm = Normal.standard(2), UnstableSteps(0.8, 5)
    settings, thinning, kept = replace(SETTINGS, warmup=0, draws=120), 4, 30
    every = sampled(space, settings, algorithm).statistics["diverging"]
    groups = every.reshape(settings.chains, kept, thinning)
    last, earlier = groups[..., -1], groups[..., :-1].any(axis=2)
    assert np.any(earlier & ~last), "no divergence is left between kept draws"
    assert not np.all(earlier | last), "some draws must have no divergence"
    run = sampled(space, replace(settings, draws=kept, thinning=thinning), algorithm)
    np.testing.assert_array_equal(run.statistics["diverging"], earlier | last)
    judged = algorithm.judge(run.statistics)
    assert judged.numbers["divergences"] == np.sum(earlier | last)


@pytest.mark.parametrize(("chains", "count", "used"), [(4, 1, 1), (4, 3, 2), (6, 4, 3)])
def test_every_device_has_as_many_chains(monkeypatch, chains, count, used):
    monkeypatch.setattr(jax, "devices", lambda: list(range(count)))
    assert len(devices_for(chains)) == used


@pytest.mark.slow
def test_one_compilation_serves_all_widths_temperatures_and_variances(rng):
    """As at the points of a sweep, whose arrays have equal shapes."""
    settings, begun = chain_settings(chains=2, warmup=3, draws=3), []
    jax.clear_caches()
    for widths, variances, temperature in (
        ((7, 8, 9), (1.1, 0.8, 1.2, 0.9), 0.3),
        ((70, 60, 50), (0.7, 1.3, 1.0, 1.4), 0.2),
    ):
        problem = random_problem(Architecture((2, 2), widths, variances, channels=3), rng)
        space = space_of(replace(problem, temperature=temperature))
        begun.append(sampled(space, settings, SPLIT_HMC))
    first, second = begun
    assert first.chunks[0].compiled
    assert not any(chunk.compiled for chunk in second.chunks)
    assert np.all(first.statistics["lp"] != second.statistics["lp"])
