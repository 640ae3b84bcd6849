"""Chains that begin where other chains ended: positions, what was learned, and the same law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.mcmc import chunks
from sampler.mcmc.algorithm import Chain, ChainSettings
from sampler.mcmc.chunks import SnapshotMismatch, sample_in_chunks
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.hamiltonian import Nuts, SplitHmc, StaticHmc
from sampler.posterior.spaces import order_parameter_density, weight_density
from tests.problems import all_but, exact_scalar_posterior, scalar_problem
from tests.sampler.mcmc.test_split_hmc import assert_mean

KINDS = {"nuts": Nuts(), "hmc": StaticHmc(leapfrog_steps=5), "split_hmc": SplitHmc()}
CASES = [
    ("nuts", "order_parameters"),
    ("hmc", "weights"),
    ("split_hmc", "order_parameters"),
    ("split_hmc", "weights"),
]
FAST_CASES = [
    pytest.param(case, id="-".join(case), marks=[] if case in CASES[1:3] else pytest.mark.long)
    for case in CASES
]


def density_of(space: str, width: int = 6):
    problem, test = scalar_problem(np.random.default_rng(4), width=width)
    if space == "weights":
        return weight_density(problem, jnp.asarray(test), keep_weights=True)
    return order_parameter_density(problem, jnp.asarray(test))


def run(density, algorithm, start=None, *, chains=2, warmup=60, draws=5, seed=0):
    """The chunks of a run."""
    found = []
    settings = ChainSettings(chains=chains, warmup=warmup, draws=draws, seed=seed)
    sample_in_chunks(algorithm.suited(density), algorithm, settings, found.append, start=start)
    return found


def positions(arrays) -> dict[str, np.ndarray]:
    """Name → [chain, …] of the leaves that say where chains are."""
    return {n: v for n, v in arrays.items() if n == "['z']" or n.startswith(".z[")}


def learned(arrays) -> dict[str, np.ndarray]:
    """Name → values of the leaves that hold step size and masses."""
    words = ("step_size", "mass_matrix", "gaussian", "moments")
    return {n: v for n, v in arrays.items() if any(word in n for word in words)}


@pytest.fixture(scope="module", params=FAST_CASES)
def ended(request):
    """A kind of chains, their density, and the arrays with which two of them ended."""
    kind, space = request.param
    density = density_of(space)
    return KINDS[kind], space, density, run(density, KINDS[kind])[-1].snapshot.arrays


def started(monkeypatch, *arguments, **options) -> tuple[dict, list]:
    """The arrays of the state before the first step, and the chunks made from there."""
    states, begin = [], chunks.started_elsewhere

    def noted(*given):
        states.append(begin(*given))
        return states[-1]

    monkeypatch.setattr(chunks, "started_elsewhere", noted)
    made = run(*arguments, **options)
    return chunks.state_arrays(states[0]), made


@pytest.mark.heavy
def test_they_begin_at_the_last_positions_with_all_that_was_learned(ended, monkeypatch):
    algorithm, _, density, arrays = ended
    first, made = started(monkeypatch, density, algorithm, arrays, warmup=0)
    assert len(positions(first)) >= 1
    assert len(learned(first)) >= 3
    for name, values in {**positions(arrays), **learned(arrays)}.items():
        np.testing.assert_array_equal(first[name], values, err_msg=name)
    if isinstance(algorithm, SplitHmc):  # a further warm-up searches around the step that it has
        np.testing.assert_allclose(
            np.exp(first["shared['steps'][4]"]), arrays["shared['step_size']"], rtol=1e-14
        )
    else:
        np.testing.assert_allclose(
            np.exp(first[".adapt_state.ss_state[4]"]), arrays[".adapt_state.step_size"], rtol=1e-14
        )
    # Without warm-up the step size stays, and the chains move.
    last = made[-1].snapshot.arrays
    for name, values in learned(arrays).items():
        np.testing.assert_array_equal(last[name], values, err_msg=name)
    moved = [(last[n] != v).reshape(len(v), -1) for n, v in positions(arrays).items()]
    assert np.concatenate(moved, axis=1).any(axis=1).all()
    # The random numbers are not those of the first run, though the seed is.
    chain = algorithm.prepared(density, ChainSettings(chains=2, warmup=60))
    fresh = chunks.start_chains(chain, 2, jax.random.key(0), algorithm.suited(density))
    keys = {name: v for name, v in chunks.state_arrays(fresh).items() if name.endswith("key']")}
    assert len(keys) == (2 if isinstance(algorithm, SplitHmc) else 0)
    assert all((first[name] != values).any() for name, values in keys.items())


@pytest.mark.heavy
@pytest.mark.parametrize("ended", CASES[1:3], ids="-".join, indirect=True)
@pytest.mark.parametrize("chains", [1, 5])
def test_positions_are_used_in_turn(ended, chains, monkeypatch):
    algorithm, _, density, arrays = ended
    first, _ = started(monkeypatch, density, algorithm, arrays, warmup=0, chains=chains)
    for name, values in positions(arrays).items():
        expected = values[[0, 1, 0, 1, 0][:chains]]
        np.testing.assert_array_equal(first[name], expected, err_msg=name)


def test_the_first_values_are_those_of_the_new_density(ended, monkeypatch):
    algorithm, space, _, arrays = ended
    if space == "weights":
        return
    wider = density_of(space, width=9)
    first, _ = started(monkeypatch, wider, algorithm, arrays, warmup=0)
    for name, values in positions(arrays).items():
        np.testing.assert_array_equal(first[name], values, err_msg=name)
    name = "['lp']" if "['lp']" in first else ".potential_energy"
    assert (first[name] != arrays[name]).all()


@pytest.mark.heavy
def test_a_short_warmup_adapts_on(ended):
    algorithm, _, density, arrays = ended
    last = run(density, algorithm, arrays, warmup=10, draws=1)[-1].snapshot.arrays
    (name,) = (name for name in last if name.endswith(("['step_size']", ".step_size")))
    ratio = last[name] / arrays[name]
    assert (ratio != 1).all()
    assert (np.abs(np.log(ratio)) < np.log(5)).all()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", all_but(["nuts", "split_hmc"], ["split_hmc"], pytest.mark.long))
def test_the_law_is_that_of_chains_with_a_start_of_their_own(kind):
    """Both agree with quadrature; the start is the last state at another width."""
    algorithm = KINDS[kind]
    problem, test = scalar_problem(np.random.default_rng(4))
    exact = exact_scalar_posterior(problem, test)
    arrays = run(density_of("order_parameters", 9), algorithm, warmup=100)[-1].snapshot.arrays
    found = DrawCollector()
    settings = ChainSettings(chains=4, warmup=0, draws=1500, seed=5)
    density = algorithm.suited(density_of("order_parameters"))
    sample_in_chunks(density, algorithm, settings, found, start=arrays)
    for name, expected in (
        ("order_parameter", exact.order_parameter[0]),
        ("predictor_mean", exact.predictor_mean[:, None]),
    ):
        draws = found.draws[name]
        assert_mean(draws, np.broadcast_to(expected, draws.shape[2:]), f"{name}, {kind}")


@pytest.mark.heavy
def test_other_shapes_and_chains_without_the_method_are_refused(ended, monkeypatch):
    algorithm, space, density, arrays = ended
    if space == "weights":
        with pytest.raises(SnapshotMismatch, match="these chains have float64"):
            run(density_of(space, width=7), algorithm, arrays)
    kind = type(algorithm.prepared(density, ChainSettings()))
    monkeypatch.setattr(kind, "continued", Chain.continued)
    with pytest.raises(SnapshotMismatch, match=f"{kind.__name__} has no method `continued`"):
        run(density, algorithm, arrays)
