"""The section of a training recipe that says which network is trained, and how."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sampler.attention.forms.choice import forms_by_head, read_forms
from sampler.attention.forms.form import Form
from sampler.attention.forms.softmax import Softmax
from sampler.recipes.sections import (
    Count,
    NotNegative,
    Positive,
    Section,
    Seed,
    count_or_counts,
    expanded,
)


class TrainingSection(Section):
    """Network, loss and steps.

    `heads` lists the heads of each layer, `widths` is one width or [N_1, …, N_L, N_a], `key_size`
    the channels of a key. `form` says what the attention of a head makes of queries and keys,
    softmax by default: a table for all heads, or a list with a table, or a list of tables, one per
    head, for each layer. `weight_decay` is decoupled with "adamw" and part of the gradient with
    "adam". The network is judged on `validation_examples` episodes every `validation_every` steps,
    and the best one is kept; `evaluation_examples` other ones of each split judge what was kept.
    """

    heads: Annotated[tuple[Count, ...], Field(min_length=1)] = (4, 4)
    widths: Annotated[int | tuple[int, ...], BeforeValidator(count_or_counts)] = 64
    key_size: Count = 32
    form: Annotated[Any, BeforeValidator(read_forms)] = None
    steps: Count = 30_000
    batch: Count = 128
    optimiser: Literal["adamw", "adam"] = "adamw"
    learning_rate: Positive = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: NotNegative = 0.01
    validation_every: Count = 500
    validation_examples: Count = 2000
    evaluation_examples: Count = 2000
    seed: Seed = 0
    checkpoint_seconds: NotNegative = 30.0

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Widths (N_1, …, N_L, N_a); InputError if the list does not fit the layers."""
        layers = len(self.heads)
        return expanded("training.widths", self.widths, layers + 1, "[N_1, …, N_L, N_a]", layers)

    @property
    def forms(self) -> tuple[tuple[Form, ...], ...]:
        """The form of every head, layer by layer; plain softmax where none is named."""
        return forms_by_head(Softmax() if self.form is None else self.form, self.heads)

    @model_validator(mode="after")
    def forms_fit_the_heads(self) -> "TrainingSection":
        try:
            _ = self.forms
        except ValueError as problem:
            raise ValueError(f"form {problem}") from None
        return self
