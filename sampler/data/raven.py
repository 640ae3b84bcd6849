"""Symbolic Raven's matrices: panels in three rows of three, of which the ninth is asked for.

A panel is F features, each one of S symbols, integers modulo S. Every feature follows one rule
along each row a, b, c:

    constant       a = b = c
    progression_1  b = a + 1, c = b + 1
    progression_2  b = a + 2, c = b + 2
    sum            c = a + b
    distribution   three different symbols, the same in all rows, in three different orders

A composition has one rule for each feature. A matrix is drawn again where another rule explains
its first eight panels and ends in another ninth one; rules that agree on it may both hold.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator, model_validator

from sampler.data.heads_of_task import (
    RawExamples,
    read_model_of,
    refuse_other_data,
    task_of_model,
    with_logit_weights,
)
from sampler.data.labelled_inputs import centred_one_hot, scaled_one_hot
from sampler.data.split import checksum_of, draw_splits
from sampler.data.task import Task
from sampler.errors import InputError, Setting
from sampler.settings.task_sections import (
    LEARNED,
    AttentionSection,
    DataSection,
    DrawnSection,
    TaskSection,
)
from sampler.settings.training import TrainedSection
from sampler.settings.types import CountFromZero, FilePath, Fraction, Seed, Several, ValidationCount
from sampler.streams import Stream, stream

# Tokens of a matrix.
PANELS = 9
ORDERS = np.array(list(permutations(range(3))))
STEPS = {"constant": 0, "progression_1": 1, "progression_2": 2}
# In the place of an answer, of a rule that does not explain what is shown.
UNEXPLAINED = -1
Rule = Literal["constant", "progression_1", "progression_2", "sum", "distribution"]
Tested = Literal["held_out", "seen"]
# Compositions by the numbers of their rules.
Compositions = Int[np.ndarray, "_composition feature"]


class MatrixSection(DataSection):
    """Settings of symbolic Raven's matrices, three rows of three panels of features.

    Every feature follows one rule along the rows; compositions have one for each feature.
    """

    features: Annotated[int, Field(strict=True, ge=1, le=6)] = 2
    """F, the features of a panel."""
    symbols: Annotated[int, Field(strict=True, ge=3)] = 5
    """S, what a feature may be: integers modulo S."""
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)] = get_args(Rule)
    """The rules: "constant", "progression_1" and "progression_2", which add 1 or 2 from panel to
    panel, "sum" of the first two, and "distribution" of the same three symbols in other orders."""
    asks: Literal["all", "one"] = "all"
    """What of the ninth panel is asked for: all features, with F·S outputs, or one that the ninth
    token names, with S outputs."""
    held_out: Fraction | CountFromZero = 0.2
    """Compositions that are not trained on, as a fraction of all or their number: every rule in
    every feature about as often, and never always."""
    split_seed: Seed = 0
    """Seed of which these are."""

    @field_validator("rules")
    @classmethod
    def rules_are_different(cls, rules):
        if len(set(rules)) != len(rules):
            raise ValueError("name every rule once")
        return rules


class MatrixTrainingSection(MatrixSection, TrainedSection):
    """Symbolic Raven's matrices, drawn anew for every step, of compositions that are not held out.

    The ninth token is read out. The test is on compositions that are held out, where there are any.
    """

    of_training: ClassVar = "matrices"
    readout: ClassVar = "last"
    tokens: ClassVar = (PANELS, "a matrix")

    kind: Literal["raven"]


class RavenSection(MatrixSection, DrawnSection):
    """Symbolic Raven's matrices, three rows of three panels of features; the ninth is asked for.

    Every feature follows one rule along the rows; compositions have one for each feature, and some
    are held out. Labels are one-hot vectors less their mean, one after another where all features
    are asked for; an example is right where all of them are.
    """

    head_kinds: ClassVar = ("row", "column", "same", "uniform", "random", LEARNED)
    attention_defaults: ClassVar = {"heads": (("row", "column", "same"), ("row", "column"))}

    test_compositions: Tested = "held_out"
    """Compositions of the test set; validation is on those that are seen."""

    @classmethod
    def section_for(cls, settings: Mapping[str, Any]) -> type[TaskSection]:
        """With a model: that of its attention."""
        return TrainedRavenSection if "model" in settings else cls

    @model_validator(mode="after")
    def tests_on_what_is_there(self) -> "RavenSection":
        if not self.held_out and self.test_compositions == "held_out":
            raise ValueError('held_out = 0 leaves none to test on; use test_compositions = "seen"')
        return self

    def make(self, attention: AttentionSection) -> Task:
        """Draw matrices, and the heads of the recipe."""
        tokens = MatrixTokens.of(self)
        logit_weights = {
            "row": lambda: position_weights(tokens, lambda place: place // 3),
            "column": lambda: position_weights(tokens, lambda place: place % 3),
            "same": lambda: symbol_weights(tokens),
        }
        splits = drawn_splits(self, self)
        return with_logit_weights(splits, attention, self.head_seed, logit_weights)


class TrainedRavenSection(TaskSection):
    """Symbolic Raven's matrices with the attention of a transformer that `train` trained on them.

    Features, symbols, rules and the compositions that are held out are those of the training.
    """

    brings_heads: ClassVar = True

    model: FilePath
    """Directory of the training."""
    test_compositions: Tested = "held_out"
    """Compositions of the test set; validation is on those that are seen."""
    examples_train: Several = 600
    """Matrices to learn from."""
    examples_test: Several = 1000
    """Matrices of the test set."""
    examples_validation: ValidationCount = 1000
    """Matrices of the validation set; without one: 0."""
    seed: Seed = 0
    """Seed of the matrices."""

    def make(self, attention: AttentionSection | None) -> Task:
        """Draw matrices, with the attention that the model has on them.

        Raises InputError where the model cannot be used, or has no compositions to test on.
        """
        model = read_model_of(self.model, MatrixTrainingSection)
        matrices = model.recipe.task
        refuse_other_data(self.model, model, MatrixSplits(matrices).checksum)
        return task_of_model(model, drawn_splits(matrices, self), attention)


# --- matrices


def draw_rows(
    rule: str, symbols: int, examples: int, generator: np.random.Generator
) -> Int[np.ndarray, "example row column"]:
    """Draw one feature of some matrices, whose rows follow a rule."""
    if rule == "distribution":
        chosen = generator.permuted(np.tile(np.arange(symbols), (examples, 1)), axis=1)[:, :3]
        orders = generator.permuted(np.tile(np.arange(len(ORDERS)), (examples, 1)), axis=1)[:, :3]
        return np.take_along_axis(chosen[:, None], ORDERS[orders], axis=2)
    shown = generator.integers(symbols, size=(examples, 3, 2))
    if rule == "sum":
        return np.concatenate([shown, shown.sum(axis=2, keepdims=True) % symbols], axis=2)
    return (shown[:, :, :1] + STEPS[rule] * np.arange(3)) % symbols


def answers(
    rule: str, symbols: int, rows: Int[np.ndarray, "example row column"]
) -> Int[np.ndarray, " example"]:
    """Return the ninth symbol by a rule, from the first eight; −1 where it does not explain them.

    rows  of one feature; its ninth entry is not looked at
    """
    first, second, (a, b) = rows[:, 0], rows[:, 1], rows[:, 2, :2].T
    if rule == "distribution":
        answer = first.sum(axis=1) - a - b
        last = np.stack([a, b, answer], axis=1)
        three = np.sort(first, axis=1)
        explained = np.all(np.diff(three, axis=1) > 0, axis=1)
        for row, other in ((second, first), (last, first), (last, second)):
            explained &= np.all(np.sort(row, axis=1) == three, axis=1)
            explained &= np.any(row != other, axis=1)
        return np.where(explained, answer, UNEXPLAINED)
    if rule == "sum":
        explained = (rows[:, :2, 0] + rows[:, :2, 1] - rows[:, :2, 2]) % symbols == 0
        return np.where(explained.all(axis=1), (a + b) % symbols, UNEXPLAINED)
    steps = np.concatenate([np.diff(rows[:, :2], axis=2).reshape(-1, 4), (b - a)[:, None]], axis=1)
    explained = (steps - STEPS[rule]) % symbols == 0
    return np.where(explained.all(axis=1), (b + STEPS[rule]) % symbols, UNEXPLAINED)


def ambiguous(
    rules: Sequence[str], symbols: int, rows: Int[np.ndarray, "example row column"]
) -> Bool[np.ndarray, " example"]:
    """Tell where one of these rules explains eight panels and ends in another ninth one."""
    ninth = np.stack([answers(rule, symbols, rows) for rule in rules])
    return np.any((ninth != UNEXPLAINED) & (ninth != rows[:, 2, 2]), axis=0)


@dataclass(frozen=True)
class Matrices:
    """Matrices with all nine panels, the rule of each feature by its number, and what is asked.

    asked  the feature that is asked for; where all are, it is 0 and says nothing
    """

    panels: Int[np.ndarray, "example panel feature"]
    rules: Int[np.ndarray, "example feature"]
    asked: Int[np.ndarray, " example"]


def draw_matrices(
    settings: MatrixSection, among: Compositions, examples: int, generator: np.random.Generator
) -> Matrices:
    """Draw matrices, each of one of these compositions, which are equally likely."""
    rules = among[generator.integers(len(among), size=examples)]
    asked = np.zeros(examples, int)
    if settings.asks == "one":
        asked = generator.integers(settings.features, size=examples)
    panels = np.empty((examples, PANELS, settings.features), int)
    for feature in range(settings.features):
        rows = np.empty((examples, 3, 3), int)
        for number, rule in enumerate(settings.rules):
            left = np.flatnonzero(rules[:, feature] == number)
            while left.size:
                rows[left] = draw_rows(rule, settings.symbols, left.size, generator)
                left = left[ambiguous(settings.rules, settings.symbols, rows[left])]
        panels[:, :, feature] = rows.reshape(examples, PANELS)
    return Matrices(panels, rules, asked)


@dataclass(frozen=True)
class MatrixTokens:
    """The form of tokens: eight panels of a matrix, and a ninth token that asks.

    Channels are those of the features, S each, then one-hot positions and, where one feature is
    asked for, that feature: of the ninth token only. A symbol is its centred one-hot vector times
    √S, a position and what is asked for are one-hot; the features of the ninth token are 0.
    """

    features: int
    symbols: int
    asks_one: bool

    @classmethod
    def of(cls, settings: MatrixSection) -> "MatrixTokens":
        return cls(settings.features, settings.symbols, settings.asks == "one")

    @property
    def channels(self) -> int:
        return self.features * self.symbols + PANELS + self.features * self.asks_one

    @property
    def outputs(self) -> int:
        return self.symbols * (1 if self.asks_one else self.features)

    def inputs(self, panels: Any, asked: Any) -> Float[Any, "example token channel"]:
        """Make tokens of the panels [example, panel, feature], of which the ninth is not used."""
        xp, examples = panels.__array_namespace__(), panels.shape[0]
        shown = scaled_one_hot(panels[:, :-1], self.symbols).reshape(examples, PANELS - 1, -1)
        features = xp.concat([shown, xp.zeros_like(shown[:, :1])], axis=1)
        places = xp.eye(PANELS, dtype=features.dtype)
        parts = [features, xp.broadcast_to(places, (examples, PANELS, PANELS))]
        if self.asks_one:
            hot = xp.astype(asked[:, None] == xp.arange(self.features), features.dtype)
            parts.append(places[:, -1:] * hot[:, None])
        return xp.concat(parts, axis=2)

    def targets(self, matrices: Matrices) -> Float[np.ndarray, "example output"]:
        """Make centred one-hot labels: of what is asked for, one feature after another."""
        last = matrices.panels[:, -1]
        if self.asks_one:
            last = np.take_along_axis(last, matrices.asked[:, None], axis=1)
        labels = centred_one_hot(last.reshape(-1), range(self.symbols))
        return labels.reshape(len(last), self.outputs)


@dataclass(frozen=True)
class MatrixSplits:
    """The compositions to learn from, and those that are held out of it."""

    settings: MatrixSection

    @cached_property
    def _split(self) -> tuple[Compositions, Compositions]:
        settings, share = self.settings, self.settings.held_out
        numbers, features = range(len(settings.rules)), np.arange(settings.features)
        every = np.array(list(product(numbers, repeat=settings.features)))
        every = every[stream(settings.split_seed, Stream.COMPOSITIONS).permutation(len(every))]
        wanted = share if isinstance(share, int) else round(share * len(every))
        # How many compositions that are seen have a rule in a feature.
        left = np.stack([(every == number).sum(axis=0) for number in numbers])
        is_test = np.zeros(len(every), bool)
        for _ in range(wanted):
            counts = left[every, features]
            allowed = ~is_test & (counts.min(axis=1) > 1)
            if not allowed.any():
                remedy = (
                    f"at most {is_test.sum()} of {len(every)} compositions can be held out, so "
                )
                remedy += "that every rule is seen in every feature; use fewer, or more features"
                raise InputError(Setting("task", "held_out"), share, remedy)
            # Rules that are seen most often go first: then all are held out about as often.
            place = np.argmax(np.where(allowed, counts.sum(axis=1), 0))
            is_test[place] = True
            left[every[place], features] -= 1
        return every[~is_test], every[is_test]

    @property
    def seen(self) -> Compositions:
        """Compositions of rules by their numbers; every rule is seen in every feature."""
        return self._split[0]

    @property
    def held_out(self) -> Compositions:
        """The others."""
        return self._split[1]

    @property
    def checksum(self) -> str:
        """SHA-256 of all that matrices depend on, but the seed."""
        settings = {key: getattr(self.settings, key) for key in MatrixSection.model_fields}
        return checksum_of(repr([settings, self.seen.tolist(), self.held_out.tolist()]))


# --- splits and heads


def drawn_splits(
    matrices: MatrixSection, settings: RavenSection | TrainedRavenSection
) -> tuple[RawExamples, RawExamples, RawExamples | None]:
    """Draw training, test and validation matrices; InputError where none is to be tested on."""
    splits, tokens = MatrixSplits(matrices), MatrixTokens.of(matrices)
    tested = getattr(splits, settings.test_compositions)
    if not len(tested):
        remedy = 'no composition was held out of the training; use "seen"'
        raise InputError(Setting("task", "test_compositions"), settings.test_compositions, remedy)

    def draw(examples: int, of: Stream) -> RawExamples:
        among = tested if of is Stream.TEST else splits.seen
        drawn = draw_matrices(matrices, among, examples, stream(settings.seed, of))
        panels, asked = drawn.panels, drawn.asked

        def inputs_of(part: slice) -> np.ndarray:
            return tokens.inputs(panels[part], asked[part])

        return RawExamples.of(inputs_of, tokens.targets(drawn), panels, asked)

    return draw_splits(settings, draw)


def position_weights(
    tokens: MatrixTokens, group: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, "channel channel"]:
    """W/β of a head whose logit is 1 for keys in the same group of places as the query, else 0."""
    weights = np.zeros(2 * (tokens.channels,))
    features, places = tokens.features * tokens.symbols, group(np.arange(PANELS))
    own = slice(features, features + PANELS)
    weights[own, own] = places[:, None] == places
    return weights


def symbol_weights(tokens: MatrixTokens) -> Float[np.ndarray, "channel channel"]:
    """W/β of a head whose logit is the mean over features of x_s·x_t/(S − 1).

    It is 1 where all symbols are the same; the ninth token sees all keys alike.
    """
    weights, features = np.zeros(2 * (tokens.channels,)), tokens.features * tokens.symbols
    weights[:features, :features] = np.eye(features) / (tokens.features * (tokens.symbols - 1))
    return weights
