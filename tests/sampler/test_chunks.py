"""Chains in chunks: the same numbers as NumPyro's own loop, whatever the length of a chunk."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import HMC, MCMC, NUTS, init_to_sample

from sampler.mcmc import chunks
from sampler.mcmc.chunks import sample_in_chunks
from sampler.mcmc.settings import ChainSettings
from sampler.posterior.weight_space import weight_space
from tests.problems import random_problem
from theory import Architecture

ARCHITECTURE = Architecture((1, 2), (2, 3, 2), (1.1, 0.8, 1.2, 0.9), channels=3)
# Static trajectories compile much faster than NUTS, and chunks do not know the difference.
SETTINGS = ChainSettings(
    algorithm="hmc",
    chains=2,
    warmup=21,
    draws=14,
    seed=7,
    max_tree_depth=4,
    leapfrog_steps=5,
)


def small_space(rng, precision="float64"):
    problem = random_problem(ARCHITECTURE, rng).astype(precision)
    test = jnp.asarray(rng.standard_normal((2, 2, 3)), precision)
    return weight_space(problem, test, keep_weights=True)


def sampled(space, settings):
    """All chunks, and the draws and statistics of both phases joined."""
    received = []
    sample_in_chunks(space, settings, received.append)

    def joined(phase, part):
        of_phase = [getattr(chunk, part) for chunk in received if chunk.phase == phase]
        names = of_phase[0] if of_phase else ()
        return {name: np.concatenate([c[name] for c in of_phase], axis=1) for name in names}

    draws = joined("draws", "observables")
    return received, draws, joined("draws", "statistics"), joined("warmup", "statistics")


def assert_same(received, expected):
    assert set(received) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(received[name], values, err_msg=name)


@pytest.mark.parametrize("algorithm", ["nuts", "hmc"])
def test_chains_are_bitwise_those_of_numpyro(algorithm, rng):
    space = small_space(rng)
    settings = replace(SETTINGS, algorithm=algorithm)
    _, draws, statistics, _ = sampled(space, settings)
    kernel_type = {
        "nuts": partial(NUTS, max_tree_depth=4),
        "hmc": partial(HMC, num_steps=5, trajectory_length=None),
    }[algorithm]
    mcmc = MCMC(
        kernel_type(space.model, init_strategy=init_to_sample()),
        num_warmup=settings.warmup,
        num_samples=settings.draws,
        num_chains=settings.chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    chain_key, _ = jax.random.split(jax.random.key(settings.seed))
    extra = ("num_steps", "diverging", "accept_prob", "potential_energy", "energy")
    keys = jax.random.split(chain_key, settings.chains)
    mcmc.run(keys, *space.arguments, extra_fields=extra)
    expected = mcmc.get_samples(group_by_chain=True)
    assert_same({name: draws[name] for name in expected}, expected)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    np.testing.assert_array_equal(statistics["n_steps"], fields["num_steps"])
    np.testing.assert_array_equal(statistics["diverging"], fields["diverging"])
    np.testing.assert_array_equal(statistics["acceptance_rate"], fields["accept_prob"])
    np.testing.assert_array_equal(statistics["energy"], fields["energy"])
    np.testing.assert_array_equal(statistics["lp"], -fields["potential_energy"])
    assert not np.array_equal(draws["V_1"][0], draws["V_1"][1]), "chains must differ"


def noisy_observation(key, position, *_):
    """Something that depends on the key of the draw, as drawing weights back does."""
    return {"a": position["a"], "noise": jax.random.normal(key, (2,))}


def test_results_do_not_depend_on_the_length_of_chunks(rng, monkeypatch):
    space = replace(small_space(rng), observe=noisy_observation)
    default, *expected = sampled(space, SETTINGS)
    check_phases(default)
    monkeypatch.setattr(chunks, "CHUNK_DRAWS", 3)
    shorter, *received = sampled(space, SETTINGS)
    assert max(chunk.draws for chunk in shorter) == 3 < max(chunk.draws for chunk in default)
    for one, other in zip(received, expected, strict=True):
        assert_same(one, other)
    monkeypatch.setattr(chunks, "CHUNK_SECONDS", 0.0)
    hurried, *received = sampled(space, SETTINGS)
    check_phases(hurried)
    assert len(hurried) > len(shorter)
    for one, other in zip(received, expected, strict=True):
        assert_same(one, other)
    noise = expected[0]["noise"].reshape(-1)
    assert np.unique(noise).size == noise.size, "every draw of every chain has a key of its own"


def check_phases(received):
    """Chunks count up to the end of each phase, and only the first one compiles."""
    for phase, total in (("warmup", SETTINGS.warmup), ("draws", SETTINGS.draws)):
        of_phase = [chunk for chunk in received if chunk.phase == phase]
        done = np.cumsum([chunk.draws for chunk in of_phase])
        assert [chunk.done for chunk in of_phase] == done.tolist()
        assert done[-1] == total == of_phase[-1].total
    assert all(not chunk.observables for chunk in received if chunk.phase == "warmup")
    assert [chunk.compiled for chunk in received] == [True] + [False] * (len(received) - 1)


def test_thinning_keeps_every_kth_draw_and_counts_every_step(rng):
    space = small_space(rng)
    thinning = 3
    _, every, all_statistics, _ = sampled(space, replace(SETTINGS, draws=4 * thinning))
    _, kept, statistics, _ = sampled(space, replace(SETTINGS, draws=4, thinning=thinning))
    assert_same(kept, {name: values[:, thinning - 1 :: thinning] for name, values in every.items()})
    steps = all_statistics["n_steps"].reshape(SETTINGS.chains, 4, thinning).sum(axis=2)
    np.testing.assert_array_equal(statistics["n_steps"], steps)
    diverging = all_statistics["diverging"].reshape(SETTINGS.chains, 4, thinning).any(axis=2)
    np.testing.assert_array_equal(statistics["diverging"], diverging)
    last = all_statistics["n_steps"][:, thinning - 1 :: thinning]
    np.testing.assert_array_equal(statistics["trajectory_steps"], last)


def test_single_precision_throughout(rng):
    with jax.enable_x64(False):
        _, draws, statistics, _ = sampled(small_space(rng, "float32"), SETTINGS)
    assert {values.dtype for values in draws.values()} == {np.dtype("float32")}
    assert all(np.isfinite(values).all() for values in draws.values())
    assert statistics["lp"].dtype == np.float32


def test_one_chain_without_warmup(rng):
    space = small_space(rng)
    settings = replace(SETTINGS, chains=1, warmup=0, draws=5)
    received, draws, _, _ = sampled(space, settings)
    assert {chunk.phase for chunk in received} == {"draws"}
    assert draws["order_parameter"].shape == (1, 5, 2, 2)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("algorithm", "gibbs", "'nuts' or 'hmc'"),
        ("chains", 0, "chains = 0: must be at least 1"),
        ("draws", 0, "draws = 0"),
        ("thinning", 0, "thinning = 0"),
        ("warmup", -1, "warmup = -1: must not be negative"),
        ("target_acceptance", 1.0, "target_acceptance = 1.0"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(setting, value, message, without_annotation_checks):
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **{setting: value})
