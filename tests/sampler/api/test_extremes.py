"""Temperatures and data of extreme size: numbers that mean something, or one sentence."""

import numpy as np
import pytest

import sampler
from sampler.errors import InputError

FEW = {"draws": 30, "warmup": 30, "progress": False}


def extreme_recipe(temperature, *, inputs=1.0, labels=1.0):
    rng = np.random.default_rng(1)
    attended = rng.standard_normal((20, 4, 3))
    signs = np.sign(attended[:, 0, 0])
    task = sampler.Arrays(
        attended=inputs * attended,
        labels=labels * signs,
        attended_test=inputs * (attended[:5] + 0.1),
        labels_test=labels * signs[:5],
        heads=[2, 2],
    )
    return sampler.Recipe(task=task, network={"widths": 5}, posterior={"temperature": temperature})


# The trace of K is 17: 𝒯 is lost below 4e-15. Of 1e150 squares are known, and sums of them.
EXTREME = [
    {"temperature": 1e-16},
    {"temperature": 0.2, "inputs": 1e150},
    {"temperature": 0.2, "labels": 1e150},
]


@pytest.mark.parametrize("extreme", EXTREME)
@pytest.mark.parametrize("algorithm", ["theory", "auto"])
def test_what_cannot_be_factorised_is_refused(extreme, algorithm):
    recipe = extreme_recipe(**extreme)
    function, settings = sampler.sample, {"algorithm": algorithm, **FEW}
    if algorithm == "theory":
        function, settings = sampler.solve, {}
    with pytest.raises(InputError, match="scale inputs and labels to a size of about 1") as caught:
        function(recipe, **settings)
    assert caught.value.field == "posterior.temperature"
    assert caught.value.value == extreme["temperature"]


@pytest.mark.slow
def test_at_the_lowest_temperature_results_are_compared():
    """No variance is negative and no probability is NaN."""
    recipe = extreme_recipe(4e-15)
    theory = sampler.solve(recipe)
    for name in ("leading", "infinite", "infinite_tuned"):
        assert (theory["predictor_variance"].sel(predictor=name) >= 0.0).all()
    assert np.isfinite(theory["elpd_by_example"].sel(predictor="infinite")).all()
    few = FEW | {"chains": 2, "draws": 10, "warmup": 10, "space": "order_parameters"}
    draws = sampler.sample(recipe, **few)
    comparison = sampler.compare(theory, draws)
    for score in ("log_predictive_density", "expected_calibration_error"):
        for predictor in ("leading", "infinite", "sampled"):
            assert np.isfinite(comparison.rows[score, predictor]["value"])
