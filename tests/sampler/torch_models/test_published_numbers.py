"""Numbers that were published of trained models, found again in what is recorded of them.

The packages are `rxnfp` (BERTs of 12 layers of 4 heads, Schwaller et al., Nature Machine
Intelligence 3, 144) and `rxnmapper` (an ALBERT of 12 layers of 8 heads, one of which maps atoms,
Schwaller et al., Science Advances 7, eabe4166). Nothing is downloaded here: tests are skipped where
a package is not installed. `pip install --no-deps rxnfp==0.1.0 rxnmapper==0.4.3` is enough, as only
files are read.
"""

import itertools
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from sampler.torch_models.recording import record_attention
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
transformers = pytest.importorskip("transformers", reason="these are models of Hugging Face")

# Letters of reaction SMILES, one token each.
TOKEN = re.compile(r"\[[^\]]+]|Br|Cl|>>|[A-Za-z]|[()=#+.\-\\/]|%[0-9]{2}|[0-9]")
ATOM = re.compile(r"Br|Cl|[A-Za-z]")


def models_of(package: str) -> Path:
    """The folder of the models in a package, which is not imported."""
    found = find_spec(package)
    if found is None:
        pytest.skip(f"the package {package} is not installed")
    return Path(found.origin).parent / "models" / "transformers"


class Pretrained:
    """Weights and vocabulary of a folder, in a class of Hugging Face."""

    def __init__(self, folder: Path, of: str, prefix: str = "", **settings) -> None:
        model_class = getattr(transformers, of)
        config = model_class.config_class.from_json_file(folder / "config.json")
        config.update(settings)
        self.model = model_class(config).eval()
        weights = torch.load(folder / "pytorch_model.bin", "cpu", weights_only=True)
        found = {name.removeprefix(prefix): one for name, one in weights.items()}
        left = self.model.load_state_dict(found, strict=False)
        assert [key for key in left.missing_keys if "pooler" not in key] == []
        words = (folder / "vocab.txt").read_text().splitlines()
        self.number = {word.strip(): number for number, word in enumerate(words)}

    def inputs(self, reactions: list[str]) -> dict:
        """Tokens of reactions, with padding behind the shorter ones."""
        rows = [self.numbers(reaction) for reaction in reactions]
        longest = max(map(len, rows))
        padding = self.number["[PAD]"]
        tokens = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
        lengths = torch.tensor(list(map(len, rows)))
        mask = (torch.arange(longest) < lengths[:, None]).long()
        return {"input_ids": tokens, "attention_mask": mask}

    def numbers(self, reaction: str) -> list[int]:
        """Numbers of the tokens of one reaction."""
        return [self.number[word] for word in tokens_of(reaction)]


def tokens_of(reaction: str) -> list[str]:
    """Words of one reaction, with those around it."""
    return ["[CLS]", *TOKEN.findall(reaction), "[SEP]"]


def test_a_published_fingerprint_is_found_again():
    """README of rxnfp: the first numbers of a reaction, which leave the last layer at its start."""
    bert = Pretrained(models_of("rxnfp") / "bert_ft", "BertModel", "bert.")
    inputs = bert.inputs(
        [
            "Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1>>"
            "O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1"
        ]
    )
    with torch.no_grad():
        received = bert.model(**inputs).last_hidden_state[0, 0, :5].numpy()
    published = [-2.0174953937530518, 1.7602033615112305, -1.3323537111282349,
                 -1.1095019578933716, 1.2254549264907837]  # fmt: skip
    assert_equal_in_float32(received, np.array(published))


# An acid, which loses its last atom, and an amine: the product has all other atoms in this order.
ACIDS = ("CCC(C)CC(=O)O", "COCC(=O)O", "CC(C)C(=O)O", "FC(F)(F)CC(=O)O", "ClCCCC(=O)O")
AMINES = ("NCCOC", "NCC(C)C", "NCCCl", "NC(C)C#N", "NCC(=O)OC", "NCCCC")


def test_the_head_that_maps_atoms_is_found_in_its_export():
    """Published: head 6 of layer 11 attends from an atom of the product to where it was before."""
    folder = models_of("rxnmapper") / "albert_heads_8_uspto_all_1310k"
    albert = Pretrained(folder, "AlbertModel", "albert.")
    pairs = list(itertools.product(ACIDS, AMINES))
    reactions = [f"{acid}.{amine}>>{acid[:-1]}{amine}" for acid, amine in pairs]
    recorded = record_attention(albert.model, albert.inputs(reactions))
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
