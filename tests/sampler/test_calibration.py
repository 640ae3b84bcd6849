"""Simulation-based calibration of all three spaces, and two errors that it must find."""

import pytest

from tests.calibration import (
    CalibrationProblem,
    OrderParameterCalibration,
    UpperWeightCalibration,
    WeightCalibration,
    calibration_ranks,
    uniformity,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
SPACES = {
    "order_parameters": OrderParameterCalibration,
    "upper_weights": UpperWeightCalibration,
    "weights": WeightCalibration,
}
DATA_SETS = 256
SMALLEST_P = 1e-3


@pytest.mark.parametrize("space", SPACES)
def test_ranks_of_the_truth_are_uniform(space):
    problem = CalibrationProblem.small()
    ranks = calibration_ranks(SPACES[space](problem), problem, DATA_SETS, seed=1)
    received = uniformity(ranks)
    print(space, {name: f"{p:.3g}" for name, p in received.items()})
    assert min(received.values()) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.parametrize("error", ["temperature x 1.3", "degrees of freedom + 2"])
def test_calibration_finds_a_wrong_model(error):
    problem = CalibrationProblem.small()
    wrong = (
        problem.misjudging_temperature(1.3)
        if error.startswith("temperature")
        else problem.misjudging_degrees(2)
    )
    ranks = calibration_ranks(OrderParameterCalibration(wrong), wrong, 1024, seed=2)
    received = uniformity(ranks)
    print(error, {name: f"{p:.3g}" for name, p in received.items()})
    assert min(received.values()) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
