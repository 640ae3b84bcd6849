"""Runs of networks with learned heads: what is refused, what is left, and going on."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.attention.learned import LOGITS
from sampler.data.examples import attended_by_numpy
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.mcmc.collected_draws import LIMITS, Limit
from sampler.streams import Stream, stream
from sampler.teacher import with_teacher
from tests.assertions import assert_within_mcse
from tests.commands import (
    SMALLEST,
    made_once,
    settings,
    without_drawing,
)
from tests.commands import in_process as command
from tests.learned import MARKOV, learned_problem, learned_recipe

LEARNED = f"""{SMALLEST}
[sampler]
chains = 2
warmup = 4
draws = 11
algorithm = "hmc"
leapfrog_steps = 3
weight_draws = 2
""".replace('[["good", "uniform"], ["uniform"]]', '[["learned", "learned"], ["uniform"]]')


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "learned.toml"
    path.write_text(LEARNED)
    return path


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    """A run of a few steps, of whose logits four draws of a chain may be kept; its directory."""

    def make(folder: Path) -> int:
        validated = settings("task.examples_validation=4")
        with without_drawing(), pytest.MonkeyPatch.context() as patch:
            limit = 2 * 4 * 2 * 11 * 11 * 8  # bytes of chains, draws, heads, channels
            patch.setitem(LIMITS, LOGITS, Limit(limit))
            return command("run", recipe, "--out", folder / "run", *validated)

    folder, code = made_once(tmp_path_factory, "run_with_learned_heads", make)
    assert code == ExitCode.DIAGNOSTICS_FAILED  # so few draws prove nothing
    return folder / "run"


SHAPES = {
    "predictions/predictor_mean": (2, 11, 10), "log_likelihood/y": (2, 11, 6),
    "prior/logits_1": (1, 1000, 2, 11, 11), "prior_predictive/y": (1, 1000, 6),
    "validation/predictor_mean": (2, 11, 4, 1),
}  # fmt: skip


@pytest.mark.slow
def test_a_run_samples_attention_and_leaves_what_there_is(finished):
    stored = {path.name for path in finished.iterdir()}
    assert "theory.nc" not in stored
    assert {"draws.nc", "comparison.json", "report.html"} <= stored
    with xr.open_datatree(finished / "draws.nc", engine="h5netcdf") as tree:
        posterior = tree["posterior"]
        assert "logits_1" not in posterior
        logits = tree["posterior_logits_1"]  # every fourth draw
        assert logits["draw"].values.tolist() == [0, 4, 8]
        assert logits["logits_1"].shape == (2, 3, 2, 11, 11)
        eigenvalues = np.linalg.eigvalsh(posterior["order_parameter"].values)
        np.testing.assert_allclose(posterior["overlap_eigenvalues_1"].values, eigenvalues)
        for name, shape in SHAPES.items():
            assert tree[name].shape == shape, name
        weights = tree["posterior_weights"]
        assert weights["draw"].values.tolist() == [0, 8]
        chosen = posterior["order_parameter"].sel(draw=weights["draw"]).values
        values, readout = weights["V_1"].values, weights["a"].values
        upper = (
            np.einsum(
                "nmi,nmhij->nmhj",
                np.einsum("nmci,nmhij->nmj", readout, weights["V_2"].values) / 3**0.5,
                values,
            )
            / 3**0.5
        )
        np.testing.assert_allclose(np.einsum("nmhj,nmkj->nmhk", upper, upper) / 3, chosen)
        attention = tree["attention"]
        sums = attention["attention_1"].sum("key").values
        np.testing.assert_allclose(sums, 1.0, rtol=1e-6)
        assert attention["attention_1"].shape[2:] == (2, 5, 5)
        assert "attention_2" not in attention  # which has no learned heads
    comparison = json.loads((finished / "comparison.json").read_text(encoding="utf-8"))
    judged = json.dumps(comparison["diagnostics"])  # numbers, or why there are none
    assert "overlap_eigenvalues_1" in judged
    assert "order_parameter" not in judged
    assert "leading" not in comparison["summary"]["accuracy"]


INPUTS = np.random.default_rng(5).standard_normal((2, 9, 4, 3))
LABELS = np.sign(INPUTS[:, :, 1, 0])
ARRAYS = {
    "inputs": INPUTS[0],
    "labels": LABELS[0],
    "inputs_test": INPUTS[1],
    "labels_test": LABELS[1],
}


def test_arrays_without_attention_have_learned_heads():
    chosen = {"heads": [["learned", "uniform"], ["learned"]],
              "learned": {"form": "low_rank", "rank": 2, "variance": 3.0}}  # fmt: skip
    task = sampler.Arrays(**ARRAYS).make(sampler.Attention(**chosen))
    assert task.heads == (2, 1)
    assert task.learned.shapes(4, 3) == {"logits_1": (1, 2, 2, 3), "logits_2": (1, 2, 2, 3)}
    np.testing.assert_allclose(task.learned.scale**2, 3.0 / 3)  # variance/D
    np.testing.assert_allclose(task.train.attention[0][:, 1], 0.25)


def test_arrays_keep_the_heads_that_are_named():
    attention = np.random.default_rng(6).dirichlet(np.ones(4), (2, 9, 2, 4)).swapaxes(-1, -2)
    arrays = sampler.Arrays(
        **ARRAYS,
        attention=[attention[0]],
        attention_test=[attention[1]],
        head_names=[["other", "mine"]],
    )
    task = arrays.make(sampler.Attention(heads=[["learned", "mine"]]))
    np.testing.assert_array_equal(task.train.attention[0][:, 1], attention[0][:, 1])
    assert task.head_names == (("learned", "mine"),)
    assert task.learned.form == "full"
    with pytest.raises(InputError, match="layer 1 of these data has 'learned', 'uniform', 'other'"):
        arrays.make(sampler.Attention(heads=[["theirs"]]))


def test_heads_are_chosen_for_tokens_alone():
    attended = {"attended": INPUTS[0], "labels": LABELS[0], "attended_test": INPUTS[1]}
    arrays = sampler.Arrays(**attended, heads=[4])
    with pytest.raises(InputError, match="attended inputs"):
        arrays.make(sampler.Attention(heads=[["learned"]]))


@pytest.mark.parametrize("form", ["low_rank", "positions"])
def test_a_form_of_its_own_has_a_draw_of_its_prior_in_the_data(form):
    """The attention that a teacher has: that of sampled heads at the same normal numbers."""
    rank = {"rank": 3} if form == "low_rank" else {}
    learned = {"form": form, "variance": 2.0, **rank}
    recipe = learned_recipe(
        heads=(("learned", "good"), ("learned",)), attention={"learned": learned}
    )
    task = build_task(recipe)
    shapes = task.learned.shapes(task.train.tokens, task.channels)
    logits = {
        name: stream(0, Stream.HEADS, layer, 0).standard_normal(shape)
        for layer, (name, shape) in enumerate(shapes.items())
    }
    assert set(logits) == {"logits_1", "logits_2"}
    data = learned_problem(
        heads=(("learned", "good"), ("learned",)), attention={"learned": learned}
    ).data
    position = {name: jnp.asarray(values) for name, values in logits.items()}
    first, second = data.attention.matrices(position, data.tokens)
    np.testing.assert_allclose(task.train.attention[0], first, rtol=1e-12)
    np.testing.assert_allclose(task.train.attention[1][..., -1:], second, rtol=1e-12)


@pytest.mark.slow
def test_a_teacher_of_infinite_width_has_the_covariance_of_its_kernel():
    """Given attention its outputs are Gaussian, with the kernel of infinite width."""
    found = []
    for seed in range(200):
        recipe = learned_recipe(
            task={**MARKOV, "labels": "teacher", "teacher_seed": seed, "examples_train": 2,
                  "examples_validation": 0, "examples_test": 2},
            heads=(("learned", "uniform"),),
            widths="infinite",
            network={"variances": [0.9, 1.5, 0.6]},
        )  # fmt: skip
        if not found:
            inputs = build_task(recipe)
        task = with_teacher(inputs, recipe)
        found.append(task.teacher.outputs["train"][:, 0])
    attended = attended_by_numpy(inputs.train, "last", inputs.pairs)
    features = attended.reshape(2, -1)
    expected = 0.9 * 1.5 * 0.6 * features @ features.T / features.shape[1]
    products = np.array(found)[:, :, None] * np.array(found)[:, None]
    error = products.std(axis=0) / np.sqrt(len(found))
    assert_within_mcse(products.mean(axis=0), expected, error)
