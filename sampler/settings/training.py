"""The section [training], and the table of training data."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from sampler.attention.layers import read_variants
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.registry import Registry
from sampler.settings.network_sections import FORM_OF_WIDTHS, by_layer
from sampler.settings.refusals import variants_of
from sampler.settings.section import Section
from sampler.settings.task_sections import DataSettings
from sampler.settings.types import (
    Count,
    LayerWidths,
    NotNegative,
    Positive,
    Seed,
    Switch,
)
from theory.architecture import Values

# The command that such a recipe is for.
TRAIN = "train"


class TrainingTask(DataSettings):
    """Settings of the examples that a network is trained on.

    of_training  kind of the examples, in words
    tokens       tokens of an example, where its kind fixes them, and their unit
    """

    of_training: ClassVar[str]
    tokens: ClassVar[tuple[int | None, str]] = (None, "")

    def read(self, training: "Training") -> Any:
        """Read the examples of every split, which have a `checksum` and `sizes`.

        Raises InputError where they cannot be used, or heads of the training cannot attend to them.
        """
        raise NotImplementedError


class Training(Section):
    """Network, loss and steps of a training.

    The best network of all validations is kept. Time series are judged on all there are.
    """

    table: ClassVar = "training"

    heads: Annotated[tuple[Count, ...], Field(min_length=1)] = (4, 4)
    """The number of heads of each layer."""
    widths: LayerWidths = 64
    """N of all layers, or [N_1, …, N_L, N_a]."""
    key_size: Count = 32
    """Channels of a key."""
    form: Annotated[Any, BeforeValidator(read_variants)] = None
    """The attention variant, softmax by default: a table for all heads, or a list with a table, or
    a list of tables, one per head, for each layer."""
    hypernetwork: Switch | tuple[Switch, ...] = False
    """Whether heads make two layers of weights, of values and of outputs: in all layers of
    attention, or a list by layer."""
    values: Values = "linear"
    """The function of values."""
    steps: Count = 30_000
    """Steps of gradient descent."""
    batch: Count = 128
    """Examples of each step."""
    optimiser: Literal["adamw", "adam"] = "adamw"
    """The optimiser."""
    learning_rate: Positive = 1e-3
    """Learning rate at the beginning."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate over the steps: falling to 0 as (1 + cos πt/T)/2, or constant."""
    weight_decay: NotNegative = 0.01
    """Weight decay: decoupled with "adamw", part of the gradient with "adam"."""
    until_loss: Positive | None = None
    """Mean training loss since the last validation below which a training ends, at a validation;
    the network is then kept as it ends, so that networks are compared that fit their examples
    equally well."""
    validation_every: Count = 500
    """Steps from one validation to the next."""
    validation_examples: Count = 2000
    """Episodes of a validation."""
    evaluation_examples: Count = 2000
    """Other episodes of each split that judge the network that is kept."""
    seed: Seed = 0
    """Seed of the first weights and of the batches."""

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Widths (N_1, …, N_L, N_a); InputError if the list does not fit the layers."""
        layers = len(self.heads) + sum(self.hypernetworks)
        return by_layer("training.widths", self.widths, layers + 1, FORM_OF_WIDTHS)

    @property
    def hypernetworks(self) -> tuple[bool, ...]:
        """Whether each layer of attention is a hypernetwork; InputError if a list does not fit."""
        form = "[true, false, …]"
        return by_layer("training.hypernetwork", self.hypernetwork, len(self.heads), form)

    @property
    def variants(self) -> tuple[tuple[AttentionVariant, ...], ...]:
        """The variant of every head, layer by layer; InputError if lists do not fit the heads."""
        form = Softmax() if self.form is None else self.form
        return variants_of("training.form", form, self.heads)


# Kinds of data that a network is trained on. Each file is imported when its kind is asked for.
TRAINED: Registry[type[TrainingTask]] = Registry(
    "training task",
    {
        "one_shot": "sampler.data.characters:OneShotImages",
        "time_series": "sampler.data.time_series:LabelledSeries",
    },
)
