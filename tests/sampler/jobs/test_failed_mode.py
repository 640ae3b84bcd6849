"""A search for the mode that failed is named by the verdict."""

import numpy as np
import pytest

import sampler
from sampler.jobs.stages import diagnose_stage

pytestmark = pytest.mark.heavy


def test_the_verdict_names_a_search_that_failed():
    """Of labels of a million."""
    rng = np.random.default_rng(1)
    attended, labels = rng.standard_normal((60, 4, 3)), 1e6 * rng.standard_normal(60)
    recipe = sampler.Recipe(
        task=sampler.Arrays(
            attended=attended, labels=labels, heads=[2, 2],
            attended_test=attended[:5], labels_test=labels[:5],
        ),
        network={"widths": 2},
        posterior={"temperature": 1e-6},
        sampler={
            "space": "order_parameters", "algorithm": "split_hmc", "draws": 10, "warmup": 10,
        },
    )  # fmt: skip
    drawn = sampler.sample(recipe, progress=False)
    remarks = diagnose_stage(drawn).remarks
    assert any("mode search" in remark for remark in remarks)
    assert not drawn["sample_stats"].attrs["mode_converged"]
