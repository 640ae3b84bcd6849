"""Recipes of `train`: the examples, the network, and the steps of a training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError

from sampler.attention.heads import read_variants
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.errors import ABSENT, InputError, Setting
from sampler.registry import Registry, load_plugins
from sampler.settings.network import by_attention_layer, by_layer
from sampler.settings.paths import make_paths_absolute
from sampler.settings.recipe import (
    Changes,
    NamedRecipe,
    Recipe,
    recipe_of,
    sections_of,
)
from sampler.settings.refusals import (
    Sections,
    recipe_error,
    refuse_untrainable,
    settings_in,
    variants_of,
)
from sampler.settings.task import TASKS, DataSection, kinds_of, read_section
from sampler.settings.toml import folder_of, parse_override, place, read_toml
from sampler.settings.types import (
    Count,
    LayerWidths,
    NotNegative,
    Positive,
    Section,
    Seed,
    Switch,
)
from theory.architecture import Values

# The command that such a recipe is for.
TRAIN = "train"


class TrainedSection(DataSection):
    """Settings of the examples that a network is trained on.

    of_training  what the examples are made of, in words
    readout      the token that is read out, or "mean" of all
    tokens       tokens of an example, where its kind fixes them, and what they are of
    """

    of_training: ClassVar[str]
    readout: ClassVar[Literal["mean", "last"]] = "mean"
    tokens: ClassVar[tuple[int | None, str]] = (None, "")


class TrainingSection(Section):
    """Network, loss and steps of a training.

    The best network of all validations is kept. Time series are judged on all there are.
    """

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
        return by_layer(Setting("training", "widths"), self.widths, layers)

    @property
    def hypernetworks(self) -> tuple[bool, ...]:
        """Whether each layer of attention is a hypernetwork; InputError if a list does not fit."""
        setting = Setting("training", "hypernetwork")
        return by_attention_layer(setting, self.hypernetwork, len(self.heads))

    @property
    def variants(self) -> tuple[tuple[AttentionVariant, ...], ...]:
        """The variant of every head, layer by layer; InputError if lists do not fit the heads."""
        form = Softmax() if self.form is None else self.form
        return variants_of(Setting("training", "form"), form, self.heads)


# Kinds of data that a network is trained on. Each file is imported when its kind is asked for.
TRAINED: Registry[type[TrainedSection]] = Registry(
    "training task",
    {
        "one_shot": "sampler.data.one_shot:ImageSection",
        "time_series": "sampler.data.time_series:SeriesSection",
        "raven": "sampler.data.raven:MatrixTrainingSection",
    },
)


def trained_sections_of(task: Any) -> Sections:
    """Return the class of every section of a recipe of `train`; None for an unknown task."""
    kind = task.get("kind") if isinstance(task, Mapping) else None
    section = TRAINED.get(kind) if isinstance(kind, str) else None
    return {"task": section, "training": TrainingSection}


def read_trained_section(task: Any) -> Any:
    """Return the section of the settings of a task of a training."""
    section = trained_sections_of(task)["task"]
    return read_section(task, section, f"use {kinds_of(TRAINED)} to train a network")


class TrainingRecipe(NamedRecipe):
    """All settings of a training, defaults included; frozen."""

    task: Annotated[SerializeAsAny[TrainedSection], BeforeValidator(read_trained_section)]
    training: TrainingSection = TrainingSection()

    @property
    def seeds(self) -> dict:
        """Every seed, for the manifest."""
        task = self.task.model_dump(include={"seed", "split_seed"})
        return {"task": task, "training": self.training.seed}

    @property
    def precision(self) -> dict:
        """The floating-point numbers computed with, for the manifest."""
        return {"training": "float32"}


def load_training_recipe(path: str | Path, overrides: Sequence[str] = ()) -> TrainingRecipe:
    """Read and validate a training recipe; overrides and errors as of `load_recipe`."""
    path = Path(path)
    return training_recipe_of(read_toml(path), folder_of(path), map(parse_override, overrides))


def training_recipe_of(
    settings: dict[str, Any], folder: Path, changes: Changes = ()
) -> TrainingRecipe:
    """The training recipe of nested settings and of changes of dotted keys, as of `recipe_of`."""
    for key, value in changes:
        place(settings, key, value)
    if "training" not in settings:
        remedy = "this section is required; a recipe without it is for `run`"
        raise InputError(Setting("training"), ABSENT, remedy)
    make_paths_absolute(settings, folder, trained_sections_of(settings.get("task")))
    return make_training_recipe(settings)


def make_training_recipe(settings: dict[str, Any]) -> TrainingRecipe:
    """Validate settings; raises InputError with the setting, the value and the remedy."""
    load_plugins()
    try:
        recipe = TrainingRecipe.model_validate(settings)
    except ValidationError as problem:
        raise recipe_error(problem, settings, trained_sections_of(settings.get("task"))) from None
    _ = recipe.training.layer_widths  # raises InputError where lists do not fit the layers
    refuse_untrainable(recipe.training.variants, *recipe.task.tokens)
    return recipe


def load_any_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe | TrainingRecipe:
    """A recipe of either kind: one with a section [training] is for `train`."""
    return any_recipe_of(read_toml(path), folder_of(path), map(parse_override, overrides))


def any_recipe_of(
    settings: dict[str, Any], folder: Path, changes: Changes = ()
) -> Recipe | TrainingRecipe:
    """A recipe of either kind, of nested settings and of changes, as of `recipe_of`."""
    recipe_of_kind = training_recipe_of if "training" in settings else recipe_of
    return recipe_of_kind(settings, folder, changes)


def every_key() -> list[str]:
    """Return the dotted keys of recipes of every task and training, which shells complete."""
    runs = [sections_of({"kind": kind}) for kind in TASKS]
    trainings = [trained_sections_of({"kind": kind}) for kind in TRAINED]
    settings = {s for sections in (*runs, *trainings) for s in settings_in(sections)}
    return sorted(".".join(setting) for setting in settings)
