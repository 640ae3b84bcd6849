"""Recipes that train a transformer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from sampler.attention.heads import read_variants, variants_by_head
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.errors import ABSENT, InputError
from sampler.recipes.recipe import NamedRecipe, Recipe, load_recipe, resolve_data_path
from sampler.recipes.sections import (
    CHANGES_NO_DRAW,
    Count,
    NotNegative,
    Positive,
    Section,
    Seed,
    Several,
    Switch,
    Text,
    count_or_counts,
    expanded,
)
from sampler.recipes.settings import parse_override, place, read_toml
from sampler.recipes.task_section import IMAGE_FILES, DataSection
from sampler.recipes.validation import recipe_error
from sampler.registry import load_plugins

# The command that such a recipe is for.
TRAIN = "train"

SIDE = 32  # pixels of an image
PATCH = 8  # pixels of a patch
GRID = SIDE // PATCH  # rows, and columns, of patches
PATCHES = GRID**2  # of one image
IMAGES = 3  # of one episode
TOKENS = IMAGES * PATCHES

Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
OmniglotFile = Literal[
    "images_background.zip",
    "images_evaluation.zip",
    "images_background_small1.zip",
    "images_background_small2.zip",
]


class TrainedSection(DataSection):
    """What a network is trained on.

    of_training  what the examples are made of, in words
    """

    of_training: ClassVar[str]

    def refuse_unfit(self, training: "TrainingSection") -> None:
        """Raise InputError if a variant cannot be trained on these examples, as far as known."""
        refuse_unfit_variants(training)


class ImageSection(TrainedSection):
    """One-shot image classification: images, and which characters are for what.

    `images` is "digits", which come with scikit-learn, "omniglot", whose zip files are in `folder`,
    or the path of an .npz file or of the images of MNIST or Fashion-MNIST. `archives` are the zip
    files to use, by default all that are there; `download` fetches those that are missing, by
    default the two small sets. `characters_…` list
    characters or whole alphabets; without a list a fraction of all characters is drawn, and
    training has the rest. `channels` counts equal copies of the grey values.
    """

    data_paths: ClassVar = ("folder",)
    image_paths: ClassVar = ("images",)

    of_training: ClassVar = "images"

    kind: Literal["one_shot"]
    images: Text = "digits"
    folder: Text | None = None
    archives: tuple[OmniglotFile, ...] = ()
    download: Switch = False
    url: Text | None = None
    characters_train: tuple[Text, ...] = ()
    characters_validation: tuple[Text, ...] = ()
    characters_test: tuple[Text, ...] = ()
    fraction_validation: Fraction = 0.15
    fraction_test: Fraction = 0.3
    rotations: Switch = True
    channels: Annotated[int, Field(strict=True, ge=1, le=3)] = 1
    seed: Seed = 0

    @field_validator("images")
    @classmethod
    def is_a_source(cls, images):
        if images not in ("digits", "omniglot") and not images.endswith(IMAGE_FILES):
            raise ValueError(
                'use "digits", "omniglot", or the path of a file that ends in '
                + ", ".join(IMAGE_FILES)
            )
        return images

    @property
    def token_channels(self) -> int:
        """D, the channels of a token: the pixels of a patch, in every colour."""
        return self.channels * PATCH**2

    def refuse_unfit(self, training: "TrainingSection") -> None:
        refuse_unfit_variants(training, TOKENS, f"{IMAGES} images of {GRID} × {GRID}")


class SeriesSection(TrainedSection):
    """Labelled multivariate time series, each to be told of which class it is.

    The files are `<problem>_TRAIN.ts` and `<problem>_TEST.ts`, or `.arff`, in `folder`; `problem`
    is by default the name of the folder. `classes` are those to tell apart, by default all. Two of
    them are +1 and −1 at one output; more have an output each, 1 for the class and 0 for the
    others, less their mean 1/classes. Of the series for training a fraction of each class is for
    validation; of what is left `examples_per_class` are learned, by default all. Each token is the
    mean of `stride` time steps, by default as few as leave at most `max_tokens`.
    """

    data_paths: ClassVar = ("folder",)
    of_training: ClassVar = "series"

    kind: Literal["time_series"]
    folder: Text
    problem: Text | None = None
    classes: tuple[Text, ...] = ()
    examples_per_class: Count | None = None
    fraction_validation: Fraction = 0.25
    stride: Count | None = None
    max_tokens: Several = 50
    seed: Seed = 0

    @field_validator("classes")
    @classmethod
    def are_different(cls, classes):
        if len(classes) == 1 or len(set(classes)) != len(classes):
            raise ValueError("name at least two classes, each of them once")
        return classes


class TrainingSection(Section):
    """Network, loss and steps.

    `heads` lists the heads of each layer, `widths` is one width or [N_1, …, N_L, N_a], `key_size`
    the channels of a key. `form` is the attention variant, softmax by default: a table for all
    heads, or a list with a table, or a list of tables, one per head, for each layer. `weight_decay`
    is decoupled with "adamw" and part of the gradient with "adam". The network is judged on
    `validation_examples` episodes every `validation_every` steps, and the best one is kept;
    `evaluation_examples` other ones of each split judge what was kept. Time series are judged on
    all there are. With `until_loss` a training ends at the first validation before which the mean
    training loss since the last one was below it, and the network is kept as it ends: so networks
    are compared that fit their examples equally well.
    """

    heads: Annotated[tuple[Count, ...], Field(min_length=1)] = (4, 4)
    widths: Annotated[int | tuple[int, ...], BeforeValidator(count_or_counts)] = 64
    key_size: Count = 32
    form: Annotated[Any, BeforeValidator(read_variants)] = None
    steps: Count = 30_000
    batch: Count = 128
    optimiser: Literal["adamw", "adam"] = "adamw"
    learning_rate: Positive = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: NotNegative = 0.01
    until_loss: Positive | None = None
    validation_every: Count = 500
    validation_examples: Count = 2000
    evaluation_examples: Count = 2000
    seed: Seed = 0
    checkpoint_seconds: Annotated[NotNegative, CHANGES_NO_DRAW] = 30.0

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Widths (N_1, …, N_L, N_a); InputError if the list does not fit the layers."""
        layers = len(self.heads)
        return expanded("training.widths", self.widths, layers + 1, "[N_1, …, N_L, N_a]", layers)

    @property
    def variants(self) -> tuple[tuple[AttentionVariant, ...], ...]:
        """The variant of every head, layer by layer; plain softmax where none is named."""
        return variants_by_head(Softmax() if self.form is None else self.form, self.heads)

    @model_validator(mode="after")
    def variants_fit_the_heads(self) -> "TrainingSection":
        try:
            _ = self.variants
        except ValueError as problem:
            raise ValueError(f"form {problem}") from None
        return self


TRAINED: dict[str, type[TrainedSection]] = {"one_shot": ImageSection, "time_series": SeriesSection}


def trained_section_of(task: Any) -> type[TrainedSection] | None:
    """The class of the settings of what is learned; None if they have no kind that is known."""
    kind = task.get("kind") if isinstance(task, Mapping) else None
    return TRAINED.get(kind) if isinstance(kind, str) else None


def read_trained_section(task: Any) -> Any:
    """The section of a table of settings. Raises InputError for a kind that is unknown."""
    if not isinstance(task, Mapping):
        return task
    section = trained_section_of(task)
    if section is not None:
        return section.model_validate(task)
    known = ", ".join(f"'{kind}'" for kind in TRAINED)
    raise InputError("task.kind", task.get("kind", ABSENT), f"use {known} to train a network")


class TrainingRecipe(NamedRecipe):
    """All settings of a training, defaults included; frozen."""

    task: Annotated[SerializeAsAny[TrainedSection], BeforeValidator(read_trained_section)]
    training: TrainingSection = TrainingSection()

    @property
    def seeds(self) -> dict:
        """Every seed, for the manifest."""
        return {"task": self.task.seed, "training": self.training.seed}

    @property
    def precision(self) -> dict:
        """The floating-point numbers computed with, for the manifest."""
        return {"training": "float32"}


def load_training_recipe(path: str | Path, overrides: Sequence[str] = ()) -> TrainingRecipe:
    """Read and validate a training recipe; overrides and errors as of `load_recipe`."""
    path = Path(path)
    settings = read_toml(path)
    for override in overrides:
        place(settings, *parse_override(override))
    if "training" not in settings:
        remedy = "this section is required; a recipe without it is for `run`"
        raise InputError("training", ABSENT, remedy)
    resolve_data_path(settings, path.parent, trained_section_of(settings.get("task")))
    return make_training_recipe(settings)


def make_training_recipe(settings: dict[str, Any]) -> TrainingRecipe:
    """Validate settings; raises InputError with the dotted key, the value and the remedy."""
    load_plugins()
    try:
        recipe = TrainingRecipe.model_validate(settings)
    except ValidationError as problem:
        task = trained_section_of(settings.get("task")) or TrainedSection
        raise recipe_error(problem, settings, TrainingRecipe, task=task) from None
    _ = recipe.training.layer_widths  # refused here if they do not fit the layers
    recipe.task.refuse_unfit(recipe.training)
    return recipe


def refuse_unfit_variants(
    settings: TrainingSection, tokens: int | None = None, of: str = ""
) -> None:
    """Raise InputError if a variant cannot be trained, or not on so many tokens, `of` what."""
    for layer, of_layer in enumerate(settings.variants, start=1):
        for head, variant in enumerate(of_layer):
            remedy = variant.untrainable
            if remedy is not None:
                remedy = f"{remedy}; use a variant that can be differentiated"
            try:
                if tokens is not None:
                    variant.refuse_tokens(tokens)
            except ValueError as problem:
                remedy = f"{problem} (the tokens are those of {of})"
            if remedy is not None:
                remedy = f"layer {layer}, head {head}: {remedy}"
                raise InputError("training.form", variant.kind, remedy)


def load_any_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe | TrainingRecipe:
    """A recipe of either kind: one with a section [training] is for `train`."""
    load = load_training_recipe if "training" in read_toml(path) else load_recipe
    return load(path, overrides)
