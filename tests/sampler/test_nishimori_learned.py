"""Nishimori's identity of tempered particles, where attention is learned.

Data, teacher and its attention are others in every data set; draws are one particle of each of
three repetitions that follow the course of a pilot.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.posterior.initial_distribution import InitialDistribution
from sampler.problem import build_problem
from sampler.teacher import make_labelled_task
from sampler.token_problem import LearnedProblem
from tests.learned import learned_recipe
from tests.nishimori import overlap_scores
from tests.sampler.mcmc.laws import led

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.usefixtures("without_annotation_checks"),
]
DATA_SETS, PARTICLES, WIDTH, TEMPERATURE = 120, 32, 5, 0.02
TASK = {
    "kind": "markov_chain",
    "tokens": 4,
    "features": 4,
    "examples_train": 10,
    "examples_test": 6,
    "labels": "teacher",
}
PILOT = 3


def taught(number: int, believed: float):
    """The teacher of a data set, and the problem that a network of this temperature has."""
    recipe = learned_recipe(
        task={**TASK, "seed": number, "head_seed": number, "teacher_seed": number},
        heads=(("learned", "learned"),),
        widths=WIDTH,
        attention={"learned": {"form": "low_rank", "rank": 1}},
        posterior={"temperature": TEMPERATURE},
    )
    task = make_labelled_task(recipe)
    problem = build_problem(recipe, task)
    outputs = np.concatenate([task.teacher.outputs[name][:, 0] for name in ("train", "test")])
    attention = task.test.attention[0][..., -1]  # [example, head, key], of the token read out
    teacher = attention, task.teacher.order_parameters[0], outputs
    return teacher, replace(problem, temperature=believed)


@jax.jit
def drawn(key, point, space):
    """Attention to the test set, U_1, and f on both sets, of weights given a particle."""
    position, data = space.unflatten(point), space.data
    given = space.given(position, key)
    every = jnp.concatenate([data.train(position), data.test(position)])
    matrices = data.attention.matrices(position, data.tokens_test)[0][..., 0]
    return matrices, given.order_parameters["order_parameter"], given.function(every)[:, 0]


class TemperedDraws:
    """Draws of repetitions of tempered particles, one of each."""

    def draw(self, problem: LearnedProblem, count: int, rng: np.random.Generator):
        """As `IndependentDraws.draw`, and of how many particles they are."""
        space = problem.space("order_parameters")
        law, seed, found = InitialDistribution.prior(space), int(rng.integers(2**31)), []
        course = led(law, PARTICLES, (seed, 0, PILOT)).path
        for number in range(count):
            particles = led(law, PARTICLES, (seed, 0, number), course)
            key = jax.random.fold_in(jax.random.key(seed), number)
            one = drawn(key, jnp.asarray(particles.points[0]), space)
            found.append(tuple(map(np.asarray, one)))
        return found, float(PARTICLES * count)


def overlaps(one, other):
    """Distance of attention, overlap of U_1, distance (training set) and cosine of predictors."""
    (v, first, f), (w, second, g) = one, other
    apart = (f - g)[: TASK["examples_train"]]
    return (
        np.linalg.norm(v - w),
        np.log(np.sum(first * second)),
        np.log(apart @ apart),
        f @ g / np.sqrt((f @ f) * (g @ g)),
    )


@pytest.mark.parametrize("factor", [1.0, 0.1], ids=["the truth", "a tenth of the temperature"])
def test_the_teacher_overlaps_with_a_particle_as_two_particles_do(factor):
    of = partial(taught, believed=factor * TEMPERATURE)
    posterior = TemperedDraws()
    scores = overlap_scores(of, posterior, overlaps, DATA_SETS, np.random.default_rng(7))
    print(scores)
    assert np.max(scores) > 6.0 if factor != 1.0 else np.all(scores < 4.0), scores
