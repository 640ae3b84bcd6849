"""`ablate_heads`: from a trained model to what removal costs and what predicts it."""

import numpy as np
import pytest

import sampler
from sampler.errors import InputError
from sampler.heads.measures import PREDICTIONS, loss_slopes, losses

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")

COUNT, TOKENS, CHANNELS = 24, 3, 4


class OneLayer(torch.nn.Module):
    """Attention, and the first channel of the last token."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(CHANNELS, 2, batch_first=True)

    def forward(self, tokens):
        return (tokens + self.attention(tokens, tokens, tokens)[0])[:, -1, 0]


def drawn():
    tokens = torch.randn(COUNT, TOKENS, CHANNELS)
    return tokens, torch.where(tokens[:, :, 0].sum(dim=1) > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def given():
    torch.manual_seed(0)
    splits = {name: drawn() for name in ("train", "validation", "test")}
    return OneLayer(), sampler.make_network(widths=8, temperature=0.2), splits


@pytest.fixture(scope="module")
def found(given):
    model, network, splits = given
    return sampler.ablate_heads(model, network, **splits)


def test_every_head_has_its_measures_and_predictions(found):
    table = found.to_dataframe()
    assert list(table.index) == [(1, 0), (1, 1)]
    for key in ("zero_loss", "mean_accuracy", *PREDICTIONS):
        assert np.isfinite(table[key]).all()
        assert (table[f"{key}_error"] >= 0).all()
    assert len(found.correlations().loc["removed"]) == 4
    assert len(found.plot().axes) >= 4


def test_the_ablation_is_that_of_zeroed_columns(given, found):
    model, _, splits = given
    tokens, labels = splits["test"]
    weight = model.attention.out_proj.weight
    with torch.no_grad():
        kept, before = weight.clone(), model(tokens).numpy()
        weight[:, :2] = 0.0
        after = model(tokens).numpy()
        weight.copy_(kept)
    labels = labels.numpy()
    gained = np.logaddexp(0.0, -labels * after) - np.logaddexp(0.0, -labels * before)
    assert found.to_dataframe()["zero_loss"].iloc[0] == pytest.approx(gained.mean(), abs=1e-6)


def values_of(numbers):
    return {key: one.values for key, one in numbers.items()}


@pytest.mark.heavy
def test_predictions_are_of_validation_and_measures_of_test_examples(given, found):
    """Other examples of one split change its numbers and leave those of the other as they are."""
    result, (model, network, splits) = found.result, given

    def removed(**others):
        return sampler.ablate_heads(model, network, **(splits | others), solve_again=False).result

    first = removed()
    torch.manual_seed(1)
    other = removed(validation=drawn())
    assert other.measured == result.measured
    # The theory is of the training examples alone.
    changed = {
        key
        for key, values in values_of(other.predicted).items()
        if values != first.predicted[key].values
    }
    assert changed == other.predicted.keys() - {"score", "magnitude"}
    other = removed(test=drawn())
    assert values_of(other.predicted) == values_of(first.predicted)
    assert other.measured["zero_loss"].values != result.measured["zero_loss"].values


@pytest.mark.parametrize(("loss", "outputs"), [("squared", 1), ("likelihood", 3)])
def test_slopes_of_the_losses(loss, outputs):
    random = np.random.default_rng(0)
    values = random.standard_normal((5, outputs))
    classes = random.integers(outputs, size=5)
    labels = np.eye(outputs)[classes] if outputs > 1 else np.sign(values + 0.1)
    slopes = loss_slopes(loss, values, labels)
    for place in range(outputs):
        step = 1e-6 * np.eye(outputs)[place]
        up, down = (losses(loss, values + sign * step, labels) for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, place], (up - down) / 2e-6, rtol=1e-6, atol=1e-8)


def test_refused_input_names_the_keyword(given):
    model, network, splits = given
    with pytest.raises(InputError, match=r"validation = .*give a pair"):
        sampler.ablate_heads(model, network, train=splits["train"], test=splits["test"])
    tokens, labels = splits["train"]
    columns = torch.stack([labels > 0, labels < 0], dim=1).float()
    others = dict.fromkeys(splits, (tokens, columns))
    with pytest.raises(InputError, match="outputs of the model"):
        sampler.ablate_heads(model, network, **others)
    with pytest.raises(InputError, match="likelihood"):
        sampler.ablate_heads(
            model, network, loss="likelihood",
            **dict.fromkeys(splits, (tokens, torch.randn(COUNT))),
        )  # fmt: skip
    other = sampler.make_network(widths=8, heads=[[0, 2]])  # 2 is the residual connection
    with pytest.raises(InputError, match=r"heads = .*every head of the model is removed"):
        sampler.ablate_heads(model, other, **splits)
