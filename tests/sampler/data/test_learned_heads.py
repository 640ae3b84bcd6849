"""Data for learned heads: which heads there are, and attention that a draw of their prior makes."""

import numpy as np
import pytest

import sampler
from sampler.data.examples import attended_by_numpy
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.streams import Stream, stream
from sampler.teacher import with_teacher
from tests.assertions import assert_within_mcse
from tests.recipes import MARKOV, learned_recipe

INPUTS = np.random.default_rng(5).standard_normal((2, 9, 4, 3))
LABELS = np.sign(INPUTS[:, :, 1, 0])
ARRAYS = {
    "inputs": INPUTS[0],
    "labels": LABELS[0],
    "inputs_test": INPUTS[1],
    "labels_test": LABELS[1],
}


# A form of logits, what they read, shapes of their numbers, and the variance of each scale c of
# three channels, where the one that is set is 5.
FORMS = [
    ({"form": "low_rank", "rank": 2}, "inputs", (1, 2, 2, 3), [5 / 3] * 2),
    ({"form": "full"}, "inputs", (1, 3, 3), [5 / 3] * 3),
    ({"form": "positions"}, "inputs", (1, 4), [5]),
    ({"rank": 2}, "stream", (1, 2, 2, 7), [5] * 2),
    ({"form": "full"}, "stream", (1, 7, 7), [5]),
]


@pytest.mark.parametrize(("form", "reads", "shape", "variances"), FORMS)
def test_arrays_without_attention_have_learned_heads(form, reads, shape, variances):
    """Hidden vectors z/√N of the stream have unequal sizes, which their logits do not divide by."""
    chosen = {"heads": [["learned", "uniform"], ["learned"]], "reads": reads}
    learned = form | {"variance": 5.0}
    task = sampler.Arrays(**ARRAYS).make(sampler.Attention(**chosen, learned=learned))
    assert task.heads == (2, 1)
    assert task.learned.shapes(4, 3, (7, 7)) == {"logits_1": shape, "logits_2": shape}
    np.testing.assert_allclose(task.learned.scale**2, variances)
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


# The logit of a key and a query, from the normal numbers of a head and the place of the key.
LOGITS = [
    (None, (3, 3), lambda Z, x, y, place: x @ Z @ y / 3),
    ({"form": "low_rank", "rank": 2, "variance": 6.0}, (2, 2, 3),
     lambda Z, x, y, place: 2 * (Z[1] @ x) @ (Z[0] @ y) / np.sqrt(2)),
    ({"form": "positions", "variance": 4.0}, (4,), lambda Z, x, y, place: 2 * Z[place]),
]  # fmt: skip


@pytest.mark.parametrize(("learned", "shape", "logit"), LOGITS)
def test_arrays_have_a_draw_of_the_prior(learned, shape, logit):
    """The attention that a teacher has, query by query."""
    chosen = sampler.Attention(heads=[["uniform", "learned"]], learned=learned)
    recipe = sampler.Recipe(task=sampler.Arrays(**ARRAYS), attention=chosen, network={"widths": 3})
    drawn = build_task(recipe).train.attention[0][:, 1]
    Z = stream(0, Stream.HEADS, 0, 1).standard_normal(shape)
    for tokens, received in zip(INPUTS[0], drawn, strict=True):
        for t, query in enumerate(tokens):
            weights = np.exp([logit(Z, key, query, place) for place, key in enumerate(tokens)])
            np.testing.assert_allclose(received[:, t], weights / weights.sum(), rtol=1e-12)


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
