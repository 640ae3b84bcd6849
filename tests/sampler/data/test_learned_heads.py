"""Data for learned heads: which heads there are, and attention that a draw of their prior makes."""

import jax.numpy as jnp
import numpy as np
import pytest

import sampler
from sampler.data.examples import attended_by_numpy
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.streams import Stream, stream
from sampler.teacher import with_teacher
from tests.assertions import assert_within_mcse
from tests.recipes import MARKOV, learned_problem, learned_recipe

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
    with pytest.raises(InputError, match="layer 1 of these data has 'learned', 'uniform', 'other'"):
        arrays.make(sampler.Attention(heads=[["theirs"]]))


@pytest.mark.parametrize("form", ["low_rank", "positions"])
def test_a_form_of_its_own_has_a_draw_of_its_prior_in_the_data(form):
    """The attention that a teacher has: that of sampled heads at the same normal numbers."""
    rank = {"rank": 3} if form == "low_rank" else {}
    heads = (("learned", "good"), ("learned",))
    attention = {"learned": {"form": form, "variance": 2.0, **rank}}
    task = build_task(learned_recipe(heads=heads, attention=attention))
    shapes = task.learned.shapes(task.train.tokens, task.channels)
    assert set(shapes) == {"logits_1", "logits_2"}
    position = {
        name: jnp.asarray(stream(0, Stream.HEADS, layer, 0).standard_normal(shape))
        for layer, (name, shape) in enumerate(shapes.items())
    }
    data = learned_problem(heads=heads, attention=attention).data
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
