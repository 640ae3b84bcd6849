"""What is stored with draws: of attention that is sampled, outside the theory, of repetitions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler import compare
from sampler.attention.learned import LOGITS
from sampler.data.make import build_task
from sampler.errors import ExitCode
from sampler.jobs.draw import draw_posterior
from sampler.jobs.sizes import Sizes
from sampler.mcmc.collected_draws import LIMITS, DrawCollector, Limit
from sampler.mcmc.diagnostics import Diagnostics, QuantityDiagnostics
from sampler.mcmc.stopping import InterimVerdict, RepetitionRule
from sampler.problem import build_problem
from sampler.storage.files import read_json
from sampler.storage.result_files import read_comparison, read_draws
from tests.assertions import assert_equal_in_float32
from tests.commands import FEW_DRAWS, SMALLEST, made_once, settings, without_drawing
from tests.commands import in_process as command
from tests.problems import TEMPERED, NetworkData
from tests.recipes import learned_recipe
from tests.token_networks import Learned, loops

LEARNED = f"""{SMALLEST}
[sampler]
chains = 2
warmup = 4
draws = 11
algorithm = "hmc"
leapfrog_steps = 3
weight_draws = 2
""".replace('[["good", "uniform"], ["uniform"]]', '[["learned", "learned"], ["uniform"]]')
FAILED = ExitCode.DIAGNOSTICS_FAILED  # so few draws prove nothing


def assert_shapes(tree: xr.DataTree, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        assert tree[name].shape == shape, name


# --- attention that is sampled


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> Path:
    """A run of a few steps, of whose logits four draws of a chain may be kept."""

    def make(folder: Path) -> int:
        recipe = folder / "learned.toml"
        recipe.write_text(LEARNED)
        validated = settings("task.examples_validation=4")
        with without_drawing(), pytest.MonkeyPatch.context() as patch:
            limit = 2 * 4 * 2 * 11 * 11 * 8  # bytes of chains, draws, heads, channels
            patch.setitem(LIMITS, LOGITS, Limit(limit))
            return command("run", recipe, "--out", folder / "run", *validated)

    folder, code = made_once(tmp_path_factory, "run_with_learned_heads", make)
    assert code == FAILED
    return folder / "run"


@pytest.mark.slow
def test_learned_heads_are_drawn_with_weights_whose_overlaps_are_the_stored_ones(learned):
    assert not (learned / "theory.nc").exists()
    tree = read_draws(learned)
    assert_shapes(tree, {
        "predictions/predictor_mean": (2, 11, 10), "log_likelihood/y": (2, 11, 6),
        "prior/logits_1": (1, 1000, 2, 11, 11), "prior_predictive/y": (1, 1000, 6),
        "validation/predictor_mean": (2, 11, 4, 1),
    })  # fmt: skip
    posterior, logits = tree["posterior"], tree["posterior_logits_1"]
    assert logits["draw"].values.tolist() == [0, 4, 8]
    assert logits["logits_1"].shape == (2, 3, 2, 11, 11)
    eigenvalues = np.linalg.eigvalsh(posterior["order_parameter"].values)
    np.testing.assert_allclose(posterior["overlap_eigenvalues_1"].values, eigenvalues)
    weights = tree["posterior_weights"]
    assert weights["draw"].values.tolist() == [0, 8]
    readout, second, first = (weights[name].values for name in ("a", "V_2", "V_1"))
    upper = np.einsum("nmci,nmhij->nmj", readout, second) / 3**0.5
    lower = np.einsum("nmj,nmhjk->nmhk", upper, first) / 3**0.5
    chosen = posterior["order_parameter"].sel(draw=weights["draw"]).values
    np.testing.assert_allclose(np.einsum("nmhj,nmkj->nmhk", lower, lower) / 3, chosen)
    attention = tree["attention"]["attention_1"]
    np.testing.assert_allclose(attention.sum("key").values, 1.0, rtol=1e-6)
    assert attention.shape[2:] == (2, 5, 5)
    # Heads may be exchanged: what depends on their order is not judged.
    judged = read_json(learned / "comparison.json")["diagnostics"]["quantities"]
    assert "overlap_eigenvalues_1" in judged
    assert "order_parameter" not in judged


# --- networks outside the theory


@pytest.fixture(scope="module")
def relu(tmp_path_factory) -> Path:
    """A run of a few steps of a network without a theory at finite width."""

    def make(folder: Path) -> int:
        recipe = folder / "relu.toml"
        recipe.write_text(f"{SMALLEST}\n[sampler]\n")
        asked = "network.values=relu", "task.examples_validation=4", *FEW_DRAWS
        with without_drawing():
            return command("run", recipe, "--out", folder / "run", *settings(*asked))

    folder, code = made_once(tmp_path_factory, "run_outside_the_theory", make)
    assert code == FAILED
    return folder / "run"


@pytest.mark.slow
def test_outside_the_theory_samples_stand_beside_infinite_width_alone(relu):
    tree = read_draws(relu)
    assert_shapes(tree, {
        "predictions/predictor": (4, 6, 10), "log_likelihood/y": (4, 6, 6),
        "posterior_predictive/y": (4, 6, 6), "prior_predictive/y": (1, 1000, 6),
        "validation/predictor_mean": (4, 6, 4, 1), "observed_data/y": (6,),
    })  # fmt: skip
    assert tree["posterior"].attrs["space"] == "hidden_weights"
    np.testing.assert_array_equal(tree["validation"]["predictor_variance"], 0.0)
    summary = read_json(relu / "comparison.json")["summary"]
    assert "order_parameter" not in summary
    draws = tree["predictions"]["predictor_mean"].values
    labels = tree["predictions_constant_data"]["labels_test"].values[:, 0]
    accuracy = summary["accuracy"]
    assert set(accuracy) == {"infinite", "sampled"}
    assert accuracy["sampled"]["value"] == np.mean(np.sign(draws.mean(axis=(0, 1))) == labels)
    elements = read_comparison(relu)["elements"]
    with xr.open_dataset(relu / "theory.nc", engine="h5netcdf") as theory:
        assert list(theory["predictor"].values) == ["infinite"]
        for quantity in ("predictor_mean", "predictor_variance"):
            np.testing.assert_array_equal(elements[quantity]["predicted"], theory[quantity])
        evidence = summary["log_evidence"]["infinite"]["value"]
        assert evidence == pytest.approx(float(theory["log_evidence"][0]))
    # A theory of one's own stands there as well.
    found = compare(None, tree, own={"zero": {"predictor_mean": np.zeros(10)}})
    predicted = found.elements("predictor_mean")["predicted"].sel(predictor="zero")
    np.testing.assert_array_equal(predicted, np.zeros(10))


@pytest.mark.slow
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
    weights = {name: posterior[name].values[1, 2] for name in network.weight_shapes}
    of_heads = Learned("low_rank", task.learned.learned, True, (1.0, 1.0), rank=task.channels)
    data = NetworkData(task.test.inputs, task.test.attention, "last")
    expected = loops(network, data, weights, of_heads)[:, 0]
    assert_equal_in_float32(tree["predictions"]["predictor"].values[1, 2], expected)
    sizes = Sizes.of(recipe, task)
    assert sizes.weight_count + sizes.logits == sum(
        np.prod(shape) for shape in network.weight_shapes.values()
    )


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("space", ["order_parameters", "weights"])
def test_of_fewer_draws_than_asked_for_all_weights_are_kept(space, recipe_file, tmp_path):
    """And there is no evidence, which a few draws say nothing of."""
    asked = ["sampler.algorithm=hmc", "sampler.leapfrog_steps=2", "sampler.chains=2"]
    asked += ["sampler.max_minutes=1e-9", "sampler.warmup=0", "sampler.weight_draws=9"]
    asked += [f"sampler.space={space}"]
    if space == "order_parameters":
        asked += ["sampler.evidence=true"]
    run = tmp_path / "run"
    assert command("sample", recipe_file, "--out", run, *settings(*asked)) == FAILED
    drawn = read_draws(run)
    made = drawn["posterior"].sizes["draw"]
    assert drawn["posterior_weights"]["draw"].values.tolist() == list(range(made))
    assert "log_evidence" not in drawn["sample_stats"].attrs
    # A recipe asks for four draws at least: fewer in all would never be read again.
    assert command("resume", run, "--more", 3 - made) == ExitCode.BAD_INPUT


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_weights_that_are_kept_are_those_of_the_draws_that_they_name(recipe_file, tmp_path):
    """U_a = a aᵀ/N by the stored readout, of the same chain and draw."""
    asked = ["sampler.algorithm=hmc", "sampler.leapfrog_steps=2", "sampler.chains=2"]
    asked += ["sampler.space=weights", "sampler.weight_draws=2", "sampler.draws=11"]
    asked += ["sampler.warmup=4", "sampler.thinning=1"]
    run = tmp_path / "run"
    assert command("sample", recipe_file, "--out", run, *settings(*asked)) == FAILED
    drawn = read_draws(run)
    readout = drawn["posterior_weights"]["a"]
    assert readout.sizes["draw"] == 2
    named = drawn["posterior"]["readout_order_parameter"].sel(draw=readout["draw"])
    expected = np.mean(readout.values[:, :, 0].astype(float) ** 2, axis=-1)
    assert_equal_in_float32(named.values.reshape(expected.shape), expected)


# --- repetitions of tempered particles

FEW = ("sampler.algorithm=tempered", "sampler.particles=32", "sampler.space=order_parameters")


@pytest.fixture(scope="module")
def run_of_four(recipe_file, tmp_path_factory) -> Path:
    """A finished run of four repetitions."""

    def make(folder: Path) -> int:
        counted = settings(*FEW, "sampler.until=draws")
        with without_drawing():
            return command("run", recipe_file, "--out", folder / "run", *counted)

    folder, code = made_once(tmp_path_factory, "four_repetitions", make)
    assert code in (ExitCode.OK, FAILED)
    return folder / "run"


@pytest.mark.slow
def test_draws_are_particles_and_chains_repetitions_with_weights(run_of_four):
    """Evidence, means and errors by their definitions."""
    tree = read_draws(run_of_four)
    posterior, statistics = tree["posterior"].to_dataset(), tree["sample_stats"].to_dataset()
    assert (posterior.sizes["chain"], posterior.sizes["draw"]) == (4, 32)
    # Repetitions from the prior alone are others, and have an evidence only.
    every = [statistics[name].values for name in ("log_evidence", "log_evidence_prior")]
    assert all((np.ptp(one, axis=1) == 0).all() for one in every)
    logs, prior = (one[:, 0] for one in every)
    assert len(np.unique([*logs, *prior])) == 8
    path = tree["warmup_sample_stats"].to_dataset()["power"].values
    assert (np.nanmax(path, axis=1) == 1.0).all()
    steps = np.diff(path, axis=1)
    assert (steps[np.isfinite(steps)] > 0).all()
    stored = read_json(run_of_four / "comparison.json")
    weights = np.exp(logs - logs.max())
    evidence = stored["summary"]["log_evidence"]["sampled"]["value"]
    assert evidence == pytest.approx(logs.max() + np.log(weights.mean()), rel=1e-12)
    weights = weights / weights.sum()
    means = posterior["order_parameter"].values.mean(axis=1)
    expected = np.tensordot(weights, means, axes=1)
    elements = read_comparison(run_of_four)["elements/order_parameter"]
    np.testing.assert_allclose(elements["sampled"], expected, rtol=1e-10)
    # The jackknife, from means without each repetition, and what the largest weights may hide.
    without = [np.average(np.delete(means, r, 0), 0, np.delete(weights, r)) for r in range(4)]
    square = sum((expected - one) ** 2 for one in without) * 3 / 4
    powers = np.maximum(np.log(4 * weights), -1.5)
    shares = 1 / 4 + (powers - powers.mean()) / 3
    square += 9.0 * (np.tensordot(shares, means, axes=1) - expected) ** 2
    np.testing.assert_allclose(elements["error"], np.sqrt(square), rtol=1e-9)
    # Four repetitions of 32 particles are 128 draws at most, which are too few.
    judged = stored["diagnostics"]
    assert judged["verdict"] == "fail"
    assert all(one["ess_bulk"] <= 128 for one in judged["quantities"].values())


@pytest.mark.slow
def test_repetitions_are_made_until_their_draws_are_trusted(recipe_file, tmp_path, monkeypatch):
    asked = []

    def judged(rule, most):
        asked.append(len(rule.collected.statistics["lp"]))
        verdict, quantity = (
            "pass" if len(asked) == 3 else "fail",
            QuantityDiagnostics(1.2, 9.0, 9.0),
        )
        return Diagnostics(verdict, (), (), {"order_parameter": quantity}, 4, 32, {})

    monkeypatch.setattr(RepetitionRule, "judge", judged)
    command("sample", recipe_file, "--out", tmp_path / "run", *settings(*FEW))
    assert asked == [4, 5, 7]  # 30 % more after each check, to the nearest number
    tree = read_draws(tmp_path / "run")
    assert tree["sample_stats"].attrs["ended_by"] == "trusted"
    assert tree["posterior"].sizes["chain"] == 7


def test_reasons_to_end_repetitions():
    failed = InterimVerdict(4, False, 1.0, 1.2, 100.0, "x", evidence_error=0.1)
    known = replace(failed, ess=600.0)
    # Effective draws and evidence are known well enough: what fails is something else.
    for check, expected in (
        (failed, None),
        (replace(failed, passed=True), "trusted"),
        (replace(failed, done=32), "repetitions"),
        (known, "failed"),
        (replace(known, evidence_error=1.0), None),
        (replace(known, evidence_error=None), None),
    ):
        rule = RepetitionRule(TEMPERED, DrawCollector(), 32, np.inf, checks=[check])
        assert rule.ended == expected
