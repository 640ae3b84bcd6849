"""The section of a training recipe that says which network is trained, and how."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from sampler.jobs.recipe_sections import (
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
    the channels of a key. `weight_decay` is decoupled with "adamw" and part of the gradient with
    "adam". The network is judged on `validation_examples` episodes every `validation_every` steps,
    and the best one is kept; `evaluation_examples` other ones of each split judge what was kept.
    """

    heads: Annotated[tuple[Count, ...], Field(min_length=1)] = (4, 4)
    widths: Annotated[int | tuple[int, ...], BeforeValidator(count_or_counts)] = 64
    key_size: Count = 32
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
