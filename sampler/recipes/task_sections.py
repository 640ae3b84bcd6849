"""The sections of tasks in recipes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from sampler.recipes.sections import (
    Count,
    HeadKind,
    NotNegative,
    Section,
    Seed,
    Switch,
    TaskSettings,
    ValidationCount,
)

SIDE = 32  # pixels of an image
PATCH = 8  # pixels of a patch
GRID = SIDE // PATCH  # rows, and columns, of patches
PATCHES = GRID**2  # of one image
IMAGES = 3  # of one episode
TOKENS = IMAGES * PATCHES


Text = Annotated[str, Field(strict=True, min_length=1)]
Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
OmniglotFile = Literal[
    "images_background.zip",
    "images_evaluation.zip",
    "images_background_small1.zip",
    "images_background_small2.zip",
]


class ImageSection(Section):
    """One-shot image classification: images, and which characters are for what.

    `images` is "digits", which come with scikit-learn, "omniglot", whose zip files are in `folder`,
    or the path of an .npz file. `archives` are the zip files to use, by default all that are there;
    `download` fetches those that are missing, by default the two small sets. `characters_…` list
    characters or whole alphabets; without a list a fraction of all characters is drawn, and
    training has the rest. `channels` counts equal copies of the grey values.
    """

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
        if images not in ("digits", "omniglot") and not images.endswith(".npz"):
            raise ValueError('use "digits", "omniglot", or the path of an .npz file')
        return images


DIGIT_HEADS: tuple[HeadKind, ...] = ("similar", "near", "uniform", "random")
# Of scikit-learn's handwritten digits.
DRAWINGS = 1797
Digit = Annotated[int, Field(strict=True, ge=0, le=9)]


class DigitsSection(TaskSettings):
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn; one output per class.

    Every token is a square patch of `patch` × `patch` pixels. Labels are 1 for the class and 0 for
    the others, less their mean 1/classes. The splits are disjoint and drawn by `seed`, classes as
    often as they come among the 1,797 drawings.
    """

    head_kinds: ClassVar = DIGIT_HEADS

    kind: Literal["digits"]
    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] = tuple(range(10))
    examples_train: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 100
    examples_test: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 700
    examples_validation: ValidationCount = 0
    patch: Literal[1, 2, 4] = 2
    seed: Seed = 0
    head_seed: Seed = 0

    @field_validator("classes")
    @classmethod
    def are_different(cls, classes):
        if len(set(classes)) != len(classes):
            raise ValueError("name every class once")
        return classes


SERIES_HEADS: tuple[HeadKind, ...] = ("lag", "uniform", "random")
# How far lag heads look back if nothing is said: the lag of the series that are made.
DEFAULT_LAG = 5


class TimeSeriesSection(TaskSettings):
    """Series of a hidden oscillation: one half of the channels leads the other, or follows it.

    The classes differ in the sign of `lag` alone: one is the other with time reversed. `period` is
    that of the oscillation in time steps, `phase_noise` the standard deviation of its phase steps,
    `noise` that of white noise in every channel, whose signal has variance 1.
    """

    head_kinds: ClassVar = SERIES_HEADS

    kind: Literal["time_series"]
    examples_train: Annotated[int, Field(strict=True, ge=2)] = 100
    examples_test: Annotated[int, Field(strict=True, ge=2)] = 1000
    examples_validation: ValidationCount = 0
    tokens: Annotated[int, Field(strict=True, ge=2)] = 40
    channels: Annotated[int, Field(strict=True, ge=2, multiple_of=2)] = 16
    lag: Count = DEFAULT_LAG
    period: Annotated[int, Field(strict=True, ge=3)] = 20
    phase_noise: NotNegative = 0.1
    noise: NotNegative = 0.8
    seed: Seed = 0
    head_seed: Seed = 0

    @field_validator("period")
    @classmethod
    def lets_the_classes_differ(cls, period, others):
        lag = others.data.get("lag")
        if lag is not None and 2 * lag % period == 0:
            raise ValueError(
                f"with lag = {lag} both classes are the same: twice the lag must not be a multiple "
                "of the period"
            )
        return period


class SeriesArchiveSection(TaskSettings):
    """Series of the UEA multivariate archive, in a folder relative to the recipe.

    `problem` is the name in `<problem>_TRAIN.ts` and `<problem>_TEST.ts`, or `.arff`, by default
    that of the folder. `classes` names the two classes to separate, +1 first, where there are more.
    Each token is the mean of `stride` time steps, by default as few as leave at most `max_tokens`.
    """

    head_kinds: ClassVar = SERIES_HEADS

    kind: Literal["time_series"]
    folder: Text
    problem: Text | None = None
    classes: tuple[Text, Text] | None = None
    stride: Count | None = None
    max_tokens: Annotated[int, Field(strict=True, ge=2)] = 50
    head_seed: Seed = 0

    @field_validator("classes")
    @classmethod
    def are_two(cls, classes):
        if classes is not None and classes[0] == classes[1]:
            raise ValueError("name two different classes")
        return classes
