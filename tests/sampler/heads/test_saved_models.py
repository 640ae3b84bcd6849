"""Models without some heads, saved, and loaded in a process that has not this package."""

import copy
import os
import subprocess
import sys

import numpy as np
import pytest

import sampler
from sampler.data.arrays import read_arrays
from sampler.heads.torch_heads import TorchHeads, zero_heads
from tests.sampler.torch_models.families import (
    HEADS,
    LAYERS,
    SIZE,
    TOKENS,
    WIDTH,
    WORDS,
    called,
    family,
    torch,
)

# Runs where it can import nothing of this project.
OUTSIDE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("sampler", "theory"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
import torch

{load}
with torch.no_grad():
    returned = model.eval()(torch.load("inputs.pt"))
torch.save(getattr(returned, "logits", returned), "outputs.pt")
assert not {{"sampler", "theory"}} & {{name.split(".")[0] for name in sys.modules}}
"""
ENCODER = f"""
layer = torch.nn.TransformerEncoderLayer({WIDTH}, {HEADS}, 24, dropout=0.0, batch_first=True)
model = torch.nn.Sequential(
    torch.nn.TransformerEncoder(layer, {LAYERS}), torch.nn.Flatten(),
    torch.nn.Linear({WIDTH * TOKENS}, 2),
)
"""
HUGGING_FACE = """
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("smaller")
"""


def outputs_outside(folder, load: str, inputs) -> np.ndarray:
    """Outputs of a model that another process loads from a folder."""
    torch.save(inputs, folder / "inputs.pt")
    words = [sys.executable, "-c", OUTSIDE.format(load=load)]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept["PYTHONPATH"] = os.pathsep.join(
        place for place in places if place and not os.path.isdir(os.path.join(place, "sampler"))
    )
    done = subprocess.run(words, cwd=folder, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "outputs.pt").numpy()


def test_a_state_without_heads_is_loaded_elsewhere(tmp_path):
    torch.manual_seed(0)
    made = {}
    exec(f"import torch{ENCODER}", made)
    model, inputs = made["model"].eval(), torch.randn(6, TOKENS, WIDTH)
    heads = TorchHeads(model, inputs)
    removed = {0: [1], 1: [0, 3]}
    expected = heads.without([(layer, head) for layer, of in removed.items() for head in of])
    assert np.abs(expected - called(model, inputs)).max() > 1e-3
    zero_heads(model, heads.projections, removed)
    torch.save(model.state_dict(), tmp_path / "smaller.pt")
    load = ENCODER + 'model.load_state_dict(torch.load("smaller.pt"))'
    received = outputs_outside(tmp_path, load, inputs)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        np.testing.assert_allclose(received, model(inputs).numpy(), rtol=0, atol=1e-5)


def words_of(examples: int, seed: int):
    """Sentences, and whether word 3 is among them."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (examples, TOKENS), generator=random)
    return {"input_ids": ids}, (ids == 3).any(dim=1).long()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_from_export_to_a_smaller_model(name, tmp_path):
    """Random weights, trained for seconds: export, theory, heads that can go, saved, loaded."""
    made = family(name)
    model = made.model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(150):
        inputs, labels = words_of(64, step)
        loss = torch.nn.functional.cross_entropy(model(**inputs).logits, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    splits = {"validation": words_of(200, 1001), "test": words_of(300, 1002)}

    signs = {split: (inputs, 2.0 * labels - 1.0) for split, (inputs, labels) in splits.items()}
    file = sampler.export_attention(
        tmp_path / "heads.npz", model, train=signs["validation"], test=signs["test"], residual=True
    )
    assert read_arrays(file).heads == (HEADS + 1,) * LAYERS
    recipe = sampler.Recipe(
        task=sampler.Arrays(file), network={"widths": 20}, posterior={"temperature": 0.1}
    )
    assert sampler.solve(recipe).attrs["converged"]

    found = sampler.removable(model, accuracy=0.02, **splits, progress=False)
    assert found.heads
    smaller = copy.deepcopy(made)
    found.apply(smaller.model)
    smaller.model.save_pretrained(tmp_path / "smaller")
    by_hand = copy.deepcopy(made)
    with torch.no_grad():
        for layer, heads in found.heads.items():
            for head in heads:
                weight = by_hand.output(by_hand.layers[layer - 1])
                weight[head * SIZE : (head + 1) * SIZE] = 0.0
    (inputs, _) = splits["test"]
    received = outputs_outside(tmp_path, HUGGING_FACE, inputs["input_ids"])
    np.testing.assert_allclose(received, called(by_hand.model, inputs), rtol=0, atol=1e-5)
    removed = [(layer - 1, head) for layer, heads in found.heads.items() for head in heads]
    ablated = TorchHeads(model, inputs).without(removed)
    np.testing.assert_allclose(received, ablated, rtol=0, atol=1e-4)
