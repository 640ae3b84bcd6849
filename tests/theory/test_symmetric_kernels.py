"""Path kernels of one set with itself, in blocks of rows, against the feature form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from theory import FeatureForm
from theory.path_kernels import SymmetricKernelForm, row_blocks, stored_numbers

PATHS, CHANNELS = 3, 4
EXAMPLES = [1, 64, 65, 200, 530]  # one block, one full block, two, several, more than the least


@pytest.fixture(params=EXAMPLES)
def forms(request, rng):
    features = jnp.asarray(rng.standard_normal((request.param, PATHS, CHANNELS)))
    return FeatureForm(features, None), SymmetricKernelForm.of(features)


@pytest.mark.parametrize("rank", [2, 5])
def test_kernel_and_pull_back_are_those_of_the_features(forms, rank, rng):
    plain, stored = forms
    factor = jnp.asarray(rng.standard_normal((PATHS, rank)))
    kernel, pull_back = stored.kernel_and_pull_back(factor)
    expected, expected_pull_back = plain.kernel_and_pull_back(factor)
    terms = PATHS**2 * CHANNELS * rank
    assert_equal_to_rounding(kernel, expected, operations=terms)
    assert np.array_equal(kernel, kernel.T)
    slope = rng.standard_normal(kernel.shape)
    slope = jnp.asarray(slope + slope.T)
    assert_equal_to_rounding(
        pull_back(slope), expected_pull_back(slope), operations=terms * len(kernel), condition=10
    )


def test_many_factors_at_a_time_are_those_one_by_one(rng):
    features = jnp.asarray(rng.standard_normal((70, PATHS, CHANNELS)))
    form = SymmetricKernelForm.of(features)
    factors = jnp.asarray(rng.standard_normal((4, PATHS, PATHS)))
    together = jax.vmap(form.kernel)(factors)
    alone = jnp.stack([form.kernel(factor) for factor in factors])
    assert_equal_to_rounding(together, alone, operations=PATHS**2 * CHANNELS)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_blocks_cover_every_row_once_and_hold_little_more_than_half(examples):
    blocks = row_blocks(examples)
    assert [row for start, end in blocks for row in range(start, end)] == list(range(examples))
    stored = stored_numbers(examples, PATHS)
    features = jnp.ones((examples, PATHS, 1))
    assert SymmetricKernelForm.of(features).nbytes == 8 * stored
    if examples > 500:
        assert stored < 0.6 * examples**2 * PATHS * (PATHS + 1) / 2
