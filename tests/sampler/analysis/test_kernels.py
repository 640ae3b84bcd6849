"""Kernels and their alignment: of theory and draws the same, with errors that hold."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.analysis import kernels
from sampler.analysis.comparison import compare
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.kernels import (
    kernel_of,
    sampled_alignment_table,
    shown_features,
    similarity_to_draws,
)
from sampler.analysis.kernels import sampled_alignment as sampled_alignment_of
from sampler.analysis.names import label
from sampler.analysis.predictors import along_predictors
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.data.examples import Examples, StreamedExamples, spread_over_labels
from sampler.mcmc.diagnostics import Diagnostics
from sampler.problem import Problem
from tests.dense import dense_kernel
from tests.problems import (
    ARCHITECTURES,
    PATH_NAMES,
    collect,
    healthy_statistics,
    random_observables,
    random_problem,
    small_problem,
)
from theory import Architecture, compress, kernel_alignment

PASSED = Diagnostics("pass", (), (), {}, 2, 40, {})


def showing_all(problem: Problem) -> Problem:
    """The problem with all its training examples shown."""
    learning = problem.learning
    numbers = np.arange(len(learning.labels))
    attended, labels = np.asarray(learning.attended), np.asarray(learning.labels)
    shown = numbers, Examples(attended, labels, path_heads=learning.architecture.heads)
    return replace(problem, shown=shown)


def mean_kernel(problem: Problem, overlap: np.ndarray) -> np.ndarray:
    """K(x, x'), its mean over outputs, by the definition."""
    attended, arch = problem.learning.attended, problem.architecture
    kernel = dense_kernel(attended, attended, np.asarray(overlap), arch)
    size, outputs = len(attended), arch.outputs
    return np.einsum("xcyc->xy", kernel.reshape(size, outputs, size, outputs)) / outputs


@pytest.mark.parametrize("outputs", [1, 2])
def test_kernels_shown_are_those_of_the_network(rng, outputs):
    problem = showing_all(small_problem(rng, outputs=outputs))
    draws = random_observables(problem, rng)
    for overlap in draws["order_parameter"][0, :2]:
        expected = mean_kernel(problem, overlap)
        np.testing.assert_allclose(kernel_of(problem, overlap)["kernel"][1], expected, rtol=1e-10)
    table = shown_features(problem)
    assert tuple(table["kernel_path"].values) == PATH_NAMES
    np.testing.assert_array_equal(table["labels_shown"], problem.labels)


def test_of_many_channels_and_paths_fewer_numbers_are_shown(rng, monkeypatch):
    """Combined channels leave the kernel as it is; of many paths it is that of fewer examples."""
    architecture = Architecture((2,), (4, 5), (0.7, 1.3, 0.6), channels=30)
    learning = random_problem(architecture, rng, examples=8)
    problem = showing_all(Problem(learning, learning.attended[:1], None, ("a", "b"), ()))
    overlap = np.array([[2.0, -0.5], [-0.5, 1.0]])
    expected = mean_kernel(problem, overlap)
    for most, count in ((2**20, 8), (2 * 30 * 3, 6), (10, 2)):
        monkeypatch.setattr(kernels, "MOST_NUMBERS", most)
        table = shown_features(problem)
        assert table.sizes["feature"] == 2 * count < 30
        chosen = table["shown_example"].values
        assert len(chosen) == len(np.unique(chosen)) == count
        np.testing.assert_array_equal(table["labels_shown"], np.asarray(learning.labels)[chosen])
        received = kernel_of(problem, overlap)["kernel"][1]
        np.testing.assert_allclose(received, expected[np.ix_(chosen, chosen)], rtol=1e-10)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_kernel_of_every_theory_is_compared_with_that_of_the_draws(rng, outputs):
    """By definition: K̄ − K of a theory less the noise of the draws, and centred alignments."""
    problem = showing_all(small_problem(rng, outputs=outputs))
    drawn = {"order_parameter": random_observables(problem, rng)["order_parameter"]}
    tree = draws_tree(problem, collect(drawn, healthy_statistics(rng)), {"algorithm": "nuts"})
    overlaps = drawn["order_parameter"]
    centre = overlaps.mean(axis=(0, 1))
    theories = {"leading": 2.0 * centre, "next": centre, "mine": 2.0 * centre}
    rows = ("path", "path_")
    predictions = {
        name: {"order_parameter": (rows, theories[name])} | kernel_of(problem, theories[name])
        for name in ("leading", "next")
    }
    theory = label(along_predictors(predictions), problem).merge(shown_features(problem))
    theory = theory.assign_coords(predictor=list(predictions))
    own = {"mine": {"order_parameter": theories["mine"]}}
    compared = compare(TheoryAndDraws(theory, tree, own), PASSED, {"seconds": 1.0})
    elements, table = compared.elements("kernel"), compared.summary

    of_batches = [part.mean(axis=0) for chain in overlaps for part in np.split(chain, 10)]
    batches = np.stack([mean_kernel(problem, one) for one in of_batches])
    sampled = batches.mean(axis=0)
    np.testing.assert_allclose(elements["sampled"], sampled, rtol=1e-9)
    noise = np.sum(batches.var(axis=0, ddof=1)) / len(batches)
    # Variances by 400 replicates, of which few are independent of each other.
    uncertain = 4.0 * np.sqrt(2.0 / 400) * noise + noise / len(batches)
    middle = np.eye(len(sampled)) - 1.0 / len(sampled)
    for name, overlap in theories.items():
        kernel = mean_kernel(problem, overlap)
        np.testing.assert_allclose(elements["predicted"].sel(predictor=name), kernel, rtol=1e-9)
        cell = table.sel(quantity="kernel", predictor=name)
        square = np.sum((sampled - kernel) ** 2) - noise
        size = np.sum(sampled**2) - noise
        assert abs(float(cell["square"]) - square / size) < uncertain / size
        if square > uncertain:
            assert float(cell["difference"]) == pytest.approx(float(cell["square"]) ** 0.5)
        one, other = middle @ kernel @ middle, middle @ sampled @ middle
        of_centred = np.einsum("ij,bjk,kl->bil", middle, batches - sampled, middle)
        less = np.sum(of_centred**2) / len(batches) / (len(batches) - 1)
        expected = np.sum(one * other) / np.sqrt(np.sum(one**2) * (np.sum(other**2) - less))
        found = table["value"].sel(quantity="kernel_similarity", predictor=name)
        near = 0.5 * 4.0 * np.sqrt(2.0 / 400) * less / np.sum(other**2) + less / len(batches)
        assert float(found) == pytest.approx(expected, abs=near)
    state = table["state"].sel(quantity="kernel")
    assert state.sel(predictor="leading") == "resolved"
    assert state.sel(predictor="next") != "resolved"


def test_a_kernel_that_is_noise_alone_is_like_no_other(rng):
    batches = rng.standard_normal((20, 6, 6))
    assert np.isnan(similarity_to_draws(np.eye(6), batches - batches.mean(axis=0)).value)


@pytest.mark.parametrize("kind", ["one output", "two outputs", "rows"])
def test_alignment_of_draws_is_that_of_their_mean_kernel(kind, rng, monkeypatch):
    """Of all examples, also where fewer rows stand for them, and of the first components."""
    if kind == "rows":
        whole = random_problem(ARCHITECTURES["one head"], rng, examples=9)
        rows = compress(whole)
        assert len(rows.labels) < 9
        problem = Problem(rows, whole.attended[:1], None, (), ())
        drawn = {"order_parameter": rng.uniform(0.5, 2.0, (2, 40, 1, 1))}
    else:
        problem = small_problem(rng, outputs=1 + (kind == "two outputs"))
        whole, drawn = problem.learning, random_observables(problem, rng)
    received = sampled_alignment_of(problem, drawn)["kernel_alignment"]
    mean = drawn["order_parameter"].mean((0, 1))
    kernel = dense_kernel(whole.attended, whole.attended, mean, whole.architecture)
    expected = kernel_alignment(jnp.asarray(kernel), jnp.asarray(whole.labels).reshape(-1))
    np.testing.assert_allclose(received, expected[: len(received)], rtol=1e-8)
    monkeypatch.setattr(kernels, "COMPONENTS", 2)
    monkeypatch.setattr(kernels, "FOLLOWED", 4)
    received = sampled_alignment_of(problem, drawn)["kernel_alignment"]
    np.testing.assert_allclose(received, expected[:2], rtol=1e-8)


def test_errors_of_the_alignment_are_how_far_it_scatters(rng):
    problem = small_problem(rng)
    centre = np.diag([9.0, 4.0, 2.0, 1.0])
    values, errors = [], []
    for _ in range(40):
        noise = rng.standard_normal((20, 4, 4))
        batches = centre + 0.05 * (noise + noise.swapaxes(1, 2))
        table = sampled_alignment_table(problem, batches)
        values.append(table["kernel_alignment"])
        errors.append(table["kernel_alignment_mcse"])
    scatter = np.std(values, axis=0, ddof=1)
    # Three standard errors of a standard deviation known by 40 values.
    limit = 3.0 / np.sqrt(2 * 39)
    np.testing.assert_allclose(np.mean(errors, axis=0) / scatter, 1.0, atol=limit)


def test_examples_are_chosen_evenly_and_sorted_by_label():
    labels = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])[:, None]
    split = Examples(np.zeros((6, 1, 2)), labels, path_heads=(1,))
    np.testing.assert_array_equal(spread_over_labels(split, 10), [0, 2, 4, 1, 3, 5])
    np.testing.assert_array_equal(spread_over_labels(split, 2), [0, 5])
    classes = np.eye(3)[[2, 0, 1, 0]]
    split = Examples(np.zeros((4, 1, 2)), classes, path_heads=(1,))
    np.testing.assert_array_equal(spread_over_labels(split, 4), [1, 3, 2, 0])
    streamed = StreamedExamples(lambda first, size: iter(()), labels, 6, lambda: ("",))
    assert spread_over_labels(streamed, 4) is None
