"""A small named problem and the collected draws of a pretended sampler, for tests of tables."""

from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from sampler.mcmc.algorithm import Chunk
from sampler.mcmc.collected_draws import LIMITS, PREDICTORS, DrawCollector, Limit
from sampler.problem import Problem
from tests.problems import random_network_data
from theory import Architecture, LearningProblem

HEAD_NAMES = (("good", "random"), ("uniform", "random"))
PATH_NAMES = ("good", "adversarial 1", "denoising", "adversarial 2")
TRAIN, TEST = 6, 5
CHAINS, DRAWS = 2, 40
LONG = (4, 1000)


def small_problem(rng, *, outputs: int = 1, labels_test: np.ndarray | None = None) -> Problem:
    """Two layers of two named heads, unequal widths."""
    architecture = Architecture((2, 2), (3, 4, 5), (0.9, 1.5, 0.6, 1.3), 6, outputs)
    attended = random_network_data(architecture, rng, examples=TRAIN + TEST).attended
    labels = jnp.asarray(rng.choice([-1.0, 1.0], (TRAIN, outputs)))
    learning = LearningProblem(architecture, attended[:TRAIN], labels, 0.2)
    return Problem(learning, attended[TRAIN:], labels_test, PATH_NAMES, HEAD_NAMES)


def signs(rng, outputs: int = 1) -> np.ndarray:
    """Test labels that are classes: ±1, or one of several outputs."""
    if outputs == 1:
        return rng.choice([-1.0, 1.0], (TEST, 1))
    return np.eye(outputs)[rng.integers(outputs, size=TEST)]


def random_observables(problem: Problem, rng, draws: int = DRAWS) -> dict[str, np.ndarray]:
    """Independent draws [chain, draw, …] of every quantity that a sampler of weights reports."""
    arch = problem.architecture
    names = ["order_parameter"]
    names += [f"order_parameter_layer_{layer}" for layer in range(2, arch.layers + 1)]
    shape = (CHAINS, draws)
    observables = {}
    for name, size in zip(
        [*names, "readout_order_parameter"], arch.order_parameter_sizes, strict=True
    ):
        rows = rng.standard_normal((*shape, size, size + 2))
        observables[name] = rows @ np.swapaxes(rows, -1, -2)
    observables["predictor"] = 0.1 + rng.standard_normal((*shape, TEST, arch.outputs))
    for name, weight_shape in arch.weight_shapes.items():
        observables[name] = rng.standard_normal((*shape, *weight_shape))
    return observables


def random_pointwise(problem: Problem, rng, draws: int = DRAWS) -> dict[str, np.ndarray]:
    """What such a sampler says of every training example, and the log prior."""
    shape = (CHAINS, draws)
    return {
        "log_likelihood": -1.0 - 0.3 * rng.standard_exponential((*shape, TRAIN)),
        "posterior_predictive": rng.standard_normal((*shape, TRAIN, problem.architecture.outputs)),
        "leave_one_out_predictive": rng.standard_normal(
            (*shape, TRAIN, problem.architecture.outputs)
        ),
        "log_prior": rng.standard_normal(shape),
    }


def healthy_statistics(rng, shape: tuple[int, int] = (CHAINS, DRAWS)) -> dict[str, np.ndarray]:
    """Sampler statistics of chains that move freely."""
    return {
        "lp": rng.standard_normal(shape),
        "energy": rng.standard_normal(shape),
        "acceptance_rate": rng.uniform(0.7, 1.0, shape),
        "diverging": np.zeros(shape, bool),
        "n_steps": np.full(shape, 7),
        "trajectory_steps": np.full(shape, 7),
        "step_size": np.full(shape, 0.3),
        "lost": np.zeros(shape, bool),
    }


def within(size: int, names: Sequence[str] = PREDICTORS) -> dict[str, Limit]:
    """Limits of what is kept, with so many bytes for each of these, by default of predictors."""
    return {**LIMITS, **dict.fromkeys(names, Limit(size))}


def collect(observables: dict, statistics: dict, *, pieces: int = 4, **settings) -> DrawCollector:
    """Hand draws to a collector in chunks, after a warm-up of one chunk."""
    draws = statistics["lp"].shape[1]
    collector = DrawCollector(**settings)
    collector(Chunk("warmup", draws, draws, statistics, seconds=1.0))
    ends = np.linspace(0, draws, pieces + 1).astype(int)
    for start, end in pairwise(ends):
        cut = [{k: v[:, start:end] for k, v in part.items()} for part in (statistics, observables)]
        collector(Chunk("draws", int(end), draws, *cut, seconds=0.5))
    return collector


def autoregressive(rng, coefficient, shape=LONG):
    """Stationary AR(1) chains of unit variance."""
    noise = rng.standard_normal(shape)
    values = np.empty(shape)
    values[:, 0] = noise[:, 0]
    for step in range(1, shape[1]):
        innovation = np.sqrt(1 - coefficient**2) * noise[:, step]
        values[:, step] = coefficient * values[:, step - 1] + innovation
    return values
