"""Numbers of heads against finite differences, and losses by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from sampler.heads.head_importance import loss_slopes, losses, numbers_of_model
from sampler.heads.path_sum import PathSum, all_heads

EXAMPLES, HEADS = 7, (1, 2)


@dataclass(frozen=True)
class Sum:
    """A model whose output is the sum of what its heads send, [example, head, output]."""

    sent: np.ndarray
    heads: tuple[int, ...] = HEADS
    outputs: int = 1

    @property
    def magnitudes(self):
        return np.arange(3.0)

    def without(self, removed, replacement="zero"):
        gates = np.array([head not in removed for head in all_heads(HEADS)], float)
        return np.einsum("xhc,h->xc", self.sent, gates)

    def slopes(self, along):
        return (self.sent * along[:, None]).sum(axis=-1)


@pytest.mark.parametrize("loss", ["squared", "likelihood"])
def test_taylor_importance_is_the_mean_size_of_finite_differences(loss, rng):
    model = Sum(rng.standard_normal((EXAMPLES, sum(HEADS), 1)))
    labels = rng.choice([-1.0, 1.0], (EXAMPLES, 1))
    numbers = numbers_of_model(model, [(0, 0), (1, 1)], labels, loss)
    step, whole = 1e-6, model.sent.sum(axis=1)
    sizes = []
    for head in (0, 2):
        up, down = (
            losses(loss, whole + sign * step * model.sent[:, head], labels) for sign in (1, -1)
        )
        sizes.append(np.abs(up - down) / (2 * step))
    value = [np.mean(one) for one in sizes]
    error = [np.std(one, ddof=1) / np.sqrt(EXAMPLES) for one in sizes]
    np.testing.assert_allclose(numbers["taylor"].values, value, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(numbers["taylor"].errors, error, rtol=1e-6, atol=1e-8)
    assert numbers["magnitude"].values == (0.0, 2.0)


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


def test_a_model_without_gradients_has_no_taylor_importance():
    class Frozen(PathSum):
        def slopes(self, along):
            return np.full((EXAMPLES, 3), np.nan)

    model = Frozen(HEADS, np.ones((EXAMPLES, 2, 1)), np.ones(3))
    numbers = numbers_of_model(model, all_heads(HEADS), np.ones((EXAMPLES, 1)), "squared")
    assert list(numbers) == ["magnitude"]
