"""Gates on heads of trained networks: open ones change nothing, slopes are derivatives."""

import numpy as np
import pytest

from sampler.heads.gates import GatedNetwork, closed_gates
from sampler.tasks import splits
from sampler.tasks.splits import Split, StreamedSplit, made_in_parts
from sampler.transformer.model import FrozenNetwork
from tests.assertions import assert_equal_to_rounding
from theory import Architecture, attended_inputs

EXAMPLES, TOKENS, CHANNELS, WIDTHS, HEADS = 6, 4, 3, (5, 4, 3), (2, 3)
COUNT = sum(HEADS)


def one_closed(heads: int, closed: int) -> np.ndarray:
    """Gates of one layer of which one is closed."""
    return closed_gates((heads,), [(0, closed)])


@pytest.fixture(scope="module")
def gated() -> GatedNetwork:
    random = np.random.default_rng(1)
    shapes = {"V_0": (5, CHANNELS), "V_1": (2, 4, 5), "V_2": (3, 3, 4), "a": (1, 3)}
    weights = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    attention = tuple(
        random.dirichlet(np.ones(TOKENS), (EXAMPLES, heads, TOKENS)).swapaxes(-1, -2)
        for heads in HEADS
    )
    inputs = random.standard_normal((EXAMPLES, TOKENS, CHANNELS))
    architecture = Architecture(HEADS, (5, 4, 3), (1.0,) * 4, CHANNELS)
    return GatedNetwork(FrozenNetwork(weights, architecture), inputs, attention)


def test_examples_that_are_streamed_are_held_here(gated, monkeypatch):
    labels = np.ones((EXAMPLES, 1))
    whole = Split(gated.inputs, labels, gated.attention)
    held = made_in_parts(whole.part, labels, "", (gated.inputs,))
    monkeypatch.setattr(splits, "HELD_BYTES", 1)
    monkeypatch.setattr(splits, "BLOCK", 4)
    streamed = made_in_parts(whole.part, labels, "", (gated.inputs,))
    assert isinstance(streamed, StreamedSplit)
    gates = one_closed(COUNT, 1)
    for split in (held, streamed):
        again = GatedNetwork.of_blocks(gated.network, split.blocks())
        assert np.array_equal(again.outputs(gates, "mean"), gated.outputs(gates, "mean"))


def test_open_gates_give_the_network_and_a_closed_one_the_ablation(gated):
    attended = attended_inputs(gated.inputs, gated.attention, "mean")
    for removed in ([], [(0, 1)], [(1, 2)]):
        gates = closed_gates(HEADS, removed)
        expected = gated.network.without(removed).predictor(attended)
        assert_equal_to_rounding(gated.outputs(gates, "zero"), expected, operations=1000)


@pytest.mark.parametrize("gates", [None, np.linspace(0.0, 1.0, COUNT)], ids=["open", "partly"])
def test_slopes_are_finite_differences(gated, gates):
    along = np.random.default_rng(2).standard_normal((EXAMPLES, 1))
    here = np.ones(COUNT) if gates is None else gates
    for kind in ("zero", "mean"):
        slopes = gated.slopes(along, kind, gates)
        for head in range(COUNT):
            step = 1e-5 * (1.0 - one_closed(COUNT, head))
            up, down = (gated.outputs(here + sign * step, kind) for sign in (1, -1))
            expected = (along * (up - down) / 2e-5).sum(axis=1)
            np.testing.assert_allclose(slopes[:, head], expected, rtol=1e-6, atol=1e-8)


def by_token(gated: GatedNetwork, gates, replaced) -> tuple[np.ndarray, list[np.ndarray]]:
    """The network with gates, every head and token in a loop, and what each head would send.

    replaced  what is sent through a closed gate, by head
    """
    weights, inputs = gated.network.weights, gated.inputs
    hidden, sent, first = inputs @ weights["V_0"].T / CHANNELS**0.5, [], 0
    for layer, heads in enumerate(HEADS):
        values = weights[f"V_{layer + 1}"]
        above = np.zeros((EXAMPLES, TOKENS, values.shape[1]))
        for head in range(heads):
            seen = np.stack([o[head].T for o in gated.attention[layer]]) @ hidden
            sent.append(seen @ values[head].T / WIDTHS[layer] ** 0.5)
            gate = gates[first + head]
            above += gate * sent[-1] + (1.0 - gate) * replaced[first + head]
        hidden, first = above / heads**0.5, first + heads
    return hidden.mean(axis=1) @ weights["a"].T / WIDTHS[-1] ** 0.5, sent


@pytest.mark.parametrize("replacement", ["zero", "mean"])
def test_gates_below_and_above_let_through_what_the_whole_network_sends(gated, replacement):
    """A mean is that of a head while all others are open, whatever is closed below it."""
    gates = np.array([0.0, 1.0, 1.0, 0.0, 0.25])
    received = gated.outputs(gates, replacement)
    _, sent = by_token(gated, np.ones(COUNT), np.zeros(COUNT))
    means = [one.mean(axis=0) for one in sent] if replacement == "mean" else np.zeros(COUNT)
    expected, _ = by_token(gated, gates, means)
    assert_equal_to_rounding(received, expected, operations=1000)
