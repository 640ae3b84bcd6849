"""The section of a training recipe that says which images a network learns from."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from sampler.recipes.sections import Section, Seed, Switch

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
