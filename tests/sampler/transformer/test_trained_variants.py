"""Training with every attention variant: network, frozen matrices, recipes and artefacts."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sampler.attention.heads import read_variants, variants_by_head
from sampler.attention.variants import (
    BatchNormalised,
    FirstOrder,
    HeadNormalised,
    Linear,
    Robust,
    Scaled,
    ScaledHeads,
    Softmax,
)
from sampler.cli import main
from sampler.data.episodes import draw_episodes
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.jobs.train import read_splits
from sampler.network import network_outputs
from sampler.problem import build_problem
from sampler.runtime import stream
from sampler.settings.recipe import TrainingRecipe, load_recipe
from sampler.settings.training import TrainingSection
from sampler.training.steps import make_optimiser
from sampler.training.training_data import (
    EVALUATION,
    accuracy_with_error,
    patch_table,
    predict_examples,
)
from sampler.transformer.model import (
    TransformerShape,
    draw_parameters,
    frozen_attention,
    read_model,
    theory_weights,
)
from sampler.transformer.network import squared_error, token_layers, transformer_outputs
from tests.training_recipes import ANALYSIS, TINY, train_in, write_training
from theory import Architecture, attended_inputs

TOKENS = 8
SHAPES = {
    "two layers": TransformerShape((2, 3), (5, 4, 7), 3, 6),
    # more paths (3·3·3) than tokens: the lower layers go token by token
    "deep": TransformerShape((3, 3, 3, 3), (5, 4, 7, 3, 6), 2, 6),
}
CHOSEN = {
    "causal": Softmax(mask="causal"),
    "first order": FirstOrder(),
    "scaled heads, stride": ScaledHeads(scale=3, pooling="stride"),
    "scaled heads, block": ScaledHeads(scale=2, pooling="block", grid=(2, 4)),
    "robust": Robust(limit=0.5, iterations=2),
}
MIXED = {
    "two layers": (
        (ScaledHeads(scale=4), Softmax()),
        (HeadNormalised(), BatchNormalised(), HeadNormalised()),
    ),
    "deep": (
        (Softmax(), ScaledHeads(scale=2), Softmax()),
        Linear(),
        (Scaled(), ScaledHeads(scale=4, beta=1.0), ScaledHeads(scale=1)),
        Softmax(),
    ),
}
CASES = [
    *(("two layers", name, form) for name, form in CHOSEN.items()),
    *((shape, "mixed", variants) for shape, variants in MIXED.items()),
]
cases = pytest.mark.parametrize(
    ("name", "variants"),
    [(name, variants) for name, _, variants in CASES],
    ids=[f"{name}, {form}" for name, form, _ in CASES],
)
# A layer each of scaled heads and of everything else, for heads = [2, 2].
SCALED = '[[{kind="scaled_heads",scale=1},{kind="scaled_heads",scale=2,beta=1.0}],{kind="linear"}]'


def problem(name):
    """Parameters and inputs in float64, with keys and queries large enough to be of weight."""
    shape = SHAPES[name]
    drawn = draw_parameters(shape, 3, 0)
    large = {k: 4 * v if k[:3] in ("W_Q", "W_K") else v for k, v in drawn.items()}
    inputs = np.random.default_rng(1).standard_normal((4, TOKENS, shape.channels))
    return shape, {k: v.astype(np.float64) for k, v in large.items()}, inputs


compiled = jax.jit(transformer_outputs, static_argnames="variants")


def on_device(arrays, dtype=jnp.float64):
    return {name: jnp.asarray(values, dtype) for name, values in arrays.items()}


@cases
def test_frozen_it_is_the_trained_network_as_a_sum_over_paths(name, variants):
    shape, parameters, inputs = problem(name)
    variants = variants_by_head(variants, shape.heads)
    variances = (1.0,) * (shape.layers + 2)
    architecture = Architecture(shape.heads, shape.widths, variances, shape.channels)
    frozen = frozen_attention(parameters, inputs, variants)
    attended = attended_inputs(jnp.asarray(inputs), tuple(map(jnp.asarray, frozen)), "mean")
    weights = on_device(theory_weights(parameters, shape))
    received = network_outputs(weights, attended, architecture)[:, 0]
    expected = compiled(on_device(parameters), jnp.asarray(inputs), variants)
    scale = np.abs(np.asarray(expected)).max()
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * scale)
    assert token_layers(shape.heads, TOKENS) == (2 if name == "deep" else 0)


@pytest.mark.heavy
def test_it_learns_in_single_precision_with_finite_gradients():
    """Thirty steps on one batch, which is learned by heart."""
    shape, parameters, inputs = problem("two layers")
    variants = variants_by_head(MIXED["two layers"], shape.heads)
    parameters, inputs = on_device(parameters, jnp.float32), jnp.asarray(inputs, jnp.float32)
    targets = jnp.array([1.0, -1.0, 1.0, -1.0], jnp.float32)
    optimiser = make_optimiser(TrainingSection(steps=30))

    @jax.jit
    def step(parameters, state):
        loss, gradient = jax.value_and_grad(squared_error)(parameters, inputs, targets, variants)
        change, state = optimiser.update(gradient, state, parameters)
        return optax.apply_updates(parameters, change), state, loss, gradient

    state, losses, gradients = optimiser.init(parameters), [], []
    for _ in range(31):
        parameters, state, loss, gradient = step(parameters, state)
        losses.append(float(loss))
        gradients.append(gradient)
    assert losses[-1] < losses[0]
    for name, values in gradients[0].items():
        assert values.dtype == jnp.float32
        assert np.isfinite(values).all()
        if name.startswith("W_K"):
            assert np.any(np.asarray(values) != 0, axis=(1, 2)).all(), "keys that do not learn"


def test_an_extra_head_attends_in_the_place_of_a_trained_one(rng):
    """Heads 3 and 4 of a layer of three as heads 0 and 1 would, had they those weights."""
    shape, parameters, inputs = problem("two layers")
    variants = variants_by_head(MIXED["two layers"], shape.heads)
    alone = frozen_attention(parameters, inputs, variants)
    extra = rng.standard_normal((2, 2, shape.key_size, shape.channels))
    longer = dict(parameters)
    for kind, weights in zip("QK", extra, strict=True):
        longer[f"W_{kind}_2"] = np.concatenate([parameters[f"W_{kind}_2"], weights])
    received = frozen_attention(longer, inputs, variants)
    assert np.array_equal(received[1][:, :3], alone[1])
    for head in range(2):
        replaced = dict(parameters)
        for kind, weights in zip("QK", extra, strict=True):
            replaced[f"W_{kind}_2"] = parameters[f"W_{kind}_2"].copy()
            replaced[f"W_{kind}_2"][head] = weights[head]
        expected = frozen_attention(replaced, inputs, variants)[1][:, head]
        np.testing.assert_allclose(received[1][:, 3 + head], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "form",
    [
        '{kind="hard_maximum"}',
        '{kind="scaled_heads",scale=49}',
        '{kind="scaled_heads",scale=2,pooling="block",grid=[5,2]}',
        '[{kind="linear"},[{kind="linear"}]]',
        '[{kind="linear"},[{kind="linear"},{kind="hard_maximum"}]]',
    ],
)
def test_a_form_that_cannot_be_trained_is_refused(form, tmp_path, rng):
    recipe = write_training(tmp_path, rng)
    with pytest.raises(InputError, match=r"^training"):
        load_recipe(recipe, [f"training.form={form}"], kind=TrainingRecipe)


def test_blocks_of_the_patch_grid_stay_within_their_image():
    """Three images of 4 × 4 patches: with scale 2 a key is a quarter of one image."""
    rng = np.random.default_rng(0)
    queries, keys = rng.standard_normal((2, 1, 1, 48, 3))
    form = ScaledHeads(scale=2, pooling="block", grid=(4, 4))
    found = form.matrices(queries, keys)[0, 0]
    for token in range(48):
        image, row, column = token // 16, token % 16 // 4, token % 4
        others = [
            16 * image + 4 * r + c
            for r in range(4) for c in range(4)
            if r // 2 == row // 2 and c // 2 == column // 2
        ]  # fmt: skip
        assert (found[others] == found[[token]]).all()
    assert len(np.unique(found[:, 0].round(14))) == 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model trained with mixed heads, and a recipe that takes it."""
    folder = tmp_path_factory.mktemp("variants")
    text = TINY.replace("130", "40").replace("key_size", f"form = {SCALED}\nkey_size")
    train_in(folder, text, ANALYSIS)
    return folder


def test_the_model_keeps_its_form_and_every_command_takes_it(folder, capsys):
    model = read_model(folder / "model")
    assert model.recipe.training.variants == variants_by_head(
        read_variants(
            [
                [
                    {"kind": "scaled_heads", "scale": 1},
                    {"kind": "scaled_heads", "scale": 2, "beta": 1.0},
                ],
                {"kind": "linear"},
            ]
        ),
        (2, 2),
    )
    recipe = load_recipe(folder / "analysis.toml")
    task = build_task(recipe)
    problem = build_problem(recipe, task)
    parameters = on_device(model.parameters)
    expected = compiled(parameters, jnp.asarray(task.test.inputs), model.recipe.training.variants)
    weights = on_device(theory_weights(model.parameters, model.shape))
    received = network_outputs(weights, problem.attended_test, problem.architecture)[:, 0]
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert main(["check", str(folder / "tiny.toml")]) == ExitCode.OK
    assert 'kind = "scaled_heads"' in capsys.readouterr().out


def test_the_summary_names_the_forms_and_is_of_them(folder):
    """Its accuracy is that of the same parameters with these variants, not of softmax."""
    summary = json.loads((folder / "model" / "training_summary.json").read_text())
    assert summary["form"] == [["scaled_heads", "scaled_heads"], ["linear", "linear"]]
    model = read_model(folder / "model")
    recipe = model.recipe
    drawings = read_splits(recipe).test
    episodes = draw_episodes(
        drawings, recipe.training.evaluation_examples, stream(recipe.training.seed, EVALUATION, 2)
    )
    table = patch_table(drawings, model.embedding, 1)
    inputs = table.gather(*table.arrays, *map(jnp.asarray, episodes.places))
    expected = accuracy_with_error(
        np.asarray(compiled(dict(model.parameters), inputs, recipe.training.variants)),
        episodes.targets,
    )
    assert summary["splits"]["test"]["network"] == expected
    received = predict_examples(model.parameters, table, episodes, recipe.training.variants)
    as_softmax = predict_examples(model.parameters, table, episodes)
    assert np.abs(received - as_softmax).max() > 1e-3 * np.abs(received).max()
