"""Heads of PyTorch modules that can go together, against the same module with columns of zeros."""

import copy
import json

import numpy as np
import pytest

import sampler
from sampler.errors import InputError
from sampler.heads.cost_tables import order_of
from tests.sampler.torch_models.families import (
    HEADS,
    LAYERS,
    SIZE,
    TOKENS,
    WIDTH,
    called,
    family,
    inputs_of,
    torch,
)

EXAMPLES = 24


def drawn(seed: int):
    """Words, and a class by their sum."""
    made = family("gpt2")
    words = inputs_of(made, examples=EXAMPLES)["input_ids"].roll(seed, 0).roll(seed, 1)
    return {"input_ids": words}, words.sum(dim=1) % 2


SPLITS = {name: drawn(seed) for seed, name in enumerate(("validation", "test"))}


@pytest.fixture(scope="module")
def made():
    return family("gpt2")


@pytest.fixture(scope="module")
def found(made):
    return sampler.removable(made.model, loss=0.05, **SPLITS, progress=False)


def loss_without(made, heads, split) -> np.ndarray:
    """The loss of each example with zeros in the projections of these heads (layer from 1)."""
    cut = copy.deepcopy(made)
    with torch.no_grad():
        for layer, head in heads:
            weight = cut.output(cut.layers[layer - 1])
            weight[head * SIZE : (head + 1) * SIZE] = 0.0
    inputs, classes = split
    outputs = torch.as_tensor(called(cut.model, inputs)).double()
    return torch.nn.functional.cross_entropy(outputs, classes, reduction="none").numpy()


def test_validation_chooses_and_test_examples_say_the_cost(made, found):
    """Of the model without the first heads, for every number of them."""
    order, table, costs = order_of(found.result), found.to_dataframe(), {}
    counts = range(LAYERS * HEADS + 1)
    assert list(table.index) == list(counts)
    for name, split in SPLITS.items():
        whole = loss_without(made, (), split)
        gained = [loss_without(made, order[:count], split) - whole for count in counts]
        costs[name] = np.mean(gained, axis=1)
        errors = np.std(gained, axis=1, ddof=1) / np.sqrt(EXAMPLES)
        received = table[[f"{name}_loss", f"{name}_loss_error"]].values.T
        np.testing.assert_allclose(received, [costs[name], errors], rtol=1e-4, atol=1e-6)
    above = np.flatnonzero(costs["validation"] > 0.05)
    count = above[0] - 1 if above.size else counts[-1]
    assert found.result.attrs["count"] == count
    assert found.loss[0] == pytest.approx(costs["test"][count], abs=1e-6)
    low, high = (found.result.attrs[name] for name in ("low", "high"))
    assert low <= high
    for number in (low, high, EXAMPLES):
        assert str(number) in repr(found)


class Uneven(torch.nn.Module):
    """Layers with 2, 4 and 8 heads; nothing is read of head 2 of the second, 5 of the third."""

    COUNTS = (2, 4, 8)
    UNREAD = ((2, 2), (3, 5))  # layer from 1, head from 0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in self.COUNTS]
        self.joined = torch.nn.ModuleList(layers)
        self.after = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in self.COUNTS)
        self.readout = torch.nn.Linear(WIDTH, 2)
        with torch.no_grad():
            for layer, head in self.UNREAD:
                self.columns(layer, head)[:] = 0.0

    def columns(self, layer: int, head: int):
        """What layer 1, 2, … reads of head 0, 1, …"""
        size = WIDTH // self.COUNTS[layer - 1]
        return self.after[layer - 1].weight[:, head * size : (head + 1) * size]

    def forward(self, tokens):
        for joined, after in zip(self.joined, self.after, strict=True):
            tokens = tokens + after(joined(tokens).tanh())
        return self.readout(tokens[:, -1])


@pytest.mark.parametrize("window", [None, (2, 3)])
def test_layers_count_from_1_in_python_and_in_json(window):
    """The module of layer l is `after.l−1`: what is zero there afterwards are the heads named."""
    model = Uneven()
    projection = {f"after.{at}": count for at, count in enumerate(model.COUNTS)}
    tokens = torch.linspace(-1.0, 1.0, 2 * EXAMPLES * TOKENS * WIDTH).sin()
    tokens = tokens.reshape(2, EXAMPLES, TOKENS, WIDTH)
    with torch.no_grad():  # labels that the model has nearly learned: other heads are needed
        labels = [model(each) + 0.01 * torch.randn(EXAMPLES, 2) for each in tokens]
    splits = dict(zip(("validation", "test"), zip(tokens, labels, strict=True), strict=True))
    found = sampler.removable(
        model, loss=1e-4, **splits, layers=window, projection=projection, progress=False
    )
    first = 1 if window is None else window[0]
    every = [
        (layer, head)
        for layer, count in enumerate(model.COUNTS, start=1)
        for head in range(count)
        if layer >= first
    ]
    named = [(layer, head) for layer, heads in found.heads.items() for head in heads]
    assert {*Uneven.UNREAD} <= {*named} < {*every}
    cut = copy.deepcopy(model)
    found.apply(cut)
    zero = [place for place in every if not cut.columns(*place).any()]
    assert zero == named
    assert {layer + 1: heads for layer, heads in found.layers_from_zero().items()} == found.heads
    stored = json.loads(found.to_json())
    assert {int(layer): heads for layer, heads in stored["heads"].items()} == found.heads
    assert stored["loss"] == list(found.loss)
    table = found.to_dataframe()
    assert sorted(table["head"][1 : len(named) + 1]) == named


def test_the_heads_are_zeroed_saved_and_loaded_with_the_loss_that_was_said(made, tmp_path):
    found = sampler.removable(made.model, loss=5.0, **SPLITS, progress=False)
    assert found.heads
    cut = copy.deepcopy(made.model)
    found.apply(cut)
    cut.save_pretrained(tmp_path)
    loaded = type(made.model).from_pretrained(tmp_path).eval()
    inputs, classes = SPLITS["test"]
    outputs = torch.as_tensor(called(loaded, inputs)).double()
    loss = torch.nn.functional.cross_entropy(outputs, classes).item()
    assert loss == pytest.approx(found.result.attrs["whole_loss"] + found.loss[0], abs=1e-5)


def test_heads_of_keys_and_values_that_go_are_named_with_grouped_queries(made, found):
    """All heads of the second of two layers go: both heads of its keys and values do."""
    llama = family("llama")
    of_second = sampler.removable(llama.model, loss=1000.0, layers=(2, 2), **SPLITS, progress=False)
    assert of_second.heads == {2: list(range(HEADS))}
    assert of_second.key_value_heads == {2: [0, 1]}
    assert json.loads(of_second.to_json())["key_value_heads"] == {"2": [0, 1]}
    assert found.key_value_heads == found.heads


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give one limit"),
        ({"loss": 0.1, "accuracy": 0.1}, "give one limit"),
        ({"loss": -0.1}, "loss = "),
        ({"loss": 0.1, "replacement": "noise"}, "replacement = "),
    ],
)
def test_what_cannot_be_used_is_refused(without_annotation_checks, made, settings, message):
    with pytest.raises(InputError, match=message):
        sampler.removable(made.model, **SPLITS, **settings, progress=False)


def test_a_limit_of_accuracy_needs_classes_and_a_mean_is_not_applied(made):
    numbers = {name: (words, torch.randn(EXAMPLES, 2)) for name, (words, _) in SPLITS.items()}
    with pytest.raises(InputError, match="give a limit of the loss"):
        sampler.removable(made.model, accuracy=0.1, **numbers, progress=False)
    found = sampler.removable(
        made.model, loss=1000.0, replacement="mean", **numbers, progress=False
    )
    assert found.accuracy is None
    with pytest.raises(InputError, match="measure = 'accuracy'"):
        found.plot("accuracy")
    assert sum(map(len, found.heads.values())) == LAYERS * HEADS
    with pytest.raises(InputError, match="replacement = "):
        found.apply(made.model)
