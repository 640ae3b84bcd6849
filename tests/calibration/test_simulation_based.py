"""Ranks of the truth are uniform in every space, by every algorithm; errors are found.

A case is a network, a space, an algorithm, and what is wrongly believed in its negative control.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.mcmc.split_hmc import Begin, SplitChain, trajectory
from sampler.posterior.space import Gaussian
from sampler.problem import Problem
from sampler.settings.network_sections import Mlp
from tests.calibration.simulation import (
    KEPT,
    REPETITIONS,
    WARMUP,
    Calibration,
    InfiniteCalibration,
    ranks_by_chains,
    ranks_by_particles,
    uniformity,
)
from tests.recipes import learned_problem
from tests.token_networks import (
    KINDS,
    Learned,
    data_of,
    network_of,
    problem_of_splits,
    random_token_problem,
    split_of,
)
from theory import Architecture, LearningProblem

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
# Of the smallest of all values of a case, by Bonferroni.
SMALLEST_P = 1e-3
SPLIT = SplitChain(chains=1, warmup=WARMUP, target_acceptance=0.9, max_steps=64)
TEMPERED = "tempered"


class Unadjusted(SplitChain):
    """Every trajectory is accepted, whatever its energy."""

    def advance(self, shared, state, space, mean):
        key, kick = jax.random.split(state["key"])
        momentum = jax.random.normal(kick, state["z"].shape)
        standard = Gaussian.standard(state["z"])
        here, step = state["z"], jnp.asarray(0.8)
        begin = Begin(-state["lp"], state["slope"], jnp.isnan(state["lp"]))
        z, _, potential, slope, _ = trajectory(here, momentum, begin, standard, step, 2, space)
        new = {"key": key, "z": z, "lp": -potential, "slope": slope}
        return shared, new, {}


# --- networks, and what is wrongly believed of them


def fixed(spread: float = 0.0) -> Problem:
    """Two layers, unequal heads, widths and variances; a few examples."""
    rng = np.random.default_rng(0)
    architecture = Architecture((2, 1), (4, 3, 3), (1.3, 0.8, 1.2, 1.5), channels=3)
    shape = (8, architecture.path_count, architecture.channels)
    attended, test = rng.standard_normal(shape), rng.standard_normal((1, *shape[1:]))
    learning = LearningProblem(
        architecture, jnp.asarray(attended), jnp.zeros((8, 1)), 0.2, temperature_spread=spread
    )
    return Problem(learning, test, None, (), ())


def changed(problem: Problem, **changes) -> Problem:
    return replace(problem, learning=replace(problem.learning, **changes))


def hotter(problem: Problem) -> Problem:
    return changed(problem, temperature=1.3 * problem.temperature)


def less_known(problem: Problem) -> Problem:
    return changed(problem, temperature_spread=1.5 * problem.learning.temperature_spread)


def larger_readout(problem, factor: float = 10.0):
    *others, readout = problem.architecture.variances
    architecture = replace(problem.architecture, variances=(*others, factor * readout))
    if isinstance(problem, Problem):
        return changed(problem, architecture=architecture)
    return replace(problem, network=replace(problem.network, architecture=architecture))


def learned(widths=4):
    """Two learned heads, whose logits depend on positions."""
    task = {
        "kind": "markov_chain", "tokens": 4, "features": 4, "examples_train": 12,
        "examples_test": 2,
    }  # fmt: skip
    return learned_problem(
        task=task,
        heads=(("learned", "learned"),),
        widths=widths,
        attention={"learned": {"form": "positions", "variance": 2.0}},
        posterior={"temperature": 0.02},
    )


def narrower_logits(problem):
    attention = problem.data.attention
    attention = replace(attention, scale=attention.scale / 10.0)
    return replace(problem, data=replace(problem.data, attention=attention))


# As many channels as units, so that heads that read inputs have as many weights as others.
BLOCK = Architecture((2,), (3, 3), (1.3, 0.8, 1.5), channels=3)
# Little depends on logits: it takes one head, one token read and more examples to tell them apart.
STREAM = Learned("full", ((True,),), stream=True, scale=(2.0,))


def block(**settings):
    """A network of blocks, or the plain one; with `stream`, of one head that reads it or not."""
    heads, examples = None, 8
    if "stream" in settings:
        examples = 24
        network = network_of(replace(BLOCK, heads=(1,)), readout="last")
        heads = STREAM.heads(network, 3)
        network = replace(network, logits=heads.sites, stream=settings["stream"])
    else:
        network = network_of(BLOCK, readout="mean", **settings)
    rng = np.random.default_rng(5)
    train, test = (split_of(data_of(network, rng, n, 3), heads) for n in (examples, 1))
    return problem_of_splits(network, train, jnp.zeros((examples, 1)), 0.05, test)


def hidden(kind: str):
    return random_token_problem(kind, np.random.default_rng(0), examples=6, temperature=0.2)


# --- all cases


@dataclass(frozen=True)
class Case:
    """by: the algorithm, of which None is NumPyro's NUTS; wrong: the problem as it is mistaken."""

    make: Callable
    space: str
    by: SplitChain | str | None
    wrong: Callable | None
    data_sets: int = 128
    data_sets_wrong: int = 64
    nightly: bool = False


ORDER_PARAMETERS, HIDDEN, WEIGHTS = "order_parameters", "hidden_weights", "weights"
CASES = {
    "order parameters, NUTS": Case(fixed, ORDER_PARAMETERS, None, larger_readout),
    "weights, split HMC": Case(fixed, WEIGHTS, SPLIT, larger_readout),
    "attention at infinite width": Case(
        lambda: learned("infinite"), "attention", SPLIT, narrower_logits
    ),
    "tempered": Case(fixed, ORDER_PARAMETERS, TEMPERED, larger_readout, 64, 32),
    # The residual of a weight draw shows the temperature; p(y | U_1) hardly does, since the noise
    # of the labels is common to the truth and to all draws.
    "weights, a wrong temperature": Case(fixed, WEIGHTS, SPLIT, hotter, 128, 512, nightly=True),
    "a sampled temperature": Case(
        lambda: fixed(0.5), ORDER_PARAMETERS, SPLIT, less_known, 128, 256, True
    ),
    "tempered, learned heads": Case(
        learned, ORDER_PARAMETERS, TEMPERED, narrower_logits, 64, 32, True
    ),
}
for kind in KINDS:
    CASES[f"hidden weights, {kind}"] = Case(
        lambda kind=kind: hidden(kind), HIDDEN, SPLIT,
        (lambda one: larger_readout(one, 3.0)) if kind == "relu" else None,
        data_sets_wrong=128, nightly=kind != "relu",
    )  # fmt: skip
for name, settings in {
    "norm before": {"norm": "before"}, "norm after": {"norm": "after"},
    "residual": {"residual": True}, "MLP": {"mlp": Mlp(width=4, activation="gelu")},
    "stream": {"stream": True},
}.items():  # fmt: skip
    other = {"stream": False} if name == "stream" else {}
    CASES[name] = Case(
        lambda of=settings: block(**of), WEIGHTS, SPLIT,
        lambda _, of=other: block(**of), data_sets_wrong=256 if name == "stream" else 64,
        nightly=True,
    )  # fmt: skip


def p_values(case: Case, wrong: bool, seed: int, by=None) -> dict[str, float]:
    problem, data_sets = case.make(), case.data_sets_wrong if wrong else case.data_sets
    kind = InfiniteCalibration if case.space == "attention" else Calibration
    calibrated = kind(problem, case.wrong(problem) if wrong else problem, case.space)
    if case.by == TEMPERED:
        ranks, largest = ranks_by_particles(calibrated, data_sets, seed), REPETITIONS
    else:
        ranks, largest = ranks_by_chains(calibrated, data_sets, seed, by or case.by), KEPT
    found = uniformity(ranks, largest, calibrated.names)
    print({name: f"{p:.3g}" for name, p in found.items()})
    return found


def smallest(values: dict[str, float]) -> float:
    """The p-value of the smallest of several."""
    return min(1.0, len(values) * min(values.values()))


def cases(wrong: bool) -> list:
    """Those of the wrong say that ranks have power, which changes of the program hardly touch."""
    return [
        pytest.param(name, marks=[pytest.mark.nightly] if wrong or case.nightly else [])
        for name, case in CASES.items()
        if case.wrong is not None or not wrong
    ]


@pytest.mark.parametrize("name", cases(wrong=False))
def test_ranks_of_the_truth_are_uniform(name):
    received = p_values(CASES[name], wrong=False, seed=1)
    assert smallest(received) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.parametrize("name", cases(wrong=True))
def test_what_is_wrongly_believed_is_found(name):
    received = p_values(CASES[name], wrong=True, seed=2)
    assert smallest(received) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"


def test_trajectories_that_are_never_refused_are_found():
    chain = Unadjusted(SPLIT.chains, SPLIT.warmup, SPLIT.target_acceptance, SPLIT.max_steps)
    received = p_values(CASES["order parameters, NUTS"], wrong=False, seed=6, by=chain)
    assert smallest(received) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
