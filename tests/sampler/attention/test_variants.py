"""Every attention variant against loops from its definition; heads in every form."""

import math
from contextlib import nullcontext
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from sampler.attention.layers import layer_matrices
from sampler.attention.logits import head_matrices
from sampler.attention.variants import (
    AttentionVariant,
    BatchNormalised,
    FirstOrder,
    HeadNormalised,
    Linear,
    Robust,
    ScaledHeads,
    Softmax,
    logits,
    normalised_columns,
    softmax,
)
from sampler.data.make import build_task
from sampler.data.markov_chain import MarkovChain, head_weights
from sampler.errors import InputError
from sampler.settings.recipe import Recipe, TrainingRecipe
from tests.assertions import assert_equal_to_rounding

EXAMPLES, HEADS, TOKENS, SIZE = 3, 2, 8, 5


def softmax_row(values):
    largest = max(values)
    weights = [math.exp(value - largest) for value in values]
    return [weight / sum(weights) for weight in weights]


def rows_of_softmax(q, k, seen=lambda i, j: True):
    """A of one head, query by query, over the keys that are seen."""
    rows = np.zeros((len(q), len(k)))
    for i, query in enumerate(q):
        keys = [j for j in range(len(k)) if seen(i, j)]
        row = softmax_row([float(query @ k[j]) / math.sqrt(len(query)) for j in keys])
        for j, weight in zip(keys, row, strict=True):
            rows[i, j] = weight
    return rows


def linear_rows(q, k):
    def feature(x):
        return np.array([value + 1 if value > 0 else math.exp(value) for value in x])

    products = np.array([[feature(a) @ feature(b) for b in k] for a in q])
    return products / products.sum(axis=1)[:, None]


def first_order_rows(q, k, offset):
    values = [[float(a @ b) / math.sqrt(len(a)) for b in k] for a in q]
    if offset:
        return np.array([[(1 + value) / len(k) for value in row] for row in values])
    return np.array([[value / math.sqrt(len(k)) for value in row] for row in values])


def normalised_rows(q, k, beta, scaling, epsilon=1e-5):
    mean = np.array([sum(key[c] for key in k) / len(k) for c in range(q.shape[1])])
    variance = np.array(
        [sum((key[c] - mean[c]) ** 2 for key in k) / len(k) for c in range(q.shape[1])]
    )
    size = np.sqrt(variance + epsilon) if scaling else np.ones_like(mean)
    return rows_of_softmax((q - beta * mean) / size, (k - beta * mean) / size)


def pooled_keys(k, scale):
    return np.array(
        [np.mean(k[g * scale : (g + 1) * scale], axis=0) for g in range(len(k) // scale)]
    )


def unpooled(rows, tokens, scale):
    """Each weight of a group is shared by its tokens."""
    spread = np.zeros((len(rows), tokens))
    for group in range(rows.shape[1]):
        for token in range(group * scale, (group + 1) * scale):
            spread[:, token] = rows[:, group] / scale
    return spread


def scaled_rows(q, k, scale):
    return unpooled(rows_of_softmax(q, pooled_keys(k, scale)), len(k), scale)


# Tokens of the first 2 × 2 patches of a 2 × 4 grid, then of the second.
BLOCKS = [0, 1, 4, 5, 2, 3, 6, 7]


def strided_rows(q, k, scale):
    first = np.arange(len(k) // scale) * scale  # a last group that is not full has none
    found = np.zeros((len(q), len(k)))
    found[:, first] = rows_of_softmax(q, k[first])
    return found


def robust_rows(q, k, limit):
    clipped = np.array([[min(max(v, -limit), limit) for v in key] for key in k])
    return rows_of_softmax(clipped, clipped)


# A variant, and its definition for one head as A = Ωᵀ.
CASES = {
    "softmax": (Softmax(), rows_of_softmax),
    "causal": (Softmax(mask="causal"), lambda q, k: rows_of_softmax(q, k, lambda i, j: j <= i)),
    "window": (
        Softmax(mask="window", window=2),
        lambda q, k: rows_of_softmax(q, k, lambda i, j: abs(i - j) <= 2),
    ),
    "one-sided window": (
        Softmax(mask="one_sided_window", window=2),
        lambda q, k: rows_of_softmax(q, k, lambda i, j: 0 <= i - j <= 2),
    ),
    "linear": (Linear(), linear_rows),
    "first order": (FirstOrder(), lambda q, k: first_order_rows(q, k, True)),
    "first order, no offset": (
        FirstOrder(offset=False),
        lambda q, k: first_order_rows(q, k, False),
    ),
    "batch normalised": (BatchNormalised(beta=0.7), lambda q, k: normalised_rows(q, k, 0.7, True)),
    "batch normalised, no scaling": (
        BatchNormalised(beta=0.7, scaling=False),
        lambda q, k: normalised_rows(q, k, 0.7, False),
    ),
    # the last two tokens make no group
    "scaled heads": (ScaledHeads(scale=3), lambda q, k: scaled_rows(q, k, 3)),
    "scaled heads, stride": (
        ScaledHeads(scale=3, pooling="stride"),
        lambda q, k: strided_rows(q, k, 3),
    ),
    "scaled heads, block": (
        # two images of 2 × 2 patches: a block is a whole image, four tokens
        ScaledHeads(scale=2, pooling="block", grid=(2, 2)),
        lambda q, k: scaled_rows(q, k, 4),
    ),
    "scaled heads, blocks of an image": (
        ScaledHeads(scale=2, pooling="block", grid=(2, 4)),
        lambda q, k: scaled_rows(q, k[BLOCKS], 4)[:, np.argsort(BLOCKS)],
    ),
    "scaled and normalised": (
        ScaledHeads(scale=2, beta=0.7),
        lambda q, k: unpooled(normalised_rows(q, pooled_keys(k, 2), 0.7, True), len(k), 2),
    ),
    "robust": (Robust(limit=0.5), lambda q, k: robust_rows(q, k, 0.5)),
    "head normalised": (HeadNormalised(), None),
}
parametrised = pytest.mark.parametrize(("variant", "rows"), CASES.values(), ids=CASES)


@pytest.fixture
def queries_and_keys(rng):
    shape = (2, EXAMPLES, HEADS, TOKENS, SIZE)
    return tuple(rng.standard_normal(shape))


@parametrised
def test_compiled_it_is_the_same_and_has_a_gradient(variant, rows, queries_and_keys):
    """And logits of any size have finite matrices."""

    def objective(queries, keys):
        found = variant.matrices(queries, keys)
        return jnp.sum(jnp.sin(found)), found

    both = tuple(map(jnp.asarray, queries_and_keys))
    gradients, found = jax.jit(jax.grad(objective, argnums=(0, 1), has_aux=True))(*both)
    expected = variant.matrices(*queries_and_keys)
    assert expected.dtype == np.float64
    assert_equal_to_rounding(found, expected, operations=1000)
    assert all(bool(jnp.isfinite(gradient).all()) for gradient in gradients)
    assert any(bool(jnp.any(gradient != 0)) for gradient in gradients)
    single = variant.matrices(*(one.astype(jnp.float32) for one in both))
    assert single.dtype == jnp.float32
    assert np.isfinite(variant.matrices(*(1e3 * values for values in queries_and_keys))).all()


@parametrised
def test_it_equals_a_loop_over_its_definition(variant, rows, queries_and_keys):
    queries, keys = queries_and_keys
    found = variant.matrices(queries, keys)
    assert found.shape == (EXAMPLES, HEADS, TOKENS, TOKENS)
    for example, head in np.ndindex(EXAMPLES, HEADS) if rows else ():
        expected = rows(queries[example, head], keys[example, head])
        assert_equal_to_rounding(found[example, head].T, expected, operations=1000)


def test_head_normalised_logits_are_divided_by_their_size_over_heads(queries_and_keys):
    queries, keys = queries_and_keys
    found = HeadNormalised().matrices(queries, keys)
    for example in range(EXAMPLES):
        for i in range(TOKENS):
            for j in range(TOKENS):
                values = [queries[example, h, i] @ keys[example, h, j] / math.sqrt(SIZE)
                          for h in range(HEADS)]  # fmt: skip
                size = math.sqrt(sum(v**2 for v in values) / HEADS + 1e-5)
                expected = np.array(values) / size
                assert_equal_to_rounding(found[example, :, j, i], expected, operations=100)


def test_a_layer_takes_every_head_as_it_is(rng):
    """Heads of one variant stand apart, with another between them."""
    shape = (2, EXAMPLES, 4, TOKENS, SIZE)
    queries, keys = rng.standard_normal(shape)
    variants = (Softmax(), ScaledHeads(scale=2), Softmax(), HeadNormalised())
    found = layer_matrices(variants, queries, keys)
    assert found.shape == (EXAMPLES, 4, TOKENS, TOKENS)
    for head, variant in enumerate(variants):
        alone = variant.matrices(queries[:, [head]], keys[:, [head]])
        assert_equal_to_rounding(found[:, [head]], alone, operations=100)


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        (Softmax, {"mask": "window"}),
        (Softmax, {"mask": "causal", "window": 3}),
        (ScaledHeads, {"scale": 2, "pooling": "block"}),
        (Robust, {"limit": -1.0}),
    ],
)
def test_settings_that_make_no_sense_are_refused(variant, settings):
    with pytest.raises(ValidationError):
        variant(**settings)


@pytest.mark.parametrize(
    "form",
    [
        ScaledHeads(scale=9),
        ScaledHeads(scale=3, pooling="block", grid=(2, 4)),
    ],
)
def test_sequences_that_do_not_fit_are_refused(form):
    with pytest.raises(ValueError, match=r"scale|grid"):
        form.refuse_tokens(TOKENS)


class HardMaximum(AttentionVariant):
    """Ω_st = 1 for the s with the largest k_s·q_t, shared equally among equals; 0 otherwise."""

    kind: Literal["hard_maximum_of_this_test"] = "hard_maximum_of_this_test"
    untrainable: ClassVar[str | None] = "has no derivative"

    def matrices(self, queries, keys):
        values = logits(queries, keys)
        largest = values.max(axis=-2, keepdims=True)
        return normalised_columns((values == largest).astype(values.dtype))


def test_a_variant_without_derivatives_is_refused_where_its_logits_would_move():
    """Where they are sampled or trained; of fixed heads it is taken."""
    form, joined = HardMaximum(), HeadNormalised()
    own = {"task": MarkovChain(tokens=4, features=6), "network": {"widths": 3}}
    of_head_1 = "attention.form (layer 1, head 1)"
    for kinds, forms, field in (
        (("uniform", "good"), [Softmax(), form], None),
        (("uniform", "learned"), [Softmax(), form], of_head_1),
        # Heads that see each other are all learned, or all fixed.
        (("good", "learned"), [joined, joined], of_head_1),
        (("good", "learned"), [Softmax(), joined], None),
    ):
        heads = {"heads": [kinds], "form": [forms]}
        refused = nullcontext() if field is None else pytest.raises(InputError)
        with refused as caught:
            build_task(Recipe(**own, attention=heads))
        assert field is None or caught.value.field == field
    training = {"heads": [2], "widths": 4, "key_size": 2}
    task = {"kind": "one_shot", "images": "digits"}
    for variants, refused in (([Softmax()], False), ([[Softmax(), form]], True)):
        with pytest.raises(InputError) if refused else nullcontext() as caught:
            TrainingRecipe(task=task, training=training | {"form": variants})
        assert not refused or caught.value.field == "training.form"


# --- matrices of heads in every form, and the published arrays


EPSILON = np.finfo(float).eps


def test_huge_logits_neither_overflow_nor_lose_the_largest():
    logits = np.array([[1e308, -1e308], [1e308, 700.0], [-1e308, 701.0]])
    expected = np.array([[0.5, 0.0], [0.5, 1 / (1 + np.e)], [0.0, np.e / (1 + np.e)]])
    with np.errstate(over="ignore"):  # −1e308 − 1e308 is −inf, whose exponential is 0
        received = softmax(logits)
    assert np.all(np.abs(received - expected) <= 4 * EPSILON)


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize("form", ["low_rank", "full", "positions"])
def test_softmax_attention_equals_a_loop(form, library, rng):
    """Of drawn and trained heads, in NumPy, and of sampled ones, in JAX: one function."""
    inputs = rng.standard_normal((2, 5, 6))
    if form == "full":
        given = weights = rng.standard_normal((3, 6, 6))
    elif form == "low_rank":
        query, key = given = rng.standard_normal((2, 3, 4, 6))
        weights = [k.T @ q / np.sqrt(4) for q, k in zip(query, key, strict=True)]
    else:  # the logits of keys are those of an input of its own, whatever the query
        given = rng.standard_normal((3, 5))
    arrays = tuple(map(library.asarray, given)) if form == "low_rank" else library.asarray(given)
    made = head_matrices(form, arrays, library.asarray(inputs), (Softmax(),) * 3)
    assert isinstance(made, type(library.asarray(inputs)))
    received = np.asarray(made)
    if form == "positions":
        expected = np.exp(given) / np.exp(given).sum(axis=1, keepdims=True)
        expected = np.broadcast_to(expected[None, :, :, None], (2, 3, 5, 5))
        assert_equal_to_rounding(received, expected, operations=4 * 36, condition=1.0)
        return
    size = 0.0
    expected = np.empty((2, 3, 5, 5))
    for example in range(2):
        for head in range(3):
            for t in range(5):
                moved = weights[head] @ inputs[example, t]
                logits = [inputs[example, s] @ moved for s in range(5)]
                expected[example, head, :, t] = np.exp(logits) / np.sum(np.exp(logits))
                terms = np.abs(inputs[example]) @ np.abs(weights[head])
                size = max(size, (terms @ np.abs(inputs[example, t])).max())
    # The rounding of a logit is the relative one of its exponential.
    assert_equal_to_rounding(received, expected, operations=4 * 36, condition=size)


def test_random_heads_have_the_published_scales(reference):
    for expected in reference["random_head_scales"]:
        received = head_weights("random", 200, 31, 10.0, np.random.default_rng(0))
        for i, rows in enumerate((slice(0, 200), slice(200, 231))):
            for j, columns in enumerate((slice(0, 200), slice(200, 231))):
                block = received[rows, columns]
                # Relative standard error of a standard deviation: 1/√(2n), here for two of them.
                error = np.sqrt(2 / (2 * block.size))
                assert abs(block.std() / expected[i, j] - 1) < 5 * error


def test_attended_inputs_of_the_good_path_are_the_published_ones(reference):
    inputs = np.concatenate([reference["first_input_features"], np.eye(31)], axis=1)[None]
    generator = np.random.default_rng(0)
    good, uniform = (head_weights(kind, 200, 31, 10.0, generator) for kind in ("good", "uniform"))
    first, second = head_matrices("full", np.stack([good, uniform]), inputs, (Softmax(),) * 2)[0]
    received = second[:, -1] @ first.T @ inputs[0]  # last-token readout
    # A logit is a sum of about 231² products. Rounding moves it by at most 2·231 ε times the sum
    # of their sizes, and the attention, relatively, by twice that.
    size = np.abs(inputs[0])
    bound = 2 * 2 * 231 * EPSILON * np.max(size @ np.abs(good) @ size.T) * np.max(size)
    difference = np.max(np.abs(received - reference["attended_inputs_train"][0, 0]))
    assert difference <= min(bound, 1e-10)
