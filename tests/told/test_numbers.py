"""Every cell of a comparison is what plain arrays say by the definitions, stored and read back."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.comparison import ComparisonTree
from sampler.analysis.results import RunResults
from sampler.jobs.stages import compare_stage
from tests.assertions import assert_equal_to_rounding
from tests.told import expected
from tests.told.differences import difference, largest_by_chance, relative_elements
from tests.told.run import KINDS, SHAPES, TEST, Told, made, write

# Quantities of which a difference as a whole is told, and its unit.
DIFFERENCES = {
    "order_parameter": "%", "order_parameter_layer_2": "%", "readout_order_parameter": "%",
    "predictor_mean": "%", "predictor_variance": "%", "head_score": "%", "accuracy": "points",
    "log_predictive_density": "nats",
}  # fmt: skip
ORDER = ("leading", "next", "sampled", "infinite", "infinite_tuned")
# Functions whose error comes from a bootstrap, which is not the same twice.
ROUNDINGS = {"operations": 1e5, "condition": 100}


@pytest.fixture(scope="module", params=KINDS)
def run(request, tmp_path_factory) -> tuple[Told, xr.DataTree, dict, dict]:
    """Arrays, the comparison that the program stores of them, and what it should be."""
    told = made(request.param, temperature_sampled=request.param == "repetitions")
    directory = write(told, tmp_path_factory.mktemp(request.param))
    compare_stage(RunResults(directory))
    with xr.open_datatree(directory / "comparison.nc", engine="h5netcdf") as tree:
        return told, tree.load(), expected.sampled(told), expected.predicted(told)


def cells(run, name: str) -> xr.DataArray:
    return run[1]["summary"][name]


def test_the_summary_has_every_quantity_and_predictor(run):
    """States are those of differences; of the samples they say what is not trusted."""
    summary = run[1]["summary"]
    assert set(summary["quantity"].values) == set(run[2])
    assert tuple(summary["predictor"].values) == ORDER
    states = summary["state"].transpose("quantity", "predictor")
    said = (states.sel(predictor=[who for who in ORDER if who != "sampled"]) != "").any("predictor")
    assert {str(name) for name in summary["quantity"].values[said.values]} == set(DIFFERENCES)
    others = summary.sel(predictor=["infinite", "infinite_tuned"])
    assert others["difference"].isnull().all(), "infinite width is another network"
    # Of the samples a state says what is not trusted: here examples whose k is too large.
    of_samples = states.sel(predictor="sampled")
    untrusted = {str(name) for name in summary["quantity"].values[(of_samples != "").values]}
    assert untrusted == (set() if run[0].kind == "repetitions" else {"elpd"})
    assert set(of_samples.values) <= {"", "not trusted"}


def test_a_verdict_knows_the_smallest_width_and_of_a_temperature_that_was_sampled(run):
    told, tree, *_ = run
    assert tree.attrs["width"] == told.width
    assert tree.attrs["temperature_sampled"] == ("temperature" in told.drawn)


def test_values_and_their_errors(run):
    """Of every number by every predictor; of an array its size is the value."""
    _, _, sampled, predicted = run
    for quantity, of_samples in sampled.items():
        for who, one in {**predicted.get(quantity, {}), "sampled": of_samples}.items():
            at, where = {"quantity": quantity, "predictor": who}, f"{quantity}, {who}"
            received = {n: float(cells(run, n).sel(at)) for n in ("value", "error", "test_error")}
            size = np.sqrt(np.nansum(np.square(one.value)))
            value = size if np.ndim(one.value) else one.value
            assert_equal_to_rounding(
                received["value"], value, scale=max(1.0, size), what=where, **ROUNDINGS
            )
            if np.ndim(one.value):
                assert np.isnan([received["error"], received["test_error"]]).all(), where
                continue
            pairs = {
                "error": (one.error, one.slack),
                "test_error": (one.test_error, one.test_slack),
            }
            for name, (error, slack) in pairs.items():
                assert_error(received[name], error, slack, f"{name} of {where}")
        for who in set(ORDER) - {*predicted.get(quantity, {}), "sampled"}:
            at = {"quantity": quantity, "predictor": who}
            assert np.isnan(cells(run, "value").sel(at)), at


def assert_error(received, error, slack: float, what: str) -> None:
    """Equal to rounding, or to what two bootstraps of the same may differ by."""
    received, error = np.asarray(received), np.asarray(error)
    assert np.array_equal(np.isnan(received), np.isnan(error)), what
    limit = (slack + 1e-9) * np.abs(error) + 1e-12
    close = np.isnan(error) | (np.abs(received - error) <= limit)
    assert close.all(), f"{what}: {received}, expected {error} to {slack:.2g}"


def test_elements_and_their_errors(run):
    _, tree, sampled, predicted = run
    arrays = {name for name, one in sampled.items() if np.ndim(one.value)}
    assert set(tree["elements"].children) == arrays
    for name in arrays:
        table, one = tree["elements"][name], sampled[name]
        for values, exact in (
            (table["sampled"].values, one.value),
            *(
                (table["predicted"].sel(predictor=who).values, of.value)
                for who, of in predicted[name].items()
            ),
        ):
            exact = np.reshape(exact, values.shape)
            assert np.array_equal(np.isnan(values), np.isnan(exact)), name
            shown = ~np.isnan(exact)
            assert_equal_to_rounding(values[shown], exact[shown], what=name, **ROUNDINGS)
        errors = table["error"].values
        assert_error(errors, np.reshape(one.error, errors.shape), one.slack, name)


def test_relative_differences_of_elements(run):
    """Of order parameters: in units of the rows, with the error of the ratio."""
    _, tree, sampled, predicted = run
    for name in (name for name in sampled if "order_parameter" in name):
        table = tree["elements"][name]
        for who, of in predicted[name].items():
            relative, error = relative_elements(of.value, sampled[name])
            here = table.to_dataset().sel(predictor=who)
            assert_equal_to_rounding(here["relative"], relative, what=name, **ROUNDINGS)
            # The third order of a step of a thousandth of an error is left out.
            np.testing.assert_allclose(here["relative_error"], error, rtol=1e-5, err_msg=name)


def test_differences_as_a_whole(run):
    """Size, error, interval, bound, state and pulls of every prediction."""
    chains = SHAPES[run[0].kind][0]
    means = 10 * chains - 1 if run[0].weights is None else chains - 1
    for quantity, unit in DIFFERENCES.items():
        assert str(cells(run, "unit").sel(quantity=quantity).values) == unit
        limits = [
            largest_by_chance(float(compared), float(degrees))
            for compared, degrees in zip(
                *(cells(run, name).sel(quantity=quantity) for name in ("compared", "degrees")),
                strict=True,
            )
            if np.isfinite(compared)
        ]
        received = ComparisonTree(run[1]).largest_by_chance(quantity)
        assert received == pytest.approx(max(limits), rel=1e-9)
        for who, of in theories(run, quantity).items():
            at, where = {"quantity": quantity, "predictor": who}, f"{quantity}, {who}"
            ends = [
                difference(scale * of.value, estimate, means, unit, "order_parameter" in quantity)
                for scale, estimate in estimates(run, quantity)
            ]
            assert str(cells(run, "state").sel(at).values) in [one.pop("state") for one in ends]
            for name in ends[0]:
                received, values = float(cells(run, name).sel(at)), [one[name] for one in ends]
                # To as many digits as the ends of an interval are looked for.
                digits = 1e-6 * max(map(abs, values)) + 1e-9
                between = min(values) - digits <= received <= max(values) + digits
                assert between or np.isnan([received, *values]).all(), f"{name} of {where}"


def theories(run, quantity: str) -> dict[str, expected.Expected]:
    """What theories of this network predict: infinite width is another one."""
    return {who: of for who, of in run[3][quantity].items() if who in ("leading", "next")}


def test_scores_ahead_of_other_networks(run):
    """Those of the samples minus those of infinite width, example by example."""
    told, labels = run[0], run[0].labels["test"]
    mean = run[2]["predictor_mean"].value
    total = expected.label_variance(told)
    ours = expected.scores_by_example(mean, total, labels)
    for who in ("infinite", "infinite_tuned"):
        of = told.predictions[who]
        noise = of["predictor_variance"] + of["temperature"]
        theirs = expected.scores_by_example(of["predictor_mean"], noise, labels)
        gaps = {name: ours[name] - theirs[name] for name in ("accuracy", "log_predictive_density")}
        wanted = {name: (gap.mean(), expected.error_of_mean(gap)) for name, gap in gaps.items()}
        if told.kind == "repetitions":  # elsewhere k is too large for some examples
            gap = told.left_out["elpd"] - of["elpd_by_example"]
            wanted["elpd"] = gap.sum(), expected.error_of_mean(gap) * len(gap)
        for quantity in map(str, run[1]["summary"]["quantity"].values):
            at = {"quantity": quantity, "predictor": who}
            received = [float(cells(run, name).sel(at)) for name in ("ahead", "ahead_error")]
            exact = wanted.get(quantity, (np.nan, np.nan))
            np.testing.assert_allclose(received, exact, rtol=1e-9, atol=1e-12, err_msg=str(at))
    for who in ("leading", "next", "sampled"):
        assert cells(run, "ahead").sel(predictor=who).isnull().all()


def estimates(run, quantity: str) -> list[tuple[float, expected.Expected]]:
    """What predictions are compared with, and what both are multiplied by.

    Errors of a bootstrap are the stored ones, which are tested above; of arrays whose covariance is
    not stored, the smallest and the largest that another bootstrap may have found.
    """
    one = run[2][quantity]
    if quantity == "accuracy":  # in points, and in steps of one example, of which half may be wrong
        stored = float(cells(run, "error").sel(quantity=quantity, predictor="sampled"))
        error = 100 * max(stored, 0.5 / TEST)
        return [(100.0, replace(one, value=100 * one.value, error=error, rows=None))]
    if not one.slack:
        return [(1.0, one)]
    if not np.ndim(one.value):
        stored = float(cells(run, "error").sel(quantity=quantity, predictor="sampled"))
        return [(1.0, replace(one, error=stored))]
    ends = (1.0 - one.slack, 1.0, 1.0 + one.slack)
    return [(1.0, replace(one, error=end * one.error, rows=end * one.rows)) for end in ends]


def test_the_spread_of_a_temperature_is_that_of_the_posterior(run):
    """By the weights of the repetitions, as its mean is."""
    told = run[0]
    spreads = run[1]["summary"]["spread"]
    for quantity in map(str, spreads["quantity"].values):
        spread = float(spreads.sel(quantity=quantity))
        if quantity != "temperature":
            assert np.isnan(spread), quantity
            continue
        variance = expected.variance_of(told.drawn["temperature"], told.weights).value
        assert spread == pytest.approx(np.sqrt(variance), rel=1e-9)
