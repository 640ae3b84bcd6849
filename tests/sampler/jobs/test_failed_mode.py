"""A search for the mode that failed is named by the verdict."""

import numpy as np
import pytest

import sampler
from sampler.jobs.stages import diagnose_stage

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize(
    ("scale", "width", "temperature", "converges"),
    [(1.0, 5, 0.1, True), (1e6, 2, 1e-6, False)],
    ids=["of ordinary labels", "of labels of a million"],
)
def test_the_verdict_names_a_search_that_failed(scale, width, temperature, converges):
    rng = np.random.default_rng(1)
    attended, labels = rng.standard_normal((60, 4, 3)), scale * rng.standard_normal(60)
    task = sampler.arrays_task(
        attended_train=attended, labels_train=labels, attended_test=attended[:5],
        labels_test=labels[:5], heads=[2, 2],
    )  # fmt: skip
    network = sampler.make_network(widths=width, temperature=temperature)
    drawn = sampler.sample(
        task, network, space="order_parameters", algorithm="split_hmc", draws=10, warmup=10,
        progress=False,
    )  # fmt: skip
    remarks = diagnose_stage(drawn).remarks
    assert any("mode search" in remark for remark in remarks) is not converges
    assert bool(drawn["sample_stats"].attrs["mode_converged"]) is converges
