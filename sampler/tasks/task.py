"""The task: inputs, labels and the attention matrices that they fix; heads that a recipe chooses.

A task may have attended inputs in the place of inputs and attention matrices: all that a network
inside the theory depends on.

Heads are called by the names that the recipe gives them, their kinds, or by their number in the
layer, from 0: "0", "1", … A path is called by its heads, from the first layer to the last, as in
"good·uniform" or "0·1", unless the task has a name for it.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float

from sampler.attention.heads import factored_attention
from sampler.attention.layers import paired
from sampler.attention.learned import LearnedHeads
from sampler.errors import InputError, Setting
from sampler.runtime import stream
from sampler.settings.task import LEARNED, AttentionSection
from sampler.tasks.head_choice import HeadVariants, chosen_variants, learned_heads
from sampler.tasks.meaning import concerns_of
from sampler.tasks.paths import name_paths, too_many_paths
from sampler.tasks.splits import (
    AnySplit,
    Split,
    StreamedSplit,
    check_agreement,
    check_split,
    made_in_parts,
)

if TYPE_CHECKING:
    from sampler.transformer.model import FrozenNetwork


def with_positions(features: np.ndarray) -> np.ndarray:
    """Put BOS in front and append one-hot positions: [example, token + 1, channel]."""
    examples, tokens, channels = features.shape
    inputs = np.zeros((examples, tokens + 1, channels + tokens + 1))
    inputs[:, 1:, :channels] = features
    inputs[:, :, channels:] = np.eye(tokens + 1)
    return inputs


@dataclass(frozen=True)
class Teacher:
    """The network that labels were drawn from, without their noise.

    order_parameters  U_1 … U_L, U_a of its weights; none of a network outside the theory
    outputs           f(x) of every split [example, output]
    temperature       variance of the noise
    variances         prior variances of its weights, σ_0² … σ_a²
    attention         where heads are learned, Ω of each layer of the training examples that
                      attention is measured on
    """

    order_parameters: tuple[Float[np.ndarray, "_row _row"], ...]
    outputs: Mapping[str, Float[np.ndarray, "_example output"]]
    temperature: float
    variances: tuple[float, ...]
    attention: tuple[Float[np.ndarray, "example _head key query"], ...] = ()


@dataclass(frozen=True)
class Task:
    """Training and test data with the attention matrices that the inputs fix.

    All splits have inputs and attention matrices, or all have attended inputs. head_names has one
    tuple of names per layer; path_names follows the flat path order, the head of layer 1 varying
    slowest, and is empty where they are too many to be named. Layers are those of value weights: an
    attention whose entry of `hypernetworks` is true serves two of them, with the same heads; None
    stands for none of them. Settings are chosen on `validation`, which has labels. `trained` is the
    network that the attention comes from, and `nearest_neighbour` [test episode] the ±1 of the
    nearest support, 0 for a tie. Labels are those of a `teacher`, if there is one. Heads that are
    `learned` are sampled; their matrices in the splits are those of one draw of their prior, which
    is the teacher's: otherwise only sizes and costs are read off them. `brought` has, layer by
    layer, heads of the data that these took the place of, by name: their attention [example, key,
    query] to the training examples that attention is measured on. `layer_numbers` are those of the
    layers in the model that they are a part of, and `origin` says, line by line, where data come
    from.
    Raises InputError, naming the array, if anything does not fit.
    """

    train: AnySplit
    test: AnySplit
    head_names: tuple[tuple[str, ...], ...]
    path_names: tuple[str, ...]
    validation: AnySplit | None = None
    trained: "FrozenNetwork | None" = None
    nearest_neighbour: np.ndarray | None = None
    hypernetworks: tuple[bool, ...] | None = None
    teacher: Teacher | None = None
    learned: LearnedHeads | None = None
    brought: tuple[Mapping[str, Float[np.ndarray, "_example _key _query"]], ...] = ()
    layer_numbers: tuple[int, ...] | None = None
    origin: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_split(self.train, "train")
        if self.hypernetworks is not None and len(self.hypernetworks) != len(self.train.heads):
            remedy = f"say it for each of the {len(self.train.heads)} layers of attention"
            raise InputError("hypernetworks", self.hypernetworks, remedy)
        for name, split in (("test", self.test), ("validation", self.validation)):
            if split is not None:
                check_split(split, name)
                check_agreement(self.train, split, name)
        if tuple(map(len, self.head_names)) != self.heads:
            remedy = f"name the heads of each layer, {self.heads} in all"
            raise InputError("head_names", self.head_names, remedy)
        if self.layer_numbers is not None and len(self.layer_numbers) != len(self.train.heads):
            remedy = f"number each of the {len(self.train.heads)} layers"
            raise InputError("layer_numbers", list(self.layer_numbers), remedy)
        paths = math.prod(self.heads)
        if too_many_paths(self.heads):
            return
        if len(self.path_names) != paths or len(set(self.path_names)) != paths:
            raise InputError("path_names", self.path_names, f"give {paths} different names")

    @property
    def pairs(self) -> tuple[bool, ...]:
        """Whether each layer of attention serves two layers of weights."""
        return self.hypernetworks or (False,) * len(self.train.heads)

    @property
    def layers(self) -> int:
        return len(self.heads)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the layers of value weights, as tables have them: 1 … L unless they say so."""
        if self.layer_numbers is None or any(self.pairs):
            return tuple(range(1, self.layers + 1))
        return self.layer_numbers

    @property
    def heads(self) -> tuple[int, ...]:
        return paired(self.train.heads, self.pairs)

    @property
    def outputs(self) -> int:
        return self.train.labels.shape[1]

    @property
    def channels(self) -> int:
        return self.train.channels

    @property
    def named_splits(self) -> dict[str, AnySplit]:
        """Training, test and, where there is one, validation split, by name."""
        named = {"train": self.train, "test": self.test, "validation": self.validation}
        return {name: split for name, split in named.items() if split is not None}

    @cached_property
    def concerns(self) -> tuple[str, ...]:
        """Doubts about what data mean: attention that looks transposed, classes that are not ±1.

        Of examples that are not held the first ones are looked at.
        """
        looked_at = {
            name: next(iter(split.blocks())) if isinstance(split, StreamedSplit) else split
            for name, split in self.named_splits.items()
        }
        with_tokens = {name: one for name, one in looked_at.items() if isinstance(one, Split)}
        return concerns_of(
            {name: one.attention for name, one in with_tokens.items()},
            {name: one.lengths for name, one in with_tokens.items()},
            self.train.labels,
        )

    @property
    def splits(self) -> tuple[AnySplit, ...]:
        """Training, test and, where there is one, validation split."""
        return tuple(self.named_splits.values())

    @property
    def checksum(self) -> str:
        checksum = hashlib.sha256()
        for split in self.splits:
            split.add_to(checksum)
        return checksum.hexdigest()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Checksum and sums, which tell data apart; other processors round other last digits."""
        return {"sha256": self.checksum, "sums": [split.sums for split in self.splits]}


# Examples at a time: outputs of all heads are as large as the inputs, times the heads.
PIECE = 128


@dataclass(frozen=True)
class HeadDistances:
    """Mean and standard deviation over pairs of heads of all layers; NaN where none has two.

    matrices  ‖A_h − A_h'‖_F, averaged over examples
    outputs   ‖(A_h − A_h') X‖_F of the inputs X, averaged over examples
    """

    matrices: tuple[float, float]
    outputs: tuple[float, float]

    @classmethod
    def of(cls, split: Split) -> "HeadDistances":
        """Measure them on the examples of a split; the output of a head is that for values X."""
        matrices, outputs = [], []
        for attention in split.attention:
            for one, other in combinations(range(attention.shape[1]), 2):
                difference = attention[:, one] - attention[:, other]
                matrices.append(np.sqrt((difference**2).sum(axis=(1, 2))).mean())
                found = []  # Frobenius norm of Δᵀ X for every example
                for start in range(0, len(split.inputs), PIECE):
                    part = slice(start, start + PIECE)
                    moved = np.swapaxes(difference[part], 1, 2) @ split.inputs[part]
                    found.append(np.sqrt((moved**2).sum(axis=(1, 2))))
                outputs.append(float(np.concatenate(found).mean()))
        return cls(spread(matrices), spread(outputs))


def spread(values: list[float]) -> tuple[float, float]:
    """Return mean and standard deviation; the latter is 0 for one pair."""
    if not values:
        return float("nan"), float("nan")
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


# First entries of the spawn keys: the random streams of a task never share numbers.
TRAIN_STREAM, TEST_STREAM, HEAD_STREAM, VALIDATION_STREAM = 0, 1, 2, 3
Drawn = TypeVar("Drawn")
LayerWeights = tuple[np.ndarray, ...]


def draw_splits(
    settings: Any, draw: Callable[[int, int], Drawn]
) -> tuple[Drawn, Drawn, Drawn | None]:
    """Draw training, test and, unless it has no examples, validation split.

    `draw` gets the number of examples and the key of their random numbers.
    """
    sizes = (
        (settings.examples_train, TRAIN_STREAM),
        (settings.examples_test, TEST_STREAM),
        (settings.examples_validation, VALIDATION_STREAM),
    )
    return tuple(draw(size, key) if size else None for size, key in sizes)


def draw_layers(
    attention: AttentionSection,
    weights_of: Callable[[str, np.random.Generator], LayerWeights],
    seed: int,
) -> tuple[LayerWeights, ...]:
    """Draw the weights of the heads of every layer, [head, …] each.

    `weights_of` makes those of one head from its kind and a random generator of its own.
    """
    layers = []
    for layer, kinds in enumerate(attention.heads):
        of_heads = [
            weights_of(kind, stream(seed, HEAD_STREAM, layer, head))
            for head, kind in enumerate(kinds)
        ]
        layers.append(tuple(np.stack(matrices) for matrices in zip(*of_heads, strict=True)))
    return tuple(layers)


def query_and_key_weights(
    kind: str,
    channels: int,
    inverse_temperature: float,
    generator: np.random.Generator,
    logit_weights: Mapping[str, Callable[[], np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Make W_Q and W_K of one head, [key channel, channel], for logits (W_K x_s)·(W_Q x_t)/√D.

    uniform  all logits are equal
    random   Gaussian entries of variance 1/D, W_Q multiplied by the inverse temperature β
    learned  as random: one draw of the prior
    others   logits are β x_sᵀ W x_t, with W [channel, channel] made by `logit_weights`

    Only a random head draws from the generator. Raises ValueError for a kind that is unknown.
    """
    if kind in ("random", LEARNED):
        query, key = generator.standard_normal((2, channels, channels)) / np.sqrt(channels)
        return inverse_temperature * query, key
    if kind == "uniform":
        weights = np.zeros((channels, channels))
    elif kind in logit_weights:
        weights = logit_weights[kind]()
    else:
        known = ", ".join((*logit_weights, "uniform", "random", LEARNED))
        raise ValueError(f"head kind {kind!r}: use one of {known}")
    # Keys are the inputs themselves, as in `bilinear_attention`.
    return inverse_temperature * np.sqrt(channels) * weights, np.eye(channels)


@dataclass(frozen=True)
class Unattended:
    """The examples of a split before any head attends to them.

    inputs_of  makes the inputs [example, token, channel] of some of them
    labels     [example, output]
    origin     arrays that all inputs follow from
    """

    inputs_of: Callable[[slice], np.ndarray]
    labels: np.ndarray
    origin: tuple[np.ndarray, ...]


def attended_task(
    splits: tuple[Unattended, Unattended, Unattended | None],
    attention: AttentionSection,
    head_seed: int,
    channels: int,
    logit_weights: Mapping[str, Callable[[], np.ndarray]],
) -> Task:
    """Make the task of training, test and validation examples, and of heads with W_Q and W_K.

    The latter are made by `query_and_key_weights`.
    """

    def weights_of(kind: str, generator: np.random.Generator) -> LayerWeights:
        beta = attention.inverse_temperature
        return query_and_key_weights(kind, channels, beta, generator, logit_weights)

    weights, variants = draw_layers(attention, weights_of, head_seed), chosen_variants(attention)
    origin = tuple(one for of_layer in weights for one in of_layer)

    def attend(inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(
            factored_attention(inputs, *of_layer, those)
            for of_layer, those in zip(weights, variants, strict=True)
        )

    train, test, validation = (
        None if one is None else attended_split(one, attend, variants, origin) for one in splits
    )
    names, root = name_heads(attention), 1.0 / np.sqrt(channels)
    scale = np.array([attention.inverse_temperature * root, root])
    learned = learned_heads(attention, channels, LearnedHeads("low_rank", scale, (), (), channels))
    paths = name_paths(names)
    return Task(train, test, names, paths, validation, learned=learned)


def attended_split(
    examples: Unattended,
    attend: Callable[[np.ndarray], tuple[np.ndarray, ...]],
    variants: HeadVariants,
    origin: tuple[np.ndarray, ...],
) -> AnySplit:
    """Make the split in which `attend` gives the matrices of every layer, from its origin."""

    def make(part: slice) -> Split:
        inputs = examples.inputs_of(part)
        return Split(inputs, examples.labels[part], attend(inputs))

    return made_in_parts(make, examples.labels, repr(variants), (*examples.origin, *origin))


def refuse_unfit_length(attention: AttentionSection, tokens: int) -> None:
    """Raise InputError if a variant cannot take sequences of this length."""
    for of_layer in chosen_variants(attention):
        for variant in of_layer:
            try:
                variant.refuse_tokens(tokens)
            except ValueError as problem:
                form = Setting("attention", "form")
                raise InputError(form, variant.model_dump(), str(problem)) from None


def name_heads(attention: AttentionSection) -> tuple[tuple[str, ...], ...]:
    """Name the heads of every layer: by their kinds, with the head's number where one repeats.

    ("random", "good", "random") are "random 0", "good" and "random 2".
    """
    return tuple(
        tuple(
            kind if kinds.count(kind) == 1 else f"{kind} {head}" for head, kind in enumerate(kinds)
        )
        for kinds in attention.heads
    )


def number_heads(heads: Sequence[int], random_heads: int = 0) -> tuple[tuple[str, ...], ...]:
    """Number the heads of every layer; random ones after them are r0, r1, …."""
    added = [f"r{head}" for head in range(random_heads)]
    return tuple((*map(str, range(count)), *added) for count in heads)
