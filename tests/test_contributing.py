"""The examples of CONTRIBUTING.md, followed as they stand: registered from outside, and run."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import xarray as xr
from arviz_stats.base import array_stats

import sampler
from sampler.analysis.comparison import QUANTITIES
from sampler.attention.variants import VARIANTS
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.stopping import rule_for
from sampler.posterior.spaces import SPACES
from sampler.posterior.weights_from_order_parameters import draw_weights_back
from sampler.presentation.figures.catalogue import FIGURES
from sampler.settings.recipe import load_recipe
from sampler.settings.task_sections import TASKS
from tests import ROOT
from tests.assertions import assert_within_mcse
from tests.commands import SMALLEST, in_process, made_once, without_drawing
from tests.problems import NUTS, SPLIT_HMC, chain_settings, sampled, space_of
from tests.sampler.mcmc.laws import Linear
from theory import Architecture, LearningProblem

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"### (.+)\n(?:(?!###)[\s\S])*?```python\n([\s\S]*?)```", TEXT))
TABLES = {
    "An attention variant": (VARIANTS, "squared"),
    "A task": (TASKS, "coin"),
    "A sampling algorithm": (ALGORITHMS, "metropolis"),
    "A prior": (SPACES, "laplace_weights"),
    "An algorithm without chains": (ALGORITHMS, "rejection"),
    "A figure": (FIGURES, "predictor_histogram"),
    "A compared quantity": (QUANTITIES, "trace"),
}
COIN = """
name = "coin"
task = { kind = "coin", examples_train = 8, examples_test = 8 }
network = { widths = 3 }
posterior = { temperature = 0.5 }
theory = { starts = 1 }
[sampler]
algorithm = "metropolis"
space = "weights"
chains = 2
warmup = 5
draws = 20
"""


@pytest.fixture(scope="module", autouse=True)
def followed():
    """Every example executed in a namespace of its own; its row is gone afterwards."""
    before = {name: dict(table._entries) for name, (table, _) in TABLES.items()}
    for code in EXAMPLES.values():
        exec(code, {"__name__": "my_module"})
    yield
    for name, (table, _) in TABLES.items():
        table._entries = before[name]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of a task, an algorithm, a figure and a quantity that the package does not have."""

    def make(folder: Path) -> int:
        (folder / "coin.toml").write_text(COIN)
        with without_drawing():
            return in_process("run", folder / "coin.toml", "--out", folder / "run")

    folder, code = made_once(tmp_path_factory, "run_of_the_examples", make)
    assert code == ExitCode.DIAGNOSTICS_FAILED, "twenty draws are too few"
    return folder / "run"


@pytest.mark.parametrize("name", TABLES)
def test_an_example_adds_its_row(name):
    table, row = TABLES[name]
    assert row in table


def test_the_variant_makes_the_attention_of_a_recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SMALLEST)
    omega = build_task(load_recipe(path, ['attention.form={kind="squared"}'])).train.attention[0]
    np.testing.assert_allclose(omega.sum(axis=2), 1.0, rtol=1e-12)
    assert np.abs(omega - build_task(load_recipe(path)).train.attention[0]).max() > 0.01


def test_the_task_has_its_splits_and_heads_by_what_it_says_of_one_example():
    """Inputs and matrices by loops from their definition; the known head reads off the label."""
    section = TASKS["coin"](examples_train=5, examples_test=4, examples_validation=3)
    task = section.make()
    assert [split.shape for split in task.splits] == [(count, 5, 6) for count in (5, 4, 3)]
    assert task.head_names == (("before", "random"),)
    for split in task.splits:
        tosses = split.inputs[:, 1:, 0]
        assert set(np.unique(tosses)) <= {-1.0, 1.0}
        np.testing.assert_array_equal(split.labels, tosses[:, 2:3])
        np.testing.assert_array_equal(
            split.inputs[:, :, 1:], np.broadcast_to(np.eye(5), (split.examples, 5, 5))
        )
        expected = np.full((5, 5), 1 / 5)
        expected[:, -1] = np.where(np.arange(5) == 3, math.exp(10.0), 1.0) / (math.exp(10.0) + 4)
        np.testing.assert_allclose(
            split.attention[0][:, 0], np.broadcast_to(expected, (split.examples, 5, 5)), rtol=1e-12
        )
    learned = section.make(sampler.Attention(heads=[["learned", "uniform"]]))
    assert learned.learned.learned == ((True, False),)
    assert section.model_copy(update={"examples_test": 2}).make().checksum != task.checksum
    assert section.make().checksum == task.checksum


@pytest.mark.slow
def test_task_algorithm_figure_and_quantity_meet_in_one_run(finished):
    draws = xr.open_datatree(finished / "draws.nc", engine="h5netcdf")
    assert list(draws["sample_stats"].data_vars) == ["lp"]
    assert draws["posterior"]["order_parameter"].shape == (2, 20, 2, 2)
    draws.close()
    stored = json.loads((finished / "comparison.json").read_text())
    with xr.open_datatree(finished / "comparison.nc") as tree:
        sampled = np.trace(tree["elements"]["order_parameter"]["sampled"].values)
    assert stored["summary"]["trace"]["sampled"]["value"] == pytest.approx(sampled, rel=1e-12)
    assert (finished / "figures" / "predictor_histogram.png").is_file()


@pytest.mark.parametrize("until_trusted", [False, True])
def test_draws_without_chains_have_the_law_in_closed_form(until_trusted, rng):
    """y_i ~ N(a_i x, s²) of one coordinate x ~ N(m, σ²): precisions and their means add up."""
    slopes, noise, mean, deviation = np.array([[0.8], [-0.5]]), 0.7, 0.3, 1.2
    labels = np.array([1.1, 0.2])
    space = Linear.of(slopes, labels, noise, np.array([mean]), np.array([deviation]))
    precision = deviation**-2 + np.sum(slopes**2) / noise**2
    expected = (mean / deviation**2 + labels @ slopes[:, 0] / noise**2) / precision
    algorithm, collected = ALGORITHMS["rejection"](), DrawCollector()
    asked, listeners = chain_settings(warmup=0, draws=2000, seed=3), [collected]
    if until_trusted:
        rule = rule_for(algorithm, collected, asked, np.inf, lambda name: True, 1)
        asked, listeners = replace(asked, next_end=rule.next_end), [collected, rule]
    algorithm.draw(space, asked, lambda chunk: [listen(chunk) for listen in listeners])
    x = collected.draws["x"][..., 0]
    assert x.shape == (4, 520 if until_trusted else 2000)
    if until_trusted:
        assert rule.ended == "trusted"
    assert_within_mcse(x.mean(), expected, precision**-0.5 / np.sqrt(x.size))
    normal = scipy.stats.norm(expected, precision**-0.5)
    assert scipy.stats.kstest(x.reshape(-1), normal.cdf).pvalue > 1e-4
    lp = normal.logpdf(x) - collected.statistics["lp"]
    assert np.ptp(lp) < 1e-9  # ln p(y), whatever x


def laplace_space(**settings):
    """One weight in each layer, V_0 with Laplace's law: coordinates V_0, V_1 and a."""
    architecture = Architecture((1,), (1, 1), (1.3, 0.8, 1.2), channels=1)
    inputs, labels = np.array([[[1.5]], [[-0.5]]]), np.array([[1.0], [0.7]])
    learning = LearningProblem(architecture, jnp.asarray(inputs), jnp.asarray(labels), 0.5)
    return space_of(learning, "laplace_weights", **settings), learning


def log_joint(learning, V_0, V_1, a):
    """ln p(V_0, V_1, a) and ln p(y | V_0, V_1, a) by SciPy, on arrays of weights."""
    *_, readout = deviations = np.sqrt(learning.architecture.variances)
    prior = scipy.stats.laplace.logpdf(V_0, scale=deviations[0] / math.sqrt(2.0))
    prior = prior + scipy.stats.norm.logpdf(V_1, scale=deviations[1])
    prior = prior + scipy.stats.norm.logpdf(a, scale=readout)
    noise, likelihood = learning.temperature**0.5, 0.0
    pairs = zip(np.ravel(learning.attended), np.ravel(learning.labels), strict=True)
    for x, y in pairs:
        likelihood = likelihood + scipy.stats.norm.logpdf(y, loc=a * V_1 * V_0 * x, scale=noise)
    return prior, likelihood


def test_a_space_with_a_laplace_prior_has_its_density(rng):
    space, learning = laplace_space()
    weights = {"V_0": (1, 1), "V_1": (1, 1, 1), "a": (1, 1)}
    assert space.shapes == weights
    values = rng.standard_normal(3)
    position = {
        n: jnp.full(shape, v) for (n, shape), v in zip(weights.items(), values, strict=True)
    }
    prior, likelihood = log_joint(learning, *values)
    assert float(space.log_prior(position)) == pytest.approx(prior, rel=1e-12)
    assert float(space.log_likelihood(position)) == pytest.approx(likelihood, rel=1e-12)
    scale = space.unflatten(space.prior_gaussian.scale)
    assert float(scale["V_0"][0, 0]) == pytest.approx(1.3**0.5, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [NUTS, SPLIT_HMC], ids=["nuts", "split_hmc"])
def test_a_posterior_with_a_laplace_prior_is_that_of_quadrature(algorithm):
    """Moments that a change of signs leaves, by the trapezoidal rule over V_0, V_1 and a."""
    space, learning = laplace_space(keep=("V_0", "V_1", "a"))
    far, points = (16.0, 7.0, 8.0), 161
    axes = [np.linspace(-one, one, points) for one in far]
    V_0, V_1, a = np.meshgrid(*axes, indexing="ij", sparse=True)
    mass = np.exp(np.add(*log_joint(learning, V_0, V_1, a)))
    mass /= mass.sum()
    found = sampled(space, replace(algorithm, target_acceptance=0.95), draws=2500, seed=4).draws
    drawn = {name: found[name].reshape(*found[name].shape[:2]) for name in ("V_0", "V_1", "a")}
    for what, function in {
        "|V_0|": lambda V_0, V_1, a: np.abs(V_0),
        "V_0²": lambda V_0, V_1, a: V_0**2,
        "f": lambda V_0, V_1, a: V_0 * V_1 * a,
    }.items():
        values = function(**drawn)
        exact = float(np.sum(mass * function(V_0, V_1, a)))
        ess = float(array_stats.ess(values, chain_axis=0, draw_axis=1))
        error = values.std() / ess**0.5
        assert_within_mcse(values.mean(), exact, error, ess=ess, minimum_ess=400, what=what)


@pytest.mark.slow
def test_a_space_with_other_priors_is_sampled_and_has_no_theory(tmp_path, capsys):
    recipe = tmp_path / "coin.toml"
    recipe.write_text(COIN.replace('"weights"', '"laplace_weights"'))
    for command in ("run", "solve"):
        assert in_process(command, recipe, "--out", tmp_path / command) == ExitCode.BAD_INPUT
        *_, told = capsys.readouterr().err.strip().splitlines()
        assert "laplace_weights" in told
    code = in_process("sample", recipe, "--out", tmp_path / "sample")
    assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    with xr.open_datatree(tmp_path / "sample" / "draws.nc", engine="h5netcdf") as draws:
        assert draws["posterior"].attrs["space"] == "laplace_weights"
    gaussian = tmp_path / "gaussian.toml"
    gaussian.write_text(COIN)
    assert in_process("solve", gaussian, "--out", tmp_path / "gaussian") == ExitCode.OK
    theory = sampler.open_results(tmp_path / "gaussian").theory
    tree = sampler.open_results(tmp_path / "sample").draws
    with pytest.raises(InputError, match="laplace_weights"):
        sampler.compare(theory, tree)
    loaded = sampler.Recipe.load(recipe)
    for export in (loaded.numpyro_model, loaded.log_density):
        with jax.enable_x64(True), pytest.raises(InputError, match="laplace_weights"):
            export("weights")
    space, learning = laplace_space()
    with pytest.raises(InputError):
        draw_weights_back(space, learning.architecture, {}, 1, 0)
