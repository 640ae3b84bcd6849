"""What a trained network is judged by: accuracies, points of the curve, checksums."""

from dataclasses import replace
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.data.examples import Examples
from sampler.data.labelled_inputs import LabelledSplits, classes_of, labels_of
from sampler.settings.recipe import TrainingRecipe
from sampler.training import steps, training_data
from sampler.training.steps import TrainingState, with_validation
from sampler.training.training_data import ClassifiedData, tabled
from sampler.transformer.trained_transformer import TrainedTransformer, Transformer
from theory.observables import binomial_error

NAMES = ("a", "b", "c")


def drawn(rng, examples: int) -> Examples:
    labels = labels_of(rng.integers(3, size=examples), 3)
    return Examples(rng.standard_normal((examples, 2, 2)), labels)


@pytest.fixture
def splits(rng) -> LabelledSplits:
    return LabelledSplits(*(drawn(rng, count) for count in (12, 9, 10)), NAMES)


def test_accuracies_of_all_splits_have_binomial_errors(splits, monkeypatch):
    """The network says class 0 of everything."""

    def always_class_0(parameters, table, rows, network):
        return np.tile([1.0, 0.0, 0.0], (rows.examples, 1))

    monkeypatch.setattr(training_data, "predict_examples", always_class_0)
    recipe = Mock(spec=TrainingRecipe)
    model = Mock(spec=TrainedTransformer, recipe=recipe, parameters={})
    found = ClassifiedData(recipe, splits).judged(model)
    for name in ("train", "validation", "test"):
        split = getattr(splits, name)
        share = sum(one == 0 for one in classes_of(split.labels)) / split.examples
        error = binomial_error(share, split.examples)
        assert found[name]["examples"] == split.examples
        assert found[name]["network"] == pytest.approx({"accuracy": share, "error": error})


def test_every_number_has_part_in_the_checksum(splits):
    for part in ("inputs", "labels"):
        changed = getattr(splits.validation, part).copy()
        changed[-1, -1] += 1.0
        other = replace(splits.validation, **{part: changed})
        assert replace(splits, validation=other).checksum != splits.checksum
    assert replace(splits).checksum == splits.checksum
    assert replace(splits, names=("a", "b", "d")).checksum != splits.checksum


def test_a_point_of_the_curve_has_the_losses_since_the_one_before(splits, monkeypatch):
    """The best parameters are those of the larger accuracy, of equal ones of the smaller loss."""
    table, rows = tabled(splits.validation)
    targets = splits.validation.labels
    said = iter([targets, 2.0 * targets, 1.5 * targets, -targets])
    monkeypatch.setattr(steps, "predict_examples", lambda *_: next(said))
    state = TrainingState(0, {"w": jnp.zeros(1)}, None, {})
    for step, losses in ((10, (1.0, 3.0)), (20, (5.0,)), (30, (0.5, 1.0)), (40, (7.0,))):
        state = replace(state, step=step, losses=losses, parameters={"w": jnp.full(1, step)})
        state = with_validation(state, table, rows, Mock(spec=Transformer))
        assert state.losses == ()
    assert [point["training_loss"] for point in state.curve] == [2.0, 5.0, 0.75, 7.0]
    size = float(np.mean(targets**2))
    expected = [0.0, size, 0.25 * size, 4.0 * size]
    assert [point["validation_loss"] for point in state.curve] == pytest.approx(expected, rel=1e-15)
    assert [point["validation_accuracy"] for point in state.curve][:3] == [1.0] * 3
    assert (state.best_point["step"], state.best["w"].tolist()) == (10, [10.0])
