"""Networks outside the theory: what is refused, what a run of one leaves, and its posterior."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from arviz_stats.base import array_stats

from sampler.analysis.estimates import mean_of
from sampler.errors import ExitCode
from sampler.jobs.choice import Sizes
from sampler.jobs.stages import draw_posterior
from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chains import sample
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.hamiltonian import Nuts, SplitHmc
from sampler.problem import build_problem
from sampler.tasks.make import build_task
from sampler.token_network import TokenNetwork, TokenSplit
from sampler.token_problem import TokenProblem
from tests.assertions import assert_equal_in_float32, assert_within_mcse
from tests.commands import FEW_DRAWS, SMALLEST, made_once, settings
from tests.commands import in_process as command
from tests.learned import learned_recipe
from tests.problems import NetworkData
from tests.token_networks import Learned, loops
from theory import Architecture

pytestmark = pytest.mark.heavy

RELU = f"""{SMALLEST}
[sampler]
"""
OUTSIDE = ("network.values=relu", "task.examples_validation=4")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "relu.toml"
    path.write_text(RELU)
    return path


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    """A run of a few steps; its directory."""

    def make(folder: Path) -> int:
        return command("run", recipe, "--out", folder / "run", *settings(*OUTSIDE, *FEW_DRAWS))

    folder, code = made_once(tmp_path_factory, "run_outside_the_theory", make)
    assert code == ExitCode.DIAGNOSTICS_FAILED  # six draws prove nothing
    return folder / "run"


def test_a_normalised_hypernetwork_may_be_narrow_inside(recipe):
    """Only what is normalised needs two units: the inner layer of a hypernetwork is not."""
    overrides = ("network.norm=after", "network.hypernetwork=true")
    widths = settings(*overrides, "network.widths=[1, 1, 2, 1, 2]")
    assert command("check", recipe, *widths) == ExitCode.OK


def test_a_run_samples_and_leaves_what_there_is(finished):
    figures = {path.stem for path in (finished / "figures").glob("*.png")}
    assert "predictor_mean" in figures
    assert not figures & {"order_parameter", "kernel_alignment"}
    with xr.open_datatree(finished / "draws.nc", engine="h5netcdf") as tree:
        names = {"predictor", "predictor_mean", "predictor_variance"}
        assert set(tree["predictions"].data_vars) == names
        assert tree["posterior"].attrs["space"] == "hidden_weights"
        assert "hidden weights), the readout integrated" in str(tree["leave_one_out"].attrs)
        assert tree["predictions"]["predictor"].shape == (4, 6, 10)
        assert tree["log_likelihood"]["y"].shape == (4, 6, 6)
        assert tree["posterior_predictive"]["y"].shape == (4, 6, 6)
        assert tree["prior_predictive"]["y"].shape == (1, 1000, 6)
        assert tree["validation"]["predictor_mean"].shape == (4, 6, 4, 1)
        np.testing.assert_array_equal(tree["validation"]["predictor_variance"], 0.0)
        assert tree["observed_data"]["y"].shape == (6,)


def test_its_comparison_has_infinite_width_beside_its_samples(finished):
    summary = json.loads((finished / "comparison.json").read_text(encoding="utf-8"))["summary"]
    with xr.open_datatree(finished / "draws.nc", engine="h5netcdf") as tree:
        draws = tree["predictions"]["predictor_mean"].values
        labels = tree["predictions_constant_data"]["labels_test"].values[:, 0]
    accuracy = summary["accuracy"]
    assert set(accuracy) == {"infinite", "sampled"}
    assert accuracy["sampled"]["value"] == np.mean(np.sign(draws.mean(axis=(0, 1))) == labels)
    assert set(summary["validation_accuracy"]) == {"sampled"}
    assert "order_parameter" not in summary
    with (
        xr.open_dataset(finished / "theory.nc", engine="h5netcdf") as theory,
        xr.open_datatree(finished / "comparison.nc", engine="h5netcdf") as tree,
    ):
        assert list(theory["predictor"].values) == ["infinite"]
        for quantity in ("predictor_mean", "predictor_variance"):
            np.testing.assert_array_equal(tree["elements"][quantity]["predicted"], theory[quantity])
            assert tree["elements"][quantity]["sampled"].shape == (10,)
        evidence = summary["log_evidence"]["infinite"]["value"]
        assert evidence == pytest.approx(float(theory["log_evidence"][0]))


def test_other_commands_take_its_directory(finished, capsys):
    for name in ("compare", "diagnose"):
        assert command(name, finished) == ExitCode.DIAGNOSTICS_FAILED
    assert command("figures", finished) == ExitCode.OK
    assert command("status", finished) == ExitCode.OK
    capsys.readouterr()
    assert command("prune", finished) == ExitCode.BAD_INPUT
    assert "network.values = " in capsys.readouterr().err


@pytest.mark.long
def test_resume_appends_draws_and_reproduce_finds_the_same_bits(finished):
    assert command("reproduce", finished) == ExitCode.OK
    assert command("resume", finished, "--more", 3) == ExitCode.DIAGNOSTICS_FAILED
    with xr.open_datatree(finished / "draws.nc", engine="h5netcdf") as tree:
        assert tree["predictions"]["predictor"].shape == (4, 9, 10)


@pytest.mark.long
def test_a_sweep_holds_networks_within_and_outside_the_theory(recipe, tmp_path):
    values = 'network.values="linear","relu"'
    out = tmp_path / "sweep"
    code = command("sweep", recipe, "--out", out, "--over", values, *settings(*FEW_DRAWS))
    assert code == ExitCode.DIAGNOSTICS_FAILED
    with xr.open_dataset(out / "sweep.nc", engine="h5netcdf") as sweep:
        accuracy = sweep["value"].sel(quantity="accuracy")
        sampled, theory = (accuracy.sel(predictor=name).values for name in ("sampled", "leading"))
    assert np.isfinite(sampled).all()
    np.testing.assert_array_equal(np.isfinite(theory), [True, False])
    assert (out / "figures" / "accuracy_against_width.png").is_file()
    again = command("sweep", recipe, "--out", out, "--over", values, *settings(*FEW_DRAWS))
    assert again == code


def tiny_problem(rng) -> TokenProblem:
    """One head, one layer, widths 2 and 3, three examples of three tokens, ReLU values."""
    network = TokenNetwork(
        Architecture((1,), (2, 3), (0.8, 1.4, 1.2), channels=3), (False,), "relu", "none", "mean"
    )

    def split(examples: int) -> TokenSplit:
        inputs = rng.standard_normal((examples, 3, 3))
        omega = rng.dirichlet(np.ones(3), (examples, 1, 3)).swapaxes(2, 3)
        return TokenSplit(jnp.asarray(inputs), (jnp.asarray(omega),))

    labels = jnp.asarray(rng.standard_normal((3, 1)))
    return TokenProblem(
        network, split(3), labels, 0.5, split(2), None, ("0",), (("0",),), None, None
    )


def outputs_of(weights, split: TokenSplit) -> np.ndarray:
    """f [draw, example] of weights [draw, …], from the definition, in NumPy."""
    hidden = np.einsum("dni,xti->dxtn", weights["V_0"], split.inputs) / np.sqrt(3)
    values = np.einsum("dmn,dxtn->dxtm", weights["V_1"][:, 0], hidden) / np.sqrt(2)
    moved = np.sqrt(2) * np.maximum(values, 0.0)
    read = np.asarray(split.attention[0])[:, 0].mean(axis=2)  # [example, key]
    return np.einsum("dm,dxtm,xt->dx", weights["a"][:, 0], moved, read) / np.sqrt(3)


@pytest.mark.slow
@pytest.mark.long
def test_chains_agree_with_weighted_draws_from_the_prior(rng):
    """E[f] and E[f²] of a ReLU network; the weights are the likelihood, f is written in NumPy.

    In the space of hidden weights also from the mean and variance of f given these.
    """
    problem = tiny_problem(rng)
    arch, labels = problem.architecture, np.asarray(problem.labels)[:, 0]
    count, sums = 0, []
    for _ in range(10):
        weights = {
            name: np.sqrt(arch.weight_variances[name]) * rng.standard_normal((100_000, *size))
            for name, size in arch.weight_shapes.items()
        }
        errors = outputs_of(weights, problem.train) - labels
        likelihood = np.exp(-np.sum(errors**2, axis=1) / (2 * problem.temperature))
        values = outputs_of(weights, problem.test)
        sums.append((likelihood, np.concatenate([values, values**2], axis=1)))
        count += likelihood.size
    likelihood, values = (np.concatenate(parts) for parts in zip(*sums, strict=True))
    share = likelihood / likelihood.sum()
    assert 1 / np.sum(share**2) > 10_000, "too few effective draws from the prior"
    expected = share @ values
    error = np.sqrt(share**2 @ (values - expected) ** 2)

    chains = ChainSettings(chains=4, warmup=600, draws=3000, seed=3)
    for name, algorithm in (
        ("weights", Nuts(target_acceptance=0.95)),
        ("hidden_weights", SplitHmc()),
    ):
        collected = DrawCollector()
        sample(problem.space(name), algorithm, chains, collected)
        drawn = {key: values[..., 0] for key, values in collected.draws.items()}
        moments = [(drawn["predictor"], drawn["predictor"] ** 2)]
        if name == "hidden_weights":
            mean = drawn["predictor_mean"]
            moments.append((mean, mean**2 + drawn["predictor_variance"]))
        for both in moments:
            both = np.concatenate(both, axis=2).astype(float)
            ess = array_stats.ess(both, chain_axis=0, draw_axis=1)
            estimate = mean_of(both)
            errors = np.hypot(estimate.mcse, error)
            assert_within_mcse(
                estimate.value, expected, errors, ess=ess, minimum_ess=400, what=name
            )


def test_stored_weights_of_a_block_make_its_stored_predictor():
    """A block that reads its stream: predictors are those of the loops at stored weights."""
    recipe = learned_recipe(
        heads=(("learned", "good"),),
        network={"norm": "before", "residual": True, "mlp": {"width": 2, "activation": "erf"}},
        attention={"reads": "stream"},
        sampler={
            "chains": 2, "warmup": 4, "draws": 4, "algorithm": "hmc", "leapfrog_steps": 2,
            "space": "weights", "weight_draws": 4,
        },
    )  # fmt: skip
    task = build_task(recipe)
    problem = build_problem(recipe, task)
    network = problem.network
    tree = draw_posterior(problem, recipe.sampler, show=False)
    posterior = tree["posterior"].to_dataset().merge(tree["posterior_weights"].to_dataset())
    assert posterior["mlp_in_1"].dims[2:] == ("unit_mlp", "unit_a")
    assert posterior["logits_1"].dims[-1] == "unit_below_1"
    weights = {name: posterior[name].values[1, 2] for name in network.weight_shapes}
    learned = Learned("low_rank", task.learned.learned, True, (1.0, 1.0), rank=task.channels)
    data = NetworkData(task.test.inputs, task.test.attention, "last")
    expected = loops(network, data, weights, learned)[:, 0]
    stored = tree["predictions"]["predictor"].values[1, 2]
    assert_equal_in_float32(stored, expected)
    assert Sizes.of(recipe, task).weight_count + Sizes.of(recipe, task).logits == sum(
        np.prod(shape) for shape in network.weight_shapes.values()
    )
