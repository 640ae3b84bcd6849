"""`ablate_heads`: from a trained model to what removal costs."""

import numpy as np
import pandas
import pytest

import sampler
from sampler.errors import InputError
from tests.sampler.torch_models.families import torch

COUNT, TOKENS, CHANNELS = 24, 3, 4


class Layers(torch.nn.Module):
    """Layers of attention with residual connections, and a channel of the last token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(
            torch.nn.MultiheadAttention(CHANNELS, 2, batch_first=True) for _ in range(2)
        )

    def forward(self, tokens):
        for layer in self.layers:
            tokens = tokens + layer(tokens, tokens, tokens)[0]
        return tokens[:, -1, 0]


def drawn(seed: int):
    tokens = torch.randn(COUNT, TOKENS, CHANNELS, generator=torch.Generator().manual_seed(seed))
    return tokens, torch.where(tokens[:, :, 0].sum(dim=1) > 0, 1.0, -1.0)


SPLITS = {name: drawn(seed) for seed, name in enumerate(("train", "validation", "test"))}
UNSEEN = {name: SPLITS[name] for name in ("validation", "test")}
QUIET = {"progress": False}


def with_zeros(model, heads, tokens) -> np.ndarray:
    """Outputs with columns of zeros in the projections of these heads, by layer from 0."""
    kept = [layer.out_proj.weight.clone() for layer in model.layers]
    with torch.no_grad():
        for layer, head in heads:
            model.layers[layer].out_proj.weight[:, 2 * head : 2 * head + 2] = 0.0
        found = model(tokens).numpy()
        for layer, weight in zip(model.layers, kept, strict=True):
            layer.out_proj.weight.copy_(weight)
    return found


@pytest.fixture(scope="module")
def alone():
    return sampler.ablate_heads(Layers(), **UNSEEN, orders=2, **QUIET)


def test_every_head_is_removed_alone(alone):
    model, (tokens, labels) = Layers(), SPLITS["test"]
    labels = labels.numpy()
    table = alone.to_dataframe()
    assert list(table.index) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    before = np.logaddexp(0.0, -labels * with_zeros(model, [], tokens))
    for layer, head in table.index:
        after = np.logaddexp(0.0, -labels * with_zeros(model, [(layer - 1, head)], tokens))
        gained = after - before
        received = table.loc[(layer, head), ["zero_loss", "zero_loss_error"]]
        expected = gained.mean(), gained.std(ddof=1) / COUNT**0.5
        np.testing.assert_allclose(received, expected, atol=1e-6)
    assert alone.result["order"].values.tolist() == ["taylor", "random", "random"]
    assert len(alone.plot("orders").axes) == 1


def test_in_order_heads_are_removed_on_test_examples(alone):
    model, (tokens, labels), found = Layers(), SPLITS["test"], alone.result
    orders = np.stack([found["order_layer"] - 1, found["order_number"]], axis=-1).tolist()
    for order, shares in zip(orders, found["accuracy_in_order"].values, strict=True):
        outputs = [with_zeros(model, order[:count], tokens) for count in range(len(shares))]
        expected = [np.mean(np.sign(one) == labels.numpy()) for one in outputs]
        np.testing.assert_allclose(shares, expected)


@pytest.mark.slow
def test_numbers_are_of_validation_and_measures_of_test_examples(alone):
    """Other examples of one split change its numbers and leave those of the other as they are."""

    def removed(**others):
        return sampler.ablate_heads(Layers(), **(UNSEEN | others), **QUIET).result

    def changed(other):
        return {str(name) for name, values in alone.result.items()
                if values.dims == ("head",) and not values.equals(other[name])}  # fmt: skip

    assert changed(removed(validation=drawn(7))) == {"taylor", "taylor_error"}
    measured = {str(name) for name in alone.result if str(name).startswith(("mean_", "zero_"))}
    assert changed(removed(test=drawn(8))) == measured


@pytest.mark.slow
def test_a_window_of_layers_has_heads_numbered_over_the_whole_model(alone):
    settings = {"layers": (2, 2), "heads": {2: [1]}}
    found = sampler.ablate_heads(Layers(), **UNSEEN, **settings, **QUIET).to_dataframe()
    pandas.testing.assert_frame_equal(found, alone.to_dataframe().loc[[(2, 1)]])


TOKENS_OF_TEST, CLASSES = SPLITS["test"]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"validation": None}, r"validation = .*give a pair"),
        ({"test": (TOKENS_OF_TEST, CLASSES[:-1])}, "labels_test"),
        ({"test": (TOKENS_OF_TEST, None)}, "labels_test = None"),
        ({"test": (TOKENS_OF_TEST, torch.eye(COUNT)[:, :2])}, "columns of labels"),
        ({"heads": {1: [2]}}, r"heads\[1\]"),
        ({"layers": (2, 3)}, "layers"),
        ({"orders": -1}, "orders = -1"),
        ({"loss": "likelihood", "test": (TOKENS_OF_TEST, torch.randn(COUNT))}, "loss = "),
        (dict.fromkeys(UNSEEN, (TOKENS_OF_TEST, torch.eye(COUNT)[:, :2])), "outputs of the model"),
    ],
)
def test_what_cannot_be_used_is_refused(others, message):
    with pytest.raises(InputError, match=f"^{message}"):
        sampler.ablate_heads(Layers(), **(UNSEEN | others), **QUIET)


def test_a_task_needs_a_trained_network(tmp_path):
    file = sampler.export_attention(tmp_path / "it.npz", Layers(), **SPLITS)
    task = sampler.Arrays(file)
    with pytest.raises(InputError, match="no trained network"):
        sampler.ablate_heads(task)
    with pytest.raises(InputError, match="leave out layers"):
        sampler.ablate_heads(task, layers=(1, 1))
