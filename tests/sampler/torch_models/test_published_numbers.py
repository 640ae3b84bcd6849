"""Numbers that were published of trained models, found again in what is recorded of them.

The package is `rxnmapper` (an ALBERT of 12 layers of 8 heads, one of which maps atoms, Schwaller
et al., Science Advances 7, eabe4166). Nothing is downloaded here: the test is skipped where it is
not installed. `pip install --no-deps rxnmapper==0.4.3` is enough, as only files are read.
"""

import itertools
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from sampler.torch_models.recording import record_attention

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
transformers = pytest.importorskip("transformers", reason="these are models of Hugging Face")

# Letters of reaction SMILES, one token each.
TOKEN = re.compile(r"\[[^\]]+]|Br|Cl|>>|[A-Za-z]|[()=#+.\-\\/]|%[0-9]{2}|[0-9]")
ATOM = re.compile(r"Br|Cl|[A-Za-z]")


def albert_of(folder: Path):
    """The model of a folder, and the numbers of its words."""
    config = transformers.AlbertConfig.from_json_file(folder / "config.json")
    model = transformers.AlbertModel(config).eval()
    weights = torch.load(folder / "pytorch_model.bin", "cpu", weights_only=True)
    found = {name.removeprefix("albert."): one for name, one in weights.items()}
    left = model.load_state_dict(found, strict=False)
    assert [key for key in left.missing_keys if "pooler" not in key] == []
    words = (folder / "vocab.txt").read_text().splitlines()
    return model, {word.strip(): number for number, word in enumerate(words)}


def inputs_of(reactions: list[str], number: dict[str, int]) -> dict:
    """Tokens of reactions, with padding behind the shorter ones."""
    rows = [[number[word] for word in tokens_of(reaction)] for reaction in reactions]
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [number["[PAD]"]] * (longest - len(row)) for row in rows])
    real = torch.arange(longest) < torch.tensor(list(map(len, rows)))[:, None]
    return {"input_ids": tokens, "attention_mask": real.long()}


def tokens_of(reaction: str) -> list[str]:
    """Words of one reaction, with those around it."""
    return ["[CLS]", *TOKEN.findall(reaction), "[SEP]"]


# An acid, which loses its last atom, and an amine: the product has all other atoms in this order.
ACIDS = ("CCC(C)CC(=O)O", "COCC(=O)O", "CC(C)C(=O)O", "FC(F)(F)CC(=O)O", "ClCCCC(=O)O")
AMINES = ("NCCOC", "NCC(C)C", "NCCCl", "NC(C)C#N", "NCC(=O)OC", "NCCCC")


def test_the_head_that_maps_atoms_is_found_in_its_export():
    """Published: head 6 of layer 11 attends from an atom of the product to where it was before."""
    package = find_spec("rxnmapper")
    if package is None:
        pytest.skip("the package rxnmapper is not installed")
    folder = Path(package.origin).parent / "models" / "transformers"
    albert, number = albert_of(folder / "albert_heads_8_uspto_all_1310k")
    pairs = list(itertools.product(ACIDS, AMINES))
    reactions = [f"{acid}.{amine}>>{acid[:-1]}{amine}" for acid, amine in pairs]
    recorded = record_attention(albert, inputs_of(reactions, number))
    assert recorded.heads == (8,) * 12
    right, atoms = np.zeros((12, 8)), 0
    for example, reaction in enumerate(reactions):
        words = tokens_of(reaction)
        places = np.array([place for place, word in enumerate(words) if ATOM.fullmatch(word)])
        before, after = (places[places < words.index(">>")], places[places > words.index(">>")])
        lost = np.sum(places < words.index(".")) - 1
        origin = np.delete(before, lost)
        atoms += len(after)
        for layer, attention in enumerate(recorded.attention):
            to_before = attention[example][:, before][:, :, after]  # [head, key, query]
            right[layer] += (before[to_before.argmax(axis=1)] == origin).sum(axis=1)
    share = right / atoms
    assert share[10, 5] > 0.95
    # One set of weights serves all layers; of its heads this one maps, and no other does.
    others = np.delete(share, 5, axis=1)
    assert others.max() < 0.6 < share[1:, 5].min()
