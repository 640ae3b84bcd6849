"""Draws without data: order parameters and labels have the moments of their prior.

E U_l = σ_l² … σ_a² 1 at any width, and given U_1 labels have the covariance
K_{(x,c),(x',c')} = Σ_ππ' U_1^{(π,c),(π',c')} φ^π(x)·φ^π'(x'), 𝒯 added on its diagonal.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from sampler.data.examples import Examples
from sampler.problem import Problem, attended_blocks
from tests.problems import ARCHITECTURES, random_problem
from theory.learning_problem import compress

COUNT = 4000
# The worst of all entries, of which there are a few hundred.
LIMIT = 4.5


def worst(values: np.ndarray, expected: np.ndarray | float = 0.0) -> float:
    """The largest |mean − expected| in its standard errors."""
    error = values.std(axis=0) / len(values) ** 0.5
    return float(np.max(np.abs(values.mean(axis=0) - expected)[error > 0] / error[error > 0]))


@pytest.mark.parametrize("name", ["narrow", "two layers, three outputs"])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_order_parameters_and_labels_have_the_moments_of_their_prior(name, spread, rng):
    arch = ARCHITECTURES[name]
    problem = random_problem(arch, rng, examples=3, temperature=0.3)
    problem = replace(problem, temperature_spread=spread)
    drawn = Problem(problem, problem.attended[:1], None, (), ())
    drawn = drawn.prior_draws(COUNT, 5, "order_parameters")
    names = [n for n in drawn if n.endswith("order_parameter") or n.startswith("order_parameter_")]
    assert len(names) == arch.layers + 1
    scales = np.cumprod(arch.order_parameter_variances[::-1])[::-1]
    for overlap, scale in zip((drawn[n] for n in names), scales, strict=True):
        assert worst(overlap, scale * np.eye(overlap.shape[1])) < LIMIT

    temperature = np.full(COUNT, 0.3)
    if spread:
        temperature = drawn["temperature"]
        assert worst(np.log(temperature / 0.3)) < LIMIT
        assert np.log(temperature / 0.3).std() == pytest.approx(spread, rel=0.06)
    features = np.asarray(problem.features)
    outputs, paths = arch.outputs, arch.path_count
    overlap = drawn["order_parameter"].reshape(COUNT, paths, outputs, paths, outputs)
    labels = drawn["posterior_predictive"].astype(float)
    assert labels.shape == (COUNT, 3, outputs)
    missing = np.einsum("sxc,syd->sxcyd", labels, labels)
    for p in range(paths):
        for q in range(paths):
            kernel = features[:, p] @ features[:, q].T
            missing -= np.einsum("scd,xy->sxcyd", overlap[:, p, :, q, :], kernel)
    for x in range(3):
        for c in range(outputs):
            missing[:, x, c, x, c] -= temperature
    trace = np.einsum("spcpc->s", overlap)
    for weight in (1.0, trace, temperature):
        assert worst(missing * np.reshape(weight, (-1, 1, 1, 1, 1))) < LIMIT


def test_labels_are_those_of_the_examples_where_rows_stand_for_them(rng):
    """Twenty examples of a network of few features: as many labels, of their own covariance."""
    arch = ARCHITECTURES["one head"]
    whole = random_problem(arch, rng, examples=20, temperature=0.3)
    problem = compress(whole)
    assert len(problem.labels) < 20
    split = Examples(np.asarray(whole.attended), np.asarray(whole.labels), path_heads=arch.heads)
    examples = partial(attended_blocks, split, "last", ())
    drawn = Problem(problem, whole.attended[:1], None, (), (), whole=examples)
    drawn = drawn.prior_draws(COUNT, 5, "order_parameters")
    labels = drawn["posterior_predictive"][..., 0].astype(float)
    features = np.asarray(whole.features)[:, 0]
    expected = drawn["order_parameter"][:, 0, 0, None, None] * (features @ features.T)
    missing = labels[:, :, None] * labels[:, None, :] - expected - 0.3 * np.eye(20)
    assert worst(missing) < LIMIT
