"""Every stored number is the same, whether rows stand for the training examples or not."""

from functools import cache

import numpy as np
import pytest

import sampler
import sampler.problem
from theory.infinite_width import TOLERANCE

# Two minima, each with |gradient| ≤ 1e-10 where the smallest eigenvalue of the Hessian is above 1;
# what follows from them magnifies their distance less than a thousand times.
SAME = {"rtol": 1e-7, "atol": 1e-7}
# The search for a temperature ends within this of ln 𝒯.
OF_OWN_TEMPERATURE = {"rtol": 10 * TOLERANCE, "atol": 10 * TOLERANCE}
# Drawn with noise of one number for each row or example.
NOISE = {"predictor", "posterior_predictive/y", "leave_one_out_predictive/y"}
# Of the run, not of what was found; and R-hat of noise.
OF_THE_RUN = {"cost", "diagnostics"}


@cache
def results(folded: bool, sampled: bool):
    """Theory, draws and comparison of 60 examples of twelve features."""
    task = sampler.MarkovChain(
        examples_train=60, examples_test=12, examples_validation=10, tokens=4, features=6
    )
    recipe = sampler.Recipe(
        task=task,
        attention={"heads": [["good", "uniform"]]},
        network={"widths": 9},
        posterior={"temperature": 0.3},
        theory={"subnetworks": [[[0]]]},
        sampler={"chains": 2, "warmup": 30, "draws": 100, "evidence": True},
    )
    with pytest.MonkeyPatch.context() as patch:
        if not folded:
            patch.setattr(sampler.problem, "is_folded", lambda *_: False)
        theory = sampler.solve(recipe)
        if not sampled:
            return theory, None, None
        draws = sampler.sample(recipe, progress=False)
        return theory, draws, sampler.compare(theory, draws)


def assert_same(name: str, received, expected) -> None:
    """A kernel has as many components as rows; of examples, more of them that are not known."""
    received, expected = np.asarray(received), np.asarray(expected)
    if expected.dtype.kind not in "fiu":
        np.testing.assert_array_equal(received, expected, err_msg=name)
        return
    if "kernel_alignment" in name:
        assert np.isnan(expected[len(received) :]).all(), name
        expected = expected[: len(received)]
    limits = OF_OWN_TEMPERATURE if "infinite_tuned" in name else SAME
    np.testing.assert_allclose(received, expected, **limits, err_msg=name)


def leaves(name: str, content):
    """Name and value of every number of nested mappings and sequences of mappings."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from leaves(f"{name}/{key}", value)
    elif isinstance(content, list | tuple) and any(isinstance(one, dict) for one in content):
        for place, value in enumerate(content):
            yield from leaves(f"{name}/{place}", value)
    else:
        yield name, content


@pytest.mark.heavy
def test_the_table_of_the_theory_is_the_same():
    received, expected = results(True, False)[0], results(False, False)[0]
    assert set(received) == set(expected)
    assert received.sizes["component"] < expected.sizes["component"] == 60
    for name, values in expected.items():
        for who in expected["predictor"].values if "predictor" in values.dims else ("",):
            one, other = (
                table[name].sel(predictor=who) if who else table[name]
                for table in (received, expected)
            )
            assert_same(f"{name}, {who}", one, other)


@pytest.mark.long
def test_draws_and_comparison_are_the_same():
    (_, drawn, compared), (_, expected, others) = results(True, True), results(False, True)
    assert set(drawn.children) == set(expected.children)
    for group in expected.children:
        assert set(drawn[group].data_vars) == set(expected[group].data_vars)
        for name, variable in expected[group].data_vars.items():
            if not {str(name), f"{group}/{name}"} & NOISE:
                assert_same(f"{group}/{name}", drawn[group][name], variable)
    contents = (one.to_json() for one in (compared, others))
    found, known = (
        dict(leaves("", {k: v for k, v in content.items() if k not in OF_THE_RUN}))
        for content in contents
    )
    assert set(found) == set(known)
    for name, value in known.items():
        if value is None or isinstance(value, str):
            assert found[name] == value, name
        elif name.startswith("/summary/kernel_alignment"):
            pass  # of one shape with the components of the theory; compared among the draws
        elif "difference_in_mcse" not in name:  # a difference of nearly equal numbers
            assert_same(name, found[name], value)
