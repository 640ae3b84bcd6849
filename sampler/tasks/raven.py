"""Symbolic Raven's matrices as a task: heads of the recipe, or those of a trained transformer.

Nine tokens, eight panels and one that asks: `sampler.transformer.matrices` says what is drawn.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import model_validator

from sampler.errors import InputError, Setting
from sampler.runtime import stream
from sampler.settings.task import (
    LEARNED,
    AttentionSection,
    DrawnSection,
    MatrixSection,
    TaskSection,
)
from sampler.settings.training import PANELS, MatrixTrainingSection
from sampler.settings.types import FilePath, Seed, Several, ValidationCount
from sampler.tasks.chosen_heads import with_chosen_heads
from sampler.tasks.paths import name_paths
from sampler.tasks.task import (
    TEST_STREAM,
    Task,
    Unattended,
    attended_task,
    draw_splits,
    number_heads,
    refuse_unfit_length,
)
from sampler.tasks.trained import read_model_of, refuse_other_data, split_of_model
from sampler.transformer.matrices import MatrixSplits, MatrixTokens, draw_matrices
from sampler.transformer.model import trained_network

Compositions = Literal["held_out", "seen"]


class RavenSection(MatrixSection, DrawnSection):
    """Symbolic Raven's matrices, three rows of three panels of features; the ninth is asked for.

    Every feature follows one rule along the rows; compositions have one for each feature, and some
    are held out. Labels are one-hot vectors less their mean, one after another where all features
    are asked for; an example is right where all of them are.
    """

    head_kinds: ClassVar = ("row", "column", "same", "uniform", "random", LEARNED)
    attention_defaults: ClassVar = {"heads": (("row", "column", "same"), ("row", "column"))}

    test_compositions: Compositions = "held_out"
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
        refuse_unfit_length(attention, PANELS)
        tokens = MatrixTokens.of(self)
        logit_weights = {
            "row": lambda: position_weights(tokens, lambda place: place // 3),
            "column": lambda: position_weights(tokens, lambda place: place % 3),
            "same": lambda: symbol_weights(tokens),
        }
        splits = drawn_splits(self, self)
        return attended_task(splits, attention, self.head_seed, tokens.channels, logit_weights)


class TrainedRavenSection(TaskSection):
    """Symbolic Raven's matrices with the attention of a transformer that `train` trained on them.

    Features, symbols, rules and the compositions that are held out are those of the training.
    """

    brings_heads: ClassVar = True

    model: FilePath
    """Directory of the training."""
    test_compositions: Compositions = "held_out"
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
        model = read_model_of(self.model, MatrixTrainingSection, "raven")
        matrices = model.recipe.task
        refuse_other_data(self.model, model, MatrixSplits(matrices).checksum)
        train, test, validation = (
            None if one is None else split_of_model(model, one)
            for one in drawn_splits(matrices, self)
        )
        names, trained = number_heads(model.recipe.training.heads), trained_network(model)
        task = Task(train, test, names, name_paths(names), validation, trained)
        return with_chosen_heads(task, attention)


def drawn_splits(
    matrices: MatrixSection, settings: RavenSection | TrainedRavenSection
) -> tuple[Unattended, Unattended, Unattended | None]:
    """Draw training, test and validation matrices; InputError where none is to be tested on."""
    splits, tokens = MatrixSplits(matrices), MatrixTokens.of(matrices)
    tested = getattr(splits, settings.test_compositions)
    if not len(tested):
        remedy = 'no composition was held out of the training; use "seen"'
        raise InputError(Setting("task", "test_compositions"), settings.test_compositions, remedy)

    def draw(examples: int, key: int) -> Unattended:
        among = tested if key == TEST_STREAM else splits.seen
        drawn = draw_matrices(matrices, among, examples, stream(settings.seed, key))
        panels, asked = drawn.panels, drawn.asked

        def inputs_of(part: slice) -> np.ndarray:
            return tokens.inputs(panels[part], asked[part])

        return Unattended(inputs_of, tokens.targets(drawn), (panels, asked))

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
