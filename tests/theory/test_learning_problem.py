"""What a learning problem accepts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.problems import ARCHITECTURES, random_problem
from theory import OrderParameters


@pytest.fixture
def problem(rng):
    return random_problem(ARCHITECTURES["one layer, two outputs"], rng)


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("attended", jnp.ones((6, 2, 5)), r"attended inputs have shape \(6, 2, 5\).*\(6, 3, 5\)"),
        ("attended", jnp.ones((5, 3, 5)), r"attended inputs have shape \(5, 3, 5\)"),
        ("attended", jnp.full((6, 3, 5), jnp.inf), r"attended inputs contain values that are not"),
        ("labels", jnp.ones((6, 1)), r"labels have shape \(6, 1\): need 2 outputs"),
        ("labels", jnp.ones(6), r"labels have shape \(6,\): need \[example, output\]"),
        ("labels", jnp.ones((0, 2)), r"at least one example"),
        ("labels", jnp.full((6, 2), jnp.nan), r"labels contain values that are not finite"),
        ("temperature", 0.0, r"temperature = 0\.0: must be positive and finite"),
        ("temperature", -1.0, r"temperature = -1\.0: must be positive and finite"),
        ("temperature", float("inf"), r"temperature = inf: must be positive and finite"),
    ],
)
def test_data_that_cannot_be_learnt_from_are_refused(problem, field, value, message):
    with pytest.raises(ValueError, match=message):
        replace(problem, **{field: value})


def test_the_precision_of_all_arrays_changes_together(problem):
    single = problem.astype(jnp.float32)
    assert single.attended.dtype == single.labels.dtype == jnp.float32
    factor = jnp.eye(6, dtype=jnp.float32)
    assert single.energy(factor).dtype == jnp.float32
    # single precision agrees with double to its own rounding
    noisy = single.energy.noisy_kernel(factor).cholesky
    condition = np.linalg.cond(np.asarray(noisy, float)) ** 2
    limit = np.finfo(np.float32).eps * problem.labels.size**2 * condition
    expected = float(problem.energy(jnp.eye(6)))
    assert abs(float(single.energy(factor)) - expected) <= limit * max(1, abs(expected))


@pytest.mark.usefixtures("without_annotation_checks")
def test_a_whole_temperature_can_be_differentiated(rng):
    problem = replace(random_problem(ARCHITECTURES["one layer"], rng), temperature=1)
    factor = OrderParameters.gp_limit(problem.architecture).factors[0]
    slope = jax.grad(problem.energy)(factor)
    expected = jax.grad(replace(problem, temperature=1.0).energy)(factor)
    np.testing.assert_array_equal(slope, expected)
