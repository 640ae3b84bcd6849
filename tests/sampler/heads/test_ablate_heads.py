"""`ablate_heads`: from a trained model to what removal costs and what predicts it."""

import numpy as np
import pytest

import sampler
from sampler.api.trained_model import TEMPERATURES
from sampler.errors import InputError
from sampler.heads.head_importance import PREDICTIONS
from tests.sampler.torch_models.families import torch

COUNT, TOKENS, CHANNELS = 24, 3, 4


class Layers(torch.nn.Module):
    """Layers of attention with residual connections, and channels of the last token."""

    def __init__(self, layers=2, outputs=1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(
            torch.nn.MultiheadAttention(CHANNELS, 2, batch_first=True) for _ in range(layers)
        )
        self.outputs = outputs

    def forward(self, tokens):
        for layer in self.layers:
            tokens = tokens + layer(tokens, tokens, tokens)[0]
        read = tokens[:, -1, : self.outputs]
        return read[:, 0] if self.outputs == 1 else read


def drawn(seed: int):
    tokens = torch.randn(COUNT, TOKENS, CHANNELS, generator=torch.Generator().manual_seed(seed))
    return tokens, torch.where(tokens[:, :, 0].sum(dim=1) > 0, 1.0, -1.0)


SPLITS = {name: drawn(seed) for seed, name in enumerate(("train", "validation", "test"))}
UNSEEN = {name: SPLITS[name] for name in ("validation", "test")}
NETWORK = sampler.make_network(widths=8, temperature=0.2)
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
    """Without any theory."""
    return sampler.ablate_heads(Layers(), **UNSEEN, orders=2, **QUIET)


def test_heads_are_removed_without_any_theory(alone):
    """Training examples are not needed, and no attention is recorded."""
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
    assert alone.result.predicted.keys() == {"taylor", "magnitude"}
    assert (alone.correlations()["heads"] == 4).all()
    assert alone.result.curves.keys() == {"taylor", "random"}
    assert len(alone.plot("orders").axes) == 1
    with pytest.raises(InputError, match=r"figure = .*give a `network`"):
        alone.plot("scores")


@pytest.mark.heavy
def test_numbers_are_of_validation_and_measures_of_test_examples():
    """Other examples of one split change its numbers and leave those of the other as they are."""

    def removed(**others):
        splits = SPLITS | others
        return sampler.ablate_heads(Layers(), NETWORK, **splits, solve_again=False, **QUIET).result

    def values(numbers):
        return {key: one.values for key, one in numbers.items()}

    first, other = removed(), removed(validation=drawn(7))
    assert other.measured == first.measured
    # The theory is of the training examples alone.
    changed = {
        key
        for key in first.predicted
        if values(other.predicted)[key] != values(first.predicted)[key]
    }
    assert changed == other.predicted.keys() - {"score", "magnitude"}
    other = removed(test=drawn(8))
    assert values(other.predicted) == values(first.predicted)
    assert other.measured["zero_loss"].values != first.measured["zero_loss"].values


@pytest.mark.heavy
def test_with_a_network_every_head_has_six_numbers_taylor_first():
    found = sampler.ablate_heads(Layers(1), NETWORK, **SPLITS, starts=1, **QUIET)
    assert list(found.result.predicted) == list(PREDICTIONS)
    assert next(iter(PREDICTIONS)) == "taylor"
    table = found.to_dataframe()
    for key in PREDICTIONS:
        assert np.isfinite(table[key]).all()
        assert (table[f"{key}_error"] >= 0).all()


@pytest.mark.heavy
def test_a_window_of_layers_has_heads_numbered_over_the_whole_model(alone):
    settings = {"layers": (2, 2), "heads": {2: [1]}, "starts": 1, "solve_again": False}
    found = sampler.ablate_heads(Layers(), NETWORK, **SPLITS, **settings, **QUIET).result
    assert found.heads == ((2, 1),)
    for key in ("mean_loss", "zero_loss"):
        assert found.measured[key].values[0] == alone.result.measured[key].values[3]
    assert found.predicted["taylor"].values[0] == alone.result.predicted["taylor"].values[3]


def test_class_numbers_are_labels_of_a_model_with_many_outputs():
    """They are a column of 0 and 1 for each class, in the theory, too."""
    numbers = {
        name: (tokens, tokens[:, -1, :3].argmax(dim=1)) for name, (tokens, _) in SPLITS.items()
    }
    columns = {
        name: (tokens, torch.nn.functional.one_hot(classes, 3).float())
        for name, (tokens, classes) in numbers.items()
    }
    received, expected = (
        sampler.ablate_heads(Layers(outputs=3), **{one: splits[one] for one in UNSEEN}, **QUIET)
        for splits in (numbers, columns)
    )
    assert received.result == expected.result
    assert received.result.loss == "likelihood"
    tokens, classes = numbers["test"]
    outputs = Layers(outputs=3)(tokens).detach().double()
    loss = torch.nn.functional.cross_entropy(outputs, classes).item()
    assert received.result.unpruned["loss"][0] == pytest.approx(loss, abs=1e-6)
    with pytest.raises(InputError, match=r"labels_test = .*from 0 to 2"):
        sampler.ablate_heads(
            Layers(outputs=3), **(UNSEEN | {"test": (tokens, classes + 1)}), **QUIET
        )


class Constant(torch.nn.Module):
    """Two heads of which the second sends the same to all; the answer needs both."""

    num_heads = 2

    def __init__(self) -> None:
        super().__init__()
        self.join = torch.nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.join.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))

    def forward(self, tokens):
        mean = tokens[..., :1].mean(dim=1, keepdim=True).expand(-1, TOKENS, -1)
        return 3.0 * self.join(torch.cat([mean, torch.full_like(mean, 3.0)], dim=-1))[:, -1]


def test_a_head_that_sends_a_constant_costs_nothing_by_its_mean():
    def made(seed):
        tokens, _ = drawn(seed)
        return tokens, (tokens[..., 0].mean(dim=1) <= -3.0).long()

    splits = {name: made(seed) for seed, name in enumerate(UNSEEN)}
    found = sampler.ablate_heads(Constant(), **splits, projection="join", **QUIET).result
    mean, zero = (found.measured[f"{kind}_loss"].values[1] for kind in ("mean", "zero"))
    assert mean == pytest.approx(0.0, abs=1e-6)
    assert zero > 1e-4


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


def test_a_task_needs_a_trained_network_and_keeps_heads_by_its_network(tmp_path):
    file = sampler.export_attention(tmp_path / "it.npz", Layers(), **SPLITS)
    task = sampler.arrays_task(file)
    with pytest.raises(InputError, match="no trained network"):
        sampler.ablate_heads(task, NETWORK)
    with pytest.raises(InputError, match="leave out layers"):
        sampler.ablate_heads(task, NETWORK, layers=(1, 1))
    other = sampler.make_network(widths=8, heads=[[0, 2], [0, 1, 2]])  # 2 is the residual head
    with pytest.raises(InputError, match=r"heads = .*every head of the model is removed"):
        sampler.ablate_heads(Layers(), other, **SPLITS, **QUIET)


@pytest.mark.heavy
def test_a_network_without_temperature_has_the_one_that_predicts_validation_examples_best(tmp_path):
    """Of theories solved at each of them; the mean square label is 1."""
    file = sampler.export_attention(tmp_path / "it.npz", Layers(1), **SPLITS, residual=True)
    task, losses = sampler.arrays_task(file), {}
    for temperature in TEMPERATURES:
        network = sampler.make_network(widths=8, temperature=temperature)
        theory = sampler.solve(task, network, starts=1, next_order=False)
        assert theory.attrs["converged"]
        losses[temperature] = float(theory["validation_squared_error"].sel(predictor="leading"))
    network = sampler.make_network(widths=8)
    found = sampler.ablate_heads(Layers(1), network, **SPLITS, solve_again=False, **QUIET).result
    assert found.temperature == min(losses, key=losses.__getitem__)
