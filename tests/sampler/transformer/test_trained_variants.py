"""Training with every attention variant: recipes, what is written, and the theory of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from sampler.attention.layers import variants_by_head
from sampler.attention.variants import Linear, ScaledHeads
from sampler.cli import main
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.problem import build_problem
from sampler.settings.recipe import TrainingRecipe, load_recipe, make_recipe
from sampler.transformer.model import read_model
from tests.training_recipes import ANALYSIS, TINY, train_in, write_training, write_untrained

# A layer each of scaled heads and of everything else, for heads = [2, 2].
SCALED = '[[{kind="scaled_heads",scale=1},{kind="scaled_heads",scale=2,beta=1.0}],{kind="linear"}]'
VARIANTS = (ScaledHeads(scale=1), ScaledHeads(scale=2, beta=1.0)), Linear()


@pytest.mark.parametrize(
    "form",
    [
        '{kind="hard_maximum"}',
        '{kind="scaled_heads",scale=49}',
        '{kind="scaled_heads",scale=2,pooling="block",grid=[5,2]}',
        '[{kind="linear"},[{kind="linear"},{kind="hard_maximum"}]]',
    ],
)
def test_a_form_that_cannot_be_trained_is_refused(form, tmp_path, rng):
    recipe = write_training(tmp_path, rng)
    with pytest.raises(InputError, match=r"^training"):
        load_recipe(recipe, [f"training.form={form}"], kind=TrainingRecipe)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model trained with mixed heads, and a recipe that takes it."""
    folder = tmp_path_factory.mktemp("variants")
    text = TINY.replace("130", "40").replace("key_size", f"form = {SCALED}\nkey_size")
    train_in(folder, text, ANALYSIS)
    return folder


def test_the_model_keeps_its_form_and_every_command_takes_it(folder, capsys):
    model = read_model(folder / "model")
    assert model.network.variants == variants_by_head(VARIANTS, (2, 2))
    summary = json.loads((folder / "model" / "training_summary.json").read_text())
    assert summary["form"] == [["scaled_heads", "scaled_heads"], ["linear", "linear"]]
    task = build_task(load_recipe(folder / "analysis.toml"))
    problem = build_problem(load_recipe(folder / "analysis.toml"), task)
    hidden = task.test.inputs @ model.parameters["W_in"].T.astype(np.float64)
    for layer, variants in enumerate(model.network.variants, start=1):
        queries, keys = (
            np.einsum("hgi,xti->xhtg", model.parameters[f"W_{k}_{layer}"], task.test.inputs)
            for k in "QK"
        )
        omega = np.concatenate(
            [
                variant.matrices(queries[:, [head]], keys[:, [head]])
                for head, variant in enumerate(variants)
            ],
            axis=1,
        )
        values = model.parameters[f"W_V_{layer}"]
        hidden = np.einsum("xhst,hij,xsj->xti", omega, values, hidden) / np.sqrt(2)
    expected = hidden.mean(axis=1) @ model.parameters["readout"]
    received = problem.trained.predictor(problem.attended_test)[:, 0]
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert main(["check", str(folder / "tiny.toml")]) == ExitCode.OK
    assert 'kind = "scaled_heads"' in capsys.readouterr().out


def test_extra_heads_stand_beside_those_of_a_hypernetwork(tmp_path, rng):
    """Layers of attention have them, of which one serves two layers of values."""
    path = write_training(tmp_path, rng)
    settings = ["training.hypernetwork=[true,false]", "training.widths=[6,5,4,3]"]
    write_untrained(tmp_path, load_recipe(path, settings, kind=TrainingRecipe))
    settings = {"kind": "one_shot", "model": str(tmp_path), "random_heads": 1}
    sizes = {"examples_train": 4, "examples_test": 2, "examples_validation": 0}
    network = {"widths": 5, "hypernetwork": [True, False]}
    task = build_task(make_recipe({"name": "x", "task": settings | sizes, "network": network}))
    assert [omega.shape[1] for omega in task.train.attention] == [3, 3]
