"""Theory against draws: signs, units, and what is left out."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.compared import Compared
from sampler.analysis.comparison import (
    TheoryAndDraws,
    compare_quantities,
    off_diagonal_cosine,
)
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.estimates import Estimate, mean_of, predictor_estimates, variance_of
from sampler.storage.results import to_json
from sampler.storage.run_directory import read_json, write_json
from tests.assertions import assert_equal_to_rounding
from tests.small import (
    collect,
    healthy_statistics,
    random_observables,
    signs,
    small_problem,
)


def theory_beside(draws) -> xr.Dataset:
    """A theory that predicts one half more than the mean of every quantity."""
    columns = {
        name: xr.Variable(
            [f"{name}_{i}" for i in range(values.ndim - 2)], values.mean((0, 1)) + 0.5
        )
        for name, values in draws.items()
        if name != "predictor"
    }
    predictor = draws["predictor"]
    axes = ["test_example", "output"][: predictor.ndim - 2]
    columns["predictor_mean"] = (axes, predictor.mean(axis=(0, 1)) + 0.5)
    columns["predictor_variance"] = (axes, predictor.var(axis=(0, 1), ddof=1) + 0.5)
    columns |= {f"gp_{m}": columns[f"predictor_{m}"] for m in ("mean", "variance")}
    columns |= {"accuracy_theory": ((), 0.8), "accuracy_gp": ((), 0.6)}
    return xr.Dataset(columns)


def stored(rng, outputs=1, **settings) -> TheoryAndDraws:
    """Draws, moments and labels as they come back from `draws.nc`, without a theory."""
    problem = small_problem(rng, outputs=outputs, labels_test=signs(rng, outputs))
    collected = collect(random_observables(problem, rng), healthy_statistics(rng), **settings)
    return TheoryAndDraws(None, draws_tree(problem, collected, {"algorithm": "nuts"}))


def compare_draws(theory, given: TheoryAndDraws) -> dict:
    """The quantities of `comparison.json`."""
    return to_json(compare_quantities(replace(given, theory=theory)))


def test_difference_is_sampled_minus_theory_in_both_units():
    compared = Compared(
        np.array([2.0, -3.0]), Estimate(np.array([1.0, -4.0]), np.array([0.5, 0.25]))
    )
    received = compared.to_json()
    np.testing.assert_array_equal(received["theory"], [2.0, -3.0])
    np.testing.assert_array_equal(received["sampled"], [1.0, -4.0])
    np.testing.assert_array_equal(received["mcse"], [0.5, 0.25])
    np.testing.assert_array_equal(received["difference_in_mcse"], [-2.0, -4.0])
    np.testing.assert_array_equal(received["relative_difference"], [-1.0, -0.25])


@pytest.mark.parametrize("outputs", [1, 2])
def test_every_quantity_is_compared_with_its_own_error(outputs, rng):
    given = stored(rng, outputs)
    draws, labels = given.draws, given.labels_test
    received = compare_draws(theory_beside(draws), given)
    names = {"order_parameter", "order_parameter_layer_2", "readout_order_parameter"}
    expected = {name: mean_of(draws[name]) for name in names}
    expected["predictor_mean"] = mean_of(draws["predictor"])
    expected["predictor_variance"] = variance_of(draws["predictor"])
    for name, estimate in expected.items():
        np.testing.assert_array_equal(received[name]["sampled"], estimate.value)
        np.testing.assert_array_equal(received[name]["mcse"], estimate.mcse)
        assert_equal_to_rounding(
            received[name]["difference_in_mcse"] * estimate.mcse,
            np.full_like(estimate.value, -0.5),
            operations=4,
            scale=np.abs(estimate.value).max() + 1,
        )
    mean = draws["predictor"].mean(axis=(0, 1))
    right = np.sign(mean) == labels[:, 0] if outputs == 1 else mean.argmax(1) == labels.argmax(1)
    assert received["accuracy"]["sampled"]["value"] == right.mean()
    assert received["accuracy"]["theory"] == 0.8
    assert received["accuracy"]["gp"] == 0.6


def test_every_kth_draw_of_a_predictor_gives_its_own_mean_with_its_error(rng):
    """A third of the draws fit, a quarter is kept; other quantities are as before."""
    state = rng.bit_generator.state
    given = stored(rng)
    draws = given.draws
    expected = compare_draws(theory_beside(draws), given)
    rng.bit_generator.state = state
    limit = draws["predictor"].nbytes // 2 // 3
    reduced = stored(rng, kept_bytes=limit)
    assert "predictor" not in reduced.draws
    received = compare_draws(theory_beside(draws), reduced)
    assert set(received) == set(expected)
    kept = mean_of(draws["predictor"][:, ::4])
    np.testing.assert_allclose(received["predictor_mean"]["sampled"], kept.value, rtol=1e-12)
    np.testing.assert_allclose(received["predictor_mean"]["mcse"], kept.mcse, rtol=1e-12)
    np.testing.assert_array_equal(
        received["order_parameter"]["sampled"], expected["order_parameter"]["sampled"]
    )


def test_the_variance_of_the_predictor_is_that_within_and_between_draws(rng):
    """E[v] + Var[m], and its error that of the mean of both together."""
    shape = (2, 40, 5)
    mean, variance = 2.0 * rng.standard_normal(shape), rng.uniform(0.1, 1.0, shape)
    found = predictor_estimates({"predictor_mean": mean, "predictor_variance": variance})
    between = mean.var(axis=(0, 1), ddof=1)
    np.testing.assert_allclose(found.mean.value, mean.mean(axis=(0, 1)), rtol=1e-13)
    np.testing.assert_allclose(found.parts["within"].value, variance.mean(axis=(0, 1)), rtol=1e-13)
    np.testing.assert_allclose(found.parts["between"].value, between, rtol=1e-13)
    total = variance.mean(axis=(0, 1)) + between
    np.testing.assert_allclose(found.variance.value, total, rtol=1e-13)
    each = variance + (mean - mean.mean(axis=(0, 1))) ** 2 * 80 / 79
    np.testing.assert_allclose(found.variance.mcse, mean_of(each).mcse, rtol=1e-12)


def test_cosines_are_those_of_the_elements_off_the_diagonal(rng):
    one, other = rng.standard_normal((2, 3, 3))
    pairs = [(one[i, j], other[i, j]) for i in range(3) for j in range(3) if i != j]
    product = sum(a * b for a, b in pairs)
    sizes = [np.sqrt(sum(pair[k] ** 2 for pair in pairs)) for k in (0, 1)]
    assert off_diagonal_cosine(one, other) == pytest.approx(product / np.prod(sizes), rel=1e-13)


def test_the_theory_that_did_not_converge_is_null_in_strict_json(rng, tmp_path):
    given = stored(rng)
    theory = theory_beside(given.draws) * np.nan
    path = tmp_path / "comparison.json"
    write_json(path, compare_draws(theory, given))

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    received = json.loads(path.read_text(), parse_constant=refuse)
    flat = np.ravel(np.array(received["order_parameter"]["theory"], dtype=object))
    assert set(flat) == {None}
    assert np.isfinite(np.array(received["order_parameter"]["sampled"], dtype=float)).all()
    assert received["accuracy"]["sampled"]["value"] is not None


def test_a_number_without_error_has_no_difference_in_units_of_it(tmp_path):
    compared = Compared(np.array([1.0, 0.0]), Estimate(np.zeros(2), np.zeros(2)))
    write_json(tmp_path / "a.json", compared.to_json())
    received = read_json(tmp_path / "a.json")
    assert received["difference_in_mcse"] == [None, None]
    assert received["relative_difference"] == [None, None]
