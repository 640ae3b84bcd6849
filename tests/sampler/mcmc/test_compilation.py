"""Points of a sweep whose arrays have equal shapes are served by the same compiled functions."""

import logging
from dataclasses import replace

import jax
import numpy as np
import pytest

from sampler.mcmc.algorithm import Algorithm
from sampler.posterior.exported import observe_points
from sampler.posterior.importance_sampling import BatchedDensity
from tests.problems import HMC, NUTS, SPLIT_HMC, all_but, chain_settings, random_problem, space_of
from theory import Architecture

SETTINGS = chain_settings(chains=2, warmup=3, draws=3)
WIDE, WIDER = (7, 8, 9), (70, 60, 50)
VARIANCES, OTHERS = (1.1, 0.8, 1.2, 0.9), (0.7, 1.3, 1.0, 1.4)
ALGORITHMS = {
    "nuts": replace(NUTS, max_tree_depth=2),
    "hmc": replace(HMC, leapfrog_steps=2),
    "split_hmc": SPLIT_HMC,
}


@pytest.fixture
def compiled(monkeypatch):
    """Names of the functions that were compiled, as JAX logs them; none were before."""
    jax.clear_caches()
    names = []

    class Reader(logging.Handler):
        def emit(self, record):
            text = record.getMessage()
            if text.startswith("Finished XLA compilation of "):
                names.append(text.split()[4])

    logger, reader = logging.getLogger("jax"), Reader()
    logger.addHandler(reader)
    monkeypatch.setattr(logger, "propagate", False)
    with jax.log_compiles():
        yield names
    logger.removeHandler(reader)


def work(name: str, algorithm: Algorithm, widths, variances, temperature: float, spread=0.0):
    """What a point of a sweep does with a space: its mode, chains, and values at many points."""
    rng = np.random.default_rng(3)
    problem = random_problem(Architecture((2, 2), widths, variances, channels=3), rng)
    problem = replace(problem, temperature=temperature, temperature_spread=spread)
    space = space_of(problem, name, problem.attended[:2])
    draws = []

    def keep(chunk):
        draws.append(chunk.statistics["lp"])

    algorithm.draw(algorithm.suited(space), SETTINGS, keep)
    points = np.zeros((3, space.size))
    observe_points(jax.random.split(jax.random.key(0), 3), points, space)
    if name == "order_parameters":
        BatchedDensity.of(space)(points)
    return space, np.concatenate(draws, axis=1)


@pytest.mark.heavy
@pytest.mark.parametrize("name", all_but(ALGORITHMS, ["split_hmc"], pytest.mark.long))
def test_one_compilation_serves_all_widths_temperatures_and_variances(name, compiled):
    space, algorithm = "order_parameters", ALGORITHMS[name]
    first, draws = work(space, algorithm, WIDE, VARIANCES, 0.3)
    assert "jit(advance)" in compiled
    compiled.clear()
    second, others = work(space, algorithm, WIDER, OTHERS, 0.2)
    assert compiled == []
    assert np.all(draws != others)
    assert np.all(np.asarray(first.mode.gaussian.centre) != np.asarray(second.mode.gaussian.centre))


@pytest.mark.heavy
def test_one_compilation_serves_all_temperatures_and_variances_of_weights(compiled):
    space, algorithm = "hidden_weights", ALGORITHMS["hmc"]
    _, draws = work(space, algorithm, WIDE, VARIANCES, 0.3)
    assert "jit(advance)" in compiled
    compiled.clear()
    _, others = work(space, algorithm, WIDE, OTHERS, 0.2)
    assert compiled == []
    assert np.all(draws != others)
