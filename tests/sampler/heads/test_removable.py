"""Heads of PyTorch modules that can go together, against the same module with columns of zeros."""

import copy

import numpy as np
import pytest

import sampler
from sampler.errors import InputError
from tests.sampler.heads.families import HEADS, family, torch

EXAMPLES = 24


def drawn(seed: int):
    """Tokens, and labels by the sign of their first channels' mean."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(EXAMPLES, *family("nano_gpt").inputs.shape[1:], generator=generator)
    return tokens, tokens[:, :, 0].mean(dim=1).sign()


SPLITS = {name: drawn(seed) for seed, name in enumerate(("train", "validation", "test"))}
UNSEEN = {name: SPLITS[name] for name in ("validation", "test")}


@pytest.fixture(scope="module")
def model():
    made = family("nano_gpt").model
    readout = torch.nn.Linear(2, 1)

    class Single(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.made, self.readout = made, readout

        def forward(self, tokens):
            return self.readout(self.made(tokens))[:, 0]

    torch.manual_seed(3)
    torch.nn.init.normal_(readout.weight)
    return Single().eval()


@pytest.fixture(scope="module")
def found(model):
    return sampler.removable(model, loss=0.05, **UNSEEN, compared=["all"], random=2, progress=False)


def loss_without(model, heads, split) -> np.ndarray:
    """The loss of each example with the columns of W_O of these heads zeroed."""
    cut = copy.deepcopy(model)
    for layer, head in heads:
        weight = cut.made.blocks[layer - 1].c_proj.weight
        width = weight.shape[1] // HEADS
        with torch.no_grad():
            weight[:, head * width : (head + 1) * width] = 0.0
    tokens, labels = split
    with torch.no_grad():
        return np.logaddexp(0.0, -(labels * cut(tokens)).numpy())


def test_the_set_costs_what_the_model_without_it_loses(model, found):
    for name, curve in (("validation", found.order.validation), ("test", found.order.test)):
        whole = loss_without(model, (), SPLITS[name])
        for place, heads in enumerate(curve.removed):
            gained = loss_without(model, heads, SPLITS[name]) - whole
            expected = gained.mean(), gained.std(ddof=1) / np.sqrt(EXAMPLES)
            np.testing.assert_allclose(curve.at(place), expected, rtol=1e-4, atol=1e-6)


def test_validation_chooses_and_test_examples_say_the_cost(model, found):
    whole = loss_without(model, (), SPLITS["validation"]).mean()
    costs = [
        loss_without(model, heads, SPLITS["validation"]).mean() - whole
        for heads in found.order.validation.removed
    ]
    above = [place for place, cost in enumerate(costs) if place and cost > 0.05]
    assert found.place == (above[0] - 1 if above else len(costs) - 1)
    assert found.heads == found.order.test.removed[found.place]
    gained = loss_without(model, found.heads, SPLITS["test"])
    gained = gained - loss_without(model, (), SPLITS["test"])
    assert found.loss[0] == pytest.approx(gained.mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give one limit"),
        ({"loss": 0.1, "score": "taylr"}, "score = "),
        ({"loss": 0.1, "score": "zeroed"}, "need a `network`"),
        ({"loss": 0.1, "replacement": "noise"}, "replacement = "),
    ],
)
def test_what_cannot_be_used_is_refused(without_annotation_checks, model, settings, message):
    with pytest.raises(InputError, match=message):
        sampler.removable(model, **UNSEEN, **settings, progress=False)


def test_a_limit_of_accuracy_needs_classes(model):
    numbers = {name: (tokens, torch.randn(EXAMPLES)) for name, (tokens, _) in UNSEEN.items()}
    with pytest.raises(InputError, match="no classes: give a limit of the loss"):
        sampler.removable(model, accuracy=0.1, **numbers, progress=False)
    found = sampler.removable(model, loss=100.0, **numbers, progress=False)
    assert found.accuracy is None
    assert len(found.heads) == 2 * HEADS
