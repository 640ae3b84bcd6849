"""Associative recall: the label is the value that was shown with the query's key.

Tokens are pairs of a key, one-hot among K, and a value ±1 in a channel of its own; all keys of a
sequence differ. The last token asks for one of them, with the value 0. The label is that value.

A head "match" has the logit β where both keys are the same and 0 elsewhere. With softmax the last
token of a sequence of n pairs then reads in the channel of values

    (e^β v_match + Σ_others v) / (2 e^β + n − 1),

since the question matches itself as well.
"""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import model_validator

from sampler.data.drawn_task import DrawnTask, LogitWeights
from sampler.data.examples import StreamedExamples
from sampler.errors import InputError
from sampler.settings.task_sections import Attention
from sampler.settings.types import Several
from sampler.streams import Stream, stream


class AssociativeRecall(DrawnTask):
    """Pairs of a key and a value ±1, and a key whose value is the label; one output."""

    head_kinds: ClassVar = ("match", "uniform", "random", "learned")
    attention_defaults: ClassVar = {"heads": (("match",),), "inverse_temperature": 3.0}

    kind: Literal["associative_recall"] = "associative_recall"
    pairs: Several = 10
    """Pairs of a key and a value before the question."""
    keys: Several = 20
    """Keys that there are, of which a sequence shows some; the tokens have one channel more."""

    @model_validator(mode="after")
    def has_keys_enough(self) -> "AssociativeRecall":
        if self.keys < self.pairs:
            remedy = f"all keys of a sequence differ: use at least task.pairs = {self.pairs}"
            raise InputError("task.keys", self.keys, remedy)
        return self

    def draw(self, examples: int, of: Stream) -> StreamedExamples:
        tokens, labels = draw_questions(self, examples, stream(self.seed, of))
        return StreamedExamples.of(tokens.__getitem__, labels, tokens)

    def logit_weights(self, attention: Attention, tokens: int, channels: int) -> LogitWeights:
        return {"match": lambda: np.diag([*np.ones(self.keys), 0.0])}


def draw_questions(
    task: AssociativeRecall, examples: int, generator: np.random.Generator
) -> tuple[Float[np.ndarray, "example token channel"], Float[np.ndarray, "example 1"]]:
    """Draw the tokens of sequences and the answers to their questions."""
    order = generator.permuted(np.tile(np.arange(task.keys), (examples, 1)), axis=1)
    values = generator.choice([-1.0, 1.0], size=(examples, task.pairs))
    asked = generator.integers(task.pairs, size=(examples, 1))
    shown = order[:, : task.pairs]
    keys = np.concatenate([shown, np.take_along_axis(shown, asked, axis=1)], axis=1)
    tokens = np.zeros((examples, task.pairs + 1, task.keys + 1))
    tokens[..., :-1] = np.eye(task.keys)[keys]
    tokens[:, :-1, -1] = values
    return tokens, np.take_along_axis(values, asked, axis=1)
