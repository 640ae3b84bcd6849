"""Labels of a teacher: its law, and what is kept of it."""

import math

import jax
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.data import examples as limits
from sampler.data.examples import StreamedExamples, attended_by_numpy
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.network import overlaps
from sampler.settings.recipe import Recipe
from sampler.streams import Stream, stream
from sampler.teacher import make_labelled_task, prior_factors, with_teacher
from tests.commands import TINY, in_process, without_drawing
from tests.problems import ARCHITECTURES, NetworkData, weight_variances
from tests.recipes import MARKOV, learned_recipe
from tests.token_networks import loops, network_of
from theory import path_features

SETTINGS = {
    "kind": "markov_chain",
    "examples_train": 8,
    "examples_test": 5,
    "examples_validation": 3,
    "tokens": 4,
    "features": 6,
    "labels": "teacher",
}
HEADS = [["good", "random"], ["uniform"]]
VARIANCES = (0.7, 1.3, 0.6, 1.1)


def recipe_of(
    temperature=0.001, widths=(3, 4, 2), seed=0, network=None, posterior=None, **settings
):
    return Recipe(
        name="taught",
        task={**SETTINGS, "teacher_seed": seed, **settings},
        attention={"heads": HEADS},
        network={"widths": list(widths), "variances": list(VARIANCES), **(network or {})},
        posterior={"temperature": temperature, **(posterior or {})},
    )


def features_of(task, recipe, split):
    """φ^π(x) [example, path, channel] of a split."""
    attended = attended_by_numpy(split, recipe.network.readout, task.pairs)
    return path_features(attended, VARIANCES[0])


# --- the law of the teacher


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one layer, two outputs", "narrow"])
def test_order_parameters_have_the_law_of_those_of_real_weights(name):
    """Means and second moments of every entry of U_1 … U_a, within 4.5 of their errors."""
    arch, rng, draws = ARCHITECTURES[name], np.random.default_rng(3), 4000
    of_factors = zip(*(prior_factors(arch, rng) for _ in range(draws)), strict=True)
    for expected, factors in zip(overlaps_of_weights(arch, draws, rng), of_factors, strict=True):
        factors = np.stack(factors)
        received = factors @ factors.swapaxes(1, 2)
        assert expected.shape == received.shape
        for power in (1, 2):
            one, other = expected**power, received**power
            error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / draws)
            assert np.all(np.abs(other.mean(axis=0) - one.mean(axis=0)) <= 4.5 * error)


def overlaps_of_weights(arch, draws, rng):
    """U_1 … U_a [draw, row, row] of weights from the prior."""
    shapes, variances = arch.weight_shapes, weight_variances(arch)
    weights = {
        name: math.sqrt(variances[name]) * rng.standard_normal((draws, *shape))
        for name, shape in shapes.items()
    }
    return [np.asarray(one) for one in jax.vmap(lambda drawn: overlaps(drawn, arch))(weights)]


@pytest.mark.slow
def test_outputs_and_labels_have_the_law_that_follows_from_order_parameters():
    """fᵀ K⁻¹ f of a teacher is χ² of as many degrees as there are outputs, and so is the noise."""
    squares, noise, recipe = [], [], recipe_of(examples_train=4)
    inputs = build_task(recipe)
    for seed in range(150):
        recipe = recipe_of(seed=seed, examples_train=4)
        task = with_teacher(inputs, recipe)
        overlap, outputs = task.teacher.order_parameters[0], task.teacher.outputs
        features, f = [], []
        for name, split in task.named_splits.items():
            features.append(features_of(task, recipe, split)[:2])
            f.append(outputs[name][:2, 0])
            noise.append(np.mean((split.labels - outputs[name]) ** 2) / 0.001)
        features, f = np.concatenate(features), np.concatenate(f)
        kernel = np.einsum("xpi,pq,yqi->xy", features, overlap, features)
        squares.append(f @ np.linalg.solve(kernel, f) / len(f))
    for found in (squares, noise):
        assert np.mean(found) == pytest.approx(1.0, abs=4.5 * np.std(found) / math.sqrt(len(found)))
        assert np.std(found) / math.sqrt(len(found)) < 0.06


def test_a_network_outside_the_theory_teaches_as_its_definition_says():
    recipe = recipe_of(network={"values": "relu"})
    inputs, task = build_task(recipe), make_labelled_task(recipe)
    assert task.teacher.order_parameters == ()
    rng = stream(0, Stream.TEACHER_WEIGHTS)
    arch = recipe.network.architecture(task.heads, task.channels, task.outputs)
    weights = {
        name: math.sqrt(weight_variances(arch)[name]) * rng.standard_normal(shape)
        for name, shape in arch.weight_shapes.items()
    }
    data = NetworkData(inputs.test.inputs, inputs.test.attention, recipe.network.readout)
    expected = loops(network_of(arch, None, "relu"), data, weights)
    np.testing.assert_allclose(task.teacher.outputs["test"], expected, rtol=1e-12)


@pytest.mark.slow
def test_the_temperature_is_drawn_where_it_has_a_prior():
    posterior = {"temperature_spread": 0.5}
    inputs = build_task(recipe_of(posterior=posterior))
    teachers = [
        with_teacher(inputs, recipe_of(seed=seed, posterior=posterior)).teacher
        for seed in range(150)
    ]
    logs = np.log([one.temperature / 0.001 for one in teachers])
    assert np.mean(logs) == pytest.approx(0.0, abs=4 * 0.5 / math.sqrt(150))
    assert np.std(logs) == pytest.approx(0.5, rel=4 / math.sqrt(300))
    known = make_labelled_task(recipe_of()).teacher
    assert (known.temperature, known.variances) == (0.001, VARIANCES)


def test_a_teacher_of_infinite_width_has_the_order_parameters_of_its_limit():
    network = {"variances": list(VARIANCES)}
    taught = MARKOV | {"labels": "teacher"}
    recipe = learned_recipe(task=taught, widths="infinite", network=network)
    products = 1.3 * 0.6 * 1.1, 0.6 * 1.1, 1.1
    overlaps = make_labelled_task(recipe).teacher.order_parameters
    for overlap, product, size in zip(overlaps, products, (4, 2, 1), strict=True):
        np.testing.assert_allclose(overlap, product * np.eye(size), rtol=1e-12)


# --- what is kept, and how it goes through the program


def test_examples_that_are_not_held_have_the_same_labels(monkeypatch):
    settings = {"examples_train": 40, "examples_test": 30}
    held = make_labelled_task(recipe_of(**settings))
    monkeypatch.setattr(limits, "HELD_BYTES", 1)
    monkeypatch.setattr(limits, "BLOCK_BYTES", 8 * 5 * 400)
    streamed = make_labelled_task(recipe_of(**settings))
    assert isinstance(streamed.train, StreamedExamples)
    for name in ("train", "test", "validation"):
        expected, received = (task.named_splits[name].labels for task in (held, streamed))
        np.testing.assert_allclose(received, expected, rtol=1e-12)
    later = np.concatenate([block.labels for block in streamed.train.blocks(16)])
    np.testing.assert_array_equal(later, streamed.train.labels[16:])


def test_seeds_make_other_teachers_and_other_labels_are_the_tasks_own():
    task, other = make_labelled_task(recipe_of()), make_labelled_task(recipe_of(seed=1))
    np.testing.assert_array_equal(task.train.inputs, other.train.inputs)
    assert not np.allclose(task.train.labels, other.train.labels)
    own = make_labelled_task(recipe_of(labels="task"))
    assert own.teacher is None
    assert set(np.unique(own.train.labels)) == {-1.0, 1.0}


def test_the_table_of_a_teacher_has_its_outputs_by_split_and_its_attention():
    recipe = learned_recipe(
        task=MARKOV | {"labels": "teacher"}, network={"variances": list(VARIANCES)}
    )
    task, table = make_labelled_task(recipe), sampler.teacher_of(recipe)
    axes = {"train": "example", "test": "test_example", "validation": "validation_example"}
    for name, axis in axes.items():
        values = table[f"predictor_{name}"]
        assert values.dims == (axis,)
        np.testing.assert_array_equal(values, task.teacher.outputs[name][:, 0])
    names = "order_parameter", "order_parameter_layer_2", "readout_order_parameter"
    for name, overlap in zip(names, task.teacher.order_parameters, strict=True):
        np.testing.assert_array_equal(table[name], overlap)
    for layer, names in ((1, ["learned", "good"]), (2, ["random", "learned"])):
        assert table[f"head_{layer}"].values.tolist() == names
        chosen = task.train.attention[layer - 1][table["measured_example"]]
        np.testing.assert_allclose(table[f"attention_{layer}"], chosen, rtol=1e-6, atol=1e-7)
    assert table.attrs["temperature"] == 0.3
    assert tuple(table.attrs["variances"]) == VARIANCES


@pytest.mark.slow
def test_a_sweep_has_a_teacher_at_every_point_and_python_has_the_same(tmp_path):
    file, out = tmp_path / "taught.toml", tmp_path / "out"
    file.write_text(TINY.replace("[attention]", 'labels = "teacher"\n[attention]'))
    with without_drawing():
        swept = ("--set", "sweep={'network.widths' = [3, 5]}")
        in_process("solve", file, "--out", out, *swept)
    assert len(list(out.glob("*/teacher.nc"))) == 2
    expected = sampler.teacher_of(sampler.Recipe.load(file))
    with xr.open_dataset(out / "network.widths=3" / "teacher.nc") as received:
        assert set(received) == set(expected)
        for name in expected:
            np.testing.assert_allclose(received[name], expected[name], rtol=1e-12)
    own = sampler.Recipe.load(file, {"task.labels": "task"})
    with pytest.raises(InputError) as caught:
        sampler.teacher_of(own)
    assert caught.value.field == "task.labels"
