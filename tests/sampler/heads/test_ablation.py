"""`ablate_heads` of modules: checked first, interrupted, at a chosen temperature."""

import numpy as np
import pytest

import sampler
from sampler.analysis.predictors import along_predictors
from sampler.api.model import problem_of, recipe_and_data
from sampler.errors import InputError
from sampler.heads.measures import TheoryWithoutHeads
from sampler.jobs.ablation import (
    ON_VALIDATION,
    TEMPERATURES,
    chosen_temperature,
)
from sampler.runtime import jax_settings
from tests.sampler.heads.families import WIDTH, Blocks, CausalAttention, torch

EXAMPLES, TOKENS = 20, 3
NETWORK = sampler.make_network(widths=6, temperature=0.2)
HEADS = [(1, 0), (1, 1), (2, 0), (2, 1)]


def drawn(seed: int):
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randn(EXAMPLES, TOKENS, WIDTH, generator=random)
    classes = (tokens[:, :, 0].sum(dim=1) > 0).long()
    return tokens, torch.nn.functional.one_hot(classes, 2).float()


SPLITS = {name: drawn(seed) for seed, name in enumerate(("train", "validation", "test"))}
SHORT = {"solve_again": False, "progress": False}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Blocks(CausalAttention)


@pytest.fixture
def solved_once(monkeypatch):
    """The theory of the same training examples, solved by the first test that asks for it."""

    def solve(task, network, **settings):
        key = repr(network)
        if key not in SOLVED:
            SOLVED[key] = sampler.solve(task, network, starts=1)
        return SOLVED[key]

    monkeypatch.setattr("sampler.api.trained_model.solve", solve)


SOLVED = {}


def ablate(model, network=NETWORK, **others):
    return sampler.ablate_heads(model, network, **(SPLITS | SHORT | others))


class Interrupted:
    """A `forward` that is interrupted in one of its calls with some inputs."""

    def __init__(self, inputs, call: int) -> None:
        self.inputs, self.left = inputs, call

    def __call__(self, model, batch):
        if len(batch) == EXAMPLES and torch.equal(batch, self.inputs):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return model(batch)


@pytest.mark.heavy
def test_ctrl_c_keeps_what_is_done_and_says_so(model, solved_once):
    whole = ablate(model).result
    # The whole model, the means, the whole model again, and two heads.
    forward = Interrupted(SPLITS["test"][0], 1 + 1 + 1 + 3)
    found = ablate(model, forward=forward).result
    values = np.array(found.measured["mean_loss"].values)
    known = np.isfinite(values)
    assert known.tolist() == [True, True, False, False]
    assert np.array_equal(values[known], np.array(whole.measured["mean_loss"].values)[known])
    assert "zero_loss" not in found.measured
    assert len(found.notes) > len(whole.notes)
    assert found.predicted["score"].values == whole.predicted["score"].values


@pytest.mark.heavy
def test_a_temperature_that_is_not_given_is_chosen_by_validation(model, tmp_path, solved_once):
    """By hand: the mean squared distance of the sum of all paths from the labels."""
    found = ablate(model, sampler.make_network(widths=6)).result
    file = sampler.export_attention(tmp_path / "it.npz", model, residual=True, **SPLITS)
    task = sampler.arrays_task(file)
    labels = SPLITS["validation"][1].numpy()
    losses = {}
    for share in TEMPERATURES:
        network = sampler.make_network(widths=6, temperature=0.5 * share)  # labels are 0 and 1
        theories = sampler.solve(task, network, starts=1)
        overlap = theories["order_parameter"].sel(predictor="leading").values
        with jax_settings():
            problem = problem_of(task, *recipe_and_data(task, network))
            theory = TheoryWithoutHeads(problem.learning, problem.attended_validation, overlap)
            losses[0.5 * share] = np.mean((theory.removed([]) - labels) ** 2)
    assert found.temperature == min(losses, key=losses.get)
    assert found.notes[0].startswith("temperature")
    given = ablate(model).result
    assert given.temperature == 0.2
    assert not any(note.startswith("temperature") for note in given.notes)


@pytest.mark.parametrize(
    ("losses", "best", "end"),
    [
        ((1.0, 2.0, 3.0, 4.0, 5.0), 0.01, "lowest"),
        ((0.0, 0.0, 3.0, 2.0, 1.0), 1.0, "highest"),
    ],
)
def test_saddle_points_that_do_not_converge_are_not_chosen(losses, best, end):
    """A loss of 0 stands for one that did not."""
    by_temperature = dict(zip(TEMPERATURES, losses, strict=True))

    def solved_at(temperature):
        loss = by_temperature[temperature]
        table = along_predictors({"leading": {ON_VALIDATION: ((), loss)}})
        return table.assign_attrs(converged=int(loss > 0))

    chosen, text = chosen_temperature(solved_at, 1.0)
    assert chosen == best
    assert end in text
    by_temperature.update(dict.fromkeys(TEMPERATURES, 0.0))
    with pytest.raises(InputError, match="converged at none"):
        chosen_temperature(solved_at, 1.0)


TOKENS_OF_TEST, CLASSES = SPLITS["test"]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"test": (TOKENS_OF_TEST, CLASSES[:-1])}, "labels_test"),
        ({"test": (TOKENS_OF_TEST, CLASSES[:, :1])}, "columns of labels"),
        ({"forward": lambda model, batch: model(batch)[:, :1]}, "outputs of the model"),
        ({"heads": {1: [2]}}, r"heads\[1\]"),
        ({"layers": (2, 3)}, "layers"),
        ({"test": (TOKENS_OF_TEST, CLASSES, [-1] + [0] * 19)}, "tokens read of test"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_recorded(
    model, monkeypatch, others, message
):
    def late(*_, **__):
        raise AssertionError("recorded before all was checked")

    monkeypatch.setattr("sampler.tasks.export.export_attention", late)
    with pytest.raises(InputError, match=f"^{message} = "):
        ablate(model, **others)


@pytest.mark.heavy
def test_a_window_of_layers_has_heads_numbered_over_the_whole_model(model, request):
    found = ablate(model, layers=(2, 2), heads={2: [1]}, starts=1).result
    request.getfixturevalue("solved_once")
    whole = ablate(model).result
    assert found.heads == ((2, 1),)
    for key in ("mean_loss", "zero_loss"):
        assert found.measured[key].values[0] == whole.measured[key].values[3]
    for key in ("taylor", "magnitude"):
        assert found.predicted[key].values[0] == whole.predicted[key].values[3]


def test_a_task_keeps_heads_by_its_network(tmp_path, model):
    file = sampler.export_attention(tmp_path / "it.npz", model, **SPLITS)
    task = sampler.arrays_task(file)
    with pytest.raises(InputError, match="no trained network"):
        sampler.ablate_heads(task, NETWORK)
    with pytest.raises(InputError, match="leave out layers"):
        sampler.ablate_heads(task, NETWORK, layers=(1, 1))


class Constant(torch.nn.Module):
    """Two heads of which the second sends the same to all; the answer needs both."""

    def __init__(self) -> None:
        super().__init__()
        self.c_proj = torch.nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.c_proj.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))

    def forward(self, tokens):
        heads = torch.stack([tokens[..., :1], torch.full_like(tokens[..., :1], 3.0)], dim=1)
        sent = torch.nn.functional.scaled_dot_product_attention(0.0 * heads, 0.0 * heads, heads)
        return 3.0 * self.c_proj(sent.transpose(1, 2).reshape(*tokens.shape[:2], 2))[:, -1]


@pytest.mark.heavy
def test_a_head_that_sends_a_constant_costs_nothing_by_its_mean():
    def made(seed):
        tokens, _ = drawn(seed)
        classes = (tokens[..., 0].mean(dim=1) > -3.0).long()
        return tokens, torch.nn.functional.one_hot(1 - classes, 2).float()

    splits = {name: made(seed) for seed, name in enumerate(SPLITS)}
    found = sampler.ablate_heads(Constant(), NETWORK, **splits, **SHORT).result
    mean, zero = (found.measured[f"{kind}_loss"].values[1] for kind in ("mean", "zero"))
    assert mean == pytest.approx(0.0, abs=1e-6)
    assert zero > 0.1
    assert any("layer 1, head 1" in note and "constant" in note for note in found.notes)
