"""Raven's matrices against every ninth panel that a rule allows; heads; the trained network."""

import itertools
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.data.make import build_task
from sampler.data.raven import (
    MatrixSection,
    MatrixSplits,
    MatrixTokens,
    draw_matrices,
)
from sampler.problem import build_problem
from sampler.settings.recipe import make_recipe
from sampler.streams import Stream, stream
from sampler.token_network import TokenNetwork, predict_split, token_arrays
from sampler.training.training_data import learning_data
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import theory_weights
from tests.assertions import assert_equal_to_rounding
from tests.training_recipes import write_untrained

RULES = ("constant", "progression_1", "progression_2", "sum", "distribution")
SMALL = {"kind": "raven", "examples_train": 60, "examples_test": 40}


def holds(rule, rows, symbols):
    """Whether a rule holds in all three rows, said once more without arithmetic on arrays."""
    if rule == "distribution":
        different = len(set(rows)) == 3
        return different and len(set(rows[0])) == 3 and len({frozenset(row) for row in rows}) == 1
    third = {
        "constant": lambda a, b: (a, a),
        "progression_1": lambda a, b: ((a + 1) % symbols, (a + 2) % symbols),
        "progression_2": lambda a, b: ((a + 2) % symbols, (a + 4) % symbols),
        "sum": lambda a, b: (b, (a + b) % symbols),
    }[rule]
    return all((b, c) == third(a, b) for a, b, c in rows)


def explanations(panels, symbols, rules=RULES):
    """The ninth symbols with which some rule holds, and these rules, of eight symbols."""
    found = {}
    for ninth in range(symbols):
        full = [*map(int, panels[:8]), ninth]
        rows = tuple(tuple(full[start : start + 3]) for start in (0, 3, 6))
        those = {rule for rule in rules if holds(rule, rows, symbols)}
        found |= {ninth: those} if those else {}
    return found


def section(**settings):
    return MatrixSection(kind="raven", **settings)


def drawn(examples=400, **settings):
    one = section(**settings)
    return one, draw_matrices(one, MatrixSplits(one).seen, examples, stream(0, Stream.TRAIN))


@pytest.mark.parametrize("symbols", [3, 8])
def test_a_matrix_follows_its_rules_and_no_rule_ends_in_another_panel(symbols):
    one, matrices = drawn(features=3, symbols=symbols)
    for panels, rules in zip(matrices.panels, matrices.rules, strict=True):
        for feature, rule in enumerate(rules):
            found = explanations(panels[:, feature], symbols)
            assert list(found) == [panels[8, feature]]
            assert one.rules[rule] in found[panels[8, feature]]


def test_the_ninth_panel_is_distributed_as_among_all_unambiguous_matrices():
    """All matrices of three symbols, rule by rule, counted: 4.5 errors of 3,000 draws."""
    rows = list(itertools.product(range(3), repeat=3))
    for rule in RULES:
        counts = np.zeros(3)
        for those in itertools.product(rows, repeat=3):
            if holds(rule, those, 3):
                flat = np.ravel(those)
                counts[flat[8]] += len(explanations(flat, 3)) == 1
        expected = 3000 * counts / counts.sum()
        _, matrices = drawn(3000, features=1, symbols=3, rules=RULES, held_out=0)
        of_rule = matrices.panels[matrices.rules[:, 0] == RULES.index(rule), 8, 0]
        expected *= len(of_rule) / 3000
        received = np.bincount(of_rule, minlength=3)
        error = np.sqrt(expected * (1 - expected / len(of_rule)))
        assert np.all(np.abs(received - expected) <= 4.5 * error + 1e-9), rule


@pytest.mark.parametrize("held_out", [1, 0.6])
def test_every_rule_is_seen_in_every_feature_and_no_composition_in_both(held_out):
    for seed in range(20):
        splits = MatrixSplits(section(held_out=held_out, split_seed=seed))
        wanted = held_out if isinstance(held_out, int) else round(held_out * 25)
        assert (len(splits.seen), len(splits.held_out)) == (25 - wanted, wanted)
        together = {tuple(one) for one in np.concatenate([splits.seen, splits.held_out])}
        assert together == set(itertools.product(range(5), repeat=2))
        for feature in range(2):
            counts = np.bincount(splits.held_out[:, feature], minlength=5)
            assert np.ptp(counts) <= (2 if wanted > 5 else wanted % 5)
            assert set(splits.seen[:, feature]) == set(range(5))


def recipe_of(attention=None, network=None, **settings):
    sections = {"name": "raven", "task": {**SMALL, **settings}, "network": {"widths": 6}}
    sections["network"] |= network or {}
    return make_recipe(sections | ({} if attention is None else {"attention": attention}))


def read_panels(inputs, features, symbols):
    """Symbols of the eight panels, from the tokens."""
    hot = inputs[:, :8, : features * symbols].reshape(len(inputs), 8, features, symbols)
    return hot.argmax(axis=3)


def test_splits_are_of_their_compositions_and_labels_of_the_ninth_panel():
    recipe = recipe_of(examples_validation=40)
    task, splits = build_task(recipe), MatrixSplits(recipe.task)
    of_split = {"train": splits.seen, "validation": splits.seen, "test": splits.held_out}
    for name, split in task.named_splits.items():
        allowed = {tuple(RULES[rule] for rule in one) for one in of_split[name]}
        ninth = split.labels.reshape(-1, 2, 5).argmax(axis=2)
        assert_equal_to_rounding(
            split.labels.reshape(-1, 2, 5), np.eye(5)[ninth] - 0.2, operations=2
        )
        for panels, last in zip(read_panels(split.inputs, 2, 5), ninth, strict=True):
            found = [explanations(panels[:, feature], 5) for feature in range(2)]
            assert [list(one) for one in found] == [[last[0]], [last[1]]]
            assert allowed & set(itertools.product(*(one[last[f]] for f, one in enumerate(found))))


def test_one_feature_is_asked_for_by_the_ninth_token():
    """All else is that of the task that asks for all: the same matrices."""
    one, whole = (
        MatrixTokens.of(section(asks=asks, features=3, symbols=4)) for asks in ("one", "all")
    )
    _, matrices = drawn(50, asks="one", features=3, symbols=4)
    inputs, asked = one.inputs(matrices.panels, matrices.asked), matrices.asked
    np.testing.assert_array_equal(inputs[:, :, :21], whole.inputs(matrices.panels, asked))
    np.testing.assert_array_equal(inputs[:, :8, 21:], 0.0)
    np.testing.assert_array_equal(inputs[:, 8, 21:], np.eye(3)[asked])
    by_feature = whole.targets(matrices).reshape(50, 3, 4)
    np.testing.assert_array_equal(one.targets(matrices), by_feature[np.arange(50), asked])
    assert set(asked) == {0, 1, 2}
    assert (one.channels, one.outputs) == (24, 4)


def test_named_heads_attend_to_rows_columns_and_equal_symbols():
    attention = {"heads": [["row", "column", "same", "uniform"]], "inverse_temperature": 1.5}
    task = build_task(recipe_of(attention, features=1, held_out=0, test_compositions="seen"))
    row, column, same, uniform = np.moveaxis(task.train.attention[0], 1, 0)
    places = np.arange(9)

    def weighed(logits):
        return np.exp(logits) / np.exp(logits).sum(axis=-2, keepdims=True)

    for received, group in ((row, places // 3), (column, places % 3)):
        expected = weighed(1.5 * (group[:, None] == group))
        assert_equal_to_rounding(received, np.broadcast_to(expected, received.shape), operations=40)
    symbols = read_panels(task.train.inputs, 1, 5)[:, :, 0]
    alike = np.where(symbols[:, :, None] == symbols[:, None], 1.0, -0.25)
    logits = np.zeros((60, 9, 9))
    logits[:, :8, :8] = 1.5 * alike
    assert_equal_to_rounding(same, weighed(logits), operations=40)
    assert_equal_to_rounding(uniform, np.full_like(uniform, 1 / 9), operations=10)


TINY = """
name = "tiny"
[task]
kind = "raven"
features = 2
symbols = 4
[training]
heads = [2, 3]
widths = 5
key_size = 3
steps = 3
batch = 4
validation_every = 2
validation_examples = 30
evaluation_examples = 40
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("form", "network"),
    [
        ("softmax", {}),
        ("head_normalised", {"hypernetwork": True, "values": "relu"}),
    ],
)
def test_the_trained_network_is_that_of_the_posterior_on_its_attention(tmp_path, form, network):
    settings = tomllib.loads(TINY)
    settings["training"] |= {"form": {"kind": form}, **network}
    model = write_untrained(tmp_path, make_recipe(settings))
    sizes = {"examples_train": 20, "examples_test": 20, "examples_validation": 0}
    task = build_task(recipe_of(None, {"widths": 5} | network, model=str(tmp_path), **sizes))
    with jax.enable_x64(True):
        parameters = {name: jnp.asarray(a, jnp.float64) for name, a in model.parameters.items()}
        received = transformer_outputs(parameters, jnp.asarray(task.test.inputs), model.network)
        weights = theory_weights(model.parameters, model.network)
        weights = {name: jnp.asarray(values) for name, values in weights.items()}
        architecture, settings = model.network.architecture, model.recipe.training
        kinds = settings.hypernetworks, settings.values, "none", "last"
        tokens = TokenNetwork(architecture, *kinds)
        expected = predict_split(weights, token_arrays(task.test, "last"), tokens)
    assert_equal_to_rounding(received, expected, operations=2000, scale=np.abs(expected).max())
    if network:
        assert task.trained is None
        return
    problem = build_problem(recipe_of(network={"widths": 5}, model=str(tmp_path)), task)
    by_paths = problem.trained.predictor(problem.attended_test)
    assert_equal_to_rounding(by_paths, expected, operations=2000, scale=np.abs(expected).max())


def test_accuracies_are_of_all_features_and_of_each(tmp_path):
    """Of a network before training, on matrices of both kinds of compositions."""
    model = write_untrained(tmp_path, make_recipe(tomllib.loads(TINY)))
    task, splits = model.recipe.task, MatrixSplits(model.recipe.task)
    tokens = MatrixTokens.of(task)
    parameters = {name: jnp.asarray(values) for name, values in model.parameters.items()}
    judged = learning_data(model.recipe, splits).judged(model)
    for place, among in enumerate((splits.seen, splits.seen, splits.held_out)):
        matrices = draw_matrices(task, among, 40, stream(0, Stream.EVALUATION, place))
        inputs = jnp.asarray(tokens.inputs(matrices.panels, matrices.asked), jnp.float32)
        outputs = np.asarray(transformer_outputs(parameters, inputs, model.network))
        right = outputs.reshape(40, 2, 4).argmax(axis=2) == matrices.panels[:, 8]
        of = judged[("train", "validation", "test")[place]]
        assert of["compositions"] == len(among)
        assert of["network"]["accuracy"] == right.all(axis=1).mean()
        assert [one["accuracy"] for one in of["by_feature"]] == list(right.mean(axis=0))
